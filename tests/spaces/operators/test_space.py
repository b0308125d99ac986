"""The rules and the price of a plan of operators."""

import itertools
import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.operators import Option
from ilp_planner.costs.profiles.table import MIB, RowKey
from ilp_planner.evaluate import Violation, evaluate
from ilp_planner.faces.cli.values import idle_workers
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Request
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.search.confirm import LastGraph
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan, Strategy
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.operators.build import stage_devices
from ilp_planner.spaces.operators.search import OperatorHunt, OperatorSearch
from ilp_planner.specs.model import ModelSpec
from tests.examples import examples, for_each
from tests.mixed_cases import room_plan, room_problem
from tests.spaces.objectives.cases import every_point, operator_problem
from tests.tiny import (
    TinyArchitecture,
    every_plan,
    make_cluster,
    make_problem,
    make_profile,
    make_row,
    price_stages,
    problems,
)

NAMES = ("a", "b", "c", "d")
LIMIT = 7 * MIB


def problem_of(
    limit: float = LIMIT, max_stages: int | None = None, samples: tuple[int, ...] = (1, 2)
) -> Problem:
    """Return four equal operators on two nodes of two devices, 4 micro-batches of 2 samples."""
    rows = {
        RowKey(operator=name, micro_batch=m, tp=tp, split=0): make_row(weights=0)
        for name in NAMES
        for m in samples
        for tp in (1, 2)
    }
    return make_problem(
        NAMES,
        "resnet",
        make_profile(rows),
        cost_model="native",
        limit=limit,
        micro_batches=samples,
        global_batch=8,
        nodes=2,
        devices=2,
        max_stages=max_stages,
    )


def stage(
    start: int, stop: int, first: int, tp: int = 1, dp: int = 1, *, recompute: bool = False
) -> OperatorStage:
    """Return a stage of equal strategies on tp x dp devices."""
    way = Strategy(tp=tp, dp=dp, recompute=recompute)
    return OperatorStage(
        start=start,
        stop=stop,
        first_device=first,
        device_count=tp * dp,
        strategies=(way,) * (stop - start),
    )


def plan_of(*stages: OperatorStage, micro_batches: int = 4) -> OperatorPlan:
    return Plan(model="tiny", global_batch=8, micro_batches=micro_batches, stages=stages)


LEGAL = plan_of(stage(0, 2, 0, tp=2, recompute=True), stage(2, 3, 2), stage(3, 4, 3))


def broken(rule: str, where: str, have: str, limit: str) -> Violation:
    return Violation(rule=rule, where=where, have=have, limit=limit)


def test_time_and_memory_are_those_worked_out_by_hand() -> None:
    """3 ms an operator; a message of 1 MiB takes 0.1 ms inside a node and 0.5 ms between nodes."""
    verdict = evaluate(problem_of(), LEGAL)
    times = [8.6e-3, 3.6e-3, 3.6e-3]  # the first recomputes both operators: 2 ms more
    assert [s.time for s in verdict.stages] == pytest.approx(times)
    # in flight 3, 2, 1; the first keeps its input and an output, and recomputes a run of 1 MiB
    assert [s.memory for s in verdict.stages] == [pytest.approx((n * MIB,)) for n in (7, 4, 2)]
    assert verdict.legal
    assert verdict.iteration_time == pytest.approx(3 * 8.6e-3 + sum(times))
    assert OneForwardOneBackward(5).iteration_time([1.0, 3.0, 2.0]) == 4 * 3.0 + 6.0


def test_the_terms_add_up() -> None:
    for cost in evaluate(problem_of(), LEGAL).stages:
        assert sum(cost.time_terms.values()) == pytest.approx(cost.time)
        assert cost.memory == pytest.approx((sum(cost.memory_terms.values()),))


def test_every_replica_may_have_as_many_samples_as_are_profiled() -> None:
    """Of 2 samples on a device at most: 4 on two of them, and never on one."""
    spread = plan_of(stage(0, 2, 0, dp=2), stage(2, 4, 2, dp=2), micro_batches=2)
    assert evaluate(problem_of(limit=math.inf), spread).legal
    alone = evaluate(problem_of(limit=math.inf), replace(LEGAL, micro_batches=2))
    assert {found.rule for found in alone.violations} == {"profiled"}


