"""The manifest: the small JSON file that *is* the checkpoint of one epoch.

Creating it, if absent, is the one commit point: state, offsets, staged sink files and plan version of an epoch become
real together or not at all. `docs/format.md` specifies every field.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.state.conversion import Conversion
from midstream.state.hashspace import HashRange, ranges_from
from midstream.state.heat import Heat, HotKeys
from midstream.state.ranges import RangeDelete, drops_freely
from midstream.state.segment import SegmentInfo
from midstream.state.splits import Split
from midstream.state.tables import TableKind, TableSpec

FORMAT = 2
"""What is read. A manifest without split keys is written as format 1, which has none."""
MANIFESTS = "manifests"


@dataclass(frozen=True)
class TableState:
    """A table as of an epoch: its segments, oldest first, its deletes by range, and how many rows live in it.

    `conversions` lead from the first schema it had to that of `spec`; a segment says where in them its rows are.
    """

    spec: TableSpec
    segments: tuple[SegmentInfo, ...] = ()
    range_deletes: tuple[RangeDelete, ...] = ()
    rows: int = 0
    conversions: tuple[Conversion, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)


@dataclass(frozen=True)
class SourceTime:
    """How far event time has come in a source, in microseconds since 1970; None as long as it has given no time.

    `rows_at` is when it last gave rows, in seconds by the driver's clock. An idle source holds nobody back.
    """

    watermark: int | None = None
    rows_at: float | None = None
    idle: bool = False


@dataclass(frozen=True)
class StepState:
    """What a keyed step has at an epoch: the ranges of its partitions, its tables, and how busy each bin has been.

    A step with event time also has its watermark, and the end of the first of its windows that are due next.
    """

    ranges: tuple[HashRange, ...]
    tables: Mapping[str, TableState]
    heat: Heat | None = None
    watermark: int | None = None
    due: int | None = None
    splits: tuple[Split, ...] = ()
    """Keys that are in parts."""
    hot: HotKeys = field(default_factory=HotKeys)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables.values())

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())


@dataclass(frozen=True)
class Driver:
    """Who committed: named in the error of a driver that lost. `generation` rises with every start on a checkpoint."""

    generation: int
    host: str
    pid: int
    started_at: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started_at} (generation {self.generation})"


@dataclass(frozen=True)
class StagedFile:
    """One file a task staged for a sink; `path` is relative to the sink's staging store."""

    path: str
    rows: int
    bytes: int
    stats: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """Everything true at the end of one epoch. Epoch -1 is the empty beginning and is never written."""

    checkpoint_id: str
    epoch: int
    plan: int
    driver: Driver
    committed_at: str
    offsets: str = ""
    steps: Mapping[str, StepState] = field(default_factory=dict)
    sinks: Mapping[str, tuple[StagedFile, ...]] = field(default_factory=dict)
    times: Mapping[str, SourceTime] = field(default_factory=dict)
    source_files: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """Every segment and every copy of a source log this manifest needs."""
        return {
            segment.path for step in self.steps.values() for table in step.tables.values() for segment in table.segments
        }.union(self.source_files.values())

    @property
    def state_bytes(self) -> int:
        return sum(step.bytes for step in self.steps.values())

    @property
    def state_rows(self) -> int:
        return sum(step.rows for step in self.steps.values())


def manifest_path(epoch: int) -> str:
    return f"{MANIFESTS}/{epoch:012d}.json"


