"""Listeners to a run that cannot make it fail."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

_logger = logging.getLogger(__name__)
_Told = TypeVar("_Told")


def harmless(listener: Callable[[_Told], None]) -> Callable[[_Told], None]:
    """A listener whose failures are logged: the stream that calls it goes on."""

    def listening(told: _Told) -> None:
        try:
            listener(told)
        except Exception:
            _logger.warning("a listener to the pipeline failed", exc_info=True)

    return listening
