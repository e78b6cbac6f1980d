"""A driver program that is the example of docs/cluster.md, on the cluster and the store it is given.

`python -m tests.cluster.page <directory> <master> <checkpoint> <store options as json>`
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from midstream.errors import MidstreamError
from tests.recovery.processes import wait_until
from tests.test_docs import examples, orders_coming_in, write_orders


def main(root: Path, master: str, checkpoint: str, options: str) -> None:
    here = {
        "spark://master:7077": master,
        "/var/cache/midstream": str(root / "cache"),
        "s3://bucket/orders": checkpoint,
        '{"endpoint": "http://store:8333"}': options,
    }
    told: list[Any] = []
    names: dict[str, Any] = {"print": lambda *what: told.extend(what)}
    result: dict[str, Any] = {}
    start, look, move = (adapted(block, here) for block in examples("docs/cluster.md", root))
    write_orders(root, "first", [("ann", 5.0), ("bob", 7.5), ("ann", 2.0)])
    try:
        exec(start, names)
        run = names["run"]
        wait_until(lambda: len(run.executors()) == 2, 60, "both executors")
        with orders_coming_in(root):
            wait_until(lambda: len(set(run.placement()["totals"])) == 2, 60, "one that came late has its share")
            exec(look, names)
            exec(move, names)
        result["phases"] = [str(entry.modification.phase) for entry in run.history()]
        result["executors"] = [executor.id for executor in told[0]]
        result["drained"], result["placement"] = told[-1], run.placement()
        run.process_available()
        result["totals"] = {row["customer"]: row["n"] for row in run.read_result("totals").to_pylist()}
        result["orders"] = orders_of(root)
        run.stop()
    except MidstreamError as error:
        result["error"] = [error.error_class, str(error)]
    (root / "result.json").write_text(json.dumps(result))


def adapted(block: str, here: dict[str, str]) -> str:
    """An example with names of this machine in place of those that stand for a user's."""
    for theirs, ours in here.items():
        block = block.replace(theirs, ours)
    return block


def orders_of(root: Path) -> Counter[str]:
    lines = [line for file in (root / "in").glob("*.json") for line in file.read_text().splitlines()]
    return Counter(json.loads(line)["customer"] for line in lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
