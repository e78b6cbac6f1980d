"""SQL steps of two versions planned at once, as a trial and the stream do: each reads its own input."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from midstream.engine.compile import apply_stateless
from midstream.graph.steps import SqlStep, Step


def test_each_thread_reads_its_own_input(spark: SparkSession) -> None:
    step = SqlStep("sql", Step("input"), "SELECT * FROM input")

    def plan_many(column: str) -> set[str]:
        frame = spark.range(1).withColumnRenamed("id", column)
        return {name for _ in range(60) for name in apply_stateless(step, [frame], spark).columns}

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(plan_many, ["a", "b", "c", "d"]))
    assert found == [{"a"}, {"b"}, {"c"}, {"d"}]
