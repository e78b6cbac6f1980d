"""Packages that only some sinks need."""

from __future__ import annotations

import importlib.util

from midstream.errors import SinkError


def require_extra(sink: str, module: str) -> None:
    """Fail where the pipeline is written, not in the middle of the run; the extra has the sink's name."""
    if importlib.util.find_spec(module) is None:
        raise SinkError.missing_extra(sink, module)
