"""Which groups a stage may have."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption
from ilp_planner.spaces.groups.options import (
    MOST_MIXED,
    all_mixed_options,
    mixed_options,
    replica_counts,
    single_type_options,
    spread,
    spread_options,
)

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=3)
DEGREES = st.lists(st.sets(st.sampled_from([1, 2, 3, 4])), min_size=3, max_size=3)


def unlike_by_hand(counts, degrees, samples):
    """Return every option whose types differ in their degree, from the definition: degree and
    replicas of each type, (0, 0) where there are none."""
    ways = [
        [(0, 0), *((tp, n) for tp in own for n in range(1, count + 1) if tp * n <= count)]
        for count, own in zip(counts, degrees, strict=False)
    ]
    return {
        chosen
        for chosen in itertools.product(*ways)
        if sum(n for _, n in chosen) <= samples and len({tp for tp, _ in chosen} - {0}) > 1
    }


@given(counts=COUNTS, degrees=DEGREES, samples=st.integers(1, 12))
def test_every_option_of_unlike_degrees_once(counts, degrees, samples) -> None:
    degrees = [tuple(sorted(known)) for known in degrees[: len(counts)]]
    found, complete = mixed_options(counts, degrees, samples, unlike=True)
    shapes = [
        tuple((o.degree(kind) if n else 0, n) for kind, n in enumerate(o.replicas)) for o in found
    ]
    assert len(set(found)) == len(set(shapes)) == len(found)
    assert set(shapes) <= unlike_by_hand(counts, degrees, samples)
    if complete:
        assert set(shapes) == unlike_by_hand(counts, degrees, samples)
    for option, shape in zip(found, shapes, strict=True):
        assert option.use == tuple(tp * n for tp, n in shape)
        assert option.tp == max(tp for tp, _ in shape)


def test_too_many_unlike_groups_are_thinned_out() -> None:
    found, complete = mixed_options((64, 64), [(1, 2), (1, 2)], 128, unlike=True)
    assert not complete
    assert all(math.log2(n).is_integer() for option in found for n in option.replicas)
    assert {option.degrees for option in found} == {(1, 2), (2, 1)}


def by_hand(counts, degrees, samples, *, uneven=False):
    """Return every option, from the definition."""
    found = set()
    for tp in range(1, 5):
        for replicas in itertools.product(*(range(count + 1) for count in counts)):
            used = [kind for kind, n in enumerate(replicas) if n]
            total = sum(replicas)
            if not used or any(tp not in degrees[kind] for kind in used) or total > samples:
                continue
            if len(used) == 1 and samples % total and not uneven:
                continue
            if len(used) == 1 and total > 1 and -(-samples // (total - 1)) == -(-samples // total):
                continue  # the largest share is the same with one replica less
            if all(tp * n <= count for n, count in zip(replicas, counts, strict=True)):
                found.add(GroupOption(tp, replicas))
    return found


@given(counts=COUNTS, degrees=DEGREES, samples=st.integers(1, 12), uneven=st.booleans())
def test_every_option_once(counts, degrees, samples, uneven) -> None:
    degrees = [tuple(sorted(known)) for known in degrees[: len(counts)]]
    single = list(single_type_options(counts, degrees, samples, uneven=uneven))
    mixed, complete = mixed_options(counts, degrees, samples)
    expected = by_hand(counts, degrees, samples, uneven=uneven)
    found = [*single, *mixed]
    assert len(found) == len(set(found))
    if complete:
        assert set(found) == expected
    else:
        assert set(found) <= expected
    assert all(sum(n > 0 for n in option.replicas) == 1 for option in single)
    assert all(sum(n > 0 for n in option.replicas) > 1 for option in mixed)


@given(samples=st.integers(1, 500))
def test_replicas_whose_shares_differ(samples) -> None:
    """The fewest replicas for every largest share, among them all that share equally."""
    counts = replica_counts(samples, samples, uneven=True)
    assert {-(-samples // n) for n in counts} == {-(-samples // n) for n in range(1, samples + 1)}
    assert len({-(-samples // n) for n in counts}) == len(counts)
    assert set(replica_counts(samples, samples, uneven=False)) <= set(counts)


@given(samples=st.integers(1, 2000))
def test_a_quick_look_leaves_out_no_size_of_groups(samples) -> None:
    options = list(single_type_options([samples, 64], [(1, 2), (2, 4)], samples, uneven=True))
    few = spread(options, samples)
    assert set(few) <= set(options)
    sizes = [
        {(o.tp, o.replicas.index(max(o.replicas)), int(2 * math.log2(max(o.replicas)))) for o in of}
        for of in (options, few)
    ]
    assert sizes[0] == sizes[1]
    assert len(few) == len(sizes[1])


def test_all_groups_of_several_types_or_none() -> None:
    few = by_hand([2, 2], [(1,), (1,)], 4) - set(single_type_options([2, 2], [(1,), (1,)], 4))
    found, complete = all_mixed_options([2, 2], [(1,), (1,)], 4, most=4)
    assert complete
    assert {o for o in few if all(o.replicas)} == set(found)
    assert all_mixed_options([2, 2], [(1,), (1,)], 4, most=3) == ((), False)


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


@given(
    sizes=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=2),
    samples=st.integers(1, 12),
)
def test_every_way_to_spread_a_group_that_packing_has_not(sizes, samples) -> None:
    """Against all ways to seat its replicas on nodes."""
    degrees = [(1, 2, 3)] * len(sizes)
    single = list(single_type_options([sum(of) for of in sizes], degrees, samples, uneven=True))
    found = list(spread_options(single, sizes))
    assert len({*found}) == len(found)
    wanted = set()
    for option in single:
        (kind,) = (kind for kind, count in enumerate(option.replicas) if count)
        seats = [size // option.tp for size in sizes[kind]]
        for row in itertools.product(*(range(count + 1) for count in seats)):
            used = [n for n in row if n]
            roomy = sum(0 < n < count for n, count in zip(row, seats, strict=True))
            if sum(row) == option.replicas[kind] and len({*used}) == 1 and roomy > 1:
                wanted.add(option._replace(over=len(used)))
    assert {*found} == wanted
