"""OpenTelemetry spans for modifications, checkpoints and recoveries, where the program has set OpenTelemetry up.

Without the package, or without a provider, this costs nothing. Spans are made when what they tell is over, from the
times the engine has noted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from midstream.control.harmless import harmless
from midstream.coordinator.modification import UNDER_WAY
from midstream.engine.epochs import EpochReport
from midstream.engine.history import HistoryEntry

if TYPE_CHECKING:
    from midstream.engine.run import Run

try:
    from opentelemetry import trace as _opentelemetry
    from opentelemetry.trace import Status, StatusCode
except ImportError:
    _opentelemetry = None  # type: ignore[assignment]
_trace: Any = _opentelemetry


def trace(pipeline: str, run: Run) -> None:
    """Have spans made of what a run does from now on."""
    if _trace is None:
        return
    tracer = _trace.get_tracer("midstream")
    begun = False

    def recovery(report: EpochReport) -> None:
        """From the start of a driver that goes on where another has left off to its first commit."""
        nonlocal begun
        if not begun and report.epoch > 0:
            ended = report.started_at.timestamp() + report.duration_ms / 1000
            facts = {"midstream.pipeline": pipeline, "midstream.epoch": report.epoch}
            _span(tracer, "midstream.recovery", run.started_at.timestamp(), ended, facts)
        begun = True

    def epoch(report: EpochReport) -> None:
        recovery(report)
        began = report.started_at.timestamp()
        ended = began + report.duration_ms / 1000
        facts = {"midstream.pipeline": pipeline, "midstream.epoch": report.epoch, "midstream.plan": report.plan}
        rows = {**facts, "midstream.rows": report.rows, "midstream.written_bytes": report.written_bytes}
        _span(tracer, "midstream.checkpoint", began, ended, rows)

    def change(entry: HistoryEntry) -> None:
        m = entry.modification
        if m.is_under_way or not m.times:
            return
        phases = sorted(m.times.items(), key=lambda item: item[1])
        facts: dict[str, Any] = {
            "midstream.pipeline": pipeline,
            "midstream.modification": m.id,
            "midstream.change": entry.text,
            "midstream.phase": str(m.phase),
        }
        parent = tracer.start_span("midstream.modification", start_time=_ns(phases[0][1]), attributes=facts)
        inside = _trace.set_span_in_context(parent)
        for (phase, began), (_, ended) in pairwise(phases):
            if phase in UNDER_WAY:
                tracer.start_span(f"midstream.{phase}", inside, start_time=_ns(began)).end(_ns(ended))
        if m.reason:
            parent.set_status(Status(StatusCode.ERROR, m.reason))
        parent.end(_ns(phases[-1][1]))

    for report in run.epochs()[:1]:
        recovery(report)
    run.on_epoch(harmless(epoch))
    run.on_change(change)


def _span(tracer: Any, name: str, began: float, ended: float, facts: dict[str, Any]) -> None:
    tracer.start_span(name, start_time=_ns(began), attributes=facts).end(_ns(ended))


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
