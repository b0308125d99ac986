"""The judge names every rule that a plan breaks, prices what can be priced, and never crashes."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.evaluate import (
    Evaluation,
    Violation,
    check_model,
    check_profiled,
    evaluate,
    time_shares,
)
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.specs.training import Recompute, Settings
from tests.every_space import METIS, every_space, problem_in, result_in
from tests.examples import examples
from tests.megatron_cases import small_cluster, small_problem
from tests.mixed_cases import room_plan, room_problem

GIB = 2**30


def rules(problem: Problem, plan: Plan[Any]) -> list[str]:
    return [violation.rule for violation in evaluate(problem, plan).violations]


@every_space
def test_the_search_agrees_with_the_judge(space: str) -> None:
    problem = problem_in(space)
    result = result_in(space)
    assert result.plan is not None
    judged = evaluate(problem, result.plan)
    assert judged == result.evaluation
    assert judged.legal
    assert judged.iteration_time == result.objective
    assert judged.cost is not None
    assert judged.stages == judged.cost.stages
    assert judged.iteration_time == pytest.approx(sum(judged.cost.terms.values()))
    assert judged.memory == max(max(cost.memory) for cost in judged.stages)
    assert len(judged.stages) == len(result.plan.stages)


@every_space
def test_another_model_or_batch(space: str) -> None:
    problem = problem_in(space)
    plan = result_in(space).plan
    assert plan is not None
    assert rules(problem, replace(plan, model="other")) == ["model"]
    batch = 2 * problem.global_batch
    assert rules(problem, replace(plan, global_batch=batch)) == ["global batch"]
    for count in (0, -1, 5, batch):
        assert rules(problem, replace(plan, micro_batches=count)) == ["micro-batches"]


@every_space
def test_a_chain_that_is_not_covered_once(space: str) -> None:
    problem = problem_in(space)
    unit = problem.space.unit
    plan = result_in(space).plan
    assert plan is not None
    count = len(problem.costs.chain)
    last = replace_units(plan.stages[-1], plan.stages[-1].start, count + 1)
    longer = replace(plan, stages=(*plan.stages[:-1], last))
    assert evaluate(problem, longer).violations == (
        Violation(f"{unit}s covered once", "plan", f"{count + 1} {unit}s", f"{count} {unit}s"),
    )
    first = replace_units(plan.stages[0], 1, plan.stages[0].stop + 1)
    later = replace(plan, stages=(first, *plan.stages[1:]))
    have = f"{unit}s 1 to {first.stop - 1}"
    assert evaluate(problem, later).violations == (
        Violation(f"{unit}s covered once", "stage 0", have, f"from {unit} 0 on"),
    )


def replace_units(stage: Any, start: int, stop: int) -> Any:
    """Return the stage with other units; one of operators runs them all as its first one."""
    if isinstance(stage, OperatorStage):
        ways = stage.strategies[:1] * (stop - start)
        return replace(stage, start=start, stop=stop, strategies=ways)
    return replace(stage, start=start, stop=stop)


@every_space
def test_stages_of_another_kind(space: str) -> None:
    problem = problem_in(space)
    count, batch = len(problem.costs.chain), problem.global_batch
    of_group: Any = GroupStage(
        start=0, stop=count, replicas=(Replica(devices=(0,), samples=batch),)
    )
    of_operators: Any = OperatorStage(
        start=0, stop=count, first_device=0, device_count=1, strategies=(Strategy(),) * count
    )
    other = of_group if space == "operators" else of_operators
    plan: Plan[Any] = Plan(
        model=problem.model, global_batch=batch, micro_batches=1, stages=(other,)
    )
    found = evaluate(problem, plan)
    assert [violation.rule for violation in found.violations] == ["stages"]
    assert math.isnan(found.iteration_time)


REPLICAS = st.integers(1, 3).flatmap(
    lambda tp: st.lists(
        st.builds(
            Replica,
            devices=st.lists(st.integers(-1, 6), min_size=tp, max_size=tp, unique=True).map(tuple),
            samples=st.integers(0, 5),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple)
)
STRATEGIES = st.builds(
    Strategy,
    tp=st.sampled_from([1, 2, 3]),
    dp=st.sampled_from([1, 2, 3]),
    split=st.integers(0, 1),
    recompute=st.booleans(),
)


@st.composite
def stages(draw: st.DrawFn, start: int, stop: int, *, grouped: bool) -> Any:
    """Draw a stage of any devices, or one of operators on a few in a row."""
    if grouped:
        return GroupStage(start=start, stop=stop, replicas=draw(REPLICAS))
    way = draw(STRATEGIES)
    ways = [draw(STRATEGIES) if draw(st.integers(0, 3)) == 0 else way for _ in range(start, stop)]
    return OperatorStage(
        start=start,
        stop=stop,
        first_device=draw(st.integers(-1, 4)),
        device_count=draw(st.integers(1, 4)),
        strategies=tuple(ways),
    )


@st.composite
def any_plans(draw: st.DrawFn, problem: Problem) -> Plan[Any]:
    """Draw a plan that may break any rule; half of the time its stages cover the chain."""
    count = len(problem.costs.chain)
    number = draw(st.integers(0, 4))
    if draw(st.booleans()):
        cuts = draw(st.lists(st.integers(1, count - 1), max_size=3, unique=True).map(sorted))
        ranges = list(itertools.pairwise([0, *cuts, count]))
    else:
        few = st.integers(-1, count + 2)
        ranges = [tuple(sorted(draw(st.tuples(few, few)))) for _ in range(number)]
    kind = draw(st.sampled_from([[False], [True], [False, True]]))
    found = [draw(stages(*of, grouped=draw(st.sampled_from(kind)))) for of in ranges]
    virtual = draw(st.sampled_from([1, 1, 1, 2]))
    return Plan(
        model=draw(st.sampled_from([problem.model] * 9 + ["other"])),
        global_batch=draw(st.sampled_from([problem.global_batch] * 9 + [1, 24])),
        micro_batches=draw(st.sampled_from([*problem.micro_batches] * 3 + [0, 3, 17])),
        stages=tuple(found[: len(found) // virtual * virtual]),
        settings=draw(st.sampled_from([None, None, Settings(), Settings(cp=2)])),
        virtual=virtual,
    )


@st.composite
def changed_plans(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    """Draw a plan that differs from a legal one in a few things."""
    for _ in range(draw(st.integers(1, 3))):
        change = draw(st.sampled_from(CHANGES))
        plan = change(draw, plan)
    return plan


def other_cuts(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    count, number = plan.stages[-1].stop, len(plan.stages)
    cuts = st.lists(st.integers(0, count), min_size=number - 1, max_size=number - 1)
    ends = itertools.pairwise([0, *sorted(draw(cuts)), count])
    stages = (replace_units(s, *of) for s, of in zip(plan.stages, ends, strict=True))
    return replace(plan, stages=tuple(stages))


def other_devices(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    """Permute the devices of groups; move and resize rows of devices."""
    if isinstance(plan.stages[0], OperatorStage):
        number = draw(st.integers(0, len(plan.stages) - 1))
        moved = replace(
            plan.stages[number],
            first_device=draw(st.integers(0, 2)),
            device_count=draw(st.integers(1, 3)),
        )
        return replace_stage(plan, number, moved)
    order = draw(st.permutations(range(8)))
    stages = (
        replace(
            stage,
            replicas=tuple(
                replace(replica, devices=tuple(order[d % 8] for d in replica.devices))
                for replica in stage.replicas
            ),
        )
        for stage in plan.stages
    )
    return replace(plan, stages=tuple(stages))


def other_ways(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    """Change how one operator runs, or the samples of one replica."""
    number = draw(st.integers(0, len(plan.stages) - 1))
    stage = plan.stages[number]
    if isinstance(stage, OperatorStage):
        ways = [*stage.strategies]
        if ways:
            ways[draw(st.integers(0, len(ways) - 1))] = draw(STRATEGIES)
        return replace_stage(plan, number, replace(stage, strategies=tuple(ways)))
    replicas = [*stage.replicas]
    which = draw(st.integers(0, len(replicas) - 1))
    replicas[which] = replace(replicas[which], samples=draw(st.integers(0, 5)))
    return replace_stage(plan, number, replace(stage, replicas=tuple(replicas)))


def replace_stage(plan: Plan[Any], number: int, stage: Any) -> Plan[Any]:
    return replace(plan, stages=(*plan.stages[:number], stage, *plan.stages[number + 1 :]))


def other_batches(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    return replace(plan, micro_batches=draw(st.sampled_from([1, 2, 4, 8, 16])))


def other_settings(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    again = st.sampled_from(
        [
            Recompute(),
            Recompute(granularity="selective", modules=("core_attn",)),
            *(
                Recompute(granularity="full", method=method, layers=layers)
                for method in ("uniform", "block")
                for layers in (1, 2, 9)
            ),
        ]
    )
    changed = replace(
        plan.settings or Settings(), recompute=draw(again), cp=draw(st.sampled_from([1, 1, 2]))
    )
    return replace(plan, settings=changed)


def fewer_stages(draw: st.DrawFn, plan: Plan[Any]) -> Plan[Any]:
    return replace(plan, stages=plan.stages[: draw(st.integers(0, 1))] or plan.stages, virtual=1)


CHANGES = (other_cuts, other_devices, other_ways, other_batches, other_settings, fewer_stages)


@every_space
@examples(25, more=16)
@given(data=st.data())
def test_no_plan_makes_it_crash(space: str, data: st.DataObject) -> None:
    problem, known = problem_in(space), result_in(space).plan
    assert known is not None
    plan = data.draw(st.one_of(any_plans(problem), changed_plans(known), changed_plans(known)))
    try:
        found = evaluate(problem, plan)
    except PlanError:  # of unequal stages, which AMP has no costs for
        assert space.startswith("amp")
        return
    if found.legal:
        assert found.iteration_time > 0
    for violation in found.violations:
        assert "\n" not in str(violation)


def test_the_devices_of_a_stage_are_listed_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many replicas it has: with hundreds, listing them for each takes most of a search."""
    problem = small_problem(small_cluster(8, 8), batch=64)
    replicas = tuple(Replica(devices=(device,), samples=1) for device in range(64))
    stage = GroupStage(start=0, stop=len(problem.costs.chain), replicas=replicas)
    settings = problem.costs.settings
    plan = Plan(
        model=problem.model, global_batch=64, micro_batches=1, stages=(stage,), settings=settings
    )
    listed = []
    devices = GroupStage.devices.fget
    monkeypatch.setattr(GroupStage, "devices", property(lambda s: listed.append(s) or devices(s)))
    assert evaluate(problem, plan).cost is not None
    assert len(listed) < 20


