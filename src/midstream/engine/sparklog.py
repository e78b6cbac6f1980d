"""Spark's own checkpoint (offset log, source logs): beside the manifests, or rebuilt from a remote store.

Spark writes it through Hadoop's file systems, which a PySpark install has for local and shared directories only. For
a remote store it lives in a local scratch directory; every manifest carries the epoch's offsets and names copies of the
source logs, so any machine can rebuild what Spark needs to go on after the last committed epoch.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from midstream.engine.internals import read_offsets
from midstream.state.manifest import Manifest
from midstream.state.store import Store

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


class SparkLog:
    """Where Spark keeps offsets and source logs for a checkpoint."""

    def __init__(self, store: Store, last: Manifest, before: Manifest | None) -> None:
        self._store = store
        local = store.local_path("spark")
        self._mirrored: dict[str, str] = {}
        if local is not None:
            self.directory = local
            return
        self.directory = Path(tempfile.mkdtemp(prefix="midstream-spark-"))
        if last.epoch >= 0:
            self._rebuild(last, before)

    @property
    def is_mirrored(self) -> bool:
        return self._store.local_path("spark") is None

    def offsets(self, epoch: int) -> str:
        return read_offsets(self.directory, epoch)

    def mirror(self, generation: int) -> Mapping[str, str]:
        """Copy source logs written since the last call to a remote store; all live ones, by name."""
        if not self.is_mirrored:
            return {}
        live: dict[str, str] = {}
        for file in sorted(self.directory.rglob("*")):
            name = file.relative_to(self.directory).as_posix()
            if not file.is_file() or not name.startswith(("sources/", "metadata")) or file.name.startswith("."):
                continue
            if name not in self._mirrored:
                target = f"spark/{generation:06d}/{name}"
                self._store.put(target, file.read_bytes())
                self._mirrored[name] = target
            live[name] = self._mirrored[name]
        return live

    def close(self) -> None:
        if self.is_mirrored:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _rebuild(self, last: Manifest, before: Manifest | None) -> None:
        for name, path in last.source_files.items():
            self._write(name, self._store.read(path).to_pybytes())
            self._mirrored[name] = path
        self._write(f"offsets/{last.epoch}", last.offsets.encode())
        self._write(f"commits/{last.epoch}", _COMMIT.encode())
        if before is not None:
            self._write(f"offsets/{before.epoch}", before.offsets.encode())
            self._write(f"commits/{before.epoch}", _COMMIT.encode())

    def _write(self, name: str, data: bytes) -> None:
        target = self.directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
