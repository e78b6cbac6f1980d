"""Rows as they travel to a state task: each by itself, or aggregated in part before the exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.aggregates.plan import AggregatePlan
from midstream.engine.internals import before_exchange
from midstream.engine.windows import PANE, Assignment
from midstream.eventtime.durations import spelled
from midstream.eventtime.windows import END, START
from midstream.schemas import quoted
from midstream.task.keyed import ROWS_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SPAN = "__midstream_span"


def grouped(frame: DataFrame, keys: Sequence[str], plan: AggregatePlan) -> tuple[DataFrame, list[str]]:
    """Rows aggregated by key before the exchange, and the columns to take of them."""
    partials, counted = _partials(plan)
    rows = before_exchange(frame.groupBy(*map(quoted, keys)).agg(*partials))
    return rows, ["*", f"{counted} AS {ROWS_COLUMN}"] if counted else ["*"]


def spanned(frame: DataFrame, keys: Sequence[str], plan: AggregatePlan) -> tuple[DataFrame, list[str]]:
    """Rows of sessions, aggregated where they are surely of one: of a key, in a stretch of time no longer
    than the gap. What is left of them is a session from the first to the last."""
    assert plan.span is not None
    partials, counted = _partials(plan)
    in_spans = frame.selectExpr("*", f"window({START}, '{spelled(plan.span)}') AS {_SPAN}")
    by_span = in_spans.groupBy(*map(quoted, keys), F.col(f"{_SPAN}.start").alias(_SPAN))
    ends = F.min(START).alias(START), F.max(END).alias(END)
    rows = before_exchange(by_span.agg(*ends, *partials))
    count = f"{counted} AS {ROWS_COLUMN}" if counted else ROWS_COLUMN
    return rows, [*map(quoted, keys), START, END, *plan.grouped_names, count]


def paned(
    frame: DataFrame, keys: Sequence[str], windows: Assignment, plan: AggregatePlan
) -> tuple[DataFrame, list[str]]:
    """Rows of windows that overlap, aggregated by slide and only then given to each window the slide is in."""
    partials, counted = _partials(plan)
    by_pane = windows.in_panes(frame).groupBy(*map(quoted, keys), F.col(f"{PANE}.start").alias(PANE))
    rows = before_exchange(by_pane.agg(*partials))
    others = [*map(quoted, keys), *plan.grouped_names, *([] if counted else [ROWS_COLUMN])]
    return windows.of_panes(rows, others), ["*", f"{counted} AS {ROWS_COLUMN}"] if counted else ["*"]


def _partials(plan: AggregatePlan) -> tuple[list[Column], str | None]:
    """The partial aggregates, and the name of the one that counts rows: a count of the user's serves as ours, which
    Catalyst would else compute twice for every row."""
    named = zip(plan.grouped_names, plan.grouped_sql, strict=True)
    counted = next((name for name, sql in named if sql.startswith("count(1) AS ")), None)
    partials = [*plan.grouped_sql, *([] if counted else [f"count(1) AS {ROWS_COLUMN}"])]
    return [F.expr(sql) for sql in partials], counted
