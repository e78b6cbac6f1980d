"""The few facts about Spark's inside that midstream leans on, each with a test that tells when a version breaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from midstream.engine.connect import frames as connect_frames
from midstream.engine.connect import session as connect_session
from midstream.engine.connect.session import is_remote
from midstream.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import DataType, StructType

ARROW_BATCH_CONF = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BATCH_ROWS = 65_536

EPOCH_CONF = {
    # Spark's default manager forks shell commands for permissions on a local file system: ~60 ms an epoch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # The default local file system writes a checksum file beside every file and forks `chmod` for each: 20 ms an epoch.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    # Adaptive execution may coalesce the partitions of a keyed step and plans every epoch twice.
    "spark.sql.adaptive.enabled": "false",
    # Fewer, larger batches on the way to the state tasks.
    ARROW_BATCH_CONF: str(ARROW_BATCH_ROWS),
}
"""Settings of the query's own (cloned) session; the user's session keeps what it had."""


def read_offsets(spark_log: Path, epoch: int) -> str:
    """The text of Spark's offset log for an epoch: written before the epoch runs, so it is always there."""
    return (spark_log / "offsets" / str(epoch)).read_text()


def reshape_offsets(text: str, before: Sequence[str], after: Sequence[str]) -> str:
    """An entry of Spark's offset log for other sources: a version, a line of metadata, then a line a source by its
    position, `-` for one that has not been read yet.

    >>> reshape_offsets("v1\\n{}\\n1\\n2", ["a", "b"], ["b", "c"])
    'v1\\n{}\\n2\\n-'
    """
    if list(before) == list(after):
        return text
    version, metadata, *offsets = text.rstrip("\n").split("\n")
    if version != "v1" or len(offsets) != len(before):
        raise ValueError(f"an offset log of another kind: {version}, {len(offsets)} offsets of {len(before)} sources")
    known = dict(zip(before, offsets, strict=True))
    return "\n".join([version, metadata, *(known.get(source, "-") for source in after)])