def test_a_violation_is_one_line() -> None:
    violation = Violation("micro-batches", "plan", "3 micro-batches", "a divisor of 8")
    assert str(violation) == "plan: micro-batches: found 3 micro-batches, expected a divisor of 8"


# ---- each rule, to the word ---------------------------------------------------------------------


def chunks_on(*devices: int) -> tuple[Problem, Plan[Any]]:
    """Return a problem of two devices, and a plan of two virtual stages on each of them, the chunks
    being on these devices in turn."""
    problem = small_problem(small_cluster(1, 2), batch=4)
    cuts = (0, 2, 3, 4, len(problem.costs.chain))
    stages = tuple(
        GroupStage(start=a, stop=b, replicas=(Replica(devices=(device,), samples=1),))
        for (a, b), device in zip(itertools.pairwise(cuts), devices, strict=True)
    )
    settings = problem.costs.settings
    return problem, Plan(
        model=problem.model,
        global_batch=4,
        micro_batches=4,
        stages=stages,
        settings=settings,
        virtual=2,
    )


def test_virtual_stages_share_the_devices_of_their_rank() -> None:
    def found(*devices: int) -> list[str]:
        return [str(violation) for violation in evaluate(*chunks_on(*devices)).violations]

    third = "stage 2: devices used once: found other devices, expected those of stage 0"
    fourth = "stage 3: devices used once: found other devices, expected those of stage 1"
    assert found(0, 1, 0, 1) == []
    assert found(0, 1, 1, 1) == [third]
    assert found(0, 1, 0, 0) == [fourth]
    assert found(0, 1, 1, 0) == [third, fourth]


