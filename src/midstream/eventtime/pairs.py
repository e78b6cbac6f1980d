"""Pairs of rows that belong to one key: what a join is made of."""

from __future__ import annotations

import numpy as np

from midstream.state.tables import Positions


def pairs(left: Positions, right: Positions, groups: int) -> tuple[Positions, Positions]:
    """All pairs of a left and a right row of one group, as positions; each row is given by its group.

    >>> [side.tolist() for side in pairs(np.array([0, 1, 1]), np.array([1, 1, 2]), 3)]
    [[1, 1, 2, 2], [0, 1, 0, 1]]
    """
    by_left, by_right = np.argsort(left, kind="stable"), np.argsort(right, kind="stable")
    of_right = np.bincount(right, minlength=groups)
    first_right = np.cumsum(of_right) - of_right
    # Every left row as often as its group has right rows.
    repeats = of_right[left[by_left]]
    lefts = np.repeat(by_left, repeats)
    total = int(repeats.sum())
    within = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    rights = by_right[np.repeat(first_right[left[by_left]], repeats) + within]
    return lefts, rights
