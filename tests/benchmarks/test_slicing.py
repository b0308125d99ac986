"""pipeDejavu's slicing problems as stage graphs: the same plans at the same cost."""

from itertools import combinations

import numpy as np

from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from ilp_planner.optimize.solvers.cpsat import CpSat
from tests.benchmarks.slicing import HIGH, LOW, slicing
from tests.benchmarks.slicing_table import PUBLISHED, table
from tests.examples import for_each
from tests.optimize.solvers.graphs import paths_of


@for_each(("layers", "stages"), [(2, 1), (2, 2), (6, 3), (7, 7), (9, 4)])
def test_every_slicing_is_a_path_of_the_same_cost(layers: int, stages: int) -> None:
    problem = slicing(layers, stages, 3)
    graph = problem.graph()
    costs = {}
    for path in paths_of(graph):
        arcs = list(path)
        assert len(arcs) == stages
        costs[tuple((graph.stop - graph.start)[arcs].tolist())] = graph.path_time(path)
    every = [np.diff([0, *cuts, layers]) for cuts in combinations(range(1, layers), stages - 1)]
    assert set(costs) == {tuple(sizes.tolist()) for sizes in every}
    for sizes in every:
        assert problem.value(costs[tuple(sizes.tolist())]) == problem.of_sizes(sizes)
    best = min(problem.of_sizes(sizes) for sizes in every)
    assert problem.value(ChainDP().solve(graph, Limits()).objective) == best


def test_the_objective_is_that_of_the_notebook() -> None:
    """Layers of 1, 3, 2 and 5 in two stages, 2 for the cut, B = 3: stages of 3 and 1, cost 14."""
    problem = slicing(4, 2, 0)
    problem.layers[:] = (1, 3, 2, 5)
    problem.cuts[:] = 2
    solution = ChainDP().solve(problem.graph(), Limits())
    assert problem.value(solution.objective) == 14
    assert problem.of_sizes(np.array([3, 1])) == 14


def test_costs_are_drawn_from_5_to_9() -> None:
    problem = slicing(128, 50, 0)
    for costs in (problem.layers, problem.cuts):
        assert set(np.unique(costs)) == set(range(LOW, HIGH + 1))
    assert problem.cuts.shape == (127, 49)
    assert (slicing(128, 50, 0).layers == problem.layers).all()
    assert not (slicing(128, 50, 1).layers == problem.layers).all()


def test_integer_programs_prove_64_layers_in_16_stages() -> None:
    graph = slicing(64, 16, 1).graph()
    solution = CpSat().solve(graph, Limits(seconds=10))
    assert solution.status is Status.OPTIMAL
    assert solution.objective == ChainDP().solve(graph, Limits()).objective


def test_the_table_has_a_row_for_every_size() -> None:
    run = {"value": 110.0, "bound": 99.0, "proved": False, "wall_s": 0.5}
    exact = {"value": 100.0, "bound": 100.0, "proved": True, "wall_s": 0.001}
    row = {"layers": 12, "stages": 4, "uniform": [120.0], "dp": [exact], "cp-sat": [exact]}
    row |= {name: [run] for name in ("milp", "gradient", "anneal")}
    lines = table([row]).splitlines()
    assert len(lines) == 2 + len(PUBLISHED)
    assert "| 0, 0.001 | 10.00 %, 0.500 | 10.00 %, 0.500 |" in lines[2]
    assert "| 20.00 % |" in lines[2]
    assert all("not measured" in line for line in lines[3:])
