"""The written .lp and .mps files hold the problem: other readers find the same optimum in them."""

import dataclasses
import math
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pulp
import pytest
from ortools.linear_solver.python import model_builder

from ilp_planner.base.errors import InfeasibleError, OutputError
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.brute_force import BruteForce
from ilp_planner.optimize.solvers.pulp_backend import Pulp, read_cbc_log, write_program
from tests.examples import for_each
from tests.optimize.solvers.graphs import chain, make_graph, two_types

SMALL = make_graph(
    4,
    [
        (0, 2, 0, 1, 0.0125),
        (2, 4, 1, 1, 0.0135),
        (0, 1, 0, 2, 0.003),
        (1, 4, 2, 2, 0.0145),
        (0, 4, 0, 4, 0.019),
        (1, 3, 3, 1, 1.0),  # leads nowhere
        (0, 2, 0, 2, 0.0105),
        (2, 4, 2, 2, 0.0107),
    ],
    16,
)
SHARED = dataclasses.replace(
    SMALL,
    extra=np.array([0.0, 0.002, 0.001, 0.0, 0.5, 0.0, 0.0, 0.003]),
    peaks=np.array([[0.2, 0.1, 0.0, 0.3, 0.0, 0.0, 0.15, 0.1], [0.0] * 8]),
    use=np.array([[1, 0], [1, 0], [0, 2], [2, 0], [0, 4], [0, 1], [2, 0], [0, 2]]),
    capacity=(2, 3),
)
GRAPHS = pytest.mark.parametrize(
    "graph",
    [
        SMALL,
        SHARED,
        chain(2.5),
        chain(1.0, 3.0, micro_batches=1),
        two_types(layers=14),
        two_types(layers=10, shared=True),
    ],
)
SOLVED_LOG = """\
Continuous objective value is 6858.74 - 0.10 seconds
Cbc0010I After 1300 nodes, 3 on tree, 7019.8129 best solution, best possible 9999.9 (1.00 seconds)

Result - Optimal solution found

Objective value:                7019.81293851
Enumerated nodes:               1336
"""
STOPPED_LOG = """\
Continuous objective value is 6858.74 - 0.10 seconds
Cbc0010I After 99 nodes, 3 on tree, 7051.0545 best solution, best possible 9999.9 (1.00 seconds)

Result - {reason}

Objective value:                7051.05447746
Lower bound:                    6864.891
Gap:                            0.02
"""


def optimum(graph: StageGraph) -> float:
    return BruteForce(most=10**6).solve(graph, Limits()).objective


@GRAPHS
def test_or_tools_solves_the_mps_file(graph: StageGraph, tmp_path: Path) -> None:
    write_program(graph, tmp_path / "model.mps", "mps")
    model = model_builder.Model()
    assert model.import_from_mps_file(str(tmp_path / "model.mps"))
    solver = model_builder.Solver("scip")
    assert solver.solve(model) == model_builder.SolveStatus.OPTIMAL
    assert solver.objective_value == pytest.approx(optimum(graph), rel=1e-6)


@GRAPHS
def test_pulp_reads_the_mps_file(graph: StageGraph, tmp_path: Path) -> None:
    write_program(graph, tmp_path / "model.mps", "mps")
    _, problem = pulp.LpProblem.fromMPS(str(tmp_path / "model.mps"))
    names = {variable.name for variable in problem.variables()}
    maxima = {"t_max"} | {f"peak_{number}" for number in range(len(graph.peaks))}
    assert names - maxima <= {f"x_{arc}" for arc in range(graph.arcs)}


@GRAPHS
def test_cbc_solves_the_lp_file(graph: StageGraph, tmp_path: Path) -> None:
    write_program(graph, tmp_path / "model.lp", "lp")
    command = [Pulp()._pulp_solver().path, "model.lp", "-ratio", "0", "-solve"]
    done = subprocess.run(
        [*command, "-solution", "solution"], cwd=tmp_path, capture_output=True, check=True
    )
    assert b"Optimal solution found" in done.stdout
    status, *lines = (tmp_path / "solution").read_text().splitlines()
    assert float(status.rpartition(" ")[2]) == pytest.approx(optimum(graph), rel=1e-6, abs=1e-8)
    values = {name: float(value) for _, name, value, _ in map(str.split, lines)}
    path = [int(name[2:]) for name, value in values.items() if name[0] == "x" and value > 0.5]
    path.sort(key=lambda arc: int(graph.start[arc]))
    assert graph.is_path(path)
    assert graph.path_time(path) == pytest.approx(optimum(graph), rel=1e-6)


@pytest.mark.parametrize("form", ["lp", "mps"])
def test_a_file_is_replaced_whole(form: str, tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.write_text("old")
    with pytest.raises(InfeasibleError, match="no model to write"):
        write_program(make_graph(2, [(0, 1, 0, 1, 1.0)], 2), file, form)
    assert file.read_text() == "old"
    write_program(SMALL, file, form)
    assert file.read_text() != "old"
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(OutputError, match="missing"):
        write_program(SMALL, tmp_path / "missing" / "model", form)


def test_no_temporary_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def interrupt(objective: float, bound: float) -> None:
        if objective < 1e9:
            raise KeyboardInterrupt

    graph = two_types(layers=16)
    backend = Pulp(reduce=False)
    backend.solve(graph, Limits())
    backend.solve(graph, Limits(), progress=interrupt)
    backend.solve(graph, Limits(seconds=0.1))
    write_program(SMALL, tmp_path / "model.lp", "lp")
    assert [file.name for file in tmp_path.iterdir()] == ["model.lp"]


def test_the_bound_of_a_solved_log_is_its_objective() -> None:
    bound, proved = read_cbc_log(SOLVED_LOG)
    assert proved
    assert 7019.8129385 <= bound < 7019.81293851


@for_each(
    "reason",
    [
        "Stopped on time limit",
        "User ctrl-cuser ctrl-c",
        "Optimal solution found (within gap tolerance)",
    ],
)
def test_the_bound_of_a_stopped_log_is_its_lower_bound(reason: str) -> None:
    bound, proved = read_cbc_log(STOPPED_LOG.format(reason=reason))
    assert not proved
    assert 6864.889 < bound < 6864.891


@pytest.mark.parametrize(
    "log",
    [
        "Coin0008I MODEL read with 0 errors\nProblem is infeasible - 0.00 seconds\n",
        STOPPED_LOG.partition("\nResult")[0] + "\nResult - Problem proven infeasible\n",
    ],
)
def test_an_infeasible_model_has_no_finite_bound(log: str) -> None:
    assert read_cbc_log(log) == (math.inf, True)


@for_each(
    ("log", "least", "most"),
    [
        ("", 0.0, 0.0),
        ("Welcome to the CBC MILP Solver", 0.0, 0.0),
        (SOLVED_LOG.partition("Result")[0], 6858.72, 6858.74),
        (STOPPED_LOG.replace("6864.891", "-1e+50"), 6858.72, 6858.74),
        ("Cbc0006I The LP relaxation is infeasible or too expensive", 0.0, 0.0),
        (STOPPED_LOG.replace("6864.891", "nan"), 6858.72, 6858.74),
        (STOPPED_LOG.partition("Lower")[0] + "Lower bo", 6858.72, 6858.74),
    ],
)
def test_no_bound_is_made_up(log: str, least: float, most: float) -> None:
    bound, proved = read_cbc_log(log)
    assert least <= bound <= most
    assert not proved