def map_in_arrow(
    frame: DataFrame,
    function: Callable[..., Any],
    output: StructType,
    reads: Sequence[str] = (),
    together: bool = False,
) -> DataFrame:
    """`DataFrame.mapInArrow` without its need for pandas, and without a round trip to the JVM for every column.

    `reads` names the columns of the input. Without them Catalyst takes none for needed, and a projection of the output
    would empty the input: they may be left out only when no step reads the output. Tasks that run `together` (Spark's
    barrier mode) wait until there is a slot for each of them.
    """
    if is_remote(frame.sparkSession):
        return frame.mapInArrow(function, output, barrier=together)
    udf = UserDefinedFunction(function, output, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = [quoted(name) for name in reads]
    return type(frame)(frame._jdf.mapInArrow(udf(*columns)._jc, together, None), frame.sparkSession)


class QueryStoppedError(InterruptedError):
    """Leaves an epoch that begins while its query is being stopped. A plain return would count the epoch as done.

    Spark tells its own interrupt from a failure by looking for these words in the message. It looks with a pattern that
    overflows the stack on a long text, such as that of the real interrupt of a call into the JVM.
    """

    def __init__(self) -> None:
        super().__init__("py4j.protocol.Py4JJavaError: An error occurred while calling java.lang.InterruptedException")


class HandOverError(QueryStoppedError):
    """Leaves an epoch whose rows come from a query that is to be replaced by another."""


def run_job(frame: DataFrame) -> None:
    """Compute a DataFrame for its side effects. `collect()` would also describe the plan for a page nobody opens."""
    if is_remote(frame.sparkSession):
        frame.collect()
        return
    frame._jdf.queryExecution().toRdd().count()


def run_partitions(frame: DataFrame, numbers: Sequence[int]) -> None:
    """Compute some partitions of a DataFrame that has no rows, for their side effects, and what they are made of."""
    gateway = frame.sparkSession.sparkContext._gateway
    wanted = gateway.new_array(gateway.jvm.int, len(numbers))  # type: ignore[union-attr]
    for at, number in enumerate(numbers):
        wanted[at] = number
    frame._jdf.queryExecution().toRdd().toJavaRDD().collectPartitions(wanted)


def partitions_of(frame: DataFrame) -> int:
    """How many partitions a DataFrame has. Its `rdd` would make rows of Python of it."""
    return int(frame._jdf.queryExecution().toRdd().getNumPartitions())


def before_exchange(grouped: DataFrame) -> DataFrame:
    """The part of `groupBy(…).agg(…)` that runs before its exchange: partly aggregated rows, several a key.

    The public API cannot ask for it, and with the exchange every epoch would shuffle twice. Where the physical plan is
    not of the known shape (one buffer column a result, of its type) or cannot be seen, all of it is given back: slower,
    and right.
    """
    if is_remote(grouped.sparkSession):
        return grouped
    exchange = _first_exchange(grouped._jdf.queryExecution().executedPlan())
    if exchange is None:
        return grouped
    partial = exchange.child()
    found, wanted = partial.schema(), grouped._jdf.schema()
    if _computed_columns(partial) != len(wanted.fields()):
        return grouped  # Catalyst made one aggregate of two: the columns do not line up
    if [f.dataType().json() for f in found.fields()] != [f.dataType().json() for f in wanted.fields()]:
        return grouped
    rows = grouped.sparkSession._jsparkSession.internalCreateDataFrame(partial.execute(), wanted, False)
    return type(grouped)(rows, grouped.sparkSession)


_NOTED = "midstream_latest"


class Latest(Protocol):
    """The greatest times of some columns of a DataFrame, known once `frame`, which has the same rows, has been read."""

    @property
    def frame(self) -> DataFrame: ...

    def read(self) -> dict[str, int | None]:
        """In microseconds since 1970; None when no row had a time."""
        ...


def latest(frame: DataFrame, columns: Mapping[str, tuple[str, DataType]]) -> Latest:
    """`columns` are those to look at, by any name: as SQL, and their types."""
    return (connect_frames.Maxima if is_remote(frame.sparkSession) else Maxima)(frame, columns)


class Maxima:
    """The greatest times of some columns, noted while other work reads the rows.

    Rows that are read twice do not change them. The public way to note something (`Observation`) tells it only of whole
    actions of a DataFrame, and reads the rows for it when an action does not need them.
    """

    def __init__(self, frame: DataFrame, columns: Mapping[str, tuple[str, DataType]]) -> None:
        self._names = list(columns)
        self._local = [isinstance(kind, TimestampNTZType) for _, kind in columns.values()]
        values = [
            F.expr(f"max({sql if local else f'unix_micros({sql})'}) AS m{number}")
            for number, ((sql, _), local) in enumerate(zip(columns.values(), self._local, strict=True))
        ]
        noted = frame.observe(_NOTED, *values)._jdf
        self._execution = noted.queryExecution()
        rows = self._execution.executedPlan().execute()
        session = frame.sparkSession
        self.frame = type(frame)(session._jsparkSession.internalCreateDataFrame(rows, noted.schema(), False), session)

    def read(self) -> dict[str, int | None]:
        """In microseconds since 1970; None when no row had a time."""
        found = self._execution.observedMetrics().apply(_NOTED)
        return {name: _microseconds(found.get(number), self._local[number]) for number, name in enumerate(self._names)}


def _microseconds(value: Any, is_local: bool) -> int | None:
    if value is None or not is_local:
        return value  # type: ignore[no-any-return]
    moment = datetime.fromisoformat(value.toString()).replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, in a form that does not let Catalyst leave out what reads them."""
    if is_remote(spark):
        return connect_frames.empty_frame(spark, schema)
    return spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)


def settled(frame: DataFrame) -> DataFrame:
    """A DataFrame that means what it means now, whatever becomes of the views it was made of."""
    return connect_frames.settled(frame) if is_remote(frame.sparkSession) else frame


def slots(spark: SparkSession) -> int:
    """How many tasks run at a time."""
    return connect_session.slots(spark) if is_remote(spark) else spark.sparkContext.defaultParallelism


def same_session(one: SparkSession, other: SparkSession) -> bool:
    """Whether two objects are one session: every epoch brings a new one for that of its query."""
    if is_remote(one):
        return connect_session.id_of(one) == connect_session.id_of(other)
    return bool(one._jsparkSession == other._jsparkSession)


def _computed_columns(aggregation: Any) -> int:
    """How many keys and aggregates the plan of a partial aggregation computes; 0 when it is none."""
    if aggregation.getClass().getSimpleName() == "WholeStageCodegenExec":
        aggregation = aggregation.child()
    if not aggregation.getClass().getSimpleName().endswith("HashAggregateExec"):
        return 0
    keys, aggregates = aggregation.groupingExpressions(), aggregation.aggregateExpressions()
    return int(keys.size() + aggregates.size())


def _first_exchange(plan: Any) -> Any | None:
    """The exchange right under the final aggregation, not one further down that belongs to the user's own steps."""
    aggregations = 0
    while plan.children().size() == 1:
        kind = plan.getClass().getSimpleName()
        if kind == "ShuffleExchangeExec":
            return plan
        aggregations += kind.endswith("AggregateExec")
        if aggregations > 1:
            return None  # the rows lie by key already, so that this aggregation has no exchange of its own
        plan = plan.children().head()
    return None


JVM_GONE = (Py4JError, OSError)
"""What a call into the JVM raises when there is none any more, besides Spark's own exceptions."""


def is_active(query: StreamingQuery) -> bool:
    """Whether a query runs. One whose JVM or server is gone does not."""
    try:
        return query.isActive
    except (PySparkException, *JVM_GONE):
        return False


class SessionConf:
    """Set configuration on a session for the length of a `with`, then put back what was there."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        self._spark = spark
        self._settings = settings
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for key, value in self._settings.items():
            self._before[key] = self._spark.conf.get(key, None)
            self._spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key, before in self._before.items():
            if before is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, before)
