"""What the spaces of training jobs say their proofs are about, and what they answer of a plan."""

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.job.holdings import STATES, WEIGHTS
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.training.enumerate.recomputations import FULL
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.specs.training import Recompute
from tests.examples import for_each
from tests.megatron_cases import GIB, small_cluster, small_problem
from tests.runtime_cases import runtime_problem

EVERY = "none, core_attn, mlp, layernorm, layernorm mlp, uniform 1 or block of any number of layers"
EVEN = (
    ", spread evenly over its virtual stages, the first or the last ones with one more, the ends "
    "alone or not, or, where layers differ, as many in each but the first and the last"
)
DIVIDED = (
    ", with interleaved-zb, zb-v or dualpipe-v also as many in all of these, or on all ranks but "
    "that of the output"
)
ANYHOW = ", spread anyhow over its virtual stages"


@for_each(
    ("space", "asked", "again", "spread"),
    [
        ("megatron", {}, EVERY, EVEN),
        ("megatron", {"recompute": "none"}, "none", EVEN),
        ("megatron", {"recompute": "block"}, "block of any number of layers", EVEN),
        ("megatron", {"layout": "even"}, EVERY, ", as the layout says"),
        ("torchtitan", {}, "none, operators or uniform 1", EVEN + DIVIDED),
        ("torchtitan", {"schedule": "1f1b"}, "none, operators or uniform 1", EVEN),
        ("torchtitan", {"remainder": "alone"}, "none, operators or uniform 1", EVEN),
        ("torchtitan", {"layout": "even"}, "none, operators or uniform 1", ", as the layout says"),
        ("megatron", {"layout": "any"}, EVERY, ANYHOW),
        ("torchtitan", {"layout": "any"}, "none, operators or uniform 1", ANYHOW + DIVIDED),
        ("deepspeed", {"layout": "any"}, "none, uniform 1 or uniform 3", ""),
        ("deepspeed", {}, "none, uniform 1 or uniform 3", ""),
    ],
)
def test_what_is_tried_of_recomputation_and_layouts_is_said(
    space: str, asked: dict[str, str], again: str, spread: str
) -> None:
    problem = runtime_problem(space, cluster=small_cluster(1, 2), constraints=constraints_of(asked))
    said = problem.space.describe(problem)
    named = "".join(f", {name} {value}," for name, value in asked.items())
    assert said.startswith(f"plans with 1, 2, 4 micro-batches{named} of the planner's settings, ")
    assert said.endswith(
        f"; recomputation {again}; a rank's layers, the embedding and the output layer with their "
        f"neighbours{spread}"
    )


def test_what_is_tried_of_sharding_and_of_context_parallelism_is_said() -> None:
    problem = runtime_problem("megatron", cluster=small_cluster(1, 2))
    said = problem.space.describe(problem)
    assert ", optimizer or parameters sharded, cp at most 8 by p2p or a2a, " in said


SAID = {"recompute": "none,full", "cp": 1, "ep": 1, "micro_batch_group_size": 2, "tp": 1}


def of_two_ranks(**asked: Any) -> tuple[Problem, GroupPlan]:
    """Return a small problem and its plan of two ranks that computes all layers again."""
    problem = small_problem(small_cluster(1, 2), constraints=constraints_of(SAID), **asked)
    part = next(part for part in problem.space.parts(problem) if part.degrees.pp == 2)
    return problem, part.group_plan(Variant(1, FULL), [0, 3, 6])


def begun(problem: Problem) -> Any:
    """Return the state of a search that has not looked for anything."""
    return problem.space.begin(problem, Task(Limits(), "auto"))


def test_the_job_of_a_plan_its_seconds_and_what_it_computes_again() -> None:
    """The forward passes of four layers: 2 FLOPs for each parameter of a matrix and token, and 4
    for each head's element and pair of tokens, half of which are masked."""
    problem, plan = of_two_ranks()
    space, judged = problem.space, evaluate(problem, plan)
    assert (space.job(problem, plan).pp, space.job(problem, plan).dp) == (2, 1)
    assert judged.cost is not None
    seconds = space.seconds(problem, plan, judged.cost)
    assert sum(seconds.values()) == pytest.approx(judged.iteration_time, rel=1e-12)
    assert seconds["recomputation"] > 0
    model = problem.costs.model
    matrices = 4 * model.hidden**2 + 2 * model.hidden * model.ffn
    flops = 2 * matrices * model.sequence + 2 * model.sequence**2 * model.hidden
    assert space.recomputed_flops(problem, plan) == pytest.approx(model.layers * flops)
    settings = replace(plan.settings, recompute=Recompute())
    assert space.recomputed_flops(problem, replace(plan, settings=settings)) == 0


