"""The user's own sink: a function called with each epoch's rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from midstream.errors import SinkError
from midstream.sinks.base import SinkContext, StagedEpoch, StageOptions
from midstream.sinks.staging import in_checkpoint, read_table
from midstream.state.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def for_each_epoch(function: Callable[[DataFrame, int], object]) -> EachEpochSink:
    """Call `function(rows, epoch)` once the epoch is committed, epochs in order.

    >>> sink = for_each_epoch(lambda rows, epoch: rows.write.mode("overwrite").parquet(f"out/{epoch}"))

    After a crash it may be called **again with the same epoch and the same rows**, so make its effect one that can be
    repeated: overwrite a place named by the epoch, or record the epoch together with the rows and skip it when it is
    there. `rows` is a DataFrame over files, empty (with its schema) when the epoch has none; use it inside the call.
    """
    if not callable(function):
        raise SinkError.bad_target("for_each_epoch", repr(function), "a function of a DataFrame and an epoch number")
    return EachEpochSink(function)


class EachEpochSink:
    def __init__(self, function: Callable[[DataFrame, int], object]) -> None:
        self._function = function

    @property
    def stage_options(self) -> StageOptions:
        return StageOptions()

    def staging(self, checkpoint: Store, checkpoint_id: str, sink_id: str) -> Store:
        return in_checkpoint(checkpoint, sink_id)

    def describe(self) -> dict[str, str]:
        return {"kind": "for_each_epoch", "target": _where(self._function)}

    def prepare(self, context: SinkContext) -> None:
        """Nothing to check: the function alone knows its target."""

    def finalise(self, context: SinkContext, staged: StagedEpoch) -> None:
        rows = _rows(context, staged)
        try:
            self._function(rows, staged.epoch)
        except Exception as error:
            raise SinkError.function_failed(context.sink_id, _where(self._function), staged.epoch, error) from error


def _rows(context: SinkContext, staged: StagedEpoch) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(context.schema)
    if not staged.files:
        return context.spark.createDataFrame([], schema)
    paths = [context.staging.local_path(file.path) for file in staged.files]
    # Spark reads TIME from files only when spark.sql.timeType.enabled is set, and it is not by default.
    if None in paths or any("time64" in str(field.type) for field in context.schema):
        table = read_table(context.staging, staged.files, context.schema)
        return context.spark.createDataFrame(table, schema)
    return context.spark.read.schema(schema).parquet(*(_without_globs(str(path)) for path in paths))


def _without_globs(path: str) -> str:
    """Spark takes paths for patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)


def _where(function: Callable[..., object]) -> str:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
