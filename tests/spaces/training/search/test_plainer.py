"""Of nearly equal plans for a runtime, the plainest: against all plans of small problems."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.search.preference import Grades, Preference, prefer_plain
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.plan import GroupPlan, Replica
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.search import plainer
from ilp_planner.spaces.training.search.parts import MegatronPart
from tests import megatron_cases, runtime_cases
from tests.examples import examples, often
from tests.megatron_cases import FEW, GIB, small_cluster, small_problem
from tests.runtime_cases import problems, runtime_problem

SHARES = (0.001, 0.02, 0.2, 0.9)


def grades(problem: Problem[Any], plan: Any) -> Grades:
    return tuple(problem.space.plainness(problem, plan).values())


def every_plan(problem: Problem[Any]) -> Iterator[GroupPlan]:
    own = problem.space.name == "megatron"
    return (megatron_cases if own else runtime_cases).every_plan(problem)


def assert_plainest(problem: Problem[Any], shares: tuple[float, ...] = SHARES) -> None:
    """The plan that is chosen is the plainest of all legal ones that take hardly longer than the
    fastest, and of equally plain ones the fastest."""
    legal = [
        (grades(problem, plan), found.iteration_time)
        for plan in every_plan(problem)
        if (found := evaluate(problem, plan)).legal
    ]
    for share in shares:
        result = solve(problem, limits=Limits(prefer_plain=share))
        if not legal:
            assert result.status is Status.INFEASIBLE
            continue
        fastest = min(time for _, time in legal)
        plain, time = min(entry for entry in legal if entry[1] <= fastest * (1 + share))
        assert result.plan is not None
        assert result.bound == pytest.approx(fastest, rel=1e-9)
        assert grades(problem, result.plan) == plain
        assert result.objective == pytest.approx(time, rel=1e-9)
        if result.fastest is None:
            assert result.status is Status.OPTIMAL
            continue
        assert result.status is Status.FEASIBLE
        assert result.fastest.status is Status.OPTIMAL
        assert result.fastest.objective == pytest.approx(fastest, rel=1e-9)
        assert grades(problem, result.fastest.plan) > plain


SMALL: dict[str, Callable[[], Problem[Any]]] = {
    "megatron": lambda: small_problem(layers=5, batch=4),
    "megatron, little memory": lambda: small_problem(layers=5, batch=4, memory_limit=2.4 * GIB),
    "megatron, all settings": lambda: small_problem(
        small_cluster(1, 4), layers=3, batch=2, constraints=constraints_of({"recompute": "none"})
    ),
    "megatron, experts": lambda: small_problem(experts=megatron_cases.MIXTURE, batch=4),
    "megatron, two types": lambda: small_problem(small_cluster(1, 1, slow=1), batch=4),
    "torchtitan": lambda: runtime_problem("torchtitan", cluster=small_cluster(2, 1)),
    "deepspeed": lambda: runtime_problem("deepspeed", memory_limit=int(1.35 * GIB)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", often(SMALL, "megatron, little memory", "deepspeed"))
def test_the_plan_is_the_plainest_of_all_that_take_hardly_longer(name: str) -> None:
    assert_plainest(SMALL[name]())


@pytest.mark.slow
@pytest.mark.parametrize("space", ["torchtitan", "deepspeed"])
@examples(6)
@given(data=st.data())
def test_so_it_is_of_random_problems(space: str, data: st.DataObject) -> None:
    assert_plainest(data.draw(problems(space)), shares=(data.draw(st.floats(1e-4, 0.9)),))


def test_the_same_plan_is_chosen_again() -> None:
    one, other = (
        solve(
            small_problem(layers=5, constraints=constraints_of(FEW)),
            limits=Limits(prefer_plain=0.2),
        )
        for _ in range(2)
    )
    assert (one.plan, one.objective, one.bound) == (other.plan, other.objective, other.bound)


def turned(plan: GroupPlan, devices: int) -> GroupPlan:
    """Return a plan with its devices the other way round, in an order that no part has."""

    def other(replica: Replica) -> Replica:
        return replace(replica, devices=tuple(devices - 1 - d for d in replica.devices))

    stages = (replace(s, replicas=tuple(map(other, s.replicas))) for s in plan.stages)
    return replace(plan, stages=tuple(stages))


@pytest.mark.parametrize("of_a_part", [True, False])
def test_plainer_plans_are_found_beside_any_plan(of_a_part: bool) -> None:
    """That of a heuristic or of a file may be of no part of the search."""
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    best = solve(problem).plan
    assert best is not None
    search = problem.space.begin(problem, Task(Limits(prefer_plain=0.5), "auto"))
    own = best if of_a_part else turned(best, problem.cluster.device_count)
    assert any(state.part.holds(own) for state in search.states) is of_a_part
    search.plan, search.evaluation = own, evaluate(problem, own)
    search.objective = evaluate(problem, best).iteration_time
    prefer_plain(search)
    assert search.plan is not None
    assert search.fastest is not None
    assert search.fastest.plan is own
    assert grades(problem, search.plan) < grades(problem, best)


def test_a_search_that_was_ended_may_find_a_faster_plan_on_the_way() -> None:
    """What was chosen before is then compared with that one."""
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    some = islice(every_plan(problem), 0, None, 31)
    slow = max(
        (plan for plan in some if evaluate(problem, plan).legal),
        key=lambda plan: grades(problem, plan),
    )
    search = problem.space.begin(problem, Task(Limits(prefer_plain=0.02), "auto"))
    search.keep(slow, evaluate(problem, slow), 0.0)
    _ = search.states
    prefer_plain(search)
    assert search.plan is not None
    assert grades(problem, search.plan) < grades(problem, slow)
    fastest = search.objective if search.fastest is None else search.fastest.objective
    assert fastest <= search.objective <= fastest * 1.02


def test_classes_are_looked_at_from_the_plainest_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the one that has a plan: of many variants, those of one batch in any order."""
    monkeypatch.setattr(plainer, "FIRST_BATCH", 1)
    monkeypatch.setattr(plainer, "LAST_BATCH", 1)
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    search = problem.space.begin(problem, Task(Limits(prefer_plain=0.5), "auto"))
    problem.space.search(search)
    preference = Preference(search)
    looked: list[Grades] = []
    best_of = plainer._best

    def spy(part: MegatronPart, variant: Variant, *given: Any) -> Any:
        looked.append(plainer._grades(part, variant))
        assert looked[-1] <= preference.chosen.grades[:-1]
        return best_of(part, variant, *given)

    monkeypatch.setattr(plainer, "_best", spy)
    problem.space.offer_plainer(search, preference)
    assert looked
    assert looked == sorted(looked)
    assert preference.chosen.grades < preference.fastest.grades


def test_nothing_is_looked_for_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    search = problem.space.begin(problem, Task(Limits(prefer_plain=0.5), "auto"))
    problem.space.search(search)
    plan = search.plan
    monkeypatch.setattr(search, "goon", lambda: False)
    prefer_plain(search)
    assert search.plan is plan
    assert search.fastest is None
