from pathlib import Path

import pytest
from pyspark import SparkContext

from midstream.bench.session import spark_session, work_directory
from midstream.errors import MidstreamError


def test_the_work_directory_is_removed_and_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").touch()

    with work_directory(tmp_path) as directory:
        (directory / "checkpoint").mkdir()
        (directory / "checkpoint" / "file").touch()

    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_running_session_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", object())

    with pytest.raises(MidstreamError, match="SESSION_ACTIVE"), spark_session(tmp_path):
        pass
