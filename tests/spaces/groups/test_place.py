"""From groups to devices: nothing twice, nothing split, nothing missed."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import Plan, Replica
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.spaces.groups.place import (
    GroupChoice,
    Seats,
    every_packing,
    packings,
    place,
    seated,
)
from ilp_planner.spaces.groups.place_nodes import place_nodes
from ilp_planner.specs.cluster import ClusterSpec
from tests.brute import (
    group_ways,
    packed_counts,
    random_problem,
    seatings,
    spread_counts,
    spread_problem,
)
from tests.costs.mixed_instances import cluster_of
from tests.examples import examples

SEEDS = st.integers(0, 2**32 - 1)
FEW = examples(20)


def drawn(seed: int, **options) -> tuple[Problem, int, list[GroupChoice]]:
    """Draw stages for a tiny problem that its devices suffice for; [] where they do not."""
    random = np.random.default_rng(seed)
    problem = random_problem(seed, mixed_tp=seed % 2 == 1, **options)
    batches = int(random.choice(problem.micro_batches))
    ways = group_ways(problem, batches)
    layers = len(problem.costs.chain)
    stages = int(random.integers(1, layers + 1))
    cuts = sorted(random.choice(np.arange(1, layers), stages - 1, replace=False).tolist())
    ends = [0, *cuts, layers]
    choices = []
    for start, stop in pairwise(ends):
        if not ways:
            return problem, batches, []
        option, samples, _ = ways[int(random.integers(len(ways)))]
        choices.append(GroupChoice(start=start, stop=stop, option=option, samples=samples))
    used = np.sum([choice.option.use for choice in choices], axis=0)
    return problem, batches, choices if (used <= problem.cluster.type_counts).all() else []


def check(cluster: ClusterSpec, choices: Sequence[GroupChoice], seats: Seats) -> None:
    """Check a placement by the definition."""
    size, taken = Counter(cluster.node_of), Counter()
    for choice, row in zip(choices, seats, strict=True):
        at = 0
        assert len(row) == sum(choice.option.replicas) == len(choice.samples)
        for kind, count in enumerate(choice.option.replicas):
            nodes, tp = Counter(row[at : at + count]), choice.option.degree(kind)
            at += count
            assert all(cluster.node_types[v] == cluster.type_names[kind] for v in nodes)
            if choice.option.over and count:
                assert len(nodes) == choice.option.over
                assert len({*nodes.values()}) == 1
            else:
                assert sum((n + 1) * tp <= size[v] for v, n in nodes.items()) <= 1  # packed
            for v, n in nodes.items():
                taken[v] += n * tp
    assert all(n <= size[v] for v, n in taken.items())


def spread_drawn(seed: int) -> tuple[Problem, int, list[GroupChoice]]:
    """Draw stages, some of them spread, that all devices suffice for."""
    random = np.random.default_rng(seed)
    while True:
        problem = spread_problem(int(random.integers(2**32)))
        batches = int(random.choice(problem.micro_batches))
        found, layers = GroupPart(problem, batches).catalogue, len(problem.costs.chain)
        if not any(option.over for option in found.options):
            continue
        stages = int(random.integers(layers)) + 1
        cuts = sorted(random.choice(np.arange(1, layers), stages - 1, replace=False).tolist())
        choices = []
        for start, stop in pairwise([0, *cuts, layers]):
            number = int(random.integers(len(found.options)))
            option, samples = found.options[number], found.samples[number]
            choices.append(GroupChoice(start=start, stop=stop, option=option, samples=samples))
        used = np.sum([choice.option.use for choice in choices], axis=0)
        spread = any(choice.option.over for choice in choices)
        if spread and (used <= problem.cluster.type_counts).all():
            return problem, batches, choices


@examples(60)
@given(seed=SEEDS)
def test_every_placement_that_is_spread_is_met(seed: int) -> None:
    """The best of all that there are, one by one, is the best of those that are yielded."""
    problem, batches, choices = spread_drawn(seed)
    found = []
    for seats in every_packing(problem.cluster, choices):
        check(problem.cluster, choices, seats)
        found.append(cost(problem, batches, choices, seats))
    ways = [
        (
            choice.option,
            choice.samples,
            [
                *(
                    spread_counts(problem.cluster, choice.option, choice.option.over)
                    if choice.option.over
                    else packed_counts(problem.cluster, choice.option)
                )
            ],
        )
        for choice in choices
    ]
    least = []
    for row in in_order(problem.cluster, ways):
        stages = [choice.on(replicas) for choice, replicas in zip(choices, row, strict=True)]
        plan = Plan(
            model=problem.model,
            global_batch=problem.global_batch,
            micro_batches=batches,
            stages=tuple(stages),
        )
        least.append(problem.costs.plan_cost(plan, problem.cluster).iteration_time)
    assert min(found, default=np.inf) == pytest.approx(min(least, default=np.inf))
    placed = place(problem, batches, choices)
    if placed.plan is not None:
        assert problem.space.contains(problem, placed.plan)
        assert placed.bound <= min(least) * (1 + 1e-9)
    assert (placed.plan is None) == (not least)


def in_order(cluster: ClusterSpec, ways) -> list[tuple[Replica, ...]]:
    """Return every way to seat these groups one after the other."""
    return [
        row
        for row in seatings(cluster, ways, len(ways))
        if all(sorted(r.samples for r in s) == sorted(w[1]) for s, w in zip(row, ways, strict=True))
        and all(shape(cluster, s) in w[2] for s, w in zip(row, ways, strict=True))
        and all({r.tp for r in s} == {w[0].tp} for s, w in zip(row, ways, strict=True))
    ]


def shape(cluster: ClusterSpec, stage: Sequence[Replica]):
    """Return the replicas on the nodes of each type."""
    on = Counter(cluster.node_of[replica.devices[0]] for replica in stage)
    return tuple(
        tuple(on[v] for v, found in enumerate(cluster.node_types) if found == name)
        for name in cluster.type_names
    )


def test_neighbours_that_are_spread_over_as_many_nodes_share_them() -> None:
    """Simple placements have pairs, whatever is seated first; the large nodes have no room."""
    cluster = cluster_of([("fast", 4)] * 4)
    choices = [
        GroupChoice(start=0, stop=1, option=GroupOption(1, (4,)), samples=(1,) * 4),
        GroupChoice(start=1, stop=2, option=GroupOption(1, (2,), (), 2), samples=(2, 2)),
        GroupChoice(start=2, stop=3, option=GroupOption(2, (2,), (), 2), samples=(2, 2)),
        GroupChoice(start=3, stop=4, option=GroupOption(1, (2,), (), 2), samples=(2, 2)),
    ]
    for seats in packings(cluster, choices):
        check(cluster, choices, seats)
        assert {*seats[1]} == {*seats[2]} == {*seats[3]}
        assert not {*seats[0]} & {*seats[1]}


def cost(problem: Problem, batches: int, choices, seats: Seats) -> float:
    plan = seated(problem, batches, choices, seats)
    return problem.costs.plan_cost(plan, problem.cluster).iteration_time


@FEW
@given(seed=SEEDS)
def test_devices_are_used_once_and_replicas_stay_in_a_node(seed: int) -> None:
    problem, batches, choices = drawn(seed, devices=8)
    assume(choices)
    for seats in packings(problem.cluster, choices):
        check(problem.cluster, choices, seats)
        plan = seated(problem, batches, choices, seats)
        devices = [d for stage in plan.stages for d in stage.devices]
        assert len(devices) == len(set(devices))
        for stage, row in zip(plan.stages, seats, strict=True):
            for replica, node in zip(stage.replicas, row, strict=True):
                assert {problem.cluster.node_of[d] for d in replica.devices} == {node}


@examples(50)
@given(data=st.data())
def test_powers_of_two_always_fit(data: st.DataObject) -> None:
    """Nodes and groups of powers of two: whatever the devices suffice for has a simple packing."""
    size = data.draw(st.sampled_from([1, 2, 4, 8]))
    nodes = data.draw(st.integers(1, 4))
    cluster = cluster_of([("fast", size)] * nodes + [("slow", 4)] * 2)
    left, choices = [size * nodes, 8], []
    while data.draw(st.booleans()) and any(left):
        kind = data.draw(st.sampled_from([k for k in (0, 1) if left[k]]))
        largest = min((size, 4)[kind], left[kind])
        tp = data.draw(st.sampled_from([t for t in (1, 2, 4, 8) if t <= largest]))
        dp = data.draw(st.sampled_from([d for d in (1, 2, 4, 8) if d * tp <= left[kind]]))
        left[kind] -= tp * dp
        replicas = (dp, 0) if kind == 0 else (0, dp)
        at = len(choices)
        choices.append(
            GroupChoice(start=at, stop=at + 1, option=GroupOption(tp, replicas), samples=(1,) * dp)
        )
    assume(choices)
    found = list(packings(cluster, choices))
    assert found
    for seats in found:
        check(cluster, choices, seats)


@FEW
@given(seed=SEEDS)
def test_all_packings_are_all_packings(seed: int) -> None:
    """By the definition, and cheapest alike; with a matrix no two nodes are alike."""
    for links in ("one", "matrix"):
        problem, batches, choices = drawn(seed, devices=7, links=links)
        assume(choices)
        cluster = problem.cluster
        found = list(every_packing(cluster, choices))
        for seats in found:
            check(cluster, choices, seats)
        keys = {tuple(map(tuple, seats)) for seats in found}
        assert len(keys) == len(found)
        assert len(keys) >= len({tuple(map(tuple, s)) for s in found})
        ways = [[(c.option, c.samples, list(packed_counts(cluster, c.option)))] for c in choices]
        costs = []
        for rows in seatings_of(cluster, ways):
            stages = [
                dataclasses.replace(stage, replicas=row)
                for stage, row in zip(
                    seated(problem, batches, choices, found[0]).stages, rows, strict=True
                )
            ]
            plan = dataclasses.replace(
                seated(problem, batches, choices, found[0]), stages=tuple(stages)
            )
            costs.append(problem.costs.plan_cost(plan, cluster).iteration_time)
        assert bool(costs) == bool(found)
        if found:
            least = min(cost(problem, batches, choices, seats) for seats in found)
            assert least == pytest.approx(min(costs))
            placed = place(problem, batches, choices)
            assert placed.bound == pytest.approx(least)
            judged = problem.costs.plan_cost(placed.plan, cluster).iteration_time
            assert judged == pytest.approx(least)
        else:
            placed = place(problem, batches, choices)
            assert placed.plan is None
            assert placed.bound == np.inf


def seatings_of(cluster: ClusterSpec, ways):
    """Yield the placements of given stages in a row, the slow way."""
    everything = [way for (way,) in ways]
    for rows in seatings(cluster, everything, len(everything)):
        shapes = [
            (
                {cluster.type_of[r.devices[0]]: r.tp for r in row},
                tuple(sorted(r.samples for r in row)),
            )
            for row in rows
        ]
        types = [
            tuple(
                sum(cluster.type_of[r.devices[0]] == name for r in row)
                for name in cluster.type_names
            )
            for row in rows
        ]
        wanted = [
            (
                {name: o.degree(k) for k, name in enumerate(cluster.type_names) if o.replicas[k]},
                tuple(sorted(samples)),
            )
            for o, samples, _ in everything
        ]
        if shapes == wanted and types == [o.replicas for o, _, _ in everything]:
            yield rows


def test_nothing_fits() -> None:
    """Four groups of three on three nodes of four: each node has one seat left over."""
    problem = random_problem(0)
    cluster = cluster_of([("fast", 4)] * 3)
    choices = [
        GroupChoice(start=i, stop=i + 1, option=GroupOption(1, (3,)), samples=(1, 1, 1))
        for i in range(4)
    ]
    assert list(packings(cluster, choices)) == []
    assert list(every_packing(cluster, choices)) == []
    assert len(list(packings(cluster, choices[:3]))) > 0
    problem = dataclasses.replace(problem, cluster=cluster)
    assert place_nodes(problem, 1, choices, seconds=2.0) == []


def test_equal_nodes_are_told_apart_only_by_what_they_hold() -> None:
    cluster = cluster_of([("fast", 2)] * 6)
    choices = [
        GroupChoice(start=i, stop=i + 1, option=GroupOption(2, (1,)), samples=(1,))
        for i in range(3)
    ]
    assert list(every_packing(cluster, choices)) == [[[0], [1], [2]]]


# ---- CP-SAT on nodes ----------------------------------------------------------------------------


@FEW
@given(seed=SEEDS)
def test_cp_sat_places_packed_and_whenever_possible(seed: int) -> None:
    problem, batches, choices = drawn(seed, devices=8, links="matrix")
    assume(choices)
    found = place_nodes(problem, batches, choices, seconds=2.0)
    for seats in found:
        check(problem.cluster, choices, seats)
    assert bool(found) == any(True for _ in every_packing(problem.cluster, choices))


def test_cp_sat_is_near_the_best_placement_and_mostly_beats_the_simple_ones() -> None:
    """Random links from node to node, 40 cases: the best of its placements and the simple ones."""
    simple, both, best = [], [], []
    for seed in range(80):
        problem, batches, choices = drawn(seed, devices=12, sizes=(2, 4), links="matrix")
        if not choices:
            continue
        first = [cost(problem, batches, choices, s) for s in packings(problem.cluster, choices)]
        if not first:
            continue
        found = place_nodes(problem, batches, choices, seconds=2.0)
        every = [
            cost(problem, batches, choices, s) for s in every_packing(problem.cluster, choices)
        ]
        best.append(min(every))
        simple.append(min(first))
        both.append(min([*first, *(cost(problem, batches, choices, s) for s in found)]))
    ratio = np.array(both) / np.array(best)
    assert ratio.min() >= 1 - 1e-9
    assert ratio.mean() < 1.01
    assert (ratio < 1 + 1e-9).mean() > 0.9
    assert (np.array(simple) / np.array(best)).mean() > 1.1


@FEW
@given(seed=SEEDS)
def test_place_never_does_worse_than_the_simple_packings(seed: int) -> None:
    """Also where it may try next to nothing one by one."""
    problem, batches, choices = drawn(seed, devices=8, links="matrix")
    assume(choices)
    first = [cost(problem, batches, choices, s) for s in packings(problem.cluster, choices)]
    placed = place(problem, batches, choices, most_packings=0)
    if first:
        assert placed.plan is not None
        judged = problem.costs.plan_cost(placed.plan, problem.cluster).iteration_time
        assert judged <= min(first)
    best = min(
        (cost(problem, batches, choices, s) for s in every_packing(problem.cluster, choices)),
        default=np.inf,
    )
    assert placed.bound <= best * (1 + 1e-9)


def test_slow_links_are_left_alone() -> None:
    """Two of four nodes have a fast link: two stages that fill a node each go there."""
    seed = next(
        s
        for s in range(500)
        if random_problem(s).costs.degrees().get("fast", ())[:1] == (1,)
        and random_problem(s).cluster.type_names == ("fast",)
    )
    problem = random_problem(seed)
    cluster = cluster_of([("fast", 2)] * 4)
    slow, fast = cluster.inter_node, cluster.intra_node
    matrix = [[slow] * 4 for _ in range(4)]
    matrix[1][3] = matrix[3][1] = fast
    cluster = dataclasses.replace(cluster, matrix=tuple(map(tuple, matrix)))
    problem = dataclasses.replace(problem, cluster=cluster)
    choices = [
        GroupChoice(start=i, stop=i + 1, option=GroupOption(1, (2,)), samples=(1, 1))
        for i in range(2)
    ]
    found = place_nodes(problem, problem.global_batch // 2, choices, seconds=2.0)
    assert {v for row in found[-1] for v in row} == {1, 3}
    placed = place(problem, problem.global_batch // 2, choices, most_packings=0)
    nodes = {cluster.node_of[d] for stage in placed.plan.stages for d in stage.devices}
    assert nodes == {1, 3}
