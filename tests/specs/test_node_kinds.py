"""Nodes that links tell apart, as types: every link stays, and no more types than there must be."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.link import Link
from ilp_planner.specs.node_kinds import MOST_KINDS, node_kinds, with_kinds
from tests.examples import examples
from tests.zones import FAR, as_matrix, as_types, random_tree, tree

SEEDS = st.integers(0, 2**32 - 1)
PAIR = [("fast", 2, "a"), ("fast", 2, "b"), ("slow", 4, "a"), ("fast", 2, "a")]


def links(cluster: ClusterSpec) -> list[list[tuple[float, float]]]:
    """Return bandwidth and latency from node to node."""
    nodes = range(cluster.node_count)
    return [
        [(cluster.link(a, b).bandwidth, cluster.link(a, b).latency) for b in nodes] for a in nodes
    ]


def shuffled(seed: int) -> tuple[ClusterSpec, list[int]]:
    """Draw a matrix with equal rows in any order; and the block of each node."""
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 5))
    blocks = random.integers(0, count, int(random.integers(1, 9))).tolist()
    rates = random.choice([1e9, 2e9, 3e9], (count, count))
    rates = np.maximum(rates, rates.T)
    matrix = tuple(
        tuple(Link(bandwidth=float(rates[a, b]), latency=1e-5) for b in blocks) for a in blocks
    )
    nodes = [("fast", 2, "z") for _ in blocks]
    whole = tree(nodes)
    groups = tuple(replace(group, zone="") for group in whole.nodes)
    return replace(whole, nodes=groups, zones=(), matrix=matrix), blocks


@examples(60)
@given(seed=SEEDS)
def test_every_link_stays_and_every_device_where_it_is(seed: int) -> None:
    for cluster in (shuffled(seed)[0], random_tree(np.random.default_rng(seed), 12)):
        kinds = with_kinds(cluster)
        assert kinds.symmetric
        assert links(kinds) == links(cluster)
        assert kinds.node_of == cluster.node_of
        assert kinds.called == cluster.node_types
        assert {d.profile for d in kinds.device_types.values()} == set(cluster.type_names)


@examples(60)
@given(seed=SEEDS)
def test_kinds_are_no_more_than_rows_that_differ(seed: int) -> None:
    cluster, blocks = shuffled(seed)
    kinds = node_kinds(cluster)
    assert sorted(node for kind in kinds for node in kind) == list(range(cluster.node_count))
    assert len(kinds) <= len(set(blocks))
    for kind in kinds:  # to exchange two nodes of a kind changes no link
        for a in kind:
            for b in kind:
                order = list(range(cluster.node_count))
                order[a], order[b] = b, a
                table = np.array(links(cluster))
                moved = table[np.ix_(order, order)]
                off = ~np.eye(len(order), dtype=bool)
                assert (moved[off] == table[off]).all()


def test_three_spellings_are_one_cluster() -> None:
    spelt = tree(PAIR)
    kinds = with_kinds(spelt)
    assert len(kinds.type_names) == 3
    assert links(with_kinds(as_matrix(spelt))) == links(as_types(spelt)) == links(kinds)
    assert kinds.type_counts == as_types(spelt).type_counts
    assert kinds.called == ("fast", "fast", "slow", "fast")
    assert "slow" in kinds.device_types  # a type of one kind keeps its name


def test_zones_that_make_no_difference_are_no_kinds() -> None:
    """Links in the zones as between them: nodes are told apart by nothing."""
    spelt = tree(PAIR, {"a": FAR, "b": FAR})
    assert with_kinds(spelt).type_names == spelt.type_names


def test_links_within_nodes_go_with_their_type() -> None:
    own = Link(bandwidth=5e11, latency=2e-6)
    kinds = with_kinds(replace(tree(PAIR), within={"fast": own}))
    found = [kinds.link(node, node) == own for node in range(4)]
    assert found == [True, True, False, True]


def test_what_types_cannot_say_stays_a_matrix() -> None:
    spelt = as_matrix(tree(PAIR))
    row = (spelt.matrix[0][0], Link(bandwidth=7e9, latency=1e-5), *spelt.matrix[0][2:])
    one_way = replace(spelt, matrix=(row, *spelt.matrix[1:]))
    assert with_kinds(one_way) is one_way
    many = tree([("fast", 1, f"z{n // 2:02}") for n in range(2 * MOST_KINDS + 2)])
    assert with_kinds(many) is many
    fewer = tree([("fast", 1, f"z{n // 2:02}") for n in range(2 * MOST_KINDS)])
    assert len(with_kinds(fewer).type_names) == MOST_KINDS


def test_types_that_say_all_links_stay() -> None:
    cluster = as_types(tree(PAIR))
    assert with_kinds(cluster) is cluster
