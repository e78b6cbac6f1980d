"""The handle on a running pipeline: what it does, what it has done, how to change it and how to end it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from midstream.changes.change import Change
from midstream.changes.verdict import Verdict
from midstream.coordinator.modification import Modification, Phase
from midstream.engine.changelog import NOBODY, Origin, Submission
from midstream.engine.code import SourceText
from midstream.engine.epoch import EpochRunner
from midstream.engine.epochs import EpochReport
from midstream.engine.failure import as_midstream_error
from midstream.engine.graphview import Graph, describe
from midstream.engine.history import HistoryEntry
from midstream.engine.internals import JVM_GONE, HandOverError, QueryStoppedError, is_active
from midstream.engine.membership import Membership
from midstream.engine.modify import Modifier
from midstream.engine.queries import Queries
from midstream.engine.results import complete_result
from midstream.engine.shadow import Shadow
from midstream.engine.sparklog import SparkLog
from midstream.engine.standby import Standby
from midstream.engine.wishes import Latest
from midstream.errors import ChangeError, CheckpointError, EpochError, MidstreamError
from midstream.placement.assign import Executor
from midstream.state.collector import Collector
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest
from midstream.state.query import read_table
from midstream.state.store import Store
from midstream.state.warmup import Warmth

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_logger = logging.getLogger(__name__)

_TAKEOVER_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds to leave a driver that is being replaced for finishing the epoch it is at and finding out."""


