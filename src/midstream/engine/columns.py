"""The one module that looks into PySpark columns: from `F.sum("amount")` or SQL text to an aggregate's spec.

It leans on Spark's internals: the Catalyst expression of a column, the SQL parser, the text an expression was
made of. `tests/aggregates/test_columns.py` tells when a version of Spark breaks it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Column

from midstream.aggregates.spec import AggregateSpec, Fold, aggregate_spec, fold_spec, is_aggregate
from midstream.engine.connect.columns import Call, call_of
from midstream.engine.connect.session import is_remote
from midstream.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def to_spec(name: str, given: Column | str | Fold, spark: SparkSession) -> AggregateSpec:
    """What the user wrote for the aggregate `name`, taken apart."""
    if isinstance(given, Fold):
        return fold_spec(name, given)
    if not isinstance(given, Column | str):
        raise GraphError.bad_aggregate(
            name,
            f"is {given!r}",
            'give a function of columns (F.sum("amount")), SQL text, or midstream.fold(…).',
        )
    if is_remote(spark):
        return _of_call(name, call_of(name, given, spark))
    catalyst = _Catalyst(spark)
    call = catalyst.parse(name, given) if isinstance(given, str) else catalyst.expression(given)
    while _kind(call) == "Alias":
        call = call.child()
    if _kind(call) == "AggregateExpression" and _kind(call.aggregateFunction()) in ("First", "Last", "AnyValue"):
        # The grammar has rules of its own for these: the parser gives the function itself instead of a call of it.
        end = call.aggregateFunction()
        value = (catalyst.text(name, end.child()),)
        return aggregate_spec(name, str(end.prettyName()), value, ignore_nulls=bool(end.ignoreNulls()))
    if _kind(call) != "UnresolvedFunction":
        raise GraphError.not_one_aggregate(name, f"{given}")
    arguments = _list(call.arguments())
    ignore_nulls = _is_true(call.ignoreNulls())
    function = str(call.nameParts().mkString("."))
    if function in ("first", "last") and len(arguments) == 2 and _kind(arguments[1]) == "Literal":
        ignore_nulls = arguments.pop().sql() == "true"
    if not is_aggregate(function) and any(map(_has_aggregate, arguments)):
        raise GraphError.not_one_aggregate(name, f"{given}")
    condition = call.filter()
    return aggregate_spec(
        name,
        function,
        tuple(catalyst.text(name, argument) for argument in arguments),
        distinct=call.isDistinct(),
        ignore_nulls=ignore_nulls,
        filter=catalyst.text(name, condition.get()) if condition.isDefined() else None,
    )


def _of_call(name: str, call: Call) -> AggregateSpec:
    return aggregate_spec(
        name,
        call.function,
        call.arguments,
        distinct=call.distinct,
        ignore_nulls=call.ignore_nulls,
        filter=call.filter,
    )


class _Catalyst:
    """Spark's parser and its conversion of columns, of one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._session: Any = spark._jsparkSession
        self._parser: Any = self._session.sessionState().sqlParser()

    def expression(self, column: Column) -> Any:
        return self._session.expression(column._jc)

    def parse(self, name: str, text: str) -> Any:
        try:
            return self._parser.parseExpression(text)
        except PySparkException as cause:
            raise GraphError.bad_aggregate(
                name, f"is {text!r}, which is not SQL: {_first_line(cause)}", 'write it as in "sum(amount)".'
            ) from cause

    def text(self, name: str, expression: Any) -> str:
        """SQL text that means exactly this: as Spark prints it, whatever the spelling was, or as written."""
        if _kind(expression) == "UnresolvedStar" and expression.target().isEmpty():
            return "*"
        for text in (str(expression.sql()), _written(expression)):
            if text is not None and self._means(text, expression):
                return text
        raise GraphError.expression_not_sql(name, str(expression.sql()))

    def _means(self, text: str, expression: Any) -> bool:
        try:
            return _same(self._parser.parseExpression(text), expression)
        except PySparkException:
            return False


def _is_true(flag: Any) -> bool:
    """A flag of a parsed call: a boolean up to Spark 4.1, one that may be absent since."""
    return flag if isinstance(flag, bool) else flag.isDefined() and bool(flag.get())


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _list(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _has_aggregate(expression: Any) -> bool:
    if _kind(expression) == "UnresolvedFunction" and is_aggregate(str(expression.nameParts().mkString("."))):
        return True
    return any(map(_has_aggregate, _list(expression.children())))


def _written(expression: Any) -> str | None:
    """The part of the user's SQL text that the parser made this expression of."""
    origin = expression.origin()
    if origin.sqlText().isEmpty() or origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
        return None
    return str(origin.sqlText().get())[origin.startIndex().get() : origin.stopIndex().get() + 1]


def _same(parsed: Any, expression: Any) -> bool:
    """Whether a parsed expression is the one meant.

    Spark's own equality decides, except where a column and its text differ and mean the same:
    a call of `struct`, numbered aliases inside one, and literals that print as a cast.
    """
    if parsed.equals(expression):
        return True
    kinds = (_kind(parsed), _kind(expression))
    if kinds[1] == "Literal":
        return bool(parsed.sql() == expression.sql())
    if kinds == ("Alias", "Alias"):
        return bool(parsed.name() == expression.name()) and _same(parsed.child(), expression.child())
    if kinds == ("CreateNamedStruct", "CreateNamedStruct"):
        return _all_same(parsed.children(), expression.children())
    if kinds == ("CreateNamedStruct", "UnresolvedFunction"):
        is_struct = expression.nameParts().mkString(".") == "struct"
        return is_struct and _all_same(parsed.valExprs(), expression.arguments())
    if kinds == ("UnresolvedFunction", "UnresolvedFunction"):
        # With the arguments exchanged all else is compared by Spark.
        exchanged = expression.withNewChildren(parsed.children())
        return bool(parsed.equals(exchanged)) and _all_same(parsed.arguments(), expression.arguments())
    return False


def _all_same(parsed: Any, expressions: Any) -> bool:
    pairs = zip(_list(parsed), _list(expressions), strict=False)
    return parsed.size() == expressions.size() and all(_same(a, b) for a, b in pairs)
