from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from midstream.errors import StoreError
from midstream.state.collector import Collector
from midstream.state.compaction import (
    CompactionJob,
    CompactionPolicy,
    CompactionResult,
    Planning,
    apply_compaction,
    plan_base,
    plan_deltas,
    plan_runs,
    run_compaction,
)
from midstream.state.compactor import Compactor, Planner
from midstream.state.directory import DirectoryStore
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, StepState
from midstream.state.tables import TableKind
from tests.state.model import Table, next_merge, spec_of

POLICY = CompactionPolicy(deltas=3, runs=3, dirty_ratio=0.5, file_bytes=1 << 20)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(DirectoryStore(tmp_path), spec_of(TableKind.VALUE), partitions=2, spread=50)


def fill(table: Table, epochs: int, keys: int = 20) -> None:
    for number in range(epochs):
        table.write([((str(key), key), (number, "x")) for key in range(keys)])


def settle(table: Table) -> int:
    jobs = 0
    while (job := next_merge(table.state, POLICY)) is not None:
        table.state = apply_compaction(table.state, run_compaction(table.store, job)) or table.state
        jobs += 1
    return jobs


def test_segments_stay_few_however_many_epochs_there_are(table: Table) -> None:
    most = 0
    for _ in range(40):
        fill(table, 1)
        settle(table)
        most = max(most, len({(s.epoch_from, s.epoch_to) for s in table.state.segments}))
    assert most <= POLICY.deltas + POLICY.runs
    assert len(table.scan()) == 20


def test_a_row_is_rewritten_as_often_as_the_table_has_orders_of_magnitude(table: Table) -> None:
    """Runs of one size are merged with each other, not each time with everything before them."""
    policy = CompactionPolicy(deltas=2, runs=3, dirty_ratio=1000, file_bytes=1 << 20)
    table.write([((str(key), key), (0, "x")) for key in range(1000)])
    fill_with = iter(range(1000, 10**6))
    written = rows = most = 0
    for _ in range(120):
        keys = [next(fill_with) for _ in range(20)]
        rows += len(keys)
        table.write([((str(key), key), (0, "x")) for key in keys])
        while (job := next_merge(table.state, policy)) is not None:
            table.state = apply_compaction(table.state, run_compaction(table.store, job)) or table.state
            written += sum(segment.rows for segment in job.inputs if segment.level < 2)
        most = max(most, len({(s.epoch_from, s.epoch_to) for s in table.state.segments}))
    assert written < 6 * rows
    assert most <= 12
    assert len(table.scan()) == rows + 1000


def test_newer_runs_are_merged_while_older_ones_go_into_the_base(table: Table) -> None:
    policy = CompactionPolicy(deltas=1, runs=2, dirty_ratio=0.01)
    fill(table, 1)
    settle_with(table, policy, plan_deltas)
    for _ in range(2):
        fill(table, 1)
        settle_with(table, policy, plan_deltas)
    base = plan_base("x", table.state, Planning(policy, 1))
    assert base is not None
    taken = frozenset(segment.path for segment in base.inputs)
    for _ in range(2):
        fill(table, 1)
        settle_with(table, policy, plan_deltas)
    assert plan_base("x", table.state, Planning(policy, 1, taken)) is None
    runs = plan_runs("x", table.state, Planning(policy, 1, taken))
    assert runs is not None
    assert not runs.final
    assert not {segment.path for segment in runs.inputs} & taken
    for job in (runs, base):  # whichever ends first
        merged = apply_compaction(table.state, run_compaction(table.store, job))
        assert merged is not None
        table.state = merged
    assert len(table.scan()) == 20
    assert {value for _, value in table.scan()} == {(0, "x")}


def settle_with(table: Table, policy: CompactionPolicy, plan: Planner) -> None:
    while (job := plan("x", table.state, Planning(policy, 1))) is not None:
        table.state = apply_compaction(table.state, run_compaction(table.store, job)) or table.state


def test_nothing_is_done_for_too_little(table: Table) -> None:
    fill(table, 2)
    assert next_merge(table.state, POLICY) is None


def test_the_base_keeps_no_tombstones(table: Table) -> None:
    fill(table, 3)
    settle(table)
    for _ in range(2 * POLICY.deltas):
        table.write([((str(key), key), None) for key in range(20)])
        settle(table)
    assert table.scan() == []
    assert table.state.segments == ()


