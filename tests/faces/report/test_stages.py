"""Tables of plans: a row per stage, or per plan of a ranking; nothing that is not proved."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.evaluate import Evaluation, evaluate
from ilp_planner.faces.report.console import BRIEF_WIDTH
from ilp_planner.faces.report.json_report import result_object
from ilp_planner.faces.report.stages import (
    MOST_ROWS,
    describe_samples,
    describe_stages,
    joined,
    ranking_table,
    stage_table,
)
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Ranked
from ilp_planner.plan import GroupStage, OperatorStage, Plan, Replica, Strategy
from ilp_planner.specs.training import Settings
from tests.every_space import every_space, problem_in, result_in
from tests.examples import for_each
from tests.faces.report.texts import A100_ONLY, text_of
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.small import make_plan, make_problem


@pytest.fixture
def room() -> Problem[Any]:
    return room_problem()


# ---- of operators -------------------------------------------------------------------------------


def test_a_row_per_stage_of_operators(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    text = text_of(stage_table(problem, plan, evaluation))
    rows = text.splitlines()
    assert "micro-batch (ms)" in text
    assert "device (GiB)" in text
    assert "split" not in text
    assert rows[2].split() == [
        "0", "0-14", "1,", "part", "of", "2", "0", "1", "1", "3", "of", "15",
        f"{1e3 * evaluation.stages[0].time:.3f}",
        f"{max(evaluation.stages[0].memory) / 2**30:.2f}", "of", "8.00",
    ]  # fmt: skip
    assert rows[3].startswith("    1  15-28")


def test_mixed_strategies_are_shown_as_a_span(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    count = len(problem.costs.chain)
    strategies = [Strategy(tp=2, split=1)] * 5 + [Strategy(dp=2)] * (count - 5)
    stage = OperatorStage(
        start=0, stop=count, first_device=0, device_count=2, strategies=tuple(strategies)
    )
    plan = Plan(model="tiny", global_batch=64, micro_batches=16, stages=(stage,))
    text = text_of(stage_table(problem, plan, evaluate(problem, plan)))
    assert "split" in text
    assert text.splitlines()[2].split()[3:7] == ["0-1", "1-2", "1-2", "0-1"]


def test_no_cell_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    text = text_of(stage_table(problem, plan, evaluate(problem, plan)), width=60)
    assert "…" not in text


# ---- stages that share a row --------------------------------------------------------------------


@given(keys=st.lists(st.integers(0, 2), min_size=1, max_size=90), most=st.integers(3, 20))
def test_every_stage_is_in_one_row(keys: list[int], most: int) -> None:
    rows = joined(keys, most)
    assert [stage for row in rows for stage in row] == list(range(len(keys)))
    assert len(rows) <= most
    unlike = [row for row in rows if len({keys[stage] for stage in row}) > 1]
    assert len(unlike) <= 1
    if not unlike:
        assert all(keys[one[-1]] != keys[other[0]] for one, other in pairwise(rows))


@every_space
def test_tables_have_all_stages_in_rows_that_fit(space: str) -> None:
    problem, result = problem_in(space), result_in(space)
    assert result.plan is not None
    assert result.evaluation is not None
    table = stage_table(problem, result.plan, result.evaluation)
    first = [row[0] for row in table.rows]
    assert stages_in(first) == list(range(result.plan.ranks))
    assert max(map(len, text_of(table, width=BRIEF_WIDTH).splitlines())) <= BRIEF_WIDTH


def stages_in(cells: list[str]) -> list[int]:
    spans = [[int(number) for number in cell.split("-")] for cell in cells]
    return [stage for one in spans for stage in range(one[0], one[-1] + 1)]


def test_many_stages_have_twenty_rows(room: Problem[Any]) -> None:
    """Of 24 stages of one layer, alternately on one and two devices, the middle shares a row."""
    layers = tuple(f"layer {n}" for n in range(24))
    stages, device = [], 0
    for n in range(24):
        own = tuple(range(device, device + 1 + n % 2))
        device += len(own)
        replicas = tuple(Replica(devices=(one,), samples=1) for one in own)
        stages.append(GroupStage(start=n, stop=n + 1, replicas=replicas))
    cluster = replace(room.cluster, nodes=tuple(
        replace(group, count=20) for group in room.cluster.nodes
    ))  # fmt: skip
    costs = SimpleNamespace(chain=layers, name="none")
    wide = replace(room, cluster=cluster, costs=costs)
    plan = Plan(model="m", global_batch=4, micro_batches=2, stages=tuple(stages))
    nothing = Evaluation(violations=(), cost=None)
    table = stage_table(wide, plan, nothing)
    rows = table.rows
    assert len(rows) == MOST_ROWS
    assert rows[10][:2] == ("10-14", "10-14: layer 10 to layer 14, 1 each")
    assert rows[10][4] == "1-2"


def test_stages_that_are_alike_share_a_row(room: Problem[Any]) -> None:
    """But for what they hold: the first of 1F1B holds more micro-batches than the last."""
    plan = room_plan(room, [(0, 1, 1, (0, 1)), (1, 3, 1, (2, 3)), (3, 5, 1, (4, 5))])
    whole = replace(plan, stages=(*plan.stages[:2], replace(plan.stages[2], stop=5)))
    judged = evaluate(room, replace(whole))
    cells = [row[0] for row in stage_table(room, whole, judged).rows]
    assert cells == ["0", "1-2"]


def test_stages_on_devices_in_another_order_have_rows_of_their_own(room: Problem[Any]) -> None:
    """Or nobody could tell which of them has which devices."""
    plan = room_plan(room, [(0, 2, 1, (4, 5)), (2, 4, 1, (2, 3)), (4, 6, 1, (0, 1))])
    nothing = Evaluation(violations=(), cost=None)
    cells = [row[0] for row in stage_table(room, plan, nothing).rows]
    assert cells == ["0", "1", "2"]


# ---- of layers ----------------------------------------------------------------------------------


def test_a_row_per_stage_of_layers(room: Problem[Any]) -> None:
    plan = room_plan(room)
    rows = text_of(stage_table(room, plan, evaluate(room, plan))).splitlines()
    assert rows[2].split()[:5] == ["0", "0:", "embedding", "node", "0:"]
    assert "0: embedding" in rows[2]
    assert "node 0: T4 0-1" in rows[2]
    assert "of 15.00" in rows[2]
    assert "1-5: layer 1 to head" in rows[3]
    assert "nodes 1-2: A100 2-5" in rows[3]
    assert " 2,2 " in rows[3]
    assert "of 80.00" in rows[3]
    assert len(rows) == 4


@for_each(
    ("samples", "text"),
    [((4, 4, 4, 1), "4,4,4,1"), ((2,), "2"), ((4,) * 9 + (1,) * 3, "9 x 4, 3 x 1")],
)
def test_samples_of_the_replicas(samples: tuple[int, ...], text: str) -> None:
    assert describe_samples(samples) == text


def test_equal_stages_in_a_row_are_told_once(room: Problem[Any]) -> None:
    alike = room_plan(room, [(0, 2, 1, (2, 3)), (2, 4, 1, (4, 5)), (4, 6, 1, (0, 1))])
    assert describe_stages(room, alike) == "2 of (2 x A100 tp1 dp2) | 2 x T4 tp1 dp2"


def test_context_parallelism_has_a_column_of_its_own(room: Problem[Any]) -> None:
    """The devices of a replica are tp x cp: 2 x 2 must not be read as a tensor parallelism of 4."""
    two = room_plan(room, [(0, 6, 2, (2, 3, 4, 5))])
    plan, judged = replace(two, settings=Settings(cp=2)), evaluate(room, two)
    heads, row = text_of(stage_table(room, plan, judged)).splitlines()[1:3]
    assert heads.split()[3:6] == ["tp", "cp", "dp"]
    assert " 1   2   2 " in row
    assert describe_stages(room, plan) == "4 x A100 tp1 cp2 dp2"


def test_a_ranking_has_the_gap_of_each_to_its_own_bound(room: Problem[Any]) -> None:
    plans = [room_plan(room), room_plan(room, A100_ONLY)]
    judged = [evaluate(room, plan) for plan in plans]
    ranking = [
        Ranked(plan=plan, evaluation=found, bound=found.iteration_time * share)
        for plan, found, share in zip(plans, judged, (1.0, 0.9), strict=True)
    ]
    rows = text_of(ranking_table(room, ranking)).splitlines()
    assert "2 x T4 tp1 dp2 | 4 x A100 tp2 dp2" in rows[1]
    assert "0 % (proved)" in rows[1]
    assert rows[1].rstrip().endswith("1 5")
    assert "10.00 %" in rows[2]
    result = replace(room_result(room, plans[0]), ranking=tuple(ranking))
    value = result_object(room, result)["ranking"]
    assert [entry["gap"] for entry in value] == [0, pytest.approx(0.1)]
