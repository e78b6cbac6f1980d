"""Whether a machine is found fit, and what is told when it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from midstream.cli import doctor
from midstream.cli.doctor import Mark
from tests.cli.conftest import Command


def java_that_says(directory: Path, text: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ('openjdk version "21.0.4" 2024-07-16', Mark.OK),
        ('openjdk version "17" 2021-09-14', Mark.OK),
        ('java version "1.8.0_412"', Mark.FAIL),
        ("hello", Mark.FAIL),
    ],
)
def test_java(text: str, mark: Mark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "java", text)))

    assert doctor.java().mark is mark


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java().mark is Mark.FAIL
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "not found" in doctor.java().told


def test_the_python_of_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert doctor.workers_python().mark is Mark.OK
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert doctor.workers_python().mark is Mark.OK
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    assert doctor.workers_python().mark is Mark.FAIL


def test_a_store_is_written_and_left_as_it_was(tmp_path: Path) -> None:
    found = doctor.store(str(tmp_path / "chk"), {})

    assert found.mark is Mark.OK, found
    assert not [path for path in (tmp_path / "chk").rglob("*") if path.is_file()]


@pytest.mark.parametrize(("url", "options"), [("gs://bucket", {}), ("dir", {"colour": "red"})])
def test_a_store_that_cannot_be(url: str, options: dict[str, str], tmp_path: Path) -> None:
    assert doctor.store(url, options).mark is Mark.FAIL


def test_a_store_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert doctor.store(str(tmp_path / "file" / "chk"), {}).mark is Mark.FAIL


def test_the_exit_code_says_whether_something_is_missing(
    midstream: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "java", 'openjdk version "21.0.4"')))
    fit = midstream("doctor", "--checkpoint", str(tmp_path / "chk"))
    assert fit.code == 0, fit.out
    assert "✓" in fit.out

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    unfit = midstream("doctor", "-o", "json")
    assert unfit.code == 1
    assert {"what": "Java", "mark": "fail"}.items() <= unfit.json[0].items()
