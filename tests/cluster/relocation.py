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
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

import midstream as ms
from midstream.engine import standby as following
from midstream.engine import warming as bringing
from midstream.engine.readying import READYING
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


def count_again(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The same behind another step: says also where that one ran."""
    output, counts = count(rows.select(["k"]), state)
    first = dict(zip(rows.column("k").to_pylist(), rows.column("place").to_pylist(), strict=True))
    return output.append_column("first", pa.array([first[key] for key in output.column("k").to_pylist()])), counts


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
    before = len(rehearsals(run, away))
    told["all"] = scene.change(ms.Migrate("count", home, from_executor=away))
    wait_until(lambda: jobs_named(run, READYING), 60, "the executor without instances is made ready")
    told["readied"] = jobs_named(run, READYING)
    wait_until(lambda: len(rehearsals(run, away)) > before, 60, "and rehearses as if it got some")
    told["scattered"] = scene.undo()
    told["rescaled"] = scene.change(ms.Rescale("count", 6))
    told["rehearsed"] = rehearsals(run)
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
    ended = "one that follows the commits is told to end"
    wait_until(lambda: any("/stop/" in item.path for item in run._ledger.store.list("warm-ups")), 20, ended)
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
    kill_executor(str(run._runner.placer.cluster.application), victim.id)
    told["without"] = scene.epoch()
    told["fetched"] = run.epochs()[-1].steps["count"].fetched_bytes
    wait_until(lambda: victim.id not in [e.id for e in run.executors()], 60, "the loss is noticed")
    wait_until(lambda: len(run.executors()) == 2, 60, "there is another")
    told["alone"] = scene.epoch()
    told["fetched alone"] = run.epochs()[-1].steps["count"].fetched_bytes
    wait_until(lambda: not run._runner.placer.newcomers, 60, "the other one has its state")
    told["again"] = scene.epoch()
    told["fetched again"] = run.epochs()[-1].steps["count"].fetched_bytes
    told["status"] = run.status
    wait_until(lambda: _followed(run) == [run.last_epoch] * 2, 60, "both stand by again")
    following.SILENCE_SECONDS, following._LOOK_SECONDS = 5.0, 1.0
    kill_follower(str(run._runner.placer.cluster.application), run.executors()[0].id)
    deadline = time.monotonic() + 90
    while told.get("followed") != [run.last_epoch] * 2 and time.monotonic() < deadline:
        scene.epoch()
        time.sleep(2)
        told["followed"] = _followed(run)
    told["last epoch"] = run.last_epoch


def merging(scene: Scene) -> None:
    """Merges make all of the state anew; executors have it when a commit names it."""
    told, run = scene.told, scene.run
    scene.fill()
    fetched, segments = [], []
    for _ in range(12):
        scene.epoch()
        wait_until(lambda: run._runner.compactor.idle, 60, "what is due is merged")
        told["state bytes"] = run.epochs()[-1].state_bytes
        fetched.append(run.epochs()[-1].steps["count"].fetched_bytes)
        segments.append(max(s.bytes for t in run._runner.last.steps["count"].tables.values() for s in t.segments))
    told["fetched"], told["largest segments"] = fetched, segments


def neighbours(scene: Scene) -> None:
    """Two steps one behind the other move at once, and one after the other."""
    told, run = scene.told, scene.run

    def ran() -> list[list[str]]:
        rows = scene.sink.epochs[run.last_epoch].to_pylist()
        return [sorted({row["first"] for row in rows}), sorted({row["place"] for row in rows})]

    scene.epoch()
    told["at first"] = ran()
    home, away = [executor.id for executor in run.executors()]
    scene.change(ms.ChangeSet([ms.Migrate("count", home), ms.Migrate("again", home)]))
    told["both"] = ran()
    scene.change(ms.Migrate("count", away))
    told["one"] = ran()
    submitted = [run.apply(ms.Migrate(step, away), wait=False).id for step in ("again", "count")]
    for id_ in submitted:  # they queue
        wait_until(lambda id_=id_: str(run.modification(id_).phase) == "waiting", 60, "its turn has come")
        scene.epoch()
    told["other"] = ran()
    told["phases"] = [str(run.modification(id_).phase) for id_ in submitted]
    for _ in range(4):
        scene.undo()
    told["undone"] = ran()


def rehearsals(run: Run, of: str | None = None) -> list[tuple[list[str], list[str]]]:
    """By rehearsal, where its tasks ran: those that send rows, and those of the instances that move. All of them, or
    those in which instances moved to one executor."""
    jobs = jobs_named(run, "midstream rehearsal: count")
    return sorted((senders, takers) for senders, takers in jobs if of is None or set(takers) == {of})


def jobs_named(run: Run, begin: str) -> list[list[list[str]]]:
    """By job that has ended and whose description begins so, and by its stages, where the tasks ran."""
    jobs = run._runner.placer.cluster._spark.sparkContext._jsc.sc().statusStore()
    found = []
    listed = jobs.jobsList(None)
    for job in (listed.apply(i) for i in range(listed.size())):
        named = job.description().isDefined() and job.description().get().startswith(begin)
        if named and str(job.status()) == "SUCCEEDED":
            stages = sorted(job.stageIds().apply(i) for i in range(job.stageIds().size()))
            tasks = [jobs.taskList(stage, 0, 1000) for stage in stages]
            found.append([sorted(each.apply(i).executorId() for i in range(each.size())) for each in tasks])
    return found


def _followed(run: Run) -> list[int | None]:
    return [warmth.epoch for warmth in run.standbys().values()]


def kill_executor(application: str, executor: str) -> None:
    """End the process of an executor at once."""
    for process in executor_processes(application, executor):
        os.kill(process, signal.SIGKILL)
        time.sleep(0.2)


def kill_follower(application: str, executor: str) -> None:
    """End the process that follows the commits on an executor, as the system does when memory is short."""
    (parent,) = executor_processes(application, executor)
    (follower,) = processes_with({b"midstream.state.warmup_worker": str(parent).encode()})
    os.kill(follower, signal.SIGKILL)


def executor_processes(application: str, executor: str) -> list[int]:
    """Other clusters on this machine have executors of the same numbers."""
    return processes_with({b"--app-id": application.encode(), b"--executor-id": executor.encode()})


def processes_with(words: dict[bytes, bytes]) -> list[int]:
    """Those in whose command each word is followed by the one that belongs to it."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):
                command = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                if words.items() <= dict(pairwise(command)).items():
                    found.append(int(entry.name))
    return found


SCENARIOS: dict[str, Callable[[Scene], None]] = {
    scenario.__name__: scenario for scenario in (moving, warming, losing, merging, neighbours)
}


def main(scenario: str, root: Path, master: str, checkpoint: str, options: dict[str, str]) -> None:
    spark = session(master, {"spark.executor.memory": "512m", "spark.python.worker.reuse": "true"})
    wait_until(lambda: spark.sparkContext._jsc.sc().statusStore().executorList(True).size() == 3, 120, "executors")
    bringing.LITTLE_BYTES = 0  # there is not much of it, and it is to be brought all the same
    inbox, sink = Inbox(root / "in", "k bigint"), ms.sinks.memory()
    keyed = inbox.source().key_by("k")
    counted = keyed.stateful(
        "count",
        count,
        state="n bigint",
        output="k bigint, n bigint, instance bigint, place string",
        parallelism=INSTANCES,
    )
    if scenario == "neighbours":
        output = "k bigint, n bigint, instance bigint, place string, first string"
        again = counted.key_by("k").stateful("again", count_again, state="n bigint", output=output, parallelism=2)
        counted = again
    run = counted.sink("out", sink).start(spark, checkpoint, store_options=options, standby=int(scenario == "losing"))
    scene = Scene(root, run, sink, inbox)
    SCENARIOS[scenario](scene)
    run.stop()
    (root / "result.json").write_text(json.dumps(scene.told))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4], json.loads(sys.argv[5]))
