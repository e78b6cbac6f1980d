"""Several sources in one query: a union tagged by source, split again inside the epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from midstream.changes.settings import Settings
from midstream.engine.capped import FILES, CappedSession
from midstream.engine.failure import step_error
from midstream.errors import ChangeError, GraphError, MidstreamError
from midstream.graph.steps import SourceStep
from midstream.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TAG = "__midstream_source"
_FILE = "__midstream_file"
_UNTUNED = Settings()


def load_source(source: SourceStep, spark: SparkSession, settings: Settings = _UNTUNED) -> DataFrame:
    """A source's streaming DataFrame; one that fails or does not stream is named."""
    session: Any = spark
    if settings.rows_per_epoch is not None:
        per_file = settings.rows_per_file.get(source.id)
        session = CappedSession(spark, source.id, settings.rows_per_epoch, per_file)
    try:
        frame = source.load(session)
    except MidstreamError:
        raise
    except Exception as cause:
        raise step_error(source, cause) from cause
    if session is not spark and not session.used:
        raise ChangeError.no_cap(source.id, "its function reads through another session", FILES)
    if not getattr(frame, "isStreaming", False):
        raise GraphError.not_streaming(source.id)
    return frame


def rows_per_file(batch: DataFrame, sources: Sequence[str]) -> dict[str, float]:
    """How many rows the files of an epoch have on average, by source; those that read no files are left out."""
    found: dict[str, float] = {}
    named = batch.withColumn(_FILE, F.input_file_name())
    for number, id_ in enumerate(sources):
        rows = named.where(F.col(_TAG) == number) if len(sources) > 1 else named
        counts = rows.where(F.col(_FILE) != "").groupBy(_FILE).count().agg(F.avg("count")).collect()
        if counts[0][0] is not None:
            found[id_] = float(counts[0][0])
    return found


def with_pulse(stream: DataFrame, pulse: DataFrame | None) -> DataFrame:
    """A stream that is also woken by a pulse, which has no rows."""
    if pulse is None:
        return stream
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in stream.schema]
    return stream.union(pulse.select(*nothing))


def tagged_union(sources: Mapping[str, DataFrame]) -> DataFrame:
    """One streaming DataFrame of all sources. A single source stays as it is."""
    if len(sources) == 1:
        return next(iter(sources.values()))
    tagged = []
    for number, frame in enumerate(sources.values()):
        columns = [F.lit(number).alias(_TAG)]
        for other, shape in enumerate(sources.values()):
            value = F.struct("*") if other == number else F.lit(None).cast(shape.schema)
            columns.append(value.alias(f"s{other}"))
        tagged.append(frame.select(*columns))
    joined = tagged[0]
    for frame in tagged[1:]:
        joined = joined.union(frame)
    return joined


def split_batch(batch: DataFrame, sources: Mapping[str, object]) -> dict[str, DataFrame]:
    """The rows of an epoch by source."""
    if len(sources) == 1:
        return {next(iter(sources)): batch}
    return {id_: batch.where(F.col(_TAG) == number).select(f"s{number}.*") for number, id_ in enumerate(sources)}


def column_of_source(sources: int, number: int, column: str) -> str:
    """How a column of a source is called in the rows of an epoch, of which there are so many sources."""
    return f"s{number}.{quoted(column)}" if sources > 1 else quoted(column)


def sample(batch: DataFrame, sources: Sequence[str], rows: int) -> DataFrame:
    """A few of an epoch's rows of every source, in one task that ends as soon as it has them."""
    single = batch.coalesce(1)
    if len(sources) == 1:
        return single.limit(rows)
    parts = [single.where(F.col(_TAG) == number).limit(rows) for number in range(len(sources))]
    return reduce(lambda a, b: a.union(b), parts)
