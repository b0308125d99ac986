"""Which groups, collectives and sizes are measured."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.profiler.measure.links_plan import (
    COLLECTIVES,
    OPERATIONS,
    cases_of,
    default_sizes,
    series_of,
    whole_size,
)


def keys(host_of):
    return [(c.size, c.stride, c.hosts, len(c.groups)) for c in cases_of(host_of)]


def test_two_ranks_have_one_group():
    assert keys([0, 0]) == [(2, 1, 1, 1)]


def test_a_host_of_four():
    """Pairs of neighbours and pairs across, all at once and one alone, and all four."""
    assert keys([0] * 4) == [(2, 1, 1, 2), (2, 1, 1, 1), (2, 2, 1, 2), (2, 2, 1, 1), (4, 1, 1, 1)]


def test_two_hosts_of_two():
    """A stride of two crosses the hosts; a stride of one does not before the group is whole."""
    found = keys([0, 0, 1, 1])
    assert (2, 1, 1, 2) in found
    assert (2, 2, 2, 2) in found
    assert (4, 1, 2, 1) in found


def test_hosts_of_three():
    """A pair of neighbours that lies across two hosts is a case of its own."""
    cases = cases_of([0, 0, 0, 1, 1, 1])
    pairs = {c.hosts: c.groups for c in cases if (c.size, c.stride) == (2, 1) and len(c.groups) > 0}
    assert next(c.groups for c in cases if (c.size, c.stride, c.hosts) == (2, 1, 2)) == ((2, 3),)
    assert set(pairs) == {1, 2}
    assert (3, 1, 1, 2) in keys([0, 0, 0, 1, 1, 1])
    assert (6, 1, 2, 1) in keys([0, 0, 0, 1, 1, 1])
    assert (2, 3, 2, 3) in keys([0, 0, 0, 1, 1, 1])


@given(st.integers(1, 4), st.integers(1, 9))
def test_groups_share_no_rank_and_are_what_they_say(hosts, per_host):
    host_of = [host for host in range(hosts) for _ in range(per_host)]
    for case in cases_of(host_of):
        ranks = [rank for group in case.groups for rank in group]
        assert len(ranks) == len(set(ranks))
        for group in case.groups:
            assert len(group) == case.size
            assert {b - a for a, b in itertools.pairwise(group)} == {case.stride}
            assert len({host_of[rank] for rank in group}) == case.hosts
            assert all(case.group_of(rank) == group for rank in group)
        assert case.group_of(len(host_of)) is None


@given(st.integers(1, 4), st.integers(1, 9))
def test_no_case_is_there_twice(hosts, per_host):
    host_of = [host for host in range(hosts) for _ in range(per_host)]
    counts = Counter(case.groups for case in cases_of(host_of))
    assert all(count == 1 for count in counts.values())


@given(st.sampled_from(OPERATIONS), st.integers(2, 64), st.integers(1, 2**31))
def test_sizes_can_be_shared_evenly(operation, ranks, size):
    whole = whole_size(operation, ranks, size)
    shares = {"all_to_all": ranks**2, "all_gather": ranks, "reduce_scatter": ranks}
    unit = 4 * shares.get(operation, 1)
    assert whole % unit == 0
    assert size <= whole < size + unit


def test_default_sizes_are_log_spaced_and_end_where_asked():
    sizes = default_sizes(1 << 20)
    assert sizes == (256, 1024, 4096, 16384, 65536, 262144, 1048576)
    assert default_sizes(3000) == (256, 1024, 3000)
    assert default_sizes(100) == (100,)


def test_messages_are_between_two():
    plan = series_of(cases_of([0] * 4), OPERATIONS, [1024])
    for series in plan:
        assert series.operation in COLLECTIVES or series.case.size == 2
    assert sum(series.operation == "send_recv" for series in plan) == 4


@pytest.mark.parametrize(
    ("host_of", "text"),
    [([0, 0], "all_reduce among 2"), ([0, 0, 1, 1], "all_reduce among 2 x 2 on 2 hosts, stride 2")],
)
def test_what_the_progress_bar_says(host_of, text):
    assert text in [str(s) for s in series_of(cases_of(host_of), ["all_reduce"], [4])]
