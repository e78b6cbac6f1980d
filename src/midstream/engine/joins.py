"""Joins as Catalyst and the state task see them: rows of both sides on one way, told apart by a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from midstream.engine.windows import Assignment, assignment, check_time, event_time
from midstream.errors import GraphError
from midstream.eventtime.joins import IntervalJoin, PlainJoin, Shape, WindowJoin
from midstream.eventtime.sides import LEFT, RIGHT, SIDE, How, Side, carried
from midstream.eventtime.windows import END, START
from midstream.graph.steps import JoinStep
from midstream.operators.lookup import Lookup
from midstream.schemas import quoted, to_arrow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


JoinFunction: TypeAlias = WindowJoin | IntervalJoin | PlainJoin | Lookup


@dataclass(frozen=True)
class Union:
    """How rows of both sides become rows of one DataFrame."""

    keys: tuple[str, ...]
    left: StructType
    right: StructType
    windows: tuple[Assignment, Assignment] | None
    times: tuple[str, str] | None
    """The columns of event time, without which a row is never joined."""

    def apply(self, left: DataFrame, right: DataFrame) -> DataFrame:
        if self.windows is not None:
            left, right = self.windows[0].apply(left), self.windows[1].apply(right)
        if self.times is not None:
            left, right = (
                side.where(F.col(quoted(time)).isNotNull())
                for side, time in zip((left, right), self.times, strict=True)
            )
        sides = self._side(left, LEFT, self.left), self._side(right, RIGHT, self.right)
        # What only one of them has is null in the rows of the other.
        return sides[0].unionByName(sides[1], allowMissingColumns=True)

    def _side(self, frame: DataFrame, side: str, schema: StructType) -> DataFrame:
        own = [f"{quoted(name)} AS {quoted(carried(side, name))}" for name in schema.names]
        return frame.selectExpr(*map(quoted, self.keys), f"{str(side == RIGHT).lower()} AS {SIDE}", *own)


@dataclass(frozen=True)
class PlannedJoin:
    function: JoinFunction
    union: Union
    keys: tuple[str, ...]
    output: StructType


def plan_join(step: JoinStep, left: StructType, right: StructType) -> PlannedJoin:
    """What a join does; raises when the sides do not fit."""
    _check_keys(step, left, right)
    windows = _windows(step, left, right)
    key = StructType([left[name] for name in step.keys])
    if windows is not None:
        assert windows[0].time is not None
        time = left[windows[0].time].dataType
        key = key.add(START, time).add(END, time)
    sides = [StructType([field for field in side if field.name not in key.names]) for side in (left, right)]
    if same := sorted(set(sides[0].names) & set(sides[1].names)):
        raise GraphError.same_names(step.id, same)
    output = StructType([*key])
    for field in (field for side in (sides[:1] if step.how in (How.SEMI, How.ANTI) else sides) for field in side):
        output = output.add(field.name, field.dataType, True)
    times = _times(step, sides) if step.within is not None else None
    ranges = (END, END) if windows is not None else times or (None, None)
    kept_left, kept_right = (
        Side(name, to_arrow(key), _nullable(to_arrow(side)), column)
        for name, side, column in zip((LEFT, RIGHT), sides, ranges, strict=True)
    )
    function = _function(step, kept_left, kept_right, to_arrow(output))
    keys = tuple(key.names)
    return PlannedJoin(function, Union(keys, sides[0], sides[1], windows, times), keys, output)


def _function(step: JoinStep, left: Side, right: Side, output: pa.Schema) -> JoinFunction:
    shape = Shape(output, step.how)
    if step.windowing is not None:
        return WindowJoin(left, right, shape, step.windowing.lateness)
    if step.within is not None:
        return IntervalJoin(left, right, shape, *step.within)
    return Lookup(left, right, output, step.how is How.INNER) if step.latest else PlainJoin(left, right, shape)


def _check_keys(step: JoinStep, left: StructType, right: StructType) -> None:
    for key in step.keys:
        if key not in right.names:
            raise GraphError.unknown_key(step.id, key, right.names)
        kinds = left[key].dataType, right[key].dataType
        if kinds[0] != kinds[1]:
            raise GraphError.other_key_type(step.id, key, *(kind.simpleString() for kind in kinds))


def _windows(step: JoinStep, left: StructType, right: StructType) -> tuple[Assignment, Assignment] | None:
    if step.windowing is None:
        return None
    return (
        assignment(step, step.windowing, left, step.input, step.times[0]),
        assignment(step, step.windowing, right, step.other, step.times[1]),
    )


def _times(step: JoinStep, sides: Sequence[StructType]) -> tuple[str, str]:
    """The columns of event time of both sides."""
    left, right = (event_time(step, above, given) for above, given in zip(step.inputs, step.times, strict=True))
    for time, side in zip((left, right), sides, strict=True):
        check_time(f"Step '{step.id}'", time, side)
    return left, right


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Columns of one side are null in the rows of the other."""
    return pa.schema([field.with_nullable(True) for field in schema])
