"""A stream without an engine: stages tables as tasks would, prepares and finalises as a driver would."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import FrameType, ModuleType
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from midstream.sinks import Sink
from midstream.sinks.base import SinkContext, StagedEpoch
from midstream.state.store import open_store
from midstream.task.stage import stage, stage_name

HOSTILE_NAMES = ["With Space", 'qu"ote', "apo'strophe", "UPPER", "dot.ted", "semi;colon", "tab\t", "größe", "100%"]


@dataclass(frozen=True)
class Stream:
    sink: Sink
    context: SinkContext

    @classmethod
    def into(
        cls,
        sink: Sink,
        checkpoint: str,
        *,
        schema: pa.Schema | None = None,
        options: Mapping[str, str] | None = None,
        checkpoint_id: str = "checkpoint-1",
        **facts: Any,
    ) -> Stream:
        sink_id = facts.pop("sink_id", "out")
        context = SinkContext(
            sink_id=sink_id,
            checkpoint_id=checkpoint_id,
            schema=schema or pa.schema([("k", pa.string()), ("n", pa.int64())]),
            keys=facts.pop("keys", ("k",)),
            complete=facts.pop("complete", False),
            staging=sink.staging(open_store(checkpoint, options), checkpoint_id, sink_id),
            spark=facts.pop("spark", Mock()),
            **facts,
        )
        return cls(sink, context)

    def with_facts(self, **facts: Any) -> Stream:
        return replace(self, context=replace(self.context, **facts))

    def prepare(self) -> Stream:
        self.sink.prepare(self.context)
        return self

    def stage(self, epoch: int, *tables: pa.Table) -> StagedEpoch:
        """One table a task; every task also has an attempt that fails after staging its file."""
        files = []
        for partition, table in enumerate(tables):
            attempts = [
                stage(
                    self.context.staging,
                    self.context.schema,
                    stage_name(epoch, partition),
                    table.to_batches(),
                    self.sink.stage_options,
                )
                for _ in range(2)
            ]
            files.append(attempts[-1])
        return StagedEpoch(epoch, tuple(file for file in files if file is not None))

    def finalise(self, staged: StagedEpoch) -> None:
        self.sink.finalise(self.context, staged)

    def write(self, epoch: int, *tables: pa.Table) -> StagedEpoch:
        staged = self.stage(epoch, *tables)
        self.finalise(staged)
        return staged


def rows(*pairs: tuple[str | None, int]) -> pa.Table:
    """A table of the default schema."""
    return pa.table(
        {"k": pa.array([k for k, _ in pairs], pa.string()), "n": pa.array([n for _, n in pairs], pa.int64())}
    )


def in_parallel(actions: list[Callable[[], Any]]) -> None:
    """Run all at the same time and raise the first error of any."""
    errors: list[BaseException] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Crash(BaseException):
    """The driver dies here: nothing in the sink may catch it."""


def crash_points(module: ModuleType, prepare: Callable[[], Callable[[], None]]) -> Iterator[int]:
    """Run an action again and again, each time dying one line of `module` later; yields after every death.

    `prepare` sets up afresh and returns the action. Ends when the action comes through.
    """
    line = 0
    while True:
        action = prepare()
        if not _dies_at(line, module, action):
            return
        yield line
        line += 1


def _dies_at(line: int, module: ModuleType, action: Callable[[], None]) -> bool:
    seen = 0

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if event == "line":
            seen += 1
            if seen > line:
                sys.settrace(None)
                raise Crash
        return on_line

    def on_call(frame: FrameType, event: str, _: Any) -> Any:
        return on_line if frame.f_code.co_filename == module.__file__ else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        action()
    except Crash:
        return True
    finally:
        sys.settrace(before)
    return False


def every_type() -> pa.Table:
    """A table with every Arrow type that Spark's own types become, under names that need quoting."""
    moment = datetime(2024, 2, 29, 23, 59, 59, 999999)
    struct = pa.struct([("a", pa.int32()), ("b c", pa.string())])
    first = {
        "bool": (pa.bool_(), True),
        "tiny": (pa.int8(), -128),
        "small": (pa.int16(), 32767),
        "int": (pa.int32(), -(2**31)),
        "big": (pa.int64(), 2**63 - 1),
        "real": (pa.float32(), 0.5),
        "Double": (pa.float64(), 1e300),
        "text": (pa.string(), "a\"b',\n\\.\n\\N é 🦆"),
        "empty": (pa.string(), ""),
        "bytes": (pa.binary(), b"\x00\xff\\"),
        "price in €": (pa.decimal128(38, 18), Decimal("-12345678901234567890.000000000000000001")),
        "day": (pa.date32(), date(1, 1, 1)),
        "at": (pa.timestamp("us", "America/New_York"), moment.replace(tzinfo=UTC)),
        "local": (pa.timestamp("us"), moment),
        'li"st': (pa.list_(pa.string()), ["a", None, "", 'q"\\', "{}", "NULL"]),
        "dates": (pa.list_(pa.date32()), [date(2024, 1, 1), None]),
        "nested": (pa.list_(pa.list_(pa.int32())), [[1, None], [], None]),
        "struct": (struct, {"a": 1, "b c": "x"}),
        "structs": (pa.list_(struct), [{"a": None, "b c": 'y"'}, None]),
        "map": (pa.map_(pa.string(), pa.int64()), [("k", 1), ("l", None)]),
        "deep": (pa.map_(pa.int32(), pa.struct([("x", pa.list_(pa.float64()))])), [(1, {"x": [0.5, None]})]),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in first.items()])
    filled = {name: value for name, (_, value) in first.items()}
    return pa.Table.from_pylist([filled, dict.fromkeys(first), filled], schema)


def unusual_types() -> pa.Table:
    """Types of Spark that Delta Lake does not have."""
    schema = pa.schema([("time", pa.time64("ns")), ("span", pa.duration("us")), ("void", pa.null())])
    span = timedelta(days=-3, microseconds=1)
    return pa.Table.from_pylist([{"time": time(23, 59, 59, 999999), "span": span, "void": None}], schema)
