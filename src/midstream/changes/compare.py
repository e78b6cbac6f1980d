"""Two versions of a pipeline side by side, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields
from types import MappingProxyType

from midstream.changes.fate import Fate, TableFate
from midstream.changes.verdict import Edit, StepVerdict
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import KeyedStep, Step
from midstream.state.compaction import CompactionPolicy
from midstream.state.hashspace import HashRange
from midstream.state.manifest import StepState

_WORST_FIRST = (Fate.LOST, Fate.CONVERTED, Fate.MOVED, Fate.KEPT, Fate.NEW)


DRAINED = "open windows give what they have first"


def compare(
    before: Pipeline,
    after: Pipeline,
    state: Mapping[str, StepState],
    fates: Mapping[str, Mapping[str, TableFate]],
    ranges: Mapping[str, Sequence[HashRange]],
    drained: Set[str] = frozenset(),
    looping: Mapping[str, int] = MappingProxyType({}),
) -> Iterator[StepVerdict]:
    """Every step of either version, inputs before readers, those that go at the end.

    `fates` tell of the tables of each keyed step that stays, `ranges` of the partitions each will have,
    `looping` of how many rows are under way in each loop.
    """
    old = {step.id: step for step in before.steps}
    new = {step.id: step for step in after.steps}
    for id_, step in new.items():
        yield _step(old.get(id_), step, state.get(id_), fates.get(id_, {}), ranges.get(id_, ()))
    for id_, step in old.items():
        if id_ not in new:
            lost = state.get(id_)
            rows = lost.rows if lost else looping.get(id_, 0)
            fate = Fate.LOST if rows and id_ not in drained else Fate.NONE
            size, notes = lost.bytes if lost else 0, (DRAINED,) if id_ in drained else ()
            yield StepVerdict(id_, step.kind, Edit.REMOVED, _inputs(step), state=fate, state_bytes=size, notes=notes)


def _step(
    old: Step | None,
    new: Step,
    state: StepState | None,
    fates: Mapping[str, TableFate],
    ranges: Sequence[HashRange],
) -> StepVerdict:
    inputs_before = _inputs(old) if old else ()
    edit = Edit.NEW if old is None else _edit(old, new)
    fate, notes, moved = Fate.NONE, [], 0
    if isinstance(new, KeyedStep):
        found = {table.fate for table in fates.values()}
        fate = next((f for f in _WORST_FIRST if f in found), Fate.NEW)
        notes = [note for table in fates.values() for note in table.notes]
        if state is not None and list(state.ranges) != list(ranges):
            share = moved_share(state.ranges, ranges)
            moved = round(share * state.bytes)
            notes.append(f"{len(state.ranges)} → {len(ranges)} partitions")
            fate = Fate.MOVED if fate is Fate.KEPT else fate
        if state is not None and set(state.splits) != set(new.splits):
            notes.append(f"{len(state.splits)} → {len(new.splits)} keys in parts")
    return StepVerdict(
        id=new.id,
        kind=new.kind,
        edit=edit,
        inputs=_inputs(new),
        inputs_before=inputs_before,
        state=fate,
        state_bytes=state.bytes if state else 0,
        moved_bytes=moved,
        notes=tuple(notes),
    )


def _edit(old: Step, new: Step) -> Edit:
    if old is new:
        return Edit.SAME
    if type(old) is not type(new):
        return Edit.REPLACED
    changed = {f.name for f in fields(old) if not _same(getattr(old, f.name), getattr(new, f.name))}
    changed -= {"input", "members"}
    if changed - {"parallelism", "ranges", "compaction", "splits"}:
        return Edit.REPLACED
    if changed and _inputs(old) == _inputs(new):
        return Edit.RESCALED
    return Edit.SAME if _inputs(old) == _inputs(new) else Edit.REWIRED


def _same(old: object, new: object) -> bool:
    """Whether two settings of a step are the same. Functions are so by identity, and Spark's columns have no truth."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    comparable = (str, int, tuple, CompactionPolicy)
    return old is new or (isinstance(old, comparable) and isinstance(new, comparable) and old == new)


def _inputs(step: Step) -> tuple[str, ...]:
    return tuple(source.id for source in step.inputs)


def moved_share(before: Sequence[HashRange], after: Sequence[HashRange]) -> float:
    """The share of the hash space that another partition owns afterwards.

    >>> from midstream.state.hashspace import even_ranges
    >>> moved_share(even_ranges(2), even_ranges(4))
    0.75
    """
    stays = sum(
        max(0, min(old.end, new.end) - max(old.start, new.start)) for old, new in zip(before, after, strict=False)
    )
    return 1 - stays / 2**64
