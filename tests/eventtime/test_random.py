"""Random changes while windows are open, with and without `kill -9`: every window gives what it must, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.eventtime import sequences
from tests.modify.test_random import killed_again_and_again, one_sequence


def test_random_changes_while_windows_are_open(spark: SparkSession, tmp_path: Path) -> None:
    one_sequence(sequences, spark, tmp_path, seed=1)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_changes_while_windows_are_open(spark: SparkSession, tmp_path: Path) -> None:
    phases: list[str] = []
    for seed in range(2000, 2040):
        root = tmp_path / str(seed)
        root.mkdir()
        phases += one_sequence(sequences, spark, root, seed)
    told = {phase: phases.count(phase) for phase in sorted(set(phases))}
    print(told)
    assert {"applied", "undone", "rejected", "rolled_back"} <= set(told)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_changes_and_kills_while_windows_are_open(tmp_path: Path) -> None:
    result = killed_again_and_again(sequences, tmp_path, seed=11, length=5, kills=1)
    assert len(result["phases"]) == 5  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("spark")
def test_many_changes_and_kills_while_windows_are_open(tmp_path: Path, seed: int) -> None:
    result = killed_again_and_again(sequences, tmp_path, seed=300 + seed, length=20, kills=6)
    print(result)
    assert len(result["phases"]) == 20  # type: ignore[arg-type]
