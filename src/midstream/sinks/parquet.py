"""A directory of Parquet files, one hive-style folder an epoch, each made visible by one rename."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from midstream.errors import SinkError
from midstream.sinks.base import SinkContext, StagedEpoch, StagedFile, StageOptions
from midstream.sinks.columns import relaxed, require_distinct
from midstream.state.directory import DirectoryStore
from midstream.state.store import Store

OWNER = "owner.json"
"""Names the checkpoint and sink that write the directory; lies in the staging directory."""

TEMPORARY_SECONDS = 3600.0
"""The age at which a half-written staged file belongs to a writer that died."""


def parquet(path: str | os.PathLike[str], epoch_column: str = "epoch") -> ParquetSink:
    """Write each epoch to `path/epoch=N/`, a local or shared directory.

    >>> parquet("out/").describe()["kind"]
    'parquet'

    An epoch appears whole or not at all, to any reader: Spark, pyarrow, polars, DuckDB, a glob. An epoch without
    rows makes no folder. When the input is a complete result, the newest epoch is the result.

    Tasks stage files in `.<name>.midstream` beside `path`; it also names the owner, so move the two together.
    """
    return ParquetSink(_local_directory(os.fspath(path)), epoch_column)


@dataclass(frozen=True)
class ParquetSink:
    path: Path
    epoch_column: str

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions()

    @property
    def _staging(self) -> Path:
        # Beside the output and not inside: a folder about to be renamed holds files that end in .parquet already,
        # and `out/**/*.parquet` must not match them.
        return self.path.with_name(f".{self.path.name}.midstream")

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        # The output is as durable as the checkpoint that says it is written.
        fsync = checkpoint.fsync if isinstance(checkpoint, DirectoryStore) else True
        return DirectoryStore(self._staging, fsync=fsync)

    def describe(self) -> dict[str, str]:
        return {"kind": "parquet", "target": str(self.path)}

    def prepare(self, context: SinkContext) -> None:
        require_distinct(context.schema, ignore_case=True)
        self._check_epoch_column(context.schema)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._staging.mkdir(exist_ok=True)
            self._check_device()
            self._take_ownership(context)
            self._check_written_epochs(context)
            DirectoryStore(self._staging).sweep(TEMPORARY_SECONDS)
        except OSError as error:
            raise SinkError.unreachable(str(self.path), error) from error

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        try:
            self._check_ownership(context)
            if staged.files:
                self._publish(context, staged)
            self._sweep(staged.epoch)
        except OSError as error:
            raise SinkError.write_failed(str(self.path), staged.epoch, error) from error

    def _publish(self, context: SinkContext, staged: StagedEpoch) -> None:
        visible = self.path / f"{self.epoch_column}={staged.epoch}"
        if visible.exists():
            self._require_published(visible, staged)
            return
        ready = self._staging / f"ready-{staged.epoch}"
        with suppress(FileExistsError):
            ready.mkdir()
        for file in staged.files:
            moved = ready / _part(file)
            if not _move(self._staging / file.path, moved):
                if visible.exists():  # by a driver that finalises the same epoch at the same time
                    return
                raise SinkError.staged_file_lost(str(self._staging / file.path), staged.epoch)
        durable = isinstance(context.staging, DirectoryStore) and context.staging.fsync
        if durable:
            _sync(ready)
        _rename_directory(ready, visible)
        if durable:
            _sync(self.path)

    def _require_published(self, visible: Path, staged: StagedEpoch) -> None:
        """Publishing moves the staged files, so one still lying there was staged by another run of this epoch, unless
        it was published under the same name."""
        if any((self._staging / file.path).exists() and not (visible / _part(file)).exists() for file in staged.files):
            raise SinkError.ahead(str(self.path), staged.epoch, staged.epoch - 1)

    def _sweep(self, epoch: int) -> None:
        """Remove what attempts of this epoch and of earlier ones have left behind."""
        with os.scandir(self._staging) as entries:
            for entry in entries:
                number = re.fullmatch(r"(?:ready-)?(\d+)", entry.name)
                if number and int(number[1]) <= epoch:
                    # A late attempt may be writing into it: what it adds is removed with a later epoch.
                    shutil.rmtree(entry.path, ignore_errors=True)

    def _check_epoch_column(self, schema: pa.Schema) -> None:
        if not re.fullmatch(r"[^\W_][^/=\\%\s]*", self.epoch_column):
            raise SinkError.bad_epoch_column(self.epoch_column)
        for name in schema.names:
            if name.lower() == self.epoch_column.lower():
                raise SinkError.epoch_column_taken(name, self.epoch_column)

    def _check_device(self) -> None:
        if self.path.stat().st_dev != self._staging.stat().st_dev:
            raise SinkError.staging_on_other_device(str(self.path), str(self._staging))

    def _owner(self, context: SinkContext) -> dict[str, str]:
        return {
            "checkpoint": context.checkpoint_id,
            "sink": context.sink_id,
            "epoch_column": self.epoch_column,
        }

    def _take_ownership(self, context: SinkContext) -> None:
        ours = json.dumps(self._owner(context)).encode()
        marker = self._staging / OWNER
        store = DirectoryStore(self._staging)
        if not self._has_output():
            # Nobody has written here, or the output was removed. A former owner that still runs stops with an error.
            store.put(OWNER, ours)
        elif not marker.exists():
            raise SinkError.unknown_epochs(str(self.path), str(marker))
        self._check_ownership(context)

    def _check_ownership(self, context: SinkContext) -> None:
        ours = self._owner(context)
        owner = json.loads((self._staging / OWNER).read_bytes())
        if owner != ours:
            raise SinkError.owned_by_other(str(self.path), owner, ours)

    def _check_written_epochs(self, context: SinkContext) -> None:
        epochs = self._epochs()
        if not epochs:
            return
        newest = max(epochs)
        if context.last_epoch is not None and newest > context.last_epoch:
            raise SinkError.ahead(str(self.path), newest, context.last_epoch)
        file = next((self.path / f"{self.epoch_column}={newest}").glob("*.parquet"), None)
        if file is not None:
            _check_types(pq.read_schema(file), context.schema, str(self.path))

    def _has_output(self) -> bool:
        """Whether anything looks like an epoch, under any name of the epoch column."""
        return any(re.fullmatch(r"[^=]+=\d+", name) for name in os.listdir(self.path))

    def _epochs(self) -> list[int]:
        pattern = re.compile(re.escape(self.epoch_column) + r"=(\d+)")
        return [int(match[1]) for name in os.listdir(self.path) if (match := pattern.fullmatch(name))]


def _local_directory(path: str) -> Path:
    if path.startswith("file:"):
        path = unquote(urlsplit(path).path)
    if "://" in path:
        raise SinkError.remote_parquet(path)
    directory = Path(os.path.abspath(path))
    if not directory.name:
        raise SinkError.bad_target("parquet", path, "a directory below the root")
    return directory


def _part(file: StagedFile) -> str:
    """The name of a staged file once it is visible."""
    return f"part-{PurePosixPath(file.path).name}.parquet"


def _move(source: Path, target: Path) -> bool:
    """Whether the file is at its target now, moved by this call or an earlier one."""
    try:
        source.rename(target)
    except FileNotFoundError:
        return target.exists()
    return True


def _rename_directory(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        # Another driver that finalises the same epoch was faster.
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST) or not target.exists():
            raise


def _sync(directory: Path) -> None:
    """Make renames in a directory survive a power failure."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_types(written: pa.Schema, coming: pa.Schema, target: str) -> None:
    """Columns may come and go between epochs, but a column with two types makes the directory unreadable."""
    problems = [
        f"column '{field.name}' is {written.field(field.name).type} in the newest epoch and {field.type} in the stream"
        for field in coming
        if field.name in written.names and relaxed(written.field(field.name).type) != relaxed(field.type)
    ]
    if problems:
        raise SinkError.schema_mismatch(
            target, problems, "cast the columns in a step before the sink, or write to a new directory."
        )
