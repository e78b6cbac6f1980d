"""The coordinator under every interleaving: events, crashes, late and repeated messages, against a plain account."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
from midstream.coordinator.modification import Phase

LEGAL = {
    None: {Phase.PROPOSED},
    Phase.PROPOSED: {Phase.VALIDATED, Phase.REJECTED, Phase.CANCELLED},
    Phase.VALIDATED: {Phase.PREPARING, Phase.REJECTED, Phase.CANCELLED},
    Phase.PREPARING: {Phase.WAITING, Phase.REJECTED, Phase.CANCELLED},
    Phase.WAITING: {Phase.APPLYING, Phase.REJECTED, Phase.CANCELLED},
    Phase.APPLYING: {Phase.APPLIED, Phase.ROLLED_BACK},
}
AFTER_A_CRASH = {Phase.VALIDATED, Phase.REJECTED, Phase.CANCELLED}


class World(RuleBasedStateMachine):
    """What outlives a driver (journal, plan log, committed epochs), and a driver that may die between any two acts."""

    def __init__(self) -> None:
        super().__init__()
        self.journal: list[Record] = []
        self.plans: dict[int, tuple[int, ...]] = {1: ()}
        self.committed: list[int] = []
        self.submitted = 0
        self.crashes: list[int] = []
        self.boot()

    def boot(self) -> None:
        self.clock = len(self.journal) * 1.0
        self.checking: list[int] = []
        self.preparing: list[int] = []
        self.running: RunEpoch | None = None
        self.sent: list[Event] = []
        plan = self.committed[-1] if self.committed else 1
        self.machine, instructions = Coordinator.restored(self.journal, plan, self.clock)
        self.carry_out(instructions)

    def tell(self, event: Event) -> None:
        self.sent.append(event)
        self.carry_out(self.machine.handle(event, self.clock))

    def carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Record():
                    self.journal.append(instruction)
                case Validate(id):
                    self.checking.append(id)
                case Prepare(id):
                    self.preparing.append(id)
                case RunEpoch():
                    assert instruction.epoch == len(self.committed)
                    assert instruction.plan in self.plans
                    self.running = instruction
                case Undo(id, reason):
                    self.submit(undoes=id, reason=reason)
                case GiveUp():
                    self.crash()

    def submit(self, undoes: int | None = None, reason: str | None = None) -> None:
        self.submitted += 1
        self.tell(Submitted(self.submitted, undoes, reason))

    @rule()
    def submit_change(self) -> None:
        self.submit()

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def submit_undo(self, data: st.DataObject) -> None:
        self.submit(undoes=data.draw(st.integers(1, self.submitted)))

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.tell(CancelAsked(data.draw(st.integers(1, self.submitted))))

    @precondition(lambda self: self.submitted)
    @rule(data=st.data())
    def trip_guard(self, data: st.DataObject) -> None:
        self.tell(GuardTripped(data.draw(st.integers(1, self.submitted)), "guard"))

    @precondition(lambda self: self.checking)
    @rule(fits=st.booleans())
    def finish_check(self, fits: bool) -> None:
        id_ = self.checking.pop(0)
        self.tell(FoundValid(id_) if fits else FoundInvalid(id_, "does not fit"))

    @precondition(lambda self: self.preparing)
    @rule(works=st.booleans())
    def finish_preparation(self, works: bool) -> None:
        id_ = self.preparing.pop(0)
        if not works:
            self.tell(FoundInvalid(id_, "cannot be prepared"))
            return
        plan = len(self.plans) + 1
        self.plans[plan] = self.machine.live_after(id_)
        self.tell(Prepared(id_, plan))

    @precondition(lambda self: self.running is None)
    @rule()
    def begin_epoch(self) -> None:
        self.tell(BoundaryReached(len(self.committed)))

    @precondition(lambda self: self.running is not None)
    @rule(told=st.booleans())
    def commit_epoch(self, told: bool) -> None:
        """The manifest is written; a driver that dies at once does not get to know."""
        assert self.running
        self.committed.append(self.running.plan)
        epoch, self.running = self.running.epoch, None
        if told:
            self.tell(EpochCommitted(epoch))
        else:
            self.crash()

    @precondition(lambda self: self.running is not None)
    @rule()
    def fail_epoch(self) -> None:
        assert self.running
        epoch, self.running = self.running.epoch, None
        self.tell(EpochFailed(epoch, "boom"))

    @rule()
    def crash(self) -> None:
        self.crashes.append(len(self.journal))
        self.boot()

    @rule(torn=st.integers(1, 3))
    def crash_before_the_record(self, torn: int) -> None:
        """A record is written before what comes after it is done: so a crash may lose the last ones not acted upon."""
        kept = [r for r in self.journal[-torn:] if r.phase is not Phase.PREPARING]
        if len(kept) == len(self.journal[-torn:]) and all(r.phase is Phase.APPLIED for r in kept):
            del self.journal[-torn:]
        self.crash()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def hear_again(self, data: st.DataObject) -> None:
        """Messages about modifications may come twice and late. Boundaries and commits come from the stream itself."""
        about_one = [e for e in self.sent if isinstance(e, Submitted | CancelAsked | FoundValid | FoundInvalid)]
        if about_one:
            event = data.draw(st.sampled_from(about_one))
            known = self.machine.modifications.get(event.id)
            # What was found of an earlier check may not be told of a later one: the driver numbers its checks.
            if isinstance(event, FoundValid) and known and known.phase is Phase.PROPOSED:
                return
            if isinstance(event, FoundInvalid) and known and known.is_under_way:
                return
            self.tell(event)

    @invariant()
    def one_at_a_time(self) -> None:
        beyond = [m for m in self.machine.modifications.values() if m.is_under_way and m.phase is not Phase.PROPOSED]
        assert len(beyond) <= 1

    @invariant()
    def phases_follow_each_other(self) -> None:
        reached: dict[int, Phase] = {}
        for number, record in enumerate(self.journal):
            before = reached.get(record.id)
            legal = LEGAL.get(before, set())
            if any(crash <= number for crash in self.crashes) and before in LEGAL and before is not Phase.APPLYING:
                legal = legal | AFTER_A_CRASH if before else legal
            assert record.phase in legal, (before, record)
            reached[record.id] = record.phase

    @invariant()
    def the_plan_holds_what_is_live(self) -> None:
        """What the pipeline does is what was applied and not undone, told from the journal alone."""
        live: list[int] = []
        for record in self.journal:
            if record.phase is Phase.APPLIED:
                live = [*live, record.id] if record.undoes is None else [i for i in live if i != record.undoes]
        assert self.machine.live == tuple(live)
        assert self.plans[self.machine.plan] == tuple(live)

    @invariant()
    def epochs_had_the_plans_the_journal_tells(self) -> None:
        """From the epoch a change was applied in, every epoch has its plan, until the next one is."""
        expected, plan = [], 1
        applied = {r.epoch: r.plan for r in self.journal if r.phase is Phase.APPLIED}
        for epoch in range(len(self.committed)):
            plan = applied.get(epoch) or plan
            expected.append(plan)
        assert self.committed == expected

    def teardown(self) -> None:
        """Whatever has happened: a driver that lives long enough brings everything to an end."""
        for _ in range(20 * (self.submitted + 2)):
            if self.checking:
                self.finish_check(True)
            elif self.preparing:
                self.finish_preparation(True)
            elif self.running:
                self.commit_epoch(True)
            elif any(m.is_under_way for m in self.machine.modifications.values()):
                self.begin_epoch()
        assert not any(m.is_under_way for m in self.machine.modifications.values())
        self.the_plan_holds_what_is_live()
        self.epochs_had_the_plans_the_journal_tells()


World.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestWorld = World.TestCase
