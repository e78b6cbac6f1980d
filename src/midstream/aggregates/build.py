"""From analysed aggregates to what runs: SQL for Catalyst, partials and finishes for the state task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

import pyarrow as pa

from midstream.aggregates.analysis import Analysed, Analysis, Typed
from midstream.aggregates.counts import Count
from midstream.aggregates.distinct import DistinctCount
from midstream.aggregates.ends import End
from midstream.aggregates.extremes import Extreme
from midstream.aggregates.finish import Finish, FoldResult, Mean, Same, Spread, Tally
from midstream.aggregates.folds import Folded
from midstream.aggregates.lists import Collected
from midstream.aggregates.moments import Moments
from midstream.aggregates.partial import Partial
from midstream.aggregates.shipment import Shipment, Shipped
from midstream.aggregates.spec import AggregateSpec
from midstream.aggregates.sums import DecimalSum, Sum
from midstream.errors import GraphError
from midstream.state.tables import TableKind, TableSpec

_COMPARES_VALUES = ("min", "max", "collect_set")


@dataclass
class Builder:
    """Collects partials and shipped columns of all aggregates of a step, so that equal ones are shared.

    State is named by what it holds ("sum(amount)"), not by the aggregate that asked for it, nor by its place:
    renaming, reordering and adding keeps the state of the others, and another expression never inherits it.
    """

    analysis: Analysis
    complete: bool
    shipment: Shipment = field(default_factory=Shipment)
    partials: dict[str, Partial] = field(default_factory=dict)

    def add(self, aggregate: Analysed) -> Finish:
        """Add what an aggregate needs and say how its result is made of it."""
        _check_types(aggregate)
        spec = aggregate.spec
        if spec.fold is not None:
            return self._fold(aggregate)
        if spec.function == "count":
            return self._distinct(aggregate) if spec.distinct else self._count(spec, aggregate.arguments)
        (argument,) = aggregate.arguments
        match spec.function:
            case "sum":
                return Same(self._sum(argument, aggregate.result, spec.filter)[0])
            case "avg":
                return self._avg(argument, aggregate.result, spec.filter)
            case "min" | "bool_and":
                return self._extreme("min", argument, spec.filter)
            case "max" | "bool_or":
                return self._extreme("max", argument, spec.filter)
            case "first" | "last":
                return self._end(spec, argument)
            case "collect_list" | "collect_set":
                return self._collected(spec, argument)
            case _:
                return self._spread(spec, argument)

    def _share(self, name: str, make: Callable[[str], Partial]) -> str:
        """The partial of this name, made unless it exists."""
        while name in self.analysis.keys.names:
            name = f"_{name}"
        if name not in self.partials:
            self.partials[name] = make(name)
        return name

    def _rows(self) -> str:
        return self._share("count(1)", Count)

    def _count(self, spec: AggregateSpec, arguments: tuple[Typed, ...]) -> Finish:
        nullable = [argument.sql for argument in arguments if argument.nullable]
        if not nullable and not spec.filter:
            return Tally(self._rows())
        call = _over(f"count({', '.join(nullable) or 1})", spec.filter)
        conditions = [f"({text}) IS NOT NULL" for text in nullable]
        counted = " AND ".join([*conditions, f"({spec.filter})"] if spec.filter else conditions)
        return Tally(self._share(call, lambda name: Count(name, self.shipment.add(call, _if("TRUE", counted)))))

    def _sum(self, argument: Typed, result: Typed, condition: str | None) -> tuple[str, Shipped]:
        call = _over(f"sum({argument.sql})", condition)
        kind = DecimalSum if pa.types.is_decimal(result.type) else Sum
        shipped = self.shipment.add(call, _if(_cast(argument, result), condition))
        return self._share(call, lambda name: kind(name, result.type, shipped)), shipped

    def _avg(self, argument: Typed, result: Typed, condition: str | None) -> Finish:
        argument, total = _summed_for_mean(argument)
        sum_, shipped = self._sum(argument, total, condition)
        if not argument.nullable and not condition:
            return Mean(sum_, self._rows(), result.type)
        call = _over(f"count({argument.sql})", condition)
        # Row by row the summed column tells by its nulls which rows count: nothing more has to travel.
        count = self._share(call, lambda name: Count(name, Shipped(self.shipment.over_group(call), shipped.per_row)))
        return Mean(sum_, count, result.type)

    def _extreme(self, function: str, argument: Typed, condition: str | None) -> Finish:
        call = _over(f"{function}({argument.sql})", condition)

        def make(name: str) -> Partial:
            shipped = self.shipment.add(call, _if(argument.sql, condition))
            return Extreme(name, argument.type, shipped, function == "max")

        return Same(self._share(call, make))

    def _end(self, spec: AggregateSpec, argument: Typed) -> Finish:
        def make(name: str) -> Partial:
            keeps_nulls = argument.nullable and not spec.ignore_nulls
            value = self.shipment.add(spec.sql, _if(argument.sql, spec.filter))
            counted = None
            if keeps_nulls and spec.filter:
                row = _if("TRUE", spec.filter)
                counted = self.shipment.add(f"max({row})", row)
            return End(name, argument.type, value, spec.function == "last", keeps_nulls, counted)

        return Same(self._share(spec.sql, make))

    def _spread(self, spec: AggregateSpec, argument: Typed) -> Finish:
        value = _cast(argument, DOUBLE)
        mean = _over(f"avg({value})", spec.filter)
        count = _over(f"count({value if _is_text(argument) else argument.sql})", spec.filter)
        variance = _over(f"var_pop({value})", spec.filter)
        row = self.shipment.of_row(_if(value, spec.filter))
        shipped = [Shipped(self.shipment.over_group(sql), row) for sql in (count, mean, variance)]
        name = self._share(_over(f"moments({value})", spec.filter), lambda name: Moments(name, *shipped))
        partial = self.partials[name]
        assert isinstance(partial, Moments)
        return Spread(partial.columns, spec.function.endswith("samp"), spec.function.startswith("stddev"))

    def _distinct(self, aggregate: Analysed) -> Finish:
        spec, arguments = aggregate.spec, aggregate.arguments

        def make(name: str) -> Partial:
            keys = self.analysis.keys
            # Named by place: expressions may repeat, and be names of keys.
            fields = [pa.field(f"value {i}: {a.sql}", a.type) for i, a in enumerate(arguments)]
            table = TableSpec(_table("distinct", spec), pa.schema([*keys, *fields]), pa.schema([]))
            values = tuple(self.shipment.only_of_row(_if(a.sql, spec.filter)) for a in arguments)
            return DistinctCount(name, table, values, self._hash(arguments))

        return Tally(self._share(spec.sql, make))

    def _collected(self, spec: AggregateSpec, argument: Typed) -> Finish:
        def make(name: str) -> Partial:
            values = pa.schema([pa.field(f"value: {argument.sql}", argument.type)])
            table = TableSpec(_table("list", spec), self.analysis.keys, values, TableKind.LIST)
            shipped = self.shipment.only_of_row(_if(argument.sql, spec.filter))
            hash_ = self._hash((argument,)) if spec.function == "collect_set" else None
            return Collected(name, table, shipped, hash_, self.complete)

        return Same(self._share(spec.sql, make))

    def _hash(self, arguments: tuple[Typed, ...]) -> Shipped:
        return self.shipment.only_of_row(f"xxhash64({', '.join(a.sql for a in arguments)})")

    def _fold(self, aggregate: Analysed) -> Finish:
        fold, arguments, spec = aggregate.spec.fold, aggregate.arguments, aggregate.spec
        assert fold is not None

        def make(name: str) -> Partial:
            values = tuple(self.shipment.only_of_row(argument.sql) for argument in arguments)
            types = tuple(argument.type for argument in arguments)
            return Folded(name, spec.name, fold, aggregate.state.type, values, types)

        # A fold is known by its name: its function may be replaced while the accumulators stay.
        column = self._share(f"fold {spec.name}", make)
        return FoldResult(column, spec.name, fold, aggregate.result.type)


DOUBLE = Typed("", pa.float64(), "double")
BIGINT = Typed("", pa.int64(), "bigint")


def _summed_for_mean(argument: Typed) -> tuple[Typed, Typed]:
    """What is summed for a mean, and the type of the sum: that of Spark's own average."""
    type_ = argument.type
    if pa.types.is_decimal(type_):
        precision = min(type_.precision + 10, 38)
        sql_type = f"decimal({precision},{type_.scale})"
        return argument, Typed("", pa.decimal128(precision, type_.scale), sql_type)
    if pa.types.is_duration(type_):
        return argument, argument
    if pa.types.is_floating(type_):
        return argument, DOUBLE
    if pa.types.is_integer(type_) and type_.bit_width < 64:
        return argument, BIGINT  # exact, and shared with sum(x)
    nullable = argument.nullable or _is_text(argument)
    return Typed(_cast(argument, DOUBLE), pa.float64(), "double", nullable), DOUBLE


