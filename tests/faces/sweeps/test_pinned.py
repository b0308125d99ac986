"""Points that leave nothing to choose are judged, not searched, and share what others have found:
their rows are those of single solves that search and know nothing, to the digit."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from ilp_planner.faces.sweeps.axes import axis_of
from ilp_planner.faces.sweeps.journal import Row
from ilp_planner.faces.sweeps.points import Sweep
from ilp_planner.faces.sweeps.work import Task, solve_point
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.spaces.training import build
from ilp_planner.spaces.training.search.search import judge_each
from tests.examples import examples
from tests.faces.sweeps.cases import LIMITS

PINNED: dict[str, object] = {
    "sharding": "optimizer", "cp_comm": "p2p", "rank_order": "tp-cp-ep-dp-pp", "layout": "even",
}  # fmt: skip
DENSE: dict[str, object] = {
    **PINNED,
    "gpus": ["8xH100", "16xA100-80GB"],
    "global_batch": [32, 64],
    "tp": [1, 2, 8],
    "pp": [1, 2, 4, 8],
    "cp": [1, 2],
    "virtual_stages": [1, 2],
    "micro_batch_sizes": [1, 2, 4],
    "recompute": ["none", "core_attn", "full"],
    "headroom": ["1 GiB", "70 GiB"],
}
SWEEPS: dict[str, tuple[str, dict[str, object]]] = {
    "dense": ("llama3.2-1b", DENSE),
    "experts": (
        "qwen3-30b-a3b",
        {**DENSE, "gpus": ["16xH100"], "cp": [1], "ep": [1, 4, 8], "headroom": ["1 GiB", "30 GiB"]},
    ),
    "torchtitan": (
        "llama3.2-1b",
        {
            "runtime": "torchtitan",
            "gpus": ["8xH100"],
            "tp": [1, 2],
            "pp": [1, 2],
            "cp": [1],
            "layout": "even",
            "virtual_stages": [1, 2],
            "sharding": ["optimizer", "parameters"],
            "sharding_copies": 1,
            "micro_batch_sizes": [1, 2],
            "recompute": ["none", "full"],
            "schedule": "1f1b",
            "compile": "off",
            "global_batch": [32],
        },
    ),
    "deepspeed": (
        "llama3.2-1b",
        {
            "runtime": "deepspeed",
            "gpus": ["8xH100"],
            "tp": [1, 2],
            "pp": [1, 2],
            "layout": "even",
            "sharding": ["none", "optimizer"],
            "micro_batch_sizes": [1, 2],
            "recompute": ["none", "full"],
            "global_batch": [32],
        },
    ),
}


def pinned_sweep(name: str) -> Sweep:
    model, vary = SWEEPS[name]
    axes = tuple(axis_of(field, values) for field, values in vary.items())
    return Sweep(base=Request(files={"model": Reference(name=model)}), axes=axes, limits=LIMITS)


def row(sweep: Sweep, number: int) -> Row:
    """Return the row of a point, but for how long it took."""
    task = Task(number, sweep.request(sweep.point(number)), sweep.limits)
    found = solve_point(task).row
    found.pop("wall_s", None)
    return found


def searched(sweep: Sweep, numbers: Sequence[int], patch: pytest.MonkeyPatch) -> list[Row]:
    """Return the rows of points that are searched, each by a process that knows nothing yet."""
    found = []
    with patch.context() as patched:
        patched.setattr("ilp_planner.spaces.training.search.search.few_plans", lambda parts: None)
        for number in numbers:
            build._estimated.cache_clear()
            found.append(row(sweep, number))
    build._estimated.cache_clear()
    return found


@pytest.mark.parametrize("name", SWEEPS)
@examples(3, more=16, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pinned_points_are_what_single_searches_find(
    name: str, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    sweep = pinned_sweep(name)
    some = data.draw(st.lists(st.integers(0, sweep.size - 1), min_size=2, max_size=4))
    alone = searched(sweep, some, monkeypatch)
    assert [row(sweep, number) for number in some] == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "step"), [("dense", 29), ("experts", 97), ("torchtitan", 2), ("deepspeed", 2)]
)
def test_points_of_these_sweeps_leave_next_to_nothing_to_choose(
    name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guard the guard: some have plans, some have too little memory, some contradict themselves."""
    judged: list[bool] = []

    def counted(search: Any, plans: Any) -> Any:
        judged.append(True)
        return judge_each(search, plans)

    monkeypatch.setattr("ilp_planner.spaces.training.search.search.judge_each", counted)
    sweep = pinned_sweep(name)
    rows = [row(sweep, number) for number in range(0, sweep.size, step)]
    plans = [one for one in rows if one["status"] == "optimal"]
    small = [one for one in rows if "more memory than it has" in one.get("reason", "")]
    wrong = [one for one in rows if one not in (*plans, *small)]
    assert len(plans) > 3
    # On all nodes, and on half of them where that is possible as well.
    assert len(plans) + len(small) <= len(judged) <= 2 * len(rows)
    if name in ("dense", "experts"):
        assert min(len(small), len(wrong)) > 3


def test_a_plan_that_is_alone_is_no_start_for_others() -> None:
    sweep = pinned_sweep("deepspeed")
    tasks = (Task(n, sweep.request(sweep.point(n)), sweep.limits) for n in range(sweep.size))
    outcome = next(one for one in map(solve_point, tasks) if one.row["status"] == "optimal")
    assert outcome.row["gap"] == 0.0
    assert outcome.start is None