def test_a_merge_whose_inputs_are_gone_changes_nothing(table: Table) -> None:
    fill(table, 3)
    job = next_merge(table.state, POLICY)
    assert job is not None
    result = run_compaction(table.store, job)
    without = replace(table.state, segments=table.state.segments[1:])
    assert apply_compaction(without, result) is None


def test_expired_rows_are_reclaimed(table: Table) -> None:
    fill(table, 3)
    table.delete_below(15)
    settle(table)
    assert sum(segment.rows for segment in table.state.segments) == 5
    table.delete_below(100)
    assert table.state.segments == ()


def test_a_process_merges_beside_the_stream(table: Table) -> None:
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    try:
        steps = {"x": StepState(table.ranges, {"t": table.state})}
        compactor.offer(steps)
        assert compactor.in_flight()
        deadline = time.monotonic() + 60
        while not compactor.idle and time.monotonic() < deadline:
            time.sleep(0.02)
        merged = compactor.apply(steps)
        assert compactor.in_flight(), "until it is known to be committed"
        compactor.offer(merged)
        assert not compactor.in_flight()
    finally:
        compactor.close()
    table.state = merged["x"].tables["t"]
    assert {segment.level for segment in table.state.segments} == {2}
    assert len(table.scan()) == 20


def test_what_is_merged_is_delivered_before_it_is_offered(table: Table) -> None:
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    delivered: list[CompactionResult] = []
    may_go, wanted = threading.Event(), []

    def deliver(result: CompactionResult, is_wanted: Callable[[], bool]) -> None:
        delivered.append(result)
        may_go.wait(60)
        wanted.append(is_wanted())

    compactor.deliver = deliver
    try:
        compactor.offer(steps)
        _until(lambda: bool(delivered))
        assert compactor.apply(steps) == steps, "it is on its way"
        assert compactor.in_flight() == {delivered[0].id}, "and no sweep may take it"
        may_go.set()
        _until(lambda: compactor.idle)
        (segment,) = compactor.apply(steps)["x"].tables["t"].segments
        assert (segment,) == delivered[0].outputs
        assert wanted == [True]
    finally:
        compactor.close()


def test_a_run_does_not_wait_for_deliveries_when_it_ends(table: Table) -> None:
    fill(table, 3)
    first = Compactor(table.store, {"x": POLICY}, generation=1)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    begun = threading.Event()

    def deliver(result: CompactionResult, is_wanted: Callable[[], bool]) -> None:
        begun.set()
        while is_wanted():
            time.sleep(0.01)

    first.deliver = deliver
    first.offer(steps)
    assert begun.wait(60)
    first.close()
    second = Compactor(table.store, {"x": POLICY}, generation=2)
    try:
        assert second.apply(steps) != steps, "the next run has what was merged"
    finally:
        second.close()


def test_a_store_that_fails_costs_only_the_merge(table: Table) -> None:
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    try:
        lane = compactor._lanes[-1]
        real = lane._run
        lane._run = lambda job: StoreError.failed("s3://bucket", "it is away")  # type: ignore[method-assign]
        compactor.offer(steps)
        _until(lambda: compactor.idle)
        assert compactor.apply(steps) == steps
        lane._run = real  # type: ignore[method-assign]
        compactor.offer(steps)
        _until(lambda: compactor.idle)
        assert compactor.apply(steps) != steps, "it is done by the next one"
    finally:
        compactor.close()


def test_no_base_is_merged_while_state_is_on_its_way(table: Table) -> None:
    fill(table, 3)
    settle(table)
    for _ in range(2):
        fill(table, 3)
        table.state = (
            apply_compaction(table.state, run_compaction(table.store, _due(plan_deltas, table))) or table.state
        )
    assert _due(plan_base, table)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    compactor.held = lambda: True
    try:
        compactor.offer({"x": StepState(table.ranges, {"t": table.state})})
        assert compactor._lanes[0].busy is None
        compactor.held = lambda: False
        compactor.offer({"x": StepState(table.ranges, {"t": table.state})})
        assert compactor._lanes[0].busy is not None
    finally:
        compactor.close()