def test_a_micro_batch_that_no_replicas_of_profiled_samples_make_is_not_priced() -> None:
    verdict = evaluate(problem_of(samples=(1,)), replace(LEGAL, micro_batches=1))
    assert list(verdict.violations) == [broken("micro-batch", "plan", "8", "one of 1, 2, 4")]
    assert verdict.cost is None


def test_a_stage_may_have_whole_nodes_and_tensor_parallelism_inside_each() -> None:
    problem = problem_of(limit=math.inf)
    both = plan_of(stage(0, 4, 0, tp=2, dp=2))
    assert evaluate(problem, both).legal
    assert "1, 2 devices inside a node or 2 whole nodes" in problem.space.describe(problem)
    wide = plan_of(stage(0, 4, 0, tp=4))
    found = {(v.rule, v.have, v.limit) for v in evaluate(problem, wide).violations}
    assert ("degrees", "tp 4", "at most the 2 devices of a node") in found


UNPRICED = {
    "a gap between operators": (plan_of(stage(0, 2, 0, tp=2), stage(3, 4, 2, tp=2)),
     [broken("operators covered once", "stage 1", "operators 3 to 3", "from operator 2 on")]),
    "an overlap of operators": (plan_of(stage(0, 3, 0, tp=2), stage(2, 4, 2, tp=2)),
     [broken("operators covered once", "stage 1", "operators 2 to 3", "from operator 3 on")]),
    "operators missing at the end": (plan_of(stage(0, 1, 0, tp=2), stage(1, 3, 2, tp=2)),
     [broken("operators covered once", "plan", "3 operators", "4 operators")]),
    "operators before the first": (plan_of(stage(-1, 2, 0, tp=2), stage(2, 4, 2, tp=2)),
     [broken("operators covered once", "stage 0", "operators -1 to 1", "from operator 0 on")]),
    "a stage without operators": (plan_of(stage(0, 2, 0, tp=2), stage(2, 2, 2), stage(2, 4, 3)),
     [broken("operators covered once", "stage 1", "operators 2 to 1", "from operator 2 on")]),
    "no stages": (plan_of(),
     [broken("operators covered once", "plan", "0 operators", "4 operators")]),
    "a micro-batch that does not divide": (replace(LEGAL, micro_batches=3),
     [broken("micro-batches", "plan", "3 micro-batches", "a divisor of 8")]),
    "micro-batches of nothing": (replace(LEGAL, micro_batches=16),
     [broken("micro-batches", "plan", "16 micro-batches", "a divisor of 8")]),
    "a device left out": (plan_of(stage(0, 2, 0, tp=2), stage(2, 4, 3)),
     [broken("devices in order", "stage 1", "first device 3", "2")]),
    "devices in another order": (
        plan_of(stage(0, 2, 2, tp=2), stage(2, 4, 0, tp=2)),
        [
            broken("devices in order", "stage 0", "first device 2", "0"),
            broken("devices in order", "stage 1", "first device 0", "4"),
        ],
    ),
    "a device used twice": (plan_of(stage(0, 2, 0, tp=2), stage(2, 3, 1), stage(3, 4, 2, tp=2)),
     [broken("devices used once", "stage 1", "device 1 again", "every device once")]),
    "a device that is not there": (
        plan_of(stage(0, 2, 0, tp=2), stage(2, 3, 2, tp=2), stage(3, 4, 4)),
        [broken("devices used once", "stage 2", "device 4", "0 to 3")],
    ),
    "virtual stages": (replace(plan_of(stage(0, 2, 0, tp=2), stage(2, 4, 0, tp=2)), virtual=2),
     [broken("stages", "plan", "others", "stages of operators, without settings of a runtime")]),
}  # fmt: skip


@for_each("name", UNPRICED)
def test_a_plan_too_broken_to_be_priced_is_not_priced(name: str) -> None:
    plan, expected = UNPRICED[name]
    verdict = evaluate(problem_of(), plan)
    assert list(verdict.violations) == expected
    assert not verdict.legal
    assert math.isnan(verdict.iteration_time)
    assert math.isnan(verdict.memory)
    assert (verdict.cost, verdict.stages) == (None, ())


