"""The plan log: what each version of the pipeline looked like, and whether a pipeline fits a checkpoint."""

from __future__ import annotations

import json
from typing import Any

from midstream.engine.compile import Compiled
from midstream.engine.schemas import differences
from midstream.errors import CheckpointError
from midstream.graph.steps import SinkStep
from midstream.state.ledger import Ledger, now
from midstream.state.manifest import Manifest, schema_from_json, schema_to_json

PLANS = "plans"
FORMAT = 1


def record_plan(ledger: Ledger, compiled: Compiled, last: Manifest) -> int:
    """The version of this pipeline in the plan log, written when it is new. Raises when it does not fit."""
    known = sorted(item.path for item in ledger.store.list(PLANS))
    described = _describe(compiled)
    if known:
        before = json.loads(ledger.store.read(known[-1]).to_pybytes())
        if before["format"] > FORMAT:
            raise CheckpointError.newer_format(known[-1], before["format"], FORMAT)
        _check_fit(ledger.store.url, before, compiled, last)
        if before["steps"] == described:
            return int(before["version"])
    version = len(known) + 1
    body = {"format": FORMAT, "version": version, "recorded_at": now(), "steps": described}
    ledger.store.create(f"{PLANS}/{version:06d}.json", json.dumps(body, indent=1).encode())
    return version


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
    known = {id_: step for id_, step in before["steps"].items() if step["kind"] == "source"}
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
        if not told and stored[name].spec.keys.names != spec.keys.names:
            told = f"it is keyed by {spec.keys.names}, was by {stored[name].spec.keys.names}"
        if told:
            raise CheckpointError.state_changed(id_, told)


def _named(what: str, ids: Any) -> str:
    return f"{what} {', '.join(sorted(ids)) or 'none'}"
