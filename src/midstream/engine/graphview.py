"""The running pipeline for people and programs to look at: steps, who reads whom, partitions, state."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.changes.verdict import in_bytes
from midstream.engine.version import Version
from midstream.graph.steps import SinkStep
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
    target: str | None = None

    def __str__(self) -> str:
        reads = f" ← {', '.join(self.inputs)}" if self.inputs else ""
        state = ""
        if self.partitions is not None:
            held = f"{self.state_rows:,} rows, {in_bytes(self.state_bytes)}"
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
                target=step.sink.describe().get("target") if isinstance(step, SinkStep) else None,
            )
        )
    return Graph(version.number, last.epoch, tuple(steps))
