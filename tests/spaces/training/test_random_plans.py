"""No legal plan that a proof is about takes less than its bound: random plans for every runtime."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.settings.base import AS_ASKED, SEARCHED
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.throughput import physical_bound
from ilp_planner.specs.machine import Machine
from tests.divided_layouts import DIVIDED
from tests.examples import everything, examples, often
from tests.megatron_cases import alone, small_cluster
from tests.random_plans import Drawer
from tests.random_problems import large_problems, small_problems
from tests.runtime_cases import runtime_problem

MOST = 250  # plans of a problem that are legal and inside, where there are so many
PLANS = MOST if everything() else MOST // 8
DRAWN = 400 if everything() else 120  # around the best plan of a problem, by each seed
LEAST = 12  # of those of three seeds that are legal and inside
TRIES = 8  # plans that are drawn for each of them, at most
LESS = 1 if everything() else 3
TOGETHER = 4 * PLANS  # plans of the small problems that are legal and inside, at least
# So many problems have them: some spaces are larger.
PROBLEMS = {"megatron": 6, "torchtitan": 9, "torchtitan@0.2.2": 8, "deepspeed": 12}
SEEDS = st.integers(0, 2**32 - 1)
# The earlier torchtitan is searched as the newest one is.
runtimes = pytest.mark.parametrize("space", often(RUNTIMES, *(n for n in RUNTIMES if "@" not in n)))


def assert_none_is_faster(problem: Problem, seed: int, count: int = PLANS) -> int:
    """Draw plans until so many are legal and inside, besides the best one, and return how many are:
    none takes less than the bound, and there is none where nothing is said to fit."""
    found = solve(problem)
    assert found.status in (Status.OPTIMAL, Status.INFEASIBLE)
    bound = NEVER
    if found.plan is not None:
        bound = found.bound
        assert 0 < problem.space.work_bound(problem, range(problem.cluster.node_count)) <= bound
        assert found.objective >= bound * (1 - ROUNDING)
        assert evaluate(problem, found.plan).legal
        assert problem.space.outside(problem, found.plan) is None
    inside, seen = 0, {found.plan}
    for plan in islice(Drawer(problem, seed).plans(found.plan), count * TRIES):
        if plan in seen:
            continue
        seen.add(plan)
        evaluation = evaluate(problem, plan)
        if not evaluation.legal:
            continue
        outside = problem.space.outside(problem, plan)
        if outside is None:
            assert evaluation.iteration_time >= bound * (1 - ROUNDING), plan
            inside += 1
        else:
            assert ":" in outside  # what it is that is not tried, and how it is
        if inside == count:
            break
    return inside


def assert_plans_keep_the_bound(
    problem: Problem, changed: Callable[[GroupPlan, GroupPlan], GroupPlan] = lambda plan, _: plan
) -> None:
    """Prove the best plan of a problem, and draw plans around it: none that is legal and inside
    takes less than the bound, and at least twelve are. changed: makes a plan of a drawn one and the
    best one."""
    found = solve(problem)
    assert found.status is Status.OPTIMAL
    assert found.plan is not None
    assert evaluate(problem, found.plan).legal
    nodes = range(problem.cluster.node_count)
    assert 0 < problem.space.work_bound(problem, nodes) <= found.bound
    assert physical_bound(problem) <= found.bound
    inside = 0
    for seed in range(3):
        for drawn in islice(Drawer(problem, seed).plans(found.plan), DRAWN):
            plan = changed(drawn, found.plan)
            judged = evaluate(problem, plan)
            if judged.legal and problem.space.outside(problem, plan) is None:
                assert judged.iteration_time >= found.bound * (1 - ROUNDING), plan
                inside += 1
    assert inside >= LEAST


def checked(problems: st.SearchStrategy[Problem], count: int) -> int:
    """Check plans of so many problems, and return how many were legal and inside."""
    inside = []

    @examples(count)
    @given(problem=problems, seed=SEEDS)
    def check(problem: Problem, seed: int) -> None:
        inside.append(assert_none_is_faster(problem, seed))

    check()
    return sum(inside)


@pytest.mark.few(1)
@runtimes
def test_no_plan_is_faster_than_the_bound(space: str) -> None:
    assert checked(small_problems(space), PROBLEMS[space] // LESS) >= TOGETHER // LESS


@pytest.mark.few(1)
@pytest.mark.parametrize("schedule", DIVIDED)
@pytest.mark.parametrize(("pp", "layers"), often([(2, 9), (4, 14)], (2, 9), several=True))
def test_no_divided_plan_is_faster_than_the_bound(schedule: str, pp: int, layers: int) -> None:
    """Of the schedules that divide backward passes, plans of more ranks than there are above."""
    problem = runtime_problem(
        "torchtitan",
        cluster=small_cluster(2, 2, between=2e9),
        global_batch=16,
        constraints=constraints_of({"schedule": schedule, "pp": pp}),
        changes={"layers": layers, "vocab": 16000},
    )
    assert assert_none_is_faster(problem, pp, MOST) >= 25


@pytest.mark.parametrize("space", often(RUNTIMES, "megatron"))
def test_no_plan_is_faster_on_any_machine(space: str) -> None:
    count = PROBLEMS[space] // LESS
    assert checked(small_problems(space, any_machine=True), count) >= TOGETHER // LESS


@pytest.mark.parametrize("space", often(["megatron", "torchtitan"], "megatron"))
def test_no_plan_is_faster_where_scatters_grow_with_the_nodes(space: str) -> None:
    cluster = small_cluster(4, 1, between=2e9)
    machine = Machine(ring_growth=0.8, stepping=0.3)
    types = {name: replace(kind, machine=machine) for name, kind in cluster.device_types.items()}
    problem = runtime_problem(space, cluster=replace(cluster, device_types=types), global_batch=8)
    assert assert_none_is_faster(problem, 1, MOST) >= 25


@pytest.mark.slow
@runtimes
def test_no_plan_of_a_larger_problem_is_faster(space: str) -> None:
    assert checked(large_problems(space), 2 * PROBLEMS[space]) >= 2 * TOGETHER


@examples(1, more=16)
@given(space=st.sampled_from(sorted(RUNTIMES)), data=st.data(), seed=SEEDS)
def test_what_is_known_of_other_plans_changes_nothing(
    space: str, data: st.DataObject, seed: int
) -> None:
    """Plans are judged with the figures of those before that have the same ones."""
    problem = data.draw(small_problems(space))
    best = solve(problem).plan
    for plan in islice(Drawer(problem, seed).plans(best), 60):
        assert evaluate(problem, plan) == evaluate(alone(problem), plan), plan


@examples(6)
@given(problem=small_problems("megatron"), seed=SEEDS)
def test_megatron_accepts_what_is_inside(problem: Problem, seed: int) -> None:
    """By the checks of its launch lines, which are other code than the judge's rules."""
    for plan in islice(Drawer(problem, seed).plans(None), 40):
        if evaluate(problem, plan).legal and problem.space.outside(problem, plan) is None:
            words = arguments_of_job(problem.costs.job(plan, problem.cluster))
            assert not [str(found) for found in check_arguments(words) if found.rejected]


