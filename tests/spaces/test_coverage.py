"""Which plans a proof is about: none of them is below the bound."""

import dataclasses
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.schedule.batches import Batches
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.link import Link
from ilp_planner.specs.training import Recompute
from tests import amp_cases
from tests.brute import cheapest, random_problem
from tests.examples import everything, examples, for_each, often
from tests.megatron_cases import GIB, every_plan, small_cluster, small_problem
from tests.mixed_cases import room_problem
from tests.tiny import every_plan as every_operator_plan
from tests.tiny import problems

MANY = 500 if everything() else 100  # plans of training
SEEDS = st.integers(0, 2**32 - 1)
WIDE = {"hidden": 512, "sequence": 256, "heads": 4, "ffn": 2048, "vocab": 8000}
LARGE = {"hidden": 1024, "sequence": 4096, "heads": 8, "ffn": 4096, "vocab": 32000}


def count_inside(problem: Problem, bound: float, plans: list[GroupPlan]) -> int:
    """Return how many of the plans are legal and inside, after a look at the time of each."""
    inside = 0
    for plan in plans:
        evaluation = evaluate(problem, plan)
        if evaluation.legal and problem.space.outside(problem, plan) is None:
            assert bound <= evaluation.iteration_time * (1 + 1e-9)
            inside += 1
    return inside


# ---- operators ----------------------------------------------------------------------------------


@examples(12)
@given(problem=problems(most_ways=300, most_operators=3), data=st.data())
def test_no_plan_of_operators_inside_is_below_the_bound(
    problem: Problem, data: st.DataObject
) -> None:
    """Plans of all micro-batches, of which only some are tried."""
    some = data.draw(st.sets(st.sampled_from(problem.micro_batches), min_size=1))
    fewer = dataclasses.replace(problem, micro_batches=tuple(sorted(some)))
    bound, plans = solve(fewer).bound, list(every_operator_plan(problem))
    tried = [plan for plan in plans if plan.micro_batches in some]
    untried = [plan for plan in plans if plan.micro_batches not in some]
    assert count_inside(fewer, bound, tried) == sum(evaluate(fewer, p).legal for p in tried)
    assert count_inside(fewer, bound, untried) == 0


# ---- groups of devices --------------------------------------------------------------------------