def encode_manifest(manifest: Manifest) -> bytes:
    body = {
        "format": FORMAT if any(step.splits for step in manifest.steps.values()) else 1,
        "checkpoint_id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "plan": manifest.plan,
        "driver": asdict(manifest.driver),
        "committed_at": manifest.committed_at,
        "offsets": manifest.offsets,
        "times": {id_: asdict(time) for id_, time in manifest.times.items()},
        "steps": {id_: _step_to_json(step) for id_, step in manifest.steps.items()},
        "sinks": {id_: [asdict(file) for file in files] for id_, files in manifest.sinks.items()},
        "source_files": dict(manifest.source_files),
        "metrics": dict(manifest.metrics),
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode_manifest(data: bytes, path: str) -> Manifest:
    try:
        body = json.loads(data)
        if body["format"] > FORMAT:
            raise CheckpointError.newer_format(path, body["format"], FORMAT)
        return Manifest(
            checkpoint_id=body["checkpoint_id"],
            epoch=body["epoch"],
            plan=body["plan"],
            driver=Driver(**body["driver"]),
            committed_at=body["committed_at"],
            offsets=body["offsets"],
            times={id_: SourceTime(**time) for id_, time in body.get("times", {}).items()},
            steps={id_: _step_from_json(step) for id_, step in body["steps"].items()},
            sinks={id_: tuple(StagedFile(**file) for file in files) for id_, files in body["sinks"].items()},
            source_files=body["source_files"],
            metrics=body["metrics"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, zlib.error) as cause:
        raise CheckpointError.damaged_manifest(path, cause) from cause


def _step_to_json(step: StepState) -> dict[str, Any]:
    return {
        "ranges": [r.start for r in step.ranges],
        "tables": {name: _table_to_json(table) for name, table in step.tables.items()},
        "heat": step.heat.encode() if step.heat is not None else None,
        "watermark": step.watermark,
        "due": step.due,
        "splits": [asdict(split) for split in step.splits],
        "hot": step.hot.encode(),
    }


def _step_from_json(body: dict[str, Any]) -> StepState:
    tables = {name: _table_from_json(name, table) for name, table in body["tables"].items()}
    heat = body.get("heat")
    return StepState(
        ranges_from(body["ranges"]),
        tables,
        Heat.decode(heat) if heat is not None else None,
        body.get("watermark"),
        body.get("due"),
        tuple(Split(**split) for split in body.get("splits", ())),
        HotKeys.decode(body.get("hot", ())),
    )


def _table_to_json(table: TableState) -> dict[str, Any]:
    return {
        "kind": str(table.spec.kind),
        "keys": schema_to_json(table.spec.keys),
        "values": schema_to_json(table.spec.values),
        "range_column": table.spec.range_column,
        "rows": table.rows,
        "range_deletes": [asdict(delete) for delete in table.range_deletes],
        "segments": [asdict(segment) for segment in table.segments],
        "conversions": [_conversion_to_json(conversion) for conversion in table.conversions],
    }


def _table_from_json(name: str, body: dict[str, Any]) -> TableState:
    spec = TableSpec(
        name=name,
        keys=schema_from_json(body["keys"]),
        values=schema_from_json(body["values"]),
        kind=TableKind(body["kind"]),
        range_column=body["range_column"],
    )
    return TableState(
        spec=spec,
        segments=tuple(SegmentInfo(**segment) for segment in body["segments"]),
        range_deletes=tuple(RangeDelete(**delete) for delete in body["range_deletes"]),
        rows=body["rows"],
        conversions=tuple(_conversion_from_json(conversion) for conversion in body.get("conversions", ())),
    )


def _conversion_to_json(conversion: Conversion) -> dict[str, Any]:
    return {
        "values": schema_to_json(conversion.values),
        "rename": dict(conversion.rename),
        "code": base64.b64encode(conversion.code).decode() if conversion.code else None,
    }


def _conversion_from_json(body: dict[str, Any]) -> Conversion:
    code = base64.b64decode(body["code"]) if body["code"] else None
    return Conversion(schema_from_json(body["values"]), body["rename"], code)


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """A schema twice: as text for people, as Arrow's own bytes for the reader."""
    return {
        "columns": {column.name: str(column.type) for column in schema},
        "arrow": base64.b64encode(schema.serialize()).decode(),
    }


def schema_from_json(body: Mapping[str, Any]) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["arrow"])))


def with_range_delete(table: TableState, below: Any, epoch: int) -> TableState:
    """Delete by range: lower bounds that the new one covers are dropped, and so are segments wholly below it."""
    kept = tuple(delete for delete in table.range_deletes if delete.below > below)
    segments = table.segments
    if drops_freely(table.spec):
        segments = tuple(s for s in segments if s.high is None or s.epoch_to > epoch or s.high >= below)
    return replace(table, range_deletes=(*kept, RangeDelete(below, epoch)), segments=segments)
