"""What a point is found to be does not depend on the neighbour that it starts from."""

from pathlib import Path

import pytest

from ilp_planner.sweeps.points import Sweep
from ilp_planner.sweeps.row import FAILED
from ilp_planner.sweeps.work import Task, solve_point
from tests.small import write_specs
from tests.sweeps.cases import LIMITS, sweep_of


def check_starts(sweep: Sweep) -> None:
    """Solve every point from nothing, and from every other point; no plan is below a bound of its
    point, whoever proved it."""
    tasks = [Task(n, sweep.request(sweep.point(n)), sweep.limits) for n in range(sweep.size)]
    alone = [solve_point(task) for task in tasks]
    assert any(outcome.start is not None for outcome in alone)
    for task, cold in zip(tasks, alone, strict=True):
        for other in alone:
            warm = solve_point(task._replace(start=other.start)).row
            assert warm["status"] == cold.row["status"]
            if "step_s" in cold.row:
                least = min(warm["step_s"], cold.row["step_s"])
                assert max(warm["bound_s"], cold.row["bound_s"]) <= least * (1 + 1e-9)
                assert abs(warm["step_s"] - cold.row["step_s"]) <= 2 * LIMITS.prefer_plain * least


def test_starts_of_operators(tmp_path: Path) -> None:
    write_specs(tmp_path)
    check_starts(
        sweep_of(
            str(tmp_path / "tiny.toml"),
            cluster=[str(tmp_path / "pair.toml")],
            memory=["1 GiB", "8 GiB"],
        )
    )


@pytest.mark.slow
def test_starts_of_plans_for_megatron() -> None:
    check_starts(sweep_of("llama3.2-1b", gpus="2,4xH100", headroom=["1GiB", "40GiB"], tp=["1", 2]))


def test_what_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(gpus="8xH100", layers=[2])
    task = Task(0, sweep.request(sweep.point(0)), sweep.limits)

    def fail(*given: object, **said: object) -> None:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("ilp_planner.objectives.any_nodes.build_problem", fail)
    row = solve_point(task).row
    assert row == {
        "status": FAILED,
        "reason": "this is a bug in ilp-plan: ZeroDivisionError: of nothing",
    }
