"""The pulse: epochs although no source has rows.

Spark runs a micro-batch when a source has something new. The pulse is a source that never has rows, and says that it
has something new when an epoch is wanted: at once while rows go round in a loop, or at a moment of the clock, for
timers and to find that a source has gone idle. The driver leaves that moment in a small file. A run that ends by itself
ends when no source has rows and no epoch is wanted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from midstream.engine.compile import Compiled
from midstream.engine.loops import rows_under_way
from midstream.errors import EpochError
from midstream.state.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE = 0.0


class PulseReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Its offset counts the epochs that were wanted."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is wanted while the run goes on counts too."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"beat": 0}

    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> dict[str, int]:  # noqa: N802
        if start is None:
            raise EpochError.no_pulse()
        moment = self._path.read_text()
        return {"beat": start["beat"] + 1} if moment and time.time() >= float(moment) else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        return iter(())


class PulseSource(DataSource):
    """The data source `midstream-pulse`."""

    @classmethod
    def name(cls) -> str:
        return "midstream-pulse"

    def schema(self) -> str:
        return "beat bigint"

    def streamReader(self, schema: object) -> DataSourceStreamReader:  # noqa: N802
        return PulseReader(self.options["path"])


class Pulse:
    """The driver's side: when the next epoch is wanted."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._file: Path | None = None

    def frame(self) -> DataFrame:
        """A streaming DataFrame without rows."""
        if self._file is None:
            self._file = Path(tempfile.mkdtemp(prefix="midstream-pulse-")) / "wanted"
            self._file.write_text("")
            self._spark.dataSource.register(PulseSource)
        return self._spark.readStream.format(PulseSource.name()).option("path", str(self._file)).load()

    def want(self, compiled: Compiled, last: Manifest) -> None:
        """Have an epoch run when one is wanted behind the last one."""
        if self._file is not None:
            moment = wanted_at(compiled, last)
            made = self._file.with_suffix(".new")
            made.write_text("" if moment is None else repr(moment))
            os.replace(made, self._file)

    def close(self) -> None:
        if self._file is not None:
            shutil.rmtree(self._file.parent, ignore_errors=True)


def wanted_at(compiled: Compiled, last: Manifest) -> float | None:
    """When an epoch is wanted although no source has rows, in seconds since 1970; None when none is."""
    if any(rows_under_way(compiled.pipeline, last).values()):
        return _AT_ONCE
    moments = [
        due / 1_000_000
        for id_, keyed in compiled.keyed.items()
        if keyed.step.is_clocked and id_ in last.steps and (due := last.steps[id_].due) is not None
    ]
    for source in compiled.pipeline.sources:
        mark, known = source.watermark, last.times.get(source.id)
        if mark is None or mark.idle_after is None or known is None or known.idle or known.rows_at is None:
            continue
        moments.append(known.rows_at + mark.idle_after / 1_000_000)
    return min(moments, default=None)
