"""The compiled class in the package is what its source says."""

from __future__ import annotations

import zipfile

from pyspark.sql import SparkSession

from midstream.engine.cluster import Cluster
from scripts.build_jvm import JAR, compiled


def test_the_jar_holds_what_the_source_says(spark: SparkSession) -> None:
    with zipfile.ZipFile(JAR) as jar:
        found = {name: jar.read(name) for name in jar.namelist()}
    assert found == compiled(spark.sparkContext._jvm), "run `make jvm`"


def test_nothing_is_placed_in_one_process(spark: SparkSession) -> None:
    cluster = Cluster(spark)
    assert cluster.missing is not None
    assert cluster.executors() == []
