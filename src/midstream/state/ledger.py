"""The ledger of a checkpoint: its manifests, its drivers, and the one atomic step that commits an epoch."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from midstream.errors import CheckpointError, StoreError
from midstream.state.manifest import (
    MANIFESTS,
    Driver,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_path,
)
from midstream.state.store import Store

DRIVERS = "drivers"
IDENTITY = "checkpoint.json"
FORMAT = 1


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Ledger:
    """A checkpoint held by one driver. A driver that starts later takes it over; the earlier one then stops."""

    store: Store
    checkpoint_id: str
    driver: Driver

    @classmethod
    def open(cls, store: Store) -> Ledger:
        """Take the checkpoint, making it when there is none."""
        fresh = {"format": FORMAT, "checkpoint_id": uuid.uuid4().hex, "created_at": now()}
        store.create(IDENTITY, json.dumps(fresh).encode())
        checkpoint_id = _read_identity(store)
        generation = max(_generations(store), default=0) + 1
        while True:
            driver = Driver(generation, socket.gethostname(), os.getpid(), now())
            entry = json.dumps(asdict(driver)).encode()
            if store.create(_driver_path(generation), entry):
                if store.create(_driver_path(generation), entry):
                    # Some S3 servers take the condition and ignore it. Every commit rests on it, so find out now.
                    raise StoreError.no_atomic_create(store.url, "it created the same object twice")
                return cls(store, checkpoint_id, driver)
            generation += 1

    def release(self) -> None:
        """Give the checkpoint back to the driver before this one. Only for a driver that has committed nothing."""
        self.store.delete([_driver_path(self.driver.generation)])

    def beginning(self) -> Manifest:
        """The state of a checkpoint no epoch was committed to."""
        return Manifest(self.checkpoint_id, -1, 0, self.driver, now())

    def epochs(self) -> list[int]:
        return committed_epochs(self.store)

    def read(self, epoch: int) -> Manifest:
        return read_manifest(self.store, epoch)

    def last(self) -> Manifest:
        epochs = self.epochs()
        return self.read(epochs[-1]) if epochs else self.beginning()

    def commit(self, manifest: Manifest) -> int:
        """Make an epoch real, or raise when another driver did. Gives the bytes written."""
        holder = self.holder()
        if holder != self.driver:
            raise CheckpointError.taken_over(self.driver, holder, manifest.epoch)
        data = encode_manifest(manifest)
        path = manifest_path(manifest.epoch)
        # A store may try again after an answer that got lost, and then finds what it put itself.
        if not self.store.create(path, data) and self.store.read(path).to_pybytes() != data:
            raise CheckpointError.taken_over(self.driver, self.read(manifest.epoch).driver, manifest.epoch)
        return len(data)

    def holder(self) -> Driver:
        """The driver that started last: the checkpoint is its."""
        newest = max(_generations(self.store), default=0)
        if newest <= self.driver.generation:
            return self.driver
        path = _driver_path(newest)
        try:
            return Driver(**json.loads(self.store.read(path).to_pybytes()))
        except (ValueError, TypeError) as cause:
            raise CheckpointError.damaged_file(path, cause) from cause


def committed_epochs(store: Store) -> list[int]:
    return numbered(store, MANIFESTS)


def read_manifest(store: Store, epoch: int) -> Manifest:
    path = manifest_path(epoch)
    return decode_manifest(store.read(path).to_pybytes(), path)


def _driver_path(generation: int) -> str:
    return f"{DRIVERS}/{generation:06d}.json"


def _generations(store: Store) -> list[int]:
    return numbered(store, DRIVERS)


def numbered(store: Store, folder: str) -> list[int]:
    """The numbers that name the files of a folder. What file systems and copying tools leave there is not ours."""
    names = (item.path.removeprefix(f"{folder}/").removesuffix(".json") for item in store.list(folder))
    return [int(name) for name in names if name.isdecimal()]


def _read_identity(store: Store) -> str:
    try:
        identity = json.loads(store.read(IDENTITY).to_pybytes())
        if identity["format"] > FORMAT:
            raise CheckpointError.newer_format(IDENTITY, identity["format"], FORMAT)
        return str(identity["checkpoint_id"])
    except (ValueError, KeyError, TypeError) as cause:
        raise CheckpointError.damaged_file(IDENTITY, cause) from cause
