"""The native peer of the user-function path: Spark's Python state API, which calls a processor by key."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from midstream.bench.native import ROCKSDB, NativeCount
from midstream.errors import MidstreamError

if TYPE_CHECKING:
    import pandas as pd

OUTPUT = "key bigint, n bigint"


class PandasCount(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("n", "n bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        import pandas as pd

        before = self._count.get()
        count = (before[0] if before else 0) + sum(len(part) for part in rows)
        self._count.update((count,))
        yield pd.DataFrame({"key": [key[0]], "n": [count]})

    def close(self) -> None: ...


class RowCount(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("n", "n bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._count.get()
        count = (before[0] if before else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(key=key[0], n=count)

    def close(self) -> None: ...


def _in_pandas(keyed: DataFrame) -> DataFrame:
    return keyed.groupBy("key").transformWithStateInPandas(PandasCount(), OUTPUT, "Update", "None")


def _in_rows(keyed: DataFrame) -> DataFrame:
    return keyed.groupBy("key").transformWithState(RowCount(), OUTPUT, "Update", "None")


def _peer(name: str, query: Any) -> NativeCount:
    return NativeCount(name, ROCKSDB, query, "value.n", {"stateVarName": "n"})


PEERS = {
    "spark-tws-pandas": _peer("spark-tws-pandas", _in_pandas),
    "spark-tws-rows": _peer("spark-tws-rows", _in_rows),
}


def require_packages() -> None:
    """PySpark does not ask for these packages, and fails for lack of them only deep in a worker."""
    for module, package in (("pandas", "pandas"), ("google.protobuf", "protobuf")):
        try:
            found = find_spec(module) is not None and find_spec(f"{module}.descriptor" if "." in module else module)
        except ModuleNotFoundError:
            found = None
        if not found:
            raise MidstreamError(
                "MISSING_PACKAGE",
                f"Spark's transformWithState in Python, the peer of this benchmark, needs {package}.",
                hint=f"pip install {package}",
            )
