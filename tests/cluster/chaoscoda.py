"""The end of a chaos run: nothing fails any more, so that it can be told where instances run and what was fetched."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TYPE_CHECKING, Any

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.engine.run import Run
from tests.recovery.processes import wait_until

if TYPE_CHECKING:
    from tests.cluster.chaosdriver import Stage

CALM_SECONDS = 90


def coda(stage: Stage) -> dict[str, Any]:
    """Let all changes end and all drained executors come back, move the function's instances off one executor, and
    tell what is there in the end."""
    run = stage.run
    _settle(stage)
    for drain in live_drains(run):
        run.undo(drain, wait=False)
        _settle(stage)
    wait_until(lambda: len(run.executors()) == 2, CALM_SECONDS, "both executors are there")
    # Ranges cut by heat may be so narrow that none of an epoch's rows are in them, and only rows tell where a task ran.
    run.apply(ms.Rescale("seen", 3 if len(run.placement()["seen"]) == 4 else 4), wait=False)
    _settle(stage)
    _rest(stage)
    before = {"epoch": _epoch(stage), "placement": run.placement()["seen"]}
    moved = _migrate(stage)
    after = {"epoch": _epoch(stage), "placement": run.placement()["seen"]}
    told = {
        "executors": {executor.id: executor.host for executor in run.executors()},
        "before": before,
        "moved": moved,
        "after": after,
        "history": [(entry.text, str(entry.modification.phase), str(entry)) for entry in run.history()],
        "sums": run.read_result("sums").to_pylist(),
        "seen": run.read_state("seen").to_pylist(),
    }
    run.stop()
    return {**told, "epochs": run.last_epoch + 1}


def live_drains(run: Run) -> list[int]:
    """Drains that hold and that nobody is taking back."""
    history = [(entry.text, entry.modification) for entry in run.history()]
    going = {m.undoes for _, m in history if m.is_under_way}
    return [m.id for text, m in history if text.startswith("drain") and m.phase is Phase.APPLIED and m.id not in going]


def _settle(stage: Stage) -> None:
    """Rows come until no change is under way: a change that hangs shows here."""
    deadline = time.monotonic() + CALM_SECONDS
    while hanging := [str(entry) for entry in stage.run.history() if entry.modification.is_under_way]:
        assert time.monotonic() < deadline, f"changes that do not end: {hanging}"
        if stage.run.exception is not None:
            raise stage.run.exception
        stage.feed()
        time.sleep(0.05)
    stage.run.process_available()


def _rest(stage: Stage) -> None:
    """Epochs until executors that have come have their instances, and nobody brings them state any more: that is told
    by nobody, and could not be compared with the store's log."""
    deadline, calm = time.monotonic() + CALM_SECONDS, 0
    while calm < 2:
        assert time.monotonic() < deadline, "executors that have come do not get their instances"
        _epoch(stage)
        time.sleep(0.5)
        bringing = any(thread.name == "midstream-membership" for thread in threading.enumerate())
        calm = 0 if bringing or stage.run._runner.placer.newcomers else calm + 1


def _epoch(stage: Stage) -> int:
    stage.feed()
    stage.run.process_available()
    return stage.run.last_epoch


def _migrate(stage: Stage) -> dict[str, Any]:
    """Move the instances of one executor to the other, whose cache was lost: its state is brought there before."""
    run = stage.run
    away = run.placement()["seen"][0]
    home = next(executor.id for executor in run.executors() if executor.id != away)
    shutil.rmtree(stage.root / f"cache-{home}")
    since, first = time.time(), run.last_epoch + 1
    change = run.apply(ms.Migrate("seen", home, from_executor=away), wait=False)
    ready = (Phase.WAITING, Phase.REJECTED)
    wait_until(lambda: run.modification(change.id).phase in ready, CALM_SECONDS, "the state is moved")
    _epoch(stage)
    until = time.time()
    assert run.modification(change.id).phase is Phase.APPLIED, run.modification(change.id)
    warmth = run.warmth(change.id)
    assert warmth is not None
    reports = [report for report in run.epochs() if report.epoch >= first]
    return {
        "away": away,
        "home": home,
        "since": since,
        "until": until,
        "first": first,
        "warmth": warmth.to_json(),
        "by tasks": sum(step.fetched_bytes for report in reports for step in report.steps.values()),
    }
