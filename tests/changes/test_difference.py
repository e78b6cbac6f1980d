"""Two tables side by side."""

from __future__ import annotations

import pyarrow as pa

from midstream.changes.difference import Difference, difference


def rows(*values: tuple[object, ...]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in values])


def numbers(found: Difference) -> tuple[int, int, int]:
    return found.only_old, found.only_new, found.changed


def test_by_key() -> None:
    found = difference(rows(("a", 1), ("b", 2), ("c", 3)), rows(("a", 1), ("b", 5), ("d", 4)), ["k"])
    assert numbers(found) == (1, 1, 1)
    assert found.samples[0] == ({"k": "b", "v": 2}, {"k": "b", "v": 5})
    assert not found.is_none


def test_as_bags_where_keys_repeat_or_are_not_known() -> None:
    assert numbers(difference(rows(("a", 1), ("a", 1)), rows(("a", 1), ("a", 2)), ["k"])) == (1, 1, 0)
    assert numbers(difference(rows(("a", 1)), rows(("a", 1)), [])) == (0, 0, 0)


def test_nested_values_and_nan() -> None:
    old = pa.table({"k": [1, 2], "v": [[1.0, float("nan")], None]})
    assert difference(old, old, ["k"]).is_none


def test_large_tables_are_compared_in_part() -> None:
    old = rows(*[(i, i) for i in range(1000)])
    new = rows(*[(i, i + (i % 2)) for i in range(1000)])
    part = difference(old, new, ["k"], most=100)
    assert 50 < part.rows_old < 200
    assert part.rows_old == part.rows_new
    assert 0 < part.changed < part.rows_old
    assert difference(old, new, [], most=100) == Difference(1000, 1000)


def test_differences_add_up() -> None:
    one = Difference(1, 2, 3, 4, 5, (({"k": 1}, None),))
    assert one + one == Difference(2, 4, 6, 8, 10, one.samples * 2)
    assert str(Difference(3, 3)) == "3 rows, all the same"
