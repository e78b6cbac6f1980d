from __future__ import annotations

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from midstream import cli
from midstream.bench.machine import Machine
from midstream.bench.plot import plot_timeline, require_plotting
from midstream.bench.report import Measurement, MigrationFigures, Report
from midstream.errors import MidstreamError


def moved(peak: float) -> Measurement:
    timeline = ((0.8, 210.0), (1.8, peak), (2.8, 220.0))
    figures = MigrationFigures(peak, peak, 1.8, 10, 1, timeline, applied_seconds=1.8)
    return Measurement(10_000_000, 20_000, 3, 20_000.0, 200.0, 260.0, state_bytes=10**9, migration=figures)


REPORT = Report(
    bench="migrate, uniform keys",
    machine=Machine(2, 2**30, "Linux x86_64", "3.11", "4.1", "17"),
    ours={"hot-first": moved(400.0), "all-at-once": moved(9_000.0)},
)


def test_the_timeline_of_every_policy_is_drawn_with_its_peak(tmp_path: Path) -> None:
    target = tmp_path / "new" / "timeline.svg"
    plot_timeline(REPORT, target)
    text = target.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    # Text is drawn as outlines; what it says is kept as comments.
    for said in (
        "hot-first",
        "all-at-once",
        "peak 400 ms",
        "peak 9,000 ms",
        "hot-first: steady p99, 260 ms",
        "hot-first: applied after 1.8 s",
        "epoch [ms]",
    ):
        assert f"<!-- {said} -->" in text


def test_a_picture_of_pixels(tmp_path: Path) -> None:
    plot_timeline(REPORT, tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_another_ending_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MidstreamError, match="UNKNOWN_PICTURE") as error:
        require_plotting(Path("timeline.gif"))
    assert ".svg" in str(error.value)


def test_without_matplotlib_nothing_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    arguments = ["bench", "migrate", "--plot", str(tmp_path / "timeline.png"), "--dir", str(tmp_path / "work")]
    error = CliRunner().invoke(cli.app, arguments).exception
    assert isinstance(error, MidstreamError)
    assert error.error_class == "NO_MATPLOTLIB"
    assert error.hint is not None
    assert "midstream[plot]" in error.hint
    assert not (tmp_path / "work").exists()
