"""Everything fails at once, at random: executors, drivers, the store, the line to it, while instances are moved about.
Whatever happens, every sink is in the end what it must be.

`CHAOS_SEED` and `CHAOS_SECONDS` play another run.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.chaosacts import KINDS, Act, each_once, for_seconds
from tests.cluster.chaosdriver import Script
from tests.cluster.chaospipeline import Oracle, check_sinks, check_state, ran_where
from tests.cluster.chaosplay import Play
from tests.cluster.faultystore import FaultyStore, faulty_store
from tests.cluster.standalone import Host, spark_cluster
from tests.cluster.storelink import store_link
from tests.servers import S3Server, s3_server

SEED = int(os.environ.get("CHAOS_SEED", "1"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "1200"))
PATIENCE = {"timeout": "3s", "connect_timeout": "1s", "max_retries": "5", "retry_timeout_seconds": "15"}
"""Less than a user would have: faults here last seconds, and some of them are to be longer than that."""


@pytest.mark.timeout(600)
def test_everything_fails_once(tmp_path: Path) -> None:
    play = chaos(tmp_path, SEED, each_once(SEED))
    assert set(play.done) == set(KINDS)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_everything_fails_all_the_time(tmp_path: Path) -> None:
    play = chaos(tmp_path, SEED, for_seconds(SEED, SECONDS))
    assert sum(play.done.values()) > SECONDS / 10


def chaos(root: Path, seed: int, acts: Iterable[Act]) -> Play:
    """Play the acts on a cluster of their own and check what came of it."""
    began = time.monotonic()
    with ExitStack() as stack:
        server = stack.enter_context(s3_server())
        proxy = stack.enter_context(faulty_store(server.endpoint, seed))
        link = stack.enter_context(store_link(proxy, "far"))
        print(f"seed {seed}; the network is cut by {link.how}")
        if not link.enter:
            warnings.warn(f"the network is cut by {link.how}", stacklevel=1)
        proxy.open("driver")
        near, far = proxy.open("near"), proxy.open("far", link.store)
        caches = {"MIDSTREAM_CACHE_DIR": str(root / "cache-{executor}")}
        hosts = [
            Host(link.near, {**caches, "AWS_ENDPOINT_URL": near.endpoint}),
            Host(link.far, {**caches, "AWS_ENDPOINT_URL": far.endpoint}, link.enter),
        ]
        cluster = stack.enter_context(spark_cluster(root, hosts))
        script = Script(str(root), cluster.url, link.near, server.url("chaos"), options_of(server))
        play = Play(root, cluster, proxy, link, script)
        stack.callback(lambda: proxy.write_log(root / "store.log"))
        ended = play.play(acts)
        doors = {link.near: "near", link.far: "far"}
    check(root, ended)
    check_move(root, ended, proxy, doors)
    phases = Counter(phase for _, phase, _ in ended["history"])
    refused = Counter(line["error"] for line in play.told("refused"))
    print(
        f"seed {seed}: {ended['epochs']} epochs in {time.monotonic() - began:.0f} s; {dict(play.done)}; changes:"
        f" {dict(phases)}, refused at once: {dict(refused)}; drivers ended: {dict(Counter(play.ends))};"
        f" {sum(a.status >= 500 for a in proxy.log)} answers 5xx, {sum(a.status == 0 for a in proxy.log)} none"
    )
    return play


def options_of(server: S3Server) -> dict[str, str]:
    """Without the endpoint, which is another for everybody: it comes by their environment."""
    return {**{name: value for name, value in server.options.items() if name != "endpoint"}, **PATIENCE}


def check(root: Path, ended: dict[str, Any]) -> None:
    """Nothing is lost, nothing is there twice."""
    epochs = len(list((root / "in").glob("*.parquet")))
    assert ended["epochs"] == epochs, "every file is an epoch"
    oracle = Oracle.after(epochs)
    check_sinks(root, epochs, oracle)
    check_state(ended["sums"], ended["seen"], oracle)


def check_move(root: Path, ended: dict[str, Any], proxy: FaultyStore, doors: dict[str, str]) -> None:
    """Instances ran where they belong, before and after the last move, and their state went there once."""
    for told in (ended["before"], ended["after"]):
        assert ran_where(root, told["epoch"]) == dict(enumerate(told["placement"]))
    moved, warmth = ended["moved"], ended["moved"]["warmth"]
    home, away = moved["home"], moved["away"]
    assert set(ended["after"]["placement"]) == {home}
    assert warmth["finished"]
    assert warmth["done"] == warmth["total"] > 0

    read = {
        executor: proxy.read_by(doors[ended["executors"][executor]], "segments", moved["since"], moved["until"])
        for executor in (home, away)
    }
    assert sum(read.values()) == warmth["fetched"] + moved["by tasks"], (read, moved)
    assert read[home] >= warmth["total"], "its cache was empty: all of it came from the store"

    kept = {executor: segments_in(root / f"cache-{executor}") for executor in (home, away)}
    assert sum(kept[home].values()) >= warmth["total"], "and is in the cache now"
    new = {executor: [path for path in paths if epoch_of(path) >= moved["first"]] for executor, paths in kept.items()}
    deltas = {
        executor: [p for p in paths if "/seen/" in p and "-g" not in Path(p).name] for executor, paths in new.items()
    }
    assert deltas[home]
    assert not deltas[away], "what has moved away leaves nothing there"


def segments_in(cache: Path) -> dict[str, int]:
    """Bytes by segment of which a cache has copies."""
    found: Counter[str] = Counter()
    for copy in cache.rglob("*.seg/*"):
        found[str(copy.parent)] += copy.stat().st_size
    return found


def epoch_of(segment: str) -> int:
    return int(Path(segment).name[:12])
