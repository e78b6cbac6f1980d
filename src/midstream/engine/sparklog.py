"""Spark's own checkpoint (offset log, source logs): beside the manifests, or rebuilt from a remote store.

Spark writes it through Hadoop's file systems, which a PySpark install has for local and shared directories only. For
a remote store it lives in a local scratch directory; every manifest carries the epoch's offsets and names copies of the
source logs, so any machine can rebuild what Spark needs to go on after the last committed epoch.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from midstream.engine.internals import read_offsets
from midstream.errors import CheckpointError
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


class SparkLog:
    """Where Spark keeps offsets and source logs for a checkpoint."""

    def __init__(self, ledger: Ledger) -> None:
        """Open the log behind the last committed epoch. Raises when it is the log of something else."""
        self._store = ledger.store
        self._mirrored: dict[str, str] = {}
        local = self._store.local_path("spark")
        if local is not None:
            self.directory = local
            # Before the ledger is read: a driver that is just being replaced writes its manifest first.
            newest = max(_numbers(local / "commits"), default=-1)
            self.last = ledger.last()
            if newest > self.last.epoch:
                raise CheckpointError.other_spark_log(local, f"has come to epoch {newest}", self.last.epoch)
            if self.last.epoch >= 0:
                self.require_offsets(self.last)
            return
        self.directory = Path(tempfile.mkdtemp(prefix="midstream-spark-"))
        self.last = ledger.last()
        if self.last.epoch >= 0:
            before = self.last.epoch - 1
            self._rebuild(self.last, ledger.read(before) if before in ledger.epochs() else None)

    @property
    def is_mirrored(self) -> bool:
        return self._store.local_path("spark") is None

    def offsets(self, epoch: int) -> str:
        return read_offsets(self.directory, epoch)

    def require_offsets(self, manifest: Manifest) -> None:
        """Raise unless Spark planned a committed epoch as the manifest says: with another log rows would be lost."""
        try:
            found = self.offsets(manifest.epoch)
        except FileNotFoundError:
            raise CheckpointError.other_spark_log(self.directory, "does not have it", manifest.epoch) from None
        if found != manifest.offsets:
            raise CheckpointError.other_spark_log(self.directory, "has other offsets for it", manifest.epoch)

    def mirror(self, generation: int) -> Mapping[str, str]:
        """Copy source logs written since the last call to a remote store; all live ones, by name."""
        if not self.is_mirrored:
            return {}
        live: dict[str, str] = {}
        for file in self._live_logs():
            name = file.relative_to(self.directory).as_posix()
            if name not in self._mirrored:
                target = f"spark/{generation:06d}/{name}"
                self._store.put(target, file.read_bytes())
                self._mirrored[name] = target
            live[name] = self._mirrored[name]
        return live

    def _live_logs(self) -> Iterator[Path]:
        """What Spark needs of its logs to go on. A source that merges its log needs the last two merges and what came
        after the first of them: from the two Spark learns how often to merge."""
        for folder in (self.directory, *sorted(self.directory.glob("sources/**/"))):
            files = [file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")]
            merges = sorted(int(file.stem) for file in files if file.suffix == ".compact")
            oldest = merges[-2] if len(merges) > 1 else -1
            yield from (file for file in files if not file.stem.isdecimal() or int(file.stem) >= oldest)

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


def _numbers(log: Path) -> Iterator[int]:
    """The epochs a log of Spark holds."""
    if log.is_dir():
        yield from (int(file.name) for file in log.iterdir() if file.name.isdecimal())
