"""Every benchmark for real, at sizes that take seconds. Each is its own process: a bench has its own JVMs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

QUICK_JAVA = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""Half the CPU time of a run this short goes into compiling code that it then hardly uses."""


def bench(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    target = tmp_path / "report.json"
    command = [sys.executable, "-m", "midstream", "bench", *arguments, "--quick", "--check"]
    finished = subprocess.run(
        [*command, "--json", str(target), "--dir", str(tmp_path / "work"), "--driver-memory", "1g"],
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | QUICK_JAVA,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert list((tmp_path / "work").iterdir()) == []
    report: dict[str, Any] = json.loads(target.read_text())
    return report


@pytest.mark.long
@pytest.mark.parametrize("peer", ["spark-rocksdb", "spark-memory"])
def test_keycount_counts_right_and_compares(tmp_path: Path, peer: str) -> None:
    report = bench(tmp_path, "keycount", "--peers", peer)

    assert set(report["peers"]) == {peer}
    assert set(report["ratios"]) == {f"rows/s vs {peer}"}
    for figures in (report["ours"]["midstream"], *report["peers"].values()):
        assert figures["correct"] is True
        assert figures["state_rows"] == 3_000
        assert figures["epochs"] >= 3
        assert figures["rows_per_second"] > 0
        assert figures["checkpoint_bytes_per_epoch"] > 0


@pytest.mark.long
def test_nexmark_gives_what_duckdb_does(tmp_path: Path) -> None:
    report = bench(tmp_path, "nexmark")

    assert set(report["ours"]) == {"q0", "q8"}
    assert set(report["ratios"]) == {"q8: rows/s vs native"}
    assert all(figures["correct"] for figures in (*report["ours"].values(), *report["peers"].values()))


@pytest.mark.long
def test_stateful_counts_right_and_compares(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("google.protobuf.descriptor")
    report = bench(tmp_path, "stateful")

    assert set(report["ours"]) == {"midstream", "midstream-large"}
    assert set(report["peers"]) == {"spark-tws-pandas"}
    assert all(figures["correct"] for figures in (*report["ours"].values(), *report["peers"].values()))


@pytest.mark.long
@pytest.mark.parametrize("step", ["--aggregate", "--function"])
def test_floor_compares_epochs(tmp_path: Path, step: str) -> None:
    report = bench(tmp_path, "floor", step)

    assert report["ours"]["midstream"]["correct"] is True
    assert report["peers"]["spark-foreach-batch"]["epochs"] >= 6
    assert set(report["ratios"]) == {
        "epoch p50 vs spark-foreach-batch",
        "wall clock p50 vs spark-foreach-batch",
    }


@pytest.mark.long
def test_growth_compares_sizes_of_state(tmp_path: Path) -> None:
    report = bench(tmp_path, "growth")

    assert {name: figures["state_rows"] for name, figures in report["ours"].items()} == {
        "midstream-1k-keys": 1_000,
        "midstream-5k-keys": 5_000,
    }
    assert all(figures["correct"] for figures in report["ours"].values())
    assert list(report["ratios"]) == ["epoch p50 midstream-5k-keys vs midstream-1k-keys"]


@pytest.mark.long
def test_change_compares_changes_with_stop_and_start(tmp_path: Path) -> None:
    report = bench(tmp_path, "change")
    changes = {name: figures["change"] for name, figures in report["ours"].items() if figures["change"]}
    assert set(changes) == {"replace", "undo", "insert", "remove", "rescale 2→4", "rescale 4→3", "rescale 3→2"}
    assert all(figures["total_ms"] > 0 for figures in changes.values())
    assert report["ours"]["steady"]["correct"] is True
    assert set(report["peers"]) == {"spark-rocksdb stop/start", "spark-rocksdb stop/repartition/start"}
    assert report["ratios"]["rows/s with the coordinator vs without"] > 0


@pytest.mark.long
def test_migrate_compares_ways_to_fetch_state(tmp_path: Path) -> None:
    plot = tmp_path / "plots" / "timeline.svg"
    report = bench(tmp_path, "migrate", "--plot", str(plot))
    assert "peak" in plot.read_text()
    assert set(report["ours"]) == {"hot-first", "all-at-once"}
    for figures in report["ours"].values():
        assert figures["correct"] is True
        assert figures["state_rows"] == 20_000
        assert figures["migration"]["base_merged"] is False
        assert len(figures["migration"]["timeline"]) == figures["epochs"] >= 3
    hot, all_ = (report["ours"][name]["migration"] for name in ("hot-first", "all-at-once"))
    assert hot["warmed_bytes"] > 0 == all_["warmed_bytes"]
    assert hot["first_epoch_bytes"] < all_["first_epoch_bytes"]


@pytest.mark.long
def test_instances_counts_epochs_until_all_have_moved(tmp_path: Path) -> None:
    report = bench(tmp_path, "instances")
    assert set(report["ours"]) == {"steady", "migrate all 5", "rescale 5→4", "rescale 4→5"}
    assert report["ours"]["steady"]["correct"] is True
    assert report["ours"]["migrate all 5"]["change"]["total_ms"] > 0
    assert report["ratios"]["migrate all 5: submit to applied, in epochs"] > 0


@pytest.mark.long
@pytest.mark.parametrize("store", [(), ("--s3",)], ids=["directory", "s3"])
def test_recover_compares_sizes_of_state(tmp_path: Path, store: tuple[str, ...]) -> None:
    report = bench(tmp_path, "recover", *store)
    assert {name: figures["state_rows"] for name, figures in report["ours"].items()} == {
        "midstream-2k-keys": 2_000,
        "midstream-10k-keys": 10_000,
    }
    for figures in report["ours"].values():
        assert figures["correct"] is True
        recovery = figures["recovery"]
        assert 0 < recovery["first_epoch_ms"] < recovery["first_commit_ms"] < recovery["first_commit_of_process_ms"]
    assert next(iter(report["ratios"])) == "start to first commit midstream-10k-keys vs midstream-2k-keys"


@pytest.mark.long
def test_balance_compares_instances_before_and_after(tmp_path: Path) -> None:
    report = bench(tmp_path, "balance")
    assert set(report["ours"]) == {"even ranges", "rebalanced"}
    for figures in report["ours"].values():
        assert figures["correct"] is True
        assert figures["balance"]["slowest_ms"] >= figures["balance"]["median_ms"] > 0
    assert list(report["ratios"]) == [
        "slowest vs median instance, even ranges",
        "slowest vs median instance, rebalanced",
    ]


@pytest.mark.long
def test_hotkey_compares_a_key_whole_and_in_parts(tmp_path: Path) -> None:
    report = bench(tmp_path, "hotkey")
    assert set(report["ours"]) == {"ranges by heat", "hot key in parts"}
    assert all(figures["correct"] is True for figures in report["ours"].values())
    assert report["ratios"]["rows/s with parts vs without"] > 0
