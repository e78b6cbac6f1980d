"""Joins of two streams by key: within windows, within a stretch of time of each other, or for good."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from midstream.eventtime.instants import Instants, instants
from midstream.eventtime.late import NEVER, without_late, without_rows
from midstream.eventtime.pairs import pairs
from midstream.eventtime.sides import LEFT, RIGHT, SIDE, How, Side, carried
from midstream.eventtime.windows import END
from midstream.state.keys import flatten, group_rows
from midstream.state.tables import Groups, Hashes, KeyedResult, Mask, Positions, Snapshot, TableDelta, TableSpec, Times


@dataclass(frozen=True)
class Rows:
    """Rows of one side, each with the number of its key; `new` ones are of this epoch."""

    owner: Positions
    values: pa.Table
    new: Mask

    @classmethod
    def together(cls, old: Rows, new: Rows) -> Rows:
        values = pa.concat_tables([old.values.cast(new.values.schema), new.values]) if new.values.num_columns else None
        owner = np.concatenate([old.owner, new.owner])
        mask = np.concatenate([old.new, new.new])
        return cls(owner, flatten(values) if values is not None else new.values, mask)


Fresh: TypeAlias = Mapping[str, tuple[Positions, pa.Table]]
"""New rows by side, each with the number of its key."""


@dataclass(frozen=True)
class Shape:
    """What a join gives: the keys, then the columns of the left side, then those of the right."""

    output: pa.Schema
    how: How

    def rows(self, keys: pa.Table, left: Rows, right: Rows, pair: tuple[Positions, Positions]) -> pa.Table:
        """The result of all rows of some keys, of which pairs of positions are known."""
        if self.how is How.SEMI:
            return self.of_one(keys, left, right, LEFT, np.unique(pair[0]))
        pieces = [] if self.how is How.ANTI else [self.of_pairs(keys, left, right, pair)]
        for name, side, mine in ((LEFT, left, pair[0]), (RIGHT, right, pair[1])):
            if self.how.keeps_alone(name):
                single = np.setdiff1d(np.arange(len(side.owner)), mine)
                pieces.append(self.of_one(keys, left, right, name, single))
        return pa.concat_tables(pieces)

    def of_pairs(self, keys: pa.Table, left: Rows, right: Rows, pair: tuple[Positions, Positions]) -> pa.Table:
        lefts, rights = pa.array(pair[0]), pa.array(pair[1])
        columns = keys.take(pa.array(left.owner[pair[0]])).columns
        return pa.table(
            [*columns, *left.values.take(lefts).columns, *right.values.take(rights).columns], schema=self.output
        )

    def of_one(self, keys: pa.Table, left: Rows, right: Rows, side: str, positions: Positions) -> pa.Table:
        """Rows of one side by themselves, with nulls for the other."""
        rows = left if side == LEFT else right
        columns = list(keys.take(pa.array(rows.owner[positions])).columns)
        for name, other in ((LEFT, left), (RIGHT, right)):
            if name == side:
                columns += other.values.take(pa.array(positions)).columns
            elif self.how not in (How.SEMI, How.ANTI):
                columns += [pa.nulls(len(positions), column.type) for column in other.values.columns]
        return pa.table(columns, schema=self.output)


@dataclass(frozen=True)
class _Join:
    """What all joins have: two sides, each with a table, and the shape of what they give."""

    left: Side
    right: Side
    shape: Shape

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        return (self.left.table, self.right.table)

    @property
    def output(self) -> pa.Schema:
        return self.shape.output


@dataclass(frozen=True)
class WindowJoin(_Join):
    """Both sides are kept by key and window until the window is over, and joined then."""

    lateness: int

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        late, rows, groups = without_late(instants(groups.keys, END) <= before - self.lateness, rows, groups)
        deltas = {side.name: _appended(groups, *side.rows_of(rows, groups)) for side in (self.left, self.right)}
        if not times.firing or times.now is None:
            ends = instants(groups.keys, END)
            due = int(ends.min()) + self.lateness if len(ends) else None
            return KeyedResult(self.output.empty_table(), _written(deltas), late, due)
        output, deltas, next_end = self._fire(times.now - self.lateness, deltas, snapshot)
        return KeyedResult(output, _written(deltas), late, None if next_end is None else next_end + self.lateness)

    def _fire(
        self, bound: int, deltas: dict[str, TableDelta], snapshot: Snapshot
    ) -> tuple[pa.Table, dict[str, TableDelta], int | None]:
        over: dict[str, tuple[Hashes, pa.Table]] = {}
        dues: list[int] = []
        for side in (self.left, self.right):
            hashes, rows = [np.empty(0, np.int64)], [side.table.schema.empty_table()]
            for of_piece, piece in snapshot.scan_hashed(side.name, deltas[side.name]):
                ends = instants(piece, END)
                hashes.append(of_piece[ends <= bound])
                rows.append(piece.filter(pa.array(ends <= bound)))
                dues += [int(ends[ends > bound].min())] if (ends > bound).any() else []
            over[side.name] = np.concatenate(hashes), flatten(pa.concat_tables(rows))
            gone, delta = over[side.name][1].num_rows, deltas[side.name]
            if gone:
                deltas[side.name] = replace(delta, removed=delta.removed + gone, delete_below=bound + 1)
        return self._joined(over), deltas, min(dues, default=None)

    def _joined(self, over: Mapping[str, tuple[Hashes, pa.Table]]) -> pa.Table:
        groups, left, right = _regrouped(self.left, self.right, over)
        return self.shape.rows(groups.keys, left, right, _matches(groups.keys, left, right))


@dataclass(frozen=True)
class IntervalJoin(_Join):
    """Rows of both sides are kept until no partner can come any more: a right row's time is from `lower` to `upper`
    after the left row's. Pairs are given as they come, rows without partner when none can come."""

    lower: int
    upper: int

    @property
    def _gives_pairs(self) -> bool:
        return self.shape.how not in (How.SEMI, How.ANTI)

    def _reach(self, side: str) -> int:
        """How long after its time a row can find partners."""
        return max(0, self.upper if side == LEFT else -self.lower)

    def _held(self, side: str) -> int:
        """How long it is kept. If it is to be known of others that they had no partner, until all are gone that could
        have had this one."""
        knows_alone = self.shape.how is not How.INNER
        return self._reach(side) + (self.upper - self.lower if knows_alone else 0)

    def run_at(self, times: Times, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        before = NEVER if times.before is None else times.before
        late, rows, groups = without_rows(self._times_of(rows) < before, rows, groups)
        fresh = {side.name: side.rows_of(rows, groups) for side in (self.left, self.right)}
        deltas = {name: _appended(groups, *found) for name, found in fresh.items()}
        output = [self._pairs(fresh, groups, snapshot)] if self._gives_pairs else []
        dues = [
            int(of_side.min()) + self._slack(side.name)
            for side in (self.left, self.right)
            if len(of_side := instants(fresh[side.name][1], str(side.range_column)))
        ]
        due = min(dues, default=None)
        if times.firing and times.now is not None:
            alone, deltas, due = self._expire(before, times.now, deltas, snapshot)
            output += alone
        return KeyedResult(pa.concat_tables([self.output.empty_table(), *output]), _written(deltas), late, due)

    def _times_of(self, rows: pa.Table) -> Instants:
        """The time of each row, whichever side it is of."""
        left, right = (instants(rows, carried(side.name, str(side.range_column))) for side in (self.left, self.right))
        return np.where(np.asarray(rows.column(SIDE)), right, left)

    def _slack(self, side: str) -> int:
        """How long after its time a row is a reason to look through the state: when it is to be given alone, or when
        it has been of no use for a while."""
        if self.shape.how is not How.INNER:
            return self._reach(side) + 1
        held = self._held(side)
        return held + max(held // 4, 1_000_000)

    def _pairs(self, fresh: Fresh, groups: Groups, snapshot: Snapshot) -> pa.Table:
        left, right = _both(self.left, self.right, fresh, groups, snapshot)
        lefts, rights = self._in_reach(_new_matches(groups.keys, left, right), left, right)
        return self.shape.of_pairs(groups.keys, left, right, (lefts, rights))

    def _in_reach(self, pair: tuple[Positions, Positions], left: Rows, right: Rows) -> tuple[Positions, Positions]:
        lefts, rights = pair
        apart = (
            instants(right.values, str(self.right.range_column))[rights]
            - instants(left.values, str(self.left.range_column))[lefts]
        )
        kept = (apart >= self.lower) & (apart <= self.upper)
        return lefts[kept], rights[kept]

    def _expire(
        self, before: int, now: int, deltas: dict[str, TableDelta], snapshot: Snapshot
    ) -> tuple[list[pa.Table], dict[str, TableDelta], int | None]:
        """Rows without partner that can get none any more, what goes, and when to look again."""
        held: dict[str, tuple[Hashes, pa.Table]] = {}
        dues: list[int] = []
        for side in (self.left, self.right):
            pieces = list(snapshot.scan_hashed(side.name, deltas[side.name]))
            rows = flatten(pa.concat_tables([side.table.schema.empty_table(), *(rows for _, rows in pieces)]))
            held[side.name] = np.concatenate([np.empty(0, np.int64), *(hashes for hashes, _ in pieces)]), rows
            ends = instants(rows, str(side.range_column))
            next_due = ends + self._slack(side.name)
            dues += [int(next_due[next_due > now].min())] if (next_due > now).any() else []
            bound = now - self._held(side.name)
            gone, delta = int(np.count_nonzero(ends < bound)), deltas[side.name]
            if gone:
                deltas[side.name] = replace(delta, removed=delta.removed + gone, delete_below=bound)
        alone = [] if self.shape.how is How.INNER else [self._alone(before, now, held)]
        return alone, deltas, min(dues, default=None)

    def _alone(self, before: int, now: int, held: Mapping[str, tuple[Hashes, pa.Table]]) -> pa.Table:
        groups, left, right = _regrouped(self.left, self.right, held)
        pair = self._in_reach(_matches(groups.keys, left, right), left, right)
        pieces = [self.output.empty_table()]
        for side, rows, mine in ((self.left, left, pair[0]), (self.right, right, pair[1])):
            last = instants(rows.values, str(side.range_column)) + self._reach(side.name)
            leaves = (last < now) & (last >= before)
            has_partner = np.isin(np.arange(len(rows.owner)), mine)
            if self.shape.how is How.SEMI and side is self.left:
                pieces.append(
                    self.shape.of_one(groups.keys, left, right, side.name, np.flatnonzero(leaves & has_partner))
                )
            elif self.shape.how.keeps_alone(side.name):
                single = np.flatnonzero(leaves & ~has_partner)
                pieces.append(self.shape.of_one(groups.keys, left, right, side.name, single))
        return pa.concat_tables(pieces)


@dataclass(frozen=True)
class PlainJoin(_Join):
    """Pairs of rows with one key, whenever they come: both sides are kept for good."""

    def run(self, rows: pa.Table, groups: Groups, snapshot: Snapshot) -> KeyedResult:
        fresh = {side.name: side.rows_of(rows, groups) for side in (self.left, self.right)}
        left, right = _both(self.left, self.right, fresh, groups, snapshot)
        output = self.shape.of_pairs(groups.keys, left, right, _new_matches(groups.keys, left, right))
        return KeyedResult(output, _written({name: _appended(groups, *found) for name, found in fresh.items()}))


def _both(left: Side, right: Side, fresh: Fresh, groups: Groups, snapshot: Snapshot) -> tuple[Rows, Rows]:
    """The rows of both sides that can be part of a new pair: new ones, and old ones whose key has new partners."""
    sides = []
    for side, other in ((left, right), (right, left)):
        asked = np.unique(fresh[other.name][0])
        found = snapshot.lookup_rows(side.name, groups.hashes[asked], groups.keys.take(pa.array(asked)))
        old = Rows(asked[found.owner], found.values, np.zeros(len(found.owner), np.bool_))
        new = Rows(*fresh[side.name], np.ones(len(fresh[side.name][0]), np.bool_))
        sides.append(Rows.together(old, new))
    return sides[0], sides[1]


def _new_matches(keys: pa.Table, left: Rows, right: Rows) -> tuple[Positions, Positions]:
    """Pairs of which one row at least is new."""
    lefts, rights = _matches(keys, left, right)
    kept = left.new[lefts] | right.new[rights]
    return lefts[kept], rights[kept]


def _regrouped(left: Side, right: Side, held: Mapping[str, tuple[Hashes, pa.Table]]) -> tuple[Groups, Rows, Rows]:
    """Stored rows of both sides by key."""
    keys = flatten(pa.concat_tables([held[side.name][1].select(side.keys.names) for side in (left, right)]))
    groups = group_rows(np.concatenate([held[side.name][0] for side in (left, right)]), keys)
    owner = np.empty(keys.num_rows, np.int64)
    owner[groups.order] = np.repeat(np.arange(len(groups)), groups.sizes)
    first = held[left.name][1].num_rows
    sides = [
        Rows(owners, held[side.name][1].select(side.values.names), np.ones(len(owners), np.bool_))
        for side, owners in ((left, owner[:first]), (right, owner[first:]))
    ]
    return groups, sides[0], sides[1]


def _matches(keys: pa.Table, left: Rows, right: Rows) -> tuple[Positions, Positions]:
    """Pairs of rows with one key. A key with a null in it equals no other, as in SQL."""
    null = np.zeros(keys.num_rows, np.bool_)
    for column in keys.columns:
        if column.null_count:
            null |= np.asarray(pc.is_null(column))
    lefts, rights = pairs(left.owner, right.owner, keys.num_rows)
    kept = ~null[left.owner[lefts]]
    return lefts[kept], rights[kept]


def _appended(groups: Groups, owners: Positions, values: pa.Table) -> TableDelta:
    """New rows of a list table, in the order of their hashes as groups are."""
    return TableDelta(groups.hashes[owners], groups.keys.take(pa.array(owners)), values, added=len(owners))


def _written(deltas: Mapping[str, TableDelta]) -> dict[str, TableDelta]:
    return {name: d for name, d in deltas.items() if len(d.hashes) or d.removed or d.delete_below is not None}
