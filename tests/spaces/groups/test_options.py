"""Which groups a stage may have."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption
from ilp_planner.spaces.groups.options import MOST_MIXED, mixed_options, single_type_options

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
DEGREES = st.lists(st.sets(st.sampled_from([1, 2, 3, 4])), min_size=3, max_size=3)


def by_hand(counts, degrees, samples):
    """Return every option, from the definition."""
    found = set()
    for tp in range(1, 5):
        for replicas in itertools.product(*(range(count + 1) for count in counts)):
            used = [kind for kind, n in enumerate(replicas) if n]
            total = sum(replicas)
            if not used or any(tp not in degrees[kind] for kind in used) or total > samples:
                continue
            if len(used) == 1 and samples % total:
                continue
            if all(tp * n <= count for n, count in zip(replicas, counts, strict=True)):
                found.add(GroupOption(tp, replicas))
    return found


@given(counts=COUNTS, degrees=DEGREES, samples=st.integers(1, 12))
def test_every_option_once(counts, degrees, samples) -> None:
    degrees = [tuple(sorted(known)) for known in degrees[: len(counts)]]
    single = list(single_type_options(counts, degrees, samples))
    mixed, complete = mixed_options(counts, degrees, samples)
    expected = by_hand(counts, degrees, samples)
    found = [*single, *mixed]
    assert len(found) == len(set(found))
    if complete:
        assert set(found) == expected
    else:
        assert set(found) <= expected
    assert all(sum(n > 0 for n in option.replicas) == 1 for option in single)
    assert all(sum(n > 0 for n in option.replicas) > 1 for option in mixed)


def test_replicas_need_no_power_of_two() -> None:
    options = set(single_type_options([6], [(1, 2)], 12))
    assert options == {
        GroupOption(tp, (dp,))
        for tp, dp in [(1, 1), (1, 2), (1, 3), (1, 4), (1, 6), (2, 1), (2, 2), (2, 3)]
    }


@pytest.mark.parametrize(("counts", "complete"), [((8, 8), True), ((64, 64), False)])
def test_too_many_mixed_groups_are_thinned_out_and_it_says_so(counts, complete) -> None:
    options, everything = mixed_options(counts, [(1, 2), (1, 2)], 128)
    assert everything is complete
    if complete:
        assert len(options) <= MOST_MIXED
    else:
        assert all(math.log2(n).is_integer() for option in options for n in option.replicas)
    assert GroupOption(2, (2, 4)) in options


def test_mixed_groups_share_a_tensor_degree() -> None:
    options, _ = mixed_options([4, 4], [(1, 2), (2, 4)], 8)
    assert {option.tp for option in options} == {2}
    assert mixed_options([4, 4], [(1,), (2,)], 8) == ((), True)
    assert mixed_options([4, 4], [(1,), (1,)], 1) == ((), True)


def test_many_types_take_no_longer_to_count_than_there_are_groups_to_try() -> None:
    """Eight devices of each of twelve types: more groups than could ever be listed."""
    options, complete = mixed_options((8,) * 12, [(1, 2, 4)] * 12, 64)
    assert not complete
    assert {sum(map(bool, option.replicas)) for option in options} == {2}
