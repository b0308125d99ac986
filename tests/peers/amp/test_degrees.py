"""AMP's space: what it holds, and that its optimum is the optimum."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.optimize.solvers.registry import get
from ilp_planner.peers.amp.costs import (
    AmpCosts,
    AmpDegrees,
    AmpTables,
    default_nodes,
    ring_slowness,
    sending_slowness,
    slowness,
)
from ilp_planner.peers.amp.degrees import (
    amp_space,
    best_partition,
    configuration_graph,
    default_routes,
    rank_plans,
)
from ilp_planner.peers.amp.partition import best_cut, fixed_routes
from ilp_planner.peers.amp.profile import read_amp
from ilp_planner.peers.amp.search import AmpPart
from tests.amp_cases import (
    EXPERIMENTS,
    clusters,
    content,
    degrees_of,
    entry,
    experiment,
    partition_of,
    profiles,
    published,
    trials,
    write,
)
from tests.examples import examples, for_each

BEST = {"homogeneous": 1.2443, "het_cluster": 1.0617, "het_model": 1.1444}
"""Seconds: AMP's own best plans take 1.2443, 1.0859 and 1.1502 under the same cost."""


def partitions(layers: int, stages: int) -> Iterator[list[int]]:
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        ends = (0, *cuts, layers)
        yield [b - a for a, b in itertools.pairwise(ends)]


@published
@for_each("name", EXPERIMENTS)
def test_the_published_space_and_its_optimum(name: str) -> None:
    """The same degrees as AMP enumerates, each at least as fast as AMP's partition."""
    found = experiment(name)
    costs = AmpCosts(profile=found.profile)
    ranking = rank_plans(costs, found.cluster, found.global_batch)
    best = {plan.degrees: plan for plan in ranking}
    rows = [t for t in trials() if t["experiment"] == name]
    assert set(best) == {degrees_of(trial) for trial in rows}
    assert round(ranking[0].cost, 4) <= BEST[name]
    assert [p.cost for p in ranking] == pytest.approx(sorted(p.cost for p in ranking), rel=1e-12)
    for trial in rows:
        plan = best[degrees_of(trial)]
        amp = costs.terms(
            found.cluster,
            plan.degrees,
            partition_of(trial, found.profile.model),
            found.global_batch,
        )
        assert plan.cost <= amp.total + 1e-12
        assert plan.bound == pytest.approx(plan.cost, rel=1e-12)


@published
def test_what_amp_misses_in_its_winning_degrees() -> None:
    """The partition that is best together with the gradient reduction."""
    found = experiment("het_cluster")
    plan = best_partition(
        AmpCosts(profile=found.profile), found.cluster, AmpDegrees(1, 4, 4, 1), 32
    )
    assert plan is not None
    assert plan.partition == (9, 7, 7, 7)
    assert round(plan.cost, 4) == 1.0617


def test_a_larger_reduction_may_allow_a_smaller_stage_that_sends_less() -> None:
    """Load, sending and reduction trade against each other: the least of one does not settle it."""
    load = np.array([3.0, 3.0, 16.6, 3.0, 6.0, 11.8]) * 1e-3
    ends, held = np.cumsum([0, *load]), np.cumsum([0, 0, 0, 0, 1, 0, 1])
    below = np.tri(6, 7, 0, dtype=bool)
    tables = AmpTables(
        load=np.where(below, 0.0, ends[None, :] - ends[:-1, None]),
        sent=np.array([0, 0, 1e6, 0, 0, 0, 0]),
        reduced=np.where(below, 0.0, 1e4 * (held[None, :] - held[:-1, None])),
        total=float(load.sum()),
        weight=2.0,
    )
    routes = fixed_routes(np.full(2, 6.4e-9), np.array([1.9e-10, 6.4e-10, 6.4e-10]))
    cut = best_cut(tables, routes)
    assert cut is not None
    assert cut.partition == (1, 2, 3)


@examples(100)
@given(st.data())
def test_no_partition_beats_the_best_one(data: st.DataObject) -> None:
    cluster = data.draw(clusters())
    profile = data.draw(profiles(cluster, most_layers=7))
    costs = AmpCosts(profile=profile, repaired=data.draw(st.booleans()))
    batch = data.draw(st.sampled_from([1, 2, 6, 8, 64]))
    try:
        space = amp_space(costs, cluster, batch)
    except InfeasibleError:
        return
    for degrees in space.degrees:
        plan = best_partition(costs, cluster, degrees, batch)
        assert plan is not None
        every = [
            costs.terms(cluster, degrees, partition, batch).total
            for partition in partitions(len(costs.chain), degrees.pp)
        ]
        assert plan.cost == pytest.approx(min(every), rel=1e-12)
        assert plan.bound <= min(every) * (1 + 1e-12)


@examples(20)
@given(st.data())
def test_every_route_counts(data: st.DataObject) -> None:
    """The best cut under a cutoff is the best cut, or none."""
    cluster = data.draw(clusters())
    costs = AmpCosts(profile=data.draw(profiles(cluster)))
    devices = cluster.device_count
    if devices > len(costs.chain):
        return
    degrees = AmpDegrees(1, 1, devices, 1)
    tables, routes = costs.tables(cluster, degrees, 4), default_routes(costs, cluster, degrees)
    best = best_cut(tables, routes)
    assert best is not None
    assert best_cut(tables, routes, best.value) is None
    again = best_cut(tables, routes, best.value * (1 + 1e-9))
    assert again is not None
    assert again.partition == best.partition


