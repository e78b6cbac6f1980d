"""Quantiles of measured values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: a value that occurred.

    >>> percentile([40, 10, 20, 30], 50)
    20
    """
    if not values:
        raise ValueError("a percentile of nothing")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(len(ranked) * percent / 100) - 1)]