def test_of_a_remote_store_tasks_hear_of_a_merge_an_epoch_before_it_is_committed(table: Table) -> None:
    fill(table, 3)
    merged = run_compaction(table.store, _due(plan_deltas, table))
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    compactor._awaited = True
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    try:
        assert compactor.announce() == []
        compactor._finished.append(merged)
        assert compactor.apply(steps) == steps, "nobody has heard of it"
        compactor.withheld = lambda: True
        assert compactor.announce() == []
        compactor.withheld = lambda: False
        assert compactor.announce() == [merged]
        assert compactor.apply(steps) == steps, "it is being brought"
        assert compactor.in_flight() == {merged.id}, "and no sweep may take it"
        assert compactor.announce() == [], "they have been told"
        assert compactor.apply(steps)["x"].tables["t"].segments == merged.outputs
        assert compactor.announce() == []
    finally:
        compactor.close()


def test_of_a_store_that_is_read_in_place_nothing_is_announced(table: Table) -> None:
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    try:
        compactor._finished.append(run_compaction(table.store, _due(plan_deltas, table)))
        assert compactor.announce() == []
    finally:
        compactor.close()


def test_merges_wait_while_they_are_withheld(table: Table) -> None:
    fill(table, 3)
    merged = run_compaction(table.store, _due(plan_deltas, table))
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    compactor._finished.append(merged)
    compactor.withheld = lambda: True
    try:
        assert compactor.apply(steps) == steps
        compactor.withheld = lambda: False
        assert compactor.apply(steps)["x"].tables["t"].segments == merged.outputs
    finally:
        compactor.close()


def _due(plan: Any, table: Table) -> CompactionJob:
    job = plan("x", table.state, Planning(POLICY, generation=1))
    assert job is not None
    return job


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_worker_that_dies_costs_only_its_job(table: Table) -> None:
    others = set(_children())  # of tests before this one that let a run die
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=1)
    try:
        steps = {"x": StepState(table.ranges, {"t": table.state})}
        for _ in range(2):
            compactor.offer(steps)
            deadline = time.monotonic() + 60
            while not compactor.idle and time.monotonic() < deadline:
                worker = compactor._lanes[-1].worker  # the lane of deltas
                if worker is not None and _ == 0:
                    worker.kill()
                time.sleep(0.01)
        assert compactor.apply(steps)["x"].tables["t"].segments != ()
    finally:
        compactor.close()
    assert {child for child, state in _children().items() if state == "Z"} <= others