def any_plan(problem: Problem, rng: random.Random) -> GroupPlan:
    """Return a plan of any cuts, degrees, devices and shares; most are not legal."""
    layers = len(problem.costs.chain)
    count = rng.randint(1, min(layers, problem.max_stages))
    ends = [0, *sorted(rng.sample(range(1, layers), count - 1)), layers]
    free = list(range(problem.cluster.device_count))
    if rng.random() < 0.7:
        rng.shuffle(free)
    batches = rng.choice(problem.micro_batches)
    samples = Batches(problem.global_batch, batches).size
    stages = []
    for start, stop in itertools.pairwise(ends):
        tp, dp = rng.choice([1, 1, 1, 2]), rng.randint(1, 3)
        dp = min(dp, samples)
        chosen, free = free[: tp * dp], free[tp * dp :]
        if len(chosen) < tp * dp:
            chosen, tp, dp = chosen or [0], max(1, len(chosen)), 1
        cut = sorted(rng.sample(range(1, samples), dp - 1))
        shares = [b - a for a, b in itertools.pairwise([0, *cut, samples])]
        replicas = (
            Replica(devices=tuple(chosen[i * tp : (i + 1) * tp]), samples=shares[i])
            for i in range(dp)
        )
        stages.append(GroupStage(start=start, stop=stop, replicas=tuple(replicas)))
    return Plan(
        model=problem.model,
        global_batch=problem.global_batch,
        micro_batches=batches,
        stages=tuple(stages),
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("links", often(["flat", "one", "pairs", "matrix"], "one", "matrix"))
@examples(5, more=8)
@given(seed=SEEDS)
def test_no_plan_of_groups_inside_is_below_the_bound(links: str, seed: int) -> None:
    problem = random_problem(seed, links=links)
    result, rng = solve(problem), random.Random(seed)
    count_inside(problem, result.bound, [any_plan(problem, rng) for _ in range(200)])
    if result.plan is not None:
        assert count_inside(problem, result.bound, [result.plan]) == 1


@examples(5)
@given(seed=SEEDS)
def test_the_cheapest_packed_plan_is_inside(seed: int) -> None:
    problem = random_problem(seed, devices=4)
    _, plan = cheapest(problem)
    if plan is not None:
        assert problem.space.contains(problem, plan)


def test_an_unpacked_placement_is_outside_by_that_rule() -> None:
    """Stages that share both nodes' network cards are faster than any packed placement."""
    problem = two_nodes()
    groups = (0, 1, 4, 5), (2, 3, 6, 7)
    stages = tuple(
        GroupStage(
            start=2 * s,
            stop=2 * s + 2,
            replicas=tuple(Replica(devices=(d,), samples=2) for d in devices),
        )
        for s, devices in enumerate(groups)
    )
    plan = Plan(model=problem.model, global_batch=32, micro_batches=4, stages=stages)
    evaluation, proved = evaluate(problem, plan), solve(problem)
    assert evaluation.legal
    assert evaluation.iteration_time < 0.9 * proved.bound
    assert coverage_of(problem, plan, legal=True) == (
        proved.among,
        "stage 0: not packed, 2 of its nodes of gpu have room for another replica, at most one in "
        "the placements tried",
    )


def two_nodes() -> Problem:
    """Return four equal layers, of which a device holds two, on two nodes of four devices."""
    gpu = Device(name="gpu", memory=2**34, memory_bandwidth=1e12)
    cluster = ClusterSpec(
        name="pair",
        device_types={"gpu": gpu},
        nodes=(NodeGroup(device="gpu", devices=4, count=2),),
        intra_node=Link(bandwidth=300e9, latency=1e-6),
        inter_node=Link(bandwidth=5e9, latency=1e-5),
    )
    one, key = np.ones(4), ("gpu", 1)
    profile = LayerProfile(
        source="pair",
        layers=("a", "b", "c", "d"),
        time={LayerKey(*key, samples): 0.5 * samples * one for samples in (1, 2, 4, 8)},
        state={key: 4e9 * one},
        activation={key: 1e6 * one},
        workspace={key: 1e6 * one},
        gradients=1e3 * one,
        boundary=np.array([0.0, 1e9, 1e9, 1e9, 0.0]),
        optimizer={key: 0.0 * one},
        measured=frozenset(),
    )
    limits = {"gpu": 9e9}
    return Problem(
        model="four",
        cluster=cluster,
        costs=layer_costs(profile, cluster, limits),
        global_batch=32,
        micro_batches=(4,),
        memory_limits=limits,
        max_stages=2,
        max_tp=1,
        space=GroupSpace(),
    )


# ---- Megatron-LM --------------------------------------------------------------------------------


def recut(plan: GroupPlan, rng: random.Random) -> GroupPlan:
    """Return the same job with any layout, and perhaps another recomputation."""
    count, length = len(plan.stages), plan.stages[-1].stop
    ends = [0, *sorted(rng.sample(range(1, length), count - 1)), length]
    stages = tuple(
        dataclasses.replace(stage, start=start, stop=stop)
        for stage, (start, stop) in zip(plan.stages, itertools.pairwise(ends), strict=True)
    )
    again = rng.choice(
        [
            plan.settings.recompute,
            Recompute(),
            Recompute(granularity="full", method="uniform", layers=2),
            Recompute(granularity="full", method="block", layers=1),
        ]
    )
    return dataclasses.replace(
        plan, stages=stages, settings=dataclasses.replace(plan.settings, recompute=again)
    )


@for_each(
    ("cluster", "options"),
    [
        (small_cluster(), {"batch": 4, "layers": 4, **WIDE}),
        (small_cluster(), {"batch": 4, "memory_limit": 2.6 * GIB, **LARGE}),
        (small_cluster(1, 2, slow=1), {"batch": 4, "layers": 5, **WIDE}),
        (
            small_cluster(2, 1),
            {"batch": 4, "layers": 4, "experts": Experts(count=2, top_k=1, ffn=1024), **WIDE},
        ),
    ],
)
def test_no_training_job_inside_is_below_the_bound(cluster, options) -> None:
    problem = small_problem(cluster, **options)
    result, rng = solve(problem), random.Random(0)
    known = list(every_plan(problem))
    some = rng.sample(known, min(len(known), MANY))
    assert count_inside(problem, result.bound, some) > 0
    count_inside(problem, result.bound, [recut(rng.choice(known), rng) for _ in range(MANY)])
    if result.plan is not None:
        assert count_inside(problem, result.bound, [result.plan]) == 1


def test_layers_spread_unevenly_over_virtual_stages_are_outside() -> None:
    problem = small_problem(small_cluster(2, 1), batch=4, layers=6, **WIDE)
    chain = next(p for p in every_plan(problem) if len(p.stages) == 4 and p.virtual == 2)
    assert problem.space.contains(problem, chain)
    ends = (0, 2, 3, 6, 8)
    stages = tuple(
        dataclasses.replace(stage, start=start, stop=stop)
        for stage, (start, stop) in zip(chain.stages, itertools.pairwise(ends), strict=True)
    )
    uneven = dataclasses.replace(chain, stages=stages)
    assert evaluate(problem, uneven).legal
    reason = problem.space.outside(problem, uneven)
    assert reason is not None
    assert reason.startswith("layout: 2 virtual stages per rank with layers spread otherwise")


# ---- Metis and AMP ------------------------------------------------------------------------------


def check_peer(problem: Problem, plans: int) -> None:
    """Solve, and look at the plan, with other cuts and devices too."""
    result, rng = solve(problem), random.Random(0)
    if result.plan is None:
        return
    assert count_inside(problem, result.bound, [result.plan]) == 1
    count_inside(problem, result.bound, [moved(result.plan, problem, rng) for _ in range(plans)])


def test_no_plan_of_metis_inside_is_below_the_bound() -> None:
    check_peer(room_problem(cost_model="metis", space="metis"), 60)


@pytest.mark.parametrize("free", [False, True])
@examples(5)
@given(st.data())
def test_no_plan_of_amp_inside_is_below_the_bound(free: bool, data: st.DataObject) -> None:
    problem = amp_cases.drawn_problem(data, free=free)
    try:
        check_peer(problem, 30)
    except InfeasibleError:
        return


def moved(plan: GroupPlan, problem: Problem, rng: random.Random) -> GroupPlan:
    """Return the plan with other cuts, and half of the time on devices in another order."""
    count, length = len(plan.stages), len(problem.costs.chain)
    ends = [0, *sorted(rng.sample(range(1, length), count - 1)), length]
    order = list(range(problem.cluster.device_count))
    if rng.random() < 0.5:
        rng.shuffle(order)
    stages = tuple(
        GroupStage(
            start=start,
            stop=stop,
            replicas=tuple(
                dataclasses.replace(replica, devices=tuple(order[d] for d in replica.devices))
                for replica in stage.replicas
            ),
        )
        for stage, (start, stop) in zip(plan.stages, itertools.pairwise(ends), strict=True)
    )
    return dataclasses.replace(plan, stages=stages)
