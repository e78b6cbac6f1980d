"""Merges that were finished but not committed when a run ended: written down, so that the next run can commit them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict

from midstream.errors import CheckpointError
from midstream.state.compaction import CompactionResult
from midstream.state.segment import SegmentInfo
from midstream.state.store import Store

MERGES = "merges"
FORMAT = 1


def save_merges(store: Store, results: Iterable[CompactionResult]) -> None:
    for result in results:
        body = {
            "format": FORMAT,
            "step": result.step,
            "table": result.table,
            "inputs": sorted(result.inputs),
            "outputs": [asdict(output) for output in result.outputs],
        }
        store.put(f"{MERGES}/{result.id}.json", json.dumps(body).encode())


def take_merges(store: Store) -> list[CompactionResult]:
    """Merges an earlier run left, which are then this one's. A crash before they are committed makes them orphans."""
    paths = [item.path for item in store.list(MERGES)]
    results = [_read(store, path) for path in paths]
    there = {item.path for item in store.list("segments")} if results else set()
    store.delete(paths)
    return [result for result in results if all(output.path in there for output in result.outputs)]


def _read(store: Store, path: str) -> CompactionResult:
    try:
        body = json.loads(store.read(path).to_pybytes())
        if body["format"] > FORMAT:
            raise CheckpointError.newer_format(path, body["format"], FORMAT)
        return CompactionResult(
            id=path.removeprefix(f"{MERGES}/").removesuffix(".json"),
            step=body["step"],
            table=body["table"],
            inputs=frozenset(body["inputs"]),
            outputs=tuple(SegmentInfo(**output) for output in body["outputs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise CheckpointError.damaged_file(path, cause) from cause
