"""Sets of nodes are counted by kinds: every set is one of them but for which nodes of a kind."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.errors import UsageError
from ilp_planner.objectives.node_sets import MOST_SETS, describe_set, kinds_of, node_sets
from ilp_planner.specs.prices import hourly_price
from tests import brute
from tests.objectives.cases import priced
from tests.tiny import make_cluster

if TYPE_CHECKING:
    from ilp_planner.specs.cluster import ClusterSpec


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
    most = found[len(found) // 2].hourly
    assert node_sets(cluster, most) == [one for one in found if one.hourly <= most]


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
        node_sets(many)
