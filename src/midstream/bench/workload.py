"""The rows every contender counts: Spark's deterministic `rate-micro-batch` source, with keys."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Workload:
    """`keys` distinct keys, one for each value 0, 1, 2, … by the SQL expression `key_sql`."""

    keys: int
    rows_per_epoch: int
    key_sql: str

    def stream(self, spark: SparkSession, rows_per_epoch: int | None = None) -> DataFrame:
        """The endless source, `value` only.

        Its offsets count rows, so a query may be started again on its checkpoint with another size of epoch:
        that is how a key space is filled in few large epochs and then measured in small ones.
        """
        rows = rows_per_epoch or self.rows_per_epoch
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        return source.load().select("value")

    def with_key(self, values: DataFrame) -> DataFrame:
        return values.selectExpr(f"{self.key_sql} AS key")

    def expected(self, spark: SparkSession, rows: int) -> DataFrame:
        """Counts by key of the first `rows` values, as a batch query: `key`, `n`."""
        values = spark.range(rows).withColumnRenamed("id", "value")
        return self.with_key(values).groupBy("key").count().withColumnRenamed("count", "n")


def random_keys(keys: int, rows_per_epoch: int) -> Workload:
    """Every key once in the first `keys` values, which fills the key space, then keys at random."""
    sql = f"CASE WHEN value < {keys}L THEN value ELSE pmod(xxhash64(value), {keys}L) END"
    return Workload(keys, rows_per_epoch, sql)


def zipf_keys(keys: int, rows_per_epoch: int, exponent: float = 1.1) -> Workload:
    """Every key once in the first `keys` values, then keys by a Zipf distribution: key 0 most often.

    Drawn by the inverse of the distribution's continuous counterpart, cut at the number of keys.
    """
    power = 1 - exponent
    chance = "(pmod(xxhash64(value), 1073741824L) / 1073741824D)"
    drawn = f"CAST(pow((pow({keys}D, {power}) - 1) * {chance} + 1, {1 / power}) AS BIGINT) - 1"
    return Workload(keys, rows_per_epoch, f"CASE WHEN value < {keys}L THEN value ELSE {drawn} END")


def hot_key(keys: int, rows_per_epoch: int, share: float) -> Workload:
    """Key 0 with this share of all rows, the others at random."""
    # One hash says whether a row is of the hot key, another which other key it has.
    hot = f"pmod(xxhash64(value, 1), 1000L) < {round(share * 1000)}L"
    sql = f"CASE WHEN {hot} THEN 0L ELSE 1L + pmod(xxhash64(value, 2), {keys - 1}L) END"
    return Workload(keys, rows_per_epoch, sql)


def rotating_keys(keys: int, rows_per_epoch: int) -> Workload:
    """Key after key: an epoch of `keys` rows has every key once."""
    return Workload(keys, rows_per_epoch, f"pmod(value, {keys}L)")


def short(count: int) -> str:
    """A number of keys in a name.

    >>> short(50_000_000), short(2_000), short(1_500)
    ('50m', '2k', '1500')
    """
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if count >= size and count % size == 0:
            return f"{count // size}{letter}"
    return str(count)
