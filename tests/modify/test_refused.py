"""Changes that are refused or rolled back: the error names function, file and line, and nothing else happens."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.errors import ChangeError, MidstreamError
from tests.modify.live import Live
from tests.modify.test_apply import count_up, counting, sums

HERE = __file__


def raises(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    raise ValueError("no good")  # raises here


def wrong_columns(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    return rows.rename_columns(["x", "y"]), state


def imports_what_is_not_there(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    import a_package_nobody_has  # type: ignore[import-not-found]  # imports here

    return a_package_nobody_has.count(rows, state)  # type: ignore[no-any-return]


def hangs(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    time.sleep(600)
    return count_up(rows, state)


LOCK = threading.Lock()


def holding_a_lock() -> Any:
    lock = threading.Lock()

    def locked(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
        with lock:
            return count_up(rows, state)

    return locked


def line_of(comment: str) -> int:
    with open(HERE) as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {comment}"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (ms.Replace("count", raises), rf"DRY_RUN_FAILED.*raises.*test_refused\.py:{line_of('raises here')}.*no good"),
        (ms.Replace("count", wrong_columns), r"DRY_RUN_FAILED.*wrong_columns"),
        (
            ms.Replace("count", imports_what_is_not_there),
            rf"DRY_RUN_FAILED.*test_refused\.py:{line_of('imports here')}.*a_package_nobody_has",
        ),
        (ms.Replace("cont", count_up), r"UNKNOWN_STEP.*did you mean 'count'"),
        (ms.Insert("x", sql="SELECT nothing FROM input", after="events"), r"STEP_NOT_VALID.*nothing"),
        (ms.Insert("x", sql="SELEKT", after="events"), r"STEP_NOT_VALID"),
        (ms.Insert("x", lambda df: 7, after="events"), r"STEP_NOT_VALID.*int"),
        (ms.Insert("x", lambda df: df.drop("k"), after="events"), r"UNKNOWN_KEY_COLUMN.*'k'"),
        (ms.Rescale("count", 5000), r"BAD_RANGES"),
    ],
    ids=str,
)
def test_a_change_that_cannot_work_is_refused(live: Live, change: Any, expected: str) -> None:
    live.start(counting(live), ("a", 1))
    graph = live.run.graph()
    with pytest.raises(MidstreamError, match=f"(?s){expected}"):
        live.run.plan(change)
    with pytest.raises(ChangeError, match=f"(?s)CHANGE_REJECTED.*{expected}"):
        live.run.apply(change, timeout=60)
    assert live.run.graph() == graph
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 2}]
    assert live.run.epochs()[-1].plan == 1


def test_a_function_that_cannot_travel_is_refused_at_once(live: Live) -> None:
    live.start(counting(live), ("a", 1))
    with pytest.raises(ChangeError, match=r"(?s)FUNCTION_NOT_PORTABLE.*holding_a_lock.*test_refused\.py:\d+.*lock"):
        live.run.apply(ms.Replace("count", holding_a_lock()))
    assert live.run.history() == []
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 2}]


def test_a_function_that_hangs_is_refused_after_its_time_limit(live: Live) -> None:
    live.start(counting(live), ("a", 1))
    with pytest.raises(ChangeError, match=r"(?s)TIME_LIMIT.*dry run did not end within 2 s.*'count'"):
        live.run.apply(ms.Replace("count", hangs), time_limit=2, timeout=60)
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 2}]


def raises_at_666(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    if 666 in rows["v"].to_pylist():
        raise ValueError("evil number")  # raises at 666
    return count_up(rows, state)


def hangs_at_666(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    if 666 in rows["v"].to_pylist():
        time.sleep(600)
    return count_up(rows, state)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raises_at_666, rf"raises_at_666.*test_refused\.py:{line_of('raises at 666')}.*evil number"),
        (hangs_at_666, r"TIME_LIMIT.*Epoch 1, the first after the change, did not end within 3 s"),
    ],
)
def test_a_change_whose_first_epoch_fails_is_rolled_back(live: Live, function: Any, expected: str) -> None:
    """The dry run went well on the rows of the last epoch; the next one has others."""
    run = live.start(counting(live), ("a", 1))
    waiting = live.submit(ms.Replace("count", function), time_limit=3)
    assert waiting.phase is Phase.WAITING
    assert live.epoch(("a", 666)) == [{"k": "a", "n": 2}]
    ended = run.modification(waiting.id)
    assert ended.phase is Phase.ROLLED_BACK
    assert re.search(f"(?s){expected}", str(ended.reason)), ended.reason
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 3}]
    assert run.status == "running"
    assert {epoch.plan for epoch in run.epochs()} == {1}


def fails_when_run(df: DataFrame) -> DataFrame:
    return df.selectExpr("k", "CASE WHEN v = 666 THEN raise_error('evil number') ELSE v END AS v")


def test_a_transform_whose_first_epoch_fails_is_rolled_back(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    waiting = live.submit(ms.Replace("clean", fails_when_run))
    assert live.epoch(("a", 666)) == [{"k": "a", "n": 2, "s": 667}]
    assert live.run.modification(waiting.id).phase is Phase.ROLLED_BACK
    assert "evil number" in str(live.run.modification(waiting.id).reason)


def test_a_later_failure_is_not_blamed_on_the_change(live: Live) -> None:
    live.start(counting(live), ("a", 1))
    live.change(ms.Replace("count", raises_at_666), ("a", 2))
    live.events.add(("a", 666))
    with pytest.raises(MidstreamError, match="evil number"):
        live.run.process_available()
    assert live.run.modification(1).phase is Phase.APPLIED


def refuses(df: DataFrame, epoch: int) -> None:
    raise OSError("the service is down")


def test_a_new_sink_that_cannot_be_written_goes_again(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    assert live.change(ms.Insert("calls", sink=ms.sinks.for_each_epoch(refuses), after="sums"), ("a", 1))
    live.settled(live.run.modification(2))
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 3, "s": 3}]
    assert live.run.modification(1).phase is Phase.UNDONE
    assert "the service is down" in str(live.run.modification(1).reason)
    assert [step.id for step in live.run.graph().steps] == ["events", "clean", "sums", "out"]
    assert live.epoch(("a", 1)) == [{"k": "a", "n": 4, "s": 4}]


@pytest.mark.parametrize("kind", ["parquet", "delta", "memory"])
def test_a_sink_in_the_place_of_another_cannot_be_written(live: Live, tmp_path: Path, kind: str) -> None:
    """The one before gets the rows, from the first epoch of the change on: none is lost and none comes twice."""
    place = str(tmp_path / "out")
    sink = {"parquet": ms.sinks.parquet, "delta": ms.sinks.delta}.get(kind, lambda _: live.sink)(place)
    start = live.source().key_by("k").aggregate("sums", s=F.sum("v")).sink("out", sink)
    live.start(start, ("a", 1))
    live.change(ms.Replace("out", sink=ms.sinks.for_each_epoch(refuses)), ("a", 10))
    # As a driver does that has died just then: the epoch is finished once more.
    runner = live.run._runner
    runner.finalise(runner.last, runner.versions.current)
    live.settled(live.run.modification(2))
    live.epoch(("a", 100))
    assert live.run.modification(1).phase is Phase.UNDONE
    assert "the service is down" in str(live.run.modification(1).reason)
    live.epoch(("a", 1000))
    rows = live.sink.to_pylist() if kind == "memory" else _read(live.spark, kind, place)
    assert sorted(row["s"] for row in rows) == [1, 11, 111, 1111]


def _read(spark: SparkSession, kind: str, place: str) -> list[dict[str, Any]]:
    if kind == "parquet":
        return [row.asDict() for row in spark.read.parquet(place).collect()]
    from deltalake import DeltaTable

    rows: list[dict[str, Any]] = DeltaTable(place).to_pyarrow_table().to_pylist()
    return rows


def test_neither_sink_can_be_written(live: Live, tmp_path: Path) -> None:
    """The run stops, as with any sink that is down, and a later one finishes the epoch."""
    live.start(
        live.source().key_by("k").aggregate("sums", s=F.sum("v")).sink("out", ms.sinks.parquet(tmp_path / "out"))
    )
    live.epoch(("a", 1))
    assert live.submit(ms.Replace("out", sink=ms.sinks.for_each_epoch(refuses))).phase is Phase.WAITING
    (tmp_path / ".out.midstream" / "owner.json").write_text("{}")
    live.events.add(("a", 10))
    with pytest.raises(MidstreamError, match="the service is down"):
        live.run.process_available()


def test_nothing_to_undo(live: Live) -> None:
    live.start(sums(live), ("a", 1))
    with pytest.raises(ChangeError, match="NOTHING_TO_UNDO"):
        live.run.undo()
    with pytest.raises(ChangeError, match="UNKNOWN_MODIFICATION"):
        live.run.cancel(5)