@for_each(
    ("old", "new", "limits", "said"),
    [
        ({}, {}, (1.0, 1.0), []),
        ({}, {}, (2.0, 1.0), []),  # fewer plans fit
        ({}, {}, (1.0, 2.0), ["memory: 1.00 GiB of a100 there, 2.00 GiB here"]),
        ({"recompute": "none"}, {}, (1.0, 1.0), ["recompute: none there, any here"]),
    ],
)
def test_what_lets_in_more_plans_of_a_part_is_said(
    old: dict[str, str], new: dict[str, str], limits: tuple[float, float], said: list[str]
) -> None:
    before, now = (
        Request(
            files={},
            space="megatron",
            memory_limits={"a100": size * GIB},
            constraints=constraints_of(asked),
        )
        for asked, size in zip((old, new), limits, strict=True)
    )
    problem, _ = of_two_ranks()
    assert list(problem.space.widened(before, now)) == said


def test_parts_are_proved_ranked_and_put_into_families() -> None:
    """What a certificate claims is derived again, and not more than that."""
    problem, _ = of_two_ranks()
    search = begun(problem)
    found = solve(problem)
    records = found.certificate["parts"]
    proved = list(problem.space.prove(search, records))
    assert proved == pytest.approx([record["bound_s"] for record in records])
    lower = [{**record, "bound_s": record["bound_s"] / 2} for record in records]
    halves = [record["bound_s"] for record in lower]
    assert list(problem.space.prove(begun(problem), lower)) == pytest.approx(halves)
    best = solve(problem, top=3).ranking
    assert len(best) == 3
    assert best[0].plan == found.plan
    families = list(problem.space.families(search, 2 * found.objective))
    assert {part.degrees.pp for family in families for part in family.parts} == {1, 2}


def test_what_arithmetic_does_not_prove_of_a_part_is_proved_by_its_cuts() -> None:
    """Up to what is claimed, and no higher than the fastest plan, found one by one."""
    problem, _ = of_two_ranks()
    parts = problem.space.parts(problem)
    claim, best = 2 * solve(problem).objective, []
    for part in parts:
        times = []
        for variant in part.variants():
            stages = part.degrees.pp * (1 if part.spread(variant) else variant.virtual)
            for inner in itertools.combinations(range(1, 6), stages - 1):
                times.append(part.seconds(variant, (0, *inner, 6)))
        best.append(min(times))
    proved = list(problem.space.prove(begun(problem), [{"bound_s": claim}] * len(parts)))
    assert proved == pytest.approx([min(claim, least) for least in best], rel=1e-9)
    assert any(part.least_bound() < least < claim for part, least in zip(parts, best, strict=True))


def test_devices_hold_half_of_the_layers_and_an_end_each() -> None:
    """In bf16 with fp32 states: 2 bytes of weights, and 4 + 4 + 4 of what is stepped. Both ends
    have the words, the first one positions, the last one a norm of scales and biases."""
    problem, plan = of_two_ranks()
    held = problem.space.holdings(problem, plan)
    assert held.stage.tolist() == [0, 1]
    assert (held.sizes[..., STATES] == 6 * held.sizes[..., WEIGHTS]).all()
    first, last = held.bytes
    model = problem.costs.model
    assert first - last == 14 * (model.sequence - 2) * model.hidden


def test_annealing_looks_for_plans_itself() -> None:
    problem, _ = of_two_ranks()
    search = begun(problem)
    assert problem.space.anneal(search) is True
    assert search.plan is not None


def test_where_nothing_fits_it_is_said_how_much_would_do() -> None:
    problem, _ = of_two_ranks(memory_limit=GIB / 64)
    said = problem.space.explain(begun(problem))
    assert said.startswith("in every plan some device would need more memory than it has (a100 16")
    assert re.search(
        r"\(a100 16\.00 MiB\); [\d.]+ MiB on each a100 would do, [\d.]+ MiB more, with none", said
    )
