"""Sets of nodes are counted by kinds: every set is one of them but for which nodes of a kind."""

import itertools
import math
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.optimize.result import OnNodes
from ilp_planner.spaces.objectives import node_sets as node_sets_module
from ilp_planner.spaces.objectives.node_sets import (
    MOST_SETS,
    describe_covered,
    describe_set,
    every_set,
    is_whole,
    kinds_of,
    node_sets,
    priced_sets,
)
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.prices import hourly_price
from tests import brute
from tests.spaces.objectives.cases import priced
from tests.tiny import make_cluster


def cluster_of(seed: int) -> ClusterSpec:
    random = np.random.default_rng(seed)
    nodes = [(str(random.choice(["a", "b"])), int(random.integers(1, 3))) for _ in range(4)]
    return priced(brute.random_cluster(random, nodes, str(random.choice(brute.KINDS))), random)


@given(seed=st.integers(0, 2**32 - 1))
def test_every_set_of_nodes_is_counted_once(seed: int) -> None:
    cluster = cluster_of(seed)
    kinds, found = kinds_of(cluster), node_sets(cluster)
    assert sorted(node for kind in kinds for node in kind) == list(range(cluster.node_count))
    every = Counter(
        tuple(len({*kind} & {*nodes}) for kind in kinds)
        for count in range(1, cluster.node_count + 1)
        for nodes in itertools.combinations(range(cluster.node_count), count)
    )
    assert {one.counts for one in found} == set(every)
    assert len(found) == len(every)
    for one in found:
        assert one.hourly == pytest.approx(hourly_price(cluster, one.nodes))
        assert tuple(len({*kind} & {*one.nodes}) for kind in kinds) == one.counts
    assert [one.hourly for one in found] == sorted(one.hourly for one in found)
    assert priced_sets(cluster) == found
    whole = {one.counts for one in found if is_whole(kinds, one.counts)}
    assert whole == {
        c for c in every if all(n in (0, len(k)) for n, k in zip(c, kinds, strict=True))
    }


@given(seed=st.integers(0, 2**32 - 1))
def test_nodes_of_a_kind_are_alike(seed: int) -> None:
    cluster = cluster_of(seed)
    for kind in kinds_of(cluster):
        for a, b in itertools.combinations(kind, 2):
            assert cluster.node_types[a] == cluster.node_types[b]
            assert cluster.devices_of_nodes[a] == cluster.devices_of_nodes[b]
            for other in {*range(cluster.node_count)} - {a, b}:
                assert cluster.link(a, other) == cluster.link(b, other)
                assert cluster.link(other, a) == cluster.link(other, b)


def test_nodes_are_named_by_what_they_have() -> None:
    assert describe_set(make_cluster(3, 2), (0, 2)) == "2 nodes of 2 x gpu"


def test_too_many_sets_are_refused() -> None:
    cluster = make_cluster(1, 1)
    types = {str(n): replace(cluster.device, name=str(n), price=1.0) for n in range(5)}
    nodes = tuple(replace(cluster.nodes[0], device=name, count=6) for name in types)
    many = replace(cluster, device_types=types, nodes=nodes)
    with pytest.raises(UsageError, match=f"found 16806 sets of nodes .* at most {MOST_SETS}"):
        priced_sets(many)
    some = node_sets(many)
    assert len(some) <= MOST_SETS
    assert not every_set(many)
    assert sum(is_whole(kinds_of(many), one.counts) for one in some) == 2**5 - 1
    assert len({one.counts for one in some}) == len(some)


@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5))
def test_as_many_sets_as_there_may_be(sizes: list[int]) -> None:
    numbers = node_sets_module._numbers(sizes)
    assert math.prod(map(len, numbers)) - 1 <= MOST_SETS
    for size, own in zip(sizes, numbers, strict=True):
        assert own[0] == 0
        assert own[-1] == size
        assert own == sorted(set(own))
    if math.prod(size + 1 for size in sizes) - 1 <= MOST_SETS:
        assert numbers == [list(range(size + 1)) for size in sizes]


def without_prices(sizes: list[int]) -> ClusterSpec:
    cluster = make_cluster(1, 1)
    types = {str(n): replace(cluster.device, name=str(n), type=str(n)) for n in range(len(sizes))}
    nodes = tuple(
        replace(cluster.nodes[0], device=name, count=size)
        for name, size in zip(types, sizes, strict=True)
    )
    return replace(cluster, device_types=types, nodes=nodes)


def covering(cluster: ClusterSpec, counts: Collection[tuple[int, ...]]) -> str:
    """Return how a bound about the sets with these counts is described."""
    return describe_covered(
        cluster,
        [
            OnNodes(
                name=describe_set(cluster, one.nodes),
                counts=one.counts,
                nodes=one.nodes,
                hourly=one.hourly,
                bound=1.0,
                seconds=1.0,
                covered=one.counts in counts,
            )
            for one in node_sets(cluster)
        ],
    )


def test_the_words_name_the_sets_that_are_covered() -> None:
    equal, mixed = without_prices([8]), without_prices([3, 2])
    every = {one.counts for one in node_sets(mixed)}
    assert covering(equal, {(n,) for n in range(1, 9)}) == "any of these 8 nodes"
    assert covering(equal, {(8,)}) == "all 8 nodes"
    assert covering(equal, {(n,) for n in (1, 2, 3, 6, 8)}) == "1-3, 6, 8 of these 8 nodes"
    assert covering(mixed, every) == "any of these 5 nodes"
    assert covering(mixed, {(3, 0), (3, 2)}) == (
        "3 nodes of 1 x 0 or 3 nodes of 1 x 0, 2 nodes of 1 x 1"
    )
    assert covering(mixed, every - {(1, 0)}) == "10 of 11 sets of these 5 nodes"
