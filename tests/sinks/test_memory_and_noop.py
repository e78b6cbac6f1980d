from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from midstream.sinks import memory, noop
from tests.sinks.harness import Stream, every_type, rows

NewStream = Callable[..., Stream]


def test_memory_keeps_epochs_in_order(new_stream: NewStream) -> None:
    sink = memory()
    stream = new_stream(sink).prepare()
    assert sink.to_table().schema == rows().schema
    second = stream.stage(1, rows(("b", 2)))
    stream.finalise(second)
    stream.write(0, rows(("a", 1)), rows(("c", 3)))
    stream.write(2)
    stream.finalise(second)
    assert sink.to_pylist() == [{"k": "a", "n": 1}, {"k": "c", "n": 3}, {"k": "b", "n": 2}]
    assert list(sink.epochs) == [1, 0]


def test_memory_of_a_complete_result_is_the_newest(new_stream: NewStream) -> None:
    sink = memory()
    stream = new_stream(sink, complete=True).prepare()
    stream.write(0, rows(("a", 1)))
    stream.write(1, rows(("a", 2), ("b", 1)))
    assert sink.to_pylist() == [{"k": "a", "n": 2}, {"k": "b", "n": 1}]
    stream.write(2)
    assert sink.to_pylist() == []


def test_memory_keeps_types_and_takes_changed_columns(new_stream: NewStream) -> None:
    sink = memory()
    table = every_type()
    new_stream(sink, schema=table.schema).prepare().write(0, table)
    assert sink.to_table() == table
    added = pa.table({"added": [1]})
    new_stream(sink, schema=added.schema).prepare().write(1, added)
    assert sink.to_table()["added"].to_pylist() == [None, None, None, 1]


def test_noop_counts_each_epoch_once(new_stream: NewStream) -> None:
    sink = noop()
    stream = new_stream(sink).prepare()
    stream.write(0, rows(("a", 1)), rows(("b", 2)))
    staged = stream.write(1, rows(("c", 3)))
    stream.finalise(staged)
    assert sink.rows == 3
    assert list(stream.context.staging.list("")) == []
