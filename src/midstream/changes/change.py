"""Changes to a running pipeline, as a user writes them. Facts only: `edit.py` carries them out on a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from midstream.errors import ChangeError
from midstream.state.compaction import CompactionPolicy
from midstream.state.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from midstream.eventtime.durations import Duration
    from midstream.eventtime.windows import Window
    from midstream.graph.steps import Aggregate, Schema, StateTable
    from midstream.graph.stream import Stream
    from midstream.sinks.base import Sink


@dataclass(frozen=True)
class Guard:
    """What is promised of a changed step, watched for some `epochs` after the change; it is undone when it breaks.

    `errors` is an SQL condition that is true for bad rows of the step's output; more than `error_rate` of them are too
    many. `check` is your own function of the output, a DataFrame, that says whether it is good. `max_epoch_ms` bounds
    the time of an epoch.
    """

    errors: str | None = None
    error_rate: float = 0.0
    check: Callable[[DataFrame], bool] | None = None
    max_epoch_ms: float | None = None
    epochs: int = 10

    def __post_init__(self) -> None:
        if self.errors is None and self.check is None and self.max_epoch_ms is None:
            raise ChangeError.bad_guard("it promises nothing")
        if self.epochs < 1 or not 0 <= self.error_rate <= 1:
            raise ChangeError.bad_guard(f"epochs is {self.epochs}, error_rate is {self.error_rate}")

    @property
    def reads_output(self) -> bool:
        return self.errors is not None or self.check is not None


@dataclass(frozen=True)
class Body:
    """What a step does, in the words the steps of a pipeline are written in. One of them, or one way to say it."""

    function: Callable[..., Any] | None = None
    _: KW_ONLY
    sql: str | None = None
    aggregate: Mapping[str, Aggregate] | None = None
    key_by: str | Sequence[str] | None = None
    window: Window | None = None
    time: str | None = None
    lateness: Duration = "0 seconds"
    emit: Literal["closed", "changed"] = "closed"
    state: Schema | Mapping[str, StateTable] | None = None
    output: Schema | None = None
    per_key: bool = False
    sink: Sink | None = None
    source: Callable[[SparkSession], DataFrame] | None = None
    build: Callable[..., Stream] | None = None
    """Any step, in the words of a pipeline: a function from the stream it reads, and those it also `reads`, to the
    stream of the step, under the id it has in the change."""
    reads: Sequence[str] = ()
    guard: Guard | None = None

    @property
    def given(self) -> list[str]:
        """The ways used to say what the step does: there must be one."""
        ways = ("function", "sql", "aggregate", "sink", "source", "build")
        return [way for way in ways if getattr(self, way) is not None]

    @property
    def keys(self) -> tuple[str, ...] | None:
        if self.key_by is None:
            return None
        return (self.key_by,) if isinstance(self.key_by, str) else tuple(self.key_by)


@dataclass(frozen=True)
class _Replace:
    step: str


@dataclass(frozen=True, kw_only=True)
class Replace(Body, _Replace):
    """Another body for a step: `Replace("clean", new_function)`, `Replace("clean", sql="SELECT …")`,
    `Replace("totals", aggregate={"n": F.count("*")})`, `Replace("out", sink=…)`.

    What is not given stays: keys, windows, state, output. With another `window`, those that are open take no more rows
    and give what they have when they are over; with `on_open_windows="drain"` they give it at once, in the epoch before
    the change, and the step begins without state. State of another schema is converted as rows are read: an added
    column is null, a number may get wider, `rename` maps old names of columns to new ones, and `convert` is your own
    function from a pyarrow table of old rows to one of new rows.
    """

    rename: Mapping[str, str] = field(default_factory=dict)
    convert: Callable[[Any], Any] | None = None
    on_open_windows: Literal["keep", "drain"] = "keep"

    @property
    def target(self) -> str:
        """The step it is about."""
        return self.step

    def __str__(self) -> str:
        return f"replace {self.step}"


@dataclass(frozen=True)
class _Insert:
    id: str


@dataclass(frozen=True, kw_only=True)
class Insert(Body, _Insert):
    """A new step `after` another (what read that one then reads the new one), `before` one, or `between` two.

    A sink only adds a reader. `branch=True` does the same for any other step: what read the other step still does, and
    a further change adds what reads the new one. A source is read by what comes `after` it, or goes `into` a union.
    """

    after: str | None = None
    before: str | None = None
    between: tuple[str, str] | None = None
    into: str | None = None
    branch: bool = False
    parallelism: int | None = None
    compaction: CompactionPolicy | None = None

    @property
    def target(self) -> str:
        """The step it is about."""
        return self.id

    def __str__(self) -> str:
        return f"insert {self.id}"


@dataclass(frozen=True)
class Remove:
    """Take a step out: what read it then reads what it read. Steps that no longer lead to a sink go with it.

    The windows it has open go with its state; with `on_open_windows="drain"` they give what they have in the epoch
    before.
    """

    step: str
    _: KW_ONLY
    on_open_windows: Literal["drop", "drain"] = "drop"

    def __str__(self) -> str:
        return f"remove {self.step}"


@dataclass(frozen=True)
class Rescale:
    """Another number of partitions for a keyed step, or the hashes at which they begin. No state is rewritten."""

    step: str
    to: int | Sequence[int]

    def __str__(self) -> str:
        to = self.to if isinstance(self.to, int) else f"{len(self.to)} uneven ranges"
        return f"rescale {self.step} to {to}"


@dataclass(frozen=True)
class Rebalance:
    """Ranges of another width for a keyed step, so that its partitions have equally much to do by what they had to do
    lately; `to` another number of them. No state is rewritten.

    Ranges cannot divide one key. With `split=True`, keys that are too much for one partition are kept in parts by
    several, of which results are made, and those that are stay so; with `split=False` all are put together again.
    Aggregates that can be merged allow for it.
    """

    step: str
    to: int | None = None
    _: KW_ONLY
    split: bool | None = None
    starts: Sequence[int] | None = None
    """The hashes at which partitions begin: found when it is handed in."""
    splits: Sequence[Split] | None = None
    """Keys in parts from then on: found when it is handed in. None leaves them as they are."""

    def __str__(self) -> str:
        to = f" to {self.to}" if self.to is not None else ""
        parts = {None: "", True: ", hot keys in parts", False: ", no keys in parts"}[self.split]
        return f"rebalance {self.step}{to}{parts}"


@dataclass(frozen=True)
class Tune:
    """Settings of the run, or of one keyed step (`step` with `compaction`). None leaves a setting as it is."""

    step: str | None = None
    _: KW_ONLY
    compaction: CompactionPolicy | None = None
    trigger_seconds: float | None = None
    rows_per_epoch: int | None = None
    arrow_batch_rows: int | None = None
    fetch_bytes_per_second: float | None = None
    """How fast state may be brought to where instances are about to move."""
    fetch_policy: str | None = None
    """`hot-first`: brought there before they move, hottest first. To compare with: `on-demand` (they move at once and
    fetch what their rows need, the rest follows), `order-unaware` (they move at once, fetch in plain order, and begin
    when what their rows need is there), `all-at-once` (they move at once, and begin when all of it is there)."""
    rows_per_file: Mapping[str, float] | None = None
    """By source; measured on the last epoch unless given."""

    def __str__(self) -> str:
        numbers = ("trigger_seconds", "rows_per_epoch", "arrow_batch_rows", "fetch_bytes_per_second", "fetch_policy")
        told = [f"{name} {getattr(self, name)}" for name in numbers if getattr(self, name) is not None]
        told += [f"compaction of {self.step or 'all steps'}"] if self.compaction is not None else []
        return f"tune {', '.join(told)}"


@dataclass(frozen=True)
class Migrate:
    """Move instances of a keyed step to another executor: those named, those of an executor, or all of them.

    Their state is brought there while the stream runs on, and then they go on there from an epoch boundary.
    """

    step: str
    to: str
    instances: Sequence[int] | None = None
    _: KW_ONLY
    from_executor: str | None = None
    application: str | None = None
    """Whose executors are meant: the one it is handed in to."""

    def __str__(self) -> str:
        told = f"instances {', '.join(map(str, self.instances))} of " if self.instances is not None else ""
        origin = f" from executor {self.from_executor}" if self.from_executor is not None else ""
        return f"migrate {told}{self.step}{origin} to executor {self.to}"


@dataclass(frozen=True)
class Drain:
    """Take all instances off an executor, or off a host and all its executors, for good.

    With `decommission` the cluster is then asked to end the executors.
    """

    executor: str | None = None
    _: KW_ONLY
    host: str | None = None
    decommission: bool = False
    application: str | None = None

    def __str__(self) -> str:
        what = f"executor {self.executor}" if self.executor is not None else f"host {self.host}"
        return f"drain {what}{' and end it' if self.decommission else ''}"


@dataclass(frozen=True)
class ChangeSet:
    """Several changes at one boundary: all of them, or none."""

    changes: Sequence[Change]

    def __post_init__(self) -> None:
        if not self.changes:
            raise ChangeError("EMPTY_CHANGE_SET", "The change set has no changes.", hint="give it at least one.")

    def __str__(self) -> str:
        return "; ".join(map(str, self.changes))


SingleChange: TypeAlias = Replace | Insert | Remove | Rescale | Rebalance | Tune | Migrate | Drain
Change: TypeAlias = SingleChange | ChangeSet


def single_changes(change: Change) -> list[SingleChange]:
    """The changes of a set, and of sets within it, in their order."""
    if isinstance(change, ChangeSet):
        return [single for part in change.changes for single in single_changes(part)]
    return [change]


def drained_by(change: Change | None) -> frozenset[str]:
    """The steps whose open windows are to give what they have before a change."""
    singles = single_changes(change) if change is not None else []
    return frozenset(c.step for c in singles if isinstance(c, Replace | Remove) and c.on_open_windows == "drain")
