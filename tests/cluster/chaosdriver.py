"""The driver of the chaos run: feeds its pipeline and carries out orders. It may be killed at any moment.

`python -m tests.cluster.chaosdriver <json>`. Orders come as lines of `<root>/orders`, from when it is up; what it has
to tell goes to `<root>/told`, a line each.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import midstream as ms
from midstream.engine import warming
from midstream.engine.run import Run
from midstream.errors import MidstreamError, StoreError
from tests.cluster.chaoscoda import coda, live_drains
from tests.cluster.chaospipeline import STEPS, inbox, pipeline, rows_of
from tests.recovery.workload import session

AHEAD = 3
"""Files that wait for the stream."""


@dataclass(frozen=True)
class Script:
    """What a driver is told when it is started."""

    root: str
    master: str
    address: str
    checkpoint: str
    options: dict[str, str]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Stage:
    """A running pipeline, its input, and the way to those who watch it."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root = root
        self.run = run
        self._inbox = inbox(root)
        self._orders = (root / "orders").open()
        self._orders.seek(0, os.SEEK_END)

    def orders(self) -> Iterator[dict[str, Any]]:
        """Those that have come since."""
        while line := self._orders.readline():
            yield json.loads(line)

    def feed(self) -> None:
        present = len(list(self._inbox.directory.glob("*.parquet")))
        if present - self.run.last_epoch <= AHEAD:
            self._inbox.add(*rows_of(present))

    def carry_out(self, kind: str, pick: int) -> None:
        """Hand a change in, and say so; one that is refused at once is told, too."""
        try:
            changed = self._submit(kind, random.Random(pick))
        except MidstreamError as error:
            tell(self.root, "refused", kind=kind, error=error.error_class, message=str(error))
        else:
            tell(self.root, "submitted", kind=kind, id=changed)

    def _submit(self, kind: str, chance: random.Random) -> int | None:
        run, step = self.run, chance.choice(STEPS)
        executors = run.executors()
        match kind:
            case "migrate":
                to = chance.choice(executors).id if executors else "none"
                there = run.placement().get(step, [])
                some = [i for i in range(len(there)) if chance.random() < 0.5]
                return run.apply(ms.Migrate(step, to, some or None), wait=False).id
            case "drain":
                one = chance.choice(executors) if executors else None
                drain = ms.Drain(host=one.host if one else "none") if chance.random() < 0.5 else None
                return run.apply(drain or ms.Drain(one.id if one else "none"), wait=False).id
            case "undrain":
                drained = live_drains(run)
                return run.undo(drained[-1], wait=False).id if drained else None
            case "rescale":
                return run.apply(ms.Rescale(step, chance.randint(2, 6)), wait=False).id
            case "rebalance":
                return run.apply(ms.Rebalance(step), wait=False).id
            case "split":
                return run.apply(ms.Rebalance("sums", split=chance.random() < 0.7), wait=False).id
            case "undo":
                return run.undo(wait=False, allow_state_loss=True).id
        raise ValueError(kind)


def tell(root: Path, event: str, **more: Any) -> None:
    with (root / "told").open("a") as out:
        out.write(json.dumps({"event": event, "pid": os.getpid(), "at": time.time(), **more}) + "\n")


def main(script: Script) -> None:
    root = Path(script.root)
    warming.LITTLE_BYTES = 0  # there is not much of it, and it is to be brought all the same
    settings = {"spark.executor.memory": "512m", "spark.driver.host": script.address}
    spark = session(script.master, {**settings, "spark.driver.bindAddress": script.address})
    try:
        run = pipeline(root).start(spark, script.checkpoint, store_options=script.options)
        stage = Stage(root, run)
        tell(root, "up", last=run.last_epoch)
        while run.exception is None:
            for order in stage.orders():
                if order["kind"] == "coda":
                    tell(root, "ended", **coda(stage))
                    return
                stage.carry_out(order["kind"], order["pick"])
            stage.feed()
            time.sleep(0.05)
        raise run.exception
    except MidstreamError as error:
        tell(root, "failed", store=isinstance(error, StoreError), error=error.error_class, message=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main(Script(**json.loads(sys.argv[1])))
