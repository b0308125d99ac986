"""Sailor's costs to plan with, and what the tables of docs/benchmarks/speed.md say of runs."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupStage, Plan
from ilp_planner.plan import Replica as Group
from tests.benchmarks import peers
from tests.benchmarks.peers import SailorCase, read_sailor
from tests.benchmarks.peers_one import sailor_problem, stages_of
from tests.benchmarks.peers_table import own_table, piper_table, rules_table, sailor_table
from tests.benchmarks.table import shown_table
from tests.sailor_cases import published

SMALL = SailorCase(a100=8, v100=8, batch=32)


def run_of(plans: list[tuple[float, float, bool]], **more: Any) -> dict[str, Any]:
    """Return a run with plans: (seconds at which it came, its seconds, whether it fits) each."""
    return {
        "plans": [
            {"at_s": at, "judged_s": seconds, "load_s": seconds, "fits": fits}
            for at, seconds, fits in plans
        ],
        "gap": 0.0,
        "stages": [{}, {}],
        "wall_s": 9.0,
        **more,
    }


def cells_of(table: str) -> list[str]:
    """Return the cells of the last line."""
    return [cell.strip() for cell in table.splitlines()[-1].split("|")[1:-1]]


def row_of(**more: Any) -> dict[str, Any]:
    """Return a row of Sailor's table."""
    return {
        "case": "sailor: 32 A100 + 96 V100, batch 1024",
        "search_s": [0.67, 7.3],
        "found_s": 5.26,
        "best_s": {"all": 5.0, "one degree": 5.5, "whole": None},
        "peer": run_of([(1.0, 5.3, True), (2.0, 5.1, False), (3.0, 4.5, True)]),
        "native": run_of([(1.0, 4.8, True)], objective_s=4.5, peer_plan_s=6.0),
        **more,
    }


def test_a_plan_that_does_not_fit_is_not_as_good() -> None:
    cells = cells_of(sailor_table([row_of()]))
    assert cells[1:4] == ["0.67 + 7.3", "5.260", "5.000"]
    assert cells[4:] == ["**4.500**", "10.00 %", "0", "1.0", "3.0", "9.0"]
    own = cells_of(own_table([row_of()]))
    assert own[1:] == ["6.000", "**4.500**", "25.00 %", "0", "9.0", "4.800"]
    rules = cells_of(rules_table([row_of()]))
    assert rules[1:] == ["5.000", "10.00 %", "-"]


def test_a_batch_that_sailor_did_not_publish_is_held_to_its_space() -> None:
    cells = cells_of(sailor_table([row_of(found_s=None, search_s=None)]))
    assert cells[1:4] == ["-", "-", "5.000"]
    assert cells[8] == "3.0"


def test_a_run_without_a_plan_has_none() -> None:
    none = run_of([], gap=None, peer_plan_s=None)
    assert cells_of(own_table([row_of(native=none)]))[1:] == ["-"] * 4 + ["9.0", "-"]
    cells = cells_of(sailor_table([row_of(peer=none)]))
    assert cells[4:9] == ["-"] * 5
    row = {"case": "piper: 64 devices", "search_s": "0.19", "load_s": 4.0, "timeline_s": 5.0}
    cells = cells_of(piper_table([{**row, "stages": 3, "peer": run_of([], gap=None, stages=[])}]))
    assert cells == ["64", "0.19", "4.000", "5.000", "3", "-", "-", "0", "-", "-", "-", "9.0"]


def test_the_page_shows_the_results() -> None:
    rows = peers.kept().rows
    assert [row["case"] for row in rows] == [case.name for case in peers.CASES]
    sailor = rows[: len(peers.SAILOR_CASES)]
    assert shown_table("sailor") == sailor_table(sailor)
    assert shown_table("sailor-own") == own_table(sailor)
    assert shown_table("sailor-rules") == rules_table(sailor)
    assert shown_table("piper") == piper_table(rows[len(sailor) :])


def test_plans_are_better_than_the_peers() -> None:
    """The kept plans, by the peers' formulas, by which they fit; and by the planner's own costs."""
    for row in peers.kept().rows:
        known = [row[name] for name in ("found_s", "timeline_s") if row.get(name)]
        known += [row["best_s"]["all"]] if "best_s" in row else []
        plan = row["peer"]["plans"][-1]
        assert plan["fits"]
        own = row.get("native", {})
        assert own.get("objective_s", 0.0) <= (own.get("peer_plan_s") or math.inf)
        assert plan["judged_s"] <= min(known) * (1 + 1e-9)


@pytest.fixture(scope="module")
def problem() -> Problem[Any]:
    return sailor_problem(SMALL, "peer")[0]


def group_plan(problem: Problem[Any], cuts: list[int], tp: int, dp: int) -> Plan[GroupStage]:
    """Return a plan of the first types' devices in order, a sample for each replica."""
    stages, device = [], 0
    for start, stop in pairwise(cuts):
        replicas = []
        for _ in range(dp):
            replicas.append(Group(devices=tuple(range(device, device + tp)), samples=1))
            device += tp
        stages.append(GroupStage(start=start, stop=stop, replicas=tuple(replicas)))
    return Plan(
        model=problem.model,
        global_batch=SMALL.batch,
        stages=tuple(stages),
        micro_batches=SMALL.batch // dp,
    )


@published
@pytest.mark.parametrize(("cuts", "tp", "dp"), [([0, 26], 1, 4), ([0, 10, 26], 2, 2)])
def test_plans_cost_what_sailor_says(
    problem: Problem[Any], cuts: list[int], tp: int, dp: int
) -> None:
    """But for the optimiser's step, and half of a send that waits at the sender."""
    sailor = read_sailor()
    plan = group_plan(problem, cuts, tp, dp)
    stages = stages_of(plan, problem.cluster)
    expected = sailor.seconds(stages, plan.micro_batches)
    found = problem.costs.plan_cost(plan, problem.cluster).iteration_time
    if len(stages) == 1:
        assert found == pytest.approx(expected - sailor.step(stages[0].replicas, 26))
        return
    sent = sailor.send(*(next(iter(stage.replicas)) for stage in stages), cuts[1] - 1)
    assert abs(found - expected) <= (plan.micro_batches - 1) * sent * (1 + 1e-9)


@pytest.mark.slow
@published
def test_a_small_cluster_is_planned(problem: Problem[Any]) -> None:
    from ilp_planner.optimize.solve import solve

    result = solve(replace(problem, micro_batches=(8,)))
    assert result.gap == 0
    assert result.plan is not None
    assert read_sailor().fits(stages_of(result.plan, problem.cluster))