PRICED = {
    "devices left at the end": (plan_of(stage(0, 2, 0, tp=2), stage(2, 4, 2)),
     [broken("devices used once", "plan", "1 idle devices", "none idle")]),
    "a stage that straddles nodes": (plan_of(stage(0, 1, 0), stage(1, 3, 1, tp=2), stage(3, 4, 3)),
     [broken("node straddled", "stage 1", "devices 1 to 2", "nodes of 2")]),
    "a group larger than a node, and no whole number of them": (
        plan_of(stage(0, 3, 0, dp=3), stage(3, 4, 3), micro_batches=8),
        [
            broken(
                "profiled",
                "stage 0",
                "operator 0 with tp 1, 0 samples per replica, split 0 (3 such operators)",
                "a row of the profile",
            ),
            broken("devices of a stage", "stage 0", "3", "one of 1, 2, 4"),
            broken("node straddled", "stage 0", "devices 0 to 2", "nodes of 2"),
            broken("degrees", "stage 0", "dp 3", "a divisor of the micro-batch 1"),
        ],
    ),
    "degrees that leave a device idle": (
        plan_of(replace(stage(0, 2, 0), device_count=2), stage(2, 4, 2, tp=2)),
        [broken("degrees", "stage 0", "tp 1 x dp 1", "2 devices")],
    ),
    "one operator with other degrees": (
        plan_of(
            replace(stage(0, 2, 0, tp=2), strategies=(Strategy(tp=2), Strategy())),
            stage(2, 4, 2, tp=2),
        ),
        [broken("degrees", "stage 0", "tp 1 x dp 1", "2 devices")],
    ),
    "replicas that do not divide the micro-batch": (
        plan_of(stage(0, 2, 0, tp=2), stage(2, 4, 2, dp=2), micro_batches=8),
        [
            broken(
                "profiled",
                "stage 1",
                "operator 2 with tp 1, 0 samples per replica, split 0 (2 such operators)",
                "a row of the profile",
            ),
            broken("degrees", "stage 1", "dp 2", "a divisor of the micro-batch 1"),
        ],
    ),
    "an operator that is not profiled": (
        plan_of(
            replace(stage(0, 2, 0, tp=2), strategies=(Strategy(tp=2), Strategy(tp=2, split=1))),
            stage(2, 4, 2, tp=2),
        ),
        [
            broken(
                "profiled",
                "stage 0",
                "operator 1 with tp 2, 2 samples per replica, split 1 (1 such operators)",
                "a row of the profile",
            )
        ],
    ),
}  # fmt: skip


@for_each("name", PRICED)
def test_a_complete_plan_that_breaks_a_rule_is_priced_and_refused(name: str) -> None:
    plan, expected = PRICED[name]
    verdict = evaluate(problem_of(limit=math.inf), plan)
    assert list(verdict.violations) == expected
    assert not verdict.legal
    assert verdict.iteration_time > 0  # for ever, where a layout cannot become the next one
    assert len(verdict.stages) == len(plan.stages)


def test_too_many_stages() -> None:
    verdict = evaluate(problem_of(max_stages=2), LEGAL)
    assert list(verdict.violations) == [broken("stages", "plan", "3", "at most 2")]


def test_too_much_memory_names_the_stage_and_both_sizes() -> None:
    verdict = evaluate(problem_of(limit=3.5 * MIB), LEGAL)
    found = [(v.rule, v.where, v.have, v.limit) for v in verdict.violations]
    assert [x[:2] for x in found] == [
        ("memory", "stage 0, device 0"),
        ("memory", "stage 1, device 2"),
    ]
    assert found[0][2] != found[1][2]
    assert all(x[3].startswith("at most ") for x in found)


def test_memory_that_is_just_enough_is_enough() -> None:
    assert evaluate(problem_of(limit=LIMIT), LEGAL).legal
    assert evaluate(problem_of(limit=LIMIT * (1 - 1e-12)), LEGAL).legal  # rounding
    assert not evaluate(problem_of(limit=LIMIT * (1 - 1e-6)), LEGAL).legal


