"""What groups send to each other, worked out by hand, and the best links below every placement."""

import dataclasses
from itertools import combinations, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.group_network import (
    best_ring,
    best_transfer,
    fits_nodes,
    group_class,
    seen_from,
    stage_ring,
    stage_transfer,
)
from ilp_planner.costs.groups import GroupClass, GroupOption
from ilp_planner.costs.seat_patterns import are_pairs
from tests.costs.mixed_instances import Floor, cluster_of, clusters, link, options, pack, stage_of
from tests.examples import examples, for_each

MB = 1e6


def test_a_group_smaller_than_a_node_may_share_it() -> None:
    cluster = cluster_of([("fast", 4), ("fast", 4), ("slow", 2)])
    assert group_class(GroupOption(1, (3, 0)), cluster) == GroupClass((0,), True)
    assert group_class(GroupOption(2, (2, 0)), cluster) == GroupClass((0,), False)
    assert group_class(GroupOption(1, (0, 1)), cluster) == GroupClass((1,), True)
    assert group_class(GroupOption(1, (1, 1)), cluster) == GroupClass((0, 1), False)


def test_transfer_inside_a_node_is_split_over_tensor_ranks() -> None:
    cluster = cluster_of([("fast", 4)], within=100)
    first, second = stage_of(0, 1, [(0, 1)], [3]), stage_of(1, 2, [(2,), (3,)], [2, 1])
    seconds = stage_transfer(first, second, cluster).seconds(8 * MB)
    assert seconds == pytest.approx(2 * (10e-6 + 3 / 2 * 8 * MB / 100e9))


def test_replicas_of_a_node_share_its_card() -> None:
    """Four replicas in one node send eight samples through one card, forward and back."""
    cluster = cluster_of([("fast", 4), ("fast", 4), ("fast", 4)], across=5)
    first = stage_of(0, 1, [(i,) for i in range(4)], [2] * 4)
    second = stage_of(1, 2, [(i,) for i in range(4, 8)], [2] * 4)
    seconds = stage_transfer(first, second, cluster).seconds(MB)
    assert seconds == pytest.approx(2 * (30e-6 + 8 * MB / 5e9))
    apart = stage_of(0, 1, [(0,), (4,)], [4, 4])
    other = stage_of(1, 2, [(1,), (8,)], [4, 4])
    assert stage_transfer(apart, other, cluster).seconds(MB) == pytest.approx(
        2 * (30e-6 + 4 * MB / 5e9)
    )


def test_tensor_ranks_add_nothing_to_what_crosses() -> None:
    cluster = cluster_of([("fast", 4), ("fast", 4)])
    one = stage_of(0, 1, [(0,)], [4]), stage_of(1, 2, [(4,)], [4])
    four = stage_of(0, 1, [(0, 1, 2, 3)], [4]), stage_of(1, 2, [(4, 5, 6, 7)], [4])
    assert stage_transfer(*one, cluster) == stage_transfer(*four, cluster)


def test_ring_inside_a_node() -> None:
    cluster = cluster_of([("fast", 4)], within=100)
    stage = stage_of(0, 1, [(0,), (1,), (2,), (3,)], [1] * 4)
    expected = 2 * 3 * (10e-6 + 800 * MB / 4 / 100e9)
    assert stage_ring(stage, cluster).seconds(800 * MB) == pytest.approx(expected)


def test_rings_of_tensor_ranks_share_the_card() -> None:
    """Each of two rings reduces half of the gradients at half of the card's rate."""
    cluster = cluster_of([("fast", 4), ("fast", 4)], across=5)
    stage = stage_of(0, 1, [(0, 1), (2, 3), (4, 5), (6, 7)], [1] * 4)
    expected = 2 * 3 * (30e-6 + 800 * MB / 2 / 4 / (5e9 / 2))
    assert stage_ring(stage, cluster).seconds(800 * MB) == pytest.approx(expected)


def test_the_slowest_link_of_the_ring_decides_wherever_it_is() -> None:
    """AMP's program takes the last link only."""
    cluster = cluster_of([("fast", 2), ("fast", 2), ("fast", 2)], across=5)
    ring = stage_of(0, 1, [(0,), (1,), (2,)], [1] * 3)
    turned = stage_of(0, 1, [(2,), (0,), (1,)], [1] * 3)
    assert stage_ring(ring, cluster) == stage_ring(turned, cluster)
    assert stage_ring(ring, cluster).per_byte == pytest.approx(2 * 2 / 3 / 5e9)


