"""Metrics for Prometheus, read from what the engine reports when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from midstream.control.served import Served
from midstream.control.totals import BUCKETS, Totals

_STATUSES = ("starting", "running", "stopped", "failed")


class _Collector:
    def __init__(self, pipelines: Mapping[str, Served]) -> None:
        self._pipelines = pipelines

    def collect(self) -> Iterator[Metric]:
        counters = {
            "midstream_epochs": "Epochs committed since the driver started.",
            "midstream_rows": "Rows that entered the pipeline.",
            "midstream_written_bytes": "Bytes of state written.",
        }
        families = {name: CounterMetricFamily(name, about, labels=["pipeline"]) for name, about in counters.items()}
        duration = HistogramMetricFamily(
            "midstream_epoch_duration_seconds", "From the start of an epoch to its commit.", labels=["pipeline"]
        )
        gauges = {
            "midstream_last_epoch": "The last epoch committed.",
            "midstream_plan": "The number of the running version of the pipeline.",
            "midstream_state_rows": "Rows of state.",
            "midstream_state_bytes": "Bytes of state.",
            "midstream_watchers": "Clients that read events.",
        }
        levels = {name: GaugeMetricFamily(name, about, labels=["pipeline"]) for name, about in gauges.items()}
        status = GaugeMetricFamily("midstream_status", "1 for what it is.", labels=["pipeline", "status"])
        changes = CounterMetricFamily(
            "midstream_modifications", "Changes by what became of them.", labels=["pipeline", "phase"]
        )
        steps = _Steps()
        for name, served in self._pipelines.items():
            totals, last = served.totals, served.run.manifest()
            families["midstream_epochs"].add_metric([name], totals.epochs)
            families["midstream_rows"].add_metric([name], totals.rows)
            families["midstream_written_bytes"].add_metric([name], totals.written_bytes)
            duration.add_metric([name], _buckets(totals), totals.seconds)
            for metric, value in {
                "midstream_last_epoch": last.epoch,
                "midstream_plan": last.plan,
                "midstream_state_rows": last.state_rows,
                "midstream_state_bytes": last.state_bytes,
                "midstream_watchers": served.hub.watchers,
            }.items():
                levels[metric].add_metric([name], value)
            now = served.run.status
            for known in _STATUSES:
                status.add_metric([name, known], float(known == now))
            phases = [entry.modification.phase for entry in served.run.history()]
            for phase in sorted(set(phases)):
                changes.add_metric([name, phase], phases.count(phase))
            steps.add(name, served)
        yield from families.values()
        yield duration
        yield from levels.values()
        yield status
        yield changes
        yield from steps.families()


class _Steps:
    """Figures by step."""

    def __init__(self) -> None:
        labels = ["pipeline", "step"]
        self._rows = CounterMetricFamily("midstream_step_rows", "Rows that went into a step.", labels=labels)
        self._output = CounterMetricFamily("midstream_step_output_rows", "Rows that came out of it.", labels=labels)
        self._late = CounterMetricFamily("midstream_step_late_rows", "Rows left out as late.", labels=labels)
        self._fetched = CounterMetricFamily("midstream_step_fetched_bytes", "Bytes of state fetched.", labels=labels)
        self._seconds = CounterMetricFamily(
            "midstream_step_slowest_instance_seconds",
            "Time of its slowest instance, summed over epochs.",
            labels=labels,
        )
        self._state_rows = GaugeMetricFamily("midstream_step_state_rows", "Rows of its state.", labels=labels)
        self._state_bytes = GaugeMetricFamily("midstream_step_state_bytes", "Bytes of its state.", labels=labels)
        self._watermark = GaugeMetricFamily(
            "midstream_step_watermark_timestamp_seconds", "How far event time has come.", labels=labels
        )

    def add(self, pipeline: str, served: Served) -> None:
        for id_, step in served.totals.steps.items():
            self._rows.add_metric([pipeline, id_], step.rows)
            self._output.add_metric([pipeline, id_], step.output_rows)
            self._late.add_metric([pipeline, id_], step.late_rows)
            self._fetched.add_metric([pipeline, id_], step.fetched_bytes)
            self._seconds.add_metric([pipeline, id_], step.slowest_seconds)
            if step.watermark is not None:
                self._watermark.add_metric([pipeline, id_], step.watermark.timestamp())
        for id_, state in served.run.manifest().steps.items():
            self._state_rows.add_metric([pipeline, id_], state.rows)
            self._state_bytes.add_metric([pipeline, id_], state.bytes)

    def families(self) -> Iterator[Metric]:
        yield from (self._rows, self._output, self._late, self._fetched, self._seconds)
        yield from (self._state_rows, self._state_bytes, self._watermark)


def _buckets(totals: Totals) -> list[tuple[str, float]]:
    counts, so_far = [], 0
    for bound, count in zip((*BUCKETS, None), totals.by_duration, strict=True):
        so_far += count
        counts.append(("+Inf" if bound is None else str(bound), float(so_far)))
    return counts


def exposition(pipelines: Mapping[str, Served]) -> tuple[str, str]:
    """All metrics as text, and what kind of text it is."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(pipelines))
    return generate_latest(registry).decode(), CONTENT_TYPE_LATEST
