"""Heuristics on plan spaces of layers: what is looked at, and how paths and choices are moved."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.optimize.heuristic import find_plan
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.search.choice_annealing import ChoiceAnnealing, Nearness
from ilp_planner.optimize.search.graph_hunt import GraphHunt, path_of_choices
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from ilp_planner.optimize.solvers.registry import HEURISTICS
from ilp_planner.peers.amp.placement import place
from ilp_planner.spaces.groups.parts import GroupPart, neighbours
from tests import amp_cases
from tests.examples import examples
from tests.megatron_cases import GIB, small_problem
from tests.mixed_cases import room_problem

FEW = Limits(starts=8, workers=1, seconds=60.0)
every_heuristic = pytest.mark.parametrize("solver", HEURISTICS)


@every_heuristic
@examples(5)
@given(st.data())
def test_one_start_places_ranks_well_and_proves_nothing_of_other_placements(
    solver: str, data: st.DataObject
) -> None:
    problem = amp_cases.drawn_problem(data, free=True)
    costs, cluster = problem.costs, problem.cluster
    try:
        optimum = place(costs, cluster, 4, max_tp=2).plan.cost
    except InfeasibleError:
        return
    found = find_plan(problem, Limits(starts=1, workers=1), solver)
    assert found.bound <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= found.objective <= 1.1 * optimum


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [2.6, 80.0])
@every_heuristic
def test_one_start_is_enough_for_small_degrees(solver: str, memory: float) -> None:
    problem = small_problem(batch=8, memory_limit=memory * GIB)
    found = find_plan(problem, Limits(starts=1, workers=1), solver)
    assert found.objective <= 1.02 * solve(problem).objective


@every_heuristic
def test_ctrl_c_between_tables_of_candidates_is_the_users(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def interrupted(*columns: object) -> None:
        calls.append(columns)
        if len(calls) == 9:
            raise KeyboardInterrupt

    monkeypatch.setattr("ilp_planner.spaces.groups.candidates.drop_dominated", interrupted)
    result = solve(room_problem(), limits=FEW, solver=solver)
    assert len(calls) == 9
    assert result.stopped_by is Stop.USER
    assert result.status is Status.FEASIBLE  # there is a plan before there are tables


def test_groups_of_one_type_are_looked_at_first() -> None:
    problem = room_problem()
    alone, every = GroupPart(problem, 4, alone=True), GroupPart(problem, 4)
    options = [o for o in every.catalogue.options if sum(n > 0 for n in o.replicas) == 1]
    assert list(alone.catalogue.options) == options
    assert len(options) < len(every.catalogue.options)


def test_micro_batches_without_a_plan_of_one_type_are_looked_at_too() -> None:
    """There, devices of several types may be the only way."""
    problem = room_problem()
    search = problem.space.begin(problem, Task(FEW, "gradient"))
    hunt = GraphHunt(search, search.states)
    hunt.look_where({0: 1.0})
    assert len(search.states) > 1
    assert hunt.looked.keys() == set(range(len(search.states)))


# ---- choices ------------------------------------------------------------------------------------


def test_near_choices_differ_in_little() -> None:
    rows = [(a, b, c) for a in range(4) for b in range(4) for c in range(4)]
    nearness, random = Nearness(rows), np.random.default_rng(0)
    drawn = [rows[nearness.draw(21, random)] for _ in range(500)]
    differing = [sum(x != y for x, y in zip(row, rows[21], strict=True)) for row in drawn]
    assert 0 not in differing
    assert differing.count(1) > differing.count(3)
    assert Nearness(rows[:1]).draw(0, random) == 0


class Valley:
    """Numbers on a ring; the lowest is far from most."""

    def __init__(self) -> None:
        self.looked: list[int] = []

    def draw(self, random: np.random.Generator) -> int:
        return int(random.integers(400))

    def near(self, choice: int, random: np.random.Generator) -> int:
        return (choice + int(random.choice([-3, -1, 1, 3]))) % 400

    def least(self, choice: int) -> float:
        return 0.5

    def cost(self, choice: int) -> float:
        self.looked.append(choice)
        return math.inf if choice % 7 == 3 else 1.0 + abs(choice - 123) / 100


@pytest.mark.parametrize("starts", [1, 3, 16])
def test_annealing_finds_the_lowest_and_looks_once_at_each(starts: int) -> None:
    valley = Valley()
    best = ChoiceAnnealing(valley, Limits(starts=starts), lambda: True).run()
    assert best == 123
    assert len(valley.looked) == len(set(valley.looked))


def test_annealing_without_a_plan_finds_none() -> None:
    class Nothing(Valley):
        def cost(self, choice: int) -> float:
            return math.inf

    assert ChoiceAnnealing(Nothing(), Limits(starts=2), lambda: True).run() is None


def test_a_row_of_candidates_is_a_path_again() -> None:
    problem = room_problem()
    part = problem.space.parts(problem)[2]
    opened = part.explicit(part.graph(np.inf, None))
    assert opened is not None
    path = ChainDP().solve(opened.graph, Limits()).path
    choices = opened.choice[list(path)].tolist()
    found = path_of_choices(opened, choices)
    assert opened.choice[list(found)].tolist() == choices
    assert opened.graph.is_path(found)
    assert path_of_choices(opened, choices[1:]) == ()


def test_neighbours_of_a_plan_cover_all_layers_with_the_same_devices() -> None:
    problem = room_problem()
    part = problem.space.parts(problem)[2]
    assert isinstance(part, GroupPart)
    opened = part.explicit(part.graph(np.inf, None))
    assert opened is not None
    candidates = part.catalogue.stages
    for path in ([0], list(ChainDP().solve(opened.graph, Limits()).path)):
        choices = opened.choice[path].tolist()
        used = part.catalogue.use[candidates.option[choices]].sum(axis=0)
        first, last = int(candidates.start[choices[0]]), int(candidates.stop[choices[-1]])
        for near in neighbours(part, choices):
            rows = list(near)
            assert candidates.start[rows].tolist() == [first, *candidates.stop[rows[:-1]].tolist()]
            assert candidates.stop[rows[-1]] == last
            assert (part.catalogue.use[candidates.option[rows]].sum(axis=0) == used).all()
