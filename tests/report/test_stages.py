"""Tables of plans: a row per stage, or per plan of a ranking; nothing that is not proved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.report.json_report import result_object
from ilp_planner.report.stages import (
    describe_samples,
    describe_stages,
    ranking_table,
    stage_table,
)
from ilp_planner.result import Ranked
from ilp_planner.specs.training import Settings
from tests.mixed_cases import room_plan, room_problem, room_result
from tests.report.texts import A100_ONLY, text_of
from tests.small import make_plan, make_problem

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from ilp_planner.problem import Problem


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


@pytest.mark.parametrize(
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
