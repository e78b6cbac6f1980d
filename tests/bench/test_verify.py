import numpy as np
import pyarrow as pa
import pytest

from midstream.bench.verify import same_counts

RIGHT = pa.table({"key": [0, 1, 3], "n": [5, 1, 2]})


def test_the_order_of_rows_does_not_matter() -> None:
    assert same_counts(RIGHT.take(np.array([2, 0, 1])), RIGHT, keys=4)


@pytest.mark.parametrize(
    "wrong",
    [
        pa.table({"key": [0, 1, 3], "n": [5, 1, 3]}),
        pa.table({"key": [0, 1, 2], "n": [5, 1, 2]}),
        pa.table({"key": [0, 1], "n": [5, 1]}),
        pa.table({"key": [0, 1, 3, 3], "n": [5, 1, 2, 2]}),
        pa.table({"key": [0, 1, 3, 9], "n": [5, 1, 2, 1]}),
        pa.table({"key": [0, 1, -1], "n": [5, 1, 2]}),
        pa.table({"key": [0, 1, None], "n": [5, 1, 2]}),
        pa.table({"key": [0, 1, 3], "n": [5, 1, None]}),
        pa.table({"key": pa.array([], pa.int64()), "n": pa.array([], pa.int64())}),
    ],
)
def test_any_difference_is_found(wrong: pa.Table) -> None:
    assert not same_counts(wrong, RIGHT, keys=4)
