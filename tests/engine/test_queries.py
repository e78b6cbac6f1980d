"""Spark is asked again when a busy machine has kept it from starting a query, and only then."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from midstream.engine.queries import _TRIES, _started


class Writer:
    """Fails with each of some errors in turn, then starts."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)

    def start(self) -> Any:
        if self.errors:
            raise PySparkException(self.errors.pop(0))
        return "the query"


BUSY = "org.apache.spark.SparkException: Python worker failed to connect back."


def test_a_process_that_took_too_long_is_started_again() -> None:
    assert _started(Writer(*[BUSY] * (_TRIES - 1))) == "the query"  # type: ignore[arg-type]


@pytest.mark.parametrize("errors", [[BUSY] * _TRIES, ["another name is taken"]], ids=["too often", "something else"])
def test_what_does_not_help_is_told(errors: list[str]) -> None:
    writer = Writer(*errors)
    with pytest.raises(PySparkException):
        _started(writer)  # type: ignore[arg-type]
    assert not writer.errors
