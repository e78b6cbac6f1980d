"""Whose fault it was: a JVM that is gone is told as that, whoever happened to be calling it."""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JNetworkError

from midstream.engine.failure import as_midstream_error, lost_spark
from midstream.errors import SinkError
from midstream.state.ledger import Ledger
from midstream.state.store import open_store


def blamed(cause: Exception) -> SinkError:
    error = SinkError.function_failed("calls", "write (orders.py:1)", 3, cause)
    error.__cause__ = cause
    return error


def test_a_function_that_was_calling_a_dead_jvm_is_not_to_blame(tmp_path: Path) -> None:
    ledger = Ledger.open(open_store(str(tmp_path)))
    error = as_midstream_error(blamed(Py4JNetworkError("Answer from Java side is empty")), ledger)
    assert error.error_class == "SPARK_GONE"
    assert "Answer from Java side is empty" in error.message


def test_a_function_that_cannot_reach_a_service_of_its_own_is(tmp_path: Path) -> None:
    ledger = Ledger.open(open_store(str(tmp_path)))
    error = blamed(ConnectionError("the service is down"))
    assert as_midstream_error(error, ledger) is error
    assert lost_spark(error) is None
