"""Simulated annealing: what it returns is a path, what it claims is true, and it is often good."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solvers.anneal import Anneal
from ilp_planner.optimize.solvers.anneal_graph import Arcs, Kinds, Room, chance
from ilp_planner.optimize.solvers.anneal_moves import recut, regroup
from ilp_planner.optimize.solvers.base import GraphSolution, Limits
from ilp_planner.optimize.solvers.brute_force import BruteForce
from ilp_planner.optimize.solvers.chain_dp import ChainDP
from tests.examples import examples, for_each
from tests.optimize.solvers.graphs import chain, general_graphs, graphs, paths_of, two_types

FEW = Limits(starts=4, workers=1)
quick = examples(12)


def solve(graph: StageGraph, limits: Limits = FEW, effort: float = 0.1) -> GraphSolution:
    return Anneal(effort).solve(graph, limits)


def check(graph: StageGraph, solution: GraphSolution) -> float:
    """Hold an answer against enumeration; return the optimum."""
    optimum = BruteForce().solve(graph, Limits()).objective
    assert solution.bound <= optimum * (1 + 1e-12)
    assert solution.bound <= solution.objective
    assert solution.objective >= optimum
    if solution.path:
        assert graph.is_path(solution.path)
        assert solution.objective == graph.path_time(solution.path)
        found = solution.status is Status.OPTIMAL
        assert found == (solution.bound >= solution.objective * (1 - 1e-9))
    else:
        assert math.isinf(solution.objective)
        assert solution.status in (Status.UNKNOWN, Status.INFEASIBLE)
    if solution.status is Status.INFEASIBLE:
        assert math.isinf(optimum)
    return optimum


@quick
@given(graph=graphs())
def test_finds_the_best_path_of_small_graphs(graph: StageGraph) -> None:
    optimum = check(graph, solution := solve(graph))
    assert solution.objective == pytest.approx(optimum, rel=1e-9)


@quick
@given(graph=graphs(feasible=False))
def test_a_graph_without_a_path_is_infeasible(graph: StageGraph) -> None:
    optimum = check(graph, solution := solve(graph))
    assert (solution.status is Status.INFEASIBLE) == math.isinf(optimum)


@quick
@given(graph=general_graphs())
def test_extras_peaks_and_capacities(graph: StageGraph) -> None:
    check(graph, solve(graph))


def test_finds_near_all_optima_with_capacities() -> None:
    """Few of them are missed: the draws are random, the graphs are not."""
    missed = []

    @examples(20)
    @given(graph=general_graphs())
    def look(graph: StageGraph) -> None:
        optimum = check(graph, solution := solve(graph))
        if math.isfinite(optimum):
            missed.append(solution.objective > optimum * (1 + 1e-9))

    look()
    assert sum(missed) <= 0.1 * len(missed)


@pytest.mark.parametrize("shared", [False, True])
def test_is_near_the_optimum_of_a_larger_graph(shared: bool) -> None:
    graph = two_types(24, shared=shared)
    optimum = ChainDP().solve(graph, Limits()).objective
    assert solve(graph, Limits(starts=16, workers=1), 1.0).objective <= 1.05 * optimum


@quick
@given(graph=general_graphs(), seed=st.integers(0, 5))
def test_a_seed_says_it_all(graph: StageGraph, seed: int) -> None:
    limits = dataclasses.replace(FEW, seed=seed)
    one = solve(graph, limits)
    assert one.path == solve(graph, dataclasses.replace(limits, workers=3)).path


def test_more_starts_are_more_chances() -> None:
    graph = two_types(24, shared=True)
    few, many = (
        np.mean([solve(graph, Limits(starts=n, seed=s, workers=1), 0.02).objective for s in (0, 1)])
        for n in (1, 32)
    )
    assert many <= few


def test_a_hint_is_never_lost() -> None:
    graph = two_types(24, shared=True)
    path = ChainDP().solve(graph, Limits()).path
    solution = Anneal(0.01).solve(graph, Limits(starts=1), hint=path)
    assert solution.objective == graph.path_time(path)
    with pytest.raises(ValueError, match="hint must be a path"):
        Anneal().solve(graph, Limits(), hint=path[:1])


def test_one_path_is_proved() -> None:
    solution = solve(chain(1.0, 2.0, 1.5))
    assert (solution.status, solution.stopped_by) == (Status.OPTIMAL, Stop.PROOF)


def test_too_few_devices_are_seen() -> None:
    graph = dataclasses.replace(chain(1.0, 2.0), use=np.array([[2, 0], [3, 1]]), capacity=(4, 1))
    assert solve(graph).status is Status.INFEASIBLE


def test_an_empty_graph_has_no_path() -> None:
    graph = chain(1.0).only(np.zeros(0, np.int64))
    assert solve(graph).status is Status.INFEASIBLE


def test_without_time_there_is_a_bound_and_perhaps_a_path() -> None:
    graph = two_types(24)
    solution = solve(graph, dataclasses.replace(FEW, seconds=0.0))
    assert solution.stopped_by is Stop.TIME
    assert 0 < solution.bound <= ChainDP().solve(graph, Limits()).objective


def test_an_interrupt_keeps_the_best_path() -> None:
    graph = two_types(24, shared=True)

    def interrupt(objective: float, bound: float) -> None:
        if math.isfinite(objective):
            raise KeyboardInterrupt

    solution = Anneal().solve(graph, FEW, progress=interrupt)
    assert solution.stopped_by is Stop.USER
    assert graph.is_path(solution.path)


# ---- moves --------------------------------------------------------------------------------------


def test_draws_are_spread() -> None:
    state = np.array([7], np.uint64)
    draws = np.array([chance(state) for _ in range(4000)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert np.histogram(draws, 10, (0, 1))[0].min() > 300


@given(seed=st.integers(1, 2**32), length=st.integers(1, 6))
@examples(100)
def test_exchanged_groups_use_the_same_devices(seed: int, length: int) -> None:
    """But for the last tenth of the moves, which change one group to any other."""
    keys = np.array([1, 2, 4, 8], np.int64)
    state = np.array([seed], np.uint64)
    kinds = np.zeros(8, np.int64)
    kinds[:length] = [int(4 * chance(state)) for _ in range(length)]
    before = kinds[:length].copy()
    count = regroup(state, keys, kinds, length)
    assert abs(count - length) <= 1 or count == 0
    assert kinds[:count].max(initial=0) < 4
    if count and keys[kinds[:count]].sum() != keys[before].sum():
        assert count == length
        assert (kinds[:length] != before).sum() == 1


def test_groups_in_a_row_are_cut_as_well_as_they_can_be() -> None:
    """Of all paths with these kinds one after the other, none costs less."""
    graph = two_types(12, shared=True)
    order = np.lexsort((graph.head, graph.tail))
    graph = graph.only(order)
    keys, kind = np.unique(graph.use @ np.array([1, 100]), return_inverse=True)
    first = np.searchsorted(graph.tail, np.arange(graph.nodes + 1)).astype(np.int64)
    sources = np.isin(np.arange(graph.nodes), graph.sources)
    by_kind = np.lexsort((kind, graph.tail))
    arcs = Arcs(
        graph.head, graph.tail, graph.time, graph.extra, graph.peaks, graph.use,
        np.array(graph.capacity), first, sources, graph.sink, 0.0,
    )  # fmt: skip
    room = Room(
        np.empty((2, graph.nodes)), np.zeros(graph.nodes + 1, np.int64),
        np.empty((graph.operators, graph.nodes), np.int64), np.empty((2, graph.nodes), np.int64),
    )  # fmt: skip
    rows: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for path in paths_of(graph):
        rows.setdefault(tuple(kind[list(path)].tolist()), []).append(path)
    for wanted, paths in list(rows.items())[::50]:
        found = np.zeros(graph.operators + 1, np.int64)
        length, _ = recut(
            arcs, Kinds(by_kind, kind, keys), np.array(wanted), len(wanted), np.zeros(1), room,
            found,
        )  # fmt: skip
        path = found[:length].tolist()
        assert tuple(kind[path].tolist()) == wanted
        least = min(graph.time[list(p)].sum() for p in paths)
        assert graph.time[path].sum() == pytest.approx(least)
    assert keys.size > 2


@for_each("seed", [0, 1, 2])
def test_one_start_shares_out_devices_well(seed: int) -> None:
    graph = two_types(seed=seed, shared=True)
    best = Anneal().solve(graph, Limits(starts=64)).objective
    for draw in range(4):
        found = Anneal().solve(graph, Limits(starts=1, workers=1, seed=draw))
        assert found.objective <= 1.05 * best
