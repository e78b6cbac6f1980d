"""A pipeline of one keyed step that is given bad input: what it fails with, and that nothing is lost."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.run import Run
from midstream.errors import MidstreamError
from midstream.state.ledger import committed_epochs, read_manifest
from midstream.state.query import read_table
from midstream.state.store import open_store
from tests.engine.harness import Inbox

# Workers get the functions below by value and need not be able to import the tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = "k string, v bigint"
KEYS = [None, *"abcdefgh"]

Step = Callable[[ms.Stream], ms.Stream]


@dataclass(frozen=True)
class Case:
    """A pipeline that sums by key, its input, and what must come out of it."""

    root: Path
    spark: SparkSession

    @property
    def inbox(self) -> Inbox:
        return Inbox(self.root / "in", SCHEMA)

    @property
    def checkpoint(self) -> Path:
        return self.root / "chk"

    def add_epoch(self) -> None:
        number = len(list((self.root / "in").glob("*.parquet")))
        self.inbox.add(*((key, 100 * number + place) for place, key in enumerate(KEYS)))

    def flow(self, *steps: Step, events: ms.Stream | None = None) -> ms.Pipeline:
        stream = events or self.inbox.source()
        for step in steps or (summed,):
            stream = step(stream)
        return stream.sink("out", ms.sinks.parquet(self.root / "out"))

    def start(self, *steps: Step, **options: Any) -> Run:
        return self.flow(*steps).start(self.spark, str(self.checkpoint), **options)

    def run(self, *steps: Step) -> None:
        run = self.start(*steps)
        run.process_available()
        run.stop()

    def fails(self, flow: ms.Pipeline, error_class: str, *named: str, **options: Any) -> MidstreamError:
        """Run until it fails, at the start or later: the error is of the class, names these things and has a hint."""
        with pytest.raises(MidstreamError) as raised:
            self._until_failure(flow, options)
        error = raised.value
        assert error.error_class == error_class, error
        for name in named:
            assert name in error.message, error
        assert error.hint, error
        assert "\tat " not in str(error), "the JVM's stack helps nobody"
        return error

    def _until_failure(self, flow: ms.Pipeline, options: dict[str, Any]) -> None:
        """Raises the same error however it is asked for."""
        run = flow.start(self.spark, options.pop("checkpoint", str(self.checkpoint)), **options)
        with pytest.raises(MidstreamError) as waiting:
            run.process_available()
        assert run.status == "failed"
        assert run.exception is waiting.value
        with pytest.raises(MidstreamError) as ended:
            run.await_termination()
        assert ended.value is waiting.value
        raise waiting.value

    def check(self) -> None:
        """State is what the input says, and every epoch is in the output once."""
        files = len(list((self.root / "in").glob("*.parquet")))
        sums = {key: sum(100 * number + place for number in range(files)) for place, key in enumerate(KEYS)}
        store = open_store(str(self.checkpoint))
        last = read_manifest(store, committed_epochs(store)[-1])
        table = read_table(store, last, "sums")
        assert {row["k"]: list(row.values())[-1] for row in table.to_pylist()} == sums
        assert {folder.name for folder in (self.root / "out").iterdir()} == {f"epoch={n}" for n in range(files)}


def summed(stream: ms.Stream) -> ms.Stream:
    return stream.key_by("k").aggregate("sums", total=F.sum("v"))


def use_fresh_workers(spark: SparkSession) -> None:
    """Have the next tasks run in new Python processes, which have no segment open yet."""
    spark.sparkContext.environment["MIDSTREAM_TEST"] = uuid.uuid4().hex
