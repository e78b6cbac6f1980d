"""Aggregates as they are written, taken apart without Spark's parser: columns of Spark Connect, and SQL text.

Whether a text means anything is for Catalyst to say, which analyses what is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from midstream.aggregates.spec import is_aggregate
from midstream.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_BINARY = frozenset(["+", "-", "*", "/", "%", "==", "<=>", "<", "<=", ">", ">=", "and", "or", "&", "|", "^"])
_SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L", "double": "D", "float": "F"}
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_FILTER = re.compile(r"\s*FILTER\s*\(\s*WHERE\b", re.IGNORECASE)
_NULLS = re.compile(r"\s*(IGNORE|RESPECT)\s+NULLS\s*$", re.IGNORECASE)
_DISTINCT = re.compile(r"\s*DISTINCT\b", re.IGNORECASE)


@dataclass(frozen=True)
class Call:
    """A call of a function, its arguments and filter as SQL text."""

    function: str
    arguments: tuple[str, ...]
    distinct: bool = False
    ignore_nulls: bool = False
    filter: str | None = None


def call_of(name: str, given: Column | str, spark: SparkSession) -> Call:
    """The call that an aggregate `name` is; raises when it is something else."""
    if isinstance(given, str):
        return parsed(name, given)
    expression = cast(Any, given).to_plan(cast(Any, spark).client)
    while expression.WhichOneof("expr_type") == "alias":
        expression = expression.alias.expr
    kind = expression.WhichOneof("expr_type")
    if kind == "expression_string":
        return parsed(name, expression.expression_string.expression)
    if kind != "unresolved_function":
        raise GraphError.not_one_aggregate(name, f"{given}")
    call = expression.unresolved_function
    if not is_aggregate(call.function_name) and any(_has_aggregate(argument) for argument in call.arguments):
        raise GraphError.not_one_aggregate(name, f"{given}")
    arguments = [_text(name, argument) for argument in call.arguments]
    return _with_nulls_choice(Call(call.function_name, tuple(arguments), call.is_distinct))


def parsed(name: str, text: str) -> Call:
    """A call from SQL text.

    >>> parsed("n", "count(DISTINCT a, upper(b)) FILTER (WHERE c > ')')")
    Call(function='count', arguments=('a', 'upper(b)'), distinct=True, ignore_nulls=False, filter="c > ')'")
    """
    head = _NAME.match(text)
    end = _closing(text, head.end()) if head else None
    if head is None or end is None:
        raise GraphError.bad_aggregate(name, f"is {text!r}, which is no call", 'write it as in "sum(amount)".')
    inner, rest, condition, ignore_nulls = text[head.end() : end], text[end + 1 :], None, False
    if (within := _FILTER.match(rest)) and (last := _closing(rest, within.end())) is not None:
        condition, rest = rest[within.end() : last].strip(), rest[last + 1 :]
    if nulls := _NULLS.match(rest):
        ignore_nulls, rest = nulls[1].upper() == "IGNORE", ""
    if rest.strip():
        raise GraphError.not_one_aggregate(name, text)
    distinct = _DISTINCT.match(inner)
    inner = inner[distinct.end() :] if distinct else inner
    arguments = tuple(part.strip() for part in _split(inner)) if inner.strip() else ()
    return _with_nulls_choice(Call(head[1], arguments, distinct is not None, ignore_nulls, condition))


def _with_nulls_choice(call: Call) -> Call:
    """`first(x, true)` is another way to write that nulls are left out."""
    if call.function.lower() not in ("first", "last", "first_value", "last_value") or len(call.arguments) != 2:
        return call
    ignored = call.arguments[1].lower() == "true"
    return Call(call.function, call.arguments[:1], call.distinct, ignored, call.filter)


def _outside(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """The characters of SQL outside of quotes, each with how deep in brackets it is."""
    depth, quote, position = 0, "", start
    while position < len(text):
        char = text[position]
        if quote:
            if char == "\\" and quote != "`":
                position += 1
            elif char == quote:
                quote = ""
        elif char in "'\"`":
            quote = char
        else:
            depth -= char in ")]"
            yield position, char, depth
            depth += char in "(["
        position += 1


def _closing(text: str, start: int) -> int | None:
    """Where the bracket is closed that was opened before `start`."""
    return next((at for at, char, depth in _outside(text, start) if char == ")" and depth < 0), None)


def _split(text: str) -> Iterator[str]:
    begin = 0
    for at, char, depth in _outside(text, 0):
        if char == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _has_aggregate(expression: Any) -> bool:
    if expression.WhichOneof("expr_type") != "unresolved_function":
        return False
    call = expression.unresolved_function
    return is_aggregate(call.function_name) or any(_has_aggregate(argument) for argument in call.arguments)


def _text(name: str, expression: Any) -> str:
    """SQL text that means the same as an expression of Spark Connect."""
    kind = expression.WhichOneof("expr_type")
    if kind == "unresolved_star" and not expression.unresolved_star.HasField("unparsed_target"):
        return "*"
    if kind == "unresolved_attribute":
        return str(expression.unresolved_attribute.unparsed_identifier)
    if kind == "expression_string":
        return str(expression.expression_string.expression)
    if kind == "literal":
        return _literal(name, expression.literal)
    if kind == "cast":
        return f"CAST({_text(name, expression.cast.expr)} AS {_type(expression.cast)})"
    if kind == "unresolved_function":
        return _call(name, expression.unresolved_function)
    raise GraphError.expression_not_sql(name, str(expression).strip())


def _call(name: str, call: Any) -> str:
    function, arguments = str(call.function_name), [_text(name, argument) for argument in call.arguments]
    if function in _BINARY and len(arguments) == 2:
        return f"({arguments[0]} {function.upper()} {arguments[1]})"
    if function in ("not", "!"):
        return f"(NOT {arguments[0]})"
    if function == "in":
        return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
    if function == "when":
        pairs = zip(arguments[::2], arguments[1::2], strict=False)
        branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
        otherwise = f" ELSE {arguments[-1]}" if len(arguments) % 2 else ""
        return f"CASE {branches}{otherwise} END"
    return f"{function}({'DISTINCT ' if call.is_distinct else ''}{', '.join(arguments)})"


def _type(cast_: Any) -> str:
    if cast_.WhichOneof("cast_to_type") == "type_str":
        return str(cast_.type_str)
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

    return proto_schema_to_pyspark_data_type(cast_.type).simpleString()


def _literal(name: str, literal: Any) -> str:
    kind = literal.WhichOneof("literal_type")
    if kind in _SUFFIXES:
        return f"{getattr(literal, kind)!r}{_SUFFIXES[kind]}"
    if kind == "boolean":
        return str(literal.boolean).lower()
    if kind == "null":
        return "NULL"
    if kind == "string":
        return "'" + str(literal.string).replace("\\", "\\\\").replace("'", "\\'") + "'"
    raise GraphError.expression_not_sql(name, str(literal).strip())
