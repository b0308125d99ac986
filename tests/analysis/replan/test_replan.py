"""Both plans of a changed problem, against every plan of it one by one."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilp_planner.analysis.replan.changes import Changes
from ilp_planner.analysis.replan.machines import machines, moves
from ilp_planner.analysis.replan.replan import Replanned, Tried, least_moved, replan
from ilp_planner.analysis.why.why import Case
from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.base.files import Document
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.replan import replan_object, resized
from ilp_planner.formats.saved_check import judge_saved
from ilp_planner.formats.saved_plan import SavedPlan, saved_result
from ilp_planner.formats.versions import versions
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.job.holdings import NOBODY
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.registry import build_problem
from ilp_planner.spaces.training import space as megatron_space
from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from tests.megatron_cases import FEW, MIXTURE, every_plan, small_cluster, small_model

CLOSE = 1e-9  # relative
LONG = 600.0  # seconds: what is tested does not depend on time


def held(name: str, text: str) -> Reference:
    """Return an input that a request holds itself."""
    return Reference(name=name, sha256=Document(name, text).sha256, text=text)


def case_of(
    cluster: ClusterSpec,
    space: str = "megatron",
    *,
    model: dict[str, Any] | None = None,
    batch: int = 8,
    **said: object,
) -> Case:
    """Return the fastest plan of a small model on a cluster."""
    said = {**(FEW if space == "megatron" else {}), **said}
    request = Request(
        files={
            "model": held("small", model_text(small_model(**{"layers": 3, **(model or {})}))),
            "cluster": held("small", cluster_text(cluster)),
            "profile": Reference(name="analytic"),
        },
        space=space,
        global_batch=batch,
        constraints=constraints_of(said),
    )
    problem = build_problem(InputFiles(request))
    saved = saved_result(problem, solve(problem), versions())
    return case_with(problem, saved)


def case_with(problem: Problem[Any], saved: SavedPlan) -> Case:
    """Return a plan that is asked about."""
    judged = judge_saved(problem, saved, certificate=False)
    return Case(judgement=judged, name="plan.json", folders=(), workers=1)


def replanned(case: Case, *, slack: float = 0.05, cluster: str = "", **said: object) -> Replanned:
    """Return both plans."""
    batch = said.pop("global_batch", None)
    assert batch is None or isinstance(batch, int)
    changes = Changes(demands=constraints_of(said), cluster=cluster, global_batch=batch)
    return replan(case, changes, deadline=Deadline(LONG), slack=slack)


def fewest(found: Replanned, plan: GroupPlan) -> float:
    """Return the bytes that a plan moves with the best of all orders of machines."""
    known, problem = found.before.machines, found.problem
    new = problem.space.holdings(problem, plan)
    best = math.inf
    places = range(len(known.before))
    for seats in itertools.permutations([*places, *[NOBODY] * len(known.after)], len(known.after)):
        if all(s == NOBODY or known.may[n, s] for n, s in enumerate(seats)):
            before = known.devices_before(seats)
            total = moves(found.before.holdings, new, before, known.alive).total
            best = min(best, total)
    return best


def legal(found: Replanned) -> list[tuple[float, GroupPlan]]:
    """Return all plans of the changed problem that are fast enough, with their seconds."""
    assert found.fastest is not None
    limit, problem = found.fastest.seconds * (1 + found.slack), found.problem
    judged = ((evaluate(problem, plan), plan) for plan in every_plan(problem))
    return [
        (one.iteration_time, plan)
        for one, plan in judged
        if one.legal and one.iteration_time <= limit and problem.space.contains(problem, plan)
    ]


def shares(plan: GroupPlan) -> object:
    """Return what decides which share of its stage a rank holds."""
    settings = plan.settings
    assert settings is not None
    degrees = (plan.ranks, plan.stages[0].tp, plan.stages[0].dp, settings.cp, settings.ep)
    devices = [stage.devices for stage in plan.stages[: plan.ranks]]
    return str((degrees, settings.etp, settings.order, settings.optimizer.sharding, devices))


def stops(plan: GroupPlan) -> tuple[int, ...]:
    """Return where stages end."""
    return tuple(stage.stop for stage in plan.stages)


def even(plan: GroupPlan) -> bool:
    """Tell whether all stages have equally many layers."""
    sizes = np.diff([1, *stops(plan)[:-1], stops(plan)[-1] - 1])
    return len(set(sizes.tolist())) == 1


def check_named(found: Replanned, before: GroupPlan) -> None:
    """See that no plan of the named set that is fast enough moves less than the one found, and that
    the bound on bytes holds for all plans."""
    assert found.least is not None
    assert found.fastest is not None
    every, least = legal(found), found.least
    assert least.proved
    assert least.moving.seconds <= found.fastest.seconds * (1 + found.slack)
    assert least.moving.bytes <= found.fastest.bytes * (1 + CLOSE)
    best: dict[object, float] = {}
    for seconds, plan in every:
        best[shares(plan)] = min(seconds, best.get(shares(plan), math.inf))
    known: dict[object, float] = {}
    for seconds, plan in every:
        like = (plan.ranks, plan.virtual) == (before.ranks, before.virtual)
        kept = like and stops(plan) == stops(before)
        first = seconds <= best[shares(plan)]
        if not (kept or even(plan) or first):
            continue
        key = (shares(plan), stops(plan))
        if key not in known:
            known[key] = fewest(found, plan)
        # Of plans that take equally long, any may be the fastest.
        ties = sum(s == seconds and shares(p) == shares(plan) for s, p in every)
        if kept or even(plan) or ties == 1:
            assert known[key] >= least.moving.bytes * (1 - CLOSE)
    exact = fewest(found, least.moving.plan)  # type: ignore[arg-type]
    assert exact == pytest.approx(least.moving.bytes)


CASES = {
    "loses a node": (small_cluster(3, 2), {"without": "2"}, {}),
    "loses a middle node": (small_cluster(3, 2, between=2e9), {"without": "1", "slack": 0.5}, {}),
    "fewer devices": (small_cluster(3, 1), {"max_devices": 2, "slack": 0.3}, {}),
    "another batch": (small_cluster(2, 2, between=1e9), {"global_batch": 12, "slack": 0.2}, {}),
    "experts": (small_cluster(2, 2), {"without": "0", "slack": 0.3}, {"experts": MIXTURE}),
}


@pytest.mark.parametrize(
    "name",
    [
        "fewer devices",
        *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if n != "fewer devices"),
    ],
)
def test_no_plan_of_the_set_that_is_fast_enough_moves_less(name: str) -> None:
    cluster, said, model = CASES[name]
    case = case_of(cluster, model=model)
    found = replanned(case, **said)  # type: ignore[arg-type]
    assert case.plan.settings is not None
    check_named(found, case.plan)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    ["fewer devices", *(pytest.param(n, marks=pytest.mark.slow) for n in CASES if "node" in n)],
)
def test_no_plan_of_a_family_moves_less_than_its_bound(name: str) -> None:
    cluster, said, model = CASES[name]
    found = replanned(case_of(cluster, model=model), **{**said, "slack": 0.9})  # type: ignore[arg-type]
    problem, positive = found.problem, 0
    search = problem.space.begin(problem, Task(Limits(), "dp"))
    bounds = {
        shares(family.plan): Tried(found.before, problem, family).at_least  # type: ignore[arg-type]
        for family in problem.space.families(search, math.inf)
    }
    known: set[object] = set()
    for _, plan in legal(found):
        key = (shares(plan), stops(plan))
        if key not in known:
            known.add(key)
            bound = bounds[shares(plan)]
            assert fewest(found, plan) >= bound * (1 - CLOSE)
            positive += bound > 0
    assert positive


@pytest.fixture(scope="module")
def lost() -> Replanned:
    """Both plans of a job that has lost a node."""
    return replanned(case_of(small_cluster(3, 2)), without="1")


def test_a_plan_that_stays_moves_nothing() -> None:
    """With more samples the same ranks can go on."""
    found = replanned(case_of(small_cluster(2, 2, between=1e9)), global_batch=12, slack=0.5)
    assert found.least is not None
    assert found.least.moving.bytes == 0.0
    assert found.least.moving.seated.moves.from_checkpoint == 0.0


def test_what_was_not_looked_through_in_time_is_not_proved(lost: Replanned) -> None:
    """The bound on bytes that is said then is still one of all plans of the set."""
    assert lost.fastest is not None
    problem = lost.problem
    search = problem.space.begin(problem, Task(Limits(), "dp"))
    limit = lost.fastest.seconds * 1.9
    found = least_moved(lost.before, search, lost.fastest, limit, lambda: False)
    whole = least_moved(lost.before, search, lost.fastest, limit, lambda: True)
    assert not found.proved
    assert whole.proved
    assert found.at_least <= whole.moving.bytes <= found.moving.bytes
    assert whole.moving.bytes < lost.fastest.bytes


def test_nothing_is_proved_where_the_parts_were_not_listed_in_time(
    lost: Replanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A space lists its parts when they are first asked for, and looks at the clock."""

    def no_time(*arguments: object) -> None:
        raise OutOfTimeError

    assert lost.fastest is not None
    monkeypatch.setattr(megatron_space, "megatron_parts", no_time)
    problem = lost.problem
    search = problem.space.begin(problem, Task(Limits(), "dp"))
    limit = lost.fastest.seconds * 1.9
    found = least_moved(lost.before, search, lost.fastest, limit, lambda: True)
    assert not found.proved
    assert found.alone == "the time was up before"
    assert found.moving.bytes <= lost.fastest.bytes


