"""The target table of a PostgreSQL sink: made when missing, checked when there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from midstream.errors import SinkError
from midstream.sinks.postgres_types import column_type, fits

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed, Identifier

LONGEST_NAME = 63
"""PostgreSQL cuts longer names without an error, so that two columns could become one."""

NULLS_NOT_DISTINCT_SINCE = 15


@dataclass(frozen=True)
class TableName:
    """A table, with its schema when one was given; both are taken literally, upper case stays upper case."""

    schema: str | None
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """From `table`, `schema.table`, or with quotes around parts that hold dots.

        >>> TableName.parse('sales."daily.totals"')
        TableName(schema='sales', table='daily.totals')
        """
        part = r'(?:"((?:[^"]|"")+)"|([^".]+))'
        match = re.fullmatch(rf"(?:{part}\.)?{part}", text)
        if match is None:
            raise SinkError.bad_target("postgres", text, "table or schema.table")
        quoted_schema, plain_schema, quoted_table, plain_table = match.groups()
        schema = _unquoted(quoted_schema) or plain_schema
        return cls(schema, _unquoted(quoted_table) or plain_table)

    def __str__(self) -> str:
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    def sibling(self, table: str) -> TableName:
        return TableName(self.schema, table)

    @property
    def sql(self) -> Identifier:
        from psycopg.sql import Identifier

        return Identifier(self.table) if self.schema is None else Identifier(self.schema, self.table)


@dataclass(frozen=True)
class Column:
    """A column as the catalogue has it: `type_name` is that of `pg_type`, arrays with an underscore before."""

    name: str
    type_name: str
    category: str
    shown_type: str
    not_null: bool
    has_default: bool
    generated: bool


def read_columns(connection: Connection[Any], name: TableName) -> dict[str, Column]:
    """The columns of the table, none when it does not exist."""
    rows = connection.execute(
        """
        SELECT attribute.attname, base.typname, base.typcategory,
               format_type(attribute.atttypid, attribute.atttypmod), attribute.attnotnull,
               attribute.atthasdef OR attribute.attidentity <> '',
               attribute.attgenerated <> '' OR attribute.attidentity = 'a'
        FROM pg_attribute AS attribute
        JOIN pg_type AS type ON type.oid = attribute.atttypid
        JOIN pg_type AS base ON base.oid = CASE type.typtype WHEN 'd' THEN type.typbasetype ELSE type.oid END
        WHERE attribute.attrelid = to_regclass(%s) AND attribute.attnum > 0 AND NOT attribute.attisdropped
        ORDER BY attribute.attnum
        """,
        (name.sql.as_string(connection),),
    ).fetchall()
    return {row[0]: Column(*row) for row in rows}


def create_table(connection: Connection[Any], name: TableName, schema: pa.Schema, keys: Sequence[str] | None) -> None:
    """Make the table from the Arrow schema, with a unique index on the keys of an upsert."""
    from psycopg.sql import SQL, Identifier

    columns = []
    for field in schema:
        kind = column_type(field.type)
        if kind is None:
            raise SinkError.unsupported_type("PostgreSQL", field.name, field.type)
        columns.append(SQL("{} {}").format(Identifier(field.name), SQL(kind)))
    version = connection.info.server_version // 10_000
    if keys and version < NULLS_NOT_DISTINCT_SINCE:
        raise SinkError.old_postgres(version)
    connection.execute(SQL("CREATE TABLE {} ({})").format(name.sql, SQL(", ").join(columns)))
    if keys:
        connection.execute(_index_statement(name, keys))


def check_columns(columns: dict[str, Column], schema: pa.Schema, name: TableName) -> None:
    """Every column of the stream has its place in the table, and the table needs no others."""
    problems = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            problems.append(f"column '{field.name}' is not in the table")
        elif column.generated:
            problems.append(f"column '{field.name}' of the table is generated and cannot be written")
        elif not fits(field.type, column.type_name, column.category):
            problems.append(f"column '{field.name}' is {column.shown_type} in the table and {field.type} in the stream")
    problems += [
        f"column '{column.name}' of the table is NOT NULL without a default and not in the stream"
        for column in columns.values()
        if column.not_null and not column.has_default and column.name not in schema.names
    ]
    if problems:
        hint = "select and cast columns in a step before the sink, or alter the table."
        raise SinkError.schema_mismatch(f"table {name}", problems, hint)


def check_names(schema: pa.Schema) -> None:
    problems = [
        f"column '{column}' has a name of more than {LONGEST_NAME} bytes"
        for column in schema.names
        if len(column.encode()) > LONGEST_NAME
    ]
    if problems:
        raise SinkError.schema_mismatch("PostgreSQL", problems, "rename the columns in a step before the sink.")


def check_unique_index(
    connection: Connection[Any], name: TableName, columns: dict[str, Column], keys: Sequence[str]
) -> None:
    """An upsert needs a unique index on exactly its keys, one that holds two nulls for equal."""
    # Through JSON, because `indnullsnotdistinct` is no column before version 15.
    indexes = connection.execute(
        """
        SELECT to_jsonb(index) ->> 'indnullsnotdistinct' = 'true', array_agg(attribute.attname::text)
        FROM pg_index AS index
        JOIN pg_attribute AS attribute ON attribute.attrelid = index.indrelid
         AND attribute.attnum = ANY (index.indkey[0:index.indnkeyatts - 1])
        WHERE index.indrelid = to_regclass(%s) AND index.indisunique AND index.indisvalid AND index.indimmediate
          AND index.indpred IS NULL AND index.indexprs IS NULL
        GROUP BY index.indexrelid, to_jsonb(index)
        """,
        (name.sql.as_string(connection),),
    ).fetchall()
    usable = [nulls_equal for nulls_equal, names in indexes if set(names) == set(keys)]
    wanted = _index_statement(name, keys).as_string(connection)
    if not usable:
        raise SinkError.no_unique_index(str(name), keys, wanted)
    if not any(usable) and not all(columns[key].not_null for key in keys):
        raise SinkError.nulls_distinct(str(name), keys, wanted)


def _index_statement(name: TableName, keys: Sequence[str]) -> Composed:
    from psycopg.sql import SQL, Identifier

    return SQL("CREATE UNIQUE INDEX ON {} ({}) NULLS NOT DISTINCT").format(
        name.sql, SQL(", ").join(map(Identifier, keys))
    )


def _unquoted(part: str | None) -> str | None:
    return part.replace('""', '"') if part is not None else None
