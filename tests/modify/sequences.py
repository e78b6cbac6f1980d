"""Random sequences of changes on a live pipeline, and the oracle that knows from which epoch each plan held.

The oracle is told by the history alone which change was applied in which epoch, and computes from the input files what
state and output must then be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

import midstream as ms
from midstream.coordinator.modification import Phase
from midstream.engine.history import HistoryEntry
from midstream.engine.run import Run
from tests.engine.harness import Inbox, files_of_epochs

KEYS = 40
ROWS, HOT = 100, 0.5
"""Of an epoch, and the part of them that one key has: enough to be kept in parts."""
SPEC = tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    """What the pipeline does with rows, as far as results show it."""

    factor: int = 1
    plus: int = 0
    odd_only: bool = False
    with_max: bool = False
    raw: bool = False

    def rows(self, rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
        cleaned = [(k, v * self.factor + self.plus) for k, v in rows]
        return [(k, v) for k, v in cleaned if v % 2] if self.odd_only else cleaned


def linear(factor: int, plus: int) -> Any:
    def clean(df: DataFrame) -> DataFrame:
        return df.selectExpr("k", f"v * {factor} + {plus} AS v")

    return clean


def evil(schema: str = "k string, v bigint") -> Any:
    """Passes the dry run, and never an epoch. (One that passes once would pass its first epoch when a driver has died
    and its successor has no rows to try it on: then it is part of the pipeline, and stops it.)"""

    def clean(df: DataFrame) -> DataFrame:
        def run(batches: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            assert context is not None
            if not str(context.getLocalProperty("spark.jobGroup.id")).startswith("midstream-dry-run"):
                raise ValueError("evil")
            yield from batches

        return df.mapInArrow(run, schema)

    return clean


def pipeline(root: Path) -> ms.Pipeline:
    stream = inbox(root).source().transform("clean", linear(1, 0))
    sums = stream.key_by("k").aggregate("sums", n="count(*)", s="sum(v)", parallelism=2)
    return sums.sink("out", ms.sinks.parquet(root / "out"))


def inbox(root: Path) -> Inbox:
    return Inbox(root / "in", "k string, v bigint")


def rows_of(file: int) -> list[tuple[str, int]]:
    chance = random.Random(file)
    keys = [0 if chance.random() < HOT else chance.randrange(KEYS) for _ in range(ROWS)]
    return [(f"k{key}", chance.randrange(1000)) for key in keys]


def random_specs(seed: int, length: int) -> list[SPEC]:
    """Changes that nearly always make sense, in an order that nearly never does."""
    chance = random.Random(seed)
    kinds = ["linear", "linear", "rescale", "rescale", "odd", "max", "raw", "undo", "undo", "evil", "bad", "tune"]
    kinds += ["split", "split"]
    specs: list[SPEC] = []
    for number in range(length):
        kind = chance.choice(kinds)
        match kind:
            case "linear":
                specs.append((kind, chance.randrange(1, 5), chance.randrange(-3, 4)))
            case "rescale":
                specs.append((kind, chance.randrange(1, 6)))
            case "odd" | "max" | "raw" | "split":
                specs.append((kind, chance.random() < 0.5))
            case _:
                specs.append((kind, number))
    return specs


def change_of(spec: SPEC, root: Path) -> Any:
    """The change a spec stands for; None for an undo."""
    match spec:
        case ("linear", factor, plus):
            return ms.Replace("clean", linear(factor, plus))
        case ("rescale", partitions):
            return ms.Rescale("sums", partitions)
        case ("split", on):
            return ms.Rebalance("sums", split=on)
        case ("odd", True):
            return ms.Insert("odd", sql="SELECT * FROM input WHERE v % 2 != 0", before="sums")
        case ("odd", False):
            return ms.Remove("odd")
        case ("max", True):
            return ms.Replace("sums", aggregate={"n": "count(*)", "s": "sum(v)", "m": "max(v)"})
        case ("max", False):
            return ms.Replace("sums", aggregate={"n": "count(*)", "s": "sum(v)"})
        case ("raw", True):
            return ms.Insert("raw", sink=ms.sinks.parquet(root / "raw"), after="clean")
        case ("raw", False):
            return ms.Remove("raw")
        case ("evil", _):
            return ms.Replace("clean", evil())
        case ("bad", _):
            return ms.Replace("clean", sql="SELECT nothing FROM input")
        case ("tune", number):
            return ms.Tune(arrow_batch_rows=10 + number)
        case _:
            return None


def applied_to(model: Model, spec: SPEC) -> Model:
    match spec:
        case ("linear", factor, plus):
            return replace(model, factor=factor, plus=plus)
        case ("odd", on):
            return replace(model, odd_only=on)
        case ("max", on):
            return replace(model, with_max=on)
        case ("raw", on):
            return replace(model, raw=on)
        case _:
            return model


def live_specs(specs: list[SPEC], history: list[HistoryEntry], epochs: int) -> Iterator[list[SPEC]]:
    """The changes the pipeline had in each epoch, told by the history alone."""
    at: dict[int, list[int]] = {}
    for entry in history:
        modification = entry.modification
        if modification.phase in (Phase.APPLIED, Phase.UNDONE):
            assert modification.epoch is not None
            at.setdefault(modification.epoch, []).append(modification.id)
    undoes = {entry.modification.id: entry.modification.undoes for entry in history}
    live: list[int] = []
    for epoch in range(epochs):
        for id_ in at.get(epoch, []):
            live = [i for i in live if i != undoes[id_]] if undoes[id_] is not None else [*live, id_]
        yield [specs[id_ - 1] for id_ in live]


def check(root: Path, specs: list[SPEC], run: Run) -> None:
    """Compare state and every epoch of every sink with what they must be."""
    state: dict[str, list[int]] = {}
    highest: dict[str, int] = {}
    epochs = run.last_epoch + 1
    planned = files_of_epochs(root / "chk", epochs)
    assert planned[-1].stop == len(list(inbox(root).directory.glob("*.parquet"))), "not all input was read"
    for epoch, live in enumerate(live_specs(specs, run.history(), epochs)):
        model = reduce(applied_to, live, Model())
        arrived = [row for file in planned[epoch] for row in rows_of(file)]
        rows = model.rows(arrived)
        if not model.with_max:
            highest = {}
        for key, value in rows:
            counted = state.setdefault(key, [0, 0])
            counted[0] += 1
            counted[1] += value
            highest[key] = max(highest.get(key, value), value)
        expected = [
            {"k": key, "n": state[key][0], "s": state[key][1], **({"m": highest[key]} if model.with_max else {})}
            for key in sorted({key for key, _ in rows})
        ]
        if not model.with_max:
            highest = {}
        assert written(root / "out", epoch) == expected, f"output of epoch {epoch}"
        raw = sorted(({"k": k, "v": v} for k, v in model_raw(model, arrived)), key=str) if model.raw else []
        assert sorted(written(root / "raw", epoch), key=str) == raw, f"raw rows of epoch {epoch}"
    found = {row["k"]: [row["n"], row["s"]] for row in run.read_result("sums").to_pylist()}
    assert found == state


def model_raw(model: Model, arrived: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The branch hangs on `clean`, before the filter."""
    return replace(model, odd_only=False).rows(arrived)


def written(directory: Path, epoch: int, by: str = "k") -> list[dict[str, Any]]:
    files = sorted((directory / f"epoch={epoch}").glob("*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    return sorted(rows, key=lambda row: str(row[by]))
