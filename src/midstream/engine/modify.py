"""Changing the running pipeline: carries out what the coordinator wants, beside the stream and at its boundaries."""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from midstream.changes.balance import balanced
from midstream.changes.change import Change, Replace
from midstream.changes.verdict import Verdict
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
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.changelog import NOBODY, ChangeLog, Origin, Submission
from midstream.engine.code import pack
from midstream.engine.compile import compile_pipeline
from midstream.engine.draining import Draining
from midstream.engine.epochs import EpochReport
from midstream.engine.examine import Examined, Examiner, Wish
from midstream.engine.failure import as_midstream_error, lost_spark
from midstream.engine.feed import Feed, read_by
from midstream.engine.guards import broken_promise, watched
from midstream.engine.history import HistoryEntry
from midstream.engine.internals import HandOverError, QueryStoppedError
from midstream.engine.limits import EpochLimit
from midstream.engine.listeners import Listeners
from midstream.engine.placer import Placer
from midstream.engine.plans import add_plan, log_shape, record_plan
from midstream.engine.pulse import Pulse
from midstream.engine.reports import ReportBox
from midstream.engine.shadow import ShadowRun
from midstream.engine.sparklog import DEFAULT_FOLDER, LogShape
from midstream.engine.standin import sink_change, written_before
from midstream.engine.version import Fork, Version, make_version
from midstream.engine.warming import Warmer
from midstream.engine.wishes import DEFAULT_TIME_LIMIT, Latest, Program, Wishes
from midstream.errors import ChangeError, MidstreamError, StoreError
from midstream.sinks.base import SinkContext, StagedEpoch
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest
from midstream.state.warmup import Warmth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_logger = logging.getLogger(__name__)

_FIRST_GUESS_MS = 150.0
"""Expected pause before any change has been seen: planning the new DataFrames once."""

_AGAIN_SECONDS = 1.0
"""Between two tries to write a transition down that the store did not take."""


