"""Which windows rows belong to, as Catalyst computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType, TimestampNTZType, TimestampType

from midstream.errors import GraphError
from midstream.eventtime.durations import spelled
from midstream.eventtime.windows import (
    END,
    START,
    Clock,
    Global,
    OfInput,
    Session,
    Sliding,
    Tumbling,
    Window,
    Windowing,
)
from midstream.graph.steps import SourceStep, Step
from midstream.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WINDOW = "__midstream_window"
PANE = "__midstream_pane"
"""A slide of windows that overlap."""


@dataclass(frozen=True)
class Assignment:
    """The windows of a step and the column they go by."""

    window: Window
    time: str | None
    """None when rows have the time of the clock."""
    columns: tuple[str, ...]
    """What rows have besides."""

    def apply(self, frame: DataFrame, now: int | None = None) -> DataFrame:
        """Rows with their windows, once for each, at a time of the clock. Rows without a time belong to none."""
        if isinstance(self.window, OfInput):
            return frame.where(F.col(END).isNotNull())
        time = quoted(self.time) if self.time is not None else f"timestamp_micros({now or 0})"
        others = [quoted(name) for name in self.columns]
        if isinstance(self.window, Session):
            # Of each row, the window it would have alone.
            end = f"{time} + INTERVAL {spelled(self.window.gap)} AS {END}"
            return frame.where(f"{time} IS NOT NULL").selectExpr(*others, f"{time} AS {START}", end)
        assert not isinstance(self.window, Global)
        return self._assigned(frame, time, others)

    def _assigned(self, frame: DataFrame, time: str, others: Sequence[str]) -> DataFrame:
        assert isinstance(self.window, Tumbling | Sliding)
        lengths = ", ".join(f"'{length}'" for length in _lengths(self.window))
        with_window = frame.selectExpr(*others, f"window({time}, {lengths}) AS {_WINDOW}")
        return with_window.selectExpr(*others, f"{_WINDOW}.start AS {START}", f"{_WINDOW}.end AS {END}")

    @property
    def has_panes(self) -> bool:
        """Whether its windows overlap in whole slides: rows of one slide are of the same windows, all of them."""
        window = self.window
        return isinstance(window, Sliding) and self.time is not None and window.size % window.slide == 0

    def in_panes(self, frame: DataFrame) -> DataFrame:
        """Rows with the slide they are in, once each."""
        assert isinstance(self.window, Sliding)
        assert self.time is not None
        _, slide, offset = (f"'{length}'" for length in _lengths(self.window))
        return frame.selectExpr("*", f"window({quoted(self.time)}, {slide}, {slide}, {offset}) AS {PANE}")

    def of_panes(self, frame: DataFrame, others: Sequence[str]) -> DataFrame:
        """What was made of the rows of a slide, once for each window it is in."""
        return self._assigned(frame, PANE, others)

    def late(self, frame: DataFrame, lateness: int, watermark: int | None) -> DataFrame:
        """Rows whose last window was closed by a watermark."""
        if watermark is None:
            return frame.where("false")
        assert not isinstance(self.window, Session | Global)  # the state tells which of its rows are late
        assert self.time is not None
        if isinstance(self.window, OfInput):
            bound, end = watermark - lateness, F.col(END)
            return frame.where(end <= _moment(bound, frame.schema[END].dataType))
        _, slide, offset = _lengths(self.window)
        # The last window of a row begins with the part of time, one slide long, that the row is in.
        bound = watermark - lateness - self.window.size + _slide(self.window)
        parts = frame.withColumn(_WINDOW, F.window(F.col(quoted(self.time)), slide, slide, offset))
        kind = frame.schema[self.time].dataType
        return parts.where(F.col(f"{_WINDOW}.end") <= _moment(bound, kind)).drop(_WINDOW)


def _moment(microseconds: int, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(F.lit(microseconds))
    moment = datetime(1970, 1, 1) + timedelta(microseconds=microseconds)
    return F.expr(f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ')}'")


def _slide(window: Tumbling | Sliding) -> int:
    return window.slide if isinstance(window, Sliding) else window.size


def _lengths(window: Tumbling | Sliding) -> tuple[str, str, str]:
    return spelled(window.size), spelled(_slide(window)), spelled(window.offset)


def sources_above(step: Step) -> dict[str, SourceStep]:
    """The sources a step's rows come from, by id."""
    if isinstance(step, SourceStep):
        return {step.id: step}
    return {id_: source for above in step.inputs for id_, source in sources_above(above).items()}


def assignment(
    step: Step, windowing: Windowing, schema: StructType, above: Step | None = None, time: str | None = None
) -> Assignment:
    """How the rows that a step gets from one `above` it get their windows; raises when their time is not clear."""
    columns = tuple(name for name in schema.names if name not in (START, END))
    if windowing.clock is Clock.PROCESSING:
        return Assignment(windowing.window, None, columns)
    if isinstance(windowing.window, OfInput):
        time = END
        event_time(step, above or step, END)
    else:
        time = event_time(step, above or step, time or windowing.time)
    check_time(f"Step '{step.id}'", time, schema)
    return Assignment(windowing.window, time, columns)


def event_time(step: Step, above: Step, given: str | None) -> str:
    """The column of event time of rows that come from a step: the one given, or that of its sources."""
    marks = [source.watermark for source in sources_above(above).values() if source.watermark is not None]
    if not marks:
        raise GraphError.no_watermark(step.id)
    names = sorted({mark.column for mark in marks})
    if given is None and len(names) > 1:
        raise GraphError.which_time(step.id, names)
    return given or names[0]


def check_time(where: str, column: str, schema: StructType) -> None:
    """Raises when a column cannot be an event time."""
    if column not in schema.names:
        raise GraphError.bad_event_time(where, column, f"none of its columns ({', '.join(schema.names)})")
    kind = schema[column].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise GraphError.bad_event_time(where, column, f"of type {kind.simpleString()}")