def test_machines_keep_their_numbers_where_no_byte_is_at_stake(lost: Replanned) -> None:
    assert lost.fastest is not None
    assert lost.before.machines.called(lost.fastest.seated.seats) == ("node0", "node2")


def test_what_a_lost_node_alone_had_is_read(lost: Replanned) -> None:
    """States are divided among all ranks of a stage: those of the lost ones are nowhere else."""
    assert lost.fastest is not None
    found = lost.fastest.seated.moves
    gone = ~lost.before.machines.alive
    states = lost.before.holdings.bytes[gone].sum()
    assert 0 < found.from_checkpoint <= states + lost.before.holdings.bytes[gone].max()
    total = found.kept.sum() + found.total + found.from_checkpoint
    assert total == pytest.approx(found.needed.sum())


def test_devices_that_are_not_used_any_more_hand_on_what_they_hold() -> None:
    case = case_of(small_cluster(2, 2))
    (gone, left) = (
        replanned(case, **said).fastest for said in ({"without": "1"}, {"max_devices": 2})
    )  # type: ignore[arg-type]
    assert gone is not None
    assert left is not None
    assert left.seated.moves.from_checkpoint == 0.0
    assert gone.seated.moves.from_checkpoint > 0.0
    assert left.bytes == pytest.approx(gone.bytes + gone.seated.moves.from_checkpoint)


