"""Docs that cannot drift: examples in docstrings run, and so does the README's."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

import midstream
from tests.engine.harness import run_available

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(midstream.__path__, "midstream.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", ["midstream", *MODULES])
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def examples(page: str, directory: Path) -> list[str]:
    """The Python blocks of a page, with directories of their own: the JVM keeps the one it was started in."""
    text = (Path(__file__).parents[1] / page).read_text()
    for folder in ("in/", "out/", "chk/"):
        text = text.replace(f'"{folder}"', f'"{directory}/{folder}"')
    (directory / "in").mkdir()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def write_orders(directory: Path, name: str, orders: list[tuple[str, float]]) -> None:
    lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
    hidden = directory / "in" / f".{name}"
    hidden.write_text("\n".join(lines))
    hidden.rename(directory / "in" / f"{name}.json")


@contextmanager
def orders_coming_in(directory: Path) -> Iterator[None]:
    """Input that keeps coming, for changes need epochs to be applied in."""
    enough = threading.Event()

    def feed() -> None:
        number = 0
        while not enough.wait(0.3):
            write_orders(directory, f"more-{number:06d}", [("ann", 5.0 + number), ("bob", 0.25)])
            number += 1

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def test_the_readme_examples_run(spark: SparkSession, tmp_path: Path) -> None:
    first, changing, second = examples("README.md", tmp_path)
    write_orders(tmp_path, "a", [("ann", 5.0), ("bob", 7.5), ("ann", -1.0), ("ann", 2.0)])
    told: list[object] = []
    names: dict[str, Any] = {"print": lambda *what: told.extend(what)}
    exec(first, names)
    (totals,) = told
    assert sorted(map(str, totals)) == [  # type: ignore[call-overload]
        "{'customer': 'ann', 'n': 2, 'spent': 7.0}",
        "{'customer': 'bob', 'n': 1, 'spent': 7.5}",
    ]
    exec(second, names)
    assert names["largest"].sink("x", names["ms"].sinks.noop()).steps
    with orders_coming_in(tmp_path):
        exec(changing, names)
    phases = [str(entry.modification.phase) for entry in names["run"].history()]
    assert phases == ["applied", "undone", "applied"]


@pytest.mark.timeout(600)
def test_the_page_on_changing_a_pipeline_runs(spark: SparkSession, tmp_path: Path) -> None:
    *blocks, promote, parts, last = examples("docs/changing.md", tmp_path)
    told: list[str] = []
    names: dict[str, Any] = {"print": lambda *what: told.append(" ".join(map(str, what)))}
    write_orders(tmp_path, "a", [("ann", 5.0), ("bob", 0.3), ("cy", 12.0)])
    with orders_coming_in(tmp_path):
        for block in blocks:
            exec(block, names)
        deadline = time.monotonic() + 60
        while names["shadow"].epochs < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        exec(promote, names)
        exec(parts, names)
    exec(last, names)
    phases = [str(entry.modification.phase) for entry in names["run"].history()]
    assert phases == ["undone", *["applied"] * 6]
    assert any("2 → 4 partitions" in line for line in told)
    report = names["report"]
    assert report.outputs["out"].only_old > 0, report


def test_the_page_on_control_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIDSTREAM_HOME", str(tmp_path / "home"))
    flow, serving = examples("docs/control.md", tmp_path)
    told: list[str] = []
    names: dict[str, Any] = {"print": told.append}
    exec(flow, names)
    exec(serving.replace("port=8642", "port=0"), names)
    try:
        (address,) = told
        assert httpx.get(address.partition("#")[0]).status_code == 200
    finally:
        names["run"].stop()
        names["server"].stop()


def test_the_page_on_event_time_runs(spark: SparkSession, tmp_path: Path) -> None:
    first, rows, joins, timers, loops, changes, built = examples("docs/eventtime.md", tmp_path)
    for number, second in enumerate((0, 50, 75)):
        view = {"page": "a", "visitor": "v", "at": f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"}
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps(view))
    told: list[object] = []
    names: dict[str, Any] = {"print": told.append}
    exec(first, names)
    (closed,) = spark.read.parquet(f"{tmp_path}/out").collect()
    assert (closed.page, closed.n) == ("a", 2)
    exec(rows, names)
    fans = names["ms"].sinks.memory()
    run_available(names["fans"].sink("fans-out", fans), spark, tmp_path / "chk-rows")
    assert [row["visitor"] for row in fans.to_pylist()] == ["v"]
    exec(joins, names)
    assert told == ["joined"]
    exec(timers, names)
    silent = names["gone"].sink("gone-out", names["ms"].sinks.memory())
    run_available(silent, spark, tmp_path / "chk-timers")
    exec(loops, names)
    run_available(names["loop"], spark, tmp_path / "chk-loop")
    with orders_coming_in(tmp_path):  # rows without a time are rows, too
        exec(changes, names)
        exec(built, names)
    names["run"].stop()
