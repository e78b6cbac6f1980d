"""What the engine does with DataFrames where there is no JVM to ask: public API, and a few more jobs."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from midstream.engine.connect.session import id_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_SETTLED = 512
_views: dict[str, deque[str]] = {}


def settled(frame: DataFrame) -> DataFrame:
    """A DataFrame that stays what it is now. Spark Connect looks names of views up when a DataFrame runs, and by then
    another one may have the name; a view is resolved when it is made."""
    session = frame.sparkSession
    name = f"midstream_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    known = _views.setdefault(id_of(session), deque())
    known.append(name)
    if len(known) > _SETTLED:
        session.catalog.dropTempView(known.popleft())
    return session.table(name)


class Maxima:
    """The greatest times of some columns. Asked for in a job of its own: there is no way to note them in passing."""

    def __init__(self, frame: DataFrame, columns: Mapping[str, tuple[str, DataType]]) -> None:
        self.frame = frame
        self._columns = columns

    def read(self) -> dict[str, int | None]:
        """In microseconds since 1970; None when no row had a time."""
        local = {name: isinstance(kind, TimestampNTZType) for name, (_, kind) in self._columns.items()}
        values = [
            F.expr(f"max({sql if local[name] else f'unix_micros({sql})'}) AS m{number}")
            for number, (name, (sql, _)) in enumerate(self._columns.items())
        ]
        found = self.frame.agg(*values).collect()[0]
        return {name: _microseconds(value) for name, value in zip(self._columns, found, strict=True)}


def _microseconds(value: Any) -> int | None:
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    return value  # type: ignore[no-any-return]


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, which Catalyst does not know."""
    return spark.range(0, 1, 1, 1).mapInArrow(_nothing, schema)


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    return iter(())
