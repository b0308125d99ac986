"""What a proof leaves open has the plan's own time as its optimum, and CP-SAT finds it."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, SolverError
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.search.confirm import MOST_ARCS, PLACEMENT, LastGraph, confirm
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.optimize.solvers.brute_force import BruteForce
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from ilp_planner.peers.amp.build import AmpSpace
from ilp_planner.peers.amp.costs import AmpCosts
from tests.amp_cases import clusters, profiles
from tests.brute import random_problem
from tests.examples import examples
from tests.megatron_cases import small_cluster, small_problem
from tests.mixed_cases import room_problem
from tests.tiny import problems

SAME = 1e-7  # relative


def chain(*times: float, micro_batches: int = 4) -> StageGraph:
    """Return a graph with one path."""
    number = np.arange(len(times))
    return StageGraph(
        nodes=len(times) + 1,
        sources=(0,),
        sink=len(times),
        operators=len(times),
        weight=micro_batches - 1.0,
        tail=number,
        head=number + 1,
        start=number,
        stop=number + 1,
        time=np.array(times),
    )


def check_last(problem: Problem, *, exact: bool = True) -> None:
    """Solve a problem of layers; its last problem, enumerated, has the same optimum."""
    search = problem.space.begin(problem, Task(Limits(), "auto"))
    result = solve(problem)
    if result.plan is None:
        assert result.status is Status.INFEASIBLE
        return
    assert result.status is Status.OPTIMAL
    last = problem.space.last_problem(search, result.plan)
    assert last is not None
    if isinstance(last, LastGraph):
        found = BruteForce().solve(last.graph, Limits()).objective + last.constant
    else:
        found = last.solver(math.inf)(Limits(), Deadline(60)).objective + last.constant
    assert found <= result.objective * (1 + SAME)
    if exact:
        assert not last.lacks
        assert found == pytest.approx(result.objective, rel=SAME)
    same = found == pytest.approx(result.objective, rel=SAME)
    assert result.confirmed_by == ("cp-sat" if same else "")
    assert same or "not confirmed by cp-sat" in result.notes[-1]


# ---- the spaces ---------------------------------------------------------------------------------


@examples(10)
@given(problems())
def test_operators(problem: Problem) -> None:
    result = solve(problem)
    assume(result.plan is not None)
    assert (result.confirmed_by, result.status) == ("cp-sat", Status.OPTIMAL)


@examples(10)
@given(seed=st.integers(0, 10**6))
def test_the_planners_own_space(seed: int) -> None:
    check_last(random_problem(seed, devices=4), exact=False)


def test_metis() -> None:
    check_last(room_problem(cost_model="metis", space="metis"))


@examples(10)
@given(data=st.data())
def test_amp(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    profile = data.draw(profiles(cluster))
    problem = Problem(
        model="drawn",
        cluster=cluster,
        costs=AmpCosts(profile=profile, repaired=data.draw(st.booleans())),
        global_batch=4,
        micro_batches=(1, 2, 4),
        memory_limits=dict.fromkeys(cluster.type_names, 1e30),
        max_stages=9,
        max_tp=2,
        space=AmpSpace(),
    )
    try:
        problem_has_degrees = bool(problem.space.parts(problem))
    except InfeasibleError:
        problem_has_degrees = False
    assume(problem_has_degrees)
    check_last(problem)


@pytest.mark.parametrize("batch", [4, 8])
@pytest.mark.parametrize("devices", [2, 4])
def test_megatron(batch: int, devices: int) -> None:
    check_last(small_problem(small_cluster(devices=devices), batch=batch))


# ---- the answer ---------------------------------------------------------------------------------


def test_the_same_optimum_confirms() -> None:
    graph = chain(1.0, 3.0)
    last = LastGraph(graph=graph, constant=2.0)
    assert confirm(last, graph.path_time((0, 1)) + 2.0, 1e-9, Limits(), Deadline(60)) == (
        "cp-sat",
        "",
    )


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_another_optimum_is_an_error(factor: float) -> None:
    graph = chain(1.0, 3.0)
    value = graph.path_time((0, 1))
    with pytest.raises(
        SolverError, match=rf"{value * factor!r} s optimal, cp-sat finds .* {value}"
    ):
        confirm(LastGraph(graph=graph), value * factor, 1e-9, Limits(), Deadline(60))


def test_a_relaxed_program_below_the_plan_is_a_note() -> None:
    graph = chain(1.0, 3.0)
    value = graph.path_time((0, 1)) * 1.1
    by, note = confirm(LastGraph(graph=graph, lacks=PLACEMENT), value, 1e-9, Limits(), Deadline(60))
    assert by == ""
    assert "13 s" in note


def test_what_can_be_learned_is_learned() -> None:
    graph = chain(1.0, 3.0)

    def learn(path: object) -> bool:
        assert path == (0, 1)
        graph.time[0] = 2.0
        return True

    assert (
        confirm(LastGraph(graph=graph, learn=learn), 14.0, 1e-9, Limits(), Deadline(60)).by
        == "cp-sat"
    )


def test_what_is_large_is_left_alone() -> None:
    last = LastGraph(graph=chain(*[1.0] * (MOST_ARCS + 1)))
    assert (
        "4,001 stage candidates are open" in confirm(last, 1.0, 1e-9, Limits(), Deadline(60)).note
    )


def wide(layers: int = 40, stages: int = 6) -> StageGraph:
    """Return a graph of cuts with times that leave much open."""
    draw, row = np.random.default_rng(0), layers + 1
    ends = np.concatenate([[0.0], draw.uniform(0.5, 1.5, layers).cumsum()])
    arcs = np.array([
        (s * row + i, (s + 1) * row + j, i, j)
        for s in range(stages)
        for i, j in itertools.combinations(range(row), 2)
        if (i == 0) == (s == 0) and (j == layers) == (s == stages - 1)
    ])  # fmt: skip
    times = (ends[arcs[:, 3]] - ends[arcs[:, 2]]) * draw.uniform(0.9, 1.1, len(arcs))
    return StageGraph(
        nodes=(stages + 1) * row, sources=(0,), sink=(stages + 1) * row - 1, operators=layers,
        weight=15.0, tail=arcs[:, 0], head=arcs[:, 1], start=arcs[:, 2], stop=arcs[:, 3],
        time=times,
    )  # fmt: skip


def test_work_ends_it_and_not_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, what is confirmed is the same."""
    graph, best = wide(12, 4), ChainDP().solve(wide(12, 4), Limits()).objective
    last = LastGraph(graph=graph)
    assert confirm(last, best, 1e-9, Limits(), Deadline(600)).by == "cp-sat"
    monkeypatch.setattr("ilp_planner.optimize.search.confirm.MOST_WORK", 1e-4)
    notes = {confirm(last, best, 1e-9, Limits(workers=w), Deadline(600)) for w in (1, 2, 2)}
    assert notes == {("", "not confirmed by cp-sat: too hard for it")}


def test_rounds_share_their_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is learned raises the time of a path, and the next one is looked for: not for ever."""
    graph, learned = wide(12, 4), []

    def learn(path: object) -> bool:
        learned.append(path)
        graph.time[list(path)] *= 1.001  # type: ignore[call-overload]
        return True

    monkeypatch.setattr("ilp_planner.optimize.search.confirm.MOST_WORK", 0.05)
    last = LastGraph(graph=graph, learn=learn)
    found = confirm(last, 10 * float(graph.time.sum()) * 16, 1e-9, Limits(), Deadline(600))
    assert found == ("", "not confirmed by cp-sat: too hard for it")
    assert 1 <= len(learned) < 100


def test_no_time_is_said() -> None:
    last = LastGraph(graph=chain(1.0))
    assert "no time" in confirm(last, 4.0, 1e-9, Limits(), Deadline(0.0)).note
