"""Rounds for keys in parts: which steps have results of such keys to give, and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.aggregates.function import AggregateFunction
from midstream.aggregates.parts import Joined
from midstream.engine.compile import CompiledKeyed
from midstream.engine.version import Version
from midstream.state.manifest import StepState
from midstream.task.report import TaskReport


@dataclass
class Pending:
    """Steps whose keys in parts have got rows, or are to get other parts. What one gives may be rows for another, so
    those come first that no other one is above of."""

    version: Version
    _touched: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, version: Version, state: Mapping[str, StepState], reports: Mapping[str, list[TaskReport]]) -> Pending:
        """What there is to do after a round, whose writes are in the state."""
        pending = cls(version)
        for id_, keyed in version.compiled.keyed.items():
            if id_ in reports and (_is_complete(keyed, state[id_]) or state[id_].splits != keyed.step.splits):
                pending._touched[id_] = set()
        pending._note(reports)
        return pending

    def next(self, state: Mapping[str, StepState]) -> tuple[frozenset[str], dict[str, Joined]] | None:
        """The steps of the next round, and the work of those that begin it; None when nothing is left."""
        if not self._touched:
            return None
        behind = self.version.compiled.pipeline.behind
        below = {id_ for above in self._touched for id_ in behind({above}) - {above}}
        first = self._touched.keys() - below
        return behind(first), {id_: self._work(id_, state[id_]) for id_ in first}

    def done(self, work: Mapping[str, Joined], reports: Mapping[str, list[TaskReport]]) -> None:
        """That round has been run."""
        for id_ in work:
            del self._touched[id_]
        self._note({id_: of_step for id_, of_step in reports.items() if id_ not in work})

    def _note(self, reports: Mapping[str, list[TaskReport]]) -> None:
        for id_, of_step in reports.items():
            touched = {hash_ for report in of_step for hash_ in report.touched}
            if touched:
                self._touched.setdefault(id_, set()).update(touched)

    def _work(self, id_: str, state: StepState) -> Joined:
        keyed = self.version.compiled.keyed[id_]
        assert isinstance(keyed.function, AggregateFunction)
        return Joined(keyed.function, state.splits, keyed.step.splits, frozenset(self._touched[id_]))


def _is_complete(keyed: CompiledKeyed, state: StepState) -> bool:
    return bool(state.splits) and isinstance(keyed.function, AggregateFunction) and keyed.function.complete
