import json
import re
import socket
from pathlib import Path

import pytest
from rich.console import Console

from midstream.bench.machine import Machine
from midstream.bench.report import Measurement, Report, Target, at_least, at_most
from midstream.bench.show import show

MACHINE = Machine(2, 8 * 1024**3, "Linux x86_64", "3.11.7", "4.3.0", "17.0.15")


def measured(rows_per_second: float = 1000.0, correct: bool | None = True) -> Measurement:
    return Measurement(10, 100, 5, rows_per_second, 20.0, 30.0, correct=correct)


def report(**changes: object) -> Report:
    fields: dict[str, object] = {
        "bench": "keycount",
        "machine": MACHINE,
        "ours": {"midstream": measured()},
        "peers": {"spark-memory": measured(500.0)},
        "ratios": {"rows/s vs spark-memory": 2.0},
        "targets": (at_least("rows/s vs spark-memory", 2.0, 1.5),),
    }
    return Report(**{**fields, **changes})  # type: ignore[arg-type]


def test_json_has_the_shared_shape(tmp_path: Path) -> None:
    report().write_json(tmp_path / "new" / "report.json")

    written = json.loads((tmp_path / "new" / "report.json").read_text())
    assert list(written) == ["bench", "machine", "ours", "peers", "ratios", "targets"]
    assert written["targets"] == [{"name": "rows/s vs spark-memory", "value": 2.0, "bound": ">= 1.5", "met": True}]
    assert written["ours"]["midstream"]["rows_per_second"] == 1000.0
    assert written["peers"]["spark-memory"]["correct"] is True


def test_json_names_no_machine(tmp_path: Path) -> None:
    report().write_json(tmp_path / "report.json")

    text = (tmp_path / "report.json").read_text()
    assert set(json.loads(text)["machine"]) == {
        "cores",
        "memory_bytes",
        "system",
        "python",
        "pyspark",
        "java",
    }
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert str(tmp_path) not in text


def test_a_report_with_met_targets_and_right_results_has_no_failures() -> None:
    assert report().failures() == []


def test_a_missed_target_is_a_failure() -> None:
    missed = report(targets=(at_most("epoch p50", 0.8, 0.65),))

    assert missed.failures() == ["epoch p50: 0.8, wanted <= 0.65"]


@pytest.mark.parametrize("side", ["ours", "peers"])
def test_a_wrong_result_of_anyone_is_a_failure(side: str) -> None:
    assert report(**{side: {"someone": measured(correct=False)}}).failures() == ["someone: wrong result"]


def test_a_result_that_was_not_compared_is_no_failure() -> None:
    assert report(peers={"plain": measured(correct=None)}).failures() == []


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (at_least("a", 10.0, 10), True),
        (at_least("a", 9.99, 10), False),
        (at_most("a", 1.5, 1.5), True),
        (at_most("a", 1.51, 1.5), False),
    ],
)
def test_bounds_include_their_value(target: Target, met: bool) -> None:
    assert target.met is met


def test_tables_show_figures_ratios_and_failures() -> None:
    console = Console(record=True, width=160)

    show(report(peers={"spark-memory": measured(500.0, correct=False)}), console)

    text = console.export_text()
    for expected in (
        "midstream",
        "spark-memory",
        "1,000",
        "2×",
        ">= 1.5",
        "met",
        "spark-memory: wrong result",
    ):
        assert expected in text
