"""Rows brought to the partition that owns the range of their hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from midstream.state.hashspace import HashRange, partition_sql
from midstream.task.keyed import HASH_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def exchanged(hashed: DataFrame, ranges: Sequence[HashRange]) -> DataFrame:
    """Rows that have a hash, in one partition for each range."""
    return hashed.repartitionById(len(ranges), F.expr(partition_sql(HASH_COLUMN, ranges)))
