"""No legal plan with samples of documents beats the bound, and the best of all is found."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest

from ilp_planner.base.errors import PlannerError, UsageError
from ilp_planner.costs.training.job import job_of_groups
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import ANY, Constraints, constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.solve import solve
from ilp_planner.settings.rules import check_packs
from ilp_planner.settings.table import BY_NAME
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.specs.lengths import BATCHINGS, FULL, GROUPED, JOINED, LONGEST, PACKED, Lengths
from tests.examples import for_each, often, thinned
from tests.megatron_cases import small_cluster
from tests.runtime_cases import runtime_problem
from tests.spaces.training.enumerate.test_tuned import with_tuning
from tests.spaces.training.test_random_plans import assert_plans_keep_the_bound

SEQUENCE = 2048
SKEWED = {"lengths": (64, 200, 700, 2048), "counts": (300, 80, 20, 5)}
CASES = [
    (space, kind, batching)
    for space, kinds in (
        ("megatron", ("dense", "experts", "latent")),
        ("torchtitan", ("dense",)),
        ("torchtitan@0.2.2", ("dense",)),
        ("deepspeed", ("dense",)),
    )
    for kind in kinds
    for batching in BY_NAME["batching"].search_of(space).values
]


def problem_of(
    space: str, kind: str, batching: str, asked: Constraints = ANY, **changes: Any
) -> Problem[Any]:
    lengths = Lengths(**SKEWED, batching=batching) if batching else None
    return runtime_problem(
        space,
        kind,
        cluster=small_cluster(2, 2, between=2e9),
        global_batch=16,
        constraints=asked,
        changes={"layers": 4, "sequence": SEQUENCE, "lengths": lengths, **changes},
    )


@cache
def solved(batching: str) -> tuple[Problem[Any], Result]:
    """Return a dense model's problem for Megatron-LM, and its proved plan: for several tests."""
    problem = problem_of("megatron", "dense", batching)
    return problem, solve(problem)


@pytest.mark.few(1)
@pytest.mark.parametrize("batching", often([JOINED, LONGEST, GROUPED, FULL], JOINED, GROUPED))
def test_the_trainer_makes_samples_that_torchtitan_does_not(batching: str) -> None:
    """No plan of PEFT and the Trainer beats the bound; torchtitan refuses to make them itself."""
    asked = constraints_of({"lora": "8", "lora_targets": "q_proj,down_proj"})
    problem = problem_of("torchtitan", "dense", batching, asked)
    assert_plans_keep_the_bound(problem, with_tuning)
    with pytest.raises(PlannerError, match=f"batching: found {batching}"):
        solve(problem_of("torchtitan", "dense", batching))


@for_each("case", thinned(CASES, 13))
def test_no_plan_is_faster_than_the_bound(case: tuple[str, str, str]) -> None:
    assert_plans_keep_the_bound(problem_of(*case))


@pytest.mark.parametrize("batching", often(BATCHINGS, PACKED))
def test_the_best_of_all_degrees_is_that_of_each(batching: str) -> None:
    """The proved plan is the fastest of those proved for each choice of degrees alone."""
    _, found = solved(batching)
    times = []
    for tp, pp, cp in product((1, 2), (1, 2, 4), (1, 2, 4)):
        if tp * pp * cp > 4:
            continue
        asked = constraints_of({"tp": tp, "pp": pp, "cp": cp})
        one = solve(problem_of("megatron", "dense", batching, asked))
        assert one.status is Status.OPTIMAL
        times.append(one.objective)
    assert min(times) == pytest.approx(found.objective, rel=1e-9)


@pytest.mark.slow
def test_packing_trains_more_tokens_in_a_second_than_padding() -> None:
    rates = {}
    for batching in BATCHINGS:
        problem, found = solved(batching)
        assert problem.spec is not None
        rates[batching] = 16 * problem.spec.architecture.tokens / found.objective
    assert rates[PACKED] > rates[LONGEST] > rates[FULL]
    assert rates[PACKED] > rates[JOINED]


@pytest.mark.slow
def test_one_length_costs_as_much_as_no_lengths() -> None:
    plain = solve(problem_of("megatron", "dense", ""))
    for batching in BATCHINGS:
        one = Lengths(lengths=(SEQUENCE,), counts=(7,), batching=batching)
        problem = problem_of("megatron", "dense", "", lengths=one)
        assert problem.costs.model.tokens == SEQUENCE
        assert plain.plan is not None
        judged = evaluate(problem, plain.plan)
        assert judged.iteration_time == pytest.approx(plain.objective, rel=1e-12)


@pytest.mark.parametrize("space", RUNTIMES)
def test_others_are_refused_in_one_line(space: str) -> None:
    values = BY_NAME["batching"].search_of(space).demandable
    for batching in set(BATCHINGS) - set(values):
        with pytest.raises(UsageError, match=f"batching: found {batching} with .*would do") as told:
            problem_of(space, "dense", batching)
        assert "\n" not in str(told.value)


def test_packs_of_megatron_come_one_at_a_time() -> None:
    said = constraints_of({"micro_batch_size": 2})
    with pytest.raises(UsageError, match=r"micro_batch_size: found 2 .* expected 1"):
        problem_of("megatron", "dense", PACKED, said)
    problem, found = solved(PACKED)
    plan = found.plan
    assert plan is not None
    job = job_of_groups(plan, problem.costs.model, problem.cluster)
    assert job.micro_batch == 1
    assert not list(check_packs(job))
    assert list(check_packs(replace(job, micro_batch=2)))


@pytest.mark.parametrize("batching", [PACKED, LONGEST, GROUPED])
def test_the_least_time_of_a_micro_batch_is_that_of_one_replica(batching: str) -> None:
    """One replica waits for no other one: parts share this bound, whatever their replicas."""
    problem: Any = problem_of("megatron", "dense", batching)
    found: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for part in problem.space.parts(problem):
        d = part.degrees
        key = d.tp, d.cp, d.micro_batch, part.job.settings.cp_comm
        found.setdefault(key, []).append((part.job.dp, part.ranks.least_alone))
    several = [rows for rows in found.values() if len(dict(rows)) > 1]
    assert several
    for rows in several:
        assert len({seconds for _, seconds in rows}) == 1