class Run:
    """A running pipeline: what it does, what it has done, and how to end it."""

    def __init__(
        self,
        ledger: Ledger,
        runner: EpochRunner,
        modifier: Modifier,
        standbys: Standby,
        membership: Membership,
        queries: Queries,
        retain_epochs: int,
        changeable: bool,
    ) -> None:
        self._ledger = ledger
        self._runner = runner
        self._modifier = modifier
        self._standbys = standbys
        self._membership = membership
        self._changeable = changeable
        self.started_at = datetime.now(UTC)
        self._queries = queries
        self._reports: deque[EpochReport] = deque(maxlen=1000)
        self._callbacks: list[Callable[[EpochReport], None]] = []
        self._log: SparkLog | None = None
        self._epoch_running = threading.Lock()
        self._stream_thread: int | None = None
        self._epoch_error: Exception | None = None
        self._failure: MidstreamError | None = None
        self._stopping = False
        self._handing_over = False
        self._changed = threading.Condition()
        self._ended = False
        self._housekeeping = ThreadPoolExecutor(1, "midstream-housekeeping")
        self._collector = Collector(ledger, retain_epochs, self._pinned, runner.compactor.in_flight)
        self._runner.committed = self._committed
        self._modifier.latest = lambda: Latest(self._runner.last, self._runner.batch)
        self._modifier.stopping = lambda: self._stopping
        self._modifier.hand_over = self._hand_over
        self._modifier.shadowed = lambda: self._runner.shadow
        try:
            self.query: StreamingQuery = self._start_query()
        except BaseException:
            self._close()
            raise
        self._modifier.begin()
        self._keep_house(self._collector.recover)
        threading.Thread(target=self._watch, name="midstream-watch", daemon=True).start()

    @property
    def status(self) -> str:
        """`starting`, `running`, `stopped` or `failed`."""
        if self._has_ended():
            return "failed" if self._failure else "stopped"
        return "running" if self._reports else "starting"

    @property
    def changeable(self) -> bool:
        """Whether it takes changes."""
        return self._changeable

    @property
    def exception(self) -> MidstreamError | None:
        """Why the run failed, or None."""
        return self._failure if self._has_ended() else None

    def epochs(self, last: int = 1000) -> list[EpochReport]:
        """Reports of the most recent epochs, oldest first."""
        return list(self._reports)[-last:]

    def on_epoch(self, callback: Callable[[EpochReport], None]) -> None:
        """Have a function called after each commit. It runs in the stream's thread: keep it short."""
        self._callbacks.append(callback)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the run ends; say whether it did. Raises what made it fail."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended, timeout):
                return False
        if self._failure is not None:
            raise self._failure
        return True

    def process_available(self) -> None:
        """Wait until everything the sources had at this moment is committed. Raises what made the run fail."""
        while True:
            query = self.query
            with suppress(StreamingQueryException, *JVM_GONE):
                query.processAllAvailable()
            if is_active(query):
                return
            if self._has_ended():
                self.await_termination()
                return

    def stop(self) -> None:
        """End gracefully: the epoch under way is committed first."""
        if threading.get_ident() == self._stream_thread:
            # Called by `on_epoch`: the stream cannot wait for itself.
            threading.Thread(target=self.stop, name="midstream-stop").start()
            return
        with self._epoch_running:
            self._stopping = True
            with suppress(*JVM_GONE):
                self.query.stop()
        with self._changed:
            self._changed.wait_for(lambda: self._ended)

    def graph(self) -> Graph:
        """The pipeline as it is now; print it to read it."""
        return describe(self._modifier.current, self._runner.last)

    def executors(self) -> list[Executor]:
        """The executors of the cluster that run now; none where Spark runs in one process."""
        return self._runner.placer.cluster.executors()

    def placement(self) -> dict[str, list[str]]:
        """The executor each instance of each keyed step belongs on, as of the last epoch; empty without a cluster."""
        placed = self._runner.placer.assignment
        return {step: [instance.executor for instance in instances] for step, instances in placed.items()}

    def plan(self, change: Change) -> Verdict:
        """What a change would do, without doing it: raises what makes it impossible; print the verdict to read it."""
        return self._modifier.plan(change)

    def apply(
        self,
        change: Change,
        *,
        wait: bool = True,
        timeout: float | None = None,
        allow_state_loss: bool = False,
        time_limit: float | None = None,
        origin: Origin = NOBODY,
    ) -> Modification:
        """Change the running pipeline at an epoch boundary.

        With `wait` it comes back when the change is applied, and raises when it is not; what is still under way after
        `timeout` seconds comes back as it is. The trial run and the first epoch may take `time_limit` seconds each.
        `origin` says who it comes from; with an id of the client's, what was handed in before is not again.
        """
        self._require_changeable()
        submitted = self._modifier.submit(Submission(change, None, allow_state_loss, time_limit, origin=origin))
        return self._outcome_of(submitted, timeout) if wait else submitted

    def undo(
        self,
        id: int | None = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
        allow_state_loss: bool = False,
        origin: Origin = NOBODY,
    ) -> Modification:
        """Take a change back, the last one unless another is named. State stays what it has become."""
        self._require_changeable()
        submitted = self._modifier.undo(id, allow_state_loss, origin)
        return self._outcome_of(submitted, timeout) if wait else submitted

    def shadow(self, change: Change, *, origin: Origin = NOBODY) -> Shadow:
        """Run a change beside the pipeline on the same epochs, on a fork of the state, and see how the results differ.

        It begins with the next epoch, makes epochs about twice as long, and ends with the run.
        """
        self._require_changeable()
        shadow = self._modifier.shadow(change)
        self._runner.shadow = shadow

        def promote(wait: bool, timeout: float | None) -> Modification:
            submission = Submission(change, allow_state_loss=True, promotes=shadow.name, origin=origin)
            submitted = self._modifier.submit(submission)
            return self._outcome_of(submitted, timeout) if wait else submitted

        return Shadow(shadow.examined.verdict, shadow, lambda: self._runner.last, promote, self._end_shadow)

    @property
    def shadow_name(self) -> str | None:
        """The shadow that runs beside the pipeline, if one does."""
        shadow = self._runner.shadow
        return shadow.name if shadow is not None else None

    def _require_changeable(self) -> None:
        if not self._changeable:
            raise ChangeError.not_changeable()

    def _end_shadow(self) -> None:
        with self._epoch_running:
            self._runner.shadow = None

    def _pinned(self) -> set[str]:
        shadow = self._runner.shadow
        return shadow.pinned() if shadow is not None else set()

    def cancel(self, id: int) -> Modification:
        """Drop a change that is not being applied yet; gives it as it then is."""
        return self._modifier.cancel(id)

    def modification(self, id: int) -> Modification:
        """How far a change is."""
        return self._modifier.modification(id)

    def standbys(self) -> dict[str, Warmth]:
        """By executor that stands by, up to which epoch it has the state it would take over with."""
        return self._standbys.warmth()

    def warmth(self, id: int) -> Warmth | None:
        """How much of the state of instances that a change moves has been brought to where they go; None if none."""
        return self._modifier.warmth(id)

    def history(self) -> list[HistoryEntry]:
        """Every change ever handed in, oldest first, with what became of it."""
        return self._modifier.history()

    def change(self, id: int) -> HistoryEntry:
        """A change that was handed in, and how far it is."""
        return self._modifier.log.entry(self._modifier.modification(id))

    def sources(self, id: int) -> list[SourceText]:
        """The code that came with a change, as it was then."""
        return self._modifier.log.sources(self._modifier.modification(id).id)

    def keep_code(self, file: SourceText, by: str | None, used_for: str) -> None:
        """Write down in the checkpoint that code was sent, by whom and what for, before it is run."""
        self._modifier.log.keep_code(file, by, used_for)

    def on_change(self, callback: Callable[[HistoryEntry], None]) -> None:
        """Have a function called at every phase of every change, once it is written down. Keep it short."""
        self._modifier.listeners.callbacks.append(callback)

    def _outcome_of(self, submitted: Modification, timeout: float | None) -> Modification:
        ended = self._modifier.wait(submitted.id, timeout, lambda: not self._ended)
        if not ended.is_under_way and ended.phase not in (Phase.APPLIED, Phase.UNDONE):
            raise ChangeError.not_applied(ended.id, ended.phase, ended.reason)
        if ended.is_under_way and self._ended:
            raise ChangeError.not_applied(ended.id, "left", "the run has ended; the next start goes on with it")
        return ended

    def read_state(self, step: str, table: str | None = None, epoch: int | None = None) -> pa.Table:
        """All rows of a keyed step's table as it is kept, at the last or at any retained epoch."""
        return read_table(self._ledger.store, self.manifest(epoch), step, table)

    def read_result(self, step: str, epoch: int | None = None) -> pa.Table:
        """What an aggregate step has computed for every key, at the last or at any retained epoch."""
        keyed_steps = self._modifier.current.compiled.keyed
        known = {
            id_: keyed.aggregates
            for id_, keyed in keyed_steps.items()
            if keyed.aggregates is not None and keyed.aggregates.function.tables[0] in keyed.function.tables
        }
        if step not in known:
            raise CheckpointError.no_such_state(f"aggregate step '{step}'", ", ".join(known) or "none")
        return complete_result(self._ledger.store, self.manifest(epoch), step, known[step].function)

    @property
    def store(self) -> Store:
        """Where the checkpoint is."""
        return self._ledger.store

    def retained_epochs(self) -> list[int]:
        """The epochs whose state can be read."""
        return self._ledger.epochs()

    def manifest(self, epoch: int | None = None) -> Manifest:
        """What belongs to the last epoch, or to any that is retained."""
        if epoch is None:
            return self._runner.last
        retained = self._ledger.epochs()
        if epoch not in retained:
            known = f"epochs {retained[0]} to {retained[-1]}" if retained else "none yet"
            raise CheckpointError.no_such_state(f"epoch {epoch}", known)
        return self._ledger.read(epoch)

    @property
    def last_epoch(self) -> int:
        """The last committed epoch, -1 before the first."""
        return self._runner.last.epoch

    def _start_query(self) -> StreamingQuery:
        """Go on behind the last committed epoch, which is finished first when a crash has left it unfinished."""
        self._epoch_error = None
        if self._log is not None:
            self._log.close()
        feed = self._feed = self._modifier.running = self._modifier.wanted().feed
        self._log = SparkLog(self._ledger, feed.shape, self._modifier.shape_of)
        self._runner.go_on(self._log)
        return self._queries.start(feed, self._log.directory, self._on_batch)

    def _on_batch(self, batch: DataFrame, epoch: int) -> None:
        while not self._epoch_running.acquire(timeout=0.01):
            if self._stopping or self._handing_over:
                raise QueryStoppedError
        self._stream_thread = threading.get_ident()
        try:
            self._runner.run(batch, epoch)
        except HandOverError:
            self._handing_over = True
            raise
        except Exception as error:
            self._epoch_error = error
            raise
        finally:
            self._stream_thread = None
            self._epoch_running.release()

    def _committed(self, manifest: Manifest, report: EpochReport) -> None:
        if self._changeable:
            before = [earlier.duration_ms for earlier in self.epochs(20)]
            self._modifier.observe(report, median(before) if before else None)
            if self._modifier.current.fork is not None:
                self._runner.shadow = None  # it has become the plan
        self._reports.append(report)
        for callback in self._callbacks:
            callback(report)
        self._keep_house(self._collector.committed, manifest)
        self._membership.after_commit()
        self._housekeeping.submit(self._keep_standbys)

    def _keep_standbys(self) -> None:
        try:
            self._standbys.keep()
        except Exception:
            _logger.warning("standbys do not follow", exc_info=True)

    def _keep_house(self, work: Callable[..., object], *arguments: object) -> None:
        """Clean up beside the stream, which must not fail for it."""

        def tidy() -> None:
            try:
                work(*arguments)
            except Exception:
                _logger.warning("files of %s that are no longer needed remain", self._ledger.store.url, exc_info=True)

        self._housekeeping.submit(tidy)

    def _has_ended(self) -> bool:
        """Whether the run is over. A query that has just ended may be about to be started again: wait for that."""
        query = self.query
        if not self._ended and not is_active(query):
            with self._changed:
                self._changed.wait_for(lambda: self._ended or self.query is not query)
        return self._ended

    def _watch(self) -> None:
        """Wait for the end of the run, whatever it is, and let those know who wait for it too."""
        try:
            self._failure = self._supervise()
        except Exception as error:
            self._failure = error if isinstance(error, MidstreamError) else EpochError.failed(repr(error))
        try:
            # A run that ends by itself may be shorter than every merge: it ends with the one under way.
            self._close(finish_merge=self._feed.ends_by_itself and not self._stopping and self._failure is None)
        except Exception as error:
            self._failure = self._failure or as_midstream_error(error, self._ledger)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _supervise(self) -> MidstreamError | None:
        """Start a query again when it ended for a hand-over, or only because we have just taken over; why it failed at
        last."""
        waits = iter(_TAKEOVER_WAITS)
        while True:
            failure = self._outcome()
            if self._handing_over and not self._stopping and self._epoch_error is None:
                self._handing_over = False
            elif failure is not None and self._lost_to_predecessor(failure) and (wait := next(waits, None)):
                time.sleep(wait)
                self._modifier.reload()
            else:
                return failure
            query = self._start_next_query()
            with self._changed:
                self.query = query
                self._changed.notify_all()

    def _start_next_query(self) -> StreamingQuery:
        try:
            return self._start_query()
        except MidstreamError as error:
            # A query with the sources of a change does not start: the change is refused, the one before goes on.
            if not self._modifier.refuse(error):
                raise
            return self._start_query()

    def _hand_over(self) -> None:
        """Let another query go on behind the epoch under way: it reads what this one cannot."""

        def end_this_one() -> None:
            with self._epoch_running:
                if not self._stopping and self._modifier.wanted().feed is not self._feed:
                    self._handing_over = True
                    with suppress(*JVM_GONE):
                        self.query.stop()

        threading.Thread(target=end_this_one, name="midstream-hand-over", daemon=True).start()

    def _outcome(self) -> MidstreamError | None:
        """Wait for the end of the query; why it failed."""
        error: Exception | None = None
        try:
            self.query.awaitTermination()
        except Exception as raised:
            error = raised
        if self._epoch_error is not None:
            return as_midstream_error(self._epoch_error, self._ledger)
        if self._stopping:
            return None
        if error is not None:
            return as_midstream_error(error, self._ledger)
        holder = self._ledger.holder()
        if holder != self._ledger.driver and not self._feed.ends_by_itself:
            # Spark stops a query when the same session starts it once more.
            return CheckpointError.taken_over(self._ledger.driver, holder, self._runner.last.epoch + 1)
        return None

    def _lost_to_predecessor(self, failure: MidstreamError) -> bool:
        """Whether a driver that did not know of us yet was a little faster. It stops at its next commit, we go on."""
        if failure.error_class == "EPOCH_GAP" and self._ledger.last().epoch == self._runner.last.epoch:
            return False
        return (
            failure.error_class in ("CHECKPOINT_TAKEN_OVER", "EPOCH_GAP")
            and self._ledger.holder() == self._ledger.driver
        )

    def _close(self, finish_merge: bool = False) -> None:
        self._modifier.close()
        self._runner.pulse.close()
        self._runner.compactor.close(finish_merge)
        self._housekeeping.shutdown(wait=True)
        with suppress(MidstreamError):
            self._standbys.stop()
        self._queries.close()
        if self._log is not None:
            self._log.close()
