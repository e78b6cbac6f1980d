from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from midstream.demo import Display, compare, spark_line
from midstream.engine.epochs import EpochReport

TOTALS = pa.table({"customer": ["a", "b"], "country": ["DE", "FR"], "orders": [2, 1], "spent": [300, 50]})


def test_the_order_of_rows_and_columns_does_not_count() -> None:
    shuffled = TOTALS.select(["spent", "orders", "country", "customer"]).take(pa.array([1, 0]))

    assert compare("state", shuffled, TOTALS).right


@pytest.mark.parametrize(
    "wrong",
    [
        TOTALS.set_column(3, "spent", pa.array([300, 51])),
        TOTALS.set_column(0, "customer", pa.array(["a", "c"])),
        TOTALS.slice(1),
        pa.concat_tables([TOTALS, TOTALS]),
    ],
)
def test_any_difference_is_found(wrong: pa.Table) -> None:
    assert not compare("state", wrong, TOTALS).right


def epoch(number: int, seconds: float, duration_ms: float) -> EpochReport:
    started = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    return EpochReport(number, started, duration_ms, 1000, 70, 2048, 100, 1)


def test_the_display_shows_rate_latency_and_state() -> None:
    display = Display()
    display.take([epoch(0, 0.0, 200), epoch(1, 0.5, 300)])
    display.take([epoch(1, 0.5, 300), epoch(2, 1.0, 100)])

    assert display.line() == "epoch 2: 2,000 rows/s, 100 ms (p50 200 ms), state 70 keys, 2.0 KiB"


def test_a_spark_line_of_equal_values_is_flat() -> None:
    assert spark_line([3.0, 3.0]) == "██"
    assert spark_line([0.0]) == "▁"
