"""Plans that keep a stage of another plan: the best of all that have it, tried one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.settings.kept import KeptStage, shape_of
from ilp_planner.specs.training import ORDERS
from tests.examples import examples, for_each
from tests.megatron_cases import FEW, GIB, MIXTURE, every_plan, small_cluster, small_problem

SHORT = {"layers": 3, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


def stage_of(problem: Problem, plan: GroupPlan, rank: int) -> KeptStage:
    """Return a stage of a plan on the whole cluster, as it is read of its file."""
    assert plan.settings is not None
    cp, model = plan.settings.cp, problem.costs.model
    return KeptStage(
        said=f"plan.json:stage{rank}",
        ranges=tuple((s.start, s.stop) for s in plan.stages[rank :: plan.ranks]),
        devices=tuple(replica.devices for replica in plan.stages[rank].replicas),
        tp=plan.stages[0].tp // cp,
        cp=cp,
        ep=plan.settings.ep,
        etp=plan.settings.etp,
        model=problem.model,
        layers=model.layers,
        cluster=shape_of(problem.cluster),
    )


def has(problem: Problem, plan: GroupPlan, stages: list[KeptStage]) -> bool:
    """Tell whether a plan has all of some stages."""
    own = [stage_of(problem, plan, rank) for rank in range(plan.ranks)]
    parts = [(s.ranges, s.devices, s.tp, s.cp, s.ep, s.etp) for s in own]
    return all((s.ranges, s.devices, s.tp, s.cp, s.ep, s.etp) in parts for s in stages)


@examples(3, more=11)
@given(
    cluster=st.sampled_from((small_cluster(), small_cluster(1, 4), small_cluster(1, 2, slow=1))),
    limit=st.sampled_from((None, 1.6 * GIB, 2.2 * GIB)),
    experts=st.sampled_from((None, MIXTURE)),
    data=st.data(),
)
def test_the_optimum_is_that_of_all_plans_with_the_stages(cluster, limit, experts, data):
    options = {"batch": 4, "memory_limit": limit, **SHORT, "experts": experts}
    free = small_problem(cluster, **options)
    plans = [plan for plan in every_plan(free) if plan.ranks > 1]

    def any_legal() -> GroupPlan | None:
        begin = data.draw(st.integers(0, len(plans) - 1))
        every = (*plans[begin:], *plans[:begin])
        return next((plan for plan in every if evaluate(free, plan).legal), None)

    first = any_legal()
    if first is None:
        return
    stages = [stage_of(free, first, data.draw(st.integers(0, first.ranks - 1)))]
    if data.draw(st.booleans()):  # a stage of the same plan, or of one that may contradict it
        other = first if data.draw(st.booleans()) else any_legal()
        stages.append(stage_of(free, other, data.draw(st.integers(0, other.ranks - 1))))
    judged = [evaluate(free, plan) for plan in plans if has(free, plan, stages)]
    times = [evaluation.iteration_time for evaluation in judged if evaluation.legal]
    try:
        problem = small_problem(
            cluster, **options, constraints=constraints_of({**FEW, "keep": stages})
        )
    except InfeasibleError:
        assert times == []
        return
    found = solve(problem)
    if not times:
        assert found.plan is None
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(min(times), rel=1e-9)
    assert has(free, found.plan, stages)
    assert problem.space.outside(problem, found.plan) is None
    assert check_certificate(problem, found.certificate).holds
    assert min(times) >= solve(free).bound * (1 - 1e-9)


@pytest.mark.slow
@for_each(("virtual", "solver"), [(1, "auto"), (2, "auto"), (1, "gradient"), (2, "anneal")])
def test_a_stage_of_the_free_optimum_costs_nothing(virtual, solver):
    said = {**FEW, "pp": 2, "virtual_stages": virtual}
    problem = small_problem(constraints=constraints_of(said), **SHORT)
    free = solve(problem)
    for rank in range(2):
        kept = stage_of(problem, free.plan, rank)
        asked = small_problem(constraints=constraints_of({**FEW, "keep": kept}), **SHORT)
        found = solve(asked, solver=solver)
        assert found.objective == pytest.approx(free.objective, rel=1e-9)
        assert has(problem, found.plan, [kept])


@pytest.mark.slow
def test_plans_without_the_stage_are_outside_and_the_line_says_so():
    free = small_problem(batch=4, **SHORT)
    plans = [p for p in every_plan(free) if evaluate(free, p).legal]
    kept = stage_of(free, next(p for p in plans if p.ranks == 2), 0)
    problem = small_problem(batch=4, constraints=constraints_of({**FEW, "keep": [kept]}), **SHORT)
    for plan in plans:
        outside = coverage_of(problem, plan, legal=True).outside
        assert (outside == "keep: plan.json:stage0 is no stage of it") != has(problem, plan, [kept])
    among = coverage_of(problem, plans[0], legal=True).among
    assert ", keep plan.json:stage0," in among


def test_devices_are_those_of_the_whole_cluster():
    """On what is left of a cluster the stage is on the same devices, under other numbers."""
    free = small_problem(small_cluster(3), **SHORT)
    said = constraints_of({**FEW, "pp": 3, "virtual_stages": 1, "rank_order": ORDERS[0]})
    plan = solve(small_problem(small_cluster(3), constraints=said, **SHORT)).plan
    kept = stage_of(free, plan, 2)
    assert {device for replica in kept.devices for device in replica} == {4, 5}
    asked = constraints_of({**FEW, "keep": kept, "without": "node0"})
    found = solve(small_problem(small_cluster(3), constraints=asked, **SHORT))
    assert math.isfinite(found.objective)
    assert [s.stop for s in found.plan.stages][-1] == kept.ranges[0][1]
    assert found.plan.stages[-1].start == kept.ranges[0][0]
    assert set(found.plan.stages[-1].devices) == {2, 3}
    with pytest.raises(
        InfeasibleError, match=r"^`keep=plan.json:stage2`, `without=node2`: no plan"
    ):
        small_problem(
            small_cluster(3),
            constraints=constraints_of({"keep": kept, "without": "node2"}),
            **SHORT,
        )


@for_each(
    ("changes", "said", "names"),
    [
        ({}, {"pp": 1}, "`pp=1`, `keep=plan.json:stage0`"),
        ({"tp": 4}, {}, "`keep=plan.json:stage0`"),
        ({"ranges": ((0, 5),)}, {}, "`keep=plan.json:stage0`"),
    ],
)
def test_a_stage_that_no_plan_has_is_named(changes, said, names):
    free = small_problem(batch=4, **SHORT)
    two = (plan for plan in every_plan(free) if plan.ranks == 2)
    kept = stage_of(free, next(plan for plan in two if evaluate(free, plan).legal), 0)
    other = KeptStage(**{**{f: getattr(kept, f) for f in kept.__dataclass_fields__}, **changes})
    with pytest.raises(InfeasibleError) as refused:
        small_problem(batch=4, constraints=constraints_of({**said, "keep": other}), **SHORT)
    assert str(refused.value).startswith(f"{names}: no plan of small on 4 devices has")


def test_stages_of_a_layout_that_is_not_tried_need_it_beside_them():
    said = {**FEW, "layout": "0,1,2,2"}
    options = {"batch": 4, **SHORT, "layers": 5}
    asked = small_problem(constraints=constraints_of({**said, "pp": 2}), **options)
    plan = solve(asked).plan
    kept = stage_of(asked, plan, 1)
    with pytest.raises(InfeasibleError, match=r"^`keep=plan.json:stage1`: no plan of small on"):
        small_problem(constraints=constraints_of({**FEW, "keep": kept}), **options)
    both = small_problem(constraints=constraints_of({**said, "keep": kept}), **options)
    assert has(both, solve(both).plan, [kept])
