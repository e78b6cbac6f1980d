"""The steps of a pipeline: frozen facts with a stable id the user chose. No Spark object is held here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from midstream.errors import GraphError
from midstream.eventtime.sides import How
from midstream.eventtime.windows import Clock, Windowing
from midstream.state.compaction import CompactionPolicy
from midstream.state.hashspace import HashRange
from midstream.state.splits import Split
from midstream.state.tables import TableKind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from midstream.aggregates.spec import Fold
    from midstream.sinks.base import Sink

    Schema: TypeAlias = str | StructType | pa.Schema
    Aggregate: TypeAlias = Column | str | Fold

SQL_INPUT = "input"
"""The view an SQL step reads."""

_ID = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class OutputMode(StrEnum):
    """What a keyed step gives on each epoch: the rows of changed keys, the whole result, or the rows of changed keys
    with those they replace."""

    CHANGED = "changed"
    COMPLETE = "complete"
    RETRACTIONS = "retractions"


@dataclass(frozen=True)
class Step:
    """A node of the pipeline."""

    id: str

    def __post_init__(self) -> None:
        given: object = self.id
        if not isinstance(given, str) or not _ID.fullmatch(given):
            raise GraphError.bad_id(self.id)

    @property
    def inputs(self) -> tuple[Step, ...]:
        return ()

    def reading(self, *inputs: Step) -> Self:
        """This step with other inputs, as many as it takes."""
        return replace(self, input=inputs[0]) if inputs else self  # type: ignore[call-arg]

    @property
    def kind(self) -> str:
        return type(self).__name__.removesuffix("Step").lower()


@dataclass(frozen=True)
class Watermark:
    """How far event time has come in a source: the latest time seen less a delay, in microseconds. One that has given
    no rows for `idle_after` does not hold the others back."""

    column: str
    delay: int
    idle_after: int | None = None


@dataclass(frozen=True)
class SourceStep(Step):
    load: Callable[[SparkSession], DataFrame]
    watermark: Watermark | None = None


@dataclass(frozen=True)
class LoopStep(Step):
    """Rows that were fed back in the epoch before."""

    schema: Schema


@dataclass(frozen=True)
class TransformStep(Step):
    input: Step
    function: Callable[[DataFrame], DataFrame]

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.input,)


@dataclass(frozen=True)
class SqlStep(Step):
    """SQL over the view `input`, and over others under names of their own."""

    input: Step
    text: str
    others: tuple[tuple[str, Step], ...] = ()

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.input, *(step for _, step in self.others))

    def reading(self, *inputs: Step) -> Self:
        names = (name for name, _ in self.others)
        return replace(self, input=inputs[0], others=tuple(zip(names, inputs[1:], strict=True)))

    @property
    def views(self) -> tuple[str, ...]:
        """The names its inputs have in the text."""
        return (SQL_INPUT, *(name for name, _ in self.others))


@dataclass(frozen=True)
class UnionStep(Step):
    members: tuple[Step, ...]

    @property
    def inputs(self) -> tuple[Step, ...]:
        return self.members

    def reading(self, *inputs: Step) -> Self:
        return replace(self, members=inputs)


@dataclass(frozen=True)
class KeyedStep(Step):
    """A step with state by key. `parallelism` None means as many partitions as Spark has cores; `ranges` are given
    when they are uneven."""

    input: Step
    keys: tuple[str, ...]
    parallelism: int | None
    compaction: CompactionPolicy
    ranges: tuple[HashRange, ...] | None = field(default=None, kw_only=True)
    splits: tuple[Split, ...] = field(default=(), kw_only=True)
    """Keys that are to be in parts."""

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.input,)

    @property
    def is_clocked(self) -> bool:
        """Whether it goes by the clock on the wall."""
        return False


@dataclass(frozen=True)
class AggregateStep(KeyedStep):
    aggregates: Mapping[str, Aggregate]
    output_mode: OutputMode = OutputMode.CHANGED
    windowing: Windowing | None = None

    @property
    def is_clocked(self) -> bool:
        return self.windowing is not None and self.windowing.clock is Clock.PROCESSING


@dataclass(frozen=True)
class WindowStep(KeyedStep):
    """Windows whose rows are kept, for a function of the user's own when they are over."""

    windowing: Windowing
    function: Callable[..., Any]
    output: Schema

    @property
    def is_clocked(self) -> bool:
        return self.windowing.clock is Clock.PROCESSING


@dataclass(frozen=True)
class LateStep(Step):
    """The rows a step with windows has left out, because all of their windows were closed."""

    of: AggregateStep | WindowStep

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.of, *self.of.inputs)

    def reading(self, *inputs: Step) -> Self:
        of = inputs[0]
        assert isinstance(of, AggregateStep | WindowStep)
        return replace(self, of=of)


@dataclass(frozen=True)
class StateTable:
    """One named table of a `stateful` step; see `midstream.table`."""

    schema: Schema
    kind: TableKind = TableKind.VALUE
    range_column: str | None = None


@dataclass(frozen=True)
class StatefulStep(KeyedStep):
    function: Callable[..., Any]
    state: Mapping[str, StateTable]
    output: Schema
    named: bool
    per_key: bool = False
    timer: str | None = None
    """The column of the state that says when the function is to be called again."""
    clock: Clock = Clock.EVENT
    """What time that is."""

    @property
    def is_clocked(self) -> bool:
        return self.timer is not None and self.clock is Clock.PROCESSING


@dataclass(frozen=True)
class JoinStep(KeyedStep):
    """Two streams by key: within windows, or within a stretch of time of each other."""

    other: Step
    how: How
    windowing: Windowing | None = None
    within: tuple[int, int] | None = None
    times: tuple[str | None, str | None] = (None, None)
    """The columns of the event time of both sides."""
    latest: bool = False
    """Whether the right side is a table, of which each row replaces the one of its key."""

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.input, self.other)

    def reading(self, *inputs: Step) -> Self:
        return replace(self, input=inputs[0], other=inputs[-1])


@dataclass(frozen=True)
class TopStep(KeyedStep):
    """The first rows of each key by an order; `ranked` when they are told apart by their rank."""

    n: int
    order: tuple[tuple[str, str], ...]
    ranked: bool


@dataclass(frozen=True)
class DedupStep(KeyedStep):
    """Of each key only the first row, for as long as its repetitions may come."""

    time: str | None = None


@dataclass(frozen=True)
class SinkStep(Step):
    input: Step
    sink: Sink = field(repr=False)

    @property
    def inputs(self) -> tuple[Step, ...]:
        return (self.input,)


@dataclass(frozen=True)
class FeedbackStep(SinkStep):
    """The end of a loop: its rows enter again where the loop begins, in the next epoch."""

    to: str
    """The id of the `LoopStep`."""
