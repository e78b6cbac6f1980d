"""Aggregates taken apart without Spark's parser."""

from __future__ import annotations

import pytest

from midstream.engine.connect.columns import Call, parsed
from midstream.errors import GraphError


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("sum(amount)", Call("sum", ("amount",))),
        (" Count ( * ) ", Call("Count", ("*",))),
        ("count(DISTINCT a, b)", Call("count", ("a", "b"), distinct=True)),
        ("count(distinct_ones)", Call("count", ("distinct_ones",))),
        ("sum(round(a / b, 2))", Call("sum", ("round(a / b, 2)",))),
        ("max(x[0]) FILTER (WHERE y IN ('a)', \"b\"))", Call("max", ("x[0]",), filter="y IN ('a)', \"b\")")),
        ("first(x, true)", Call("first", ("x",), ignore_nulls=True)),
        ("last(x, false)", Call("last", ("x",))),
        ("first(x) IGNORE NULLS", Call("first", ("x",), ignore_nulls=True)),
        ("last(x) respect nulls", Call("last", ("x",))),
        ("sum(`a,b)`)", Call("sum", ("`a,b)`",))),
        (r"count_if(a = 'it\'s (')", Call("count_if", (r"a = 'it\'s ('",))),
        ("count_if(a = 'it''s (')", Call("count_if", ("a = 'it''s ('",))),
        ("count()", Call("count", ())),
    ],
)
def test_a_call(text: str, call: Call) -> None:
    assert parsed("n", text) == call


@pytest.mark.parametrize("text", ["sum(a) + 1", "sum(a) sum(b)", "sum(a) FILTER (WHERE x) OVER (w)"])
def test_more_than_one_call(text: str) -> None:
    with pytest.raises(GraphError, match="NOT_ONE_AGGREGATE"):
        parsed("n", text)


@pytest.mark.parametrize("text", ["amount", "sum(amount", "", "1 + sum(a)", "'sum(a)'"])
def test_no_call(text: str) -> None:
    with pytest.raises(GraphError, match=r"write it as in \"sum\(amount\)\""):
        parsed("n", text)
