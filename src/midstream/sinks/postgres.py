"""A PostgreSQL table: the rows of an epoch and the epoch's number in one transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa

from midstream.errors import SinkError
from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.columns import require_distinct, upsert_keys
from midstream.sinks.extras import require_extra
from midstream.sinks.postgres_table import (
    Column,
    TableName,
    check_columns,
    check_names,
    check_unique_index,
    create_table,
    read_columns,
)
from midstream.sinks.postgres_types import to_csv
from midstream.sinks.staging import in_checkpoint, read_batches
from midstream.state.store import Store

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier

PostgresMode = Literal["append", "upsert", "overwrite"]

EPOCHS = "midstream_epochs"

# In seconds. Long enough for a restart of the server or a failover of its pool to pass unnoticed.
RETRY_WAITS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)

CONNECT_SECONDS = 10


def postgres(dsn: str, table: str, mode: PostgresMode | None = None, keys: Sequence[str] | None = None) -> PostgresSink:
    """Write to a PostgreSQL table, made when missing (its column types: `midstream.sinks.postgres_types`).

    >>> postgres("postgresql://etl@db/shop", "totals", mode="upsert", keys=["customer"]).describe()["target"]
    'postgresql://etl@db/shop, table totals'

    `append` adds each epoch's rows, `upsert` inserts or updates by `keys` (when not given, those of the keyed step; of
    several rows for a key in one epoch the last stays), `overwrite` replaces the content. Without a mode, complete
    results overwrite and others append. An epoch is written by one transaction that also records its number in
    `midstream_epochs`, in the schema of the table, so it is there exactly once.

    Names are taken literally; an upsert needs a unique index on its keys, with NULLS NOT DISTINCT if keys may be null.
    """
    require_extra("postgres", "psycopg")
    if mode is not None and mode not in get_args(PostgresMode):
        raise SinkError.unknown_mode("postgres", mode, get_args(PostgresMode))
    return PostgresSink(dsn, TableName.parse(table), mode, None if keys is None else tuple(keys))


class PostgresSink:
    def __init__(self, dsn: str, table: TableName, mode: PostgresMode | None, keys: tuple[str, ...] | None) -> None:
        self._parameters = _parse(dsn)
        self._table = table
        self._mode = mode
        self._keys = keys

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions()

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        return in_checkpoint(checkpoint, sink_id)

    def describe(self) -> dict[str, str]:
        return {"kind": "postgres", "target": self._target, "mode": self._mode or "append or overwrite"}

    def prepare(self, context: SinkContext) -> None:
        mode = self._mode_for(context)
        if mode == "append" and context.complete:
            raise SinkError.complete_append(context.sink_id)
        keys = upsert_keys(self._keys, context) if mode == "upsert" else None
        require_distinct(context.schema, ignore_case=False)
        check_names(context.schema)
        import psycopg

        try:
            with self._connect() as connection:
                self._prepare_tables(connection, context, keys)
        except psycopg.Error as error:
            raise SinkError.unreachable(self._target, self._without_password(error)) from error

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        if not staged.files and self._mode_for(context) != "overwrite":
            return
        import psycopg

        lost: psycopg.Error | None = None
        for wait in RETRY_WAITS:
            time.sleep(wait)
            try:
                with self._connect() as connection:
                    self._write_once(connection, context, staged)
                return
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                # Also when the answer to a commit got lost: the next attempt finds the epoch written.
                lost = error
            except psycopg.Error as error:
                raise SinkError.write_failed(self._target, staged.epoch, self._without_password(error)) from error
        raise SinkError.write_failed(self._target, staged.epoch, self._without_password(lost)) from lost

    def _mode_for(self, context: SinkContext) -> PostgresMode:
        return self._mode or ("overwrite" if context.complete else "append")

    @property
    def _epochs(self) -> Identifier:
        return self._table.sibling(EPOCHS).sql

    def _prepare_tables(self, connection: Connection[Any], context: SinkContext, keys: tuple[str, ...] | None) -> None:
        from psycopg.sql import SQL

        # Two pipelines that start together must not both create a table.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('midstream'))")
        if not read_columns(connection, self._table.sibling(EPOCHS)):
            columns_of_epochs = SQL("checkpoint text, sink text, epoch bigint NOT NULL, PRIMARY KEY (checkpoint, sink)")
            connection.execute(SQL("CREATE TABLE {} ({})").format(self._epochs, columns_of_epochs))
        columns = read_columns(connection, self._table)
        if not columns:
            create_table(connection, self._table, context.schema, keys)
        else:
            check_columns(columns, context.schema, self._table)
            if keys:
                check_unique_index(connection, self._table, columns, keys)
        written = self._lock_epoch(connection, context)
        if context.last_epoch is not None and written > context.last_epoch:
            raise SinkError.ahead(self._target, written, context.last_epoch)

    def _write_once(self, connection: Connection[Any], context: SinkContext, staged: StagedEpoch) -> None:
        from psycopg.sql import SQL

        if self._lock_epoch(connection, context) >= staged.epoch:
            return
        mode = self._mode_for(context)
        columns = self._target_columns(connection, context.schema)
        if mode == "upsert":
            self._upsert(connection, context, staged, columns, upsert_keys(self._keys, context))
        else:
            if mode == "overwrite":
                # Not TRUNCATE, which readers with an older snapshot would see.
                connection.execute(SQL("DELETE FROM {}").format(self._table.sql))
            _copy(connection, self._table.sql, columns, context, staged)
        connection.execute(
            SQL("UPDATE {} SET epoch = %s WHERE checkpoint = %s AND sink = %s").format(self._epochs),
            (staged.epoch, context.checkpoint_id, context.sink_id),
        )

    def _lock_epoch(self, connection: Connection[Any], context: SinkContext) -> int:
        """The last epoch written, -1 when none; another driver with the same one waits until we are done."""
        from psycopg.sql import SQL

        ours = (context.checkpoint_id, context.sink_id)
        connection.execute(SQL("INSERT INTO {} VALUES (%s, %s, -1) ON CONFLICT DO NOTHING").format(self._epochs), ours)
        row = connection.execute(
            SQL("SELECT epoch FROM {} WHERE checkpoint = %s AND sink = %s FOR UPDATE").format(self._epochs),
            ours,
        ).fetchone()
        return int(row[0]) if row else -1

    def _target_columns(self, connection: Connection[Any], schema: pa.Schema) -> list[Column]:
        columns = read_columns(connection, self._table)
        check_columns(columns, schema, self._table)
        return [columns[name] for name in schema.names]

    def _upsert(
        self,
        connection: Connection[Any],
        context: SinkContext,
        staged: StagedEpoch,
        columns: list[Column],
        keys: tuple[str, ...],
    ) -> None:
        from psycopg.sql import SQL, Identifier

        staged_rows = Identifier("pg_temp", "midstream_staged")
        order = Identifier(_unused("midstream_order", context.schema.names))
        names = SQL(", ").join(Identifier(column.name) for column in columns)
        key_names = SQL(", ").join(map(Identifier, keys))
        connection.execute(
            SQL("CREATE TEMP TABLE midstream_staged ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                names, self._table.sql
            )
        )
        connection.execute(
            SQL("ALTER TABLE {} ADD COLUMN {} bigint GENERATED ALWAYS AS IDENTITY").format(staged_rows, order)
        )
        _copy(connection, staged_rows, columns, context, staged)
        connection.execute(
            SQL(
                "INSERT INTO {table} ({names}) SELECT DISTINCT ON ({keys}) {names} FROM {staged}"
                " ORDER BY {keys}, {order} DESC ON CONFLICT ({keys}) {action}"
            ).format(
                table=self._table.sql,
                names=names,
                keys=key_names,
                staged=staged_rows,
                order=order,
                action=_update([column.name for column in columns if column.name not in keys]),
            )
        )

    def _connect(self) -> Connection[Any]:
        import psycopg

        parameters = {"connect_timeout": CONNECT_SECONDS, "application_name": "midstream", **self._parameters}
        return psycopg.connect("", **{**parameters, "client_encoding": "UTF8"})

    @property
    def _target(self) -> str:
        shown = {name: value for name, value in self._parameters.items() if name in ("user", "host", "port", "dbname")}
        user = f"{shown['user']}@" if "user" in shown else ""
        port = f":{shown['port']}" if "port" in shown else ""
        return f"postgresql://{user}{shown.get('host', '')}{port}/{shown.get('dbname', '')}, table {self._table}"

    def _without_password(self, error: object) -> str:
        password = self._parameters.get("password")
        return str(error).replace(str(password), "***") if password else str(error)


def _parse(dsn: str) -> dict[str, Any]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        return conninfo_to_dict(dsn)
    except psycopg.Error:
        raise SinkError.bad_dsn() from None


def _copy(
    connection: Connection[Any],
    table: Identifier,
    columns: list[Column],
    context: SinkContext,
    staged: StagedEpoch,
) -> None:
    from psycopg.sql import SQL, Identifier

    statement = SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(
        table, SQL(", ").join(Identifier(column.name) for column in columns)
    )
    type_names = [column.type_name for column in columns]
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in read_batches(context.staging, staged.files):
            copy.write(memoryview(to_csv(batch, type_names)))


def _update(names: list[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    if not names:
        return SQL("DO NOTHING").format()
    assignments = [SQL("{0} = EXCLUDED.{0}").format(Identifier(name)) for name in names]
    return SQL("DO UPDATE SET {}").format(SQL(", ").join(assignments))


def _unused(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name
