"""NEXMark events as a Spark data source: `spark.dataSource.register(NexmarkSource)`, then `format("nexmark")`.

Options: `table` (person, auction or bid); `seed`; `rate`, events in a second of event time; `events`, how many there
are in all; `events_per_epoch`; `events_per_second`, by the clock on the wall; `partitions`. Offsets are numbers of
events, so that sources with the same options are at the same events, and any part can be read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from midstream.errors import MidstreamError
from midstream.nexmark.events import CYCLE, SCHEMAS, Nexmark

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.1: a run that ends by itself is one epoch there

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


_BATCH_EVENTS = 250_000
"""Events looked at for one record batch."""

_ENDLESS = 2**62


@dataclass(frozen=True)
class NexmarkOptions:
    table: str = "bid"
    seed: int = 1
    rate: int = 10_000
    events: int = _ENDLESS
    events_per_epoch: int = 0
    events_per_second: int = 0
    partitions: int = 2

    @classmethod
    def of(cls, given: Mapping[str, str]) -> NexmarkOptions:
        known = {field.name: field for field in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known or (name != "table" and not value.isdecimal()):
                raise MidstreamError(
                    "BAD_NEXMARK_OPTION",
                    f"The option {name}={value!r} is none of the source 'nexmark'.",
                    hint=f"it takes table ({', '.join(SCHEMAS)}) and whole numbers for {', '.join(list(known)[1:])}.",
                )
            chosen[name] = value if name == "table" else int(value)
        options = cls(**chosen)
        if options.table not in SCHEMAS:
            raise MidstreamError(
                "BAD_NEXMARK_OPTION",
                f"There is no table '{options.table}' in NEXMark.",
                hint=f"one of {', '.join(SCHEMAS)}.",
            )
        return options

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The rows of the table among some events."""
        stream = Nexmark(self.seed, self.rate)
        for start in range(first, last, _BATCH_EVENTS):
            yield from stream.table(self.table, start, min(start + _BATCH_EVENTS, last)).to_batches()

    def cut(self, first: int, last: int) -> list[Events]:
        """Events in equal parts, which end at whole cycles so that each has its share of the table."""
        cycles = -(-(last - first) // CYCLE)
        step = max(1, -(-cycles // self.partitions)) * CYCLE
        return [Events((start, min(start + step, last))) for start in range(first, last, step)]


class Events(InputPartition):
    """The events from one number up to another."""


class NexmarkReader(DataSourceReader):
    def __init__(self, options: NexmarkOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return self._options.cut(0, self._options.events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(*partition.value)


class NexmarkStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: NexmarkOptions) -> None:
        self._options = options
        self._began: tuple[float, int] | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """A run that ends by itself ends with the last event; one without end would not."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"event": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> dict[str, int]:  # noqa: N802
        options = self._options
        if start is None:
            return {"event": options.events}  # Spark 4.1 does not say where it is
        first = start["event"]
        last = options.events
        if options.events_per_epoch:
            last = min(last, first + options.events_per_epoch)
        if options.events_per_second:
            self._began = self._began or (time.monotonic(), first)
            seconds = time.monotonic() - self._began[0]
            last = min(last, self._began[1] + int(seconds * options.events_per_second))
        return {"event": max(first, last)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._options.cut(start["event"], end["event"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(*partition.value)


class NexmarkSource(DataSource):
    """The data source `nexmark`."""

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMAS[self._options.table])

    def reader(self, schema: StructType) -> DataSourceReader:
        return NexmarkReader(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return NexmarkStreamReader(self._options)

    @property
    def _options(self) -> NexmarkOptions:
        return NexmarkOptions.of(self.options)
