"""Instances on a real cluster: they stay, move when told, and are somewhere else when an executor is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from midstream.state.store import open_store
from tests.cluster.standalone import HOSTS, cache_of, spark_cluster
from tests.recovery.processes import run_module
from tests.servers import S3Server, s3_server


@dataclass(frozen=True)
class Stage:
    """A cluster with a store, on which scenarios are played."""

    root: Path
    master: str
    server: S3Server

    def play(self, scenario: str, directory: Path, shared: bool = False) -> dict[str, Any]:
        """Play a scenario with its state in the store, or in a directory that all executors see."""
        checkpoint = str(directory / "shared") if shared else self.server.url(scenario)
        options = json.dumps({} if shared else self.server.options)
        arguments = [scenario, str(directory), self.master, checkpoint, options]
        process = run_module("tests.cluster.relocation", *arguments, log=directory / "driver.log")
        assert process.wait(400) == 0, process.tail()
        told: dict[str, Any] = json.loads((directory / "result.json").read_text())
        return told

    def copies(self, scenario: str, host: str) -> list[Path]:
        """What executors on a host have kept of the state of a scenario."""
        store = sha256(open_store(self.server.url(scenario), self.server.options).url.encode()).hexdigest()[:16]
        return [file for file in (cache_of(self.root, host) / store).rglob("*") if file.is_file()]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    root = tmp_path_factory.mktemp("cluster")
    with s3_server() as server, spark_cluster(root) as cluster:
        yield Stage(root, cluster.url, server)


@pytest.mark.timeout(600)
def test_instances_stay_and_move_when_told(tmp_path: Path, stage: Stage) -> None:
    told = stage.play("moving", tmp_path)
    first = told["first"]
    place = dict(zip(told["placement"], [first[str(i)] for i in range(4)], strict=False))
    away, home = told["placement"][:2]
    assert [place[executor] for executor in told["placement"]] == list(first.values()), "every task is where it belongs"
    assert Counter(told["placement"]) == {away: 2, home: 2}
    assert told["migrated"] == {**first, "0": place[home]}, "only the one that was named moves"
    assert told["stays"] == told["migrated"]
    assert told["back"] == first
    assert set(told["all"].values()) == {place[home]}
    assert told["readied"] == [[[away]]], "the one that has none is ready for the next"
    assert told["scattered"] == first
    assert Counter(told["rescaled"].values()) == {place[away]: 3, place[home]: 3}
    everybody = sorted([away, home])
    for senders, takers in told["rehearsed"]:
        assert senders == everybody, "every executor has made the exchange"
        assert len(set(takers)) == 1, "one executor after the other"
    assert {takers[0] for _, takers in told["rehearsed"]} == {away, home}
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
    newest = [max(int(copy.parent.name[:12]) for copy in stage.copies("moving", host)) for host in HOSTS]
    assert newest[0] != newest[1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_state_is_there_before_its_instances(tmp_path: Path, stage: Stage) -> None:
    told = stage.play("warming", tmp_path)
    assert len(set(told["moved"].values())) == 1
    warmth = told["warmth"]
    assert warmth["finished"]
    assert warmth["total"] == warmth["done"] > 0.4 * told["state bytes"], "half of the state moves"
    assert told["fetched at rest"] == 0
    assert told["fetched at the change"] < 0.02 * told["state bytes"], "only what the epochs since then have written"
    assert told["cancelled"] == "cancelled"
    assert told["partitions"] == 4


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_lost_executor_costs_a_retry_and_no_state(tmp_path: Path, stage: Stage) -> None:
    told = stage.play("losing", tmp_path)
    assert Counter(told["first"].values()) == Counter(dict.fromkeys(set(told["first"].values()), 2))
    assert len(told["without"]) == 4
    assert len(set(told["without"].values())) == 1, "the one that is left"
    assert told["fetched"] < 0.02 * told["state bytes"], "it stood by, and had everything"
    assert told["alone"] == told["without"], "who has just come has to get its state first"
    assert told["fetched again"] < 0.02 * told["state bytes"], "and then needs nothing more"
    assert Counter(told["again"].values()) == Counter(told["first"].values()), "the one that came instead has its share"
    assert told["status"] == "running"
    assert told["followed"] == [told["last epoch"]] * 2, "a process that follows was killed, and begun anew"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_is_merged_is_there_before_it_is_read(tmp_path: Path, stage: Stage) -> None:
    told = stage.play("merging", tmp_path)
    largest = told["largest segments"]
    assert largest[-1] > 1.5 * largest[0], "the parts of the state have become one"
    assert max(told["fetched"][1:]) < 0.05 * told["state bytes"]


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shared", [False, True], ids=["object store", "shared directory"])
def test_neighbouring_steps_move_together_and_in_turn(tmp_path: Path, stage: Stage, shared: bool) -> None:
    told = stage.play("neighbours", tmp_path, shared)
    everywhere = told["at first"][0]
    assert len(everywhere) == 2
    assert told["at first"] == [everywhere, everywhere]
    (home,), (same,) = told["both"]
    assert home == same
    (away,) = set(everywhere) - {home}
    assert told["one"] == [[away], [home]]
    assert told["other"] == [[away], [away]]
    assert told["phases"] == ["applied", "applied"]
    assert told["undone"] == told["at first"]
