"""AMP's space as a whole: which of its programs speak of free placements."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.program import write_program
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.peers.amp.build import AmpSpace
from ilp_planner.peers.amp.costs import AmpCosts
from ilp_planner.peers.amp.models import AmpModel
from ilp_planner.peers.amp.profile import GIGABIT, AmpNode, AmpProfile, amp_cluster
from ilp_planner.plan import GroupStage, Plan, Replica
from tests.every_space import problem_in, result_in
from tests.examples import for_each

OTHERS = ("cp-sat", "milp", "pulp")


def slow_node_between() -> Problem[Any]:
    """Return three layers of which the first sends much, on nodes of which the second is far."""
    nodes = [
        AmpNode(
            number=number,
            instance=f"i{number}",
            gpu="G",
            gpus=1,
            memory=2**34,
            within=50 * GIGABIT,
            between=speed * GIGABIT,
        )
        for number, speed in enumerate((50, 1, 50))
    ]
    cluster = amp_cluster("three", nodes)[0]
    model = AmpModel(
        name="three",
        layers=("first", "second", "third"),
        sent=np.array([1e7, 0.0, 0.0]),
        split=np.array([False, False, False]),
        parameters=np.full(3, 1e9),  # so many that replicas cost more than stages
        tied=np.array([False, False, False]),
        tied_parameters=0.0,
        rows=(0, 1, 2),
        profiled=3,
    )
    names = [cluster.device_types[kind].profile for kind in cluster.type_names]
    forward = {(name, 1): np.full(3, 0.01) for name in names}
    profile = AmpProfile(source="amp:three", model=model, forward=forward)
    return Problem(
        model="three",
        cluster=cluster,
        costs=AmpCosts(profile=profile, repaired=True),
        global_batch=8,
        micro_batches=(1, 2, 4, 8),
        memory_limits=dict.fromkeys(cluster.type_names, 1e30),
        max_stages=3,
        max_tp=1,
        space=AmpSpace(free=True),
    )


@pytest.mark.parametrize(
    ("groups", "rule", "have"),
    [
        ([[(0, 4)], [(1, 2), (2, 2)]], "degrees", "(tp, dp) (1, 1), (1, 2)"),
        ([[(0, 1), (1, 3)]], "degrees", "replicas with 1, 3 samples"),
    ],
)
def test_plans_without_a_price_break_a_rule(groups: Any, rule: str, have: str) -> None:
    problem = slow_node_between()
    ends = [0, *range(1, len(groups)), 3]
    stages = tuple(
        GroupStage(
            start=ends[s],
            stop=ends[s + 1],
            replicas=tuple(Replica(devices=(d,), samples=x) for d, x in replicas),
        )
        for s, replicas in enumerate(groups)
    )
    plan = Plan(model="three", global_batch=8, micro_batches=2, stages=stages)
    evaluation = evaluate(problem, plan)
    assert evaluation.cost is None
    assert [(v.rule, v.have) for v in evaluation.violations] == [(rule, have)]


def test_a_tensor_degree_without_rows_breaks_a_rule() -> None:
    problem = problem_in("amp")
    replica = Replica(devices=(0, 1, 2, 3), samples=problem.global_batch)
    stage = GroupStage(start=0, stop=len(problem.costs.chain), replicas=(replica,))
    plan = Plan(
        model=problem.model, global_batch=problem.global_batch, micro_batches=1, stages=(stage,)
    )
    assert [str(broken) for broken in evaluate(problem, plan).violations] == [
        "plan: profiled: found tp 4, expected a row of the profile for every device type"
    ]


@for_each("solver", OTHERS)
def test_graphs_prove_nothing_of_free_placements(solver: str) -> None:
    """They hold AMP's own order: their optimum there is above plans that are placed otherwise."""
    problem = slow_node_between()
    free, found = solve(problem), solve(problem, solver=solver)
    assert free.gap == 0
    ordered = solve(dataclasses.replace(problem, space=AmpSpace()), solver=solver)
    assert ordered.bound > 1.1 * free.objective
    assert found.bound <= free.objective
    assert found.objective == free.objective
    assert f"{solver}: no stage graph holds free placements" in " ".join(found.notes)
    assert solver not in " ".join(ordered.notes)