def test_a_device_exists_and_is_in_one_place() -> None:
    problem = room_problem()  # devices 0 to 5

    def found(*devices: int) -> list[str]:
        first, *others = devices
        plan = room_plan(problem, ((0, 1, 1, (first,)), (1, 6, 1, others)))
        return [str(violation) for violation in evaluate(problem, plan).violations]

    assert found(0, 5) == []
    assert found(6, 1) == ["stage 0: devices used once: found device 6, expected 0 to 5"]
    assert found(1, -1) == ["stage 1: devices used once: found device -1, expected 0 to 5"]
    assert found(2, 3, 2) == [
        "stage 1: devices used once: found device 2 again, expected every device once"
    ]


def test_stages_follow_one_another_and_none_is_empty() -> None:
    problem = room_problem()

    def found(*ranges: tuple[int, int]) -> list[str]:
        stages = [(*of, 1, (s,)) for s, of in enumerate(ranges)]
        return [str(v) for v in evaluate(problem, room_plan(problem, stages)).violations]

    assert found((0, 2), (2, 6)) == []
    assert found((0, 2), (3, 6)) == [
        "stage 1: layers covered once: found layers 3 to 5, expected from layer 2 on"
    ]
    assert found((0, 2), (2, 2), (2, 6)) == [
        "stage 1: layers covered once: found layers 2 to 1, expected from layer 2 on"
    ]
    assert found((0, 2), (2, 5)) == ["plan: layers covered once: found 5 layers, expected 6 layers"]


