"""Every backend, with and without reduction, answers what enumeration answers."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given

from ilp_planner.base.errors import SolverError, UsageError
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.result import Status, Stop, relative_gap
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.arc_reduction import reduced
from ilp_planner.optimize.solvers.backend import Backend, incumbent
from ilp_planner.optimize.solvers.base import GraphSolution, Limits
from ilp_planner.optimize.solvers.brute_force import BruteForce
from ilp_planner.optimize.solvers.cpsat import CpSat
from ilp_planner.optimize.solvers.milp import Milp
from ilp_planner.optimize.solvers.pulp_backend import Pulp
from tests.examples import examples, for_each
from tests.optimize.solvers.graphs import (
    chain,
    general_graphs,
    graphs,
    make_graph,
    odd_one_out,
    paths_of,
    two_types,
)

ARC_FLOW: dict[str, Backend] = {
    "cp-sat": CpSat(),
    "cp-sat, whole graph": CpSat(reduce=False),
    "milp": Milp(),
    "milp, whole graph": Milp(reduce=False),
    "milp-scip": Milp("scip"),
    "milp-scip, whole graph": Milp("scip", reduce=False),
    "pulp": Pulp(),
    "pulp, whole graph": Pulp(reduce=False),
}
BACKENDS = {name: make() for name, make in registry.backends().items()} | ARC_FLOW
AVAILABLE = [n for n, backend in BACKENDS.items() if backend.proves and backend.available()]
GENERAL = [name for name in AVAILABLE if name in ARC_FLOW or name in ("dp", "brute-force")]
WHOLE = [name for name in AVAILABLE if "whole" in name]

every_backend = pytest.mark.parametrize("name", AVAILABLE)
arc_flow_backend = pytest.mark.parametrize("name", [n for n in AVAILABLE if n in ARC_FLOW])
general_backend = pytest.mark.parametrize("name", GENERAL)
quick = examples(12)


def check(graph: StageGraph, solution: GraphSolution, *, limited: bool = False) -> None:
    """Hold a solution against enumeration."""
    optimum = BruteForce().solve(graph, Limits()).objective
    assert solution.bound <= optimum * (1 + 1e-12)
    assert solution.bound <= solution.objective
    if solution.path:
        assert graph.is_path(solution.path)
        assert solution.objective == graph.path_time(solution.path)
    if limited:
        return
    if math.isinf(optimum):
        assert solution.status is Status.INFEASIBLE
        assert solution.path == ()
        assert solution.objective == solution.bound == math.inf
    else:
        assert solution.status is Status.OPTIMAL
        assert solution.objective == pytest.approx(optimum, rel=1e-6)
        assert solution.bound == pytest.approx(optimum, rel=3e-6)
    assert solution.stopped_by is Stop.PROOF


@pytest.mark.few(6)
@every_backend
@quick
@given(graph=graphs())
def test_finds_and_proves_the_optimum(name: str, graph: StageGraph) -> None:
    check(graph, BACKENDS[name].solve(graph, Limits()))


@every_backend
@quick
@given(graph=graphs(feasible=False))
def test_agrees_on_graphs_with_and_without_paths(name: str, graph: StageGraph) -> None:
    check(graph, BACKENDS[name].solve(graph, Limits()))


@pytest.mark.few(6)
@general_backend
@quick
@given(graph=general_graphs())
def test_extras_peaks_and_capacities(name: str, graph: StageGraph) -> None:
    check(graph, BACKENDS[name].solve(graph, Limits()))


@general_backend
@examples(5)
@given(graph=general_graphs())
def test_takes_any_path_within_the_capacities_as_a_hint(name: str, graph: StageGraph) -> None:
    paths = sorted(filter(graph.is_path, paths_of(graph)), key=graph.path_time)
    for path in paths[-1:] + paths[:1]:
        check(graph, BACKENDS[name].solve(graph, Limits(), hint=path))


@general_backend
@examples(5)
@given(graph=general_graphs())
def test_a_time_limit_leaves_a_valid_bound_with_capacities(name: str, graph: StageGraph) -> None:
    for seconds in (0.0, 1e-3):
        check(graph, BACKENDS[name].solve(graph, Limits(seconds=seconds)), limited=True)


@general_backend
def test_proves_that_no_path_fits(name: str) -> None:
    graph = odd_one_out()
    reduction = reduced(graph)
    assert (reduction.graph.arcs, incumbent(reduction.graph)) == (graph.arcs, ())
    check(graph, BACKENDS[name].solve(graph, Limits()))


@general_backend
def test_capacities_decide_which_path_is_best(name: str) -> None:
    """Two types: the first is faster, but has devices for one stage only."""
    arcs = [(0, 1, 0, 1, 1.0), (0, 1, 0, 1, 1.5), (1, 2, 1, 1, 2.0), (1, 2, 1, 1, 4.0)]
    graph = dataclasses.replace(
        make_graph(2, arcs, 8), use=np.array([[4, 0], [0, 4], [4, 0], [0, 4]]), capacity=(7, 8)
    )
    assert BACKENDS[name].solve(graph, Limits()).path == (1, 2)


@general_backend
def test_extras_and_peaks_decide_which_path_is_best(name: str) -> None:
    """By time alone the first path would win by 1 s; each stage pays its extra, one the peak."""
    graph = dataclasses.replace(
        make_graph(
            2, [(0, 1, 0, 1, 1.0), (1, 2, 1, 1, 3.0), (0, 1, 0, 2, 2.0), (1, 2, 2, 1, 3.0)], 8
        ),
        extra=np.array([2.0, 0.0, 1.0, 0.5]),
        peaks=np.array([[5.0, 5.0, 5.0, 5.0], [0.0, 2.0, 0.0, 0.5]]),
    )
    solution = BACKENDS[name].solve(graph, Limits())
    assert solution.path == (2, 3)
    assert solution.objective == 26.0 + 1.5 + 5.0 + 0.5


@every_backend
@quick
@given(graph=graphs())
def test_takes_any_path_as_a_hint(name: str, graph: StageGraph) -> None:
    paths = sorted(paths_of(graph), key=graph.path_time)
    check(graph, BACKENDS[name].solve(graph, Limits(), hint=paths[-1]))
    check(graph, BACKENDS[name].solve(graph, Limits(), hint=paths[0]))


@every_backend
@quick
@given(graph=graphs())
def test_a_time_limit_leaves_a_valid_bound(name: str, graph: StageGraph) -> None:
    for seconds in (0.0, 1e-3):
        solution = BACKENDS[name].solve(graph, Limits(seconds=seconds))
        check(graph, solution, limited=True)
        if name != "brute-force":
            assert solution.bound > 0


@every_backend
def test_one_arc(name: str) -> None:
    graph = chain(3.0, micro_batches=5)
    solution = BACKENDS[name].solve(graph, Limits())
    assert solution.path == (0,)
    assert solution.objective == 15.0
    check(graph, solution)


@every_backend
def test_one_micro_batch_is_a_shortest_path(name: str) -> None:
    arcs = [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 2, 0, 2, 6.0), (0, 2, 0, 1, 5.75)]
    solution = BACKENDS[name].solve(make_graph(2, arcs, 1), Limits())
    assert solution.path == (0, 1)
    assert solution.objective == 5.5


@every_backend
def test_many_micro_batches_balance(name: str) -> None:
    arcs = [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 1, 0, 2, 3.0), (1, 2, 2, 1, 3.0)]
    solution = BACKENDS[name].solve(make_graph(2, arcs, 8), Limits())
    assert solution.path == (2, 3)
    assert solution.objective == 27.0


@every_backend
def test_no_path(name: str) -> None:
    graph = make_graph(3, [(0, 1, 0, 1, 1.0), (2, 3, 1, 1, 1.0)], 4)
    check(graph, BACKENDS[name].solve(graph, Limits()))


@every_backend
def test_no_arc(name: str) -> None:
    graph = make_graph(3, [], 4)
    check(graph, BACKENDS[name].solve(graph, Limits()))


@every_backend
@pytest.mark.parametrize("unit", [1e-7, 1e-4, 1.0, 1e5])
def test_seconds_may_be_small_or_large(name: str, unit: float) -> None:
    arcs = [
        (i, j, used, 1, unit * ((j - i) ** 0.9 + 0.1 * ((7 * i + 3 * j) % 5)))
        for i in range(6)
        for j in range(i + 1, 7)
        for used in range(3)
        if (used > 0) == (i > 0)
    ]
    graph = make_graph(6, arcs, 16)
    check(graph, BACKENDS[name].solve(graph, Limits()))


@arc_flow_backend
def test_progress_only_improves(name: str) -> None:
    graph = two_types(layers=16)
    seen: list[tuple[float, float]] = []
    solution = BACKENDS[name].solve(graph, Limits(), progress=lambda *now: seen.append(now))
    assert seen
    assert all(bound <= objective for objective, bound in seen)
    objectives, bounds = [o for o, _ in seen], [b for _, b in seen]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert seen[-1] == (solution.objective, solution.bound)


@arc_flow_backend
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_an_interrupt_keeps_what_was_found(name: str, calls: int) -> None:
    graph = two_types(layers=16)
    best = BACKENDS["dp"].solve(graph, Limits()).objective
    seen: list[tuple[float, float]] = []

    def interrupt(objective: float, bound: float) -> None:
        seen.append((objective, bound))
        if len(seen) == calls:
            raise KeyboardInterrupt

    solution = BACKENDS[name].solve(graph, Limits(), progress=interrupt)
    assert len(seen) <= calls
    assert solution.objective <= seen[-1][0]
    assert min(seen[-1]) <= solution.bound <= best * (1 + 1e-12)
    assert solution.status is Status.OPTIMAL or solution.stopped_by is Stop.USER


@arc_flow_backend
def test_an_error_in_progress_is_the_callers(name: str) -> None:
    def fail(objective: float, bound: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        BACKENDS[name].solve(two_types(layers=16), Limits(), progress=fail)


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE)
def test_ctrl_c_stops_a_long_search(name: str) -> None:
    """In a process of its own: a Ctrl-C that comes too late would end the tests."""
    code = f"""
