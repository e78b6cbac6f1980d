"""Settings of a run that changes may tune, apart from the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from midstream.changes.change import Change, Drain, Migrate, Tune, single_changes
from midstream.errors import ChangeError
from midstream.placement.assign import Rules

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "trigger_seconds": (0, 86_400),
    "rows_per_epoch": (1, 10**12),
    "arrow_batch_rows": (1, 10**7),
    "fetch_bytes_per_second": (10**4, 10**12),
}


class FetchPolicy(StrEnum):
    """How state gets to an instance that moves. Only the first is good; the others are there to compare with."""

    HOT_FIRST = "hot-first"
    ON_DEMAND = "on-demand"
    ORDER_UNAWARE = "order-unaware"
    ALL_AT_ONCE = "all-at-once"


@dataclass(frozen=True)
class Settings:
    """What was tuned; None is what the program says. `rows_per_file` is what a cap on rows goes by for files."""

    trigger_seconds: float | None = None
    rows_per_epoch: int | None = None
    arrow_batch_rows: int | None = None
    fetch_bytes_per_second: float | None = None
    fetch_policy: FetchPolicy = FetchPolicy.HOT_FIRST
    rows_per_file: Mapping[str, float] = field(default_factory=dict)
    rules: Rules = field(default_factory=Rules)
    """Where instances must run, and where not."""

    def after(self, change: Change) -> Settings:
        settings = self
        for single in single_changes(change):
            match single:
                case Tune():
                    settings = settings._tuned(single)
                case Migrate():
                    rules = settings.rules.within(single.application)
                    settings = replace(settings, rules=rules.pinned(single.step, single.instances or (), single.to))
                case Drain():
                    settings = replace(settings, rules=_drained(settings.rules, single))
        return settings

    def _tuned(self, tune: Tune) -> Settings:
        given: dict[str, Any] = {n: getattr(tune, n) for n in _BOUNDS if getattr(tune, n) is not None}
        for name, value in given.items():
            low, high = _BOUNDS[name]
            if not low <= value <= high:
                raise ChangeError.bad_setting(name, value, low, high)
        if tune.fetch_policy is not None:
            given["fetch_policy"] = _policy(tune.fetch_policy)
        if not given and tune.compaction is None:
            raise ChangeError.bad_setting("Tune", "nothing", 0, 0)
        return replace(self, **given, rows_per_file=tune.rows_per_file or self.rows_per_file)

    def feeds_alike(self, other: Settings) -> bool:
        """Whether one query of Spark serves both."""
        mine, others = (
            (s.trigger_seconds, s.rows_per_epoch, s.rows_per_file if s.rows_per_epoch else None) for s in (self, other)
        )
        return mine == others


def _policy(name: str) -> FetchPolicy:
    try:
        return FetchPolicy(name)
    except ValueError as cause:
        raise ChangeError.bad_policy(name, list(FetchPolicy)) from cause


def _drained(rules: Rules, drain: Drain) -> Rules:
    if drain.host is not None:
        return replace(rules, hosts=rules.hosts | {drain.host})
    rules = rules.within(drain.application)
    return replace(rules, executors=rules.executors | {str(drain.executor)})
