"""Joins as Catalyst and the state task see them: rows of both sides on one way, told apart by a column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    from pyspark.sql import Column, DataFrame


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
        return self._side(left, LEFT).unionByName(self._side(right, RIGHT))

    def _side(self, frame: DataFrame, side: str) -> DataFrame:
        columns: list[Column] = [F.col(quoted(key)) for key in self.keys]
        for name, schema in ((LEFT, self.left), (RIGHT, self.right)):
            for field in schema:
                value = F.col(quoted(field.name)) if name == side else F.lit(None).cast(field.dataType)
                columns.append(value.alias(carried(name, field.name)))
        return frame.select(*columns, F.lit(side == RIGHT).alias(SIDE))


@dataclass(frozen=True)
class PlannedJoin:
    function: WindowJoin | IntervalJoin | PlainJoin | Lookup
    union: Union
    keys: tuple[str, ...]
    output: StructType


def plan_join(step: JoinStep, left: StructType, right: StructType) -> PlannedJoin:
    """What a join does; raises when the sides do not fit."""
    for key in step.keys:
        if key not in right.names:
            raise GraphError.unknown_key(step.id, key, right.names)
        kinds = left[key].dataType, right[key].dataType
        if kinds[0] != kinds[1]:
            raise GraphError.other_key_type(step.id, key, *(kind.simpleString() for kind in kinds))
    windowed = step.windowing is not None
    keys = (*step.keys, START, END) if windowed else step.keys
    dropped = {*step.keys, START, END} if windowed else set(step.keys)
    sides = [StructType([field for field in side if field.name not in dropped]) for side in (left, right)]
    if same := sorted(set(sides[0].names) & set(sides[1].names)):
        raise GraphError.same_names(step.id, same)
    windows, time_type = None, None
    if step.windowing is not None:
        windows = (
            assignment(step, step.windowing, left, step.input, step.times[0]),
            assignment(step, step.windowing, right, step.other, step.times[1]),
        )
        time_type = left[windows[0].time].dataType
    key_fields = [*(left[key] for key in step.keys)]
    if time_type is not None:
        key_fields += StructType().add(START, time_type).add(END, time_type).fields
    key_schema = to_arrow(StructType(key_fields))
    given = sides[:1] if step.how in (How.SEMI, How.ANTI) else sides
    nullable = [field for side in given for field in side]
    output = StructType([*key_fields])
    for field in nullable:
        output = output.add(field.name, field.dataType, True)
    shape = Shape(to_arrow(output), step.how)
    values = [_nullable(to_arrow(side)) for side in sides]
    function: WindowJoin | IntervalJoin | PlainJoin | Lookup
    interval = None
    if step.windowing is not None:
        both = [Side(name, key_schema, schema, END) for name, schema in zip((LEFT, RIGHT), values, strict=True)]
        function = WindowJoin(both[0], both[1], shape, step.windowing.lateness)
    elif step.latest:
        both = [Side(name, key_schema, schema) for name, schema in zip((LEFT, RIGHT), values, strict=True)]
        function = Lookup(both[0], both[1], to_arrow(output), step.how is How.INNER)
    elif step.within is None:
        both = [Side(name, key_schema, schema) for name, schema in zip((LEFT, RIGHT), values, strict=True)]
        function = PlainJoin(both[0], both[1], shape)
    else:
        times = [event_time(step, above, given) for above, given in zip(step.inputs, step.times, strict=True)]
        for time, side in zip(times, sides, strict=True):
            check_time(f"Step '{step.id}'", time, side)
        both = [
            Side(name, key_schema, schema, time)
            for name, schema, time in zip((LEFT, RIGHT), values, times, strict=True)
        ]
        function = IntervalJoin(both[0], both[1], shape, *step.within)
        interval = (times[0], times[1])
    return PlannedJoin(function, Union(keys, sides[0], sides[1], windows, interval), keys, output)


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Columns of one side are null in the rows of the other."""
    return pa.schema([field.with_nullable(True) for field in schema])
