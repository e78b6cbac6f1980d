"""Sources: what `spark.readStream` reads, each read once however often a pipeline is started."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import GraphError
from tests.engine.harness import canonical, run_available
from tests.engine.logsource import LogSource

WRITERS: dict[str, Callable[[Path, list[tuple[str, int]]], object]] = {
    "json": lambda path, rows: path.write_text("\n".join(json.dumps({"k": k, "v": v}) for k, v in rows)),
    "csv": lambda path, rows: path.write_text("\n".join(f"{k},{v}" for k, v in rows)),
    "text": lambda path, rows: path.write_text("\n".join(f"{k} {v}" for k, v in rows)),
}


def test_files_of_several_formats(spark: SparkSession, tmp_path: Path) -> None:
    sinks = {format_: ms.sinks.memory() for format_ in WRITERS}

    def load(format_: str) -> Callable[[SparkSession], DataFrame]:
        def read(spark: SparkSession) -> DataFrame:
            reader = spark.readStream.format(format_).option("maxFilesPerTrigger", 2)
            if format_ != "text":
                reader = reader.schema("k string, v int")
            return reader.load(str(tmp_path / format_ / "*"))

        return read

    flow = ms.pipeline(*(ms.source(f, load(f)).sink(f"{f}-out", sink) for f, sink in sinks.items()))
    for day in ("mon", "tue"):
        for format_, write in WRITERS.items():
            directory = tmp_path / format_ / day
            directory.mkdir(parents=True)
            for number in range(3):
                write(directory / f"{number}", [(day, number), (day, number + 10)])
        run = run_available(flow, spark, tmp_path / "chk")
    assert run.last_epoch == 3
    expected = sorted((day, number + more) for day in ("mon", "tue") for number in range(3) for more in (0, 10))
    for format_ in ("json", "csv"):
        assert sorted((row["k"], row["v"]) for row in sinks[format_].to_pylist()) == expected
    assert sorted(row["value"] for row in sinks["text"].to_pylist()) == sorted(f"{k} {v}" for k, v in expected)


def test_partitioned_files_with_their_metadata(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(6).selectExpr("id", "id % 2 AS part").write.partitionBy("part").parquet(str(tmp_path / "in"))
    sink = ms.sinks.memory()
    source = ms.source("files", lambda s: s.readStream.schema("id bigint, part int").parquet(str(tmp_path / "in")))
    named = source.transform("named", lambda df: df.select("id", "part", F.input_file_name().alias("file")))
    run_available(named.sink("out", sink), spark, tmp_path / "chk")
    rows = sink.to_pylist()
    assert sorted((row["id"], row["part"]) for row in rows) == [(n, n % 2) for n in range(6)]


def test_rate(spark: SparkSession, tmp_path: Path) -> None:
    source = ms.source("rate", lambda s: s.readStream.format("rate").option("rowsPerSecond", 50).load())
    parity = source.transform("parity", lambda df: df.selectExpr("value % 2 AS odd", "value"))
    counted = parity.key_by("odd").aggregate("counts", n=F.count("*"), low=F.min("value"), high=F.max("value"))
    flow = counted.sink("out", ms.sinks.noop())
    values = -1
    for _ in range(2):
        run = flow.start(spark, str(tmp_path / "chk"))
        _wait_for(run, lambda run=run: any(report.rows for report in run.epochs()))
        run.stop()
        state = {row["odd"]: row for row in run.read_state("counts").to_pylist()}
        # Each number from 0 on came once: as many as the largest tells.
        assert sum(row["count(1)"] for row in state.values()) == max(row["max(value)"] for row in state.values()) + 1
        assert {odd: row["min(value)"] for odd, row in state.items()} == {0: 0, 1: 1}
        assert state[0]["max(value)"] > values
        values = state[0]["max(value)"]


def test_rate_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    def load(spark: SparkSession) -> DataFrame:
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()

    keys = ms.source("rate", load).transform("keys", lambda df: df.selectExpr("value % 7 AS k", "value"))
    flow = keys.key_by("k").aggregate("counts", n=F.count("*"), s=F.sum("value")).sink("out", ms.sinks.noop())
    done = 0
    for _ in range(2):
        run = flow.start(spark, str(tmp_path / "chk"))
        _wait_for(run, lambda run=run: len(run.epochs()) >= 2)
        run.stop()
        assert run.last_epoch > done
        done = run.last_epoch
        rows = 100 * (done + 1)
        batch = spark.range(rows).selectExpr("id % 7 AS k", "id").groupBy("k")
        found = run.read_state("counts").rename_columns(["k", "n", "s"])
        assert canonical(found) == canonical(batch.agg(F.count("*").alias("n"), F.sum("id").alias("s")))


def test_a_python_data_source(spark: SparkSession, tmp_path: Path) -> None:
    spark.dataSource.register(LogSource)
    log, sink = tmp_path / "log", ms.sinks.memory()
    log.touch()
    source = ms.source("log", lambda s: s.readStream.format("log").option("path", str(log)).load())
    words = source.transform("words", lambda df: df.select("number", F.explode(F.split("line", " ")).alias("word")))
    flow = ms.pipeline(
        source.sink("raw", sink),
        words.key_by("word").aggregate("counts", n=F.count("*")).sink("out", ms.sinks.noop()),
    )
    texts = [["to be or", "not to be"], ["that is"], ["the question", "to be"]]
    written: list[str] = []
    for lines in texts:
        run = flow.start(spark, str(tmp_path / "chk"))
        for line in lines:
            with log.open("a") as out:
                out.write(line + "\n")
            written.append(line)
            run.process_available()
        run.stop()
        assert [row["line"] for row in sorted(sink.to_pylist(), key=lambda row: row["number"])] == written
    counts = {row["word"]: row["count(1)"] for row in run.read_state("counts").to_pylist()}
    all_words = " ".join(written).split(" ")
    assert counts == {word: all_words.count(word) for word in all_words}


@pytest.mark.parametrize(
    ("load", "complaint"),
    [
        (lambda s: s.range(3), "(?s)NOT_A_STREAM.*'numbers'"),
        (lambda s: 3, "(?s)NOT_A_STREAM.*'numbers'"),
        (lambda s: s.readStream.format("no-such-format").load(), "(?s)'numbers'.*no-such-format"),
    ],
    ids=["batch", "not a frame", "unknown format"],
)
def test_what_is_not_a_source(
    spark: SparkSession, tmp_path: Path, load: Callable[[SparkSession], DataFrame], complaint: str
) -> None:
    with pytest.raises(GraphError, match=complaint):
        ms.source("numbers", load).sink("out", ms.sinks.noop()).start(spark, str(tmp_path / "chk"))


def _wait_for(run: Run, condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert run.exception is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
