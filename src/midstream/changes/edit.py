"""Carrying changes out on a graph: a pipeline and a change make a new pipeline. The old one stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from midstream.changes.change import (
    Body,
    Change,
    Insert,
    Migrate,
    Rebalance,
    Remove,
    Replace,
    Rescale,
    Tune,
    single_changes,
)
from midstream.changes.draft import Draft
from midstream.errors import ChangeError, MidstreamError
from midstream.graph.pipeline import Pipeline
from midstream.graph.steps import (
    AggregateStep,
    KeyedStep,
    SinkStep,
    SourceStep,
    SqlStep,
    StatefulStep,
    Step,
    TransformStep,
    UnionStep,
)
from midstream.graph.stream import Stream
from midstream.state.hashspace import even_ranges, ranges_from

_NOWHERE = Stream(Step("nowhere"))
"""Stands for the input of a step until the graph is put together again."""

MOST_PARTITIONS = 4096

_WAYS = (
    "one of: a function; sql=…; key_by=… with aggregate={…}, or with a function, state=… and output=…; sink=…;"
    " source=…; build=…"
)


def changed(pipeline: Pipeline, change: Change) -> Pipeline:
    """The pipeline after a change. Of a set only the end must make sense: it is applied as a whole."""
    draft = Draft(pipeline)
    inserted = []
    for single in single_changes(change):
        match single:
            case Replace():
                _replace(draft, single)
            case Insert():
                _insert(draft, single)
                inserted.append(single.id)
            case Remove():
                _remove(draft, single)
            case Rescale():
                _rescale(draft, single)
            case Rebalance():
                _rebalance(draft, single)
            case Tune():
                _tune(draft, single)
            case Migrate():
                _keyed(draft, single.step, str(single))
    result = draft.build()
    there = {step.id for step in result.steps}
    for id_ in inserted:
        if id_ in draft.steps and id_ not in there:
            raise ChangeError.leads_nowhere(id_)
    return result


def _replace(draft: Draft, change: Replace) -> None:
    old = draft.step(change.step, str(change))
    if isinstance(old, UnionStep):
        raise ChangeError.wrong_kind(str(change), old.id, old.kind, "a source, transform, keyed step or sink")
    inputs = draft.inputs[old.id]
    if inputs and (change.build is not None or (change.sql is not None and change.reads)):
        inputs = [inputs[0], *(change.reads or inputs[1:])]
        for id_ in inputs:
            draft.step(id_, str(change))
    new = _make(old.id, replace(_with_defaults(change, old), reads=inputs[1:]))
    if isinstance(new, SinkStep) != isinstance(old, SinkStep) or isinstance(new, SourceStep) != isinstance(
        old, SourceStep
    ):
        raise ChangeError.wrong_kind(str(change), old.id, old.kind, f"a {new.kind} step to be replaced by one")
    if isinstance(new, KeyedStep) and isinstance(old, KeyedStep):
        new = replace(new, parallelism=old.parallelism, ranges=old.ranges, compaction=old.compaction)
        new = replace(new, splits=old.splits if new.keys == old.keys else ())
    if isinstance(new, AggregateStep) and isinstance(old, AggregateStep):
        new = replace(new, output_mode=old.output_mode, windowing=new.windowing or old.windowing)
    if isinstance(new, StatefulStep) and isinstance(old, StatefulStep):
        new = replace(new, timer=old.timer)
    if isinstance(new, SourceStep) and isinstance(old, SourceStep):
        new = replace(new, watermark=old.watermark)
    if isinstance(new, SqlStep) and isinstance(old, SqlStep) and not change.reads:
        new = replace(new, others=old.others)
    draft.put(new, inputs)


def _with_defaults(change: Replace, old: Step) -> Body:
    """What is not said of a keyed step stays."""
    fields: dict[str, Any] = {name: getattr(change, name) for name in Body.__dataclass_fields__}
    if change.build is not None:
        return Body(**fields)
    if isinstance(old, KeyedStep) and change.sql is None:
        fields["key_by"] = change.keys or old.keys
    if isinstance(old, StatefulStep) and change.aggregate is None:
        fields["function"] = change.function or old.function
        fields["per_key"] = change.per_key or old.per_key
        fields["output"] = change.output or old.output
        fields["state"] = change.state or (old.state if old.named else old.state[next(iter(old.state))].schema)
    if isinstance(old, AggregateStep) and change.function is None:
        fields["aggregate"] = change.aggregate or old.aggregates
    return Body(**fields)


def _insert(draft: Draft, change: Insert) -> None:
    if change.id in draft.steps:
        raise ChangeError.id_taken(change.id, draft.steps[change.id].kind)
    step = _make(change.id, change)
    if isinstance(step, KeyedStep):
        step = replace(step, parallelism=change.parallelism, compaction=change.compaction or step.compaction)
    places = [name for name in ("after", "before", "between", "into") if getattr(change, name) is not None]
    if isinstance(step, SourceStep):
        _insert_source(draft, change, step, places)
    elif len(places) != 1 or change.into is not None:
        raise ChangeError.no_place(change.id, places)
    elif change.after is not None:
        draft.step(change.after, str(change))
        readers = [] if change.branch or isinstance(step, SinkStep) else draft.readers(change.after)
        draft.put(step, _inputs(draft, change, change.after))
        draft.rewire(readers, change.after, [change.id])
    else:
        upper, lower = change.between or (_only_input(draft, change), str(change.before))
        draft.step(upper, str(change))
        draft.step(lower, str(change))
        if isinstance(step, SinkStep):
            raise ChangeError.wrong_kind(str(change), step.id, "sink", "placed with after=…: nothing reads a sink")
        if upper not in draft.inputs[lower]:
            raise ChangeError.no_edge(change.id, upper, lower, draft.inputs[lower])
        draft.put(step, _inputs(draft, change, upper))
        draft.rewire([lower], upper, [change.id])


def _inputs(draft: Draft, change: Insert, first: str) -> list[str]:
    """What a new step reads: the step it is put behind, and others it names."""
    for id_ in change.reads:
        draft.step(id_, str(change))
    return [first, *change.reads]


def _insert_source(draft: Draft, change: Insert, step: SourceStep, places: list[str]) -> None:
    if set(places) - {"into"}:
        raise ChangeError.no_place(change.id, places)
    draft.put(step, [])
    if change.into is not None:
        union = draft.step(change.into, str(change))
        if not isinstance(union, UnionStep):
            raise ChangeError.wrong_kind(str(change), union.id, union.kind, "a union")
        draft.inputs[union.id].append(step.id)


def _only_input(draft: Draft, change: Insert) -> str:
    lower = draft.step(str(change.before), str(change))
    inputs = draft.inputs[lower.id]
    if not inputs:
        raise ChangeError.wrong_kind(str(change), lower.id, lower.kind, "a step that reads another")
    if len(inputs) > 1:
        raise ChangeError.several_inputs(str(change), lower.id, inputs)
    return inputs[0]


def _remove(draft: Draft, change: Remove) -> None:
    step = draft.step(change.step, str(change))
    readers, inputs = draft.readers(step.id), draft.inputs[step.id]
    other = [id_ for id_ in readers if not isinstance(draft.steps[id_], UnionStep)]
    if other and not inputs:
        raise ChangeError.wrong_kind(str(change), step.id, step.kind, f"read by unions only, but {other[0]!r} reads it")
    if other and len(inputs) > 1:
        raise ChangeError.several_inputs(str(change), step.id, inputs)
    draft.rewire(readers, step.id, inputs)
    draft.drop(step.id)
    for id_ in readers:
        if not draft.inputs[id_]:
            raise ChangeError.wrong_kind(str(change), id_, draft.steps[id_].kind, "left with something to read")


def _rescale(draft: Draft, change: Rescale) -> None:
    step = _keyed(draft, change.step, str(change))
    try:
        ranges = even_ranges(change.to) if isinstance(change.to, int) else ranges_from(list(change.to))
    except (ValueError, TypeError) as cause:
        raise ChangeError.bad_ranges(step.id, cause) from cause
    if len(ranges) > MOST_PARTITIONS:
        raise ChangeError.bad_ranges(step.id, f"{len(ranges)} partitions are too many")
    even = isinstance(change.to, int)
    draft.put(replace(step, parallelism=len(ranges), ranges=None if even else ranges), draft.inputs[step.id])


def _rebalance(draft: Draft, change: Rebalance) -> None:
    _rescale(draft, Rescale(change.step, list(change.starts or [])))
    if change.splits is not None:
        step = _keyed(draft, change.step, str(change))
        draft.put(replace(step, splits=tuple(change.splits)), draft.inputs[step.id])


def _tune(draft: Draft, change: Tune) -> None:
    """The part of a tuning that belongs to the graph."""
    if change.compaction is None:
        return
    ids = [change.step] if change.step is not None else [i for i, s in draft.steps.items() if isinstance(s, KeyedStep)]
    for id_ in ids:
        step = _keyed(draft, id_, str(change))
        draft.put(replace(step, compaction=change.compaction), draft.inputs[id_])


def _keyed(draft: Draft, id: str, what: str) -> KeyedStep:
    step = draft.step(id, what)
    if not isinstance(step, KeyedStep):
        raise ChangeError.wrong_kind(what, step.id, step.kind, "a step with state")
    return step


def _make(id: str, body: Body) -> Step:
    """The step a body describes, its input left open."""
    keys = body.keys
    match body.given:
        case ["source"]:
            assert body.source is not None
            return SourceStep(id, body.source)
        case ["sink"]:
            assert body.sink is not None
            return _NOWHERE.sink(id, body.sink).sinks[0]
        case ["sql"] if keys is None:
            # Further steps it reads are views of the names they have.
            return SqlStep(id, _NOWHERE.step, str(body.sql), tuple((name, _NOWHERE.step) for name in body.reads))
        case ["aggregate"] if keys is not None:
            aggregates: dict[str, Any] = dict(body.aggregate or {})
            keyed = _NOWHERE.key_by(*keys)
            if body.window is None:
                return keyed.aggregate(id, **aggregates).step
            windowed = keyed.window(body.window, time=body.time, lateness=body.lateness)
            return windowed.aggregate(id, emit=body.emit, **aggregates).step
        case ["aggregate"] if body.window is not None:
            windowed = _NOWHERE.window(body.window, time=body.time, lateness=body.lateness)
            return windowed.aggregate(id, emit=body.emit, **dict[str, Any](body.aggregate or {})).step
        case ["build"]:
            assert body.build is not None
            return _built(id, body.build, len(body.reads))
        case ["function"] if keys is None:
            assert body.function is not None
            return TransformStep(id, _NOWHERE.step, body.function)
        case ["function"] if keys is not None and body.state is not None and body.output is not None:
            assert body.function is not None
            keyed = _NOWHERE.key_by(*keys)
            if body.per_key:
                assert not isinstance(body.state, Mapping)
                return keyed.stateful_per_key(id, body.function, state=body.state, output=body.output).step
            return keyed.stateful(id, body.function, state=body.state, output=body.output).step
        case given:
            raise ChangeError.no_body(id, given, _WAYS)


def _built(id: str, build: Callable[..., Any], others: int) -> Step:
    """The step a function makes of streams: one step, which reads them in their order."""
    streams = [_NOWHERE, *(Stream(Step(f"nowhere.{number}")) for number in range(others))]
    try:
        made = build(*streams)
    except MidstreamError:
        raise
    except Exception as cause:
        raise ChangeError.bad_build(id, f"its function raised {type(cause).__name__}: {cause}") from cause
    step = made.step if isinstance(made, Stream) else made.sinks[0] if isinstance(made, Pipeline) else None
    if step is None or step.id != id:
        given = f"a step named '{step.id}'" if step is not None else f"a {type(made).__name__}"
        raise ChangeError.bad_build(id, f"its function gave {given}")
    if [above.id for above in step.inputs] != [stream.step.id for stream in streams]:
        raise ChangeError.bad_build(id, "its function made several steps, or left a stream unread")
    return step
