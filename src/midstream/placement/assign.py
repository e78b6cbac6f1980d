"""Which executor runs which instance of a keyed step. Facts in, an assignment out: no Spark, no I/O.

An instance stays where it is, because its state is cached there, unless its executor is gone or drained, a change has
pinned it elsewhere, or its step is two instances out of balance. Without its pin it goes back where it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from midstream.state.hashspace import HashRange


@dataclass(frozen=True)
class Executor:
    """A process of the cluster that runs tasks."""

    id: str
    host: str

    @property
    def location(self) -> str:
        """In Spark's notation of preferred places."""
        return f"executor_{self.host}_{self.id}"


@dataclass(frozen=True)
class Rules:
    """What changes demand: instances of a step on certain executors; executors and hosts that get none.

    Executors are known by numbers that another application gives to others: `application` says whose they are.
    """

    pins: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    executors: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    application: str | None = None

    def allows(self, executor: Executor) -> bool:
        return executor.id not in self.executors and executor.host not in self.hosts

    def within(self, application: str | None) -> Rules:
        """What of it holds in an application."""
        return self if application == self.application else Rules(hosts=self.hosts, application=application)

    def pinned(self, step: str, instances: Iterable[int], to: str) -> Rules:
        return replace(self, pins={**self.pins, step: {**self.pins.get(step, {}), **dict.fromkeys(instances, to)}})


@dataclass(frozen=True)
class Instance:
    """One partition of a keyed step and the executor it belongs on. Without a pin that is its `home`.

    `standbys` are executors that keep its state at hand, too, in the order in which they would take over.
    """

    range: HashRange
    executor: str
    home: str
    standbys: tuple[str, ...] = ()

    def place(self, usable: Sequence[str]) -> str | None:
        """Where it would best be: at home, or else where its state is at hand."""
        return next((executor for executor in (self.home, *self.standbys) if executor in usable), None)


Assignment: TypeAlias = Mapping[str, tuple[Instance, ...]]

Moving: TypeAlias = Mapping[str, Mapping[str, tuple[HashRange, ...]]]
"""By executor and step, ranges whose state it needs."""


def assign(
    steps: Mapping[str, Sequence[HashRange]],
    executors: Sequence[Executor],
    before: Assignment,
    rules: Rules = Rules(),  # noqa: B008 (frozen)
    standby: int = 0,
    newcomers: Collection[str] = (),
) -> dict[str, tuple[Instance, ...]]:
    """Where every instance belongs now, with so many standbys each. Empty when there is no executor to put one on.

    Newcomers get only what is pinned to them, unless there is nobody else.
    """
    allowed = [executor for executor in executors if rules.allows(executor)]
    usable = [executor.id for executor in allowed]
    if not usable:
        return {}
    settled = [id_ for id_ in usable if id_ not in newcomers] or usable
    total: Counter[str] = Counter()
    assigned: dict[str, tuple[Instance, ...]] = {}
    for step, ranges in steps.items():
        homes = _homes(ranges, before.get(step, ()), settled, total)
        pins = {instance: to for instance, to in rules.pins.get(step, {}).items() if to in usable}
        places = [pins.get(number, home) for number, home in enumerate(homes)]
        others = [_standbys(place, number, allowed)[:standby] for number, place in enumerate(places)]
        assigned[step] = tuple(map(Instance, ranges, places, homes, others))
        total.update(places)
    return assigned


def _homes(
    ranges: Sequence[HashRange], before: Sequence[Instance], usable: Sequence[str], total: Mapping[str, int]
) -> list[str]:
    """Where instances belong that nobody has moved: where they were, as far as that is even."""
    shares = [_shares(wanted, before, usable) for wanted in ranges]
    places = [held.most_common(1)[0][0] if held else None for held in shares]
    _fill(places, usable, total)
    homes = [str(place) for place in places]
    _balance(homes, usable, shares)
    return homes


def _standbys(place: str, number: int, executors: Sequence[Executor]) -> tuple[str, ...]:
    """Who takes over when an executor is lost, hosts that would not be lost with it first. Its instances name others
    by turns, so that not one executor gets all of them."""
    host = next(executor.host for executor in executors if executor.id == place)
    far = [executor.id for executor in executors if executor.host != host]
    near = [executor.id for executor in executors if executor.host == host and executor.id != place]
    return tuple(group[(number + i) % len(group)] for group in (far, near) for i in range(len(group)))


def _shares(wanted: HashRange, before: Sequence[Instance], usable: Sequence[str]) -> Counter[str]:
    """How much of a range each executor had: there its state is."""
    shares: Counter[str] = Counter()
    for instance in before:
        shared = min(wanted.end, instance.range.end) - max(wanted.start, instance.range.start)
        if shared > 0 and (place := instance.place(usable)) is not None:
            shares[place] += shared
    return shares


def _fill(places: list[str | None], usable: Sequence[str], total: Mapping[str, int]) -> None:
    """Put instances without a place where the step has the fewest, and among those where all steps have the fewest."""
    for instance, place in enumerate(places):
        if place is None:
            held = Counter(places)
            places[instance] = min(usable, key=lambda executor: (held[executor], total.get(executor, 0)))


def _balance(places: list[str], usable: Sequence[str], shares: Sequence[Counter[str]]) -> None:
    """Move as few instances as it takes until no executor has two more than another: those first of which the executor
    had the least."""
    while True:
        held = Counter(dict.fromkeys(usable, 0))
        held.update(places)
        most, least = max(usable, key=lambda e: held[e]), min(usable, key=lambda e: held[e])
        if held[most] < held[least] + 2:
            return
        there = [i for i, executor in enumerate(places) if executor == most]
        places[min(there, key=lambda i: (shares[i][most], -i))] = least


def moves(before: Assignment, after: Assignment) -> dict[str, dict[int, tuple[str, str]]]:
    """Instances of unchanged ranges that change their executor: by step and instance, from where and to where."""
    found: dict[str, dict[int, tuple[str, str]]] = {}
    for step, instances in after.items():
        known = {instance.range: instance.executor for instance in before.get(step, ())}
        for number, instance in enumerate(instances):
            if known.get(instance.range, instance.executor) != instance.executor:
                found.setdefault(step, {})[number] = (known[instance.range], instance.executor)
    return found


def arrivals(before: Assignment, after: Assignment) -> dict[str, dict[str, tuple[HashRange, ...]]]:
    """By executor and step, the ranges of instances it is to run and has not run, or only a part of them."""
    found: dict[str, dict[str, tuple[HashRange, ...]]] = {}
    for step, instances in after.items():
        for instance in instances:
            had = [i.range for i in before.get(step, ()) if i.executor == instance.executor]
            if not any(r.start <= instance.range.start and instance.range.end <= r.end for r in had):
                of_step = found.setdefault(instance.executor, {})
                of_step[step] = (*of_step.get(step, ()), instance.range)
    return found