@examples(7)
@given(st.data())
def test_backends_agree_on_the_stage_graph(data: st.DataObject) -> None:
    cluster = data.draw(clusters(most_nodes=2))
    costs = AmpCosts(profile=data.draw(profiles(cluster, most_layers=5)))
    batch = data.draw(st.sampled_from([2, 16]))
    devices = cluster.device_count
    pp = data.draw(st.sampled_from([p for p in (1, 2, 4) if devices % p == 0]))
    dp = devices // pp
    if batch % dp or pp > len(costs.chain):
        return
    degrees = AmpDegrees(1, dp, pp, 1)
    best = best_partition(costs, cluster, degrees, batch)
    assert best is not None
    tables = costs.tables(cluster, degrees, batch)
    graph = configuration_graph(tables, default_routes(costs, cluster, degrees))
    for name in ("brute-force", "cp-sat", "milp"):
        solution = get(name).solve(graph, Limits(seconds=20, workers=1))
        assert solution.objective == pytest.approx(best.cost, rel=1e-6)
        assert solution.bound <= best.cost * (1 + 1e-9)
        assert len(solution.path) == pp


@published
@pytest.mark.parametrize("name", ["het_cluster", "het_model"])
def test_a_published_configuration_through_a_backend(name: str) -> None:
    found = experiment(name)
    costs, degrees = AmpCosts(profile=found.profile), AmpDegrees(1, 4, 4, 1)
    part = AmpPart(costs, found.cluster, degrees, found.global_batch, "m")
    solution = get("cp-sat").solve(part.graph(1e9, None).graph, Limits(seconds=60, workers=2))
    assert round(solution.objective, 4) == BEST[name]
    plan = part.plan(solution.path)
    assert plan is not None
    cost = costs.plan_cost(plan, found.cluster)
    assert cost.iteration_time == pytest.approx(solution.objective, rel=1e-12)
    assert len({part.family(arc) for arc in range(part.stage_graph.arcs)}) == 1


# ---- what is left out
# -----------------------------------------------------------------------------


def space_of(values: dict[str, object], path: Path, batch: int = 16) -> tuple[set[int], str]:
    found = read_amp(write(path, values))
    space = amp_space(AmpCosts(profile=found.profile), found.cluster, batch)
    return {d.tp for d in space.degrees}, "; ".join(space.notes)


def test_a_degree_without_profile_is_left_out(tmp_path: Path) -> None:
    """tp 4 fits a node of four and is not profiled."""
    degrees, notes = space_of(content(), tmp_path)
    assert degrees == {1, 2}
    assert notes == "tp 4 left out: not profiled for all of F1, S1"


def test_a_degree_must_be_profiled_on_every_type(tmp_path: Path) -> None:
    values = content()
    values["profiles"]["gpt_F_4"] = entry("fast.large", 4)
    assert space_of(values, tmp_path)[0] == {1, 2}
    values["profiles"]["gpt_S_4"] = entry("slow.large", 4)
    assert space_of(values, tmp_path) == ({1, 2, 4}, "")


def test_a_batch_that_not_every_dp_divides(tmp_path: Path) -> None:
    """AMP's own program stops at an assertion."""
    found = read_amp(write(tmp_path, content()))
    space = amp_space(AmpCosts(profile=found.profile), found.cluster, 12)
    assert {d.dp for d in space.degrees} == {1, 2, 4}
    assert "dp 8 left out: global batch 12 is not a multiple" in space.notes


def test_more_stages_than_layers(tmp_path: Path) -> None:
    values = content()
    values["clusters"]["pair"]["nodes"] = [
        {**values["clusters"]["pair"]["nodes"][0], "id": n} for n in range(5)
    ]
    found = read_amp(write(tmp_path, values))
    costs = AmpCosts(profile=found.profile)
    space = amp_space(costs, found.cluster, 16)
    assert max(d.pp for d in space.degrees) == 5
    assert "pp 10, 20 left out: the model has 8 layers" in space.notes
    assert rank_plans(costs, found.cluster, 16)[0].cost > 0


@pytest.mark.parametrize(("first", "second"), [(4, 2), (2, 4), (3, 1), (6, 4)])
def test_nodes_may_be_unequal_and_any_number(tmp_path: Path, first: int, second: int) -> None:
    """A tensor group stays inside a node, so tp divides every node."""
    values = content()
    for node, gpus in zip(values["clusters"]["pair"]["nodes"], (first, second), strict=True):
        node["gpus"] = gpus
    found = read_amp(write(tmp_path, values))
    for plan in rank_plans(AmpCosts(profile=found.profile), found.cluster, 12):
        tp = plan.degrees.tp
        for group in _groups(plan.devices, tp):
            assert len({found.cluster.node_of[d] for d in group}) == 1


def _groups(devices: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [devices[n : n + size] for n in range(0, len(devices), size)]


def test_nothing_left(tmp_path: Path) -> None:
    values = content()
    for key in ("gpt_F_1", "gpt_S_1"):
        values["profiles"][key]["tp"] = 8
    found = read_amp(write(tmp_path, values))
    profile = replace(
        found.profile, forward={k: v for k, v in found.profile.forward.items() if k[1] == 8}
    )
    with pytest.raises(
        InfeasibleError, match=r"no .tp, dp, pp. of AMP's space uses all 8 devices: tp"
    ):
        amp_space(AmpCosts(profile=profile), found.cluster, 16)


def test_routes_of_a_fixed_placement(tmp_path: Path) -> None:
    """The default placement is the route of its own links."""
    found = read_amp(write(tmp_path, content()))
    costs, degrees = AmpCosts(profile=found.profile), AmpDegrees(1, 2, 4, 1)
    slow, nodes = slowness(found.cluster), default_nodes(found.cluster, degrees)
    routes = fixed_routes(sending_slowness(slow, nodes), ring_slowness(slow, nodes, repaired=False))
    expected = default_routes(costs, found.cluster, degrees)
    assert (routes.sending == expected.sending).all()
    assert (routes.ring == expected.ring).all()
