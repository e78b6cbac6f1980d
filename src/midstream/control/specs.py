"""Changes as they are sent, turned into changes as the engine takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from midstream.changes.change import (
    Change,
    ChangeSet,
    Drain,
    Guard,
    Insert,
    Migrate,
    Rebalance,
    Remove,
    Replace,
    Rescale,
    SingleChange,
    Tune,
)
from midstream.control.models import (
    BodySpec,
    ChangeRequest,
    Code,
    CodeSpec,
    DrainSpec,
    InsertSpec,
    MigrateSpec,
    RebalanceSpec,
    RemoveSpec,
    ReplaceSpec,
    RescaleSpec,
    TuneSpec,
)
from midstream.errors import ControlError
from midstream.sinks.base import Sink

Load = Callable[[Code], Any]
"""From code that was sent to the object it names."""

_CHANGES = (Replace, Insert, Remove, Rescale, Rebalance, Tune, Migrate, Drain, ChangeSet)


def change_of(request: ChangeRequest, load: Load) -> Change:
    changes: list[Change] = [_one(spec, load) for spec in request.changes]
    return changes[0] if len(changes) == 1 else ChangeSet(tuple(changes))


def _one(spec: object, load: Load) -> Change:
    match spec:
        case ReplaceSpec():
            body = _body(spec, spec.step, load)
            return Replace(spec.step, **body, rename=spec.rename, on_open_windows=spec.on_open_windows)
        case InsertSpec():
            place = {"after": spec.after, "before": spec.before, "between": spec.between, "into": spec.into}
            body = _body(spec, spec.step, load)
            return Insert(spec.step, **body, **place, branch=spec.branch, parallelism=spec.parallelism)  # type: ignore[arg-type]
        case CodeSpec():
            return _written(spec.code, load(spec.code))
        case _:
            return _plain(spec)


def _plain(spec: object) -> SingleChange:
    """Changes without code."""
    match spec:
        case RemoveSpec():
            return Remove(spec.step, on_open_windows=spec.on_open_windows)
        case RescaleSpec():
            return Rescale(spec.step, spec.to)
        case RebalanceSpec():
            return Rebalance(spec.step, spec.to, split=spec.split)
        case TuneSpec():
            return Tune(**spec.model_dump(exclude={"kind"}))
        case MigrateSpec():
            return Migrate(spec.step, spec.to, spec.instances, from_executor=spec.from_executor)
        case DrainSpec():
            return Drain(spec.executor, host=spec.host, decommission=spec.decommission)
    raise AssertionError(f"no such change: {spec!r}")


def _body(spec: BodySpec, step: str, load: Load) -> dict[str, Any]:
    given = [name for name in ("sql", "aggregate", "code") if getattr(spec, name) is not None]
    if len(given) != 1:
        raise ControlError.one_body(step, given)
    body: dict[str, Any] = {"key_by": spec.key_by, "reads": tuple(spec.reads), "guard": _guard(spec)}
    if spec.code is None:
        return {**body, given[0]: getattr(spec, given[0])}
    loaded = load(spec.code)
    if spec.code.use == "sink" and not isinstance(loaded, Sink) and callable(loaded):
        loaded = loaded()
    if spec.code.use == "sink" and not isinstance(loaded, Sink):
        raise ControlError.wrong_object(spec.code.file, spec.code.name, "a sink, or a function that makes one", loaded)
    if spec.code.use != "sink" and not callable(loaded):
        raise ControlError.wrong_object(spec.code.file, spec.code.name, "a function", loaded)
    return {**body, spec.code.use: loaded}


def _guard(spec: BodySpec) -> Guard | None:
    guard = spec.guard
    if guard is None:
        return None
    return Guard(guard.errors, guard.error_rate, max_epoch_ms=guard.max_epoch_ms, epochs=guard.epochs)


def _written(code: Code, loaded: Any) -> Change:
    change = loaded() if callable(loaded) else loaded
    if not isinstance(change, _CHANGES):
        raise ControlError.wrong_object(
            code.file, code.name, "a change of midstream, or a function that makes one", change
        )
    return change
