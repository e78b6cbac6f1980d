"""The driver program that crash tests start and kill: the pipeline of `orders.py`, run until its input is used up.

`python -m tests.recovery.workload '<json>'`; what became of it is written to the file `result`.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from midstream.engine.faults import die, set_fault
from midstream.errors import MidstreamError
from tests.recovery.orders import Shop


@dataclass(frozen=True)
class Orders:
    """What a driver is told to do."""

    root: str
    dsn: str
    schema: str
    result: str
    url: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    master: str = "local[2]"
    settings: dict[str, str] = field(default_factory=dict)
    die_at: str | None = None
    """A point of the commit, and how often it is passed before the process ends there: `committed:2`."""
    forever: bool = False
    """Go on when the input is used up: more may come."""

    @classmethod
    def of(cls, shop: Shop, result: str = "result", **options: Any) -> Orders:
        place = {"url": shop.url, "options": dict(shop.options)}
        return cls(str(shop.root), shop.dsn, shop.schema, str(shop.root / result), **place, **options)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def session(master: str, settings: dict[str, str]) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .appName("midstream-recovery")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        # The oracle wants to know the offsets of every epoch.
        .config("spark.sql.streaming.minBatchesToRetain", "100000")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(orders: Orders) -> None:
    shop = Shop(Path(orders.root), orders.dsn, orders.schema, orders.url, orders.options)
    spark = session(orders.master, orders.settings)
    if orders.die_at:
        point, _, passes = orders.die_at.rpartition(":")
        left = iter(range(int(passes)))
        set_fault(point, lambda: die() if next(left, None) is None else None)
    result: dict[str, object] = {"pid": os.getpid()}
    try:
        # Manifests of a remote checkpoint are the only record of offsets, which the oracle wants to know.
        run = shop.start(spark, retain_epochs=5 if shop.url is None else 1000)
        if orders.forever:
            run.await_termination()
        run.process_available()
        run.stop()
        result["ended"] = "finished"
    except MidstreamError as error:
        result |= {"ended": "failed", "class": error.error_class, "message": error.message, "hint": error.hint}
    Path(orders.result).write_text(json.dumps(result))


if __name__ == "__main__":
    main(Orders(**json.loads(sys.argv[1])))
