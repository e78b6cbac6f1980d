"""Instances on a real cluster: they stay, move when told, and are somewhere else when an executor is lost."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.standalone import HOSTS, cache_of, spark_cluster
from tests.recovery.processes import run_module
from tests.servers import S3Server


def played(scenario: str, tmp_path: Path, checkpoint: str, options: dict[str, str]) -> dict[str, Any]:
    (tmp_path / "cluster").mkdir()
    with spark_cluster(tmp_path / "cluster") as url:
        arguments = [scenario, str(tmp_path), url, checkpoint, json.dumps(options)]
        process = run_module("tests.cluster.relocation", *arguments, log=tmp_path / "driver.log")
        assert process.wait(400) == 0, process.tail()
    told: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    return told


@pytest.mark.timeout(600)
def test_instances_stay_and_move_when_told(tmp_path: Path, s3_server: S3Server) -> None:
    told = played("moving", tmp_path, s3_server.url(f"moving-{uuid.uuid4().hex}"), s3_server.options)
    first = told["first"]
    place = dict(zip(told["placement"], [first[str(i)] for i in range(4)], strict=False))
    away, home = told["placement"][:2]
    assert [place[executor] for executor in told["placement"]] == list(first.values()), "every task is where it belongs"
    assert Counter(told["placement"]) == {away: 2, home: 2}
    assert told["migrated"] == {**first, "0": place[home]}, "only the one that was named moves"
    assert told["stays"] == told["migrated"]
    assert told["back"] == first
    assert set(told["all"].values()) == {place[home]}
    assert told["scattered"] == first
    assert Counter(told["rescaled"].values()) == {place[away]: 3, place[home]: 3}
    assert told["refused"] == [
        "UNKNOWN_EXECUTOR",
        "UNKNOWN_INSTANCE",
        "WRONG_KIND_OF_STEP",
        "UNKNOWN_EXECUTOR",
        "BAD_DRAIN",
        "UNKNOWN_EXECUTOR",
    ]
    assert told["verdict"].startswith(f"migrate instances 0 of count to executor {home}")
    assert set(told["drained"].values()) == {place[home]}
    assert told["after"] == told["drained"]
    assert told["last one"] == "NOWHERE_LEFT"
    # What was drained has none of the state of the last epochs.
    newest = [max(int(f.parent.name[:12]) for f in _copies(tmp_path, host)) for host in HOSTS]
    assert newest[0] != newest[1]


def _copies(tmp_path: Path, host: str) -> list[Path]:
    return [file for file in cache_of(tmp_path / "cluster", host).rglob("*") if file.is_file() and file.stat().st_size]


@pytest.mark.timeout(600)
def test_state_is_there_before_its_instances(tmp_path: Path, s3_server: S3Server) -> None:
    told = played("warming", tmp_path, s3_server.url(f"warming-{uuid.uuid4().hex}"), s3_server.options)
    assert len(set(told["moved"].values())) == 1
    warmth = told["warmth"]
    assert warmth["finished"]
    assert warmth["total"] == warmth["done"] > 0.4 * told["state bytes"], "half of the state moves"
    assert told["fetched at rest"] == 0
    assert told["fetched at the change"] < 0.02 * told["state bytes"], "only what the epochs since then have written"
    assert told["left"] == []
    assert told["cancelled"] == "cancelled"
    assert told["partitions"] == 4


@pytest.mark.timeout(600)
def test_a_lost_executor_costs_a_retry(tmp_path: Path) -> None:
    told = played("losing", tmp_path, str(tmp_path / "chk"), {})
    assert Counter(told["first"].values()) == Counter(dict.fromkeys(set(told["first"].values()), 2))
    assert len(told["without"]) == 4
    assert Counter(told["again"].values()) == Counter(told["first"].values()), "the one that came instead has its share"
    assert told["status"] == "running"
