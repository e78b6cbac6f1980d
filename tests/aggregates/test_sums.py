"""Sums at the edge of their types."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.aggregates.spec import aggregate_spec
from midstream.errors import UserFunctionError
from tests.aggregates.catalyst import Planned, Row, plan
from tests.aggregates.memory import Partition

LARGEST = 2**63 - 1


def longs() -> Planned:
    return plan(aggregate_spec("r", "sum", ("x",)), pa.int64(), pa.int64())


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(st.sampled_from([LARGEST, -LARGEST - 1, 2**62, -1, 1]), min_size=1, max_size=6), max_size=3))
def test_bigint_sum_is_exact_or_an_error(epochs: list[list[int]]) -> None:
    partition, total = Partition(longs().function), 0
    for values in epochs:
        rows = longs().per_row([Row(7, value) for value in values])
        if abs(sum(values)) <= LARGEST and abs(total + sum(values)) <= LARGEST:
            total += sum(values)
            assert partition.epoch(rows).output["r"].to_pylist() == [total]
        elif -LARGEST - 1 in (sum(values), total + sum(values)):
            return  # fits just so, one way or the other
        else:
            with pytest.raises(UserFunctionError, match=r"sum\(x\) of key \(7,\) no longer fits int64"):
                partition.epoch(rows)
            return


def test_overflow_names_the_key_among_others() -> None:
    rows = [Row(1, 5), Row(2, None), Row(3, LARGEST), Row(3, 1), Row(4, None)]
    with pytest.raises(UserFunctionError, match=r"key \(3,\)"):
        Partition(longs().function).epoch(longs().per_row(rows))


def test_decimal_overflow_is_an_error() -> None:
    type_ = pa.decimal128(38, 0)
    planned = plan(aggregate_spec("r", "sum", ("x",)), type_, type_)
    partition = Partition(planned.function)
    most = Decimal(10**38 - 1)
    result = partition.epoch(planned.per_row([Row(1, most), Row(2, most), Row(2, Decimal(-1))])).output
    assert sorted(result["r"].to_pylist()) == [Decimal(10**38 - 2), most]
    with pytest.raises(UserFunctionError, match=r"key \(1,\) no longer fits decimal128\(38, 0\)"):
        partition.epoch(planned.per_row([Row(2, Decimal(1)), Row(1, Decimal(1))]))


def test_doubles_do_not_overflow_and_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    planned = plan(aggregate_spec("r", "sum", ("x",)), pa.float64(), pa.float64())
    partition = Partition(planned.function)
    assert partition.epoch(planned.per_row([Row(1, 1e308), Row(1, 1e308)])).output["r"].to_pylist() == [math.inf]
    assert math.isnan(partition.epoch(planned.per_row([Row(1, -math.inf)])).output["r"][0].as_py())
    assert not recwarn.list


def test_variance_keeps_its_digits_far_from_zero() -> None:
    planned = plan(aggregate_spec("r", "var_pop", ("x",)), pa.float64(), pa.float64())
    partition = Partition(planned.function)
    for epoch in range(100):
        rows = [Row(1, 1e9 + value) for value in (4.0, 7.0, 13.0, 16.0)]
        arrived = planned.grouped(rows) if epoch % 2 else planned.per_row(rows)
        output = partition.epoch(arrived).output
    assert output["r"].to_pylist() == [pytest.approx(22.5, rel=1e-9)]
