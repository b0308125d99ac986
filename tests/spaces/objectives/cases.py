"""Small problems with prices, and every plan of theirs on every set of nodes."""

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.spaces.objectives.objective import Point
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.prices import hourly_price, nodes_of, with_prices
from tests import brute, megatron_cases, tiny
from tests.problems import build_group_problem

PRICES = (0.5, 1.0, 3.0)


def priced(cluster: ClusterSpec, random: np.random.Generator) -> ClusterSpec:
    """Return a cluster with a price of every type."""
    texts = (f"{name}={random.choice(PRICES)}" for name in cluster.device_types)
    return with_prices(cluster, ",".join(texts))


def group_problem(seed: int, *, measured: bool = False) -> Problem[Any]:
    """Draw a problem of layers on nodes of up to three types and sizes, which links may tell
    apart. measured: no row is missing in the profile, so that none is predicted from others."""
    random = np.random.default_rng(seed)
    names = ("fast", "mid", "slow")[: random.integers(1, 4)]
    nodes = [(str(random.choice(names)), int(random.integers(1, 3))) for _ in range(3)]
    cluster = brute.random_cluster(random, nodes, str(random.choice(brute.KINDS)))
    batch, layers = int(random.integers(2, 5)), int(random.integers(2, 4))
    profile = brute.random_profile(random, cluster.type_names, layers, batch)
    if measured:
        profile = replace(profile, time=without_holes(profile, batch))
    largest = max(float((profile.state[p] + profile.activation[p]).sum()) for p in profile.state)
    return build_group_problem(
        priced(cluster, random),
        profile,
        model="tiny",
        space="groups",
        global_batch=batch,
        memory_limit=largest * float(random.choice([0.3, 0.6, 4.0])),
    )


def without_holes(profile: LayerProfile, samples: int) -> dict[LayerKey, NDArray[np.float64]]:
    """Return rows of a profile for every number of samples."""
    first = {(key.device, key.tp): (key.samples, row) for key, row in profile.time.items()}
    return {
        LayerKey(device, tp, x): row * (0.3 + 0.7 * x / had)
        for (device, tp), (had, row) in first.items()
        for x in range(1, samples + 1)
    }


def megatron_problem(seed: int) -> Problem[Any]:
    """Draw a problem of Megatron's on equal nodes, or on two types."""
    random = np.random.default_rng(seed)
    slow = int(random.integers(0, 2))
    rate = float(random.choice([2e9, 20e9, 100e9]))
    cluster = megatron_cases.small_cluster(2 - slow, 1, between=rate, slow=slow)
    limit = float(random.choice([1.6, 2.6, 80])) * megatron_cases.GIB
    few = {**megatron_cases.FEW, "recompute": "none,full", "remainder": "first"}
    return megatron_cases.small_problem(
        priced(cluster, random),
        batch=int(random.choice([4, 6])),
        memory_limit=limit,
        constraints=constraints_of(few),
    )


def operator_problem(seed: int) -> Problem[Any]:
    """Draw a problem of operators on three equal nodes of one device."""
    random = np.random.default_rng(seed)
    operators = tiny.CHAINS["resnet"][0][:3]
    profile = tiny.random_profile(seed, operators, micro_batches=(1, 2), degrees=(1,), ties=0.0)
    objects = {
        "cluster": priced(tiny.make_cluster(3, 1, memory=2**50), random),  # the limit decides
        "model": tiny.make_model(operators, "resnet"),
        "profile": profile,
    }
    request = Request(files={}, space="operators", global_batch=4)
    problem = build_problem(InputFiles(request, objects=objects))
    least = tiny.least_memory(problem_on(problem, (0,)))
    limit = least * float(random.choice([0.5, 1.0, 4.0]))
    again = replace(request, memory_limit=max(limit, 1.0))
    return build_problem(InputFiles(again, objects=objects))


KINDS: dict[str, tuple[Callable[[int], Problem[Any]], Callable[..., Iterator[Any]]]] = {
    "groups": (group_problem, brute.every_plan),
    "megatron": (megatron_problem, megatron_cases.every_plan),
    "operators": (operator_problem, tiny.every_plan),
}


def every_point(kind: str, problem: Problem[Any]) -> list[Point]:
    """Return time and price per hour of every legal plan that the space has on any nodes, planned
    and paid for as a cluster of their own: also for what stays idle in it."""
    found = []
    numbers = range(problem.cluster.node_count)
    for count in range(1, len(numbers) + 1):
        for nodes in itertools.combinations(numbers, count):
            try:
                part = problem_on(problem, nodes)
            except InfeasibleError:
                continue
            found += points_of(kind, part, nodes=range(count))
    return found


def points_of(
    kind: str, problem: Problem[Any], nodes: Collection[int] | None = None
) -> list[Point]:
    """Return time and price per hour of every legal plan of a problem. nodes: that are paid for;
    None: those that the plan uses."""
    found = []
    for plan in KINDS[kind][1](problem):
        verdict = evaluate(problem, plan)
        if verdict.legal and problem.space.contains(problem, plan):
            used = nodes_of(problem.cluster, plan.used)
            hourly = hourly_price(problem.cluster, nodes or used)
            assert hourly is not None
            found.append(Point(verdict.iteration_time, hourly))
    return found
