"""Keys in parts on several instances: whatever parts they get and lose, results are those of all rows so far."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.aggregates.distinct import DistinctCount
from midstream.aggregates.parts import Joined, Parted
from midstream.aggregates.spec import aggregate_spec
from midstream.engine.execute import with_writes
from midstream.state.hashspace import HASH_MIN, PLACE_BITS, SUBKEY_BITS, WHOLE, even_ranges
from midstream.state.heat import HotKeys
from midstream.state.manifest import Driver, Manifest, StepState, TableState, decode_manifest, encode_manifest
from midstream.state.reader import PartitionSnapshot
from midstream.state.splits import Split
from midstream.state.store import open_store
from midstream.task.keyed import HASH_COLUMN, WAKE_COLUMN, KeyedTask
from midstream.task.report import TaskReport, Told
from tests.aggregates.catalyst import Planned, Row, plan
from tests.aggregates.memory import hashable, key_hash
from tests.aggregates.test_cuts import CASES, Case, assert_same

MERGEABLE = [case for case in CASES if case.function not in ("first", "last", "collect_list", "collect_set")]
KEYS = [None, 1, 2, 3]


class Instances:
    """The state tasks of a step, run one after the other on state in a directory."""

    def __init__(self, planned: Planned, directory: str, instances: int) -> None:
        self.planned, self.function = planned, planned.function
        self.store = open_store(directory)
        tables = {spec.name: TableState(spec) for spec in self.function.tables}
        self.state = StepState(even_ranges(instances), tables)
        self.number = 0

    @property
    def counts_values(self) -> bool:
        return any(isinstance(partial, DistinctCount) for partial in self.function.partials)

    def epoch(self, tasks: list[list[Row]], wanted: tuple[Split, ...], grouped: bool) -> list[dict[str, Any]]:
        """Rows as they come from the tasks before the exchange, of which each has a number; what the epoch gives."""
        splits, arrived = self.state.splits, []
        for number, rows in enumerate(tasks):
            table = self.planned.grouped(rows) if grouped else self.planned.per_row(rows)
            arrived.append(self._hashed(table, number))
        together = pa.concat_tables(arrived)
        function = Parted(self.function, splits) if splits else self.function
        given, reports = self._round(function, together)
        after = with_writes(self.state, reports, self.number)
        touched = frozenset(hash_ for report in reports for hash_ in report.touched)
        if touched or splits != wanted or (splits and self.function.complete):
            joined = Joined(self.function, splits, wanted, touched)
            self.state, before = after, self.state
            more, more_reports = self._round(joined, together.schema.empty_table(), woken=True)
            given, reports, self.state = [*given, *more], [*reports, *more_reports], before
        self.state = with_writes(self.state, reports, self.number)
        self.number += 1
        return given

    def _hashed(self, table: pa.Table, task: int) -> pa.Table:
        ways = {split.hash: split for split in self.state.splits}
        hashes, values = [], next((p for p in self.function.partials if isinstance(p, DistinctCount)), None)
        for row in table.to_pylist():
            hash_ = key_hash(hashable((row["k"],)))
            if hash_ in ways:
                part = row[values.hash.per_row] % 2**SUBKEY_BITS if values is not None else task
                hash_ = ways[hash_].places[part % ways[hash_].ways]
            hashes.append(hash_)
        return table.append_column(HASH_COLUMN, pa.array(hashes, pa.int64()))

    def _round(self, function: Any, rows: pa.Table, woken: bool = False) -> tuple[list[dict[str, Any]], list[Any]]:
        told: list[Told] = []
        given: list[dict[str, Any]] = []
        for range_ in self.state.ranges:
            hashes = rows.column(HASH_COLUMN).to_pylist()
            mine = rows.filter(pa.array([hash_ in range_ for hash_ in hashes], pa.bool_()))
            if woken or self.function.complete:
                nulls = {f.name: [None] for f in rows.schema}
                wake = pa.table({**nulls, HASH_COLUMN: [range_.start], WAKE_COLUMN: [True]}).cast(_with_wake(rows))
                asleep = mine.append_column(WAKE_COLUMN, pa.array([False] * mine.num_rows, pa.bool_()))
                mine = pa.concat_tables([asleep, wake])
            if not mine.num_rows:
                continue
            task = KeyedTask(
                run="run",
                step="step",
                epoch=self.number,
                store=self.store,
                function=function,
                input=mine.schema,
                keys=("k",),
                ranges=self.state.ranges,
                tables=self.state.tables,
                stage=(),
                emit=True,
                complete=self.function.complete,
                send=told.append,
                woken=WAKE_COLUMN in mine.column_names,
            )
            given += [row for batch in task(iter(mine.to_batches())) for row in batch.to_pylist()]
        return given, [report for report in told if isinstance(report, TaskReport)]

    def rows(self, table: str) -> int:
        return sum(piece.num_rows for piece in PartitionSnapshot(self.store, self.state.tables, WHOLE).scan(table))


def _with_wake(rows: pa.Table) -> pa.Schema:
    return rows.schema.append(pa.field(WAKE_COLUMN, pa.bool_()))


def some_splits(data: st.DataObject) -> tuple[Split, ...]:
    hashes = data.draw(st.sets(st.sampled_from([key_hash(hashable((key,))) for key in KEYS])), "split keys")
    return tuple(sorted(Split(hash_, data.draw(st.integers(2, 5), "ways")) for hash_ in hashes))


@pytest.mark.parametrize("case", MERGEABLE, ids=str)
@settings(max_examples=8, deadline=None)
@given(complete=st.booleans(), data=st.data())
def test_results_are_those_of_whole_keys(case: Case, complete: bool, data: st.DataObject) -> None:
    planned = plan(aggregate_spec("r", case.function, ("x",), **dict(case.options)), case.type, case.result, complete)
    row = st.builds(Row, st.sampled_from(KEYS), st.none() | case.values, st.sampled_from([True, True, False, None]))
    seen: dict[Any, list[Row]] = {}
    with tempfile.TemporaryDirectory() as directory:
        instances = Instances(planned, directory, data.draw(st.integers(1, 4), "instances"))
        for _ in range(data.draw(st.integers(1, 5), "epochs")):
            tasks = data.draw(st.lists(st.lists(row, max_size=5), min_size=1, max_size=3), "tasks")
            for task in tasks:
                for one in task:
                    seen.setdefault(one.k, []).append(one)
            grouped = planned.shipment.supports_grouped and data.draw(st.booleans(), "grouped")
            wanted = some_splits(data)
            given = instances.epoch(tasks, wanted, grouped)
            due = set(seen) if complete else {one.k for task in tasks for one in task}
            assert sorted(str(r["k"]) for r in given) == sorted(map(str, due))
            for result in given:
                assert_same(result["r"], case.expected(seen[result["k"]]))
            # What has no state yet cannot be in parts; all else is as wanted.
            there = {key_hash(hashable((key,))) for key in seen}
            assert instances.state.splits == tuple(split for split in wanted if split.hash in there)
            for name, table in instances.state.tables.items():
                assert table.rows == instances.rows(name), "the count of rows is exact"
        instances.epoch([[]], (), planned.shipment.supports_grouped)
        assert instances.rows("main") == len(seen), "keys that are whole again leave nothing behind"
        if instances.counts_values:
            name = next(spec.name for spec in instances.function.tables if spec.name != "main")
            filtered = [o for rows in seen.values() for o in rows if o.c is True or "filter" not in dict(case.options)]
            values = {(one.k, hashable(one.x)) for one in filtered if one.x is not None}
            assert instances.rows(name) == len(values)


@given(st.integers(HASH_MIN, -HASH_MIN - 1), st.integers(1, 64))
def test_parts_lie_apart(hash_: int, ways: int) -> None:
    split = Split(hash_, ways)
    assert split.places[0] == hash_
    assert len({place % 2**SUBKEY_BITS for place in split.places}) == 1
    gaps = np.diff(sorted(place >> SUBKEY_BITS for place in split.places))
    assert all(gap >= 2**PLACE_BITS // ways for gap in gaps)


def test_manifests_tell_of_parts() -> None:
    def written(splits: tuple[Split, ...]) -> bytes:
        steps = {"sums": StepState(even_ranges(2), {}, hot=HotKeys({7: 100.0}), splits=splits)}
        return encode_manifest(Manifest("id", 1, 1, Driver(1, "host", 1, "now"), "now", steps=steps))

    assert b'"format":1' in written(()), "older versions read what has no parts"
    assert b'"format":2' in written((Split(7, 3),))
    read = decode_manifest(written((Split(7, 3),)), "m").steps["sums"]
    assert (read.splits, read.hot.rows) == ((Split(7, 3),), {7: 100.0})
