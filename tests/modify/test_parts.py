"""Hot keys in parts on several instances, and whole again, while the pipeline runs."""

from __future__ import annotations

import random
import statistics
from typing import Any

import pytest
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.errors import ChangeError
from midstream.state.heat import DECAY
from tests.modify.live import Live

AGGREGATES: dict[str, Any] = {
    "n": "count(*)",
    "s": "sum(v)",
    "lo": "min(v)",
    "hi": "max(v)",
    "a": "avg(v)",
    "sd": "stddev_pop(v)",
}
Rows = list[tuple[str, int]]


def skewed(number: int) -> Rows:
    """Half of the rows have one key, with ever other values."""
    chance = random.Random(number)
    return [
        ("hot" if chance.random() < 0.5 else f"k{chance.randrange(300)}", chance.randrange(10**6)) for _ in range(800)
    ]


def flow(live: Live, distinct: bool, **options: Any) -> ms.Pipeline:
    aggregates = {**AGGREGATES, **({"d": "count(DISTINCT v)"} if distinct else {})}
    return live.source().key_by("k").aggregate("sums", parallelism=4, **aggregates, **options).sink("out", live.sink)


def expected(rows: Rows, distinct: bool) -> dict[str, dict[str, Any]]:
    by_key: dict[str, list[int]] = {}
    for key, value in rows:
        by_key.setdefault(key, []).append(value)
    return {
        key: {
            "n": len(values),
            "s": sum(values),
            "lo": min(values),
            "hi": max(values),
            "a": pytest.approx(statistics.fmean(values)),
            "sd": pytest.approx(statistics.pstdev(values)),
            **({"d": len(set(values))} if distinct else {}),
        }
        for key, values in by_key.items()
    }


