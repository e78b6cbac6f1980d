import pytest

from midstream.bench import native
from midstream.bench.keycount import KeycountOptions, select_peers, targets
from midstream.bench.report import Measurement
from midstream.bench.trial import default_fill_epochs
from midstream.bench.workload import random_keys
from midstream.errors import MidstreamError


def measured(rows_per_second: float) -> Measurement:
    return Measurement(10, 100, 5, rows_per_second, 20.0, 30.0)


PEERS = {"spark-rocksdb": measured(100.0), "spark-memory": measured(200.0)}


@pytest.mark.parametrize(
    ("keys", "rows", "bounds"),
    [
        (10_000_000, 1_000_000, {"rows/s vs spark-rocksdb": ">= 10", "rows/s vs spark-memory": ">= 5"}),
        (10_000, 1_000_000, {"rows/s vs spark-memory": ">= 0.9"}),
        (10_000, 4_000_000, {"rows/s vs spark-memory": ">= 1"}),
        (1_000_000, 1_000_000, {}),
        (10_000, 1_000, {}),
    ],
)
def test_the_parameters_choose_the_targets(keys: int, rows: int, bounds: dict[str, str]) -> None:
    found = targets(KeycountOptions(keys, rows), measured(1100.0), PEERS)

    assert {target.name: target.bound for target in found} == bounds


def test_a_target_compares_rows_a_second() -> None:
    rocksdb, memory = targets(KeycountOptions(), measured(900.0), PEERS)

    assert (rocksdb.value, rocksdb.met) == (9.0, False)
    assert (memory.value, memory.met) == (4.5, False)


def test_a_peer_that_did_not_run_has_no_target() -> None:
    found = targets(KeycountOptions(), measured(900.0), {"spark-memory": measured(10.0)})

    assert [target.name for target in found] == ["rows/s vs spark-memory"]


def test_an_unknown_peer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(MidstreamError, match="UNKNOWN_PEER") as error:
        select_peers(("spark-rocksdb", "flink"), native.PEERS)

    assert "spark-memory" in str(error.value)


@pytest.mark.parametrize(
    ("keys", "rows", "epochs"),
    [(10_000, 1_000_000, 0), (10_000_000, 1_000_000, 1), (50_000_000, 100_000, 5), (3_000, 1_000, 1)],
)
def test_the_key_space_is_filled_in_few_large_epochs(keys: int, rows: int, epochs: int) -> None:
    assert default_fill_epochs(random_keys(keys, rows)) == epochs
