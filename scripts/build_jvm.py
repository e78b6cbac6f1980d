"""Compile the one JVM class of midstream into the jar that is part of the package.

The compiler is the one Spark itself brings for its generated code (Janino), so no JDK is needed, and the same PySpark
makes the same bytes: a test compares them with the jar.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[1] / "src" / "midstream" / "jvm"
JAR = FOLDER / "midstream-placement.jar"


def compiled(jvm: Any) -> dict[str, bytes]:
    """The class files of all sources, by their path in a jar."""
    found: dict[str, bytes] = {}
    for source in sorted(FOLDER.glob("*.java")):
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source.read_text())
        for name, code in compiler.getBytecodes().items():
            found[f"{name.replace('.', '/')}.class"] = bytes(code)
    return found


def main() -> None:
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    with zipfile.ZipFile(JAR, "w") as jar:
        for path, code in compiled(spark.sparkContext._jvm).items():
            jar.writestr(zipfile.ZipInfo(path), code)  # without the time, which would make each build another file
    spark.stop()
    print(f"{JAR.name}: {JAR.stat().st_size} bytes")


if __name__ == "__main__":
    main()
