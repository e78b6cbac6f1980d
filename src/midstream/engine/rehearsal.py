"""Executors rehearse what instances that move will do: the exchange as it will be cut, and a first state task.

Spark compiles the code that tells a row's partition anew for another number of them, on every executor. One that has
had no instance also loads libraries, connects to the others and to the store, and opens the files of the state. All of
that is not to fall into the epoch that applies the change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NumericType, StringType, StructField, StructType

from midstream.aggregates.function import AggregateFunction
from midstream.engine.cluster import Cluster
from midstream.engine.compile import CompiledKeyed
from midstream.engine.exchange import exchanged
from midstream.engine.internals import map_in_arrow, partitions_of, run_partitions
from midstream.engine.jobs import NamedJobs
from midstream.engine.limits import TimeLimit
from midstream.placement.assign import Assignment, Instance, Moving
from midstream.schemas import NOTHING, to_arrow
from midstream.state.manifest import StepState
from midstream.state.store import Store
from midstream.task.keyed import HASH_COLUMN
from midstream.task.rehearse import Practice, Rehearse

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from midstream.engine.version import Version

_ROWS = 2_000
"""Enough to have Java compile what it does row by row, and few enough for a plan (planned in about 50 ms)."""

_LONGEST_SECONDS = 10.0
"""Longer than this it is no help: an executor that cannot reach the store, say, is not to be kept from its work."""


def rehearse(
    spark: SparkSession,
    cluster: Cluster,
    store: Store,
    version: Version,
    state: Mapping[str, StepState],
    assignment: Assignment,
    moving: Moving,
) -> None:
    """Have every executor send a row to each instance that is moving, and these take it where they will be.

    A step of which it is not known what columns reach its tasks, or for which they cannot be made up, is not rehearsed.
    """
    shipped = version.reused.shipped
    executors = cluster.executors()
    everybody = [executor.location for executor in executors]
    location = {executor.id: executor.location for executor in executors}
    for step, instances in assignment.items():
        numbers = [number for number, instance in enumerate(instances) if _arrives(step, instance, moving)]
        columns = made_up_row(shipped.get(step), [instances[number].range.start for number in numbers])
        if not numbers or columns is None:
            continue
        rows = known_rows(spark, max(_ROWS, len(numbers) * len(everybody))).select(*columns)
        senders = islice(cycle(everybody), partitions_of(rows))
        sent = exchanged(cluster.placed(rows, list(senders), shipped[step]), state[step].ranges)
        placed = cluster.placed(sent, [location.get(instance.executor, "") for instance in instances])
        keyed = version.compiled.keyed[step]
        task = Rehearse(store, keyed.function, state[step].tables, state[step].ranges, practice(keyed, shipped[step]))
        jobs = NamedJobs(spark, f"midstream-rehearsal-{uuid.uuid4().hex}", f"midstream rehearsal: {step}")
        with jobs, TimeLimit(jobs.cancel, _LONGEST_SECONDS):
            run_partitions(map_in_arrow(placed, task, NOTHING), numbers)


def practice(keyed: CompiledKeyed, shipped: StructType) -> Practice | None:
    """What a task may do with made-up rows, if its function is ours and does not look at all of the state."""
    function = keyed.function
    if not isinstance(function, AggregateFunction) or function.complete or not function.is_all_ours:
        return None
    return Practice(function, to_arrow(shipped), keyed.keys)


def known_rows(spark: SparkSession, count: int) -> DataFrame:
    """Rows with an `id` that are part of the plan: Catalyst computes columns of theirs while it plans, so that no
    executor compiles code that would only make up rows. Spark cuts them into as many partitions as there are cores."""
    return spark.sql(f"SELECT * FROM VALUES {', '.join(f'({number}L)' for number in range(count))} AS made_up (id)")


def _arrives(step: str, instance: Instance, moving: Moving) -> bool:
    return instance.range in moving.get(instance.executor, {}).get(step, ())


def made_up_row(shipped: StructType | None, hashes: Sequence[int]) -> list[Column] | None:
    """The columns of made-up rows whose hashes take turns."""
    if shipped is None or not hashes:
        return None
    turn = F.element_at(F.array(*map(F.lit, hashes)), (F.col("id") % len(hashes) + 1).cast("int"))
    made = [turn.alias(HASH_COLUMN) if field.name == HASH_COLUMN else _anything(field) for field in shipped]
    found = [column for column in made if column is not None]
    return found if len(found) == len(made) else None


def _anything(field: StructField) -> Column | None:
    """A value that a column may have, if one is at hand."""
    if field.nullable:
        value = F.lit(None)
    elif isinstance(field.dataType, NumericType | BooleanType):
        value = F.lit(0)
    elif isinstance(field.dataType, StringType):
        value = F.lit("")
    else:
        return None
    return value.cast(field.dataType).alias(field.name)
