from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from midstream.demo.display import Display
from midstream.demo.verify import compare
from midstream.engine.epochs import EpochReport

TOTALS = pa.table({"auction": [1, 2], "bids": [2, 1], "euros": [300, 50], "highest": [200, 50]})


def test_the_order_of_rows_and_columns_does_not_count() -> None:
    shuffled = TOTALS.select(["highest", "euros", "bids", "auction"]).take(pa.array([1, 0]))

    assert compare("state", shuffled, TOTALS).right


@pytest.mark.parametrize(
    "wrong",
    [
        TOTALS.set_column(2, "euros", pa.array([300, 51])),
        TOTALS.set_column(0, "auction", pa.array([1, 3])),
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
