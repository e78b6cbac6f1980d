"""Random changes on a live pipeline, with and without `kill -9`: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.modify import sequences
from tests.modify.changer import Play, work_through
from tests.recovery.processes import run_module

LENGTH = 6


def one_sequence(play: Play, spark: SparkSession, root: Path, seed: int) -> list[str]:
    specs = play.random_specs(seed, LENGTH)
    play.inbox(root).add(*play.rows_of(0))
    run = play.pipeline(root).start(spark, str(root / "chk"))
    try:
        work_through(play, run, root, specs, random.Random(seed))
        play.check(root, specs, run)
        return [str(entry.modification.phase) for entry in run.history()]
    finally:
        run.stop()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_random_changes(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    one_sequence(sequences, spark, tmp_path, seed)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_two_hundred_random_sequences(spark: SparkSession, tmp_path: Path) -> None:
    phases: list[str] = []
    for seed in range(1000, 1200):
        root = tmp_path / str(seed)
        root.mkdir()
        phases += one_sequence(sequences, spark, root, seed)
        print(f"sequence {seed}: {phases[-LENGTH:]}", flush=True)
    told = {phase: phases.count(phase) for phase in sorted(set(phases))}
    print(told)
    assert told["applied"] > 300
    assert {"applied", "undone", "rejected", "rolled_back"} <= set(told)


def killed_again_and_again(play: Play, root: Path, seed: int, length: int, kills: int) -> dict[str, object]:
    """Kill the driver at random instants while changes are under way; each start goes on with the script."""
    chance = random.Random(seed)
    play.inbox(root).add(*play.rows_of(0))
    arguments = [play.__name__, str(root), str(seed), str(length)]
    for number in range(kills):
        process = run_module("tests.modify.changer", *arguments, log=root / f"{number}.log")
        before = len(list((root / "chk" / "journal").glob("*.json")))
        deadline = time.monotonic() + 120
        while len(list((root / "chk" / "journal").glob("*.json"))) < before + chance.randint(1, 8):
            if not process.alive or time.monotonic() > deadline:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.5))
        process.kill_all()
        if (root / "result.json").exists():
            break
    process = run_module("tests.modify.changer", *arguments, log=root / "last.log")
    assert process.wait(400) == 0, process.tail()
    result: dict[str, object] = json.loads((root / "result.json").read_text())
    return result


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_random_changes_with_kills(tmp_path: Path) -> None:
    result = killed_again_and_again(sequences, tmp_path, seed=7, length=6, kills=1)
    assert len(result["phases"]) == 6  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("spark")
def test_many_random_changes_with_many_kills(tmp_path: Path, seed: int) -> None:
    result = killed_again_and_again(sequences, tmp_path, seed=100 + seed, length=25, kills=8)
    print(result)
    assert len(result["phases"]) == 25  # type: ignore[arg-type]
