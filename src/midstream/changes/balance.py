"""Where to cut a step into partitions that have equally much to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from midstream.changes.change import Change, ChangeSet, Rebalance
from midstream.errors import ChangeError
from midstream.state.heat import Heat
from midstream.state.manifest import StepState


def balanced(change: Change, state: Mapping[str, StepState]) -> Change:
    """A change with the ranges of every rebalancing in it, by the heat of the step so far."""
    if isinstance(change, ChangeSet):
        return ChangeSet([balanced(part, state) for part in change.changes])
    if not isinstance(change, Rebalance) or change.starts is not None:
        return change
    known = state.get(change.step)
    parts = change.to if change.to is not None else len(known.ranges) if known else 1
    if parts < 1:
        raise ChangeError.bad_ranges(change.step, f"at least one partition is needed, not {parts}")
    heat = known.heat if known and known.heat is not None else Heat.none()
    return replace(change, starts=[range_.start for range_ in heat.cut(parts)])
