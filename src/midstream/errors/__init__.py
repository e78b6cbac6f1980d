"""Every error a user can meet: what was given, what was expected, what to do next."""

from midstream.errors.base import MidstreamError, did_you_mean
from midstream.errors.changes import ChangeError
from midstream.errors.checkpoint import CheckpointError
from midstream.errors.control import ControlError
from midstream.errors.epoch import EpochError
from midstream.errors.functions import UserFunctionError
from midstream.errors.graph import GraphError
from midstream.errors.sinks import SinkError
from midstream.errors.store import StoreError

__all__ = [
    "ChangeError",
    "CheckpointError",
    "ControlError",
    "EpochError",
    "GraphError",
    "MidstreamError",
    "SinkError",
    "StoreError",
    "UserFunctionError",
    "did_you_mean",
]
