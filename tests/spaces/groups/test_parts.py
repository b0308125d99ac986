"""The planner's own space: solved plans against every plan, one by one."""

import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.groups import GroupOption
from ilp_planner.costs.layers import layer_costs
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.resource_paths import search_resource_paths
from ilp_planner.optimize.bounds.resource_prices import PricedGraph
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.peers.metis.cluster import metis_cluster_spec
from ilp_planner.plan import GroupStage, Plan, Replica
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.spaces.groups.graphs import LEVELS
from ilp_planner.spaces.groups.parts import GroupPart
from tests.brute import (
    cheapest,
    group_ways,
    random_problem,
    recomputations,
    seatings,
    spread_problem,
)
from tests.examples import everything, examples, for_each, often, thinned
from tests.metis_cases import synthetic_costs

SEEDS = st.integers(0, 2**32 - 1)
LINKS = ("flat", "one", "pairs", "matrix")
FEW = examples(15)
FEWER = examples(4, more=15)
DIFFERING = (2, 7, 43)  # of 60 seeds, some whose best plan has such a stage
SPREAD = (12, 13, 17, 18)  # likewise of 40, with a stage that is spread


def solved(problem: Problem, best: float, **options: str) -> None:
    """Solve, and compare with the least seconds of all plans."""
    result = solve(problem, **options)
    assert result.bound <= best * (1 + 1e-9)
    if np.isinf(best):
        assert result.status is Status.INFEASIBLE
        assert result.plan is None
        return
    assert result.plan is not None
    assert evaluate(problem, result.plan).legal
    assert result.objective == pytest.approx(best, rel=1e-6)
    assert result.gap <= 1e-6
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("links", often(LINKS, "matrix"))
@FEWER
@given(seed=SEEDS)
def test_the_optimum_of_every_plan(links: str, seed: int) -> None:
    problem = random_problem(seed, links=links)
    best, _ = cheapest(problem)
    solved(problem, best)


@pytest.mark.parametrize("links", often(LINKS, "matrix"))
@FEWER
@given(seed=SEEDS)
def test_the_optimum_where_types_differ_in_their_degree(links: str, seed: int) -> None:
    problem = random_problem(seed, links=links, mixed_tp=True)
    best, _ = cheapest(problem)
    solved(problem, best)


@for_each(("links", "seed"), [("matrix", 345896)])
def test_a_part_whose_every_stage_is_closed_is_closed(links: str, seed: int) -> None:
    """Its bound by multipliers alone stayed below the plan, and was derived until the time was
    up."""
    problem = random_problem(seed, links=links, mixed_tp=True)
    best, _ = cheapest(problem)
    solved(problem, best)


@pytest.mark.slow
def test_a_stage_whose_types_differ_in_their_degree_is_saved_proved_and_ranked() -> None:
    """Instances whose best plan has such a stage: read back, it is legal, one that proofs are
    about, and the certificate holds."""
    found = 0
    for seed in range(60) if everything() else DIFFERING:
        problem = random_problem(seed, mixed_tp=True)
        result = solve(problem)
        if result.plan is None or all(len(s.degrees) == 1 for s in result.plan.stages):
            continue
        found += 1
        value = json.loads(json.dumps(encode_plan(result.plan)))
        assert decode_plan(Fields(value, file="plan.json", where="plan")) == result.plan
        assert problem.space.contains(problem, result.plan)
        assert check_certificate(problem, result.certificate).holds
        assert result.objective < solve(alike(problem)).objective
        ranking = solve(problem, top=3).ranking
        assert [entry.evaluation.legal for entry in ranking] == [True] * len(ranking)
    assert found > 2


@pytest.mark.parametrize("links", often(LINKS, "matrix"))
@examples(1, more=36)
@given(seed=SEEDS)
def test_the_optimum_where_stages_may_be_spread(links: str, seed: int) -> None:
    problem = random_problem(seed, links=links, spread=True, sizes=(1, 2, 2, 4))
    best, _ = cheapest(problem)
    solved(problem, best)


@examples(6, more=8)
@given(seed=SEEDS)
def test_the_optimum_where_it_may_well_be_spread(seed: int) -> None:
    problem = spread_problem(seed)
    best, _ = cheapest(problem)
    solved(problem, best)


