"""Random sequences of changes while windows are open, and the oracle that knows from which epoch each plan held."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import midstream as ms
from midstream.engine.run import Run
from tests.engine.harness import Inbox, files_of_epochs
from tests.eventtime.oracle import START, Row, Sessions, at
from tests.modify.sequences import SPEC, evil, live_specs, written

SCHEMA = "k string, at timestamp, v bigint"
DELAY, GAP = 5, 3


@dataclass(frozen=True)
class Model:
    """What the pipeline does with rows, as far as results show it."""

    plus: int = 0
    size: int = 20
    slide: int = 20


def source(root: Path) -> ms.Stream:
    directory = str(root / "in")
    Path(directory).mkdir(exist_ok=True)
    return ms.source(
        "events",
        lambda spark: spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(directory),
        event_time="at",
        delay=f"{DELAY} seconds",
    )


def adding(plus: int) -> str:
    return f"SELECT k, at, v + {plus} AS v FROM input"


def pipeline(root: Path) -> ms.Pipeline:
    """Windows and sessions of the same rows."""
    keyed = source(root).sql("clean", adding(0)).key_by("k")
    aggregates: dict[str, Any] = {"n": "count(*)", "total": "sum(v)"}
    windows = keyed.window(ms.tumbling("20 seconds")).aggregate("windows", parallelism=2, **aggregates)
    sessions = keyed.window(ms.session(f"{GAP} seconds")).aggregate("sessions", parallelism=2, **aggregates)
    return ms.pipeline(
        windows.sink("out", ms.sinks.parquet(root / "out")),
        sessions.sink("visits", ms.sinks.parquet(root / "visits")),
    )


class _Events(Inbox):
    def add(self, *rows: Row) -> None:
        super().add(*((key, at(time), value) for key, time, value in rows))  # type: ignore[arg-type]


def inbox(root: Path) -> Inbox:
    return _Events(root / "in", SCHEMA)


def rows_of(file: int) -> list[Row]:
    """Out of order, also over the end of the file, but no row later than the delay."""
    chance = random.Random(file)
    return [(f"k{chance.randrange(12)}", 8 * file + chance.randrange(13), chance.randrange(100)) for _ in range(25)]


def random_specs(seed: int, length: int) -> list[SPEC]:
    chance = random.Random(seed)
    kinds = ["plus", "windows", "windows", "rescale", "rescale", "rebalance", "undo", "undo", "evil", "bad", "tune"]
    specs: list[SPEC] = []
    for number in range(length):
        kind = chance.choice(kinds)
        match kind:
            case "plus":
                specs.append((kind, chance.randrange(1, 9)))
            case "windows":
                specs.append((kind, *chance.choice([(20, 20), (10, 10), (30, 10), (40, 40)])))
            case "rescale":
                specs.append((kind, chance.choice(["windows", "sessions"]), chance.randrange(1, 5)))
            case "rebalance":
                specs.append((kind, chance.choice(["windows", "sessions"])))
            case _:
                specs.append((kind, number))
    return specs


def change_of(spec: SPEC, root: Path) -> Any:
    """The change a spec stands for; None for an undo."""
    match spec:
        case ("plus", plus):
            return ms.Replace("clean", sql=adding(plus))
        case ("windows", size, slide):
            return ms.Replace("windows", window=ms.sliding(f"{size} seconds", f"{slide} seconds"))
        case ("rescale", step, partitions):
            return ms.Rescale(step, partitions)
        case ("rebalance", step):
            return ms.Rebalance(step)
        case ("evil", _):
            return ms.Replace("clean", evil(SCHEMA))
        case ("bad", _):
            return ms.Replace("clean", sql="SELECT nothing FROM input")
        case ("tune", number):
            return ms.Tune(arrow_batch_rows=10 + number)
        case _:
            return None


def applied_to(model: Model, spec: SPEC) -> Model:
    match spec:
        case ("plus", plus):
            return replace(model, plus=plus)
        case ("windows", size, slide):
            return replace(model, size=size, slide=slide)
        case _:
            return model


def check(root: Path, specs: list[SPEC], run: Run) -> None:
    """Compare every epoch of both sinks, and the windows that are open, with what they must be."""
    windows: dict[tuple[str, int, int], list[int]] = {}
    sessions = Sessions(GAP, DELAY)
    watermark = -(10**9)
    epochs = run.last_epoch + 1
    planned = files_of_epochs(root / "chk", epochs)
    assert planned[-1].stop == len(list(inbox(root).directory.glob("*.parquet"))), "not all input was read"
    for epoch, live in enumerate(live_specs(specs, run.history(), epochs)):
        model = reduce(applied_to, live, Model())
        arrived = [row for file in planned[epoch] for row in rows_of(file)]
        rows = [(key, time, value + model.plus) for key, time, value in arrived if time is not None]
        for key, time, value in rows:
            first = time // model.slide * model.slide
            for start in range(first, first - model.size, -model.slide):
                if start + model.size > watermark:
                    counted = windows.setdefault((key, start, start + model.size), [0, 0])
                    counted[0] += 1
                    counted[1] += value
        watermark = max(watermark, max(time for _, time, _ in rows) - DELAY)
        over = {window: counted for window, counted in windows.items() if window[2] <= watermark}
        windows = {window: counted for window, counted in windows.items() if window not in over}
        expected = sorted((*window, *counted) for window, counted in over.items())
        assert _given(root / "out", epoch) == expected, f"windows of epoch {epoch}"
        visits = [(key, start, *found) for (key, start), found in sessions.epoch(rows).items()]
        found = [(key, start, n, total) for key, start, _, n, total in _given(root / "visits", epoch)]
        assert found == sorted(visits), f"sessions of epoch {epoch}"
    open_now = {
        (row["k"], _seconds(row["window_start"]), _seconds(row["window_end"])): [row["n"], row["total"]]
        for row in run.read_result("windows").to_pylist()
    }
    assert open_now == windows


def _given(directory: Path, epoch: int) -> list[tuple[Any, ...]]:
    return sorted(
        (row["k"], _seconds(row["window_start"]), _seconds(row["window_end"]), row["n"], row["total"])
        for row in written(directory, epoch)
    )


def _seconds(moment: Any) -> int:
    return int((moment - START).total_seconds())
