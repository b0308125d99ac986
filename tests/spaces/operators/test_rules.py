"""The rules of plans of operators, to the word, on two nodes of two devices."""

from dataclasses import replace
from typing import Any

import pytest

from ilp_planner.costs.profiles.table import RowKey
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.specs.training import Settings
from tests.mixed_cases import room_plan, room_problem
from tests.tiny import make_problem, make_profile, make_row


def broken(problem: Problem, plan: Plan[Any]) -> list[str]:
    return [str(violation) for violation in evaluate(problem, plan).violations]


NAMES = ("enc-1st-layernorm", "enc-MLP-gelu", "enc-MLP-GEMM-2", "enc-post-MLP-dropout")


@pytest.fixture(scope="module")
def operators() -> Problem:
    """Return a problem in which stages have 1, 2 or 4 devices; micro-batches of 1 and 2."""
    rows = {
        RowKey(operator=name, micro_batch=size, tp=tp, split=0): make_row()
        for name in NAMES
        for size in (1, 2)
        for tp in (1, 2)
    }
    return make_problem(
        NAMES,
        "gpt",
        make_profile(rows),
        cost_model="native",
        limit=1e12,
        micro_batches=(1, 2),
        global_batch=4,
        nodes=2,
        devices=2,
        group_sizes=(1, 2, 4),
    )


def operator_plan(problem: Problem, *stages: tuple[int, int, Strategy], size: int = 2) -> Plan[Any]:
    """Return a plan of stages (first device, devices, how its operators run)."""
    cuts = [len(NAMES) * s // len(stages) for s in range(len(stages) + 1)]
    return Plan(
        model=problem.model,
        global_batch=4,
        micro_batches=4 // size,
        stages=tuple(
            OperatorStage(
                start=cuts[s],
                stop=cuts[s + 1],
                first_device=first,
                device_count=count,
                strategies=(way,) * (cuts[s + 1] - cuts[s]),
            )
            for s, (first, count, way) in enumerate(stages)
        ),
    )


ONE, TENSOR, DATA = Strategy(), Strategy(tp=2), Strategy(dp=2)


def test_stages_take_devices_in_order(operators: Problem) -> None:
    assert broken(operators, operator_plan(operators, (0, 2, DATA), (2, 2, TENSOR))) == []
    assert broken(operators, operator_plan(operators, (2, 2, DATA), (0, 2, TENSOR))) == [
        "stage 0: devices in order: found first device 2, expected 0",
        "stage 1: devices in order: found first device 0, expected 4",
    ]


def test_stages_are_a_part_of_a_node_or_whole_nodes(operators: Problem) -> None:
    way = Strategy(tp=2, dp=2)
    assert broken(operators, operator_plan(operators, (0, 4, way))) == []
    straddling = operator_plan(operators, (0, 1, ONE), (1, 2, DATA), (3, 1, ONE))
    assert broken(operators, straddling) == [
        "stage 1: node straddled: found devices 1 to 2, expected nodes of 2"
    ]


def test_stages_have_an_allowed_number_of_devices(operators: Problem) -> None:
    """Three devices are on two nodes, of which one is not whole."""
    plan = operator_plan(operators, (0, 3, Strategy(dp=3)), (3, 1, ONE))
    found = broken(operators, plan)
    assert found[1] == "stage 0: devices of a stage: found 3, expected one of 1, 2, 4"
    assert found[2] == "stage 0: node straddled: found devices 0 to 2, expected nodes of 2"


def test_degrees_use_every_device_fit_a_node_and_divide_the_micro_batch(operators: Problem) -> None:
    def found(way: Strategy, devices: int, size: int = 2) -> list[str]:
        plan = operator_plan(operators, (0, devices, way), size=size)
        return [str(v) for v in operators.space.check_degrees(operators, plan)]

    assert found(Strategy(tp=2, dp=2), 4) == []
    assert found(Strategy(tp=1, dp=2), 4) == [
        "stage 0: degrees: found tp 1 x dp 2, expected 4 devices"
    ]
    assert found(Strategy(tp=4), 4) == [
        "stage 0: degrees: found tp 4, expected at most the 2 devices of a node"
    ]
    assert found(Strategy(dp=4), 4) == [
        "stage 0: degrees: found dp 4, expected a divisor of the micro-batch 2"
    ]


def test_the_micro_batch_is_of_profiled_samples(operators: Problem) -> None:
    """Replicas of 1 or 2 samples, up to 4 of them, make 1, 2, 4 and 8."""
    tried = operators.costs.micro_batch_sizes((1, 2, 4))
    assert tried == (1, 2, 4, 8)
    plan = replace(operator_plan(operators, (0, 2, DATA)), global_batch=12, micro_batches=4)
    (said,) = operators.space.check_whole(operators, plan)
    assert str(said) == "plan: micro-batch: found 3, expected one of 1, 2, 4, 8"


def test_plans_of_operators_have_no_settings(operators: Problem) -> None:
    plan = operator_plan(operators, (0, 2, DATA), (2, 2, TENSOR))
    said = "plan: stages: found others, expected stages of operators, without settings of a runtime"
    for other in (
        replace(plan, settings=Settings()),
        replace(plan, virtual=2),
        room_plan(room_problem()),
    ):
        assert [str(v) for v in operators.space.check_whole(operators, other)] == [said]


def test_what_proofs_about_operators_are_about_is_said(operators: Problem) -> None:
    assert operators.space.describe(operators) == (
        "plans with micro-batch 1, 2 over all replicas, on at most 4 stages of 1, 2 devices inside "
        "a node or 2 whole nodes, every device used in order"
    )
    inside = replace(operators, space=replace(operators.space, group_sizes=(1, 2)))
    assert inside.space.describe(inside) == (
        "plans with micro-batch 1, 2 over all replicas, on at most 4 stages of 1, 2 devices inside "
        "a node, every device used in order"
    )
    plan = operator_plan(operators, (0, 2, DATA), (2, 2, TENSOR))
    assert operators.space.outside(operators, plan) is None
    assert list(operators.space.exclusions(operators, plan)) == []
    fewer = replace(operators, micro_batches=(4,))
    assert fewer.space.outside(fewer, plan) == "micro-batch: found 2, only 1 tried"
