"""Reports of tasks on their way to the driver, drained once an epoch.

They go by a Python accumulator, or by files in the checkpoint where Spark has no accumulators (Spark Connect).

An accumulator has reports of successful attempts only. A file may also be of one that failed after it had written
everything, which is as good: what it reports is all there, and another attempt's is compared with it.
"""

from __future__ import annotations

import pickle
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import AccumulatorParam

from midstream.engine.connect.session import is_remote
from midstream.errors import EpochError, MidstreamError, UserFunctionError
from midstream.state.collector import REPORTS
from midstream.state.store import Store
from midstream.task.report import TaskFailure, TaskReport, Told

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkContext
    from pyspark.sql import SparkSession


class UnclearReportsError(Exception):
    """It is not known what an epoch did: two attempts of a partition delivered different things, or one none at all."""

    def __init__(self, reason: MidstreamError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Append(AccumulatorParam[list[Told]]):
    def zero(self, value: list[Told]) -> list[Told]:
        return []

    def addInPlace(self, value1: list[Told], value2: list[Told]) -> list[Told]:  # noqa: N802
        return [*value1, *value2]


class Send:
    """How a task delivers its report. Spark hands over reports of successful tasks only."""

    def __init__(self, accumulator: Accumulator[list[Told]]) -> None:
        self._accumulator = accumulator

    def __call__(self, report: Told) -> None:
        self._accumulator.add([report])


@dataclass(frozen=True)
class SendFile:
    """The same by a file in a folder."""

    store: Store
    folder: str

    def __call__(self, report: Told) -> None:
        self.store.put(f"{self.folder}/{report.run}-{uuid.uuid4().hex}", pickle.dumps(report))


class ReportBox:
    """Collects the reports of one query, epoch by epoch: what tasks `send`, and the driver takes by the try."""

    def __init__(self, send: Callable[[Told], None], take: Callable[[str], list[Told]]) -> None:
        self.send = send
        self._take = take

    @classmethod
    def of(cls, spark: SparkSession, store: Store) -> ReportBox:
        return cls.in_store(store) if is_remote(spark) else cls.accumulating(spark.sparkContext)

    @classmethod
    def accumulating(cls, context: SparkContext) -> ReportBox:
        accumulator = context.accumulator([], _Append())

        def take(run: str) -> list[Told]:
            mine = [report for report in accumulator.value if report.run == run]
            accumulator.value = []
            return mine

        return cls(Send(accumulator), take)

    @classmethod
    def in_store(cls, store: Store) -> ReportBox:
        folder = f"{REPORTS}/{uuid.uuid4().hex}"

        def take(run: str) -> list[Told]:
            paths = [item.path for item in store.list(folder)]
            mine = [path for path in paths if path.startswith(f"{folder}/{run}-")]
            reports: list[Told] = [pickle.loads(store.read(path).to_pybytes()) for path in mine]
            store.delete(paths)
            return reports

        return cls(SendFile(store, folder), take)

    def drain(self, run: str, partitions: Mapping[str, int]) -> dict[str, list[TaskReport]]:
        """The reports of one try of an epoch by step, one a partition; later tries and earlier ones are left out.

        `partitions` says how many each keyed step has. Raises the failure a task of a trial has told.
        """
        mine = self._take(run)
        for told in mine:
            if isinstance(told, TaskFailure):
                raise told.error
        reports = one_per_partition(report for report in mine if isinstance(report, TaskReport))
        require_all(reports, partitions)
        return reports


def one_per_partition(reports: Iterable[TaskReport]) -> dict[str, list[TaskReport]]:
    """One report a partition. Attempts that wrote the same rows are as good as each other; others are a conflict."""
    chosen: dict[str, dict[int, TaskReport]] = defaultdict(dict)
    for report in reports:
        other = chosen[report.step].setdefault(report.partition, report)
        if other is not report and _content(other) != _content(report):
            raise UnclearReportsError(UserFunctionError.not_deterministic(report.step, report.partition))
    return {step: [by_partition[p] for p in sorted(by_partition)] for step, by_partition in chosen.items()}


def require_all(reports: Mapping[str, list[TaskReport]], partitions: Mapping[str, int]) -> None:
    """Catalyst leaves out what a later step does not need (`limit`, `where false`), and with it the state it would have
    written. That shows here: every partition of a keyed step reports, those without rows too."""
    for step, wanted in partitions.items():
        if len(reports.get(step, ())) < wanted:
            raise UnclearReportsError(EpochError.step_left_out(step, len(reports.get(step, ())), wanted))


def _content(report: TaskReport) -> object:
    written = {
        name: (w.segment.checksum if w.segment else None, w.added, w.removed, w.delete_below)
        for name, w in report.tables.items()
    }
    staged = {sink: (file.rows, file.bytes) for sink, file in report.staged.items()}
    return report.rows, report.groups, report.output_rows, written, staged
