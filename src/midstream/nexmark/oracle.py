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
_END = "TIMESTAMPTZ '9999-01-01 00:00:00+00'"


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
        self._duckdb.execute(f"CREATE TABLE reached AS SELECT {latest}")
        self._duckdb.execute(f"CREATE TABLE ended AS SELECT {', '.join(f'{_END} AS {kind}' for kind in SCHEMAS)}")

    def columns(self, query: Query, ended: bool = False) -> list[tuple[str, str]]:
        """The columns of what a query must give, with their types. An engine for which the input has `ended` gives what
        is in all of its windows, as if event time had come to its end."""
        self._duckdb.execute(
            f"CREATE OR REPLACE TEMP VIEW watermark AS SELECT * FROM {'ended' if ended else 'reached'}"
        )
        self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS {query.sql}")
        return [(name, kind) for name, kind, *_ in self._duckdb.execute("DESCRIBE wanted").fetchall()]

    def differences(self, query: Query, given: pa.Table | Path, ended: bool = False) -> list[str]:
        """How rows differ from what a query must give; empty when they do not. They carry the number of the epoch in a
        column `epoch`, and are a table or the folder a Parquet sink has written; or, without epochs, one of CSV files,
        whose names do not matter."""
        columns = self.columns(query, ended)
        self._take(given, columns)
        of_last = f"QUALIFY row_number() OVER (PARTITION BY {', '.join(query.keys)} ORDER BY epoch DESC) = 1"
        chosen = ", ".join(_comparable(name, kind) for name, kind in columns)
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
        self.columns(query)
        return self._count(f"({query.sql})")

    def _take(self, given: pa.Table | Path, columns: list[tuple[str, str]]) -> None:
        if isinstance(given, Path) and not any(given.glob("*/*.parquet")):
            kinds = ", ".join(f"'{name}': '{kind}'" for name, kind in columns)
            files = [str(file) for file in given.rglob("*") if file.is_file() and not file.name.startswith(".")]
            rows = f"read_csv({files}, header = false, columns = {{{kinds}}})"
            self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM {rows}")
            return
        if isinstance(given, Path):
            parquet = f"read_parquet('{given}/*/*.parquet', hive_partitioning = true)"
            self._duckdb.execute(f"CREATE OR REPLACE TEMP TABLE given AS SELECT * FROM {parquet}")
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
