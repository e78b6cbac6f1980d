"""What the engine tells, as the REST interface gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from midstream.changes import difference
from midstream.changes import verdict as verdicts
from midstream.control import models
from midstream.coordinator.modification import Phase
from midstream.engine import graphview
from midstream.engine.epochs import EpochReport
from midstream.engine.history import HistoryEntry
from midstream.engine.shadow import ShadowReport

if TYPE_CHECKING:
    from midstream.engine.run import Run

RECENT = 10
"""Epochs that rates and medians are taken over."""


def epoch(report: EpochReport) -> models.Epoch:
    return models.Epoch.model_validate(asdict(report))


def verdict(found: verdicts.Verdict) -> models.Verdict:
    return models.Verdict(
        change=found.change,
        steps=[models.StepVerdict.model_validate(asdict(step)) for step in found.steps],
        expected_pause_ms=found.expected_pause_ms,
        moved_bytes=found.moved_bytes,
        hand_over=found.hand_over,
        losses=list(found.losses),
        dry_run=str(found.dry_run),
        text=str(found),
    )


def modification(entry: HistoryEntry, run: Run | None = None) -> models.Modification:
    m = entry.modification
    proposed = m.times.get(Phase.PROPOSED)
    return models.Modification(
        id=m.id,
        text=entry.text,
        phase=m.phase,
        under_way=m.is_under_way,
        undoes=m.undoes,
        plan=m.plan,
        epoch=m.epoch,
        reason=m.reason,
        times={str(phase): at for phase, at in m.times.items()},
        seconds=m.seconds,
        client_id=entry.client_id,
        by=entry.by,
        submitted_at=datetime.fromtimestamp(proposed, UTC) if proposed is not None else None,
        moved=_moved(m.id, run) if run is not None and m.is_under_way else None,
    )


def _moved(id_: int, run: Run) -> models.Moved | None:
    warmth = run.warmth(id_)
    return models.Moved(bytes=warmth.done, of_bytes=warmth.total) if warmth is not None else None


def details(entry: HistoryEntry, run: Run) -> models.ModificationDetails:
    sources = [models.SourceText.model_validate(asdict(text)) for text in run.sources(entry.modification.id)]
    return models.ModificationDetails(**modification(entry, run).model_dump(), sources=sources)


def shadow(name: str, report: ShadowReport, by: str | None) -> models.Shadow:
    return models.Shadow(
        name=name,
        change=report.change,
        epochs=report.epochs,
        outputs={id_: _difference(found) for id_, found in report.outputs.items()},
        state={id_: _difference(found) for id_, found in report.state.items()},
        epoch_ms=report.epoch_ms,
        shadow_ms=report.shadow_ms,
        written_bytes=report.written_bytes,
        error=report.error,
        by=by,
    )


def _difference(found: difference.Difference) -> models.Difference:
    samples = [(_row(old), _row(new)) for old, new in found.samples]
    counts = {name: getattr(found, name) for name in ("rows_old", "rows_new", "changed", "only_old", "only_new")}
    return models.Difference(**counts, samples=samples, text=str(found))


def _row(row: dict[str, object] | None) -> str:
    return "–" if row is None else ", ".join(f"{name}={value}" for name, value in row.items())


def graph(described: graphview.Graph, reports: Sequence[EpochReport]) -> models.Graph:
    """The graph with the last figures of each step. Steps without state run within those that read them: Spark makes
    one of them, so what they take is not told apart, and the rows they give are known where a counted step reads."""
    recent = [report for report in reports[-RECENT:] if report.plan == described.plan] or list(reports[-1:])
    seconds = span_seconds(recent)
    rows = {step.id: _rows(step.id, recent) for step in described.steps}
    only_reader = _only_readers(described)
    steps = []
    for step in described.steps:
        counted = rows[step.id]
        if counted is None and (reader := only_reader.get(step.id)) is not None:
            counted = rows[reader]
        figures = [report.steps[step.id] for report in recent if step.id in report.steps]
        steps.append(
            models.Step(
                **{**asdict(step), "aggregates": dict(step.aggregates) if step.aggregates is not None else None},
                rows_per_second=counted / seconds if counted is not None and seconds else None,
                epoch_ms=median(f.slowest_ms for f in figures) if figures else None,
                late_rows=sum(f.late_rows for f in figures),
                watermark=figures[-1].watermark if figures else None,
            )
        )
    return models.Graph(plan=described.plan, epoch=described.epoch, steps=steps)


def _rows(step: str, reports: Sequence[EpochReport]) -> int | None:
    counted = [report.steps[step].rows for report in reports if step in report.steps]
    return sum(counted) if counted else None


def _only_readers(described: graphview.Graph) -> dict[str, str]:
    """For steps whose rows all go to one counted step that reads nothing else: that step."""
    readers: dict[str, list[graphview.GraphStep]] = {step.id: [] for step in described.steps}
    for step in described.steps:
        for source in step.inputs:
            readers[source].append(step)
    return {id_: found[0].id for id_, found in readers.items() if len(found) == 1 and len(found[0].inputs) == 1}


def span_seconds(reports: Sequence[EpochReport]) -> float:
    """From the start of the first epoch to the end of the last."""
    if not reports:
        return 0.0
    first, last = reports[0], reports[-1]
    return (last.started_at - first.started_at).total_seconds() + last.duration_ms / 1000


def rows_per_second(reports: Sequence[EpochReport]) -> float:
    recent = reports[-RECENT:]
    seconds = span_seconds(recent)
    return sum(report.rows for report in recent) / seconds if seconds else 0.0
