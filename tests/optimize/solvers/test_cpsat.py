"""Linear models in CP-SAT: the optimum that the arc flow of a graph has."""

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.arc_flow import LinearModel, Rows
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.cpsat import solve_linear


def rows(*entries: dict[int, float], low: list[float], high: list[float]) -> Rows:
    return Rows(
        pointer=np.cumsum([0, *(len(entry) for entry in entries)]),
        column=np.array([column for entry in entries for column in entry]),
        value=np.array([value for entry in entries for value in entry.values()], float),
        low=np.array(low, float),
        high=np.array(high, float),
    )


def one_of_each(chosen: float = 1.0) -> LinearModel:
    """Return two pairs of which one each is chosen; a maximum of sums, and one of its own."""
    return LinearModel(
        arcs=4,
        cost=np.array([0.0, 0, 0, 0, 1, 1]),
        maxima=(("total", 0.0, 9.0), ("peak", 0.5, 9.0)),
        rows={
            "pairs": rows({0: 1, 1: 1}, {2: 1, 3: 1}, low=[chosen] * 2, high=[chosen] * 2),
            "total": rows({0: -1.5, 1: -2, 2: -1, 3: -0.25, 4: 1}, low=[0], high=[np.inf]),
            "peak": rows({0: -3, 5: 1}, {1: -2, 3: -2, 5: 1}, low=[0, -1], high=[np.inf] * 2),
        },
        scale=1.0,
    )


def test_the_cheapest_arcs_are_chosen() -> None:
    model = one_of_each()
    values = {(a, b): model.value((a, b)) for a in (0, 1) for b in (2, 3)}
    assert values == {(0, 2): 5.5, (0, 3): 4.75, (1, 2): 4.0, (1, 3): 5.25}
    solution = solve_linear(model, Limits(), Deadline(60))
    assert (solution.path, solution.objective) == ((1, 2), 4.0)
    assert solution.bound == pytest.approx(4.0)
    assert solution.bound <= 4.0
    assert (solution.status, solution.stopped_by) == (Status.OPTIMAL, Stop.PROOF)


# What a rank may have of a chain of ten: a pass through it, its own time and its synchronisation.
CHOICES = {
    (0, 0, 2): (43511, 252329, 13890),
    (0, 0, 3): (59226, 271149, 17221),
    (0, 0, 4): (74941, 289968, 20552),
    (0, 0, 5): (90656, 308788, 23883),
    (0, 0, 6): (106371, 327608, 27214),
    (1, 2, 7): (102076, 276232, 16655),
    (1, 3, 7): (86362, 241697, 13324),
    (1, 3, 8): (102076, 260517, 16655),
    (1, 4, 7): (70647, 207162, 9993),
    (1, 4, 8): (86362, 225982, 13324),
    (1, 5, 7): (54932, 172627, 6662),
    (1, 5, 8): (70647, 191447, 9993),
    (1, 6, 7): (39217, 138093, 3331),
    (1, 6, 8): (54932, 156912, 6662),
    (2, 7, 8): (39217, 171863, 3331),
    (2, 7, 9): (54932, 171863, 6662),
    (2, 8, 9): (39217, 140433, 3331),
    (3, 8, 10): (40839, 146020, 13725),
    (3, 9, 10): (25124, 98875, 10394),
}
# Where the first three ranks of a cut end, and how much longer it takes than its choices say.
LATE = {
    (4, 8, 9): 22785, (5, 8, 9): 23960, (4, 7, 9): 7038, (5, 7, 9): 16906, (3, 7, 9): 12611,
    (3, 8, 9): 33962, (2, 7, 9): 29902, (6, 7, 9): 30265, (6, 8, 9): 34686, (5, 7, 8): 1466,
    (2, 7, 8): 12421, (6, 7, 8): 20286,
}  # fmt: skip


def ranks_of_a_chain() -> LinearModel:
    """Return the choices of four ranks, with the largest of all times, synchronisations and
    delays."""
    arcs = list(CHOICES)
    schedule, sync, delay = range(len(arcs), len(arcs) + 3)
    edges = sorted({(rank, start) for rank, start, _ in arcs if rank})
    flow: list[dict[int, float]] = []
    for rank, place in edges:
        ends = {n: 1.0 for n, arc in enumerate(arcs) if (arc[0] + 1, arc[2]) == (rank, place)}
        starts = {n: -1.0 for n, arc in enumerate(arcs) if arc[:2] == (rank, place)}
        flow.append({**ends, **starts})
    flow += [{n: 1.0 for n, arc in enumerate(arcs) if arc[0] == rank} for rank in (3, 0)]
    one = [0.0] * len(edges) + [1.0] * 2
    took: list[dict[int, float]] = []
    for rank in range(4):
        row = {n: -CHOICES[arc][arc[0] == rank] for n, arc in enumerate(arcs) if arc[0] <= rank}
        took.append({**row, schedule: 1})
    synced: list[dict[int, float]] = [
        {**{n: -CHOICES[arc][2] for n, arc in enumerate(arcs) if arc[0] == rank}, sync: 1}
        for rank in range(4)
    ]
    late: list[dict[int, float]] = [
        {**{arcs.index((r, *pair)): -more for r, pair in enumerate(pairwise((0, *ends, 10)))},
         delay: 1}
        for ends, more in LATE.items()
    ]  # fmt: skip
    most = (331717.0, 27214.0, 34686.0)
    return LinearModel(
        arcs=len(arcs),
        cost=np.array([0.0] * len(arcs) + [1.0] * 3),
        maxima=tuple(zip(("schedule", "sync", "delay"), (0.0,) * 3, most, strict=True)),
        rows={
            "flow": rows(*flow, low=one, high=one),
            "schedule": rows(*took, low=[0.0] * 4, high=[np.inf] * 4),
            "sync": rows(*synced, low=[0.0] * 4, high=[np.inf] * 4),
            "delay": rows(*late, low=[-3.0 * n for n in LATE.values()], high=[np.inf] * len(LATE)),
        },
        scale=1.0,
    )


def test_no_optimum_is_lost() -> None:
    """CP-SAT's presolve loses that of this model, and calls another one optimal."""
    model = ranks_of_a_chain()
    best = [list(CHOICES).index(arc) for arc in ((0, 0, 4), (1, 4, 7), (2, 7, 9), (3, 9, 10))]
    solution = solve_linear(model, Limits(), Deadline(60))
    assert solution.status is Status.OPTIMAL
    assert solution.path == tuple(best)
    assert solution.bound == pytest.approx(model.value(best))


def test_rows_that_nothing_fits_are_an_error() -> None:
    with pytest.raises(SolverError, match="infeasible"):
        solve_linear(one_of_each(3.0), Limits(), Deadline(60))


def test_without_time_there_is_no_claim() -> None:
    solution = solve_linear(one_of_each(), Limits(), Deadline(0))
    assert solution.status is not Status.OPTIMAL
    assert solution.bound <= 4.0


def test_a_linear_model_needs_no_pandas() -> None:
    """`cp_model` of OR-Tools imports it, in more time than such a model takes."""
    code = """
import sys
from ilp_planner.base.deadline import Deadline
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.cpsat import solve_linear
from tests.optimize.solvers.test_cpsat import one_of_each
print(solve_linear(one_of_each(), Limits(), Deadline(60)).objective, "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4.0", "False"]
