"""A pipeline: an immutable graph of steps, checked when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from midstream.errors import GraphError
from midstream.graph.steps import FeedbackStep, KeyedStep, LoopStep, SinkStep, SourceStep, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from midstream.engine.run import Run


@dataclass(frozen=True)
class Pipeline:
    """Steps that end in sinks. Made by `stream.sink(…)`; several are joined with `midstream.pipeline(…)`."""

    sinks: tuple[SinkStep, ...]

    def __post_init__(self) -> None:
        if not self.sinks:
            raise GraphError("NO_SINK", "A pipeline needs a sink.", hint="end a stream with .sink('id', …).")
        by_id: dict[str, Step] = {}
        for step in self._walk():
            if by_id.setdefault(step.id, step) is not step:
                raise GraphError.duplicate_id(step.id)

    def _walk(self) -> Iterator[Step]:
        """Every step once, inputs before what reads them."""
        seen: set[int] = set()

        def visit(step: Step) -> Iterator[Step]:
            if id(step) not in seen:
                seen.add(id(step))
                for source in step.inputs:
                    yield from visit(source)
                yield step

        for sink in self.sinks:
            yield from visit(sink)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._walk())

    @property
    def sources(self) -> tuple[SourceStep, ...]:
        """By id, not as the graph is written: Spark's log knows sources by their position alone."""
        sources = [step for step in self.steps if isinstance(step, SourceStep)]
        return tuple(sorted(sources, key=lambda source: source.id))

    @property
    def feedbacks(self) -> tuple[FeedbackStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, FeedbackStep))

    def check_loops(self) -> None:
        """Raise unless what is fed back goes somewhere, and every loop gets something. Parts of a pipeline need not."""
        begun = sorted(step.id for step in self.steps if isinstance(step, LoopStep))
        closed = sorted(step.to for step in self.feedbacks)
        if begun != closed:
            raise GraphError.open_loop(begun, closed)

    @property
    def needs_pulse(self) -> bool:
        """Whether it may want an epoch although no source has rows: for rows in a loop, a timer by the clock, or to
        find that a source has gone idle."""
        clocked = any(step.is_clocked for step in self.keyed)
        marks = [source.watermark for source in self.sources if source.watermark is not None]
        may_idle = len(marks) > 1 and any(mark.idle_after is not None for mark in marks)
        return bool(self.feedbacks) or clocked or may_idle

    @property
    def keyed(self) -> tuple[KeyedStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, KeyedStep))

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Step, ...]]:
        """Who reads each step."""
        readers: dict[str, tuple[Step, ...]] = {step.id: () for step in self.steps}
        for step in self.steps:
            for source in step.inputs:
                readers[source.id] = (*readers[source.id], step)
        return readers

    def behind(self, steps: Set[str]) -> frozenset[str]:
        """These steps and all that what they give can reach."""
        found: set[str] = set()
        for step in self.steps:
            if step.id in steps or any(source.id in found for source in step.inputs):
                found.add(step.id)
        return frozenset(found)

    def start(
        self,
        spark: SparkSession,
        checkpoint: str,
        *,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        retain_epochs: int = 100,
        store_options: Mapping[str, str] | None = None,
        live_changes: Literal["keep", "drop"] = "keep",
        changeable: bool = True,
        standby: int = 0,
    ) -> Run:
        """Run the pipeline; gives back a handle at once. Started again on its checkpoint, it goes on where it was.

        `checkpoint` is a directory or `s3://bucket/prefix` (with `store_options` for endpoint and keys); `trigger`
        takes what `DataStreamWriter.trigger` takes, as a dict; `retain_epochs` past epochs stay readable. Changes that
        were applied to the pipeline while it ran are applied to it again, unless `live_changes` says "drop"; a run
        that is not `changeable` takes no new ones. With `standby`, so many other executors of the cluster keep the
        state of each instance at hand and take over with it when its executor is lost.
        """
        from midstream.engine.start import start

        return start(
            self,
            spark,
            checkpoint,
            trigger=trigger,
            name=name,
            retain_epochs=retain_epochs,
            store_options=store_options,
            live_changes=live_changes,
            changeable=changeable,
            standby=standby,
        )


def join(pipelines: Iterable[Pipeline]) -> Pipeline:
    """Several pipelines, which may share steps, as one."""
    sinks: dict[int, SinkStep] = {id(sink): sink for pipeline in pipelines for sink in pipeline.sinks}
    return Pipeline(tuple(sinks.values()))
