# No `from __future__ import annotations` here: these functions carry real type hints, those of the tests their text.
"""Functions for stateful steps: a running sum by key, in every library and with every kind of type hint."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pandas
import pandas as pd
import polars
import polars as pl
import pyarrow as pa
from polars import DataFrame as Frame

OUTPUT = "k string, s bigint, library string"
STATE = "s bigint"


def _library(frame: object) -> str:
    return type(frame).__module__.partition(".")[0]


def with_pyarrow(rows: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    both = pa.concat_tables([rows.select(["k", "v"]), state.rename_columns(["k", "v"])])
    sums = both.group_by("k", use_threads=False).aggregate([("v", "sum")]).rename_columns(["k", "s"])
    return sums.append_column("library", pa.array([_library(rows)] * sums.num_rows, pa.string())), sums


def with_polars(rows: polars.DataFrame, state: polars.DataFrame) -> tuple[polars.DataFrame, polars.DataFrame]:
    both = pl.concat([rows.select("k", "v"), state.rename({"s": "v"})])
    sums = both.group_by("k").agg(s=pl.col("v").sum())
    return sums.with_columns(library=pl.lit(_library(rows))), sums


def with_polars_frame(rows: Frame, state: Frame) -> tuple[Frame, Frame]:
    return with_polars(rows, state)


def with_pandas(rows: pandas.DataFrame, state: pandas.DataFrame) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    both = pd.concat([rows[["k", "v"]], state.rename(columns={"s": "v"})])
    sums = both.groupby("k", dropna=False, as_index=False).agg(s=("v", "sum"))
    return sums.assign(library=_library(rows)), sums


def without_hints(rows, state):  # type: ignore[no-untyped-def]
    return with_pyarrow(rows, state)


def _logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Summing:
    """A callable object with a setting."""

    def __init__(self, library: str) -> None:
        self.library = library

    def __call__(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        assert _library(rows) == self.library
        return with_polars(rows, state)


def _with_setting(setting: str, rows: pd.DataFrame, state: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    assert setting == "given"
    return with_pandas(rows, state)


TYPED: dict[str, Callable[..., Any]] = {
    "pyarrow": with_pyarrow,
    "polars": with_polars,
    "polars, imported by name": with_polars_frame,
    "pandas": with_pandas,
    "pyarrow, no hints": without_hints,
    "polars, decorated": _logged(with_polars),
    "polars, callable object": Summing("polars"),
    "pandas, partial": partial(_with_setting, "given"),
}