class Modifier:
    """Everything about changes that is not the coordinator's thinking: checking, preparing, writing down, waiting.

    One thread checks and prepares while epochs go on. The stream's own thread only asks which version to run.
    """

    def __init__(
        self,
        program: Program,
        ledger: Ledger,
        spark: SparkSession,
        retain_epochs: int,
        placer: Placer,
        pulse: Pulse,
        drop_live: bool = False,
    ) -> None:
        self._program = program
        self._ledger = ledger
        self._spark = spark
        self._retain = retain_epochs
        self._placer = placer
        self._pulse = pulse
        self.warmer = Warmer(spark, placer, ledger.store, lambda: self.latest().manifest, lambda: self.latest().session)
        self._examiner = Examiner(spark, ledger)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._work: queue.Queue[Validate | Prepare | None] = queue.Queue()
        self._owed: deque[Instruction] = deque()
        """What the coordinator wants and a failing store has kept from being done: it comes before all else."""
        self._closed = threading.Event()
        self._examined: dict[int, Examined] = {}
        self._versions: dict[int, Version] = {}
        self._draining = Draining()
        self._pauses: list[float] = []
        self._limit = EpochLimit(spark)
        self.stopping: Callable[[], bool] = lambda: False
        self.hand_over: Callable[[], None] = lambda: None
        self.listeners = Listeners()
        self.shadowed: Callable[[], ShadowRun | None] = lambda: None
        self.running: Feed | None = None
        """What Spark's query reads. It changes hands between two epochs."""
        self.latest: Callable[[], Latest] = lambda: Latest(ledger.last(), None)
        with self._lock:
            self._load(drop_live)
        self._thread = threading.Thread(target=self._serve, name="midstream-changes", daemon=True)

    def begin(self) -> None:
        """Take up what there is to do. Not before the stream runs: changes are checked against how far it is."""
        self._thread.start()

    # What the epochs ask.

    @property
    def current(self) -> Version:
        return self._versions[self._machine.plan]

    def boundary(self, epoch: int) -> Version:
        with self._lock:
            waiting = self._waiting()
            if waiting is not None and waiting.feed is not self.running and self.current.feed is self.running:
                return self.current  # the query that can run it is on its way
            active = self._machine.active
            change = self.log.submission(active.id).change if active is not None else None
            if self._draining.begin(active, change, self.current):
                return self._ready(self.current, epoch)
            for instruction in self._tell(BoundaryReached(epoch)):
                if isinstance(instruction, RunEpoch):
                    self._limit_first_epoch()
                    return self._ready(self._versions[instruction.plan], epoch)
        raise AssertionError("a boundary always runs an epoch")

    def failed(self, epoch: int, error: Exception) -> Version:
        if lost_spark(error) or isinstance(error, ConnectionError | QueryStoppedError) or self.stopping():
            raise error
        with self._lock:
            limit = self._limit.take_off()
            if limit is not None and limit.expired:
                steps = [step.id for step in self._versions[max(self._versions)].compiled.pipeline.steps]
                error = ChangeError.too_slow(f"Epoch {epoch}, the first after the change,", limit.seconds, steps)
            reason = str(as_midstream_error(error, self._ledger))
            for instruction in self._tell(EpochFailed(epoch, reason)):
                if isinstance(instruction, RunEpoch):
                    _logger.warning("epoch %d failed under a change, which is rolled back: %s", epoch, reason)
                    return self._ready(self._versions[instruction.plan], epoch)
        raise error

    def _ready(self, version: Version, epoch: int) -> Version:
        """A version with the guards that watch an epoch, unless its rows come from another query than the one that
        runs."""
        if version.feed is not self.running:
            raise HandOverError
        guards = watched(self._machine.modifications.values(), self.log, epoch)
        version.watched = {step: guard for _, step, guard in guards}
        return version

    def _waiting(self) -> Version | None:
        """The version that waits for its barrier, or is being applied."""
        active = self._machine.active
        if active is None or active.phase not in (Phase.WAITING, Phase.APPLYING) or active.plan is None:
            return None
        return self._versions[active.plan]

    def wanted(self) -> Version:
        """The version whose feed Spark's query is to have."""
        with self._lock:
            return self._waiting() or self.current

    def refuse(self, error: MidstreamError) -> bool:
        """A query for the version that waits could not be started; whether there is another to go on with."""
        with self._lock:
            active = self._machine.active
            if active is None or self.wanted().feed is self.current.feed:
                return False
            if active.phase is Phase.APPLYING and active.epoch is not None:
                self._tell(EpochFailed(active.epoch, str(error)))
            else:
                self._tell(FoundInvalid(active.id, str(error)))
            return True

    def committed(self, manifest: Manifest) -> None:
        with self._lock:
            self._limit.take_off()
            self._draining.committed(self._machine.active, self.current)
            applied = self._tell(EpochCommitted(manifest.epoch))
            for record in (i for i in applied if isinstance(i, Record) and i.phase is Phase.APPLIED):
                if (change := self.log.submission(record.id).change) is not None:
                    self._placer.after(change)
            for number in [n for n in self._versions if n < self._machine.plan]:
                del self._versions[number]

    def sink_failed(self, context: SinkContext, staged: StagedEpoch, error: Exception) -> bool:
        if lost_spark(error):
            return False
        with self._lock:
            for id_ in self._machine.live:
                modification, change = self._machine.modifications[id_], self.log.submission(id_).change
                going = any(m.undoes == id_ and m.is_under_way for m in self._machine.modifications.values())
                put_in = sink_change(change, context.sink_id) if change is not None else None
                if put_in is None or not (modification.epoch == staged.epoch or going):
                    continue
                before = self._wishes.pipeline([live for live in self._machine.live if live != id_])
                if isinstance(put_in, Replace) and not written_before(before, context, staged, self._ledger):
                    return False
                reason = str(as_midstream_error(error, self._ledger))
                _logger.warning("modification %d is undone, its sink cannot be written: %s", id_, reason)
                self._tell(GuardTripped(id_, reason))
                return True
        return False

    def _limit_first_epoch(self) -> None:
        """An epoch that is the first of a change must end in time: its functions may hang."""
        active = self._machine.active
        if active is not None and active.phase is Phase.APPLYING:
            self._limit.set(self.log.submission(active.id).time_limit or DEFAULT_TIME_LIMIT)

    # What users ask.

    def plan(self, change: Change) -> Verdict:
        """Find out what a change would do."""
        with self._lock:
            wish = self._wishes.forward(self._complete(change), self.current)
        return self._examine(wish).verdict

    def submit(self, submission: Submission, reason: str | None = None) -> Modification:
        """Hand a change in; it is dealt with beside the stream."""
        if submission.change is not None:
            submission = replace(submission, change=self._complete(submission.change))
        with self._lock:
            if (known := self.log.handed_in(submission.origin)) is not None:
                return self.modification(known)
            id_ = self.log.submit(submission)
            self._tell(Submitted(id_, submission.undoes, reason))
            return self._machine.modifications[id_]

    def undo(self, id_: int | None, allow_state_loss: bool, origin: Origin = NOBODY) -> Modification:
        with self._lock:
            if (known := self.log.handed_in(origin)) is not None:
                return self.modification(known)
            if id_ is None and not self._machine.live:
                raise ChangeError.nothing_to_undo()
            undoes = self._machine.live[-1] if id_ is None else self.modification(id_).id
            return self.submit(Submission(None, undoes, allow_state_loss, origin=origin))

    def cancel(self, id_: int) -> Modification:
        with self._lock:
            self._tell(CancelAsked(self.modification(id_).id))
            return self.modification(id_)

    def modification(self, id_: int) -> Modification:
        with self._lock:
            if id_ not in self._machine.modifications:
                raise ChangeError.unknown_modification(id_, list(self._machine.modifications))
            return self._machine.modifications[id_]

    def warmth(self, id_: int) -> Warmth | None:
        """How much of the state of instances that are to move has been brought to where they go, if they move."""
        return self.warmer.progress.get(self.modification(id_).id)

    def history(self) -> list[HistoryEntry]:
        with self._lock:
            known = self._machine.modifications.values()
            return [self.log.entry(m) for m in known]

    def wait(self, id_: int, timeout: float | None, alive: Callable[[], bool]) -> Modification:
        """Wait until a modification has ended, or the run has."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while self.modification(id_).is_under_way and alive():
                left = 1.0 if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(min(left, 1.0))
            return self.modification(id_)

    def observe(self, report: EpochReport, usual_ms: float | None) -> None:
        """After an epoch: learn what applying a change costs, and look whether what was promised of it holds."""
        with self._lock:
            applied = [m for m in self._machine.modifications.values() if m.epoch == report.epoch]
            if usual_ms is not None and any(m.phase is Phase.APPLIED for m in applied):
                self._pauses.append(max(0.0, report.duration_ms - usual_ms))
            observed = self.current.observed
            for id_, step, guard in watched(self._machine.modifications.values(), self.log, report.epoch):
                broken = broken_promise(step, guard, observed.get(step), report.duration_ms)
                if broken:
                    _logger.warning("modification %d is undone: %s", id_, broken)
                    self._tell(GuardTripped(id_, broken))

    def close(self) -> None:
        self._closed.set()
        self._work.put(None)
        with self._changed:
            self._changed.notify_all()

    # How it is done.

    def _load(self, drop_live: bool) -> None:
        """Where an earlier driver has left off: which changes the pipeline has, and which was just being applied."""
        self.log = ChangeLog(self._ledger)
        self._owed.clear()
        self._wishes = Wishes(self._program, self.log, self._ledger, self._spark, self._retain, self._pulse)
        last = self._ledger.last()
        self._machine, instructions = Coordinator.restored(self.log.records(), last.plan, time.time())
        if drop_live:
            instructions = [i for i in instructions if isinstance(i, Record)] + self._machine.leave_out(time.time())
        pipeline, compiled = self._wishes.pipeline(self._machine.live), self._program.compiled
        settings = self._wishes.settings(self._machine.live)
        if pipeline is not self._program.pipeline:
            compiled = compile_pipeline(pipeline, self._wishes.frames(pipeline, settings), self._spark)
        folder = self.shape_of(last.plan).folder if last.epoch >= 0 else DEFAULT_FOLDER
        number = self._machine.plan = record_plan(self._ledger, compiled, last, self._machine.live, folder)
        feed = self._wishes.feed(pipeline, settings, folder)
        version = make_version(number, compiled, feed, self._ledger, self._spark, settings=settings)
        self._versions = {number: version}
        active = self._machine.active
        if active is not None and active.phase is Phase.APPLYING:
            self._load_applying(active)
        self._carry_out(instructions)

    def shape_of(self, plan: int) -> LogShape:
        """What Spark's log looked like under a version."""
        known = self._versions.get(plan)
        return known.feed.shape if known else log_shape(self._ledger, plan)

    def _load_applying(self, active: Modification) -> None:
        """A driver has died in the first epoch of a change: that epoch gets the version it had."""
        assert active.plan is not None
        assert active.epoch is not None
        try:
            if self.log.submission(active.id).promotes:
                raise ChangeError.shadow_ended("its driver has died")
            examined = self._examine(self._wish(active.id), dry_run=False)
            self._versions[active.plan] = self._version(active.plan, examined, self.current)
        except MidstreamError as error:
            self._tell(EpochFailed(active.epoch, str(error)))

    def reload(self) -> None:
        """Begin again from what the checkpoint says: a driver that did not know of us yet has just gone on."""
        with self._lock:
            self._load(drop_live=False)

    def _tell(self, event: Event) -> list[Instruction]:
        """Let the coordinator know, write its transitions down, and begin what it wants begun."""
        instructions = self._machine.handle(event, time.time())
        self._carry_out(instructions)
        return instructions

    def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        self._owed.extend(instructions)
        while self._owed:
            instruction = self._owed[0]
            if isinstance(instruction, Record):
                self.log.append(instruction)
                self.listeners.tell(instruction, self._machine.modifications, self.log)
            self._owed.popleft()
            match instruction:
                case Validate() | Prepare():
                    self._work.put(instruction)
                case Undo(id_, reason):
                    self.submit(Submission(None, id_, allow_state_loss=True), reason)
                case Record() | RunEpoch() | GiveUp():
                    pass
        self._changed.notify_all()

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                event = self._validated(work.id) if isinstance(work, Validate) else self._prepared(work.id)
            except Exception as error:
                event = FoundInvalid(work.id, str(as_midstream_error(error, self._ledger)))
            try:
                self._tell_at_last(event)
                with self._lock:
                    waiting = self._waiting()
                if waiting is not None and waiting.feed is not self.running:
                    self.hand_over()
            except Exception:
                _logger.exception("modification %d cannot go on", work.id)

    def _tell_at_last(self, event: Event) -> None:
        """As `_tell`, but a store that fails is tried again for as long as the run lives: nobody waits here, and a
        change left in the middle would hold up all that come after it."""
        with self._lock:
            self._owed.extend(self._machine.handle(event, time.time()))
        while True:
            try:
                with self._lock:
                    self._carry_out(())
                return
            except StoreError as error:
                _logger.warning("a step of a change could not be written down and will be again: %s", error)
                if self._closed.wait(_AGAIN_SECONDS):
                    return

    def _validated(self, id_: int) -> Event:
        submission = self.log.submission(id_)
        with self._lock:
            wish = self._wish(id_)
        if submission.promotes:
            examined = replace(self._examine(wish, dry_run=False), fork=self._fork(submission.promotes))
        else:
            examined = self._examine(wish)
        if examined.verdict.losses and not submission.allow_state_loss:
            raise ChangeError.state_lost(examined.verdict.losses)
        self._examined[id_] = examined
        return FoundValid(id_)

    def _fork(self, name: str) -> Fork:
        shadow = self.shadowed()
        if shadow is None or shadow.name != name:
            raise ChangeError.shadow_ended("it is gone")
        return shadow.state_at

    def shadow(self, change: Change) -> ShadowRun:
        """Check a change and make a shadow of it, which is not running yet."""
        with self._lock:
            if (other := self.shadowed()) is not None and other.error is None:
                raise ChangeError.shadow_runs(other.examined.wish.text)
            change = self._complete(change)
            wish = self._wishes.forward(change, self.current)
        if wish.hand_over:
            raise ChangeError.no_shadow(wish.text)
        pack(change)
        examined = self._examine(wish)
        box = ReportBox.of(self._spark, self._ledger.store)
        return ShadowRun(examined, self.current, self._ledger, box, uuid.uuid4().hex)

    def _prepared(self, id_: int) -> Event:
        examined = self._examined.pop(id_)
        with self._lock:
            live = self._machine.live_after(id_)
            before = self.current
        same = before.feed.shape.sources == read_by(examined.wish.pipeline)
        number = add_plan(self._ledger, examined.compiled, live, before.feed.folder if same else None)
        version = self._versions[number] = self._version(number, examined, before)
        self.warmer.warm(
            id_,
            version,
            wanted=lambda: self.modification(id_).is_under_way and not self.stopping(),
        )
        return Prepared(id_, number)

    def _version(self, number: int, examined: Examined, before: Version) -> Version:
        feed = before.feed
        if examined.wish.hand_over:
            folder = log_shape(self._ledger, number).folder
            feed = self._wishes.feed(examined.wish.pipeline, examined.wish.settings, folder)
        return make_version(
            number,
            examined.compiled,
            feed,
            self._ledger,
            self._spark,
            before=before,
            conversions=examined.conversions,
            restored=examined.wish.restored,
            settings=examined.wish.settings,
            fork=examined.fork,
            may_lose=examined.wish.may_lose,
        )

    def _examine(self, wish: Wish, dry_run: bool = True) -> Examined:
        latest = self.latest()
        pause = median(self._pauses) if self._pauses else _FIRST_GUESS_MS
        batch = latest.batch if dry_run else None
        frames = self._wishes.frames(wish.pipeline, wish.settings)
        return self._examiner.examine(wish, self.current, frames, latest.manifest, batch, pause)

    def _wish(self, id_: int) -> Wish:
        submission = self.log.submission(id_)
        wish = self._wishes.of(id_, submission, self._machine, self.current, self.latest().manifest)
        return replace(wish, may_lose=submission.allow_state_loss)

    def _complete(self, change: Change) -> Change:
        change = self._placer.resolve(change, self.current.settings.rules)
        change = balanced(change, self.latest().manifest.steps)
        return self._wishes.complete(change, self.current, self.latest().batch)