def test_free_placements_are_not_ranked() -> None:
    with pytest.raises(UsageError, match="top: found 2 with `placement=free`, where only the best"):
        solve(problem_in("amp, free"), top=2)
    assert len(solve(problem_in("amp"), top=2).ranking) == 2


def test_a_program_of_one_order_confirms_no_free_placement(tmp_path: Path) -> None:
    problem, result = problem_in("amp, free"), result_in("amp, free")
    assert result.gap == 0
    assert result.plan is not None
    assert not result.confirmed_by
    assert "not confirmed by cp-sat: no integer program says it" in result.notes[-1]
    with pytest.raises(PlanError, match="whose ranks were placed freely"):
        write_program(problem, result.plan, result.certificate, "lp", tmp_path / "program.lp")
    assert result_in("amp").confirmed_by == "cp-sat"


# ---- which plans proofs are about: devices 0 to 3 are one node, 4 to 7 another ------------------


def plan_on(*stages: list[tuple[int, ...]], samples: tuple[int, ...] = (2, 2)) -> Plan[Any]:
    """Return a plan of stages with replicas on such devices, of a batch of 16."""
    problem = problem_in("amp")
    ends = [8 * s // len(stages) for s in range(len(stages) + 1)]
    return Plan(
        model=problem.model,
        global_batch=16,
        micro_batches=16 // sum(samples),
        stages=tuple(
            GroupStage(
                start=ends[s],
                stop=ends[s + 1],
                replicas=tuple(
                    Replica(devices=devices, samples=n)
                    for devices, n in zip(replicas, samples, strict=False)
                ),
            )
            for s, replicas in enumerate(stages)
        ),
    )


ORDERED = plan_on([(0, 1), (2, 3)], [(4, 5), (6, 7)])
UNEQUAL = "degrees: they differ from stage to stage, or samples from replica to replica"
OTHER_ORDER = "devices: another order of ranks than AMP's"
SEVERAL_NODES = "devices: a replica on several nodes"


@for_each(
    ("plan", "ordered", "free"),
    [
        (ORDERED, [], []),
        (plan_on([(0, 1), (2, 3)], [(4, 5), (7, 6)]), [OTHER_ORDER], []),
        (plan_on([(4, 5), (6, 7)], [(0, 1), (2, 3)]), [OTHER_ORDER], []),
        (plan_on([(0, 4), (1, 2)], [(3, 5), (6, 7)]), [OTHER_ORDER], [SEVERAL_NODES]),
        (plan_on([(0, 1), (2, 3)], [(4,), (5,)]), [UNEQUAL], [UNEQUAL]),
        (plan_on([(0, 1), (2, 3)], [(4, 5), (6, 7)], samples=(1, 3)), [UNEQUAL], [UNEQUAL]),
    ],
)
def test_proofs_are_about_equal_degrees_in_amps_order_or_any(
    plan: Plan[Any], ordered: list[str], free: list[str]
) -> None:
    problem = problem_in("amp")
    assert list(AmpSpace().exclusions(problem, plan)) == ordered
    assert list(AmpSpace(free=True).exclusions(problem, plan)) == free


def test_proofs_are_about_numbers_of_micro_batches_that_are_tried() -> None:
    problem = dataclasses.replace(problem_in("amp"), micro_batches=(2,))
    (said,) = AmpSpace().exclusions(problem, ORDERED)
    assert said.startswith("degrees: ")
    assert said.endswith(" is not tried")


def test_whether_placements_are_free_is_a_choice_and_is_said() -> None:
    problem, ordered, free = problem_in("amp"), AmpSpace(), AmpSpace(free=True)
    assert (ordered.options(), free.options()) == ({}, {"placement": "free"})
    assert (ordered.threaded, free.threaded) == (False, True)
    begins = "plans with 1, 2, 4, 8, 16 micro-batches, every device used, equal degrees in all "
    assert ordered.describe(problem) == f"{begins}stages and AMP's order of ranks"
    assert free.describe(problem) == f"{begins}stages and any placement of ranks"


def test_what_is_no_plan_of_layers_is_not_looked_at_further() -> None:
    """Other degrees in other stages are no second mistake of a plan that lacks samples."""
    problem, plan = problem_in("amp"), plan_on([(0, 1), (2, 3)], [(4,), (5,)])
    found = AmpSpace().check_whole(problem, dataclasses.replace(plan, micro_batches=2))
    assert [broken.rule for broken in found] == ["samples", "samples"]


# ---- how it is searched -------------------------------------------------------------------------


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what is done by programs that do nothing."""
    done: list[Any] = []

    class Hunt:
        def __init__(self, search: Any, states: Any) -> None:
            done.append(("states", states is search.states))

        def run(self) -> None:
            done.append("hunt")

        def ranked(self) -> list[int]:
            return [5, 3, 1, 0]

    def note(name: str, answer: Any = None) -> Any:
        def program(search: Any, *rest: Any, **free: Any) -> Any:
            done.append((name, *rest, *free.values()))
            return answer

        return program

    amp, search = "ilp_planner.peers.amp", "ilp_planner.optimize.search"
    monkeypatch.setattr(f"{search}.graph_hunt.GraphHunt", Hunt)
    monkeypatch.setattr(f"{amp}.search.run_amp", note("amp"))
    monkeypatch.setattr(f"{amp}.search.anneal_amp", note("anneal"))
    monkeypatch.setattr(f"{amp}.search.anneal_placements", note("place"))
    monkeypatch.setattr(f"{search}.graph_certificate.graph_bounds", note("bounds", [1.5]))
    monkeypatch.setattr(f"{search}.graph_certificate.last_of_graphs", note("last", "cuts"))
    return done


def state(**said: Any) -> Any:
    usual = {"solver": "auto", "notes": [], "states": [], "gap_reached": lambda: True}
    return SimpleNamespace(**{**usual, **said})


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize(("reached", "stop"), [(True, Stop.PROOF), (False, Stop.TIME)])
def test_its_own_program_says_what_stopped_it(
    free: bool, reached: bool, stop: Stop, did: list[Any]
) -> None:
    search = state(gap_reached=lambda: reached)
    assert AmpSpace(free=free).search(search) is stop
    assert did == [("amp", free)]
    assert search.notes == []


def test_proofs_and_programs_are_of_its_own_order(did: list[Any]) -> None:
    search, plan, records = state(), ORDERED, [{"bound_s": 1.5}]
    assert list(AmpSpace().prove(search, records)) == [1.5]
    assert AmpSpace().last_problem(search, plan) == "cuts"
    assert did == [("amp", False), ("bounds", records), ("last", plan)]
    assert AmpSpace(free=True).last_problem(search, plan) is None


def test_degrees_and_placements_are_annealed(did: list[Any]) -> None:
    assert AmpSpace(free=True).anneal(state())
    assert did == [("anneal", True)]


@pytest.mark.parametrize(("starts", "placed"), [(1, [5]), (31, [5]), (47, [5, 3]), (48, [5, 3, 1])])
def test_cuts_in_amps_order_are_placed_where_that_is_free(
    starts: int, placed: list[int], did: list[Any]
) -> None:
    """The best of them: one for every 16 starts, at least one."""
    search = state(solver="gradient", limits=SimpleNamespace(starts=starts))
    AmpSpace().look(search)
    assert did == [("states", True), "hunt"]
    did.clear()
    AmpSpace(free=True).look(search)
    assert did == [("states", False), "hunt", ("place", placed)]
    assert search.notes == ["gradient: cuts in AMP's own order of ranks; annealing placed"]
