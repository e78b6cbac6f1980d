"""What the queries must give: computed by DuckDB over the same events, and compared row by row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from midstream.errors import MidstreamError
from midstream.nexmark.events import SCHEMAS, Nexmark

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from midstream.nexmark.queries import Query

_SAMPLES = 3


class Oracle:
    """All events of a stream in an engine of its own."""

    def __init__(self, stream: Nexmark, events: int) -> None:
        self._duckdb = _connect()
        for kind in SCHEMAS:
            table = stream.table(kind, 0, events)
            self._duckdb.register("made", table)
            self._duckdb.execute(f"CREATE TABLE {kind} AS SELECT * FROM made")
            self._duckdb.unregister("made")
        latest = ", ".join(f"(SELECT max(date_time) FROM {kind}) AS {kind}" for kind in SCHEMAS)
        self._duckdb.execute(f"CREATE TABLE watermark AS SELECT {latest}")

    def differences(self, query: Query, given: pa.Table | Path) -> list[str]:
        """How rows differ from what a query must give; empty when they do not. They carry the number of the epoch in a
        column `epoch`, and are a table or the folder a Parquet sink has written."""
        self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS {query.sql}")
        columns = self._duckdb.execute("DESCRIBE wanted").fetchall()
        self._take(given)
        of_last = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(query.keys)} ORDER BY epoch DESC) = 1"
        chosen = ", ".join(_comparable(name, kind) for name, kind, *_ in columns)
        theirs = f"SELECT {chosen} FROM wanted"
        if query.keys:
            self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM given {of_last}")
        ours = f"SELECT {chosen} FROM ({query.compared})"
        return [
            *self._only("only in the result", ours, theirs),
            *self._only("missing in the result", theirs, ours),
        ]

    def rows(self, query: Query) -> int:
        """How many rows a query must give."""
        return self._count(f"({query.sql})")

    def _take(self, given: pa.Table | Path) -> None:
        if isinstance(given, Path):
            files = f"read_parquet('{given}/*/*.parquet', hive_partitioning = true)"
            self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM {files}")
            return
        self._duckdb.register("found", given)
        self._duckdb.execute("CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM found")
        self._duckdb.unregister("found")

    def _only(self, what: str, these: str, those: str) -> list[str]:
        self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE alone AS {these} EXCEPT ALL {those}")
        count = self._count("alone")
        if not count:
            return []
        samples = self._duckdb.execute(f"SELECT * FROM alone LIMIT {_SAMPLES}").fetchall()
        return [f"{count} rows {what}, such as {', '.join(map(str, samples))}"]

    def _count(self, rows: str) -> int:
        found = self._duckdb.execute(f"SELECT count(*) FROM {rows}").fetchone()
        assert found is not None
        return int(found[0])


def _comparable(name: str, kind: str) -> str:
    """A column as both engines have it: the last digits of a mean depend on the order of its rows."""
    if kind in ("DOUBLE", "FLOAT"):
        return f"CAST(round(CAST({name} AS DOUBLE), 3) AS DOUBLE) AS {name}"
    return f"CAST({name} AS {kind}) AS {name}"


def _connect() -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError as error:
        raise MidstreamError(
            "NO_DUCKDB",
            "The results of NEXMark are compared with those of DuckDB, which is not installed.",
            hint="pip install 'midstream[nexmark]'",
        ) from error
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    return connection
