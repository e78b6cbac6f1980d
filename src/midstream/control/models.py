"""What the REST interface takes and gives. The command line and the page know a pipeline only through these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

StepId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]
ClientId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
Sql = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Names = Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=256)]], Field(max_length=100)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class Taken(BaseModel):
    """What comes from a client: a field nobody knows is a mistake, not something to leave out."""

    model_config = ConfigDict(extra="forbid")


class Given(BaseModel):
    model_config = ConfigDict(from_attributes=True)


# Changes, as they are handed in.


class Code(Taken):
    """A Python file and the name in it that is meant."""

    file: str = Field(max_length=256, description="The file's name, for people to recognise it by.")
    text: str = Field(max_length=500_000, description="All of the file.")
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$", description="A function or object of the file.")
    use: Literal["function", "build", "sink", "source", "change"] = Field(
        "function",
        description="What it is: the function of the step; one from streams to a stream that builds the step; a sink, "
        "or a function that makes one; a function from a session to the DataFrame of a source; or a whole change.",
    )


class GuardSpec(Taken):
    """What is promised of the changed step; the change is undone when it breaks."""

    errors: Sql | None = Field(None, description="An SQL condition that is true for bad rows of the step's output.")
    error_rate: float = Field(0.0, ge=0, le=1)
    max_epoch_ms: float | None = Field(None, gt=0)
    epochs: Count = 10


class BodySpec(Taken):
    """What a step does. One of `sql`, `aggregate` and `code`."""

    sql: Sql | None = None
    aggregate: dict[StepId, Sql] | None = Field(None, max_length=100, description="SQL expressions by name.")
    code: Code | None = None
    key_by: Names | None = None
    reads: Names = Field(default_factory=list, description="Further steps that `build` code reads.")
    guard: GuardSpec | None = None


class ReplaceSpec(BodySpec):
    kind: Literal["replace"]
    step: StepId
    rename: dict[str, str] = Field(default_factory=dict, max_length=100)
    on_open_windows: Literal["keep", "drain"] = "keep"


class InsertSpec(BodySpec):
    kind: Literal["insert"]
    step: StepId
    after: StepId | None = None
    before: StepId | None = None
    between: tuple[StepId, StepId] | None = None
    into: StepId | None = None
    branch: bool = False
    parallelism: Count | None = None


class RemoveSpec(Taken):
    kind: Literal["remove"]
    step: StepId
    on_open_windows: Literal["drop", "drain"] = "drop"


class RescaleSpec(Taken):
    kind: Literal["rescale"]
    step: StepId
    to: Count


class RebalanceSpec(Taken):
    kind: Literal["rebalance"]
    step: StepId
    to: Count | None = None
    split: bool | None = None


class TuneSpec(Taken):
    kind: Literal["tune"]
    trigger_seconds: float | None = None
    rows_per_epoch: int | None = None
    arrow_batch_rows: int | None = None
    fetch_bytes_per_second: float | None = None


class MigrateSpec(Taken):
    kind: Literal["migrate"]
    step: StepId
    to: str = Field(max_length=256)
    instances: list[int] | None = Field(None, max_length=10_000)
    from_executor: str | None = Field(None, max_length=256)


class DrainSpec(Taken):
    kind: Literal["drain"]
    executor: str | None = Field(None, max_length=256)
    host: str | None = Field(None, max_length=256)
    decommission: bool = False


class CodeSpec(Taken):
    """A change, or a function that makes one, written in Python."""

    kind: Literal["code"]
    code: Code


SingleSpec = Annotated[
    ReplaceSpec | InsertSpec | RemoveSpec | RescaleSpec | RebalanceSpec | TuneSpec | MigrateSpec | DrainSpec | CodeSpec,
    Field(discriminator="kind"),
]


class ChangeRequest(Taken):
    """One change, or several at one boundary: all of them, or none."""

    changes: list[SingleSpec] = Field(min_length=1, max_length=100)
    id: ClientId | None = Field(None, description="Chosen by the client: handed in again, the same change is given.")
    allow_state_loss: bool = False
    time_limit: float | None = Field(None, gt=0, le=86_400, description="Seconds for the trial and the first epoch.")


class UndoRequest(Taken):
    modification: int | None = Field(None, ge=1, le=2**53, description="The last one unless given.")
    id: ClientId | None = None
    allow_state_loss: bool = False


# What is told.


class Problem(BaseModel):
    """Every error."""

    error_code: str
    message: str
    details: dict[str, Any] = Field(default_factory=dict)


class Step(Given):
    id: str
    kind: str
    inputs: list[str]
    columns: list[str]
    keys: list[str]
    partitions: int | None
    state_rows: int
    state_bytes: int
    keys_in_parts: int = Field(0, description="Keys whose state is in parts, on several instances.")
    target: str | None = None
    sql: str | None = Field(None, description="Its text, when it is SQL.")
    code: str | None = Field(None, description="Its function's text, when its file can be read.")
    aggregates: dict[str, str] | None = None
    rows_per_second: float | None = Field(None, description="Rows that went in, over the last epochs.")
    epoch_ms: float | None = Field(None, description="Its slowest instance, median of the last epochs.")
    late_rows: int = 0
    watermark: datetime | None = None


class Graph(Given):
    plan: int
    epoch: int
    steps: list[Step]


class StepFigures(Given):
    rows: int
    keys: int
    output_rows: int
    slowest_ms: float
    median_ms: float
    state_rows: int
    state_bytes: int
    fetched_bytes: int
    late_rows: int
    watermark: datetime | None


class Epoch(Given):
    epoch: int
    started_at: datetime
    duration_ms: float
    rows: int
    state_rows: int
    state_bytes: int
    written_bytes: int
    plan: int
    phases_ms: dict[str, float]
    steps: dict[str, StepFigures]


class Moved(BaseModel):
    """State on its way to where instances will be."""

    bytes: int
    of_bytes: int


class Modification(BaseModel):
    id: int
    text: str
    phase: str = Field(
        description="proposed, validated, preparing, waiting, applying (under way); applied, rejected, cancelled, "
        "rolled_back, undone (ends)."
    )
    under_way: bool
    undoes: int | None
    plan: int | None
    epoch: int | None = Field(description="The first epoch run with it.")
    reason: str | None
    times: dict[str, float] = Field(description="When each phase began, in seconds since 1970.")
    seconds: dict[str, float] = Field(description="submit, wait, perform, total, as far as known.")
    client_id: str | None = None
    by: str | None = Field(None, description="The role, and who the client says it is.")
    submitted_at: datetime | None = None
    moved: Moved | None = None


class SourceText(Given):
    function: str
    file: str
    line: int
    sha256: str
    text: str


class ModificationDetails(Modification):
    sources: list[SourceText] = Field(description="The code that came with it, as it was then.")


class StepVerdict(Given):
    id: str
    kind: str
    edit: str = Field(description="same, replaced, rescaled, rewired, new, removed.")
    inputs: list[str]
    inputs_before: list[str]
    state: str = Field(description="none, kept, converted, moved, lost, new, …")
    state_bytes: int
    moved_bytes: int
    notes: list[str]


class Verdict(BaseModel):
    change: str
    steps: list[StepVerdict]
    expected_pause_ms: float
    moved_bytes: int
    hand_over: bool
    losses: list[str] = Field(description="What would be lost: applying it needs allow_state_loss.")
    dry_run: str
    text: str = Field(description="All of it, to be read.")


class Difference(BaseModel):
    rows_old: int
    rows_new: int
    changed: int
    only_old: int
    only_new: int
    samples: list[tuple[str, str]]
    text: str


class Shadow(BaseModel):
    name: str
    change: str
    epochs: int
    outputs: dict[str, Difference]
    state: dict[str, Difference]
    epoch_ms: float
    shadow_ms: float
    written_bytes: int
    error: str | None
    by: str | None = None


class PipelineSummary(BaseModel):
    name: str
    status: str = Field(description="starting, running, stopped, failed.")
    plan: int
    epoch: int


class Pipeline(PipelineSummary):
    checkpoint: str
    started_at: datetime
    failure: str | None
    changeable: bool
    trigger: str | None = None
    spark: str
    version: str
    rows_per_second: float = Field(description="Over the last epochs.")
    epoch_p50_ms: float
    epoch_p99_ms: float
    state_rows: int
    state_bytes: int
    modification: Modification | None = Field(description="The one under way.")
    role: str = Field(description="What the token that was shown may do: operator or reader.")
    page: str | None = None


class StateTable(BaseModel):
    step: str
    table: str
    keys: list[str]
    columns: list[str]
    rows: int
    bytes: int


class StateTables(BaseModel):
    epochs: list[int] = Field(description="The first and the last epoch that can be read; empty before the first.")
    tables: list[StateTable]


class StateRows(BaseModel):
    """Rows of a table, values as text or numbers where JSON has them."""

    step: str
    table: str
    epoch: int
    columns: list[str]
    keys: list[str]
    rows: list[list[Any]]
    matched: int = Field(description="Rows that match, of which some may be left out here.")
    offset: int
    complete: bool
