"""The running pipeline for people and programs to look at: steps, who reads whom, partitions, state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from midstream.changes.verdict import in_bytes
from midstream.engine.code import source_texts
from midstream.engine.version import Version
from midstream.graph.steps import AggregateStep, SinkStep, SqlStep, Step
from midstream.state.manifest import Manifest


@dataclass(frozen=True)
class GraphStep:
    """One step of the running pipeline."""

    id: str
    kind: str
    inputs: tuple[str, ...]
    columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    partitions: int | None = None
    state_rows: int = 0
    state_bytes: int = 0
    keys_in_parts: int = 0
    target: str | None = None
    sql: str | None = None
    code: str | None = None
    """The text of its function, when its file can be read."""
    aggregates: Mapping[str, str] | None = None

    def __str__(self) -> str:
        reads = f" ← {', '.join(self.inputs)}" if self.inputs else ""
        state = ""
        if self.partitions is not None:
            held = f"{self.state_rows:,} rows, {in_bytes(self.state_bytes)}"
            held += f", keys in parts: {self.keys_in_parts}" if self.keys_in_parts else ""
            state = f"  by {', '.join(self.keys)}, {self.partitions} partitions, {held}"
        return f"{self.id} [{self.kind}]{reads}{state}{f'  → {self.target}' if self.target else ''}"


@dataclass(frozen=True)
class Graph:
    """A version of the pipeline. `plan` is its number; it rises with every change."""

    plan: int
    epoch: int
    steps: tuple[GraphStep, ...]

    def __str__(self) -> str:
        return "\n".join([f"plan {self.plan}, epoch {self.epoch}", *(f"  {step}" for step in self.steps)])

    def step(self, id: str) -> GraphStep:
        return next(step for step in self.steps if step.id == id)


def describe(version: Version, last: Manifest) -> Graph:
    compiled = version.compiled
    steps = []
    for step in compiled.pipeline.steps:
        state = last.steps.get(step.id)
        keyed = compiled.keyed.get(step.id)
        steps.append(
            GraphStep(
                id=step.id,
                kind=step.kind,
                inputs=tuple(source.id for source in step.inputs),
                columns=tuple(compiled.schemas[step.id].names) if step.id in compiled.schemas else (),
                keys=keyed.step.keys if keyed else (),
                partitions=len(version.ranges(step.id)) if keyed else None,
                state_rows=state.rows if state else 0,
                state_bytes=state.bytes if state else 0,
                keys_in_parts=len(state.splits) if state else 0,
                target=step.sink.describe().get("target") if isinstance(step, SinkStep) else None,
                sql=step.text if isinstance(step, SqlStep) else None,
                code=_text_of(step),
                aggregates=_expressions(step),
            )
        )
    return Graph(version.number, last.epoch, tuple(steps))


@lru_cache(maxsize=1000)
def _source(function: Callable[..., object]) -> str | None:
    texts = source_texts(function)
    return texts[0].text if texts else None


def _text_of(step: Step) -> str | None:
    function = getattr(step, "function", None) or getattr(step, "load", None)
    return _source(function) if callable(function) else None


def _expressions(step: Step) -> dict[str, str] | None:
    if not isinstance(step, AggregateStep):
        return None
    return {name: _sql(expression) for name, expression in step.aggregates.items()}


def _sql(expression: object) -> str:
    """What a column says of itself, without the frame around it."""
    text = str(expression)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") else text
