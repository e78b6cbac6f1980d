"""Where results go. Each sink shows every committed epoch exactly once."""

from midstream.sinks.base import Sink
from midstream.sinks.delta import delta
from midstream.sinks.each_epoch import for_each_epoch
from midstream.sinks.memory import memory
from midstream.sinks.noop import noop
from midstream.sinks.parquet import parquet
from midstream.sinks.postgres import postgres

__all__ = ["Sink", "delta", "for_each_epoch", "memory", "noop", "parquet", "postgres"]