def _children() -> dict[str, str]:
    """The state of every child of this process; Z is one that has ended and that nobody has asked about."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while we look
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid():
                found[process.name] = state
    return found


def test_a_merge_that_outlives_its_run_is_committed_by_the_next(table: Table) -> None:
    fill(table, 3)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    first = Compactor(table.store, {"x": POLICY}, generation=1)
    first.offer(steps)
    first.close(finish=True)
    second = Compactor(table.store, {"x": POLICY}, generation=2)
    try:
        assert len(second.in_flight()) == 1
        table.state = second.apply(steps)["x"].tables["t"]
    finally:
        second.close()
    assert {segment.level for segment in table.state.segments} == {2}
    assert len(table.scan()) == 20
    assert not list(table.store.list("merges"))


@pytest.mark.parametrize("lost", ["inputs", "outputs"])
def test_a_merge_left_behind_that_no_longer_fits_is_dropped(table: Table, lost: str) -> None:
    fill(table, 3)
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    first = Compactor(table.store, {"x": POLICY}, generation=1)
    first.offer(steps)
    first.close(finish=True)
    if lost == "inputs":
        steps = {"x": StepState(table.ranges, {"t": replace(table.state, segments=table.state.segments[1:])})}
    else:
        inputs = {segment.path for segment in table.state.segments}
        table.store.delete([item.path for item in table.store.list("segments") if item.path not in inputs])
    second = Compactor(table.store, {"x": POLICY}, generation=2)
    try:
        assert second.apply(steps) == steps
    finally:
        second.close()


def test_a_sweep_spares_a_merge_left_behind(table: Table) -> None:
    ledger = Ledger.open(table.store)
    fill(table, 3)
    first = Compactor(table.store, {"x": POLICY}, generation=ledger.driver.generation)
    first.offer({"x": StepState(table.ranges, {"t": table.state})})
    first.close(finish=True)
    committed(ledger, table, 5)
    for item in table.store.list("segments"):
        path = table.store.local_path(item.path)
        assert path is not None
        os.utime(path, (1, 1))
    before = len(list(table.store.list("segments")))
    ledger = Ledger.open(table.store)
    second = Compactor(table.store, {"x": POLICY}, generation=ledger.driver.generation)
    try:
        Collector(ledger, retain=3, in_flight=second.in_flight).recover()
        assert len(list(table.store.list("segments"))) == before
    finally:
        second.close()


def committed(ledger: Ledger, table: Table, epoch: int) -> Manifest:
    steps = {"x": StepState(table.ranges, {"t": table.state})}
    manifest = replace(ledger.beginning(), epoch=epoch, steps=steps)
    ledger.commit(manifest)
    return manifest


def test_retention_removes_old_epochs_and_what_only_they_needed(table: Table) -> None:
    ledger = Ledger.open(table.store)
    collector = Collector(ledger, retain=3)
    for epoch in range(12):
        fill(table, 1)
        settle(table)
        collector.committed(committed(ledger, table, epoch))
    assert ledger.epochs() == [9, 10, 11]
    needed = set().union(*(ledger.read(epoch).paths for epoch in ledger.epochs()))
    assert {item.path for item in table.store.list("segments")} >= needed
    swept = Collector(Ledger.open(table.store), retain=3)
    swept.recover()
    left = {item.path for item in table.store.list("segments")}
    # A young merge of another driver stays for a while: that driver may be about to commit it.
    assert {path for path in left if "-g000001-" not in path} <= needed <= left


def test_what_processes_that_copied_have_told_goes_when_it_is_old(table: Table) -> None:
    ledger = Ledger.open(table.store)
    old, young = "warm-ups/a/stop/now", "warm-ups/b/1.json"
    for path in (old, young):
        table.store.put(path, b"{}")
    file = table.store.local_path(old)
    assert file is not None
    os.utime(file, (time.time() - 4000, time.time() - 4000))
    Collector(ledger, retain=3).committed(committed(ledger, table, 0))
    assert [item.path for item in table.store.list("warm-ups")] == [young]


def test_a_sweep_that_lags_behind_spares_what_is_committed_meanwhile(table: Table) -> None:
    """Housekeeping may be epochs behind the stream: what it was told of then is not all that counts now."""
    ledger = Ledger.open(table.store)
    fill(table, 3)
    compactor = Compactor(table.store, {"x": POLICY}, generation=ledger.driver.generation)
    collector = Collector(ledger, retain=3, in_flight=compactor.in_flight)
    try:
        steps = {"x": StepState(table.ranges, {"t": table.state})}
        hundredth = committed(ledger, table, 100)
        compactor.offer(steps)
        _until(lambda: compactor.idle)
        merged = compactor.apply(steps)
        (output,) = merged["x"].tables["t"].segments
        collector.committed(hundredth)  # the merge is neither under way nor in a manifest
        assert output.path in {item.path for item in table.store.list("segments")}
        table.state = merged["x"].tables["t"]
        following = committed(ledger, table, 101)
        compactor.offer(merged)
        collector.committed(hundredth)  # a manifest names it that the sweep was not told of
        assert output.path in {item.path for item in table.store.list("segments")}
        collector.committed(following)
    finally:
        compactor.close()
    assert len(table.scan()) == 20


def test_a_sweep_spares_what_may_still_be_committed(table: Table) -> None:
    ledger = Ledger.open(table.store)
    fill(table, 1)
    committed(ledger, table, 0)
    spared = [
        "segments/x/t/000000000001-00000-aa.seg",  # an epoch under way
        "segments/x/t/000000000000-g000001-bb-00000.seg",  # a merge under way here
        "segments/x/t/000000000000-g000002-cc-00000.seg",  # a merge of a driver that took over
    ]
    orphans = ["segments/x/t/000000000000-00000-dd.seg", "segments/x/t/000000000000-g000001-ee-00000.seg"]
    for path in (*spared, *orphans):
        table.store.put(path, b"x")
    Collector(ledger, retain=3, in_flight=lambda: {"g000001-bb"}).recover()
    left = {item.path for item in table.store.list("segments")}
    assert left >= set(spared)
    assert not left & set(orphans)
