"""The plan log: what each version of the pipeline looked like, and whether a pipeline fits a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from midstream.engine.compile import Compiled
from midstream.engine.sparklog import DEFAULT_FOLDER, PULSE, LogShape
from midstream.errors import CheckpointError
from midstream.graph.steps import SinkStep
from midstream.schemas import differences
from midstream.state.ledger import Ledger, now, numbered
from midstream.state.manifest import Manifest, schema_from_json, schema_to_json
from midstream.state.tables import TableSpec

PLANS = "plans"
FORMAT = 1


def record_plan(ledger: Ledger, compiled: Compiled, last: Manifest, live: Sequence[int], folder: str) -> int:
    """The version of this pipeline in the plan log, written when it is new. Raises when it does not fit.

    What it must fit is the version of the last epoch; later ones were prepared and never came to run.
    """
    known = last.plan if last.epoch >= 0 else max(numbered(ledger.store, PLANS), default=0)
    if known:
        before = _read(ledger, known)
        _check_fit(ledger.store.url, before, compiled, last)
        if before == _describe(compiled):
            return known
    return add_plan(ledger, compiled, live, folder)


def add_plan(ledger: Ledger, compiled: Compiled, live: Sequence[int], folder: str | None) -> int:
    """A new version in the plan log: the program with the changes that are live in it.

    `folder` is where Spark keeps its log; None for a new one, named after the version.
    """
    number, created = max(numbered(ledger.store, PLANS), default=0), False
    while not created:
        number += 1
        body = {
            "format": FORMAT,
            "version": number,
            "recorded_at": now(),
            "changes": list(live),
            "spark_log": folder or f"{DEFAULT_FOLDER}-{number:06d}",
            "pulse": compiled.pipeline.needs_pulse,
            "steps": _describe(compiled),
        }
        created = ledger.store.create(_path(number), json.dumps(body, indent=1).encode())
    return number


def log_shape(ledger: Ledger, version: int) -> LogShape:
    """Where Spark has kept its log for a version, and of which sources."""
    steps, folder, pulse = _read_whole(ledger, version)
    sources = sorted(id_ for id_, step in steps.items() if step["kind"] == "source")
    return LogShape(folder, (*sources, *([PULSE] if pulse else [])))


def _read(ledger: Ledger, version: int) -> dict[str, Any]:
    """The steps of a version of the pipeline."""
    return _read_whole(ledger, version)[0]


def _read_whole(ledger: Ledger, version: int) -> tuple[dict[str, Any], str, bool]:
    path = _path(version)
    try:
        body = json.loads(ledger.store.read(path).to_pybytes())
        if body["format"] > FORMAT:
            raise CheckpointError.newer_format(path, body["format"], FORMAT)
        steps: dict[str, Any] = body["steps"]
        return (
            {id_: {"kind": step["kind"], **step} for id_, step in steps.items()},
            body["spark_log"],
            body.get("pulse", False),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CheckpointError.damaged_file(path, cause) from cause


def _path(version: int) -> str:
    return f"{PLANS}/{version:06d}.json"


def _describe(compiled: Compiled) -> dict[str, Any]:
    steps: dict[str, Any] = {}
    for step in compiled.pipeline.steps:
        entry: dict[str, Any] = {"kind": step.kind, "inputs": [source.id for source in step.inputs]}
        if isinstance(step, SinkStep):
            entry["target"] = step.sink.describe()
        if step.id in compiled.source_schemas:
            entry["schema"] = schema_to_json(compiled.source_schemas[step.id])
        if step.id in compiled.keyed:
            entry["keys"] = list(compiled.keyed[step.id].step.keys)
        steps[step.id] = entry
    return steps


def _check_fit(url: str, before: dict[str, Any], compiled: Compiled, last: Manifest) -> None:
    known = {id_: step for id_, step in before.items() if step["kind"] == "source"}
    given = compiled.source_schemas
    if set(known) != set(given):
        raise CheckpointError.other_pipeline(url, _named("sources", given), _named("sources", known))
    for id_, schema in given.items():
        told = differences(schema_from_json(known[id_]["schema"]), schema)
        if told:
            raise CheckpointError.source_changed(id_, told)
    gone = [id_ for id_ in last.steps if id_ not in compiled.keyed]
    if gone:
        raise CheckpointError.other_pipeline(
            url, _named("keyed steps", compiled.keyed), _named("keyed steps", last.steps)
        )
    for id_, keyed in compiled.keyed.items():
        if id_ in last.steps:
            _check_tables(id_, keyed.function.tables, last)


def _check_tables(id_: str, tables: Any, last: Manifest) -> None:
    stored = last.steps[id_].tables
    wanted = {spec.name: spec for spec in tables}
    if set(stored) != set(wanted):
        raise CheckpointError.state_changed(id_, f"it keeps the tables {sorted(wanted)}, there are {sorted(stored)}")
    for name, spec in wanted.items():
        told = differences(stored[name].spec.schema, spec.schema)
        told = told or _other_kind(stored[name].spec, spec)
        if told:
            raise CheckpointError.state_changed(id_, told)


def _other_kind(before: TableSpec, after: TableSpec) -> str:
    if before.keys.names != after.keys.names:
        return f"it is keyed by {after.keys.names}, was by {before.keys.names}"
    if before.kind != after.kind:
        return f"the table '{after.name}' is a {after.kind} table, was a {before.kind} table"
    if before.range_column != after.range_column:
        return f"the range column of '{after.name}' is {after.range_column}, was {before.range_column}"
    return ""


def _named(what: str, ids: Any) -> str:
    return f"{what} {', '.join(sorted(ids)) or 'none'}"