def _is_text(argument: Typed) -> bool:
    """Spark takes text for numbers; what is not one may become null, so nulls must be those of the cast."""
    return bool(pa.types.is_string(argument.type))


def _over(call: str, condition: str | None) -> str:
    return f"{call} FILTER (WHERE {condition})" if condition else call


def _if(sql: str, condition: str | None) -> str:
    return f"CASE WHEN {condition} THEN {sql} END" if condition else sql


def _cast(argument: Typed, to: Typed) -> str:
    return argument.sql if argument.sql_type == to.sql_type else f"CAST({argument.sql} AS {to.sql_type})"


def _table(kind: str, spec: AggregateSpec) -> str:
    """A name for files and paths that stays the same for the same expression, whatever it is written with."""
    return f"{kind}-{sha256(spec.sql.encode()).hexdigest()[:12]}"


def _check_types(aggregate: Analysed) -> None:
    spec = aggregate.spec
    for typed in (*aggregate.arguments, aggregate.state):
        if pa.types.is_null(typed.type):
            raise GraphError.bad_aggregate(
                spec.name, f"is of {typed.sql}, which has no type", "cast it to the type it should have."
            )
        if "collate" in typed.sql_type and (spec.distinct or spec.function in _COMPARES_VALUES):
            raise GraphError.bad_aggregate(
                spec.name,
                f"compares values of type {typed.sql_type}",
                "only the default collation is supported: CAST(… AS STRING) in a transform step first.",
            )