@runtimes
@pytest.mark.parametrize("model", ["dense", "latent"])
def test_plans_of_every_part_are_drawn(space: str, model: str) -> None:
    """So that the tests above leave no degrees, order or settings out."""
    problem = runtime_problem(space, model, cluster=small_cluster(1, 1, slow=1))
    drawn = list(islice(Drawer(problem, seed=0).plans(None), 1200))
    virtual = {plan.virtual for plan in drawn}
    for part in problem.space.parts(problem):  # type: ignore[attr-defined]
        assert any(part.holds(plan) for plan in drawn), part.name
        assert virtual >= {variant.virtual for variant in part.variants()}


# ---- what is not tried --------------------------------------------------------------------------

# Other values of settings that are texts or lists; numbers and switches have some of themselves.
OTHERS: dict[str, tuple[object, ...]] = {
    "attention": ("unfused",),
    "carried": (),  # decides nothing
    "cp_comm": ("p2p",),
    "dispatcher": ("allgather", "flex"),
    "encoder_recompute": ("core", "full"),
    "graphed": (("attn",),),
    "graphs": ("local", "full_iteration"),
    "implementation": ("local",),
    "loss_kernel": ("te", "native", "liger"),
    "moment_format": ("8bit", "paged"),
    "muon_tp_mode": ("duplicated",),
    "modules": (("core_attn",), ("qkv_linear", "mlp_norm")),
    "name": ("sgd",),
    "number_format": ("e4m3",),
    "order": ("tp-cp-ep-pp-dp",),
    "precision": ("fp16",),
    "quantised": ("fp8-current",),
    "targets": (("linear_qkv",),),
    "adapters": ("fp32",),
    "base": ("nf4",),
    "frozen": (("embedding",),),
}


def others(name: str, value: object) -> Iterator[object]:
    """Yield other values of a setting."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        yield value / 2 if isinstance(value, float) else max(1, 2 * value)
    else:
        yield from (other for other in OTHERS[name] if other != value)


def with_other(settings: Any, path: str) -> Iterator[Any]:
    """Yield settings that differ in a field alone, as in `kernels.graphs`, where that can be."""
    name, _, rest = path.partition(".")
    own = getattr(settings, name)
    for other in with_other(own, rest) if rest else others(name, own):
        try:
            yield replace(settings, **{name: other})
        except ValueError:  # it does not go with another setting
            continue


@pytest.mark.few(1)
@runtimes
@pytest.mark.parametrize("model", often(["dense", "latent"], "dense"))
def test_what_is_said_not_to_be_tried_is_outside(space: str, model: str) -> None:
    """Every setting that `ilp-plan runtimes` leaves out, fixes, or has follow from others."""
    problem = runtime_problem(space, model)
    best = solve(problem).plan
    assert best is not None
    assert best.settings is not None
    said = [row for row in runtime_named(space).treatments() if row.how not in (SEARCHED, AS_ASKED)]
    paths = [path for row in said for path in row.fields if path.startswith("settings.")]
    legal = set()
    for path in paths:
        for settings in with_other(best.settings, path.removeprefix("settings.")):
            plan = replace(best, settings=settings)
            assert evaluate(problem, plan) == evaluate(alone(problem), plan), path
            if plan.settings != best.settings and evaluate(problem, plan).legal:
                legal.add(path)
                assert problem.space.outside(problem, plan), path
    assert legal
    if space == "megatron":  # which can be told of most of them
        assert len(legal) > len(paths) / 3
