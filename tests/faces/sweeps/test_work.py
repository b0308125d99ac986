"""What a point is found to be does not depend on the neighbour that it starts from."""

from dataclasses import replace
from pathlib import Path

import pytest

from ilp_planner.faces.sweeps.journal import FAILED
from ilp_planner.faces.sweeps.points import Sweep
from ilp_planner.faces.sweeps.work import Task, solve_point
from tests.faces.sweeps.cases import LIMITS, sweep_of
from tests.small import write_specs


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_all_devices_are_used_where_that_is_asked(tmp_path: Path) -> None:
    nodes = "".join(f'[[nodes]]\ncount = 1\ndevice = "{name}"\ndevices = 8\n' for name in "ab")
    types = '[devices.a]\ngpu = "A100-80GB"\n[devices.b]\ngpu = "H100-80GB"\n'
    link = '[links.inter_node]\nbandwidth = "100 Gbit/s"\nlatency = "30 us"\n'
    (tmp_path / "two.toml").write_text(f'name = "two"\n{nodes}{types}{link}')
    asked = sweep_of("llama3.2-1b", cluster=[str(tmp_path / "two.toml")], global_batch=[16])
    whole = replace(asked, all_devices=True)
    request = asked.request(asked.point(0))
    task = Task(0, request, asked.limits)
    rows = [solve_point(each).row for each in (task, task._replace(all_devices=True))]
    assert rows[0]["step_s"] < rows[1]["step_s"]
    assert (rows[0]["gpus_used"], rows[1]["gpus_used"]) == (8, 16)
    assert asked.key(request) != whole.key(request)


def test_what_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = sweep_of(gpus="8xH100", layers=[2])
    task = Task(0, sweep.request(sweep.point(0)), sweep.limits)

    def fail(*given: object, **said: object) -> None:
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("ilp_planner.spaces.objectives.any_nodes.build_problem", fail)
    row = solve_point(task).row
    assert row == {
        "status": FAILED,
        "reason": "this is a bug in ilp-plan: ZeroDivisionError: of nothing",
    }
