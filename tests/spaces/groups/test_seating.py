"""Groups take devices one after the other, each device once, tensor ranks in one node."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.bounds.resource_paths import search_resource_paths
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.spaces.groups.seating import Seating
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from tests.brute import random_problem
from tests.examples import examples


def cluster(sizes: list[int]) -> ClusterSpec:
    link = Link(bandwidth=1e9, latency=1e-6)
    device = Device(name="a", memory=2**34)
    return ClusterSpec(
        name="c",
        device_types={"a": device},
        nodes=tuple(NodeGroup(device="a", devices=size) for size in sizes),
        intra_node=link,
        inter_node=link,
    )


@examples(50)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=4),
    groups=st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.integers(1, 4)), max_size=5),
)
def test_seats_are_taken_once_and_replicas_stay_in_a_node(sizes, groups):
    spec = cluster(sizes)
    seating = Seating(spec)
    taken, used = 0, set()
    after, near = seating.follow(groups)
    for n, (tp, replicas) in enumerate(groups):
        seats = seating.seat(0, tp, replicas, taken)
        if seats is None:
            assert after[n, 0, taken] == -1
            continue
        assert len(seats) == replicas
        for places in seats:
            assert len(places) == tp
            assert len({spec.node_of[place] for place in places}) == 1
            assert not used & set(places)
            used |= set(places)
        nodes = {spec.node_of[place] for places in seats for place in places}
        if near[n, 0, taken]:
            assert nodes == {spec.node_of[taken - 1]}
        taken = seats[-1][-1] + 1
        assert taken <= after[n, 0, taken - 1] or after[n, 0, taken - 1] == -1
        assert max(used) == taken - 1


@examples(50)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=6),
    groups=st.lists(st.tuples(st.sampled_from([1, 2, 3, 4]), st.integers(0, 9)), max_size=6),
)
def test_arithmetic_says_where_groups_end_after_any_number_of_devices(sizes, groups):
    seating = Seating(cluster(sizes))
    after, near = seating.follow(groups)
    for n, (tp, replicas) in enumerate(groups):
        for taken in range(sum(sizes) + 1):
            seats = seating.seat(0, tp, replicas, taken)
            if not replicas:
                assert (after[n, 0, taken], near[n, 0, taken]) == (taken, False)
            elif seats is None:
                assert (after[n, 0, taken], near[n, 0, taken]) == (-1, False)
            else:
                assert after[n, 0, taken] == seats[-1][-1] + 1
                begun = seating.rest[0, taken] >= tp * replicas
                assert near[n, 0, taken] == (begun and seats[0][0] == taken)


def test_a_group_that_fits_beside_the_last_one_goes_there():
    seating = Seating(cluster([4, 4]))
    assert seating.seat(0, 1, 2, 1) == [[1], [2]]
    assert seating.seat(0, 2, 2, 1) == [[4, 5], [6, 7]]
    assert seating.seat(0, 4, 2, 0) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert seating.seat(0, 4, 2, 1) is None


@examples(20)
@given(seed=st.integers(0, 10**6), links=st.sampled_from(["flat", "one", "pairs"]))
def test_a_seated_path_is_a_legal_plan(seed, links):
    problem = random_problem(seed, links=links, devices=6, mixed_tp=seed % 2 == 1)
    for batches in problem.micro_batches:
        part = GroupPart(problem, batches)
        opened = part.graph(np.inf, None)
        if not opened.graph.arcs:
            continue
        assert opened.seated is not None
        found = search_resource_paths(opened.graph, opened.seated)
        if not found.path:
            continue
        plan = part.seat(opened.choice[list(found.path)].tolist())
        assert plan is not None
        evaluation = evaluate(problem, plan)
        assert evaluation.legal
        best = search_resource_paths(opened.graph, opened.context)
        assert best.value <= evaluation.iteration_time * (1 + 1e-9)
