"""Spark's own checkpoint (offset log, source logs): beside the manifests, or rebuilt from a remote store.

Spark writes it through Hadoop's file systems, which a PySpark install has for local and shared directories only. For
a remote store it lives in a local scratch directory; every manifest carries the epoch's offsets and names copies of the
source logs, so any machine can rebuild what Spark needs to go on after the last committed epoch.

Spark knows the sources of a query by their position. A version of the pipeline with other sources therefore has a log
of its own, made of the one before when it is opened first.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from midstream.engine.internals import read_offsets, reshape_offsets
from midstream.errors import CheckpointError
from midstream.state.ledger import Ledger
from midstream.state.manifest import Manifest

DEFAULT_FOLDER = "spark"
PULSE = "~pulse"
"""What the pulse is called among the sources of a query; no step can be."""

_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


@dataclass(frozen=True)
class LogShape:
    """Where the log of some sources lies in the checkpoint, and the order Spark knows them in."""

    folder: str
    sources: tuple[str, ...]


class SparkLog:
    """Where Spark keeps offsets and source logs for a checkpoint."""

    def __init__(self, ledger: Ledger, shape: LogShape, shape_of: Callable[[int], LogShape]) -> None:
        """Open the log behind the last committed epoch. Raises when it is the log of something else.

        `shape_of` tells what the log of a version looked like: epochs so far may have had other sources.
        """
        self._shape_of = shape_of
        self._store = ledger.store
        self._shape = shape
        self._mirrored: dict[str, str] = {}
        local = self._store.local_path(shape.folder)
        if local is not None:
            self.directory = local
            # Before the ledger is read: a driver that is just being replaced writes its manifest first.
            newest = max(_numbers(local / "commits"), default=-1)
            self.last = ledger.last()
            last_shape = shape_of(self.last.plan) if self.last.epoch >= 0 else shape
            if shape != last_shape and not local.exists():
                self._take_over(self._store.local_path(last_shape.folder), last_shape)
            if newest > self.last.epoch:
                raise CheckpointError.other_spark_log(local, f"has come to epoch {newest}", self.last.epoch)
            if self.last.epoch >= 0 and shape == last_shape:
                self.require_offsets(self.last)
            return
        self.directory = Path(tempfile.mkdtemp(prefix="midstream-spark-"))
        self.last = ledger.last()
        if self.last.epoch >= 0:
            before = self.last.epoch - 1
            self._rebuild(self.last, ledger.read(before) if before in ledger.epochs() else None)

    @property
    def is_mirrored(self) -> bool:
        return self._store.local_path(self._shape.folder) is None

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
                target = f"spark/{generation:06d}/{self._shape.folder}/{name}"
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

    def _take_over(self, old: Path | None, old_shape: LogShape) -> None:
        """Make the log of other sources from the one so far, all of it or nothing."""
        assert old is not None
        made = self.directory.with_name(f".{self.directory.name}.{os.getpid()}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        shutil.copy2(old / "metadata", made / "metadata")
        for epoch in (self.last.epoch - 1, self.last.epoch):
            if (old / "offsets" / str(epoch)).exists():
                text = reshape_offsets(read_offsets(old, epoch), old_shape.sources, self._shape.sources)
                _write(made / "offsets" / str(epoch), text.encode())
                _write(made / "commits" / str(epoch), _COMMIT.encode())
        for number, source in enumerate(self._shape.sources):
            if source in old_shape.sources:
                log = old / "sources" / str(old_shape.sources.index(source))
                if log.exists():
                    shutil.copytree(log, made / "sources" / str(number))
        made.rename(self.directory)

    def _rebuild(self, last: Manifest, before: Manifest | None) -> None:
        shape = self._shape_of(last.plan)
        for name, path in last.source_files.items():
            here = _renumbered(name, shape.sources, self._shape.sources)
            if here is not None:
                _write(self.directory / here, self._store.read(path).to_pybytes())
                self._mirrored[here] = path
        for manifest in (before, last):
            if manifest is not None:
                sources = self._shape_of(manifest.plan).sources
                text = reshape_offsets(manifest.offsets, sources, self._shape.sources)
                _write(self.directory / "offsets" / str(manifest.epoch), text.encode())
                _write(self.directory / "commits" / str(manifest.epoch), _COMMIT.encode())


def _renumbered(name: str, old: Sequence[str], new: Sequence[str]) -> str | None:
    """The name of a file of a source's log, under the number the source has now; None when it is gone."""
    parts = name.split("/")
    if parts[0] != "sources":
        return name
    source = old[int(parts[1])]
    return "/".join(["sources", str(new.index(source)), *parts[2:]]) if source in new else None


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)


def _numbers(log: Path) -> Iterator[int]:
    """The epochs a log of Spark holds."""
    if log.is_dir():
        yield from (int(file.name) for file in log.iterdir() if file.name.isdecimal())
