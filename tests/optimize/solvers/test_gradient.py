"""The gradient search: its gradient, its paths, and what it does not claim."""

import dataclasses
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.arc_reduction import reduced
from ilp_planner.optimize.solvers.base import GraphSolution, Limits
from ilp_planner.optimize.solvers.brute_force import BruteForce
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from ilp_planner.optimize.solvers.gradient import Gradient, Tuning, _Descent
from ilp_planner.optimize.solvers.soft_graph import SoftGraph, path_counts, soft_graph
from ilp_planner.optimize.solvers.soft_path import decode, path_cost, relaxed
from tests.benchmarks.slicing import slicing
from tests.examples import examples, for_each, thinned
from tests.optimize.solvers.graphs import (
    chain,
    dense_graphs,
    general_graphs,
    graphs,
    make_graph,
    odd_one_out,
    paths_of,
    two_types,
)

FEW = Limits(starts=8)
quick = examples(20)


def soften(graph: StageGraph) -> SoftGraph | None:
    """Return the arrays of what has no dead ends, none without a path."""
    clean = reduced(graph)
    if not clean.graph.arcs:
        return None
    return soft_graph(clean.graph, clean.arcs, clean.bound)


def check(graph: StageGraph, solution: GraphSolution) -> None:
    """Refuse an illegal path, a wrong objective and a wrong bound."""
    optimum = BruteForce().solve(graph, Limits()).objective
    assert solution.bound <= optimum * (1 + 1e-12)
    assert solution.bound <= solution.objective
    if solution.path:
        assert graph.is_path(solution.path)
        assert solution.objective == graph.path_time(solution.path) >= optimum
    else:
        assert solution.objective == math.inf
        assert solution.status in (Status.UNKNOWN, Status.INFEASIBLE)
    if solution.status is Status.OPTIMAL:
        assert solution.objective == pytest.approx(optimum, rel=1e-9)
    if solution.status is Status.INFEASIBLE:
        assert math.isinf(optimum)


# ---- the relaxation -----------------------------------------------------------------------------


@quick
@given(
    graph=general_graphs(),
    seed=st.integers(0, 2**32 - 1),
    q=st.floats(1.0, 6.0),
    p=st.floats(1.0, 30.0),
)
def test_the_gradient_is_that_of_the_relaxed_objective(
    graph: StageGraph, seed: int, q: float, p: float
) -> None:
    """Central differences along random directions; a root is too steep where nothing is used."""
    soft = soften(graph)
    if soft is None:
        return
    # Zeros under a root have no derivative: every value and its sums are kept away from them.
    values = np.maximum(soft.values, 0.05)
    soft = soft._replace(values=values, logs=np.log(values))
    random = np.random.default_rng(seed)
    logits = random.normal(size=soft.size)
    prices = random.random(soft.share.size)
    _, slope = relaxed(soft, logits, q=q, p=p, prices=prices)
    for _ in range(3):
        way = random.normal(size=soft.size)
        step = 1e-5
        ahead, _ = relaxed(soft, logits + step * way, q=q, p=p, prices=prices)
        behind, _ = relaxed(soft, logits - step * way, q=q, p=p, prices=prices)
        size = float(np.abs(slope * way).sum()) + 1e-9 * abs(ahead)
        assert (ahead - behind) / (2 * step) == pytest.approx(slope @ way, abs=1e-4 * size + 1e-8)


@quick
@given(graph=general_graphs(), q=st.floats(1.0, 8.0))
def test_a_certain_path_costs_what_the_graph_says(graph: StageGraph, q: float) -> None:
    """With p large, the mean over segments is the maximum but for 1 % or so."""
    soft = soften(graph)
    if soft is None:
        return
    path = decode(soft, np.zeros(soft.size), 1.0, 7)
    if not path.size:
        return
    arcs = soft.path(path)
    known = graph.path_time(arcs)
    cost = path_cost(soft, path) * soft.scale
    assert cost == pytest.approx(known, rel=1e-9)
    logits = np.full(soft.size, -200.0)
    logits[path] = 0.0
    value, _ = relaxed(soft, logits, q=q, p=1000.0, prices=np.zeros(soft.share.size))
    assert value * soft.scale == pytest.approx(known, rel=0.02)


