"""Spans of checkpoints, modifications and recoveries."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from pyspark.sql import SparkSession

import midstream as ms
from midstream.control.server import ControlServer
from midstream.errors import ChangeError
from tests.control.orders import Orders


def test_what_happens_is_traced(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path / "home"))
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)

    first = Orders(spark, tmp_path)
    first.run.stop()
    second = Orders(spark, tmp_path)
    server = ControlServer(second.run, "traced")
    try:
        second.run.apply(ms.Rescale("totals", 3))
        with pytest.raises(ChangeError):
            second.run.apply(ms.Replace("clean", sql="SELECT nothing FROM input"))
        last = second.run.last_epoch
        second.until(lambda: second.run.last_epoch > last)
    finally:
        second.run.stop()
        server.stop()

    spans = kept.get_finished_spans()
    names = [span.name for span in spans]
    assert names.count("midstream.recovery") == 1
    assert names.count("midstream.checkpoint") >= 2
    applied, rejected = (span for span in spans if span.name == "midstream.modification")
    assert applied.attributes is not None
    assert applied.attributes["midstream.change"] == "rescale totals to 3"
    assert applied.attributes["midstream.phase"] == "applied"
    assert rejected.status.status_code is StatusCode.ERROR
    parts = [span for span in spans if span.parent is not None and span.parent.span_id == applied.context.span_id]
    assert {"midstream.preparing", "midstream.waiting", "midstream.applying"} <= {span.name for span in parts}
    assert applied.start_time is not None
    assert applied.end_time is not None
    assert all(applied.start_time <= (part.start_time or 0) <= applied.end_time for part in parts)