def test_every_rule_that_is_broken_is_named() -> None:
    plan = plan_of(stage(0, 3, 0, tp=2), stage(2, 4, 1, tp=2), stage(4, 5, 4), micro_batches=2)
    plan = replace(plan, model="huge", global_batch=9)
    assert [v.rule for v in evaluate(problem_of(), plan).violations] == [
        "model",
        "global batch",
        "micro-batches",
        "operators covered once",
        "devices used once",
        "devices used once",
    ]
    plan = plan_of(stage(0, 2, 1, tp=2), stage(2, 4, 0, dp=1), micro_batches=1)
    assert [v.rule for v in evaluate(problem_of(samples=(1,)), plan).violations] == [
        "micro-batch",
        "devices in order",
        "devices in order",
    ]


@for_each(
    ("nodes", "devices", "most", "sizes"),
    [
        (1, 1, 1, (1,)),
        (1, 3, 1, (1, 2)),
        (1, 16, 1, (1, 2, 4, 8)),
        (2, 4, 2, (1, 2, 4, 8)),
        (2, 8, 2, (1, 2, 4, 8, 16)),
        (5, 4, 5, (1, 2, 4, 8, 16)),
        (5, 4, 2, (1, 2, 4, 8)),
        (2, 3, 9, (1, 2, 6)),
    ],
)
def test_stages_have_a_power_of_two_of_a_nodes_devices_or_of_nodes(
    nodes: int, devices: int, most: int, sizes: tuple[int, ...]
) -> None:
    assert stage_devices(make_cluster(nodes, devices), most) == sizes


@dataclass(frozen=True)
class Counted(TinyArchitecture):
    """Operators with so many FLOPs forward, some of which a kernel leaves out."""

    flops: ClassVar[dict[str, int]] = {"a": 10, "b": 20, "d": 70}
    masked: ClassVar[dict[str, float]] = {"b": 5.0}


def test_flops_of_operators_that_are_computed_again_are_counted() -> None:
    """Those that are not masked, of what is known; stages of layers say nothing of operators."""
    spec = ModelSpec(name="tiny", precision="fp16", architecture=Counted(operators=NAMES))
    problem = replace(problem_of(), spec=spec)

    def again(*stages: OperatorStage) -> float | None:
        return problem.space.recomputed_flops(problem, plan_of(*stages))

    assert problem.space.recomputed_flops(problem, LEGAL) == 10 + 20 - 5
    assert again(stage(0, 1, 0), stage(1, 4, 1)) == 0
    assert again(stage(0, 1, 0, recompute=True), stage(1, 4, 1, recompute=True)) == 10 + 15 + 70
    assert problem.space.recomputed_flops(replace(problem, spec=None), LEGAL) is None
    assert problem.space.recomputed_flops(problem, room_plan(room_problem())) is None


def test_plans_of_operators_are_not_ranked() -> None:
    with pytest.raises(UsageError, match="in space operators, whose plans are not ranked"):
        solve(problem_of(), top=2)


def test_a_user_may_say_how_many_threads_it_has() -> None:
    problem = problem_of()
    assert idle_workers(problem, 2, ("dp",)) is problem


def test_no_bound_is_taken_from_another_request() -> None:
    """Nor of the same one, as it rests on stages that are not kept; less memory is named first."""
    space = problem_of().space
    asked = Request(files={}, memory_limits={"gpu": 2.0**30})
    more = replace(asked, memory_limits={"gpu": 2.0**31})
    stages = "of operators they rest on stages that were solved exactly, which are not kept"
    assert list(space.widened(asked, asked)) == [stages]
    first, *_, last = space.widened(asked, more)
    assert first.startswith("memory")
    assert last == stages


def test_a_heuristic_hunts_and_other_solvers_search() -> None:
    space = problem_of().space
    task = Task(Limits(seconds=60), "anneal")
    assert type(space.begin(problem_of(), task)) is OperatorHunt
    assert type(space.begin(problem_of(), task._replace(solver="dp"))) is OperatorSearch


