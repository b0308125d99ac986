"""Messages through leaf switches, against counting who sends through them."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.network import Network
from ilp_planner.job.groups import grid, groups
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.training import ORDERS
from tests.costs.training.test_sync import job
from tests.examples import examples, for_each
from tests.megatron_cases import small_cluster

SLOW = 64.0  # so that uplinks decide wherever anything passes them
GIB = 2.0**30


def network(nodes, each, order=None, **fabric):
    cluster = dataclasses.replace(small_cluster(nodes, each), fabric=Fabric(**fabric))
    return Network(cluster, tuple(range(nodes)) if order is None else order)


def seconds(route, collective):
    """Return the seconds of a GiB, but for what the message takes to start."""
    return route.line(collective)[1] * GIB


@examples(40)
@given(
    tp=st.sampled_from((1, 2)),
    dp=st.sampled_from((2, 3, 4, 8)),
    pp=st.sampled_from((1, 2, 3)),
    order=st.sampled_from(ORDERS),
    each=st.sampled_from((1, 2)),
    leaf=st.sampled_from((1, 2, 3)),
)
def test_the_fullest_uplinks_decide(tp, dp, pp, order, each, leaf):
    what = job(tp=tp, dp=dp, pp=pp, order=order)
    if what.world % each:
        return
    nodes = what.world // each
    found = network(nodes, each, nodes_per_leaf=leaf, oversubscription=SLOW)
    rate = found.outside(("a100",)).bandwidth
    sizes = Counter(node // leaf for node in range(nodes))
    through, apart = Counter[int](), Counter[int]()
    for group in groups(what, "dp-cp"):
        members = list(group.ranks)
        here = Counter(rank // each // leaf for rank in members)
        for number, count in here.items():
            through[number] += count < len(members)
            apart[number] += count * (len(members) - count) / len(members)
    if not any(through.values()):
        return
    shares = {number: size * rate / SLOW for number, size in sizes.items()}
    around = max(through[number] / share for number, share in shares.items())
    out = max(apart[number] / share for number, share in shares.items())
    for rank in range(pp):
        route = found.route(what, "dp-cp", rank)
        if not route.crosses:
            continue
        assert seconds(route, "all_reduce") == pytest.approx(
            max(
                around * 2 * (dp - 1) / dp * GIB,
                seconds(plain(nodes, each, what, rank), "all_reduce"),
            )
        )
        assert seconds(route, "all_to_all") == pytest.approx(
            max(out * GIB, seconds(plain(nodes, each, what, rank), "all_to_all"))
        )


def plain(nodes, each, what, rank):
    """Return the route under one switch."""
    return network(nodes, each).route(what, "dp-cp", rank)


@for_each("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_ranks_fill_one_leaf_after_the_other_in_any_order_of_nodes(order):
    what = job(dp=2, pp=4)
    usual = network(4, 2, nodes_per_leaf=2, oversubscription=SLOW)
    mixed = network(4, 2, order, nodes_per_leaf=2, oversubscription=SLOW)
    for rank in range(4):
        assert mixed.transfer(what, rank).seconds(GIB) == usual.transfer(what, rank).seconds(GIB)


def test_sends_to_the_next_pipeline_rank_share_the_uplinks():
    what, nodes = job(dp=2, pp=4), 4  # two ranks of a stage on each node
    alone = network(nodes, 2).transfer(what, 0).seconds(GIB)
    under = network(nodes, 2, nodes_per_leaf=2, oversubscription=SLOW)
    card = under.outside(("a100",))
    stride = grid(what)["pp"].stride
    assert stride == 2
    # Of a leaf's four ranks the last two send beyond, through the parts of two nodes.
    expected = card.latency + GIB * 2 / (2 * card.bandwidth / SLOW)
    assert under.transfer(what, 0).seconds(GIB) == pytest.approx(expected)
    assert alone < expected
    one_leaf = network(nodes, 2, nodes_per_leaf=4, oversubscription=SLOW)
    assert one_leaf.transfer(what, 0).seconds(GIB) == alone


def test_pipelines_of_several_lengths_have_their_own_uplinks():
    """On the same nodes: a longer one sends more often beyond."""
    found = network(8, 1, nodes_per_leaf=2, oversubscription=SLOW)
    for pp in (2, 4, 8, 4, 2):
        what = job(dp=1, pp=pp)
        alone = network(8, 1, nodes_per_leaf=2, oversubscription=SLOW)
        for rank in range(pp):
            assert found.transfer(what, rank) == alone.transfer(what, rank)


def test_room_for_all_changes_nothing():
    what = job(tp=2, dp=4)
    for rank_kind in ("tp", "dp-cp"):
        assert network(4, 2, nodes_per_leaf=1).route(what, rank_kind, 0) == network(4, 2).route(
            what, rank_kind, 0
        )


def test_rails_matter_to_messages_between_different_places_of_nodes():
    """Replicas are at all places of their nodes, alike on each: their rings stay on rails."""
    slow = dataclasses.replace(
        small_cluster(2, 4),
        intra_node=dataclasses.replace(small_cluster(2, 4).intra_node, bandwidth=1e6),
    )
    on_rails = dataclasses.replace(slow, fabric=Fabric(rail_only=True))
    aligned = job(dp=8)
    for what, same in ((aligned, True), (job(dp=2, pp=3), False)):
        plain_route = Network(slow, (0, 1)).transfer(what, 1).seconds(GIB)
        railed = Network(on_rails, (0, 1)).transfer(what, 1).seconds(GIB)
        assert (plain_route == railed) == same
    routes = [Network(each, (0, 1)).route(aligned, "dp-cp", 0) for each in (slow, on_rails)]
    assert routes[0] == routes[1]
