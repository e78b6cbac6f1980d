"""A driver program that moves instances between executors and tells where each ran.

`python -m tests.cluster.relocation <scenario> <directory> <master> <checkpoint> <store options as json>`
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import ChangeError
from tests.engine.harness import Inbox
from tests.recovery.processes import wait_until
from tests.recovery.workload import session

KEYS = 200
INSTANCES = 4


def count(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Counts rows by key, and says which instance did and whose cache it used."""
    import os

    from pyspark import TaskContext

    found = {row["k"]: row["n"] for row in state.to_pylist()}
    for key in rows.column("k").to_pylist():
        found[key] = found.get(key, 0) + 1
    counts = pa.table({"k": pa.array(list(found), pa.int64()), "n": pa.array(list(found.values()), pa.int64())})
    context = TaskContext.get()
    assert context is not None
    instance = pa.array([context.partitionId()] * len(found), pa.int64())
    place = pa.array([os.path.basename(os.environ["MIDSTREAM_CACHE_DIR"])] * len(found))
    return counts.append_column("instance", instance).append_column("place", place), counts


@dataclass
class Scene:
    """A running pipeline: epochs are added by hand, and each tells where its instances ran."""

    root: Path
    run: Run
    sink: Any
    inbox: Inbox
    told: dict[str, Any] = field(default_factory=dict)
    epochs: int = 0

    def epoch(self) -> dict[int, str]:
        self.inbox.add(*((key,) for key in range(KEYS)))
        self.run.process_available()
        self.epochs += 1
        rows = self.sink.epochs[self.run.last_epoch].to_pylist()
        assert sorted((row["k"], row["n"]) for row in rows) == [(key, self.epochs) for key in range(KEYS)]
        return {row["instance"]: row["place"] for row in rows}

    def fill(self) -> None:
        """Some megabytes of state, of keys that epochs do not have."""
        self.inbox.add(*((key,) for key in range(1000, 300_000)))
        self.run.process_available()

    def change(self, change: Any) -> dict[int, str]:
        """Where instances run with the first epoch of a change."""
        submitted = self.run.apply(change, wait=False)
        self.settle(submitted.id)
        return self.epoch()

    def undo(self) -> dict[int, str]:
        self.settle(self.run.undo(wait=False).id)
        return self.epoch()

    def settle(self, id_: int) -> None:
        done = ("waiting", "applied", "rejected")
        wait_until(lambda: str(self.run.modification(id_).phase) in done, 60, "the change is prepared")
        assert str(self.run.modification(id_).phase) == "waiting", self.run.history()

    def refused(self, change: Any) -> str:
        try:
            self.run.plan(change)
        except ChangeError as error:
            return str(error.error_class)
        return "planned"


def moving(scene: Scene) -> None:
    told, run = scene.told, scene.run
    told["first"] = [scene.epoch() for _ in range(3)][-1]
    told["placement"] = run.placement()["count"]
    told["executors"] = [(executor.id, executor.host) for executor in run.executors()]
    away, home = run.placement()["count"][:2]
    told["migrated"] = scene.change(ms.Migrate("count", home, [0]))
    told["stays"] = scene.epoch()
    told["back"] = scene.undo()
    told["all"] = scene.change(ms.Migrate("count", home, from_executor=away))
    told["scattered"] = scene.undo()
    told["rescaled"] = scene.change(ms.Rescale("count", 6))
    told["refused"] = [
        scene.refused(ms.Migrate("count", "77")),
        scene.refused(ms.Migrate("count", home, [99])),
        scene.refused(ms.Migrate("out", home)),
        scene.refused(ms.Drain("77")),
        scene.refused(ms.Drain()),
        scene.refused(ms.ChangeSet([ms.Drain(away), ms.Drain(host="nowhere")])),
    ]
    told["verdict"] = str(run.plan(ms.Migrate("count", home, [0])))
    told["drained"] = scene.change(ms.Drain(away, decommission=True))
    wait_until(lambda: len(run.executors()) == 1, 60, "the drained executor is ended")
    told["after"] = scene.epoch()
    told["last one"] = scene.refused(ms.Drain(home))


