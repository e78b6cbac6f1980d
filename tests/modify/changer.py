"""A driver that works through a script of changes while epochs run. It may be killed at any moment and started again.

`python -m tests.modify.changer <root> <seed> <length>`; what became of it is written to `<root>/result.json`.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from midstream.engine.run import Run
from midstream.errors import ChangeError
from tests.modify.sequences import SPEC, change_of, check, inbox, pipeline, random_specs, rows_of


def work_through(run: Run, root: Path, specs: list[SPEC], chance: random.Random) -> None:
    """Hand all changes in, at random moments, with input coming until each has ended."""
    events = inbox(root)
    asked = len(run.history())
    deadline = time.monotonic() + 300
    while asked < len(specs) or any(entry.modification.is_under_way for entry in run.history()):
        assert time.monotonic() < deadline, run.history()
        assert run.exception is None, run.exception
        # Not before this driver has run an epoch: a change is tried on the rows of the last one.
        if asked < len(specs) and run.epochs() and chance.random() < 0.5:
            submit(run, specs[asked], root)
            asked += 1
        present = len(list(events.directory.glob("*.parquet")))
        if present - run.last_epoch < 4:
            events.add(*rows_of(present))
        time.sleep(chance.uniform(0, 0.15))
    run.process_available()


def submit(run: Run, spec: SPEC, root: Path) -> None:
    if spec[0] == "undo":
        try:
            run.undo(wait=False, allow_state_loss=True)
        except ChangeError:
            # Nothing to undo: keep the numbers of changes and specs together.
            run.apply(change_of(("tune", 1), root), wait=False)
    else:
        run.apply(change_of(spec, root), wait=False, allow_state_loss=True)


def main(root: Path, seed: int, length: int) -> None:
    from tests.recovery.workload import session

    spark = session("local[2]", {})
    specs = random_specs(seed, length)
    run = pipeline(root).start(spark, str(root / "chk"))
    work_through(run, root, specs, random.Random(time.time()))
    result: list[dict[str, Any]] = run.read_result("sums").to_pylist()
    check(root, specs, run.history(), run.last_epoch + 1, result)
    run.stop()
    phases = [str(entry.modification.phase) for entry in run.history()]
    (root / "result.json").write_text(json.dumps({"epochs": run.last_epoch + 1, "phases": phases}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
