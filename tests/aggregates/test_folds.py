"""Folds: what may be given, and what an error says."""

from __future__ import annotations

import operator
from typing import Any

import pyarrow as pa
import pytest

from midstream.aggregates.spec import fold, fold_spec
from midstream.errors import GraphError, UserFunctionError
from tests.aggregates.catalyst import Planned, Row, plan
from tests.aggregates.memory import Partition


def planned(given: Any, type_: pa.DataType, result: pa.DataType | None = None) -> Planned:
    return plan(fold_spec("mine", given), type_, result or type_)


def add_up(total: int, x: int | None) -> int:
    if x is None:
        raise ValueError("no number")
    return total + x


def test_an_exception_names_function_line_key_and_row() -> None:
    plan = planned(fold("x", initial=0, add=add_up, type="bigint"), pa.int64())
    with pytest.raises(UserFunctionError) as raised:
        Partition(plan.function).epoch(plan.per_row([Row(1, 5), Row(2, None)]))
    line = add_up.__code__.co_firstlineno + 2
    assert raised.value.error_class == "FOLD_FAILED"
    assert f"add_up ({__file__}:{line}) of the fold 'mine' raised ValueError" in raised.value.message
    assert "on (None,) for key (2,): no number" in raised.value.message


@pytest.mark.parametrize("wrong", ["text", 2**70, 1.5, None])
def test_a_wrong_accumulator_is_shown(wrong: Any) -> None:
    add = lambda total, x: total + x if x else wrong  # noqa: E731
    plan = planned(fold("x", initial=0, add=add, type="bigint"), pa.int64())
    with pytest.raises(UserFunctionError, match="is not of type bigint") as raised:
        Partition(plan.function).epoch(plan.per_row([Row(1, 5), Row(2, 0)]))
    assert f"gave {wrong!r} for key (2,)" in raised.value.message


def test_a_fraction_inside_an_accumulator_is_not_cut_off() -> None:
    type_ = pa.list_(pa.struct([("n", pa.int64())]))
    add = lambda items, x: [*items, {"n": 1.5}]  # noqa: E731
    plan = planned(fold("x", initial=[], add=add, type="array<struct<n: bigint>>"), type_)
    with pytest.raises(UserFunctionError, match="is not of type array"):
        Partition(plan.function).epoch(plan.per_row([Row(1, [{"n": 1}])]))


def test_append_returns_none_which_is_an_error() -> None:
    plan = planned(
        fold("x", initial=[], add=lambda items, x: items.append(x), type="array<bigint>"), pa.list_(pa.int64())
    )
    with pytest.raises(UserFunctionError, match="'NoneType' object has no attribute 'append'"):
        Partition(plan.function).epoch(plan.per_row([Row(1, [1]), Row(1, [2])]))


def test_keys_do_not_share_a_mutable_initial() -> None:
    def add(counts: list[int], x: list[int]) -> list[int]:
        counts[0] += x[0]
        return counts

    plan = planned(fold("x", initial=[0], add=add, type="array<bigint>"), pa.list_(pa.int64()))
    partition = Partition(plan.function)
    for _ in range(2):
        output = partition.epoch(plan.per_row([Row(1, [1]), Row(2, [10])])).output
    assert {row["k"]: row["mine"] for row in output.to_pylist()} == {1: [2], 2: [20]}


def test_finish_makes_the_result_and_is_held_to_its_type() -> None:
    half = fold("x", initial=0, add=operator.add, type="bigint", finish=lambda n: n / 2, result_type="double")
    plan = planned(half, pa.int64(), pa.float64())
    assert Partition(plan.function).epoch(plan.per_row([Row(1, 3)])).output["mine"].to_pylist() == [1.5]
    bad = fold("x", initial=0, add=operator.add, type="bigint", finish=str, result_type="bigint")
    plan = planned(bad, pa.int64(), pa.int64())
    with pytest.raises(UserFunctionError, match="gave '3' for the accumulator 3"):
        Partition(plan.function).epoch(plan.per_row([Row(1, 3)]))
    raising = fold("x", initial=0, add=operator.add, type="bigint", finish=lambda n: 1 // 0, result_type="bigint")
    plan = planned(raising, pa.int64(), pa.int64())
    with pytest.raises(UserFunctionError, match="raised ZeroDivisionError on 3"):
        Partition(plan.function).epoch(plan.per_row([Row(1, 3)]))


@pytest.mark.parametrize(
    ("columns", "options", "hint"),
    [
        ((), {}, "name one or more"),
        ((5,), {}, "name one or more"),
        (("x",), {"type": int}, "Spark types as text"),
        (("x",), {"add": 5}, "give a function"),
        (("x",), {"add": lambda total: total}, "one value per column"),
        (("x", "y"), {}, "one value per column"),
        (("x",), {"finish": str}, "give both"),
        (("x",), {"result_type": "string"}, "give both"),
        (("x",), {"finish": lambda a, b: a, "result_type": "int"}, "let it take the accumulator"),
    ],
)
def test_a_fold_that_cannot_work_is_refused(columns: tuple[Any, ...], options: dict[str, Any], hint: str) -> None:
    with pytest.raises(GraphError) as raised:
        fold(*columns, **{"initial": 0, "add": add_up, "type": "int", **options})
    assert raised.value.error_class == "BAD_FOLD"
    assert hint in (raised.value.hint or "")


def test_functions_without_a_signature_are_taken() -> None:
    assert fold("x", initial=0, add=max, type="int").add is max