def test_one_replica_reduces_nothing() -> None:
    cluster = cluster_of([("fast", 4)])
    assert stage_ring(stage_of(0, 1, [(0, 1)], [1]), cluster).seconds(1e12) == 0
    assert best_ring(GroupOption(2, (1,)), cluster).seconds(1e12) == 0


@examples(100)
@given(data=st.data())
def test_best_links_are_never_above_a_packed_placement(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    floor, stages, choices = Floor(cluster), [], []
    for number in range(2):
        assume(any(floor.free.values()))
        option = options(data.draw, floor)
        seats = pack(floor, option, lambda n: data.draw(st.integers(0, n - 1)))
        assume(seats is not None)
        shares = [data.draw(st.integers(1, 4)) for _ in seats]
        stages.append(stage_of(number, number + 1, seats, shares))
        choices.append((option, shares))
    (option, shares), (following, _) = choices
    best = best_transfer(option, shares, group_class(following, cluster), cluster)
    actual = stage_transfer(*stages, cluster)
    below(best, actual)
    for stage, (choice, _) in zip(stages, choices, strict=True):
        below(best_ring(choice, cluster), stage_ring(stage, cluster))
    # what is known of the placement makes the bound higher, not wrong
    here, there = ({cluster.node_of[d] for d in stage.devices} for stage in stages)
    to = group_class(following, cluster)
    for kind, name in enumerate(cluster.type_names):
        own = {node for node in here if cluster.node_types[node] == name}
        alike = len(set(cluster.node_sizes(name))) == 1
        if alike and own and kind in to.types and not own & there:
            apart = best_transfer(option, shares, to._replace(apart=(kind,)), cluster)
            below(apart, actual)
            assert apart.per_byte >= best.per_byte * (1 - 1e-12)


@examples(75, more=8)
@given(data=st.data())
def test_best_links_are_never_above_a_placement_that_is_spread(data: st.DataObject) -> None:
    """Of two groups one at least is spread; pairs are likely."""
    cluster = data.draw(clusters(types=2))
    floor, found = Floor(cluster), []
    first = data.draw(st.integers(0, 1))
    for number in range(2):
        assume(any(floor.free.values()))
        if number == first or data.draw(st.booleans()):
            option, seats = spread_group(data, floor, found[0][1] if found else [])
        else:
            option = options(data.draw, floor)
            seats = pack(floor, option, lambda n: data.draw(st.integers(0, n - 1)))
            assume(seats is not None)
        share = data.draw(st.integers(1, 4))
        alone = sum(map(bool, option.replicas)) == 1
        shares = [share if alone else data.draw(st.integers(1, 4)) for _ in seats]
        found.append((option, seats, shares))
    stages = [stage_of(n, n + 1, seats, shares) for n, (_, seats, shares) in enumerate(found)]
    (option, _, shares), (following, _, _) = found
    to = group_class(following, cluster)
    actual = stage_transfer(*stages, cluster)
    below(best_transfer(option, shares, to, cluster), actual)
    if to.over and not are_pairs(*stages, cluster):
        below(best_transfer(option, shares, to._replace(apart=to.types), cluster), actual)
    for stage, (choice, _, _) in zip(stages, found, strict=True):
        below(best_ring(choice, cluster), stage_ring(stage, cluster))


def spread_group(data: st.DataObject, floor: Floor, beside) -> tuple[GroupOption, list]:
    """A group over several nodes of one type with room, perhaps those of another group."""
    cluster = floor.cluster
    kind = data.draw(st.integers(0, len(cluster.type_names) - 1))
    tp, each = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    able = [
        node
        for node, name in enumerate(cluster.node_types)
        if name == cluster.type_names[kind] and len(floor.free[node]) >= tp * each
    ]
    same = sorted({cluster.node_of[seat[0]] for seat in beside})
    if len(same) > 1 and set(same) <= set(able) and data.draw(st.booleans()):
        nodes = same
    else:
        assume(len(able) > 1)
        nodes = data.draw(st.permutations(able))[: data.draw(st.integers(2, len(able)))]
    seats = [seat for node in nodes for seat in floor.take(node, each, tp)]
    replicas = [0] * len(cluster.type_names)
    replicas[kind] = len(seats)
    return GroupOption(tp, tuple(replicas), (), len(nodes)), seats


def test_what_is_spread_pays_its_share_of_a_card_or_nothing_of_it() -> None:
    """Two samples in each of two nodes: to their pair inside, to others through two cards."""
    cluster = cluster_of([("fast", 4)] * 4, within=100, across=5)
    two, four = GroupOption(1, (4,), (), 2), GroupOption(1, (4,), (), 4)
    pair = best_transfer(two, [1] * 4, group_class(two, cluster), cluster)
    assert pair.seconds(MB) == pytest.approx(2 * (10e-6 + MB / 100e9))
    other = best_transfer(two, [1] * 4, group_class(four, cluster), cluster)
    assert other.seconds(MB) == pytest.approx(2 * (30e-6 + 2 * MB / 5e9))
    packed = best_transfer(two, [1] * 4, group_class(GroupOption(1, (4,)), cluster), cluster)
    assert packed == other
    ring = best_ring(two, cluster)
    assert ring.per_byte == pytest.approx(2 * 3 / 4 / 5e9)
    assert best_ring(GroupOption(2, (4,), (), 4), cluster).per_byte == pytest.approx(ring.per_byte)


def test_groups_that_are_spread_need_nodes_with_room() -> None:
    cluster = cluster_of([("fast", 4), ("fast", 4), ("fast", 2)])
    assert fits_nodes(GroupOption(2, (4,), (), 2), cluster)
    assert fits_nodes(GroupOption(2, (3,), (), 3), cluster)
    assert not fits_nodes(GroupOption(2, (6,), (), 3), cluster)
    assert not fits_nodes(GroupOption(1, (4,), (), 4), cluster)


def test_full_nodes_send_to_every_type() -> None:
    """A group that fills its node shares none with a receiver that has its type, too."""
    cluster = dataclasses.replace(
        cluster_of([("fast", 4), ("fast", 4), ("slow", 4)]),
        between={("fast", "fast"): link(1), ("fast", "slow"): link(20)},
    )
    full, part = GroupOption(1, (4, 0)), GroupOption(1, (2, 0))
    to = GroupClass((0, 1), False)
    assert best_transfer(full, [1] * 4, to, cluster).per_byte == pytest.approx(2 * 4 / 1e9)
    assert best_transfer(part, [1] * 2, to, cluster).per_byte == pytest.approx(2 * 2 / 20e9)
    known = to._replace(apart=(0,))
    assert best_transfer(part, [1] * 2, known, cluster).per_byte == pytest.approx(2 * 2 / 1e9)


def below(best, actual) -> None:
    assert best.latency <= actual.latency * (1 + 1e-12)
    assert best.per_byte <= actual.per_byte * (1 + 1e-12)


@for_each(
    ("first", "second"),
    [
        ((1, 2), (1, 2)),  # both in one node
        ((2, 1), (1, 1)),
        ((1, 4), (1, 4)),  # a node each
        ((1, 8), (2, 2)),  # two nodes, then one
        ((4, 2), (2, 4)),
        ((1, 3), (4, 1)),
    ],
)
def test_best_links_are_exact_where_groups_fit_or_fill_nodes(first, second) -> None:
    """Both as (tp, replicas) on four nodes of four."""
    cluster = cluster_of([("fast", 4)] * 4)
    together = first[0] * first[1] + second[0] * second[1] <= 4
    start = first[0] * first[1] if together or first[0] * first[1] % 4 == 0 else 4
    seats = [
        [tuple(range(base + i * tp, base + (i + 1) * tp)) for i in range(dp)]
        for base, (tp, dp) in ((0, first), (start, second))
    ]
    stages = [stage_of(i, i + 1, s, [2] * len(s)) for i, s in enumerate(seats)]
    options = [GroupOption(tp, (dp,)) for tp, dp in (first, second)]
    to = group_class(options[1], cluster)
    exact = together or not (group_class(options[0], cluster).within_node and to.within_node)
    if exact:
        best = best_transfer(options[0], [2] * first[1], to, cluster)
        assert best == pytest.approx(stage_transfer(*stages, cluster))
    for stage, option in zip(stages, options, strict=True):
        assert best_ring(option, cluster) == pytest.approx(stage_ring(stage, cluster))


def test_replicas_of_unlike_degrees_reduce_in_common_pieces() -> None:
    """One device with all of the gradients beside four with a quarter each: four rings of quarters,
    all of them on the links of the first, which has to send all that it holds."""
    cluster = cluster_of([("fast", 2), ("slow", 4)], within=100, across=5)
    stage = stage_of(0, 1, [(0,), (2, 3, 4, 5)], [1, 1])
    assert stage.degrees == (1, 4)
    ring = stage_ring(stage, cluster)
    assert ring.per_byte == pytest.approx(2 * 1 / 2 / 5e9)
    assert best_ring(GroupOption(4, (1, 1), (1, 4)), cluster) == pytest.approx(ring)
    # two devices of one node with everything: inside it four rings share a link
    near = dataclasses.replace(cluster, inter_node=link(1e6, 10))
    both = stage_ring(stage_of(0, 1, [(0,), (1,), (2, 3, 4, 5)], [1, 1, 1]), near)
    assert both.per_byte == pytest.approx(2 * 2 / 3 / 100e9)
    assert best_ring(GroupOption(4, (2, 1), (1, 4)), near) == pytest.approx(both)
    # degrees that do not divide each other: sixths, of which a rank holds two or three
    odd = stage_of(0, 1, [(0, 1), (2, 3, 4)], [1, 1])
    assert stage_ring(odd, cluster).per_byte == pytest.approx(2 * 1 / 2 / 5e9)


def test_a_sender_of_unlike_degrees_sends_its_samples() -> None:
    """By node: a replica's ranks send all of its samples together, however many they are."""
    cluster = cluster_of([("fast", 2), ("slow", 4), ("slow", 4)], within=100, across=5)
    stage = stage_of(0, 1, [(0,), (1,), (2, 3, 4, 5)], [2, 1, 4])
    to = stage_of(1, 2, [(6, 7)], [7])
    assert stage_transfer(stage, to, cluster).per_byte == pytest.approx(2 * 4 / 5e9)


def test_mixed_rings_cross_between_the_types() -> None:
    cluster = cluster_of([("fast", 4), ("slow", 4)], within=100, across=5)
    stage = stage_of(0, 1, [(0,), (1,), (4,)], [2, 2, 1])
    assert best_ring(GroupOption(1, (2, 1)), cluster) == pytest.approx(stage_ring(stage, cluster))
    assert stage_ring(stage, cluster).per_byte == pytest.approx(2 * 2 / 3 / 5e9)


def test_replicas_fit_where_their_ranks_have_one_node() -> None:
    """Two devices each, of nodes of three: one in a node."""
    cluster = cluster_of([("fast", 3), ("fast", 3)])
    assert fits_nodes(GroupOption(2, (2,)), cluster)
    assert not fits_nodes(GroupOption(2, (3,)), cluster)
    both = cluster_of([("fast", 3), ("slow", 4)])
    assert fits_nodes(GroupOption(2, (1, 2)), both)
    assert not fits_nodes(GroupOption(2, (1, 3)), both)


THREE = cluster_of([("fast", 4), ("mid", 4), ("slow", 4)], across=5)


@for_each(
    ("samples", "to", "load"),
    [
        ((5, 1, 2), GroupClass((2,), False), 5),  # each type has its own samples
        ((1, 4, 5), GroupClass((2,), False), 9),
        # where the receiver may be in the node of a type, the others send
        ((5, 1, 2), GroupClass((0,), True), 3),
        ((1, 4, 5), GroupClass((1,), True), 1),
        ((5, 1, 2), GroupClass((0,), True, (0,)), 5),  # unless it is known not to be
    ],
)
def test_the_slowest_type_of_a_group_sends_at_least(
    samples: tuple[int, ...], to: GroupClass, load: int
) -> None:
    found = best_transfer(GroupOption(1, (1, 2, 0)), samples, to, THREE)
    assert found.per_byte == pytest.approx(2 * load / 5e9)


@pytest.mark.parametrize(
    ("nodes", "option", "samples", "load"),
    [
        # two fill the smaller node, and no device is left over
        ([4, 6], GroupOption(2, (3,)), (1, 1, 1), 2),
        # in a node of five one is: the receiver may sit there, beside one replica
        ([5, 6], GroupOption(2, (3,)), (1, 1, 1), 1),
    ],
)
def test_as_many_replicas_share_a_card_as_fill_the_smallest_node(
    nodes: list[int], option: GroupOption, samples: tuple[int, ...], load: int
) -> None:
    cluster = cluster_of([("fast", size) for size in nodes], across=5)
    found = best_transfer(option, samples, GroupClass((0,), True), cluster)
    assert found.per_byte == pytest.approx(2 * load / 5e9)


def test_a_node_that_no_replica_fits_is_filled_by_none() -> None:
    """Of four devices each, to another type."""
    cluster = cluster_of([("fast", 2), ("fast", 4), ("fast", 4), ("slow", 4)], across=5)
    found = best_transfer(GroupOption(4, (2, 0)), [3, 3], GroupClass((1,), False), cluster)
    assert found.per_byte == pytest.approx(2 * 3 / 5e9)


def test_rings_in_a_node_are_as_many_as_its_largest_pieces_need() -> None:
    """A device with everything beside four with a quarter each: four rings on its link."""
    cluster = cluster_of([("fast", 8)], within=100)
    stage = stage_of(0, 1, [(0,), (1, 2, 3, 4)], [1, 1])
    assert stage_ring(stage, cluster).per_byte == pytest.approx(2 * 1 / 2 / 4 * 4 / 100e9)
    turned = stage_of(0, 1, [(1, 2, 3, 4), (0,)], [1, 1])
    assert stage_ring(turned, cluster) == stage_ring(stage, cluster)


def test_a_ring_is_closed() -> None:
    """From the last type back to the first one, over the slowest link."""
    cluster = dataclasses.replace(
        cluster_of([("fast", 1), ("mid", 1), ("slow", 1)]),
        between={("fast", "mid"): link(50), ("mid", "slow"): link(50), ("fast", "slow"): link(1)},
    )
    stage = stage_of(0, 1, [(0,), (1,), (2,)], [1] * 3)
    assert stage_ring(stage, cluster).per_byte == pytest.approx(2 * 2 / 3 / 1e9)
    assert best_ring(GroupOption(1, (1, 1, 1)), cluster) == pytest.approx(
        stage_ring(stage, cluster)
    )


def test_a_ring_with_one_replica_in_a_node_has_no_hop_inside_it() -> None:
    """However slow the links are there."""
    cluster = cluster_of([("fast", 2), ("fast", 2)], within=0.5, across=5)
    ring = stage_ring(stage_of(0, 1, [(0,), (2,)], [1, 1]), cluster)
    assert ring.per_byte == pytest.approx(2 * 1 / 2 / 5e9)
    both = stage_ring(stage_of(0, 1, [(0,), (1,), (2,)], [1] * 3), cluster)
    assert both.per_byte == pytest.approx(2 * 2 / 3 / 0.5e9)


@examples(60)
@given(data=st.data())
def test_classes_that_senders_see_alike_take_as_long(data: st.DataObject) -> None:
    """To groups of several types."""
    cluster = data.draw(clusters().filter(lambda found: len(found.type_names) > 1))
    kinds = range(len(cluster.type_names))
    types = tuple(sorted(data.draw(st.sets(st.sampled_from(kinds), min_size=2))))
    counts = st.integers(1, 3)
    replicas = tuple(data.draw(counts) if kind in types else 0 for kind in kinds)
    option = GroupOption(data.draw(st.sampled_from((1, 2))), replicas)
    samples = tuple(data.draw(counts) for _ in range(sum(replicas)))
    known: dict[object, object] = {}
    sets = [own for size in (1, 2, 3) for own in combinations(kinds, size)]
    for own, within in product(sets, (False, True)):
        if within and len(own) > 1:
            continue
        for apart in ((), *((kind,) for kind in own)):
            to = GroupClass(own, within, apart)
            found = best_transfer(option, samples, to, cluster)
            assert known.setdefault(seen_from(types, to, cluster), found) == found
