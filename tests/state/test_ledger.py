from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from midstream.errors import CheckpointError
from midstream.state.directory import DirectoryStore
from midstream.state.hashspace import even_ranges
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest, SourceTime, StepState, decode_manifest, encode_manifest, manifest_path
from midstream.state.tables import TableKind
from tests.state.model import Table, spec_of


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path)


def manifest(ledger: Ledger, epoch: int) -> Manifest:
    return replace(ledger.beginning(), epoch=epoch)


def test_a_manifest_reads_back_as_it_was_written(store: DirectoryStore) -> None:
    table = Table(store, spec_of(TableKind.LIST))
    table.write([(("a", 1), (1, "x")), ((None, 9), None)])
    table.delete_below(1)
    ledger = Ledger.open(store)
    steps = {"totals": StepState(even_ranges(3), {"t": table.state}, watermark=7, due=9)}
    times = {"bids": SourceTime(5, 1.5), "idle": SourceTime(idle=True)}
    before = replace(manifest(ledger, 0), steps=steps, offsets="v1\n{}", times=times, metrics={"totals": {"rows": 2}})
    assert decode_manifest(encode_manifest(before), "x") == before


def test_epochs_are_committed_once(store: DirectoryStore) -> None:
    ledger = Ledger.open(store)
    assert ledger.last().epoch == -1
    ledger.commit(manifest(ledger, 0))
    ledger.commit(manifest(ledger, 1))
    assert ledger.epochs() == [0, 1]
    assert ledger.last().epoch == 1
    with pytest.raises(CheckpointError, match=r"CHECKPOINT_TAKEN_OVER"):
        ledger.commit(replace(manifest(ledger, 1), committed_at="at another time"))


def test_a_driver_that_was_taken_over_stops_and_names_the_other(store: DirectoryStore) -> None:
    first = Ledger.open(store)
    first.commit(manifest(first, 0))
    second = Ledger.open(store)
    assert second.checkpoint_id == first.checkpoint_id
    assert second.driver.generation == first.driver.generation + 1
    with pytest.raises(CheckpointError) as caught:
        first.commit(manifest(first, 1))
    assert str(second.driver) in str(caught.value)
    assert str(first.driver) in str(caught.value)
    second.commit(manifest(second, 1))


def test_a_manifest_of_a_newer_format_is_left_alone(store: DirectoryStore) -> None:
    ledger = Ledger.open(store)
    body = json.loads(encode_manifest(manifest(ledger, 0)))
    store.put(manifest_path(0), json.dumps({**body, "format": 99}).encode())
    with pytest.raises(CheckpointError, match=r"NEWER_FORMAT.*has format 99"):
        ledger.last()


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"format": 1}', b"\xff\xfe"])
def test_a_damaged_manifest_is_named(store: DirectoryStore, data: bytes) -> None:
    ledger = Ledger.open(store)
    store.put(manifest_path(0), data)
    with pytest.raises(CheckpointError, match=r"DAMAGED_MANIFEST.*manifests/000000000000\.json"):
        ledger.last()
