"""Random instances of every space that has a proof, small enough for enumeration."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.spaces.training.search.conflict import ConflictError
from tests import megatron_cases, runtime_cases, tiny
from tests.checker.test_checker import HUGE, proved
from tests.checker.test_layers import drawn_problem, least_time
from tests.megatron_cases import FEW, GIB, small_cluster

Record = dict[str, Any]
CLUSTERS = ((1, 2), (2, 1), (1, 2), (2, 2), (1, 4))  # nodes, devices of each
LINKS, MEMORY = (1e9, 2e10, 2e11), (1.0, 1.2, 1.6, 2.0, 9.0)
MODELS = {
    "megatron": ("dense", "grouped", "experts", "latent"),  # the last one with a dense layer first
    "torchtitan": ("dense", "grouped", "experts", "latent"),
    "deepspeed": ("dense", "experts", "latent"),
}
ASKED = {"megatron": FEW, "torchtitan": {"schedule": "1f1b"}, "deepspeed": {}}
METIS_SEEDS = {"groups": (0, 1), "metis": (2,)}  # of `drawn_problem`: seeds modulo 3


@dataclass(frozen=True)
class Instance:
    """A problem that a seed gives."""

    space: str
    seed: int

    @cached_property
    def problem(self) -> Problem[Any]:
        """The problem, made anew."""
        return SPACES[self.space](self.seed)

    @cached_property
    def optimum(self) -> float:
        """Seconds of the fastest plan, by enumeration and the judge; `inf`: there is none."""
        return LEAST.get(self.space, _least_of_jobs)(self.problem)

    def proof(self, claim: float) -> Record:
        """Return the proof that no plan takes less than so many seconds."""
        found: Record = self.problem.space.independent_proof(self.problem, claim, ())
        return found

    def proved(self, claim: float) -> float:
        """Return the seconds that the checker proves of that."""
        return proved(self.proof(claim))


def _operators(seed: int) -> Problem[Any]:
    return tiny.drawn_problem(random.Random(seed).choice, most_ways=10_000)


def _layers(space: str) -> Callable[[int], Problem[Any]]:
    places = METIS_SEEDS[space]
    return lambda seed: drawn_problem(3 * seed + places[seed % len(places)])


def _jobs(space: str) -> Callable[[int], Problem[Any]]:
    """Return what draws a job; of two in three the pipeline ranks are asked for, as without that
    the fastest plan of so small a job seldom has any."""

    def problem(seed: int) -> Problem[Any]:
        drawn = random.Random(seed)
        nodes, devices = drawn.choice(CLUSTERS)
        pp = drawn.choice((0, 2, nodes * devices))
        few = nodes * devices > 2 and pp < 4
        build = partial(
            runtime_cases.runtime_problem,
            space,
            "dense" if few else drawn.choice(MODELS[space]),
            cluster=small_cluster(nodes, devices, between=drawn.choice(LINKS)),
            global_batch=drawn.choice((2, 4) if few else (3, 4, 6, 8)),
            memory_limit=int(drawn.choice(MEMORY) * GIB),
            changes={
                "vocab": drawn.choice((501, 16000)),
                "layers": drawn.choice((4, 5, 6) if pp else (2, 3)),
            },
        )
        demands = {"pp": str(pp)} if pp else {}
        try:
            return build(constraints=constraints_of({**ASKED[space], **demands}))
        except ConflictError:  # no plan has so many ranks
            return build(constraints=constraints_of(ASKED[space]))

    return problem


def _least_of_jobs(problem: Problem[Any]) -> float:
    cases = megatron_cases if problem.space.name == "megatron" else runtime_cases
    pp, best = problem.constraints.pp, math.inf
    for plan in cases.every_plan(megatron_cases.alone(problem)):
        if pp is not None and len(plan.stages) // plan.virtual not in pp:
            continue
        judged = evaluate(problem, plan)
        faster = judged.legal and judged.iteration_time < best
        if faster and problem.space.outside(problem, plan) is None:
            best = judged.iteration_time
    return best


def _least_of_layers(problem: Problem[Any]) -> float:
    found = least_time(problem)
    return found if found < HUGE else math.inf


SPACES: dict[str, Callable[[int], Problem[Any]]] = {
    "operators": _operators,
    **{name: _layers(name) for name in METIS_SEEDS},
    **{name: _jobs(name) for name in MODELS},
}
LEAST: dict[str, Callable[[Problem[Any]], float]] = {
    "operators": tiny.least_time,
    **dict.fromkeys(METIS_SEEDS, _least_of_layers),
}