@quick
@given(graph=graphs())
def test_paths_are_counted(graph: StageGraph) -> None:
    soft = soften(graph)
    assert soft is not None
    counted = math.exp(path_counts(soft)[0])
    assert counted == pytest.approx(len(paths_of(graph)))


@quick
@given(graph=general_graphs(), seed=st.integers(0, 2**31 - 1))
def test_what_is_decoded_is_a_path_or_nothing(graph: StageGraph, seed: int) -> None:
    soft = soften(graph)
    if soft is None:
        return
    path = decode(soft, np.zeros(soft.size), 1.0, seed)
    assert not path.size or graph.is_path(soft.path(path))


# ---- the search ---------------------------------------------------------------------------------


@quick
@given(graph=general_graphs())
def test_paths_are_legal_and_good(graph: StageGraph) -> None:
    solution = Gradient().solve(graph, FEW)
    check(graph, solution)
    optimum = BruteForce().solve(graph, Limits()).objective
    # These have tens of arcs: what is missed altogether would be a fault, not bad luck.
    assert solution.objective <= optimum * 1.05


@quick
@given(graph=dense_graphs())
def test_hard_maxima_are_found(graph: StageGraph) -> None:
    solution = Gradient().solve(graph, FEW)
    assert solution.objective <= BruteForce().solve(graph, Limits()).objective * 1.02


@quick
@given(graph=graphs(feasible=False))
def test_graphs_without_a_path_are_told(graph: StageGraph) -> None:
    solution = Gradient().solve(graph, FEW)
    check(graph, solution)
    optimum = BruteForce().solve(graph, Limits()).objective
    assert (solution.status is Status.INFEASIBLE) == math.isinf(optimum)


def test_where_devices_run_out_nothing_is_claimed() -> None:
    solution = Gradient().solve(odd_one_out(), FEW)
    assert (solution.status, solution.path) == (Status.UNKNOWN, ())
    assert 0 < solution.bound < math.inf
    assert solution.stopped_by is Stop.EFFORT


@examples(7)
@given(graph=general_graphs())
def test_a_hint_is_never_made_worse(graph: StageGraph) -> None:
    for path in sorted(filter(graph.is_path, paths_of(graph)), key=graph.path_time)[-1:]:
        solution = Gradient().solve(graph, Limits(starts=2), hint=path)
        check(graph, solution)
        assert solution.objective <= graph.path_time(path)


def test_a_hint_must_be_a_path() -> None:
    with pytest.raises(ValueError, match="hint must be a path"):
        Gradient().solve(chain(1.0, 2.0), FEW, hint=(1,))


@for_each("starts", [1, 2, 64])
def test_any_number_of_starts(starts: int) -> None:
    problem = slicing(24, 8, 5)
    graph = problem.graph()
    solution = Gradient().solve(graph, Limits(starts=starts))
    optimum = ChainDP().solve(graph, Limits()).objective
    assert problem.value(solution.objective) <= 1.05 * problem.value(optimum)


def test_a_seed_gives_the_same_path_with_any_number_of_threads() -> None:
    graph = two_types(layers=20, shared=True)
    answers = [
        Gradient().solve(graph, Limits(starts=8, seed=seed, workers=workers))
        for seed, workers in ((3, 1), (3, 2), (3, 4), (4, 2))
    ]
    assert answers[0] == answers[1] == answers[2]
    assert all(graph.is_path(answer.path) for answer in answers)


def test_devices_are_shared_within_the_capacities() -> None:
    graph = two_types(layers=24, shared=True)
    best = ChainDP().solve(two_types(layers=24), Limits()).objective
    solution = Gradient().solve(graph, Limits(starts=16))
    assert graph.is_path(solution.path)
    assert best * (1 - 1e-9) <= solution.objective <= best * 1.01
    assert (solution.status, solution.stopped_by) == (Status.FEASIBLE, Stop.EFFORT)
    assert 0 < solution.bound <= best


@for_each(("layers", "stages"), thinned([(12, 4), (24, 12), (48, 12), (64, 16), (128, 50)], 2))
def test_slicing_problems_within_5_percent(layers: int, stages: int) -> None:
    for seed in thinned((11, 12), 2):
        problem = slicing(layers, stages, seed)
        graph = problem.graph()
        optimum = problem.value(ChainDP().solve(graph, Limits()).objective)
        solution = Gradient().solve(graph, Limits())
        assert len(solution.path) == stages
        assert optimum <= problem.value(solution.objective) <= 1.05 * optimum


