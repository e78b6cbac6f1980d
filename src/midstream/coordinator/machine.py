"""The coordinator: takes changes to a running pipeline through their phases, one at a time, at epoch boundaries.

A state machine without I/O, clock or thread: events and the time go in, instructions come out, to be carried out in
their order. Events may come late, twice or for a modification that has long ended; such are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from midstream.coordinator.messages import (
    BoundaryReached,
    CancelAsked,
    EpochCommitted,
    EpochFailed,
    Event,
    FoundInvalid,
    FoundValid,
    GiveUp,
    GuardTripped,
    Instruction,
    Prepare,
    Prepared,
    Record,
    RunEpoch,
    Submitted,
    Undo,
    Validate,
)
from midstream.coordinator.modification import Modification, Phase

_PREPARED = (Phase.WAITING, Phase.APPLYING)
_CANCELLABLE = (Phase.PROPOSED, Phase.VALIDATED, Phase.PREPARING, Phase.WAITING)


class Coordinator:
    """Which changes there are, which of them the pipeline has, and what is to be done next."""

    def __init__(self, plan: int) -> None:
        self.plan = plan
        """The version of the pipeline committed epochs have."""
        self.modifications: dict[int, Modification] = {}
        self._live: tuple[int, ...] = ()

    @property
    def live(self) -> tuple[int, ...]:
        """The changes the pipeline has, in the order they were applied."""
        return self._live

    @property
    def active(self) -> Modification | None:
        """The modification that is being dealt with; all others under way wait for their turn."""
        return next((m for m in self.modifications.values() if m.is_under_way), None)

    def live_after(self, id: int) -> tuple[int, ...]:
        """The changes the pipeline has once a modification is applied."""
        undoes = self.modifications[id].undoes
        return (*self._live, id) if undoes is None else tuple(other for other in self._live if other != undoes)

    @classmethod
    def restored(cls, records: Iterable[Record], plan: int, at: float) -> tuple[Coordinator, list[Instruction]]:
        """The coordinator as the records tell, given the plan of the last committed epoch: the commit is the truth.

        An epoch that was about to be run with a new plan is run with it again; changes that were not that far are
        checked once more, because nothing of their preparation is left.
        """
        machine = cls(plan)
        for record in records:
            machine._remember(record)
        active = machine.active
        if active is not None and active.phase is Phase.APPLYING:
            return machine, machine._applied(active, at) if plan == active.plan else []
        machine.modifications = {
            id_: replace(m, phase=Phase.PROPOSED) if m.is_under_way else m for id_, m in machine.modifications.items()
        }
        return machine, machine._next(at)

    def leave_out(self, at: float) -> list[Instruction]:
        """Forget all changes, those under way too: the program the pipeline is started with is to run as it is."""
        reason = "left out at a start"
        ends = dict.fromkeys(self._live, Phase.UNDONE)
        for id_, modification in self.modifications.items():
            if modification.is_under_way:
                ends[id_] = Phase.ROLLED_BACK if modification.phase is Phase.APPLYING else Phase.CANCELLED
        return [self._go(id_, end, at, reason=reason) for id_, end in ends.items()]

    def handle(self, event: Event, at: float) -> list[Instruction]:
        """Take an event in; what is to be done about it."""
        match event:
            case Submitted():
                return self._submitted(event, at)
            case CancelAsked(id):
                return self._ended(id, _CANCELLABLE, Phase.CANCELLED, "cancelled", at)
            case FoundValid(id):
                if not self._is(id, Phase.PROPOSED):
                    return []
                return [self._go(id, Phase.VALIDATED, at), self._go(id, Phase.PREPARING, at), Prepare(id)]
            case FoundInvalid(id, reason):
                return self._ended(id, _CANCELLABLE, Phase.REJECTED, reason, at)
            case Prepared(id, plan):
                return [self._go(id, Phase.WAITING, at, plan=plan)] if self._is(id, Phase.PREPARING) else []
            case BoundaryReached(epoch):
                return self._boundary(epoch, at)
            case EpochCommitted(epoch):
                active = self._applying(epoch)
                return self._applied(active, at) if active else []
            case EpochFailed(epoch, reason):
                active = self._applying(epoch)
                if active is None:
                    return [GiveUp(epoch)]
                rolled_back = self._go(active.id, Phase.ROLLED_BACK, at, reason=reason)
                return [rolled_back, RunEpoch(epoch, self.plan), *self._next(at)]
            case GuardTripped(id, reason):
                taken_back = any(m.undoes == id and m.is_under_way for m in self.modifications.values())
                return [Undo(id, reason)] if id in self._live and not taken_back else []

    def _submitted(self, event: Submitted, at: float) -> list[Instruction]:
        if event.id in self.modifications:
            return []
        idle = self.active is None
        record = Record(event.id, Phase.PROPOSED, at, undoes=event.undoes, reason=event.reason)
        self._remember(record)
        return [record, *(self._next(at) if idle else [])]

    def _boundary(self, epoch: int, at: float) -> list[Instruction]:
        active = self.active
        if active is None or active.phase not in _PREPARED or active.plan is None:
            return [RunEpoch(epoch, self.plan)]
        if active.phase is Phase.APPLYING and active.epoch == epoch:
            return [RunEpoch(epoch, active.plan)]
        return [self._go(active.id, Phase.APPLYING, at, epoch=epoch), RunEpoch(epoch, active.plan)]

    def _applied(self, active: Modification, at: float) -> list[Instruction]:
        assert active.plan is not None
        self.plan = active.plan
        return [self._go(active.id, Phase.APPLIED, at), *self._next(at)]

    def _ended(self, id: int, phases: tuple[Phase, ...], end: Phase, reason: str, at: float) -> list[Instruction]:
        if not self._is(id, *phases):
            return []
        was_active = self.active is self.modifications[id]
        return [self._go(id, end, at, reason=reason), *(self._next(at) if was_active else [])]

    def _next(self, at: float) -> list[Instruction]:
        """Begin with the modification whose turn it is. What it is checked against is final: those before it ended."""
        instructions: list[Instruction] = []
        while (active := self.active) and active.phase is Phase.PROPOSED:
            if active.undoes is None or active.undoes in self._live:
                return [*instructions, Validate(active.id)]
            reason = f"modification {active.undoes} is not part of the pipeline"
            instructions.append(self._go(active.id, Phase.REJECTED, at, reason=reason))
        return instructions

    def _applying(self, epoch: int) -> Modification | None:
        active = self.active
        return active if active and active.phase is Phase.APPLYING and active.epoch == epoch else None

    def _is(self, id: int, *phases: Phase) -> bool:
        known = self.modifications.get(id)
        return known is not None and known.phase in phases

    def _go(
        self,
        id: int,
        phase: Phase,
        at: float,
        *,
        plan: int | None = None,
        epoch: int | None = None,
        reason: str | None = None,
    ) -> Record:
        known = self.modifications[id]
        record = Record(
            id=id,
            phase=phase,
            at=at,
            undoes=known.undoes,
            plan=plan or known.plan,
            epoch=known.epoch if epoch is None else epoch,
            reason=reason or known.reason,
        )
        self._remember(record)
        return record

    def _remember(self, record: Record) -> None:
        known = self.modifications.get(record.id)
        times = {**(known.times if known else {}), record.phase: record.at}
        self.modifications[record.id] = Modification(
            record.id, record.phase, record.undoes, record.plan, record.epoch, record.reason, times
        )
        if record.phase is Phase.APPLIED:
            self._live = self.live_after(record.id)
            if record.undoes in self.modifications:
                self._take_back(self.modifications[record.undoes], record)
        elif record.phase is Phase.UNDONE:
            self._live = tuple(id_ for id_ in self._live if id_ != record.id)

    def _take_back(self, undone: Modification, by: Record) -> None:
        times = {**undone.times, Phase.UNDONE: by.at}
        self.modifications[undone.id] = replace(undone, phase=Phase.UNDONE, reason=by.reason, times=times)
