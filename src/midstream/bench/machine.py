"""What a result was measured on: sizes and versions, nothing that names the machine."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

import pyspark
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Machine:
    cores: int
    memory_bytes: int
    system: str
    python: str
    pyspark: str
    java: str


def this_machine(spark: SparkSession) -> Machine:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return Machine(
        cores=available_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        pyspark=pyspark.__version__,
        java=str(jvm.java.lang.System.getProperty("java.version")),
    )


def available_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
