"""What a rehearsal sends: rows of the right columns, made while it is planned; and who takes part in one beforehand."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import midstream as ms
from midstream.engine.compile import compile_pipeline
from midstream.engine.internals import partitions_of
from midstream.engine.membership import as_if_moved
from midstream.engine.rehearsal import known_rows, made_up_row, practice
from midstream.placement.assign import Instance
from midstream.state.hashspace import even_ranges
from midstream.task.keyed import HASH_COLUMN


def test_rows_are_made_up_by_the_plan_and_not_by_code_for_executors(spark: SparkSession) -> None:
    shipped = StructType.fromDDL(f"{HASH_COLUMN} bigint not null, k string not null, n int not null, at timestamp")
    columns = made_up_row(shipped, [10, 20])
    assert columns is not None
    rows = known_rows(spark, 4).select(*columns)
    assert rows._jdf.queryExecution().executedPlan().getClass().getSimpleName() == "LocalTableScanExec"
    assert [tuple(row) for row in rows.collect()] == [(10, "", 0, None), (20, "", 0, None)] * 2
    assert partitions_of(rows) == rows.rdd.getNumPartitions() == 2, "as many as there are cores"


def test_columns_nobody_can_make_up_a_value_for(spark: SparkSession) -> None:
    assert made_up_row(StructType.fromDDL(f"{HASH_COLUMN} bigint, at timestamp not null"), [1]) is None
    assert made_up_row(None, [1]) is None


def test_only_aggregates_that_are_all_ours_are_run_on_made_up_rows(spark: SparkSession) -> None:
    rows = ms.source("in", lambda s: s.readStream.format("rate").load())
    by_key = rows.key_by("value")
    longest = ms.fold("value", initial=0, add=max, type="bigint")
    steps = (
        by_key.aggregate("ours", n=F.count("*"), top=F.max("timestamp")),
        by_key.aggregate("folded", n=F.count("*"), longest=longest),
        by_key.aggregate("complete", n=F.count("*"), output_mode="complete"),
        by_key.stateful("theirs", lambda rows, state: (rows, state), state="n int", output="value bigint"),
    )
    flow = ms.pipeline(*(step.sink(f"out-{step.step.id}", ms.sinks.noop()) for step in steps))
    source = {"in": spark.createDataFrame([], "timestamp timestamp, value bigint")}
    shipped = StructType.fromDDL(f"{HASH_COLUMN} bigint not null, value bigint, timestamp timestamp")
    found = {id_: practice(keyed, shipped) for id_, keyed in compile_pipeline(flow, source, spark).keyed.items()}
    assert {id_ for id_, made in found.items() if made is not None} == {"ours"}
    assert found["ours"] is not None
    assert found["ours"].input.names == shipped.names
    assert found["ours"].keys == ("value",)


def test_an_executor_without_instances_gets_the_first_of_each_step_as_if_it_moved() -> None:
    first, second = even_ranges(2)
    here, there = Instance(first, "0", "0"), Instance(second, "1", "1")
    moving, after = as_if_moved({"a": (here, there), "b": (there, here)}, "7")
    assert moving == {"7": {"a": (first,), "b": (second,)}}
    assert {step: [i.executor for i in instances] for step, instances in after.items()} == {
        "a": ["7", "1"],
        "b": ["7", "0"],
    }
