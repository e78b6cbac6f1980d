"""Any sequence of writes, deletes, compactions, crashes and re-partitionings reads back what a dict would hold."""

from __future__ import annotations

import pickle
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from midstream.state.conversion import Conversion
from midstream.state.store import open_store
from midstream.state.tables import TableKind
from tests.state.model import VALUES, Table, spec_of

KEY = st.tuples(st.one_of(st.none(), st.sampled_from(["a", "b", "ä", ""])), st.one_of(st.none(), st.integers(0, 5)))
VALUE = st.tuples(st.integers(-5, 5), st.sampled_from(["x", "y", "long " * 9]))


def one_more(rows: pa.Table) -> pa.Table:
    assert rows.num_rows, "called for nothing"
    assert not rows.column("v").null_count, "called with a deleted row"
    return rows.set_column(rows.column_names.index("v"), "v", pc.add(rows.column("v"), 1))


class StoredTable(RuleBasedStateMachine):
    kind: TableKind

    @initialize(partitions=st.integers(1, 4), spread=st.integers(1, 40))
    def begin(self, partitions: int, spread: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.table = Table(open_store(self.directory.name), spec_of(self.kind), partitions, spread)
        self.model: dict[Any, list[tuple[int, str]]] = {}
        self.conversions = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.cleanup()

    @rule(crash=st.sampled_from([False, False, False, True]), data=st.data())
    def epoch(self, crash: bool, data: st.DataObject) -> None:
        if self.kind is TableKind.VALUE:
            rows = list(data.draw(st.dictionaries(KEY, st.none() | VALUE, max_size=9)).items())
        else:
            rows = data.draw(st.lists(st.tuples(KEY, st.none() | VALUE), max_size=9))
        self.table.write(rows, crash=crash)
        if crash:
            return
        for key, value in rows:
            if value is None:
                self.model.pop(key, None)
        for key, value in rows:
            if value is not None:
                old = self.model.get(key, []) if self.kind is TableKind.LIST else []
                self.model[key] = [*old, value]

    @rule(crash=st.booleans())
    def compact(self, crash: bool) -> None:
        self.table.compact(crash=crash)

    @rule(bound=st.integers(0, 6))
    def expire(self, bound: int) -> None:
        self.table.delete_below(bound)
        self.model = {k: v for k, v in self.model.items() if k[1] is None or k[1] >= bound}

    @rule()
    def convert(self) -> None:
        """The schema changes: rows written so far are one more from now on, whenever they are read."""
        if self.conversions < 3:
            self.conversions += 1
            self.table.convert(Conversion(VALUES, code=pickle.dumps(one_more)))
            self.model = {key: [(v + 1, s) for v, s in rows] for key, rows in self.model.items()}

    @rule(count=st.integers(1, 6))
    def repartition(self, count: int) -> None:
        self.table.repartition(count)

    @rule(keys=st.lists(KEY, unique=True, max_size=12))
    def look_up(self, keys: list[tuple[str | None, int | None]]) -> None:
        expected = {key: self.model[key] for key in keys if key in self.model}
        assert self.table.get(keys) == expected

    @invariant()
    def scan_gives_everything_once(self) -> None:
        if not hasattr(self, "table"):
            return
        found: dict[Any, list[tuple[int, str]]] = {}
        for key, value in self.table.scan():
            found.setdefault(key, []).append(value)
        assert found == self.model


@pytest.mark.parametrize("kind", list(TableKind))
def test_a_table_reads_back_like_a_dict(kind: TableKind) -> None:
    class OfKind(StoredTable):
        pass

    OfKind.kind = kind
    OfKind.TestCase.settings = settings(
        max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    OfKind.TestCase("runTest").runTest()
