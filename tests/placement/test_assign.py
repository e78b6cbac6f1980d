"""Where instances belong: they stay unless they must not, every step is spread, and changes are obeyed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from midstream.placement.assign import Assignment, Executor, Rules, assign, moves
from midstream.state.hashspace import even_ranges

EXECUTORS = [Executor(str(n), f"host{n // 2}") for n in range(6)]


def on(assignment: Assignment, step: str = "s") -> list[str]:
    return [instance.executor for instance in assignment[step]]


def test_the_first_assignment_is_even() -> None:
    placed = assign({"s": even_ranges(5), "t": even_ranges(2)}, EXECUTORS[:3], {})
    assert on(placed) == ["0", "1", "2", "0", "1"]
    assert sorted(on(placed, "t")) == ["0", "2"], "the executor with the fewest instances of all steps comes first"


def test_instances_stay_when_others_come_and_go() -> None:
    before = assign({"s": even_ranges(4)}, EXECUTORS[:2], {})
    lost = assign({"s": even_ranges(4)}, EXECUTORS[1:2], before)
    assert on(lost) == ["1"] * 4
    back = assign({"s": even_ranges(4)}, EXECUTORS[1:3], lost)
    assert Counter(on(back)) == {"1": 2, "2": 2}
    assert moves(lost, back) == {"s": {2: ("1", "2"), 3: ("1", "2")}}


def test_newcomers_get_what_is_pinned_to_them_and_no_more() -> None:
    ranges = {"s": even_ranges(4)}
    before = assign(ranges, EXECUTORS[:1], {})
    assert assign(ranges, EXECUTORS[:2], before, newcomers={"1"}) == before
    assert on(assign(ranges, EXECUTORS[:2], before, Rules().pinned("s", [3], "1"), newcomers={"1"})) == [*"0001"]
    assert on(assign(ranges, EXECUTORS[1:2], before, newcomers={"1"})) == ["1"] * 4, "unless there is nobody else"
    assert Counter(on(assign(ranges, EXECUTORS[:2], before))) == {"0": 2, "1": 2}


def test_more_partitions_stay_where_their_state_is() -> None:
    before = assign({"s": even_ranges(2)}, EXECUTORS[:2], {})
    assert on(assign({"s": even_ranges(4)}, EXECUTORS[:2], before)) == ["0", "0", "1", "1"]
    assert on(assign({"s": even_ranges(1)}, EXECUTORS[:2], before)) == ["0"]


def test_new_executors_get_what_the_others_have_the_least_of() -> None:
    before = assign({"s": even_ranges(3)}, EXECUTORS[:3], {})
    after = assign({"s": even_ranges(5)}, EXECUTORS[:5], before)
    assert on(after) == ["0", "3", "1", "4", "2"], "those that had executors before have all of their state there"


def test_pins_and_drains() -> None:
    ranges = {"s": even_ranges(4)}
    before = assign(ranges, EXECUTORS[:2], {})
    pinned = Rules().pinned("s", [0, 2], "1")
    moved = assign(ranges, EXECUTORS[:2], before, pinned)
    assert on(moved) == ["1"] * 4, "those that are pinned move, and no others, whatever the balance"
    assert assign(ranges, EXECUTORS[:2], moved) == before, "and go back without"
    assert on(assign(ranges, EXECUTORS[:2], before, Rules(executors=frozenset({"0"})))) == ["1"] * 4
    # Of the hosts of six executors the first is drained, and with it a pin to it.
    rules = Rules(hosts=frozenset({"host0"})).pinned("s", [0], "1")
    assert set(on(assign(ranges, EXECUTORS, before, rules))) <= {"2", "3", "4", "5"}
    assert assign(ranges, EXECUTORS[:2], before, Rules(hosts=frozenset({"host0"}))) == {}


def test_standbys_take_over_by_turns_and_from_other_hosts_first() -> None:
    ranges = {"s": even_ranges(6)}
    before = assign(ranges, EXECUTORS[:3], {}, standby=1)  # 0 and 1 share a host
    assert {(i.executor, i.standbys) for i in before["s"]} == {
        ("0", ("2",)),
        ("1", ("2",)),
        ("2", ("0",)),
        ("2", ("1",)),
    }
    lost = assign(ranges, EXECUTORS[:2], before, standby=1)
    assert Counter(on(lost)) == {"0": 3, "1": 3}
    assert all(new.executor in (old.executor, *old.standbys) for old, new in zip(before["s"], lost["s"], strict=True))
    assert [i.standbys for i in assign(ranges, EXECUTORS[:1], before, standby=2)["s"]] == [()] * 6


def test_rules_about_executors_hold_in_their_application() -> None:
    rules = Rules({"s": {0: "1"}}, frozenset({"2"}), frozenset({"host1"}), "app-1")
    assert rules.within("app-1") is rules
    assert rules.within("app-2") == Rules(hosts=frozenset({"host1"}), application="app-2")


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 12), min_size=1),
    st.lists(st.sets(st.sampled_from(EXECUTORS), min_size=1), min_size=1, max_size=6),
    st.sets(st.sampled_from([e.id for e in EXECUTORS])),
)
def test_every_step_is_spread_evenly_over_those_that_may(
    counts: dict[str, int], histories: list[set[Executor]], drained: set[str]
) -> None:
    steps = {step: even_ranges(count) for step, count in counts.items()}
    rules = Rules(executors=frozenset(drained))
    placed: Assignment = {}
    for executors in histories:
        there = sorted(executors, key=lambda executor: executor.id)
        before, placed = placed, assign(steps, there, placed, rules)
        usable = [executor.id for executor in there if rules.allows(executor)]
        if not usable:
            assert placed == {}
            continue
        for step, count in counts.items():
            held = Counter(dict.fromkeys(usable, 0))
            held.update(on(placed, step))
            assert set(held) == set(usable)
            assert max(held.values()) - min(held.values()) <= 1
            assert sum(held.values()) == count
        assert assign(steps, there, placed, rules) == placed, "and then it is at rest"
        assert all(origin != to for of_step in moves(before, placed).values() for origin, to in of_step.values())