import json, os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start with it ignored
from ilp_planner.optimize.solvers.base import Limits
from tests.optimize.solvers.graphs import two_types
from tests.optimize.solvers.test_backends import BACKENDS
graph = two_types(layers=56)
known = BACKENDS["dp"].solve(graph, Limits())
threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
solution = BACKENDS[{name!r}].solve(graph, Limits(seconds=100))
valid = 0 < solution.bound <= known.objective <= solution.objective
print(json.dumps([solution.stopped_by, valid]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [Stop.USER, True]


@for_each("name", WHOLE)
def test_a_gap_limit_stops_early(name: str) -> None:
    graph = two_types(layers=20)
    best = BACKENDS["dp"].solve(graph, Limits()).objective
    solution = BACKENDS[name].solve(graph, Limits(gap=0.2))
    assert solution.bound <= best <= solution.objective
    assert relative_gap(solution.objective, solution.bound) <= 0.2
    assert solution.stopped_by in (Stop.GAP, Stop.PROOF)


@pytest.mark.few(5)
@arc_flow_backend
def test_the_dp_agrees_on_a_larger_graph(name: str) -> None:
    graph = two_types(layers=20)
    best = BACKENDS["dp"].solve(graph, Limits()).objective
    solution = BACKENDS[name].solve(graph, Limits())
    assert solution.status is Status.OPTIMAL
    assert solution.objective == pytest.approx(best, rel=1e-6)
    assert solution.bound <= best * (1 + 1e-12)


@arc_flow_backend
def test_capacities_agree_with_nodes_that_count_devices(name: str) -> None:
    best = BACKENDS["dp"].solve(two_types(layers=16), Limits()).objective
    solution = BACKENDS[name].solve(two_types(layers=16, shared=True), Limits())
    assert solution.status is Status.OPTIMAL
    assert solution.objective == pytest.approx(best, rel=1e-6)
    assert solution.bound <= best * (1 + 1e-12)


@arc_flow_backend
def test_a_hint_must_be_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="hint must be a path"):
        BACKENDS[name].solve(chain(1.0, 2.0), Limits(), hint=(1,))


def test_brute_force_refuses_what_it_cannot_finish() -> None:
    arcs = [(i, i + 1, i, 1, 1.0) for i in range(30) for _ in range(2)]
    with pytest.raises(SolverError, match="choose another solver"):
        BruteForce().solve(make_graph(30, arcs, 2), Limits())


def test_an_unknown_milp_solver_is_refused() -> None:
    with pytest.raises(ValueError, match="'highs' or 'scip'"):
        Milp("cplex")  # type: ignore[arg-type]


def test_an_unknown_pulp_solver_is_refused() -> None:
    backend = Pulp("NO_SUCH_SOLVER")
    assert not backend.available()
    with pytest.raises(UsageError, match="NO_SUCH_SOLVER"):
        backend.solve(two_types(layers=16), Limits())


def test_a_solver_whose_log_is_not_read_claims_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """CBC stands in for another solver of PuLP's."""
    monkeypatch.setattr("ilp_planner.optimize.solvers.pulp_backend.CBC", ())
    graph = two_types(layers=20)
    best = BACKENDS["dp"].solve(graph, Limits()).objective
    solution = Pulp("PULP_CBC_CMD", reduce=False).solve(graph, Limits())
    assert solution.objective == pytest.approx(best, rel=1e-6)
    assert 0 < solution.bound < best * (1 - 1e-4)
    assert (solution.status, solution.stopped_by) == (Status.FEASIBLE, Stop.GAP)


def test_a_solver_whose_log_is_not_read_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ilp_planner.optimize.solvers.pulp_backend.CBC", ())
    solution = Pulp("PULP_CBC_CMD").solve(odd_one_out(), Limits())
    assert (solution.status, solution.stopped_by) == (Status.UNKNOWN, Stop.ERROR)
    assert 0 < solution.bound < math.inf


def test_the_registry_names_the_nearest_backend() -> None:
    assert list(registry.backends()) == list(registry.BACKENDS)
    for name in registry.BACKENDS:
        assert registry.get(name).name == name
    with pytest.raises(UsageError, match=r"found 'cpsat' \(did you mean 'cp-sat'\?\)"):
        registry.get("cpsat")
    with pytest.raises(UsageError, match="expected one of dp, cp-sat"):
        registry.get("gurobi")


def test_the_registry_imports_no_solver() -> None:
    code = (
        "import sys, ilp_planner.optimize.solvers.registry as r; r.backends()\n"
        "assert not {'ortools', 'pulp', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