def keyed(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {row["k"]: {name: value for name, value in row.items() if name != "k"} for row in rows}
    assert len(found) == len(rows), "a key comes once"
    return found


def parts(live: Live) -> list[int]:
    return [split.ways for split in live.run._runner.last.steps["sums"].splits]


class Checked:
    """Epochs of skewed rows, whose output and state are compared with what they must be."""

    def __init__(self, live: Live, distinct: bool, complete: bool = False) -> None:
        self.live, self.distinct, self.complete = live, distinct, complete
        self.rows: Rows = []
        self.number = 0

    def next_rows(self) -> Rows:
        rows = skewed(self.number)
        self.number += 1
        self.rows += rows
        return rows

    def epoch(self) -> None:
        rows = self.next_rows()
        self._check(rows, self.live.epoch(*rows))

    def change(self, change: Any) -> None:
        rows = self.next_rows()
        self._check(rows, self.live.change(change, *rows))

    def _check(self, rows: Rows, output: list[dict[str, Any]]) -> None:
        now = expected(self.rows, self.distinct)
        due = now if self.complete else {key: now[key] for key, _ in rows}
        assert keyed(output) == due
        assert keyed(self.live.run.read_result("sums").to_pylist()) == now


@pytest.mark.parametrize(
    "distinct", [pytest.param(False, marks=pytest.mark.long, id="sums"), pytest.param(True, id="distinct")]
)
def test_a_hot_key_in_parts_and_whole_again(live: Live, distinct: bool) -> None:
    live.start(flow(live, distinct))
    checked = Checked(live, distinct)
    for _ in range(3):
        checked.epoch()
    assert "0 → 1 keys in parts" in str(live.run.plan(ms.Rebalance("sums", split=True)))
    checked.change(ms.Rebalance("sums", split=True))
    assert parts(live) == [4]
    checked.epoch()
    before = live.run._runner.last.steps["sums"]
    checked.epoch()
    state = live.run.read_state("sums").to_pylist()
    assert len([row for row in state if row["k"] == "hot"]) > 1
    after = live.run._runner.last.steps["sums"]
    assert before.heat is not None
    assert after.heat is not None
    each = [after.heat.of(range_) - DECAY * before.heat.of(range_) for range_ in after.ranges]
    assert max(each) * len(each) / sum(each) < 1.5, "every partition had about as many rows"
    assert live.run.graph().step("sums").keys_in_parts == 1
    assert "keys in parts: 1" in str(live.run.graph())
    checked.change(ms.Rescale("sums", 3))
    checked.change(ms.Rebalance("sums", 2, split=True))
    assert parts(live) == [2]
    live.run.stop()
    live.start(flow(live, distinct))
    checked.epoch()
    assert parts(live) == [2]
    assert live.undo().phase is Phase.WAITING
    checked.epoch()
    assert parts(live) == [4], "as before the last change"
    checked.change(ms.Rebalance("sums", split=False))
    assert parts(live) == []
    checked.epoch()
    state = live.run.read_state("sums").to_pylist()
    assert len([row for row in state if row["k"] == "hot"]) == 1


def test_complete_results(live: Live) -> None:
    live.start(flow(live, True, output_mode="complete"))
    checked = Checked(live, True, complete=True)
    for _ in range(2):
        checked.epoch()
    checked.change(ms.Rebalance("sums", split=True))
    checked.epoch()
    assert live.epoch(("k1", 1)) != []
    checked.rows.append(("k1", 1))
    assert keyed(live.output(live.run.last_epoch)) == expected(checked.rows, True), "untouched keys come, too"


def test_what_is_behind_gets_each_result_once(live: Live) -> None:
    """Two steps with keys in parts, one behind the other: their results come in the same epoch."""
    sums = live.source().key_by("k").aggregate("sums", n=F.count("*"), parallelism=3)
    changes = sums.transform("size", lambda df: df.selectExpr("length(k) AS l", "n"))
    lengths = changes.key_by("l").aggregate("lengths", m=F.count("*"), most=F.max("n"), parallelism=3)
    live.start(ms.pipeline(lengths.sink("out", live.sink), sums.sink("first", ms.sinks.noop())))
    rows: Rows = []
    results: list[tuple[int, int]] = []
    for number in range(5):
        if number == 2:
            both = ms.ChangeSet([ms.Rebalance("sums", split=True), ms.Rebalance("lengths", split=True)])
            assert live.submit(both).phase is Phase.WAITING
        new = skewed(number)
        rows += new
        counts = {key: n["n"] for key, n in expected(rows, False).items()}
        given = {key for key, _ in new}
        results += [(len(key), counts[key]) for key in given]
        touched = {len(key) for key in given}
        output = {row["l"]: (row["m"], row["most"]) for row in live.epoch(*new)}
        assert output == {
            length: (len(of_length), max(of_length))
            for length in touched
            for of_length in [[n for other, n in results if other == length]]
        }
    steps = live.run._runner.last.steps
    assert steps["sums"].splits
    assert steps["lengths"].splits


def test_aggregates_are_replaced_while_keys_are_in_parts(live: Live) -> None:
    live.start(flow(live, False))
    checked = Checked(live, False)
    for _ in range(2):
        checked.epoch()
    checked.change(ms.Rebalance("sums", split=True))
    checked.epoch()
    with pytest.raises(ChangeError, match=r"(?s)CANNOT_SPLIT_KEYS.*order of rows.*split=False"):
        live.run.plan(ms.Replace("sums", aggregate={"f": F.first("v")}))
    rows = checked.next_rows()
    output = keyed(live.change(ms.Replace("sums", aggregate={**AGGREGATES, "d": "count(DISTINCT v)"}), *rows))
    assert output["hot"] == {**expected(checked.rows, False)["hot"], "d": expected(rows, True)["hot"]["d"]}
    more = checked.next_rows()
    output = keyed(live.epoch(*more))
    assert output["hot"] == {**expected(checked.rows, False)["hot"], "d": expected(rows + more, True)["hot"]["d"]}


def test_what_cannot_be_in_parts(live: Live) -> None:
    lasts = live.source().key_by("k").aggregate("sums", l=F.last("v"), parallelism=2).sink("out", live.sink)
    live.start(lasts)
    for number in range(3):
        live.epoch(*skewed(number))
    before = live.run._runner.last.steps["sums"].ranges
    with pytest.raises(ChangeError, match=r"(?s)CANNOT_SPLIT_KEYS.*last\(v\) depends on the order of rows"):
        live.run.plan(ms.Rebalance("sums", split=True))
    assert live.submit(ms.Rebalance("sums", split=True)).phase is Phase.REJECTED
    live.epoch(*skewed(3))
    assert live.run._runner.last.steps["sums"].ranges == before


def timed(live: Live) -> ms.Stream:
    """The same rows, with the value as time, in seconds."""
    live.events.directory.mkdir(parents=True)
    directory = str(live.events.directory)
    return ms.source(
        "events",
        lambda spark: (
            spark.readStream.schema("k string, v bigint")
            .option("maxFilesPerTrigger", 1)
            .parquet(directory)
            .selectExpr("k", "v", "timestamp_seconds(v) AS at")
        ),
        event_time="at",
    )


def test_results_of_windows_are_rows_of_keys_in_parts(live: Live) -> None:
    """They come when windows are over, in the second round of an epoch; the joined results in the one after it."""
    windows = timed(live).key_by("k").window(ms.tumbling("10 seconds")).aggregate("windows", n="count(*)")
    of_all = windows.sql("all", "SELECT 'all' AS g, n FROM input").key_by("g")
    live.start(of_all.aggregate("sums", n="count(*)", s="sum(n)", parallelism=3).sink("out", live.sink))
    for epoch in range(7):
        rows = [(f"k{key}", 10 * epoch + key % 10) for key in range(100) for _ in range(1 + key % 3)]
        output = live.change(ms.Rebalance("sums", split=True), *rows) if epoch == 4 else live.epoch(*rows)
        before = [{"g": "all", "n": 100 * epoch, "s": len(rows) * epoch}] if epoch else []
        assert output == before, f"epoch {epoch}"
    assert parts(live) == [3]


def test_windows_behind_keys_in_parts(live: Live) -> None:
    """A result of a key in parts is in time for a window behind it that is over in the same epoch."""
    sums = timed(live).key_by("k").aggregate("sums", n="count(*)", at="max(at)", parallelism=3)
    last = sums.key_by("k").window(ms.tumbling("10 seconds"), time="at").aggregate("last", n="max(n)")
    live.start(last.sink("out", live.sink))
    for epoch in range(6):
        rows = [("hot", 10 * epoch), *(("hot" if key % 2 else f"k{key}", 10 * epoch) for key in range(100))]
        output = live.change(ms.Rebalance("sums", split=True), *rows) if epoch == 3 else live.epoch(*rows)
        found = {row["k"]: row["n"] for row in output}
        assert found.get("hot") == (51 * epoch if epoch else None), f"epoch {epoch}"
        assert found.get("k0") == (epoch or None)
    assert parts(live) == [3]


def test_between_windows_keys_stay_whole(live: Live) -> None:
    windows = timed(live).key_by("k").window(ms.tumbling("10 seconds")).aggregate("windows", n="count(*)")
    sums = windows.sql("ends", "SELECT 'all' AS g, n, window_end AS at FROM input").key_by("g")
    ends = sums.aggregate("sums", n="sum(n)", at="max(at)", parallelism=2)
    flow = ends.key_by("g").window(ms.tumbling("20 seconds"), time="at").aggregate("last", n="max(n)")
    live.start(flow.sink("out", live.sink))
    for epoch in range(4):
        live.epoch(*((f"k{key}", 10 * epoch) for key in range(100)))
    with pytest.raises(ChangeError, match=r"(?s)CANNOT_SPLIT_KEYS.*between steps that go by event time"):
        live.run.plan(ms.Rebalance("sums", split=True))