def test_as_many_ranks_as_allowed_and_no_more() -> None:
    """Virtual stages are no ranks."""
    problem = room_problem()
    stages = [(0, 2, 1, (0,)), (2, 4, 1, (1,)), (4, 6, 1, (2,))]
    plan = room_plan(problem, stages)
    assert rules(replace(problem, max_stages=3), plan) == []
    (violation,) = evaluate(replace(problem, max_stages=2), plan).violations
    assert str(violation) == "plan: stages: found 3, expected at most 2"
    problem, plan = chunks_on(0, 1, 0, 1)
    assert evaluate(replace(problem, max_stages=2), plan).legal


def test_micro_batches_divide_the_batch_or_each_has_samples() -> None:
    """Of 16 samples, 6 micro-batches are five of 3 and one of 1; 7 cannot all have some."""
    short, equal = room_problem(), room_problem(**METIS)
    assert short.space.short_batches(short)
    assert not equal.space.short_batches(equal)
    plan = room_plan(short)

    def found(problem: Problem, count: int) -> list[str]:
        return [str(v) for v in check_model(problem, replace(plan, micro_batches=count))]

    where = "plan: micro-batches: found"
    assert found(short, 8) == found(equal, 8) == []
    assert found(short, 6) == []
    assert found(short, 7) == [f"{where} 7 micro-batches, expected samples in each"]
    assert found(equal, 6) == [f"{where} 6 micro-batches, expected a divisor of 16"]
    assert found(equal, 7) == [f"{where} 7 micro-batches, expected a divisor of 16"]


def test_idle_devices_are_named_and_counted_only_where_none_may_be_idle() -> None:
    problem = room_problem()
    plan = room_plan(problem, ((0, 6, 1, (1, 4)),))
    found = evaluate(problem, plan)
    assert found.idle == (0, 2, 3, 5)
    assert found.legal
    none = room_problem(**METIS)
    judged = evaluate(none, plan)
    assert judged.idle == (0, 2, 3, 5)
    assert "plan: devices used once: found 4 idle devices, expected none idle" in map(
        str, judged.violations
    )