def test_one_micro_batch_is_a_shortest_path() -> None:
    arcs = [(0, 1, 0, 1, 5.0), (1, 2, 1, 1, 0.5), (0, 2, 0, 2, 6.0), (0, 2, 0, 1, 5.75)]
    solution = Gradient().solve(make_graph(2, arcs, 1), FEW)
    assert (solution.path, solution.objective) == ((0, 1), 5.5)


@for_each("unit", [1e-7, 1.0, 1e5])
def test_seconds_may_be_small_or_large(unit: float) -> None:
    graph = slicing(24, 8, 1).graph()
    scaled = dataclasses.replace(graph, time=graph.time * unit, extra=graph.extra * unit)
    found = Gradient().solve(scaled, FEW).objective
    assert found == pytest.approx(unit * Gradient().solve(graph, FEW).objective, rel=1e-9)


# ---- limits -------------------------------------------------------------------------------------


@examples(5)
@given(graph=general_graphs())
def test_without_time_there_is_a_valid_bound(graph: StageGraph) -> None:
    for seconds in (0.0, 1e-3):
        solution = Gradient().solve(graph, Limits(seconds=seconds))
        check(graph, solution)
        assert solution.bound > 0


def test_a_time_limit_is_kept() -> None:
    graph = two_types(layers=48, shared=True)
    Gradient().solve(graph, Limits(seconds=0.1, starts=2))  # compiled
    solution = Gradient().solve(graph, Limits(seconds=0.2, starts=100_000))
    assert solution.path
    assert solution.stopped_by is Stop.TIME


def test_a_gap_limit_stops_early() -> None:
    solution = Gradient().solve(slicing(36, 8, 0).graph(), Limits(gap=0.9))
    assert solution.status is Status.FEASIBLE
    assert solution.stopped_by is Stop.GAP


def test_many_starts_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = slicing(24, 8, 2).graph()
    lean = Tuning(most_kept=6 * graph.arcs, cut=0.0)
    kept: list[int] = []

    class Watched(_Descent):
        def _forget(self, members: NDArray[np.int64]) -> None:
            super()._forget(members)
            kept.append(max(len(self.logits), len(self.visits)))

    monkeypatch.setattr("ilp_planner.optimize.solvers.gradient._Descent", Watched)
    first = Gradient(lean).solve(graph, Limits(starts=40))
    assert 4 <= max(kept) <= 6
    assert first == Gradient(lean).solve(graph, Limits(starts=40))


def test_progress_only_improves() -> None:
    seen: list[tuple[float, float]] = []
    solution = Gradient().solve(
        two_types(layers=20, shared=True), FEW, progress=lambda *now: seen.append(now)
    )
    assert all(bound <= objective for objective, bound in seen)
    objectives, bounds = [o for o, _ in seen], [b for _, b in seen]
    assert objectives == sorted(objectives, reverse=True)
    assert bounds == sorted(bounds)
    assert seen[-1] == (solution.objective, solution.bound)


@for_each("calls", [1, 2, 3])
def test_an_interrupt_keeps_what_was_found(calls: int) -> None:
    seen: list[tuple[float, float]] = []

    def interrupt(objective: float, bound: float) -> None:
        seen.append((objective, bound))
        if len(seen) == calls:
            raise KeyboardInterrupt

    solution = Gradient().solve(two_types(layers=20, shared=True), FEW, progress=interrupt)
    assert len(seen) == calls
    assert solution.objective <= seen[-1][0]
    assert solution.bound >= seen[-1][1]
    assert solution.stopped_by is Stop.USER


@pytest.mark.slow
def test_ctrl_c_stops_a_long_search() -> None:
    """In a process of its own: a Ctrl-C that comes too late would end the tests."""
    code = """
import json, os, signal, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start with it ignored
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.gradient import Gradient
from tests.optimize.solvers.graphs import two_types
graph = two_types(layers=30, shared=True)
Gradient().solve(graph, Limits(starts=2))  # loads what is compiled
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
solution = Gradient().solve(graph, Limits(seconds=100, starts=1_000_000))
print(json.dumps([solution.stopped_by, graph.is_path(solution.path)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [Stop.USER, True]


def test_it_says_that_it_proves_nothing() -> None:
    assert not Gradient.proves
    assert registry.get("gradient").name == "gradient"
