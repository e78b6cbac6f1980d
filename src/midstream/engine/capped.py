"""A cap on the rows of an epoch: the option each format has for it, put in place of what the source's own code sets.

Sources are functions of a session. They are given one whose `readStream` knows the cap; all else is the real one's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from midstream.errors import ChangeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

FILES = ("csv", "json", "orc", "parquet", "text", "xml", "avro")
_OPTIONS = {"kafka": "maxOffsetsPerTrigger", "rate-micro-batch": "rowsPerBatch"}


class CappedSession:
    """A session whose streaming reader caps what an epoch reads."""

    def __init__(self, spark: SparkSession, source: str, rows: int, rows_per_file: float | None) -> None:
        self._spark = spark
        self._source = source
        self._rows = rows
        self._rows_per_file = rows_per_file
        self.used = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    @property
    def readStream(self) -> DataStreamReader:  # noqa: N802
        return _capped(type(self._spark.readStream))(self._spark, self.option_for)  # type: ignore[no-any-return]

    def option_for(self, format_: str) -> tuple[str, int]:
        """The option that caps a format, and its value."""
        self.used = True
        if format_ in FILES and self._rows_per_file:
            return "maxFilesPerTrigger", max(1, int(self._rows // self._rows_per_file))
        if format_ in _OPTIONS:
            return _OPTIONS[format_], self._rows
        reason = "no epoch tells yet how many rows a file has" if format_ in FILES else f"it reads '{format_}'"
        raise ChangeError.no_cap(self._source, reason, [*FILES, *_OPTIONS])


def _capped(reader: Any) -> Any:
    """A kind of reader that caps what it reads: Spark Connect has one of its own."""

    class Capped(reader):  # type: ignore[misc]
        def __init__(self, spark: SparkSession, option_for: Callable[[str], tuple[str, int]]) -> None:
            super().__init__(spark)
            self._option_for = option_for
            self._source_format = str(spark.conf.get("spark.sql.sources.default"))

        def format(self, source: str) -> DataStreamReader:
            self._source_format = source
            return super().format(source)  # type: ignore[no-any-return]

        def load(self, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> DataFrame:
            self._cap(format or self._source_format)
            return super().load(path, format, schema, **options)  # type: ignore[no-any-return]

        def _cap(self, format_: str) -> None:
            # The last word: it takes the place of what was set before.
            self.option(*self._option_for(format_.lower()))

    def of_format(name: str) -> Callable[..., Any]:
        def read(self: Capped, *arguments: Any, **options: Any) -> Any:
            self._cap(name)
            return getattr(reader, name)(self, *arguments, **options)

        return read

    for name in FILES:
        if hasattr(reader, name):
            setattr(Capped, name, of_format(name))
    return Capped
