"""Problems with one plan or a handful are judged; the answer and its certificate are a search's."""

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

import ilp_planner as ilp
from ilp_planner.optimize.result import ALL_JUDGED
from ilp_planner.optimize.solvers.base import PREFER_PLAIN
from ilp_planner.spaces.training.search.few import FEW, few_plans
from ilp_planner.spaces.training.search.possible import megatron_parts

ONE: dict[str, Any] = {
    "gpus": "8xH100",
    "global_batch": 64,
    "tp": 2,
    "pp": 2,
    "cp": 1,
    "virtual_stages": 1,
    "layout": "even",
    "rank_order": "tp-cp-ep-dp-pp",
    "sharding": "optimizer",
    "cp_comm": "p2p",
    "recompute": "none",
    "micro_batch_sizes": [4],
}


def searched(problem: Any, patch: pytest.MonkeyPatch) -> Any:
    with patch.context() as patched:
        patched.setattr("ilp_planner.spaces.training.search.search.few_plans", lambda parts: None)
        return ilp.solve(problem, seconds=60)


def few_of(**said: Any) -> Any:
    problem = ilp.problem("llama3.2-1b", **{**ONE, **said})
    return few_plans(megatron_parts(problem, problem.costs))


def test_the_one_plan_is_proved_by_judging_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = ilp.problem("llama3.2-1b", **ONE)
    result, other = ilp.solve(problem, seconds=60), searched(problem, monkeypatch)
    assert (result.plan, result.status, result.stopped_by, result.objective, result.bound) == (
        other.plan, other.status, other.stopped_by, other.objective, other.bound,
    )  # fmt: skip
    assert result.gap == 0.0
    assert result.bound_source == ALL_JUDGED
    assert f"proved by {ALL_JUDGED}" in result.details
    assert not any("not confirmed" in note for note in result.notes)
    result.save(tmp_path / "plan.json")
    saved = ilp.load(tmp_path / "plan.json")
    assert saved.check().holds


def test_of_a_handful_the_plainest_of_the_fastest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pipelines on one node, both orders of ranks take as long: the usual one is plainer."""
    said = {**ONE, "rank_order": None, "gpus": "16xH100", "pp": [1, 2], "micro_batch_sizes": [16]}
    problem = ilp.problem("llama3.2-1b", **said)
    parts = megatron_parts(problem, problem.costs)
    plans = few_plans(parts)
    assert plans is not None
    assert 1 < len(plans) <= FEW
    result, other = ilp.solve(problem, seconds=60), searched(problem, monkeypatch)
    assert (result.plan, result.objective, result.bound) == (
        other.plan, other.objective, other.bound,
    )  # fmt: skip
    assert result.plan in plans
    near = [ilp.evaluate(problem, plan).iteration_time for plan in plans]
    assert result.bound == min(near)
    plain = [
        tuple(problem.space.plainness(problem, plan).values())
        for plan, time in zip(plans, near, strict=True)
        if time <= min(near) * (1 + PREFER_PLAIN)
    ]
    assert tuple(problem.space.plainness(problem, result.plan).values()) == min(plain)


def test_a_plan_without_the_memory_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ilp.problem("llama3.2-1b", **ONE, headroom="78 GiB")
    result, other = ilp.solve(problem, seconds=60), searched(problem, monkeypatch)
    assert result.plan is None
    assert (result.status, result.reason) == (other.status, other.reason)
    assert "would do" in result.reason


def test_what_leaves_more_to_choose_is_searched() -> None:
    assert len(few_of()) == 1
    assert few_of(layout=None) is None  # cuts between two ranks
    assert len(few_of(layout=None, pp=1)) == 1  # which one rank has none of
    assert few_of(recompute=None) is None
    assert few_of(virtual_stages=[1, 2]) is None
    assert few_of(tp=None, pp=None, micro_batch_sizes=()) is None
    assert len(few_of(micro_batch_sizes=[4, 8])) == 2


def test_problems_can_be_copied_and_sent_whatever_their_jobs_have_found() -> None:
    problem = ilp.problem("llama3.2-1b", **ONE)
    plan = ilp.solve(problem, seconds=60).plan
    for other in (pickle.loads(pickle.dumps(problem)), copy.deepcopy(problem)):
        assert not other.costs.found.on(other.cluster)
        found, again = ilp.evaluate(problem, plan), ilp.evaluate(other, plan)
        assert (again.iteration_time, again.memory) == (found.iteration_time, found.memory)
