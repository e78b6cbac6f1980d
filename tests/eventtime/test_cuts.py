"""However a stream is cut into epochs, the result is the same, as long as no row is later than the delay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import midstream as ms
from midstream.engine.compile import CompiledKeyed, compile_pipeline
from midstream.eventtime.joins import IntervalJoin, Shape, WindowJoin
from midstream.eventtime.sessions import Sessions as SessionsOfStep
from midstream.eventtime.sides import LEFT, RIGHT, SIDE, How, Side, carried
from midstream.eventtime.windows import END, START
from tests.eventtime.joinoracle import joined
from tests.eventtime.local import LocalStep
from tests.eventtime.oracle import Sessions, Windows

MICRO = 1_000_000
INSTANT = pa.timestamp("us", tz="UTC")
DELAY, END_OF_TIME = 10, 10_000
Event = tuple[str | None, int, int]

# Times rise by up to four seconds from row to row and are up to ten seconds too early: never later than the delay.
events = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 4), st.integers(0, DELAY), st.integers(-3, 3)),
    max_size=30,
)
cuts = st.lists(st.integers(0, 30), max_size=6)


def in_time(drawn: list[tuple[str | None, int, int, int]]) -> list[Event]:
    """Rows of which none is late: of those before it, none is more than the delay ahead."""
    rows, clock = [], DELAY
    for key, step, early, value in drawn:
        clock += step
        rows.append((key, clock - early, value))
    return rows


def cut(rows: list[Event], at: Iterable[int]) -> list[list[Event]]:
    edges = [0, *sorted(min(place, len(rows)) for place in at), len(rows)]
    return [rows[start:end] for start, end in pairwise(edges)]


def latest(rows: list[Event]) -> int | None:
    return max((time * MICRO for _, time, _ in rows), default=None)


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Callable[[Any], CompiledKeyed]:
    """Counts and sums by windows, as Spark has analysed them."""

    def make(window: Any) -> CompiledKeyed:
        source = ms.source("events", lambda spark: spark.readStream.load(), event_time="at")
        keyed = source.key_by("k").window(window)
        flow = keyed.aggregate("w", n=F.count("*"), total=F.sum("v")).sink("out", ms.sinks.noop())
        schema = "k string, at timestamp, v bigint"
        return compile_pipeline(flow, {"events": spark.createDataFrame([], schema)}, spark).keyed["w"]

    known: dict[Any, CompiledKeyed] = {}
    return lambda window: known[window] if window in known else known.setdefault(window, make(window))


def shipped(keyed: CompiledKeyed) -> dict[str, str]:
    """The columns that travel to the state task, by the column they are of."""
    assert keyed.aggregates is not None
    return {sql.rpartition(" AS ")[2].strip("`"): "v" for sql in keyed.aggregates.per_row_sql}


def windowed_rows(keyed: CompiledKeyed, rows: list[Event], spans: Callable[[int], list[tuple[int, int]]]) -> pa.Table:
    columns: dict[str, list[Any]] = {"k": [], START: [], END: [], **{name: [] for name in shipped(keyed)}}
    for key, time, value in rows:
        for start, end in spans(time):
            for name, item in (("k", key), (START, start * MICRO), (END, end * MICRO)):
                columns[name].append(item)
            for name in shipped(keyed):
                columns[name].append(value)
    return pa.table(columns, schema=_input(keyed))


def _input(keyed: CompiledKeyed) -> pa.Schema:
    values = [pa.field(name, pa.int64()) for name in shipped(keyed)]
    return pa.schema([("k", pa.string()), (START, INSTANT), (END, INSTANT), *values])


def run(step: LocalStep, keyed: CompiledKeyed, epochs: list[list[Event]], spans: Any) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for rows in [*epochs, [(None, END_OF_TIME, 0)]]:
        kept = [row for row in rows if row[1] < END_OF_TIME]
        given = step.epoch(windowed_rows(keyed, kept, spans), {"events": latest(rows)}, DELAY * MICRO)
        found += Counter((r["k"], int(r[START].timestamp()), r["n"], r["total"]) for r in given)
    assert step.late == 0
    assert step.state.rows == 0, "all of it is over"
    step.close()
    return found


@settings(max_examples=60)
@given(events, cuts, st.sampled_from([(10, 10), (12, 4), (9, 5)]))
def test_windows(compiled: Any, drawn: Any, at: list[int], window: tuple[int, int]) -> None:
    size, slide = window
    oracle = Windows(size, slide, DELAY)
    rows = in_time(drawn)
    expected = oracle.epoch(rows)
    expected |= oracle.epoch([("end", END_OF_TIME, 0)])
    keyed = compiled(ms.sliding(f"{size} seconds", f"{slide} seconds"))
    step = LocalStep(keyed.function, ("k", START, END), _input(keyed))
    found = run(step, keyed, cut(rows, at), lambda t: [(s, s + size) for s in oracle.starts(t)])
    assert found == Counter((key, start, n, total) for (key, start), (n, total) in expected.items())


def session_input(keyed: CompiledKeyed) -> pa.Schema:
    function = keyed.function
    assert isinstance(function, SessionsOfStep)
    return pa.schema([*function.keys, *function.values])


def session_parts(keyed: CompiledKeyed, rows: list[Event]) -> pa.Table:
    """Rows as Spark ships them: those of a key within one stretch as long as the gap are one part."""
    parts: dict[tuple[Any, int], list[Event]] = {}
    for row in rows:
        parts.setdefault((row[0], row[1] // 3), []).append(row)
    made = []
    for (key, _), members in parts.items():
        times, values = [time for _, time, _ in members], [value for *_, value in members if value is not None]
        part = {"k": key, START: min(times) * MICRO, END: (max(times) + 3) * MICRO, "__rows": len(members)}
        for name in session_input(keyed).names:
            if name.startswith("__count("):
                part[name] = len(members) if name == "__count(1)" else len(values)
            elif name.startswith("__sum("):
                part[name] = sum(values) if values else None
        made.append(part)
    columns = {name: [part[name] for part in made] for name in session_input(keyed).names}
    return pa.table(columns, schema=session_input(keyed))


@settings(max_examples=60)
@given(events, cuts)
def test_sessions(compiled: Any, drawn: Any, at: list[int]) -> None:
    oracle, rows = Sessions(3, DELAY), in_time(drawn)
    expected = oracle.epoch(rows)
    expected |= oracle.epoch([("end", END_OF_TIME, 0)])
    keyed = compiled(ms.session("3 seconds"))
    step = LocalStep(keyed.function, ("k",), session_input(keyed))
    found: Counter[tuple[Any, ...]] = Counter()
    for epoch in [*cut(rows, at), [(None, END_OF_TIME, 0)]]:
        kept = [row for row in epoch if row[1] < END_OF_TIME]
        given = step.epoch(session_parts(keyed, kept), {"events": latest(epoch)}, DELAY * MICRO)
        found += Counter((r["k"], int(r[START].timestamp()), r["n"], r["total"]) for r in given)
    assert step.late == 0
    assert step.state.rows == 0, "all of it is over"
    step.close()
    assert found == Counter((key, start, n, total) for (key, start), (n, total) in expected.items())


def two_sides(windows: bool) -> tuple[Side, Side, pa.Schema]:
    keys = pa.schema([("k", pa.string()), *([(START, INSTANT), (END, INSTANT)] if windows else [])])
    sides = [
        Side(
            name,
            keys,
            pa.schema([(f"{name}_at", INSTANT), (f"{name}_v", pa.int64())]),
            END if windows else f"{name}_at",
        )
        for name in (LEFT, RIGHT)
    ]
    carrying = [(carried(side.name, field.name), field.type) for side in sides for field in side.values]
    return sides[0], sides[1], pa.schema([*keys, *carrying, (SIDE, pa.bool_())])


def joined_rows(schema: pa.Schema, left: list[Event], right: list[Event], size: int | None) -> pa.Table:
    rows = []
    for side, of_side in ((LEFT, left), (RIGHT, right)):
        for key, time, value in of_side:
            row: dict[str, Any] = dict.fromkeys(schema.names)
            row |= {"k": key, carried(side, f"{side}_at"): time * MICRO, carried(side, f"{side}_v"): value}
            if size is not None:
                start = time // size * size
                row |= {START: start * MICRO, END: (start + size) * MICRO}
            rows.append(row | {SIDE: side == RIGHT})
    return pa.Table.from_pylist(rows, schema)


def run_join(step: LocalStep, schema: pa.Schema, left: Any, right: Any, size: int | None) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    epochs = [(rows, {LEFT: latest(rows[0]), RIGHT: latest(rows[1])}) for rows in zip(left, right, strict=True)]
    for rows, marks in [*epochs, (([], []), dict.fromkeys((LEFT, RIGHT), END_OF_TIME * MICRO))]:
        for row in step.epoch(joined_rows(schema, *rows, size), marks, DELAY * MICRO):
            values = [v for name, v in row.items() if name not in (START, END)]
            found[tuple(int(v.timestamp()) if hasattr(v, "timestamp") else v for v in values)] += 1
    assert step.late == 0
    step.close()
    return found


def both_cut(left: list[Event], right: list[Event], at: list[int]) -> tuple[list[list[Event]], list[list[Event]]]:
    """Both sides cut at the same times, so that neither is late because the other is ahead."""
    edges = sorted({DELAY + place * 4 for place in at})
    pieces = [[], []]
    for side, rows in enumerate((left, right)):
        for low, high in zip([-1, *edges], [*edges, 2 * END_OF_TIME], strict=False):
            pieces[side].append([row for row in rows if low <= row[1] < high])
    return pieces[0], pieces[1]


@settings(max_examples=60)
@given(events, events, cuts, st.sampled_from(list(How)))
def test_window_joins(drawn_left: Any, drawn_right: Any, at: list[int], how: How) -> None:
    left, right, schema = two_sides(windows=True)
    fields = [*left.values, *([] if how in (How.SEMI, How.ANTI) else right.values)]
    shape = Shape(pa.schema([*left.keys, *fields]), how)
    step = LocalStep(WindowJoin(left, right, shape, 0), ("k", START, END), schema)
    lefts, rights = in_time(drawn_left), in_time(drawn_right)
    found = run_join(step, schema, *both_cut(lefts, rights, at), 10)
    assert found == joined(how, lefts, rights, lambda a, b: a // 10 == b // 10)


@settings(max_examples=60)
@given(events, events, cuts, st.sampled_from(list(How)))
def test_interval_joins(drawn_left: Any, drawn_right: Any, at: list[int], how: How) -> None:
    left, right, schema = two_sides(windows=False)
    fields = [*left.values, *([] if how in (How.SEMI, How.ANTI) else right.values)]
    shape = Shape(pa.schema([*left.keys, *fields]), how)
    step = LocalStep(IntervalJoin(left, right, shape, -3 * MICRO, 6 * MICRO), ("k",), schema)
    lefts, rights = in_time(drawn_left), in_time(drawn_right)
    found = run_join(step, schema, *both_cut(lefts, rights, at), None)
    assert found == joined(how, lefts, rights, lambda a, b: -3 <= b - a <= 6)
