"""A run as the server has it: under a name, with its listeners, its shadow and the code that was sent to it."""

from __future__ import annotations

import logging
import threading
from statistics import median
from typing import TYPE_CHECKING

from midstream.changes.change import Change
from midstream.control import models, views
from midstream.control.harmless import harmless
from midstream.control.hub import Hub
from midstream.control.models import ChangeRequest, Code
from midstream.control.security import Role
from midstream.control.specs import change_of
from midstream.control.totals import Totals
from midstream.control.uploads import Uploads
from midstream.engine.changelog import Origin
from midstream.engine.code import SourceText
from midstream.engine.epochs import EpochReport
from midstream.engine.history import HistoryEntry
from midstream.errors import ControlError
from midstream.quantiles import percentile

if TYPE_CHECKING:
    from midstream.engine.run import Run
    from midstream.engine.shadow import Shadow


_logger = logging.getLogger(__name__)


class Served:
    """What the routes ask. Methods may take as long as the engine does: they are not for the server's own thread."""

    def __init__(self, name: str, run: Run, uploads: Uploads, versions: tuple[str, str]) -> None:
        self.name = name
        self.run = run
        self.hub = Hub()
        self.started_at = run.started_at
        self.page: str | None = None
        self._uploads = uploads
        self._spark, self._version = versions
        self._shadow: tuple[Shadow, str | None] | None = None
        self._lock = threading.Lock()
        self._shown_plan = -1
        self.totals = Totals()
        run.on_epoch(harmless(self._on_epoch))
        run.on_change(self._on_change)

    # What is told to those who watch. Called by the stream, so only noted there; the server's thread makes the rest.

    def _on_epoch(self, report: EpochReport) -> None:
        self.totals.add(report)
        self.hub.tell(lambda: self._epoch_events(report))

    def _on_change(self, entry: HistoryEntry) -> None:
        self.hub.tell(lambda: [("change", views.modification(entry))])

    def _epoch_events(self, report: EpochReport) -> list[tuple[str, object]]:
        events: list[tuple[str, object]] = [("epoch", views.epoch(report))]
        if report.plan != self._shown_plan:
            self._shown_plan = report.plan
            events.append(("graph", self.graph()))
        if self._shadow is not None:
            shadows = self.shadows()
            events.append(("shadow", shadows[0] if shadows else None))
        return events

    def ended(self) -> None:
        """The run is over: those who watch are told, and let go."""
        failure = self.run.exception
        self.hub.tell(lambda: [("status", {"status": self.run.status, "failure": str(failure) if failure else None})])

    # What is asked.

    def summary(self) -> models.PipelineSummary:
        last = self.run.manifest()
        return models.PipelineSummary(name=self.name, status=self.run.status, plan=last.plan, epoch=last.epoch)

    def pipeline(self, role: Role) -> models.Pipeline:
        run, reports = self.run, self.run.epochs(100)
        last, failure = run.manifest(), run.exception
        durations = [report.duration_ms for report in reports]
        under_way = [entry for entry in run.history() if entry.modification.is_under_way]
        return models.Pipeline(
            **self.summary().model_dump(),
            checkpoint=run.store.url,
            started_at=self.started_at,
            failure=str(failure) if failure else None,
            changeable=run.changeable,
            spark=self._spark,
            version=self._version,
            rows_per_second=views.rows_per_second(reports),
            epoch_p50_ms=median(durations) if durations else 0.0,
            epoch_p99_ms=percentile(durations, 99) if durations else 0.0,
            state_rows=last.state_rows,
            state_bytes=last.state_bytes,
            modification=views.modification(under_way[0], run) if under_way else None,
            role=role,
            page=self.page,
        )

    def graph(self) -> models.Graph:
        return views.graph(self.run.graph(), self.run.epochs(views.RECENT))

    def change(self, request: ChangeRequest, by: str, used_for: str) -> tuple[Change, Origin]:
        """The change a request means. Its code is recorded, then loaded."""
        files: list[SourceText] = []

        def load(code: Code) -> object:
            loaded, file = self._uploads.load(code, lambda file: self.run.keep_code(file, by, used_for))
            files.append(file)
            return loaded

        change = change_of(request, load)
        return change, Origin(by, request.id, tuple(files))

    def require_running(self) -> None:
        if self.run.status not in ("starting", "running"):
            raise ControlError.run_ended(self.name, self.run.status)

    def stop(self, by: str) -> None:
        """Beside the request: the epoch under way may take a while."""
        _logger.info("pipeline '%s' is stopped by %s", self.name, by)
        threading.Thread(target=self.run.stop, name="midstream-stop", daemon=True).start()

    def modification(self, id_: int) -> models.Modification:
        return views.modification(self.run.change(id_), self.run)

    def start_shadow(self, request: ChangeRequest, by: str) -> models.Shadow:
        change, origin = self.change(request, by, "shadow")
        with self._lock:
            shadow = self.run.shadow(change, origin=origin)
            self._shadow = shadow, by
        return views.shadow(shadow.name, shadow.report(), by)

    def shadow(self, name: str) -> Shadow:
        kept = self._shadow
        if kept is None or kept[0].name != name or self.run.shadow_name != name:
            raise ControlError.unknown_shadow(name)
        return kept[0]

    def shadows(self) -> list[models.Shadow]:
        kept = self._shadow
        if kept is None or self.run.shadow_name != kept[0].name:
            self._shadow = None
            return []
        return [views.shadow(kept[0].name, kept[0].report(), kept[1])]

    def discard(self, name: str) -> None:
        self.shadow(name).discard()
        self.hub.tell(lambda: [("shadow", None)])
