"""Waiting for the end of an epoch, and not for longer than that pays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat

import pytest

from midstream.engine.pauses import LONGEST_SECONDS, await_pause
from midstream.engine.warming import MOST_PAUSES, in_groups
from midstream.state.manifest import Driver, Manifest

NONE = Manifest("chk", -1, 0, Driver(1, "here", 1, "now"), "")


def manifest(epoch: int, seconds_ago: float = 0.0) -> Manifest:
    committed = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).isoformat(timespec="milliseconds")
    return replace(NONE, epoch=epoch, committed_at=committed)


def seconds(commits: Iterator[Manifest], wanted: bool = True) -> float:
    clock = time.monotonic()
    await_pause(lambda: next(commits), lambda: wanted)
    return time.monotonic() - clock


def test_it_ends_with_the_epoch() -> None:
    assert 0.1 < seconds(chain(repeat(manifest(3), 10), repeat(manifest(4)))) < 0.9 * LONGEST_SECONDS


@pytest.mark.parametrize("last", [NONE, manifest(3, 60)], ids=["before the first epoch", "the stream stands still"])
def test_it_does_not_wait_for_what_may_not_come(last: Manifest) -> None:
    assert seconds(repeat(last)) < 0.1


def test_an_epoch_that_takes_long_is_not_waited_for() -> None:
    assert seconds(repeat(manifest(3))) < LONGEST_SECONDS + 0.5


def test_what_is_no_longer_wanted_does_not_wait() -> None:
    assert seconds(repeat(manifest(3)), wanted=False) < 0.1


@pytest.mark.parametrize("count", [0, 1, 5, 6, 23])
def test_few_pauses_for_however_many(count: int) -> None:
    things = list(range(count))
    groups = in_groups(things)
    assert [thing for group in groups for thing in group] == things
    assert len(groups) <= MOST_PAUSES
    assert all(groups)
