"""What a task tells the driver: facts about files it wrote and rows it saw. The driver decides what becomes real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from midstream.errors import MidstreamError
from midstream.state.heat import BinCounts, KeyCounts
from midstream.state.manifest import StagedFile
from midstream.state.segment import SegmentInfo
from midstream.state.splits import Split


@dataclass(frozen=True)
class TableWrite:
    """A delta a task wrote to one table; `segment` is None when no row changed."""

    segment: SegmentInfo | None
    added: int
    removed: int
    delete_below: object | None = None


@dataclass(frozen=True)
class TaskReport:
    """One attempt of one partition of one step. `run` names one try of one epoch: late reports are told by it."""

    run: str
    step: str
    partition: int
    attempt: str
    rows: int
    arrived: int
    groups: int
    output_rows: int
    milliseconds: float
    fetched_bytes: int = 0
    tables: Mapping[str, TableWrite] = field(default_factory=dict)
    staged: Mapping[str, StagedFile] = field(default_factory=dict)
    heat: BinCounts | None = None
    late: int = 0
    """Rows that came after their time was over, and were left out."""
    hot: KeyCounts = ()
    """Keys that had many rows."""
    touched: tuple[int, ...] = ()
    """Hashes of keys in parts that got rows."""
    splits: tuple[Split, ...] | None = None
    """Which keys of the partition are in parts from now on; None when nothing changes about that."""
    due: int | None = None
    """When the next thing in the state it has seen is due, in event time."""


@dataclass(frozen=True)
class TaskFailure:
    """Why a task of a trial failed, told instead of raised: a task that raises takes its Python worker with it, and the
    stream's next epoch would have to wait for another one to start."""

    run: str
    step: str
    error: MidstreamError


Told: TypeAlias = TaskReport | TaskFailure