def warming(scene: Scene) -> None:
    """State is brought to where instances go before they go there."""
    told, run = scene.told, scene.run
    scene.fill()
    scene.epoch()
    told["state bytes"] = run.epochs()[-1].state_bytes
    told["fetched at rest"] = run.epochs()[-1].steps["count"].fetched_bytes
    away, home = run.placement()["count"][:2]
    told["moved"] = scene.change(ms.Migrate("count", home, from_executor=away))
    told["fetched at the change"] = run.epochs()[-1].steps["count"].fetched_bytes
    warmth = run.warmth(1)
    assert warmth is not None
    told["warmth"] = warmth.to_json()
    told["left"] = [item.path for item in run._ledger.store.list("warm-ups")]
    scene.undo()
    scene.settle(run.apply(ms.Tune(fetch_bytes_per_second=100_000), wait=False).id)
    scene.epoch()
    slow = run.apply(ms.Rescale("count", 3), wait=False)
    wait_until(lambda: run.warmth(slow.id) is not None, 60, "it is being warmed up")
    told["cancelled"] = str(run.cancel(slow.id).phase)
    scene.epoch()
    told["partitions"] = run.graph().step("count").partitions


def losing(scene: Scene) -> None:
    """An executor is killed: a retry, not a restart; who stands by has the state; its replacement gets work again."""
    told, run = scene.told, scene.run
    scene.fill()
    told["first"] = [scene.epoch() for _ in range(2)][-1]
    told["state bytes"] = run.epochs()[-1].state_bytes
    wait_until(lambda: _followed(run) == [run.last_epoch] * 2, 60, "both executors stand by for each other")
    victim = run.executors()[0]
    _kill(victim.id)
    told["without"] = scene.epoch()
    told["fetched"] = run.epochs()[-1].steps["count"].fetched_bytes
    wait_until(lambda: victim.id not in [e.id for e in run.executors()], 60, "the loss is noticed")
    wait_until(lambda: len(run.executors()) == 2, 60, "there is another")
    told["again"] = [scene.epoch() for _ in range(2)][-1]
    told["status"] = run.status
    wait_until(lambda: _followed(run) == [run.last_epoch] * 2, 60, "both stand by again")


def _followed(run: Run) -> list[int | None]:
    return [warmth.epoch for warmth in run.standbys().values()]


def _kill(executor: str) -> None:
    # By the address of our driver, too: executors of other applications on this machine have the same ids.
    port = SparkContext.getOrCreate().getConf().get("spark.driver.port")
    wanted = f"\0--executor-id\0{executor}\0".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                command = Path(entry.path, "cmdline").read_bytes()
            except OSError:
                continue
            if wanted in command and f":{port}\0".encode() in command:
                os.kill(int(entry.name), signal.SIGKILL)
                time.sleep(0.2)


SCENARIOS: dict[str, Callable[[Scene], None]] = {"moving": moving, "warming": warming, "losing": losing}


def main(scenario: str, root: Path, master: str, checkpoint: str, options: dict[str, str]) -> None:
    spark = session(master, {"spark.executor.memory": "512m", "spark.python.worker.reuse": "true"})
    wait_until(lambda: spark.sparkContext._jsc.sc().statusStore().executorList(True).size() == 3, 120, "executors")
    inbox, sink = Inbox(root / "in", "k bigint"), ms.sinks.memory()
    keyed = inbox.source().key_by("k")
    counted = keyed.stateful(
        "count",
        count,
        state="n bigint",
        output="k bigint, n bigint, instance bigint, place string",
        parallelism=INSTANCES,
    )
    run = counted.sink("out", sink).start(spark, checkpoint, store_options=options, standby=int(scenario == "losing"))
    scene = Scene(root, run, sink, inbox)
    SCENARIOS[scenario](scene)
    run.stop()
    (root / "result.json").write_text(json.dumps(scene.told))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