# ---- what is judged, as it is read --------------------------------------------------------------


def judged_by_hand() -> Evaluation:
    """Return an evaluation of two stages, the second on two replicas."""
    first = StageCost(time=0.25, memory=(3.0,), time_terms={"a": 0.25}, memory_terms={"b": 3.0})
    second = StageCost(
        time=0.5, memory=(1.0, 5.0), time_terms={"a": 0.1, "c": 0.4}, memory_terms={"b": 2.0}
    )
    return Evaluation(
        cost=PlanCost(iteration_time=1.25, stages=(first, second), terms={"all": 1.25}),
        violations=(),
        idle=(7,),
    )


def test_an_evaluation_has_the_time_and_the_fullest_device_of_its_cost() -> None:
    judged = judged_by_hand()
    assert judged.iteration_time == 1.25
    assert judged.memory == 5.0
    assert judged.legal
    assert repr(judged) == "<Evaluation legal, 1.25 s>"
    broken = replace(judged, violations=(Violation("a rule", "plan", "this", "that"),) * 2)
    assert not broken.legal
    assert repr(broken) == "<Evaluation breaks 2 rules, 1.25 s>"


def test_a_plan_without_a_price_has_neither_time_nor_memory_nor_stages() -> None:
    broken = Evaluation(cost=None, violations=(Violation("a rule", "plan", "this", "that"),))
    assert math.isnan(broken.iteration_time)
    assert math.isnan(broken.memory)
    assert broken.stages == ()
    assert repr(broken) == "<Evaluation breaks 1 rules>"
    assert broken.frame("stages").empty
    stage = StageCost(time=1.0, memory=(), time_terms={}, memory_terms={})
    of_time = Evaluation(
        cost=PlanCost(iteration_time=1.0, stages=(stage,), terms={}), violations=()
    )
    assert of_time.memory == 0.0  # of a cost model that tells none


def test_tables_have_a_row_per_stage_or_broken_rule() -> None:
    judged = judged_by_hand()
    assert judged.frame().to_dict("records") == [
        {"stage": 0, "seconds": 0.25, "bytes": 3.0},
        {"stage": 1, "seconds": 0.5, "bytes": 5.0},
    ]
    assert judged.frame("time")["a"].tolist() == [0.25, 0.1]
    assert judged.frame("memory").to_dict("records") == [
        {"stage": 0, "b": 3.0},
        {"stage": 1, "b": 2.0},
    ]
    rule = {"rule": "a rule", "where": "plan", "have": "this", "limit": "that"}
    broken = replace(judged, violations=(Violation(**rule),))
    assert broken.frame("violations").to_dict("records") == [rule]
    with pytest.raises(UsageError, match="found 'stage', expected one of stages, time, memory"):
        judged.frame("stage")


def test_only_a_plan_that_is_profiled_has_shares_of_its_time() -> None:
    problem, plan = problem_in("operators"), result_in("operators").plan
    assert plan is not None
    evaluation = evaluate(problem, plan)
    assert sum(share.share for share in time_shares(problem, plan, evaluation).values()) == (
        pytest.approx(1)
    )
    assert time_shares(problem, plan, None) == {}
    assert time_shares(problem, plan, replace(evaluation, cost=None)) == {}
    assert evaluation.cost is not None
    known, *others = evaluation.stages
    stages = (known, *others, replace(known, unprofiled=("an operator",)))
    unprofiled = replace(evaluation, cost=replace(evaluation.cost, stages=stages))
    assert time_shares(problem, plan, unprofiled) == {}
    violations = list(check_profiled(replace(evaluation.cost, stages=stages)))
    assert [str(violation) for violation in violations] == [
        f"stage {len(stages) - 1}: profiled: found an operator, expected a row of the profile"
    ]
