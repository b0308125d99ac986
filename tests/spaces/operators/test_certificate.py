"""The proof of a part of operators is derived again: its stages too are believed in nothing."""

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlanError
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.operators.certificate import plan_graph
from tests.examples import examples
from tests.tiny import CHAINS, least_time, make_problem, problems, random_profile, tight_problem

FEW = examples(10)
SAME = 1e-9  # relative
SMALL = problems(most_ways=1000)
IN_ONE_LINE = r"^certificate: [^\n]+$"


def solved(problem: Problem) -> Result:
    return solve(problem, limits=Limits(seconds=30, workers=1), solver="dp")


@pytest.fixture(scope="module")
def proved() -> tuple[Problem, Result]:
    problem = tight_problem()
    return problem, solved(problem)


@FEW
@given(SMALL)
def test_the_certificate_of_a_solve_holds(problem: Problem) -> None:
    result = solved(problem)
    assume(result.plan is not None)
    optimum = least_time(problem)
    written = json.loads(json.dumps(result.certificate))
    check = check_certificate(problem, written)
    assert check.holds
    assert len(check.parts) == len(problem.micro_batch_sizes)
    assert check.bound == pytest.approx(result.bound, rel=SAME)
    assert check.bound <= optimum * (1 + SAME)


def test_stages_that_nobody_had_to_solve_are_solved_by_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the stages behind not counted, a stage that is solved as too slow leaves the one before
    it more stages behind than the search saw."""
    operators = CHAINS["resnet"][1][:4]
    sizes = {"micro_batches": (1, 2), "degrees": (1, 2)}
    profile = random_profile(2, operators, **sizes, holes=0.1)
    problem = make_problem(
        operators, "resnet", profile, cost_model="aceso", limit=3206558335.2024727, global_batch=2,
        micro_batches=(1, 2), nodes=2, devices=2,
    )  # fmt: skip
    monkeypatch.setattr("ilp_planner.optimize.bounds.operator_part.FEW_STATES", 0)
    result = solved(problem)
    assert result.certificate["parts"][1]["by"] == "dp"
    assert check_certificate(problem, result.certificate).holds
    monkeypatch.setattr("ilp_planner.spaces.operators.certificate.MORE_STAGES", 0)
    assert not check_certificate(problem, result.certificate).holds


@FEW
@given(SMALL, st.sampled_from([1 + 1e-6, 1.01, 1.5, 10.0, 1e6, None]))
def test_a_bound_raised_above_the_optimum_does_not_hold(
    problem: Problem, factor: float | None
) -> None:
    result = solved(problem)
    assume(result.status is Status.OPTIMAL)
    certificate = copy.deepcopy(result.certificate)
    claimed = None if factor is None else result.objective * factor
    for part in certificate["parts"]:
        part["bound_s"] = claimed
        for stage in part["exact_stages"]:
            stage["bound_s"] = 1e30 if claimed is None else claimed
    check = check_certificate(problem, certificate)
    assert not check.holds
    assert check.bound <= least_time(problem) * (1 + SAME)


@FEW
@given(SMALL, st.sampled_from(["work", "stage bounds", "device groups", "chain-dp", "lies"]))
def test_a_part_is_not_believed_in_what_proved_it(problem: Problem, by: str) -> None:
    result = solved(problem)
    assume(result.status is Status.OPTIMAL)
    certificate = copy.deepcopy(result.certificate)
    for part in certificate["parts"]:
        part.update(by=by, bound_s=result.objective * 1.1)
    check = check_certificate(problem, certificate)
    assert not check.holds
    assert check.bound <= least_time(problem) * (1 + SAME)


@FEW
@given(SMALL, st.integers(0, 3))
def test_without_its_stages_the_bound_is_never_above_the_optimum(
    problem: Problem, kept: int
) -> None:
    result = solved(problem)
    certificate = copy.deepcopy(result.certificate)
    for part in certificate["parts"]:
        part["exact_stages"] = part["exact_stages"][:kept]
    check = check_certificate(problem, certificate)
    assert check.bound <= least_time(problem) * (1 + SAME)


@FEW
@given(SMALL)
def test_stages_at_another_place_prove_nothing_wrong(problem: Problem) -> None:
    result = solved(problem)
    certificate = copy.deepcopy(result.certificate)
    for part in certificate["parts"]:
        for stage in part["exact_stages"]:
            stage["in_flight"] += 1
            stage["enters_node"] = not stage["enters_node"]
    check = check_certificate(problem, certificate)
    assert check.bound <= least_time(problem) * (1 + SAME)


@FEW
@given(SMALL)
def test_the_optimum_of_the_graph_of_a_plan_is_its_time(problem: Problem) -> None:
    result = solved(problem)
    assume(result.plan is not None)
    assert result.plan is not None
    graph = plan_graph(problem, result.certificate, result.plan)
    path, value = best_path(graph)
    assert graph.is_path(path)
    assert value == pytest.approx(result.objective, rel=SAME)
    cuts = {(s.start, s.stop) for s in result.plan.stages}
    assert cuts <= set(zip(graph.start.tolist(), graph.stop.tolist(), strict=True))


def spoiled(result: Result, change: str) -> Any:
    """Return a certificate in which one thing is wrong."""
    assert result.plan is not None
    chosen = result.plan.micro_batch_size
    broken = copy.deepcopy(result.certificate)
    part = next(p for p in broken["parts"] if p["micro_batch"] == chosen)
    stage = {
        "start": 0,
        "stop": 1,
        "devices": 1,
        "in_flight": 1,
        "enters_node": False,
        "leaves_node": False,
        "bound_s": 1.0,
    }
    part.update(bound_s=10 * result.objective, by="dp", exact_stages=[stage])
    changes: dict[str, Any] = {
        "no stages": lambda: part.pop("exact_stages"),
        "stages is a number": lambda: part.update(exact_stages=1),
        "a stage is a number": lambda: part.update(exact_stages=[1]),
        "a stage without a start": lambda: stage.pop("start"),
        "a stage without in flight": lambda: stage.pop("in_flight"),
        "a stage without a bound": lambda: stage.pop("bound_s"),
        "a stage that ends before it begins": lambda: stage.update(start=2, stop=1),
        "a stage before the chain": lambda: stage.update(start=-1),
        "a stage beyond the chain": lambda: stage.update(stop=99),
        "a stage on no devices": lambda: stage.update(devices=0),
        "a stage on too many devices": lambda: stage.update(devices=64),
    }
    changes[change]()
    return broken


CHANGES = [
    "no stages", "stages is a number", "a stage is a number", "a stage without a start",
    "a stage without in flight", "a stage without a bound", "a stage that ends before it begins",
    "a stage before the chain", "a stage beyond the chain", "a stage on no devices",
    "a stage on too many devices",
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_malformed_stage_is_an_error_in_one_line(
    proved: tuple[Problem, Result], change: str
) -> None:
    problem, result = proved
    with pytest.raises(PlanError, match=IN_ONE_LINE):
        check_certificate(problem, spoiled(result, change))


@pytest.mark.parametrize("certificate", [None, [], 3, "proof", {}, {"parts": []}])
def test_there_is_no_graph_of_what_is_no_certificate(
    proved: tuple[Problem, Result], certificate: Any
) -> None:
    problem, result = proved
    assert result.plan is not None
    with pytest.raises(PlanError, match=IN_ONE_LINE):
        plan_graph(problem, certificate, result.plan)
