"""What the user asks of an aggregate step, before Spark has seen it: functions, SQL texts, own folds."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from midstream.errors import GraphError

ALIASES = {
    "mean": "avg",
    "std": "stddev_samp",
    "stddev": "stddev_samp",
    "variance": "var_samp",
    "every": "bool_and",
    "any": "bool_or",
    "some": "bool_or",
    "first_value": "first",
    "last_value": "last",
    "array_agg": "collect_list",
}
"""Spark's other names of the same functions. State goes by the canonical one, so that switching keeps it."""

ONE_ARGUMENT = (
    *("sum", "min", "max", "avg", "first", "last"),
    *("stddev_samp", "stddev_pop", "var_samp", "var_pop"),
    *("bool_and", "bool_or", "collect_list", "collect_set"),
)
SUPPORTED = ("count", "count_distinct", "count_if", *ONE_ARGUMENT)
_TAKES_NULLS_CHOICE = ("first", "last")
_SAME_WHEN_DISTINCT = ("min", "max", "bool_and", "bool_or", "collect_set")


@dataclass(frozen=True)
class Fold:
    """A user's own aggregate: `add(accumulator, *values)` is called for each row, in order of arrival."""

    columns: tuple[str, ...]
    initial: Any
    add: Callable[..., Any]
    type: str
    finish: Callable[[Any], Any] | None = None
    result_type: str | None = None


@dataclass(frozen=True)
class AggregateSpec:
    """One output column of an aggregate step. Arguments and filter are SQL texts; `("*",)` counts rows."""

    name: str
    function: str
    arguments: tuple[str, ...]
    distinct: bool = False
    ignore_nulls: bool = False
    filter: str | None = None
    fold: Fold | None = None

    @property
    def sql(self) -> str:
        """The aggregate as batch Spark would be asked for it, or for a fold something of its result type.

        >>> AggregateSpec("n", "count", ("customer",), distinct=True, filter="amount > 0").sql
        'count(DISTINCT customer) FILTER (WHERE amount > 0)'
        """
        if self.fold is not None:
            return f"first(CAST(NULL AS {self.fold.result_type or self.fold.type}))"
        arguments = [*self.arguments, "true"] if self.ignore_nulls else self.arguments
        call = f"{self.function}({'DISTINCT ' if self.distinct else ''}{', '.join(arguments)})"
        return f"{call} FILTER (WHERE {self.filter})" if self.filter else call


def aggregate_spec(
    name: str,
    function: str,
    arguments: tuple[str, ...],
    *,
    distinct: bool = False,
    ignore_nulls: bool = False,
    filter: str | None = None,
) -> AggregateSpec:
    """Check a call of an aggregate function and bring it into its canonical form.

    >>> aggregate_spec("m", "mean", ("amount",)).sql
    'avg(amount)'
    >>> aggregate_spec("n", "count_if", ("amount > 0",)).sql
    'count(*) FILTER (WHERE amount > 0)'
    """
    if not is_aggregate(function):
        raise GraphError.unknown_aggregate(name, function, sorted({*SUPPORTED, *ALIASES}))
    function = ALIASES.get(function.lower(), function.lower())
    if function == "count" and arguments == ("1",) and not distinct:
        arguments = ("*",)
    many = function in ("count", "count_distinct")
    if not arguments or (len(arguments) != 1 and not many):
        expected = "give at least one." if many else "give one."
        raise GraphError.bad_aggregate(name, f"calls {function} with {len(arguments)} arguments", expected)
    if "*" in arguments and (function != "count" or distinct or len(arguments) > 1):
        raise GraphError.bad_aggregate(name, f"calls {function} with *", "name the columns: only count has a star.")
    if ignore_nulls and function not in _TAKES_NULLS_CHOICE:
        raise GraphError.bad_aggregate(
            name, f"asks {function} to ignore nulls", "leave it out: only first and last have that choice."
        )
    if function == "count_distinct":
        function, distinct = "count", True
    elif function == "count_if":
        condition = arguments[0]
        filter = f"({condition}) AND ({filter})" if filter else condition
        function, arguments = "count", ("*",)
    if distinct and function in _SAME_WHEN_DISTINCT:
        distinct = False
    if distinct and function != "count":
        raise GraphError.bad_aggregate(
            name,
            f"asks for {function} of distinct values",
            "only count can be DISTINCT; collect_set the values and finish in a transform after this step.",
        )
    return AggregateSpec(name, function, arguments, distinct, ignore_nulls, filter)


def is_aggregate(function: str) -> bool:
    return function.lower() in SUPPORTED or function.lower() in ALIASES


def fold_spec(name: str, fold: Fold) -> AggregateSpec:
    return AggregateSpec(name, "fold", fold.columns, fold=fold)


def fold(
    *columns: str,
    initial: Any,
    add: Callable[..., Any],
    type: str,
    finish: Callable[[Any], Any] | None = None,
    result_type: str | None = None,
) -> Fold:
    """An aggregate of your own, for `key_by(…).aggregate(…)`.

    For every row of a key, in order of arrival, `add(accumulator, *values)` gives the next accumulator; a key
    begins with a copy of `initial`. `columns` are names or SQL expressions, `type` is the Spark type of the
    accumulator. It is the result, unless `finish` makes the result, of type `result_type`, from it.

    >>> longest = fold("word", initial="", add=lambda best, word: max(best, word, key=len), type="string")
    >>> longest.add("pipe", "stream")
    'stream'
    """
    if not columns or not all(isinstance(column, str) for column in columns):
        raise GraphError.bad_fold(
            f"was given {columns!r} as its columns",
            'name one or more: fold("amount", initial=0, add=…, type="bigint").',
        )
    given_types: list[object] = [type, result_type or ""]
    if not all(isinstance(given, str) for given in given_types):
        raise GraphError.bad_fold(
            f"was given the type {type!r} and the result type {result_type!r}",
            'give Spark types as text, such as "bigint", "array<string>" or "struct<n: int, t: timestamp>".',
        )
    if (finish is None) != (result_type is None):
        raise GraphError.bad_fold(
            f"has {'no finish but a result_type' if finish is None else 'a finish but no result_type'}",
            "give both, or neither when the accumulator is the result.",
        )
    _check_call("add", add, 1 + len(columns))
    if finish is not None:
        _check_call("finish", finish, 1)
    return Fold(columns, initial, add, type, finish, result_type)


def _check_call(role: str, function: Any, arguments: int) -> None:
    if not callable(function):
        raise GraphError.bad_fold(f"was given {function!r} as {role}", "give a function.")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have none
        return
    try:
        signature.bind(*[None] * arguments)
    except TypeError as mismatch:
        expected = "the accumulator and one value per column" if role == "add" else "the accumulator"
        raise GraphError.bad_fold(
            f"would call {role} with {arguments} arguments, but it takes {signature}",
            f"let it take {expected}.",
        ) from mismatch
