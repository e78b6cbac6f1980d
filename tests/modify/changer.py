"""A driver that works through a script of changes while epochs run. It may be killed at any moment and started again.

`python -m tests.modify.changer <play> <root> <seed> <length>`; what became of it is written to `<root>/result.json`. A
play is a module with a pipeline, changes to it and an oracle: `tests.modify.sequences` or `tests.eventtime.sequences`.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from midstream.engine.run import Run
from midstream.errors import ChangeError
from tests.modify.sequences import SPEC

Play = Any
"""One of the modules named above."""


def work_through(play: Play, run: Run, root: Path, specs: list[SPEC], chance: random.Random) -> None:
    """Hand all changes in, at random moments, with input coming until each has ended."""
    events = play.inbox(root)
    asked = len(run.history())
    deadline = time.monotonic() + 300
    while asked < len(specs) or any(entry.modification.is_under_way for entry in run.history()):
        assert time.monotonic() < deadline, run.history()
        assert run.exception is None, run.exception
        # Not before this driver has run an epoch: a change is tried on the rows of the last one.
        if asked < len(specs) and run.epochs() and chance.random() < 0.5:
            submit(play, run, specs[asked], root)
            asked += 1
        present = len(list(events.directory.glob("*.parquet")))
        if present - run.last_epoch < 4:
            events.add(*play.rows_of(present))
        time.sleep(chance.uniform(0, 0.15))
    run.process_available()


def submit(play: Play, run: Run, spec: SPEC, root: Path) -> None:
    if spec[0] == "undo":
        try:
            run.undo(wait=False, allow_state_loss=True)
        except ChangeError:
            # Nothing to undo: keep the numbers of changes and specs together.
            run.apply(play.change_of(("tune", 1), root), wait=False)
    else:
        run.apply(play.change_of(spec, root), wait=False, allow_state_loss=True)


def main(play: Play, root: Path, seed: int, length: int) -> None:
    from tests.recovery.workload import session

    spark = session("local[2]", {})
    specs = play.random_specs(seed, length)
    run = play.pipeline(root).start(spark, str(root / "chk"))
    work_through(play, run, root, specs, random.Random(time.time()))
    play.check(root, specs, run)
    run.stop()
    phases = [str(entry.modification.phase) for entry in run.history()]
    (root / "result.json").write_text(json.dumps({"epochs": run.last_epoch + 1, "phases": phases}))


if __name__ == "__main__":
    main(importlib.import_module(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