def test_what_is_found_is_proved_again_and_its_graph_is_that_of_the_proof() -> None:
    problem, task = problem_of(), Task(Limits(seconds=60, workers=1), "dp")
    found = solve(problem, limits=task.limits, solver="dp")
    assert found.plan is not None
    assert [part["micro_batch"] for part in found.certificate["parts"]] == [1, 2]
    assert check_certificate(problem, found.certificate).holds
    search = problem.space.begin(problem, task)
    assert problem.space.search(search) is Stop.PROOF
    for last in (
        problem.space.last_problem(search, found.plan),
        problem.space.proved_problem(problem, found.plan, found.certificate),
    ):
        assert isinstance(last, LastGraph)
        assert best_path(last.graph)[1] == pytest.approx(found.objective, rel=1e-9)


def test_a_heuristic_finds_a_plan_and_proves_nothing_by_it() -> None:
    problem, task = problem_of(), Task(Limits(seconds=60, workers=1, starts=2), "anneal")
    search = problem.space.begin(problem, task)
    assert problem.space.hunt(search) in (Stop.HEURISTIC, Stop.PROOF)
    assert search.plan is not None
    assert problem.space.rank(search, 2) == ()


def test_a_problem_that_nothing_fits_is_blamed_on_the_operators_that_do_not() -> None:
    tight = problem_of(limit=0.5 * MIB)
    nothing = solve(tight, limits=Limits(seconds=60, workers=1), solver="dp")
    assert nothing.status is Status.INFEASIBLE
    assert nothing.reason == (
        "nothing fits: the stage of operators 0 (a) to 3 (d) needs at least 2.00 MiB per device, "
        "1.50 MiB more than the limit of 512.00 KiB"
    )


@examples(30)
@given(problems(most_ways=2000), st.integers(0, 300))
def test_the_judge_agrees_with_the_formulas_of_the_tables(problem: Problem, index: int) -> None:
    plan = next(itertools.islice(every_plan(problem), index, None), None)
    assume(plan is not None)
    assert plan is not None
    verdict = evaluate(problem, plan)
    assume(verdict.stages and not any(cost.unprofiled for cost in verdict.stages))
    times = []
    for s, (part, cost) in enumerate(zip(plan.stages, verdict.stages, strict=True)):
        tables = problem.costs.tables(plan.micro_batch_size, part.device_count, plan.micro_batches)
        assume(tables is not None)
        options = [Option(x.tp, x.dp, x.split) for x in part.strategies]
        assume(all(option in tables.options for option in options))
        per_node = problem.cluster.devices_per_node
        time, memory = price_stages(
            tables,
            part.start,
            part.stop,
            np.array([[tables.options.index(option) for option in options]]),
            np.array([[x.recompute for x in part.strategies]]),
            in_flight=problem.costs.in_flight(len(plan.stages) - 1 - s, plan.micro_batches),
            enters_node=part.first_device > 0 and part.first_device % per_node == 0,
            leaves_node=(part.first_device + part.device_count) % per_node == 0,
        )
        if math.isinf(time[0]):
            assert math.isinf(cost.time)
        assert cost.time == pytest.approx(time[0], rel=1e-9)
        assert cost.memory == pytest.approx((memory[0],), rel=1e-9)
        times.append(float(time[0]))
        where = f"stage {s}, device {part.first_device}"
        full = any(v.rule == "memory" and v.where == where for v in verdict.violations)
        assert full == (cost.memory[0] > problem.memory_limit * (1 + 1e-9))
    if math.isinf(max(times)):
        assert math.isinf(verdict.iteration_time)
        return
    assert verdict.iteration_time == pytest.approx(
        (plan.micro_batches - 1) * max(times) + sum(times), rel=1e-9
    )


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_plan_on_any_nodes_is_below_the_work(seed: int) -> None:
    problem = operator_problem(seed)
    space, nodes = problem.space, range(problem.cluster.node_count)
    bounds = [space.work_bound(problem, nodes[: count + 1]) for count in nodes]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] > 0
    for point in every_point("operators", problem):
        assert point.seconds >= bounds[-1] * (1 - ROUNDING)
    for count in nodes:
        own = every_point("operators", problem_on(problem, tuple(nodes[: count + 1])))
        assert all(point.seconds >= bounds[count] * (1 - ROUNDING) for point in own)
