"""The coordinator alone: every path a modification can take, told step by step."""

from __future__ import annotations

import pytest

from midstream.coordinator.machine import Coordinator
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
from midstream.coordinator.modification import Instance, Phase


class Told:
    """A coordinator that is told one event after the other, a second apart."""

    def __init__(self, machine: Coordinator | None = None) -> None:
        self.machine = machine or Coordinator(plan=1)
        self.records: list[Record] = []
        self.clock = 0.0

    def tell(self, *events: Event) -> list[Instruction]:
        instructions: list[Instruction] = []
        for event in events:
            self.clock += 1
            instructions = self.machine.handle(event, self.clock)
            self.records += [i for i in instructions if isinstance(i, Record)]
        return [i for i in instructions if not isinstance(i, Record)]

    def phase(self, id: int) -> Phase:
        return self.machine.modifications[id].phase

    def apply(self, id: int, plan: int, epoch: int, undoes: int | None = None) -> None:
        self.tell(Submitted(id, undoes), FoundValid(id), Prepared(id, plan))
        self.tell(BoundaryReached(epoch), EpochCommitted(epoch))


def test_a_change_is_applied_at_a_boundary() -> None:
    told = Told()
    assert told.tell(Submitted(1)) == [Validate(1)]
    assert told.tell(BoundaryReached(5)) == [RunEpoch(5, plan=1)]
    assert told.tell(FoundValid(1)) == [Prepare(1)]
    assert told.tell(EpochCommitted(5)) == []
    assert told.tell(Prepared(1, plan=2)) == []
    assert told.machine.modifications[1].instance is Instance.PAUSING
    assert told.tell(BoundaryReached(6)) == [RunEpoch(6, plan=2)]
    assert told.machine.modifications[1].instance is Instance.RESTORING
    assert told.machine.plan == 1, "not before the epoch is committed"
    assert told.tell(EpochCommitted(6)) == []
    assert told.machine.modifications[1].instance is Instance.RUNNING
    assert (told.machine.plan, told.machine.live) == (2, (1,))
    assert told.tell(BoundaryReached(7)) == [RunEpoch(7, plan=2)]
    phases = ["proposed", "validated", "preparing", "waiting", "applying", "applied"]
    assert [record.phase for record in told.records] == phases
    assert told.machine.modifications[1].seconds == {"submit": 4, "wait": 1, "perform": 1, "total": 6}


def test_an_epoch_that_fails_under_a_new_plan_is_run_with_the_old_one() -> None:
    told = Told()
    told.tell(Submitted(1), FoundValid(1), Prepared(1, plan=2), BoundaryReached(6))
    assert told.tell(EpochFailed(6, "boom")) == [RunEpoch(6, plan=1)]
    assert told.phase(1) is Phase.ROLLED_BACK
    assert told.machine.modifications[1].reason == "boom"
    assert told.tell(EpochFailed(6, "again")) == [GiveUp(6)]


def test_a_failure_no_change_is_to_blame_for() -> None:
    told = Told()
    told.apply(1, plan=2, epoch=0)
    told.tell(BoundaryReached(1))
    assert told.tell(EpochFailed(1, "boom")) == [GiveUp(1)]
    assert told.phase(1) is Phase.APPLIED


def test_changes_wait_for_each_other() -> None:
    told = Told()
    assert told.tell(Submitted(1)) == [Validate(1)]
    assert told.tell(Submitted(2)) == []
    assert told.tell(FoundInvalid(1, "no such step")) == [Validate(2)]
    assert told.phase(1) is Phase.REJECTED
    assert told.tell(Submitted(3)) == []
    told.tell(FoundValid(2), Prepared(2, plan=2), BoundaryReached(0))
    assert told.tell(EpochCommitted(0)) == [Validate(3)]


@pytest.mark.parametrize("until", range(4))
def test_a_change_is_cancelled_until_it_is_applied(until: int) -> None:
    told = Told()
    told.tell(*[Submitted(1), FoundValid(1), Prepared(1, plan=2), BoundaryReached(3)][: until + 1], Submitted(2))
    if until < 3:
        assert told.tell(CancelAsked(1)) == [Validate(2)]
        assert told.phase(1) is Phase.CANCELLED
        assert told.tell(BoundaryReached(4)) == [RunEpoch(4, plan=1)]
    else:
        assert told.tell(CancelAsked(1)) == []
        assert told.phase(1) is Phase.APPLYING


def test_what_is_cancelled_while_it_queues_does_not_disturb_the_one_before_it() -> None:
    told = Told()
    told.tell(Submitted(1), Submitted(2))
    assert told.tell(CancelAsked(2)) == []
    assert told.tell(FoundValid(1)) == [Prepare(1)]


def test_late_and_repeated_events_are_ignored() -> None:
    told = Told()
    told.tell(Submitted(1), CancelAsked(1))
    before = dict(told.machine.modifications)
    for event in (Submitted(1), FoundValid(1), Prepared(1, 2), FoundInvalid(1, "x"), CancelAsked(1), EpochCommitted(9)):
        assert told.tell(event) == []
    assert told.tell(FoundValid(77)) == []
    assert told.machine.modifications == before


def test_an_undo_takes_a_change_out_again() -> None:
    told = Told()
    told.apply(1, plan=2, epoch=0)
    told.apply(2, plan=3, epoch=1)
    told.apply(3, plan=4, epoch=2, undoes=1)
    assert told.phase(1) is Phase.UNDONE
    assert told.phase(3) is Phase.APPLIED
    assert told.machine.live == (2,)
    assert told.tell(Submitted(4, undoes=1)) == []
    assert told.phase(4) is Phase.REJECTED


def test_a_tripped_guard_asks_for_one_undo() -> None:
    told = Told()
    told.apply(1, plan=2, epoch=0)
    assert told.tell(GuardTripped(1, "too slow")) == [Undo(1, "too slow")]
    told.tell(Submitted(2, undoes=1, reason="too slow"))
    assert told.tell(GuardTripped(1, "too slow")) == []
    told.tell(FoundValid(2), Prepared(2, plan=3), BoundaryReached(1), EpochCommitted(1))
    assert told.machine.modifications[1].reason == "too slow"
    assert told.tell(GuardTripped(1, "too slow")) == []


@pytest.mark.parametrize("until", range(5))
def test_a_crash_before_the_barrier_begins_the_check_again(until: int) -> None:
    told = Told()
    told.apply(1, plan=2, epoch=0)
    told.tell(*[Submitted(2), FoundValid(2), Prepared(2, plan=3), BoundaryReached(1), EpochCommitted(1)][: until + 1])
    committed = 3 if until == 4 else 2
    machine, instructions = Coordinator.restored(told.records, plan=committed, at=99)
    again = Told(machine)
    if until < 3:
        assert instructions == [Validate(2)]
        assert again.tell(FoundValid(2)) == [Prepare(2)]
        again.tell(Prepared(2, plan=3))
    if until < 4:
        assert again.tell(BoundaryReached(1)) == [RunEpoch(1, plan=3)], "a repeated epoch runs the plan it had"
        again.tell(EpochCommitted(1))
    assert machine.live == (1, 2)
    assert machine.plan == 3


def test_a_crash_between_the_commit_and_the_record_of_it() -> None:
    told = Told()
    told.tell(Submitted(1), FoundValid(1), Prepared(1, plan=2), BoundaryReached(0), Submitted(2))
    machine, instructions = Coordinator.restored(told.records, plan=2, at=99)
    assert [type(i) for i in instructions] == [Record, Validate]
    assert (machine.plan, machine.live) == (2, (1,))
