"""Keys of every type: grouped as batch Spark groups them, also where hashes collide or values only look different."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import midstream as ms
from midstream.errors import GraphError
from midstream.schemas import quoted
from tests.engine.harness import Inbox, as_it_stands, canonical, preaggregated, run_available

# Values of a key by type, the first to seventh. Most name one value twice, and all have a null. Spark's hash of null,
# of an empty array and of a struct of nulls is the same, so those collide.
VALUES = {
    "boolean": "true, false, true, null, false, true, true",
    "tinyint": "-128Y, 127Y, 0Y, null, 1Y, -128Y, 2Y",
    "smallint": "-32768S, 32767S, 0S, null, 1S, -1S, 2S",
    "int": "-2147483648, 2147483647, 0, null, 1, -1, 2",
    "bigint": "-9223372036854775808L, 9223372036854775807L, 0L, null, 1L, -1L, 2L",
    "string": "'', 'a', 'A', null, 'größe 🦆', ' ', 'a'",
    "binary": "X'', X'00', X'0000', null, X'FF', X'61', X'00'",
    "date": "'0001-01-01', '1582-10-15', '1970-01-01', null, '9999-12-31', '2024-02-29', '1970-01-01'",
    # The two hours that Berlin calls half past two on the day the clock goes back, the second one written twice.
    "timestamp": "'2024-10-27 00:30:00Z', '2024-10-27 01:30:00Z', '1969-12-31 23:59:59.999999Z', null,"
    " '0001-01-02 00:00:00Z', '9999-12-30 00:00:00Z', '2024-10-27 04:30:00+03:00'",
    "timestamp_ntz": "'2024-10-27 02:30:00', '2024-03-31 02:30:00', '1970-01-01', null, '0001-01-01',"
    " '9999-12-31 23:59:59.999999', '1970-01-01'",
    "time": "'00:00:00', '23:59:59.999999', '12:00:00', null, '00:00:00.000001', '00:00:00', null",
    "interval day to second": "INTERVAL '0' DAY, INTERVAL '-1' SECOND, INTERVAL '86400' SECOND, null,"
    " INTERVAL '1' DAY, INTERVAL '0.000001' SECOND, INTERVAL '1' DAY",
    "decimal(38,18)": "1.5, -1.5, 0, null, 12345678901234567890.000000000000000001, 0.000000000000000001, 1.50",
    "decimal(4,2)": "1.5, -1.5, 0, null, 99.99, 0.01, 1.50",
    "float": "float('NaN'), -0.0f, 0.0f, null, float('inf'), 1.5f, -float('NaN')",
    "double": "double('NaN'), -0.0d, 0.0d, null, double('-inf'), 1.5d, -double('NaN')",
    "struct<a: int, b: string>": "struct(1, 'x'), struct(null, 'x'), struct(1, null), null, struct(null, null),"
    " struct(2, 'x'), struct(1, 'x')",
    "struct<a: struct<x: double>, b: array<int>>": "struct(struct(-0.0d), array(1)), struct(struct(0.0d), array(1)),"
    " struct(null, array()), null, struct(struct(null), null), struct(struct(double('NaN')), array(null)),"
    " struct(struct(double('NaN')), array(null))",
    "array<int>": "array(1, 2), array(2, 1), array(), null, array(null), array(null, null), array(1, 2)",
    "array<double>": "array(-0.0d), array(0.0d), array(), null, array(double('NaN')), array(null),"
    " array(double('NaN'))",
    "array<string>": "array('a', 'b'), array('ab'), array(), null, array(''), array(null), array('a', 'b')",
    "array<struct<a: int, b: array<int>>>": "array(struct(1, array(1))), array(struct(1, null)), array(), null,"
    " array(null), array(struct(null, null)), array(struct(1, array(1)))",
}
COMPOSITES = (
    ("string", "string"),
    ("int", "bigint", "tinyint"),
    ("double", "array<int>"),
    ("timestamp", "struct<a: int, b: string>", "boolean"),
)
NAMES = (
    ("UPPER", "lower", "Mixed"),
    ("with space", " lead", "tab\t", ""),
    ("dot.ted", "a.b.c", "."),
    ("back`tick", "``", 'dou"ble', "apo'strophe"),
    ("größe", "鍵", "🦆"),
    ("select", "input", "count(1)", "1"),
    ("semi;colon", "per%cent", "sl/ash", "back\\slash", "new\nline"),
)
EPOCHS: list[list[tuple[int | None]]] = [
    [(1,), (2,), (3,), (3,), (4,), (6,), (None,)],
    [(7,), (6,), (5,), (4,), (3,), (2,), (2,), (1,), (None,)],
]


def element(type_: str, index: str = "i") -> str:
    """SQL for the i-th value of a type; null for a null index."""
    return f"element_at(CAST(array({VALUES[type_]}) AS array<{type_}>), {index})"


Keys = dict[str, str]
"""Key columns by name, each as SQL over the number `i`."""


def composite(number: int, types: tuple[str, ...]) -> Keys:
    """Each part takes its nulls elsewhere: (null, a) and (a, null) have one hash."""
    parts = (element(type_, f"CASE WHEN i % {n} > 0 THEN i END") for n, type_ in enumerate(types, 2))
    return {f"part {n} of {number}": part for n, part in enumerate(parts)}


CASES: dict[str, Keys] = {
    **{type_: {f"k{n}": element(type_)} for n, type_ in enumerate(VALUES)},
    **{" and ".join(types): composite(n, types) for n, types in enumerate(COMPOSITES)},
    **{f"named {names!a}": {name: f"i % {n}" for n, name in enumerate(names, 2)} for names in NAMES},
}


class Counted:
    """One pipeline that counts by many keys, with an aggregate and with a function each, over several epochs."""

    def __init__(self, spark: SparkSession, directory: Path, cases: dict[str, Keys]) -> None:
        numbers, columns = Inbox(directory / "in", "i int"), {k: v for keys in cases.values() for k, v in keys.items()}
        for rows in EPOCHS:
            numbers.add(*rows)

        def with_keys(df: DataFrame) -> DataFrame:
            return df.selectExpr(*(f"{sql} AS {quoted(name)}" for name, sql in columns.items()))

        self._cases = cases
        self._batch = with_keys(numbers.batch(spark))
        self._aggregated = {case: ms.sinks.memory() for case in cases}
        self._by_hand = {case: ms.sinks.memory() for case in cases}
        stream, flows = numbers.source().transform("keys", with_keys), []
        for number, (case, keys) in enumerate(cases.items()):
            keyed, count = stream.key_by(*keys), partial(_count, tuple(keys))
            output = StructType([*(self._batch.schema[key] for key in keys)]).add("n", "long")
            aggregated = keyed.aggregate(f"counts-{number}", n=F.count("*"))
            by_hand = keyed.stateful_per_key(f"hand-{number}", count, state="n bigint", output=output)
            flows.append(aggregated.sink(f"counts-out-{number}", self._aggregated[case]))
            flows.append(by_hand.sink(f"hand-out-{number}", self._by_hand[case]))
        # The two ways rows reach a state task must agree on hash and key.
        with preaggregated(lambda epoch: epoch % 2 == 0):
            self._run = run_available(ms.pipeline(*flows), spark, directory / "chk")

    def check(self, case: str) -> None:
        keys = list(self._cases[case])
        grouped = self._batch.groupBy(*(F.col(quoted(key)) for key in keys))
        wanted = canonical(grouped.agg(F.count("*").alias("n")))
        assert as_it_stands(self._aggregated[case], *keys) == wanted
        assert as_it_stands(self._by_hand[case], *keys) == wanted
        state = self._run.read_state(f"counts-{list(self._cases).index(case)}")
        assert state.num_rows == len(wanted)


def _count(
    names: tuple[str, ...], key: tuple[Any, ...], rows: list[Any], state: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    n = len(rows) + (state["n"] if state else 0)
    return [{**dict(zip(names, key, strict=True)), "n": n}], {"n": n}


SHORT = {
    case: CASES[case]
    for case in (
        "boolean",
        "bigint",
        "string",
        "binary",
        "timestamp",
        "time",
        "decimal(38,18)",
        "double",
        "struct<a: int, b: string>",
        "array<double>",
        "timestamp and struct<a: int, b: string> and boolean",
        f"named {NAMES[3]!a}",
    )
}
"""One of each kind; the long suite has all."""


def count(spark: SparkSession, directory: Path, cases: dict[str, Keys]) -> Counted:
    before = spark.conf.get("spark.sql.timeType.enabled")
    spark.conf.set("spark.sql.timeType.enabled", "true")
    try:
        return Counted(spark, directory, cases)
    finally:
        spark.conf.set("spark.sql.timeType.enabled", before)


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return count(spark, tmp_path_factory.mktemp("keys"), SHORT)


@pytest.fixture(scope="module")
def all_counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Counted:
    return count(spark, tmp_path_factory.mktemp("all-keys"), CASES)


@pytest.mark.parametrize("case", SHORT)
def test_keys(counted: Counted, set_conf: Callable[[str, str], None], case: str) -> None:
    set_conf("spark.sql.timeType.enabled", "true")
    counted.check(case)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_all_keys(all_counted: Counted, set_conf: Callable[[str, str], None], case: str) -> None:
    set_conf("spark.sql.timeType.enabled", "true")
    all_counted.check(case)


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"])
def test_keys_in_another_time_zone(
    spark: SparkSession, tmp_path: Path, set_conf: Callable[[str, str], None], zone: str
) -> None:
    set_conf("spark.sql.session.timeZone", zone)
    moments = {type_: element(type_) for type_ in ("timestamp", "timestamp_ntz", "date")}
    days = {"day": f"date_trunc('DAY', {element('timestamp')})", "its date": f"date({element('timestamp')})"}
    cases = {"moments": moments, "days": days}
    counted = Counted(spark, tmp_path, cases)
    for case in cases:
        counted.check(case)


def test_names_that_differ_in_case_only(
    spark: SparkSession, tmp_path: Path, set_conf: Callable[[str, str], None]
) -> None:
    set_conf("spark.sql.caseSensitive", "true")
    Counted(spark, tmp_path, {"case": {"k": "i % 2", "K": "i % 3"}}).check("case")


@pytest.mark.parametrize(
    ("key", "type_"),
    [
        ("map('a', i)", "map<string,int>"),
        ("struct(map('a', i) AS m)", "struct<m:map<string,int>>"),
        ("array(map('a', i))", "array<map<string,int>>"),
        ("parse_json('1')", "variant"),
        ("NULL", "void"),
        ("collate('a', 'UTF8_LCASE')", "string collate UTF8_LCASE"),
        ("array(collate('a', 'UTF8_LCASE'))", "array<string collate UTF8_LCASE>"),
        ("make_ym_interval(i, 0)", "interval year to month"),
        ("make_interval(i)", "interval"),
    ],
)
def test_types_that_cannot_be_keys(
    spark: SparkSession, tmp_path: Path, inbox: Callable[..., Inbox], key: str, type_: str
) -> None:
    keyed = inbox("i int").source().transform("keyed", lambda df: df.selectExpr(f"{key} AS k"))
    flow = keyed.key_by("k").aggregate("counts", n=F.count("*")).sink("out", ms.sinks.noop())
    with pytest.raises(GraphError, match="BAD_KEY_TYPE") as raised:
        flow.start(spark, str(tmp_path / "chk"))
    assert all(word in str(raised.value) for word in ("'counts'", "'k'", type_))