@pytest.mark.slow
def test_a_stage_that_is_spread_is_proved_ranked_and_worth_it() -> None:
    """Instances whose best plan has such a stage: proofs are about it, the certificate holds, and
    no packed plan is as fast."""
    found = 0
    for seed in range(40) if everything() else SPREAD:
        problem = spread_problem(seed)
        result = solve(problem)
        if result.plan is None:
            continue
        outside = packed_alone(problem).space.outside(packed_alone(problem), result.plan)
        if outside is None:
            continue
        found += 1
        assert "not packed" in outside
        assert problem.space.outside(problem, result.plan) is None
        assert check_certificate(problem, result.certificate).holds
        assert result.objective < solve(packed_alone(problem)).objective
        ranking = solve(problem, top=3).ranking
        assert [entry.evaluation.legal for entry in ranking] == [True] * len(ranking)
        assert ranking[0].plan == result.plan
    assert found > 3


def packed_alone(problem: Problem) -> Problem:
    """Return the problem where stages are packed."""
    return dataclasses.replace(problem, costs=problem.costs.plainest())


@pytest.mark.parametrize("choice", [{"mixed_tp": True}, {"spread": True}], ids=list)
def test_the_best_plan_without_a_choice_is_there_before_others_are_searched(
    choice: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may be chosen besides is never worth less than nothing, however little time there is."""
    problem = random_problem(5, devices=8, **choice)
    plain = solve(packed_alone(problem))
    assert plain.plan is not None
    seen: list[float] = []

    def interrupted(space: Any, search: Any) -> Stop:
        if search.problem is not problem:
            return search_of_before(space, search)
        seen.append(search.objective)
        return Stop.TIME

    search_of_before = GraphSpace.search
    monkeypatch.setattr(GraphSpace, "search", interrupted)
    solve(problem)
    assert seen == [pytest.approx(plain.objective)]


@pytest.mark.slow
@for_each("solver", ["dp", "cp-sat", "milp", "gradient", "anneal"])
@for_each("seed", [3, 14])
def test_solvers_where_stages_may_be_spread(solver: str, seed: int) -> None:
    """Exact ones find the optimum, heuristics a plan, and no bound is above it."""
    problem, best = known_optimum(seed, spread=True)
    result = solve(problem, solver=solver)
    assert result.bound <= best * (1 + 1e-9)
    assert result.objective >= best * (1 - 1e-9)
    if solver in ("dp", "cp-sat", "milp"):
        assert result.objective == pytest.approx(best, rel=1e-6)


@examples(2, more=25)
@given(seed=SEEDS, mixed_tp=st.booleans())
def test_no_legal_plan_beats_the_bound_where_stages_may_be_spread(
    seed: int, mixed_tp: bool
) -> None:
    problem = random_problem(seed, devices=12, spread=True, mixed_tp=mixed_tp, sizes=(2, 2, 4))
    no_plan_beats_the_bound(problem, seed)


def alike(problem: Problem) -> Problem:
    """Return the problem where all replicas of a stage have one degree."""
    costs = layer_costs(problem.costs.profile, problem.cluster, problem.memory_limits)
    return dataclasses.replace(problem, costs=costs)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "asked", [(), ("none", "full"), ("full",), ("block",), ("none", "block"), ("selective",)]
)
@examples(4)
@given(seed=SEEDS)
def test_the_optimum_where_layers_may_be_computed_again(asked: tuple[str, ...], seed: int) -> None:
    problem = random_problem(seed, recomputed=True, asked=asked, devices=4)
    best, _ = cheapest(problem)
    solved(problem, best)


@examples(4, more=12)
@given(seed=SEEDS)
def test_no_legal_plan_beats_the_bound_whatever_it_computes_again(seed: int) -> None:
    """On instances that are too large to enumerate: plans at random, of which the judge says
    which are legal."""
    no_plan_beats_the_bound(random_problem(seed, recomputed=True, devices=12), seed)


@examples(1, more=48)
@given(seed=SEEDS, recomputed=st.booleans())
def test_no_legal_plan_beats_the_bound_where_types_differ_in_their_degree(
    seed: int, recomputed: bool
) -> None:
    problem = random_problem(seed, recomputed=recomputed, devices=10, mixed_tp=True)
    no_plan_beats_the_bound(problem, seed)


def no_plan_beats_the_bound(problem: Problem, seed: int) -> None:
    """Solve, and judge plans at random."""
    bound = solve(problem, limits=Limits(seconds=20, gap=0.02, workers=1)).bound
    random = np.random.default_rng(seed)
    layers = len(problem.costs.chain)
    for _ in range(60):
        batches = int(random.choice(problem.micro_batches))
        ways = group_ways(problem, batches)
        stages = int(random.integers(1, min(problem.max_stages, layers) + 1))
        row = random_row(problem, ways, stages, random)
        if row is None:
            continue
        cuts = sorted(random.choice(np.arange(1, layers), stages - 1, replace=False).tolist())
        ends = (0, *cuts, layers)
        plan = Plan(
            model=problem.model,
            global_batch=problem.global_batch,
            micro_batches=batches,
            stages=tuple(
                GroupStage(
                    start=ends[s],
                    stop=ends[s + 1],
                    replicas=replicas,
                    recompute=pick(recomputations(problem, ends[s], ends[s + 1]), random),
                )
                for s, replicas in enumerate(row)
            ),
        )
        judged = evaluate(problem, plan)
        if judged.legal and problem.space.contains(problem, plan):
            assert judged.iteration_time >= bound * (1 - 1e-9)


def pick(values: Sequence[Any], random: np.random.Generator) -> Any:
    return values[int(random.integers(len(values)))]


def random_row(
    problem: Problem, ways: Sequence[Any], stages: int, random: np.random.Generator
) -> tuple[tuple[Replica, ...], ...] | None:
    """Some groups at random, seated in a row; None where they do not fit, or there are none."""
    if not ways:
        return None
    some = [pick(ways, random) for _ in range(stages)]
    return next((row for row in seatings(problem.cluster, some, stages)), None)


@for_each("seed", thinned(range(100, 108), 3))
def test_the_optimum_on_more_devices(seed: int) -> None:
    problem = random_problem(seed, devices=7)
    best, _ = cheapest(problem)
    solved(problem, best)


@for_each("solver", ["auto", "dp", "cp-sat", "milp", "pulp"])
@for_each("seed", [1, 7, 22])
def test_every_solver_finds_it(solver: str, seed: int) -> None:
    problem, best = known_optimum(seed)
    solved(problem, best, solver=solver)


@cache
def known_optimum(seed: int, *, spread: bool = False) -> tuple[Problem, float]:
    """Return an instance, whose stages may be spread or not, and the least seconds of its plans,
    enumerated once for all solvers."""
    problem = spread_problem(seed, devices=6) if spread else random_problem(seed, devices=6)
    return problem, cheapest(problem)[0]


@for_each("seed", thinned(range(12), 5))
def test_the_optimum_under_another_cost_model(seed: int) -> None:
    """Metis's costs in the planner's space: other groups than Metis has, idle devices too."""
    counts = [{"A": 3}, {"A": 2, "B": 2}, {"B": 3, "A": 2}, {"A": 1, "C": 1, "B": 2}][seed % 4]
    memory = [1000.0, 9.0, 6.0][seed % 3]
    costs = synthetic_costs(counts, 2 + seed % 3, memory=memory, least_sync=-8.0, seed=seed)
    cluster = metis_cluster_spec(costs.formulas.cluster)
    problem = Problem(
        model="made-up",
        cluster=cluster,
        costs=costs,
        space=GroupSpace(),
        global_batch=6,
        micro_batches=(1, 2, 3, 6),
        memory_limits={n: float(cluster.device_types[n].memory) for n in cluster.type_names},
        max_stages=4,
        max_tp=2,
    )
    best, _ = cheapest(problem)
    solved(problem, best)


@FEW
@given(seed=SEEDS)
def test_no_graph_loses_a_plan(seed: int) -> None:
    """The outline is a relaxation; the explicit graph says what the one with a context says."""
    problem = random_problem(seed, devices=6)
    for batches in problem.micro_batches:
        part = GroupPart(problem, batches)
        opened = part.graph(np.inf, None)
        best = search_resource_paths(opened.graph, opened.context)
        outline = part.outline(np.inf)
        assert outline is not None
        bounds = [i.bound for i in PricedGraph(outline.graph).sweep(np.inf)]
        assert min(bounds, default=np.inf) <= best.value * (1 + 1e-9)
        explicit = part.explicit(opened)
        assert explicit is not None
        found = search_resource_paths(explicit.graph)
        assert found.value == pytest.approx(best.value)
        unplaced = part.unplaced(np.inf)
        assert unplaced is not None
        everything = search_resource_paths(unplaced.graph, unplaced.context)
        assert everything.value == pytest.approx(best.value)  # others beat what it has besides
        again = GroupPart(problem, batches)
        for cutoff in (0.9 * best.value, 1.1 * best.value):  # the second one leaves out less
            near = again.graph(cutoff, None)
            found_near = search_resource_paths(near.graph, near.context, cutoff=cutoff)
            assert found_near.value == pytest.approx(best.value if cutoff > best.value else np.inf)
        for search, graph in ((best, opened), (found, explicit)):
            if search.path:
                choices = graph.choice[list(search.path)].tolist()
                assert part.best_links(choices) == pytest.approx(search.value)


@FEW
@given(seed=SEEDS)
def test_no_placement_undercuts_the_best_links(seed: int) -> None:
    problem = random_problem(seed, devices=6)
    part = GroupPart(problem, problem.micro_batches[-1])
    opened = part.graph(np.inf, None)
    found = search_resource_paths(opened.graph, opened.context)
    if found.path:
        choices = opened.choice[list(found.path)].tolist()
        placed = part.placed(choices)
        assert placed.bound >= found.value * (1 - 1e-9)
        if placed.plan is not None:
            cost = problem.costs.plan_cost(placed.plan, problem.cluster).iteration_time
            assert cost == pytest.approx(placed.bound)
            assert [stage.start for stage in placed.plan.stages] == [
                int(opened.graph.start[arc]) for arc in found.path
            ]


@for_each("seed", thinned(range(6), 3))
def test_more_memory_never_hurts(seed: int) -> None:
    problem = random_problem(seed, links="flat")
    found = []
    for factor in (0.5, 1.0, 2.0, 16.0):
        limits = {name: factor * limit for name, limit in problem.memory_limits.items()}
        costs = type(problem.costs)(problem.costs.profile, limits, rates=problem.costs.rates)
        more = dataclasses.replace(problem, costs=costs, memory_limits=limits)
        found.append(solve(more).objective)
    assert found == sorted(found, reverse=True)


def test_odd_tensor_groups_take_no_more_seats_than_they_need() -> None:
    """A node of three seats one group of three, or one of two; not two of two."""
    problem = next(
        p
        for p in map(random_problem, range(200))
        if p.cluster.node_sizes(p.cluster.type_names[0]) == (3,)
        and {2, 3} <= set(p.costs.degrees()[p.cluster.type_names[0]])
    )
    part = GroupPart(problem, 1)
    found = part.catalogue
    of = dict(zip(found.options, found.use, strict=True))
    rest = (0,) * (len(problem.cluster.type_names) - 1)
    three, two = of[GroupOption(3, (1, *rest))], of[GroupOption(2, (1, *rest))]
    assert (three <= found.capacity).all()
    assert (two <= found.capacity).all()
    assert (2 * two > found.capacity).any()


def test_levels_begin_at_none_after() -> None:
    assert LEVELS[0] == 0
    assert (np.diff(LEVELS) > 0).all()


def test_nothing_is_profiled() -> None:
    """No group at all: every B is closed, nothing crashes."""
    problem = random_problem(3)
    part = GroupPart(dataclasses.replace(problem, max_tp=0), 1)
    opened = part.graph(np.inf, None)
    assert opened.graph.arcs == 0
    assert part.outline(np.inf).graph.arcs == 0
    assert solve(dataclasses.replace(problem, max_tp=0)).status is Status.INFEASIBLE


@FEW
@given(seed=SEEDS)
def test_forgotten_tables_are_made_again(seed: int) -> None:
    """Candidates have the same numbers, and cost the same."""
    problem = random_problem(seed)
    part = GroupPart(problem, problem.micro_batches[0])
    before = part.graph(np.inf, None)
    part.chain(np.inf)
    part.forget()
    after = part.graph(np.inf, None)
    assert (before.choice == after.choice).all()
    assert (before.graph.time == after.graph.time).all()
    assert (before.graph.use == after.graph.use).all()
