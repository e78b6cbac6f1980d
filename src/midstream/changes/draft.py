"""A pipeline taken apart, so that it can be changed and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from midstream.errors import ChangeError
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import SinkStep, Step


class Draft:
    """Steps by id and, apart from them, who reads whom."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.steps: dict[str, Step] = {step.id: step for step in pipeline.steps}
        self.inputs: dict[str, list[str]] = {step.id: [i.id for i in step.inputs] for step in pipeline.steps}

    def step(self, id: str, what: str) -> Step:
        """The step of that name, or an error that says what it was wanted for."""
        if id not in self.steps:
            raise ChangeError.unknown_step(what, id, list(self.steps))
        return self.steps[id]

    def readers(self, id: str) -> list[str]:
        return [reader for reader, inputs in self.inputs.items() if id in inputs]

    def put(self, step: Step, inputs: Iterable[str]) -> None:
        self.steps[step.id] = step
        self.inputs[step.id] = list(inputs)

    def rewire(self, readers: Iterable[str], old: str, new: Sequence[str]) -> None:
        """Have steps read others where they have read `old`."""
        for reader in readers:
            self.inputs[reader] = [id_ for i in self.inputs[reader] for id_ in (new if i == old else [i])]

    def drop(self, id: str) -> None:
        del self.steps[id], self.inputs[id]

    def build(self) -> Pipeline:
        """The pipeline of all steps that lead to a sink."""
        done: dict[str, Step] = {}

        def made(id_: str, above: tuple[str, ...]) -> Step:
            if id_ in above:
                raise ChangeError.cycle([*above[above.index(id_) :], id_])
            if id_ not in done:
                inputs = [made(i, (*above, id_)) for i in self.inputs[id_]]
                step = self.steps[id_]
                # What is not touched stays the very same object.
                same = len(inputs) == len(step.inputs) and all(a is b for a, b in zip(inputs, step.inputs, strict=True))
                done[id_] = step if same else step.reading(*inputs)
            return done[id_]

        sinks = [made(id_, ()) for id_, step in self.steps.items() if isinstance(step, SinkStep)]
        return Pipeline(tuple(sink for sink in sinks if isinstance(sink, SinkStep)))
