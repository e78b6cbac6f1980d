"""Docs that cannot drift: examples in docstrings run, and so does the README's."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import midstream

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(midstream.__path__, "midstream.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", ["midstream", *MODULES])
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_the_readme_example_runs(spark: SparkSession, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    first, second = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    for folder in ("in/", "out/", "chk/"):  # the JVM keeps the directory it was started in
        first = first.replace(f'"{folder}"', f'"{tmp_path}/{folder}"')
    (tmp_path / "in").mkdir()
    orders = [("ann", 5.0), ("bob", 7.5), ("ann", -1.0), ("ann", 2.0)]
    lines = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
    (tmp_path / "in" / "a.json").write_text("\n".join(lines))
    told: list[object] = []
    names: dict[str, object] = {"print": told.append}
    exec(first, names)
    (totals,) = told
    assert sorted(map(str, totals)) == [  # type: ignore[call-overload]
        "{'customer': 'ann', 'n': 2, 'spent': 7.0}",
        "{'customer': 'bob', 'n': 1, 'spent': 7.5}",
    ]
    exec(second, names)
    assert names["largest"].sink("x", names["ms"].sinks.noop()).steps  # type: ignore[attr-defined]
