"""Placing instances epoch by epoch: who is there, what changes demand, and what that makes of where they were."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from midstream.changes.change import Change, ChangeSet, Drain, Migrate, single_changes
from midstream.engine.cluster import Cluster
from midstream.errors import ChangeError
from midstream.placement.assign import Assignment, Executor, Rules, assign, moves
from midstream.state.hashspace import HashRange
from midstream.state.manifest import StepState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Places:
    """Where the instances of each keyed step run in an epoch."""

    cluster: Cluster | None = None
    locations: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def apply(self, step: str, frame: DataFrame) -> DataFrame:
        """The exchanged rows of a step, with their tasks told where to run."""
        wanted = self.locations.get(step)
        return self.cluster.placed(frame, wanted) if self.cluster is not None and wanted else frame


ANYWHERE = Places()


class Placer:
    """Keeps instances on their executors. Does nothing where there is no cluster."""

    def __init__(self, cluster: Cluster, standby: int = 0) -> None:
        self.cluster = cluster
        self._standby = standby
        self.assignment: Assignment = {}
        self._executors: list[Executor] = []
        self._ended: set[str] = set()
        self.newcomers: frozenset[str] = frozenset()
        """Executors that came while the pipeline ran, and get no instances of themselves before they are admitted."""
        if cluster.missing:
            _logger.info("instances are not placed: %s", cluster.missing)

    @property
    def executors(self) -> frozenset[str]:
        """Those that were there when the last epoch began."""
        return frozenset(executor.id for executor in self._executors)

    @property
    def idle(self) -> frozenset[str]:
        """Those of them that have no instances."""
        return self.executors - {i.executor for instances in self.assignment.values() for i in instances}

    def places(self, state: Mapping[str, StepState], rules: Rules) -> Places:
        """Where an epoch runs that finds this state."""
        if self.cluster.missing:
            return ANYWHERE
        rules = rules.within(self.cluster.application)
        executors = self.cluster.executors()
        # By their ids: Spark learns the host of one that has just come a little later.
        known, there = self.executors, frozenset(executor.id for executor in executors)
        if gone := known - there - self._ended:
            _logger.warning("executor %s is gone: its instances move", ", ".join(sorted(gone)))
        if self.assignment:
            self.newcomers = (self.newcomers | (there - known)) & there
        self._executors = executors
        steps = {id_: s.ranges for id_, s in state.items()}
        before = self.assignment
        self.assignment = assign(steps, executors, before, rules, self._standby, self.newcomers)
        for step, moved in moves(before, self.assignment).items():
            told = ", ".join(f"{instance} from executor {a} to {b}" for instance, (a, b) in moved.items())
            _logger.info("instances of %s move: %s", step, told)
        location = {executor.id: executor.location for executor in executors}
        placed = {step: [location[i.executor] for i in instances] for step, instances in self.assignment.items()}
        return Places(self.cluster, placed)

    def preview(
        self, ranges: Mapping[str, Sequence[HashRange]], rules: Rules, admitted: frozenset[str] = frozenset()
    ) -> Assignment:
        """Where instances would run, with these ranges and rules, and with newcomers that are not admitted yet."""
        rules = rules.within(self.cluster.application)
        newcomers = self.newcomers - admitted
        return assign(ranges, self.cluster.executors(), self.assignment, rules, newcomers=newcomers)

    def admit(self, executors: frozenset[str]) -> None:
        """From the next epoch on, newcomers get their share."""
        self.newcomers -= executors

    def after(self, change: Change) -> None:
        """A change is applied: end the executors it has drained, if it says so."""
        for drain in single_changes(change):
            if isinstance(drain, Drain) and drain.decommission:
                ids = [e.id for e in self._executors if drain.executor == e.id or drain.host == e.host]
                self._ended.update(ids)
                self.cluster.end(ids)

    def resolve(self, change: Change, rules: Rules) -> Change:
        """A change with everything about executors said in full, checked against those that are there."""
        if isinstance(change, ChangeSet):
            return ChangeSet([self.resolve(part, rules) for part in change.changes])
        if isinstance(change, Drain) and (change.executor is None) == (change.host is None):
            raise ChangeError.bad_drain()
        if not isinstance(change, Migrate | Drain) or change.application is not None:
            return change
        if self.cluster.missing:
            raise ChangeError.no_executors(str(change), self.cluster.missing)
        executors = self.cluster.executors()
        named = {executor.id for executor in executors}
        if isinstance(change, Drain):
            self._check_drain(change, executors, rules)
            return replace(change, application=self.cluster.application)
        for id_ in (change.to, *([change.from_executor] if change.from_executor is not None else [])):
            if id_ not in named:
                raise ChangeError.unknown_executor(str(change), id_, sorted(named))
        return replace(change, instances=self._instances(change), application=self.cluster.application)

    def _check_drain(self, drain: Drain, executors: Sequence[Executor], rules: Rules) -> None:
        target = str(drain.executor if drain.executor is not None else drain.host)
        hit = [e for e in executors if target == (e.id if drain.executor is not None else e.host)]
        if not hit:
            known = sorted({e.id if drain.executor is not None else e.host for e in executors})
            raise ChangeError.unknown_executor(str(drain), target, known)
        held = rules.within(self.cluster.application)
        if not any(held.allows(e) for e in executors if e not in hit):
            raise ChangeError.nowhere_left(str(drain))

    def _instances(self, change: Migrate) -> tuple[int, ...]:
        there = self.assignment.get(change.step, ())
        found = range(len(there)) if change.instances is None else change.instances
        for instance in found:
            if there and not 0 <= instance < len(there):
                raise ChangeError.unknown_instance(str(change), instance, len(there))
        origin = change.from_executor
        return tuple(i for i in found if origin is None or there[i].executor == origin)
