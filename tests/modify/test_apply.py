"""Changes applied to a running pipeline: from which epoch they hold, and what becomes of state."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from tests.modify.live import Live


def sums(live: Live) -> ms.Pipeline:
    stream = live.source().transform("clean", lambda df: df.where("v >= 0"))
    return stream.key_by("k").aggregate("sums", n=F.count("*"), s=F.sum("v"), parallelism=2).sink("out", live.sink)


def test_replace_a_transform(live: Live) -> None:
    run = live.start(sums(live), ("a", 1), ("a", -1))
    query = run.query
    output = live.change(ms.Replace("clean", lambda df: df.withColumn("v", F.col("v") * 10)), ("a", 2), ("a", -3))
    assert output == [{"k": "a", "n": 3, "s": 1 + 20 - 30}]
    assert live.epoch(("b", 1)) == [{"k": "b", "n": 1, "s": 10}]
    assert run.query is query, "Spark's query was stopped"
    assert [epoch.plan for epoch in run.epochs()] == [1, 2, 2]


def test_replace_with_sql_and_undo(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    assert live.change(ms.Replace("clean", sql="SELECT k, v + 100 AS v FROM input"), ("a", 1))[0]["s"] == 102
    undone = live.undo()
    assert undone.phase is Phase.WAITING
    assert live.epoch(("a", 1), ("a", -1)) == [{"k": "a", "n": 3, "s": 103}]
    assert [str(entry.modification.phase) for entry in live.run.history()] == ["undone", "applied"]


def test_aggregates_come_and_go(live: Live) -> None:
    live.start(sums(live), ("a", 5), ("b", 1))
    more = {"n": F.count("*"), "s": F.sum("v"), "m": F.max("v"), "d": F.count_distinct("v")}
    assert live.change(ms.Replace("sums", aggregate=more), ("a", 3)) == [{"k": "a", "n": 2, "s": 8, "m": 3, "d": 1}]
    assert live.epoch(("a", 9), ("b", 2)) == [
        {"k": "a", "n": 3, "s": 17, "m": 9, "d": 2},
        {"k": "b", "n": 2, "s": 3, "m": 2, "d": 1},
    ]


def test_insert_and_remove(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    assert live.change(ms.Insert("big", lambda df: df.where("v > 10"), after="clean"), ("a", 5), ("a", 50)) == [
        {"k": "a", "n": 2, "s": 51}
    ]
    late = ms.sinks.memory()
    live.change(ms.Insert("raw", sink=late, after="clean"), ("a", 7), ("a", 70))
    assert live.output(2, late) == [{"k": "a", "v": 7}, {"k": "a", "v": 70}]
    assert live.change(ms.Remove("big"), ("a", 3)) == [{"k": "a", "n": 4, "s": 124}]
    live.change(ms.Remove("raw"), ("a", 1))
    assert 4 not in late.epochs
    assert [step.id for step in live.run.graph().steps] == ["events", "clean", "sums", "out"]


def test_a_keyed_step_comes_goes_and_comes_back(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    latest = ms.sinks.memory()
    branch = ms.ChangeSet(
        [
            ms.Insert("last", key_by="k", aggregate={"l": F.last("v"), "c": F.count("*")}, after="clean", branch=True),
            ms.Insert("latest", sink=latest, after="last"),
        ]
    )
    live.change(branch, ("a", 2))
    assert live.output(1, latest) == [{"k": "a", "l": 2, "c": 1}]
    live.epoch(("a", 3))
    assert live.output(2, latest) == [{"k": "a", "l": 3, "c": 2}]

    refused = live.submit(ms.Remove("latest"))
    assert refused.phase is Phase.REJECTED
    assert "STATE_WOULD_BE_LOST" in str(refused.reason)
    live.change(ms.Remove("latest"), ("a", 4), allow_state_loss=True)
    assert 3 not in latest.epochs
    live.undo()
    assert live.epoch(("a", 5)) == [{"k": "a", "n": 5, "s": 15}]
    assert live.output(4, latest) == [{"k": "a", "l": 5, "c": 3}], "its state as it was when the step was removed"


def test_rescale(live: Live) -> None:
    keys = [(f"k{i}", i) for i in range(50)]
    run = live.start(sums(live), *keys)
    for round_, partitions in enumerate((4, 3, 1, 7), 2):
        output = live.change(ms.Rescale("sums", partitions), *keys)
        assert {row["k"]: row["n"] for row in output} == {key: round_ for key, _ in keys}
        assert run.graph().step("sums").partitions == partitions
    verdict = run.plan(ms.Rescale("sums", 2))
    assert str(verdict.step("sums").state) == "moved"
    assert 0 < verdict.moved_bytes < verdict.step("sums").state_bytes


def count_up(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    counted = pa.concat_tables([rows.select(["k"]).append_column("n", pa.array([1] * len(rows), pa.int32())), state])
    total = counted.group_by("k").aggregate([("n", "sum")])
    new = pa.table({"k": total["k"], "n": total["n_sum"].cast(pa.int32())})
    return new, new


def wider(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    counted = pa.concat_tables(
        [rows.select(["k"]).append_column("n", pa.array([1] * len(rows), pa.int64())), state.select(["k", "n"])]
    )
    total = counted.group_by("k").aggregate([("n", "sum")])
    new = pa.table({"k": total["k"], "n": total["n_sum"], "note": pa.array(["x"] * len(total))})
    return new.select(["k", "n"]), new


def renamed(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    output, new = count_up(rows, state.rename_columns({"count": "n"}))
    return output, new.rename_columns({"n": "count"})


def counting(live: Live) -> ms.Pipeline:
    keyed = live.source().key_by("k").stateful("count", count_up, state="n int", output="k string, n int")
    return keyed.sink("out", live.sink)


def test_state_of_another_schema_is_converted_as_it_is_read(live: Live) -> None:
    live.start(counting(live), ("a", 1), ("b", 1))
    change = ms.Replace("count", wider, state="n bigint, note string", output="k string, n bigint")
    refused = live.submit(change)
    assert "SINK_SCHEMA_CHANGED" in str(refused.reason), "the sink has n as an int"
    other = ms.sinks.memory()
    set_ = ms.ChangeSet([change, ms.Replace("out", sink=other)])
    verdict = live.run.plan(set_)
    assert str(verdict.step("count").state) == "converted"
    live.change(set_, ("a", 1))
    live.epoch(("a", 1), ("b", 1))
    assert live.output(1, other) == [{"k": "a", "n": 2}]
    assert live.output(2, other) == [{"k": "a", "n": 3}, {"k": "b", "n": 2}]
    assert live.undo().phase is Phase.WAITING
    assert live.epoch(("a", 1), ("b", 1)) == [{"k": "a", "n": 4}, {"k": "b", "n": 3}]


def test_a_renamed_column(live: Live) -> None:
    live.start(counting(live), ("a", 1), ("b", 1))
    change = ms.Replace("count", renamed, state="count int", rename={"n": "count"})
    assert live.change(change, ("a", 1)) == [{"k": "a", "n": 2}]
    assert live.epoch(("b", 1)) == [{"k": "b", "n": 2}]


def hundredfold(rows: pa.Table) -> pa.Table:
    return rows.set_column(rows.column_names.index("n"), "n", pc.multiply(rows["n"], 100).cast(pa.int32()))


def test_a_conversion_of_ones_own(live: Live) -> None:
    live.start(counting(live), ("a", 1), ("b", 1))
    change = ms.Replace("count", convert=hundredfold)
    assert live.change(change, ("a", 1)) == [{"k": "a", "n": 101}]
    assert live.epoch(("a", 1), ("b", 1)) == [{"k": "a", "n": 102}, {"k": "b", "n": 101}]


def text_state(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    keys = pa.table({"k": rows["k"].unique()})
    return keys.append_column("n", pa.array([len(state)] * len(keys), pa.int32())), keys.append_column(
        "t", pa.array(["x"] * len(keys))
    )


def test_state_that_cannot_be_converted_goes_only_when_allowed(live: Live) -> None:
    live.start(counting(live), ("a", 1))
    change = ms.Replace("count", text_state, state="t string")
    refused = live.submit(change)
    assert refused.phase is Phase.REJECTED
    assert "column 'n' goes" in str(refused.reason)
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 2}]
    assert live.change(change, ("a", 1), allow_state_loss=True) == [{"k": "a", "n": 1}]


def test_changes_queue_and_one_that_no_longer_fits_is_rejected(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    first = live.run.apply(ms.Remove("clean"), wait=False)
    second = live.run.apply(ms.Replace("clean", lambda df: df), wait=False)
    third = live.run.apply(ms.Rescale("sums", 3), wait=False)
    live.settled(first)
    live.epoch(("a", -1))
    assert live.settled(second).phase is Phase.REJECTED
    assert "UNKNOWN_STEP" in str(live.run.modification(second.id).reason)
    live.settled(third)
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 3, "s": 1}]
    assert live.run.modification(third.id).phase is Phase.APPLIED


def test_a_change_can_be_cancelled_until_it_is_applied(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    waiting = live.submit(ms.Remove("clean"))
    assert waiting.phase is Phase.WAITING
    assert live.run.cancel(waiting.id).phase is Phase.CANCELLED
    assert live.epoch(("a", -1)) == []
    assert live.run.epochs()[-1].plan == 1


def test_a_restart_keeps_what_was_changed(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    live.change(ms.Replace("clean", lambda df: df.withColumn("v", F.col("v") * 10)), ("a", 2))
    live.run.stop()
    live.start(sums(live), ("a", 3))
    assert live.output(2) == [{"k": "a", "n": 3, "s": 1 + 20 + 30}]
    live.run.stop()
    live.start(sums(live), ("a", 4), live_changes="drop")
    assert live.output(3) == [{"k": "a", "n": 4, "s": 1 + 20 + 30 + 4}]
    assert [str(entry.modification.phase) for entry in live.run.history()] == ["undone"]


def test_waiting_for_a_change(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    pending = live.run.apply(ms.Remove("clean"), timeout=1.0)
    assert pending.is_under_way
    live.settled(pending)
    live.epoch(("a", -1))
    done = live.run.modification(pending.id)
    assert set(done.seconds) == {"submit", "wait", "perform", "total"}


def test_the_verdict_reads_as_a_diff(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    changes: list[Any] = [ms.Insert("x", lambda df: df, after="clean"), ms.Rescale("sums", 4), ms.Remove("clean")]
    text = str(live.run.plan(ms.ChangeSet(changes)))
    assert "+ x [transform] ← events  new" in text
    assert "~ sums [aggregate] ← x" in text
    assert "- clean [transform]" in text
    assert "2 → 4 partitions" in text
    assert "tried on 1 rows of the last epoch" in text
