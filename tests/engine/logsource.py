"""A Python data source that can be read again: the lines of a file, by number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType


class LineRange(InputPartition):
    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class LogReader(DataSourceStreamReader):
    def __init__(self, path: str) -> None:
        self._path = path

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"line": 0}

    def latestOffset(self, *_: Any) -> dict[str, int]:  # noqa: N802
        return {"line": len(Path(self._path).read_text().splitlines())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        middle = (start["line"] + end["line"]) // 2
        return [LineRange(start["line"], middle), LineRange(middle, end["line"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, str]]:
        assert isinstance(partition, LineRange)
        lines = Path(self._path).read_text().splitlines()
        for number in range(partition.start, partition.end):
            yield number, lines[number]


class LogSource(DataSource):
    """`format("log").option("path", …)`: columns `number` and `line`."""

    @classmethod
    def name(cls) -> str:
        return "log"

    def schema(self) -> str:
        return "number bigint, line string"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LogReader(self.options["path"])
