"""Sessions of Spark Connect: telling them, reaching one by its id, and what they know of the server."""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MANY = 100_000
"""More rows than there are task slots, so that every partition of a range has some."""


def is_remote(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, without a JVM of its own."""
    return not hasattr(spark, "_jsparkSession")


def id_of(spark: SparkSession) -> str:
    return cast(Any, spark).session_id  # type: ignore[no-any-return]


def reached(spark: SparkSession, id_: str) -> SparkSession:
    """A session of the same server and user, by its id."""
    if id_ == id_of(spark):
        return spark
    client = cast(Any, spark).client
    connection = copy.deepcopy(client._builder)
    connection.set("session_id", id_)
    return type(spark)(connection, userId=client._user_id)  # type: ignore[call-arg]


def leave(spark: SparkSession) -> None:
    """Close the connection of a session reached by its id; the session itself is its query's."""
    with suppress(Exception):  # a server that is gone has closed it
        cast(Any, spark).client.close()


def slots(spark: SparkSession) -> int:
    """How many tasks the server runs at a time, which is how many partitions it makes of a range."""
    return _slots(id_of(spark), spark)


@lru_cache(maxsize=16)
def _slots(_: str, spark: SparkSession) -> int:
    return spark.range(_MANY).select(F.spark_partition_id()).distinct().count()