def test_added_machines_take_up_all_that_they_need() -> None:
    found = replanned(case_of(small_cluster(1, 2)), cluster="2xA100-80GB")
    assert found.fastest is not None
    assert found.fastest.seated.seats == (NOBODY,)  # of another type
    assert found.fastest.bytes == pytest.approx(found.fastest.seated.moves.needed.sum())
    assert found.before.machines.called((NOBODY,)) == ("another machine",)


# Devices of the nodes before and after -> machines that a node with another number of them may be.
RESIZED = {
    "lost a device": ((4,), (3,), {(0, 0)}),
    "got one": ((3,), (4,), {(0, 0)}),
    "one of two": ((2, 2), (2, 1), {(1, 0), (1, 1)}),
    "all are there": ((4, 2), (2, 4), set()),
    "a larger one was added": ((2, 2), (2, 2, 4), set()),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", RESIZED)
def test_a_machine_keeps_what_its_other_devices_hold(name: str, tmp_path: Path) -> None:
    """Nodes of a size of which there are fewer than before are those of one that is new."""
    before, after, expected = RESIZED[name]
    own, other = (
        replace(
            small_cluster(1, 1), nodes=tuple(NodeGroup(device="a100", devices=n) for n in sizes)
        )
        for sizes in (before, after)
    )
    (tmp_path / "other.toml").write_text(cluster_text(other))
    case = case_of(own, space="groups") if len(set(before)) > 1 else case_of(own)
    old = case.problem
    new = replace(old, cluster=other, files=None)
    known = machines(old, new, Changes(cluster="other.toml"))
    sized = np.array([[a != b for b in before] for a in after])
    assert {*map(tuple, np.argwhere(known.may & sized).tolist())} == expected
    if len(after) > 1:
        return
    found = replanned(case, cluster=str(tmp_path / "other.toml"), slack=0.5)
    assert found.fastest is not None
    assert found.least is not None
    assert found.fastest.seated.seats == (0,)
    assert found.before.machines.called((0,)) == ("node0",)
    for plan in found.plans.values():
        assert plan.seated.moves.kept.sum() > 0
        assert plan.bytes == pytest.approx(fewest(found, plan.plan))  # type: ignore[arg-type]
    (said,) = resized(found)
    assert said.startswith(f"node0 has {after[0]} GPUs instead of {before[0]}: ")
    assert f"machines: {said}" in replan_object(found)["notes"]


def test_bounds_that_hold_are_taken() -> None:
    found = replanned(case_of(small_cluster(2, 2)), headroom="1 GiB")
    (note,) = (note for note in found.result.notes if note.startswith("start"))
    assert "parts are that file's" in note
    assert found.least is not None
    assert found.least.moving.bytes == 0.0


def test_what_cannot_be_asked_is_refused() -> None:
    case = case_of(small_cluster(2, 2))
    for said, message in (
        ({"without": "node7"}, "found 'node7', expected a node of small: node0 to node1"),
        ({"without": "0,1"}, "expected one or more to be left"),
        ({}, "found no change"),
    ):
        with pytest.raises(UsageError, match=message):
            replanned(case, **said)  # type: ignore[arg-type]


def test_plans_of_groups_move_what_their_stages_hold() -> None:
    """On a mixed cluster, a node of each type stays what it is, and the fastest plan is told."""
    case = case_of(small_cluster(2, 2, slow=1), space="groups")
    found = replanned(case, without="1")
    assert found.least is not None
    assert found.fastest is not None
    assert found.least.moving.bytes <= found.fastest.bytes
    assert found.fastest.bytes == pytest.approx(fewest(found, found.fastest.plan))  # type: ignore[arg-type]
    assert found.least.among.startswith("the fastest plan, and the one of before")
    assert found.least.alone == "space groups does not sort them by what moves"
    assert not found.least.proved
    named = found.before.machines.called(found.fastest.seated.seats)
    assert named == ("node0", "node2")


def test_a_space_that_does_not_say_what_devices_hold_is_refused() -> None:
    case = case_of(small_cluster(2, 1), space="groups")
    problem = replace(case.problem, spec=None)
    with pytest.raises(PlanError, match="found groups, which does not say"):
        replanned(case_with(problem, case.judgement.saved), without="1")


def test_a_plan_that_is_not_legal_is_refused() -> None:
    case = case_of(small_cluster(2, 2))
    less = dict.fromkeys(case.problem.memory_limits, 1.0)
    problem = replace(case.problem, memory_limits=less)
    with pytest.raises(PlanError, match="says what would make it fit"):
        replanned(case_with(problem, case.judgement.saved), without="1")


def test_a_plan_saved_with_what_moves_is_one_that_its_file_holds(lost: Replanned) -> None:
    """The plan that moves least, saved, is judged to be what it is said to be."""
    wide = replanned(lost.case, without="1", slack=0.9)
    assert wide.least is not None
    for plan in wide.plans.values():
        result = wide.result_of(plan)
        judged = judge_saved(wide.problem, saved_result(wide.problem, result), certificate=False)
        assert judged.faults == ()
        assert any(note.startswith("machines: ") for note in result.notes)
        if plan.seconds > wide.result.bound * (1 + 1e-6):
            assert result.status is Status.FEASIBLE
