"""Where to cut a step into partitions that have equally much to do, and which keys are too much for one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from midstream.changes.change import Change, ChangeSet, Rebalance
from midstream.errors import ChangeError
from midstream.state.hashspace import WHOLE
from midstream.state.heat import HOT_SHARE, Heat
from midstream.state.manifest import StepState
from midstream.state.splits import MOST_WAYS, Split, divided_anew


def balanced(change: Change, state: Mapping[str, StepState]) -> Change:
    """A change with the ranges of every rebalancing in it, and the keys it splits, by what steps had to do so far."""
    if isinstance(change, ChangeSet):
        return ChangeSet([balanced(part, state) for part in change.changes])
    if not isinstance(change, Rebalance) or change.starts is not None:
        return change
    known = state.get(change.step) or StepState((WHOLE,), {})
    parts = change.to if change.to is not None else len(known.ranges)
    if parts < 1:
        raise ChangeError.bad_ranges(change.step, f"at least one partition is needed, not {parts}")
    heat = known.heat if known.heat is not None else Heat.none()
    splits = _splits(change, known, heat, parts)
    for before, after in divided_anew(known.splits, splits):
        heat = heat.moved(known.hot.rows.get(before.hash, 0.0), before.places, after.places)
    kept = {split.hash for split in splits}
    whole = {hash_: rows for hash_, rows in known.hot.rows.items() if hash_ not in kept}
    starts = [range_.start for range_ in heat.cut(parts, whole)]
    return replace(change, starts=starts, splits=None if change.split is None else splits)


def _splits(change: Rebalance, known: StepState, heat: Heat, parts: int) -> tuple[Split, ...]:
    """Keys in parts from then on. For those that are not hot, cuts between partitions make up."""
    if change.split is None:
        return known.splits
    if not change.split or parts == 1:
        return ()
    most = HOT_SHARE * heat.of(WHOLE) / parts
    hot = {hash_ for hash_, rows in known.hot.rows.items() if rows > most}
    # In parts, a key may be aggregated before the exchange, and no longer look hot.
    return tuple(sorted(Split(hash_, min(parts, MOST_WAYS)) for hash_ in hot | {split.hash for split in known.splits}))
