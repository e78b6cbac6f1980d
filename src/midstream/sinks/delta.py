"""A Delta Lake table: staged files become part of it by one log commit that carries the epoch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, get_args
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from midstream.errors import MidstreamError, SinkError
from midstream.sinks import delta_schema
from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.columns import last_of_each_key, relaxed_schema, require_distinct, upsert_keys
from midstream.sinks.extras import require_extra
from midstream.sinks.staging import epoch_folder, in_checkpoint, read_batches, read_table
from midstream.state.directory import DirectoryStore
from midstream.state.store import Store, open_store

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Schema

DeltaMode = Literal["append", "upsert", "overwrite"]

# deltalake itself retries a commit that only lost the race for a version number. These waits, in seconds, are for
# conflicts after which the table has to be read again, such as a merge with rows that another writer just changed.
RETRY_WAITS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)

TEMPORARY_SECONDS = 3600.0
"""The age at which a half-written staged file belongs to a writer that died."""


def delta(
    uri: str | os.PathLike[str],
    mode: DeltaMode | None = None,
    keys: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSink:
    """Write to the Delta table at `uri`, a directory or `s3://bucket/table`; made when missing.

    >>> delta("warehouse/totals", mode="upsert", keys=["customer"]).describe()["mode"]
    'upsert'

    `append` adds each epoch's rows, `upsert` merges them on `keys` (when not given, those of the keyed step; of several
    rows for a key in one epoch the last stays), `overwrite` replaces the content. Without a mode, complete results
    overwrite and others append. Every commit carries the epoch as an application transaction, so an epoch is in the
    table exactly once, whoever else writes to it.

    Tasks write data files straight into the table's folder and the driver only commits the log. Tables with partitions,
    constraints, NOT NULL or generated columns are written by the driver, from the staged files.
    """
    require_extra("delta", "deltalake")
    if mode is not None and mode not in get_args(DeltaMode):
        raise SinkError.unknown_mode("delta", mode, get_args(DeltaMode))
    return DeltaSink(os.fspath(uri), mode, None if keys is None else tuple(keys), dict(storage_options or {}))


class DeltaSink:
    def __init__(
        self, uri: str, mode: DeltaMode | None, keys: tuple[str, ...] | None, storage_options: dict[str, str]
    ) -> None:
        self._uri = _location(uri)
        self._mode = mode
        self._keys = keys
        self._storage_options = storage_options
        self._table: DeltaTable | None = None

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions(suffix=".parquet", statistics=self._mode != "upsert")

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        if self._mode == "upsert":
            return in_checkpoint(checkpoint, sink_id)
        url = f"{self._uri}/{_folder(checkpoint_id, sink_id)}"
        if "://" in self._uri:
            return open_store(url, _store_options(self._storage_options))
        return open_store(url)

    def describe(self) -> dict[str, str]:
        return {"kind": "delta", "target": self._uri, "mode": self._mode or "append or overwrite"}

    def prepare(self, context: SinkContext) -> None:
        mode = self._mode_for(context)
        if mode == "append" and context.complete:
            raise SinkError.complete_append(context.sink_id)
        if mode == "upsert":
            upsert_keys(self._keys, context)
        require_distinct(context.schema, ignore_case=True)
        schema = delta_schema.to_delta(context.schema)
        try:
            table = self._open(create=schema)
        except Exception as error:
            raise SinkError.unreachable(self._uri, error) from error
        delta_schema.check_columns(table, schema, self._uri)
        if mode != "append" and table.metadata().configuration.get("delta.appendOnly") == "true":
            raise SinkError.append_only(self._uri, mode)
        written = table.transaction_version(_app_id(context))
        if written is not None and context.last_epoch is not None and written > context.last_epoch:
            raise SinkError.ahead(self._uri, written, context.last_epoch)
        if isinstance(context.staging, DirectoryStore):
            context.staging.sweep(TEMPORARY_SECONDS)

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        mode = self._mode_for(context)
        if not staged.files and mode != "overwrite":
            return

        def write(table: DeltaTable, properties: CommitProperties) -> None:
            if mode == "upsert":
                self._merge(table, context, staged, properties)
            elif delta_schema.takes_files(table):
                self._log_files(table, context, staged, mode, properties)
                self._delete_leftovers(context, staged, keep=True)
            else:
                self._rewrite(table, context, staged, mode, properties)
                self._delete_leftovers(context, staged, keep=False)

        self._commit_once(context, staged.epoch, write)

    def _mode_for(self, context: SinkContext) -> DeltaMode:
        return self._mode or ("overwrite" if context.complete else "append")

    def _commit_once(
        self, context: SinkContext, epoch: int, write: Callable[[DeltaTable, CommitProperties], None]
    ) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        app_id = _app_id(context)
        properties = CommitProperties(app_transactions=[Transaction(app_id, epoch)])
        conflict: Exception | None = None
        for wait in RETRY_WAITS:
            time.sleep(wait)
            try:
                table = self._open()
                written = table.transaction_version(app_id)
                if written is None or written < epoch:
                    write(table, properties)
                return
            except CommitFailedError as error:
                conflict = error
            except MidstreamError:
                raise
            except Exception as error:
                self._table = None
                raise SinkError.write_failed(self._uri, epoch, error) from error
        raise SinkError.write_failed(self._uri, epoch, conflict) from conflict

    def _open(self, create: Schema | None = None) -> DeltaTable:
        """The table as it is now; reading only what is new in its log when it was open already."""
        from deltalake import DeltaTable
        from deltalake.exceptions import CommitFailedError, TableNotFoundError

        if self._table is not None and create is None:
            try:
                self._table.update_incremental()
                return self._table
            except Exception:  # for instance, its next versions are cleaned up already: read it anew
                self._table = None
        try:
            self._table = DeltaTable(self._uri, storage_options=self._storage_options)
        except TableNotFoundError:
            if create is None:
                raise
            with suppress(CommitFailedError):  # somebody else has created it in between
                DeltaTable.create(self._uri, create, mode="ignore", storage_options=self._storage_options)
            self._table = DeltaTable(self._uri, storage_options=self._storage_options)
        return self._table

    def _log_files(
        self,
        table: DeltaTable,
        context: SinkContext,
        staged: StagedEpoch,
        mode: DeltaMode,
        properties: CommitProperties,
    ) -> None:
        from deltalake.transaction import AddAction

        folder = _folder(context.checkpoint_id, context.sink_id)
        now = int(time.time() * 1000)
        table.create_write_transaction(
            actions=[
                AddAction(
                    path=f"{folder}/{file.path}",
                    size=file.bytes,
                    partition_values={},
                    modification_time=now,
                    data_change=True,
                    stats=json.dumps(file.stats or {"numRecords": file.rows}),
                )
                for file in staged.files
            ],
            mode=mode,
            schema=table.schema(),
            commit_properties=properties,
        )

    def _rewrite(
        self,
        table: DeltaTable,
        context: SinkContext,
        staged: StagedEpoch,
        mode: DeltaMode,
        properties: CommitProperties,
    ) -> None:
        from deltalake import write_deltalake

        schema = pa.schema(table.schema().to_arrow())
        batches = (delta_schema.fill_columns(batch, schema) for batch in read_batches(context.staging, staged.files))
        write_deltalake(
            table,
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="overwrite" if mode == "overwrite" else "append",
            commit_properties=properties,
        )

    def _merge(
        self, table: DeltaTable, context: SinkContext, staged: StagedEpoch, properties: CommitProperties
    ) -> None:
        keys = upsert_keys(self._keys, context)
        rows = read_table(context.staging, staged.files, relaxed_schema(context.schema))
        names = [_sql_name(name) for name in rows.column_names]
        same_key = " AND ".join(f"(target.{name} IS NOT DISTINCT FROM source.{name})" for name in map(_sql_name, keys))
        every_column = {name: f"source.{name}" for name in names}
        (
            table.merge(
                last_of_each_key(rows, keys),
                same_key,
                source_alias="source",
                target_alias="target",
                commit_properties=properties,
            )
            .when_matched_update(every_column)
            .when_not_matched_insert(every_column)
            .execute()
        )

    def _delete_leftovers(self, context: SinkContext, staged: StagedEpoch, *, keep: bool) -> None:
        """Delete what other attempts of this epoch staged, and the chosen files unless the table's log has them.

        Only right after the commit: later, files that look left over may be in the log (an older checkpoint running
        again, a table altered since). What a crash spares is found by VACUUM.
        """
        chosen = {file.path for file in staged.files} if keep else set()
        staging = context.staging
        staging.delete([info.path for info in staging.list(epoch_folder(staged.epoch)) if info.path not in chosen])


def _app_id(context: SinkContext) -> str:
    return f"midstream/{context.checkpoint_id}/{context.sink_id}"


def _folder(checkpoint_id: str, sink_id: str) -> str:
    """The folder of a table that one sink stages in. VACUUM skips names that begin with an underscore or a dot."""
    return "midstream-" + hashlib.sha256(f"{checkpoint_id}/{sink_id}".encode()).hexdigest()[:16]


def _location(uri: str) -> str:
    """A URL of an object store as it is, a directory as an absolute path (executors may run elsewhere)."""
    if uri.startswith("file:"):
        uri = unquote(urlsplit(uri).path)
    if "://" not in uri:
        return os.path.abspath(uri)
    if not re.match(r"s3a?://", uri):
        raise SinkError.bad_target("delta", uri, "a directory or s3://bucket/table")
    return uri.rstrip("/")


def _store_options(storage_options: Mapping[str, str]) -> dict[str, str]:
    """deltalake's options under the names `open_store` knows: `AWS_ENDPOINT_URL` is `endpoint` there."""
    from midstream.state.s3 import OPTIONS

    other_names = {"endpoint_url": "endpoint", "default_region": "region", "token": "session_token"}
    options = {}
    for name, value in storage_options.items():
        short = name.lower().removeprefix("aws_")
        short = other_names.get(short, short)
        if short in OPTIONS:
            options[short] = value
    return options


def _sql_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
