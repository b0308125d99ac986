"""What is proved of a part of operators, and what its open graph says, by hand and by listing."""

import math
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.fewest import FewestBehind
from ilp_planner.optimize.bounds.operator_part import (
    BOUNDS,
    CONFIRM_ROUNDING,
    DIGITS,
    EFFORT_GROWTH,
    EFFORT_PER_SECOND,
    FEW_STATES,
    FIRST_EFFORT,
    NEARLY,
    SUMS,
    OperatorPart,
)
from ilp_planner.optimize.bounds.pipeline import Landscape
from ilp_planner.optimize.bounds.pipelines import Place
from ilp_planner.optimize.bounds.stages import EXACT
from tests.optimize.bounds.test_pipeline import Listed
from tests.tiny import fastest_memory, least_memory, make_problem, random_profile, with_limit

SAME = 1e-9  # relative


def part_of(problem: Problem) -> OperatorPart:
    return OperatorPart(problem, problem.micro_batch_sizes[0])


def small(**options: Any) -> Problem:
    """Return a problem of operators of one kind."""
    operators = ("enc-MLP-gelu",) * options.pop("operators", 4)
    profile = random_profile(1, operators[:1], micro_batches=(1,), degrees=(1,), ties=0.0)
    return make_problem(
        operators, "gpt", profile, cost_model="native", limit=2.0**50, micro_batches=(1,),
        **{"global_batch": 12, "devices": 4, "group_sizes": (1,), **options},
    )  # fmt: skip


@cache
def problem() -> Problem:
    """Return a problem on two devices, with room for four plans: on both with two options, or one
    after the other, between the leanest plan and the fastest one."""
    operators = ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3")
    profile = random_profile(3, operators, micro_batches=(1, 2), degrees=(1, 2), ties=0.0)
    loose = make_problem(
        operators, "resnet", profile, cost_model="native", limit=math.inf, micro_batches=(2,),
        global_batch=12,
    )  # fmt: skip
    least, most = least_memory(loose), fastest_memory(loose)
    return with_limit(loose, least + 0.9 * (most - least))


@cache
def known() -> Listed:
    return Listed(problem(), 2)


def opened(factor: float = 3.0, *, counted: bool = True) -> OperatorPart:
    """Return its part, with the graph open below so many times the least time."""
    part = part_of(problem())
    part.counted = counted
    cutoff = known().best()[0] * factor
    part.bound_by_work()
    part.bound_by_stages(cutoff)
    part.expand(cutoff)
    return part


@pytest.mark.parametrize(("stages", "counted"), [(FEW_STATES // 64, True), (33, False)])
def test_stages_behind_are_counted_at_once_where_there_are_few_states(
    stages: int, *, counted: bool
) -> None:
    part = part_of(small(operators=33, nodes=16, max_stages=stages, global_batch=7))
    assert (part.counted, part.digits) == (counted, EXACT if counted else DIGITS)
    assert (part.bound, part.source, part.closed) == (0.0, "", False)
    assert (part.micro_batches, type(part.micro_batches), part.weight) == (7, int, 6.0)
    part.count_stages()
    assert (part.counted, part.digits) == (True, EXACT)


@pytest.mark.parametrize(("stages", "divisible"), [(3, False), (4, True)])
def test_devices_that_cannot_be_split_into_so_few_groups_hold_no_plan(
    stages: int, *, divisible: bool
) -> None:
    part = part_of(small(max_stages=stages))
    assert part.divisible is divisible
    part.bound_by_work()
    assert (part.source, part.bound >= INFINITE) == (
        ("work", False) if divisible else ("device groups", True)
    )


def test_work_is_spread_over_all_devices_and_done_one_after_the_other() -> None:
    """On groups of one and two devices, with two tensor degrees."""
    part = known().part
    every = {g: chain.operators.compute for g, chain in part.stages.chains.items()}
    operators = range(len(every[1]))
    work = sum(min(g * min(every[g][q]) for g in every) for q in operators)
    least = sum(min(min(every[g][q]) for g in every) for q in operators)
    assert max(len(table[0]) for table in every.values()) > 1
    part = part_of(problem())
    part.bound_by_work()
    expected = (part.micro_batches - 1) * work / 2 + max(least, work / 2)
    assert part.bound == pytest.approx(expected, rel=1e-12)
    assert part.bound <= known().best()[0]


def test_a_bound_that_reaches_the_ceiling_proves_that_there_is_no_plan() -> None:
    for ceiling, share, reached in (
        (3.0, 1 - 2 * NEARLY, False),
        (3.0, 1 - NEARLY / 2, True),
        (10 * INFINITE, 10 * CONFIRM_ROUNDING, False),
        (10 * INFINITE, 0.1 * (1 - CONFIRM_ROUNDING / 2), True),
    ):
        part = part_of(small())
        part.ceiling = ceiling
        part.raise_bound(ceiling * share, "some argument")
        assert part.bound == (INFINITE if reached else ceiling * share)
        assert part.record()["bound_s"] == (None if reached else part.bound)
        assert part.record()["by"] == part.source == "some argument"
        part.raise_bound(ceiling * share / 2, "a lesser one")
        part.raise_bound(part.bound, "one as good")
        assert part.source == "some argument"


def test_a_record_says_what_was_bounded() -> None:
    part = opened()
    record = part.record()
    assert (record["micro_batch"], record["micro_batches"]) == (2, 6)
    assert record["bound_s"] == part.bound < known().best()[0] * (1 + SAME)
    assert record["slowest_s"] == part.proof.slowest
    assert part.bound >= part.weight * part.proof.slowest + part._work > 0.0


def test_a_record_without_them_counts_stages_and_every_micro_batch() -> None:
    part = opened(counted=False)
    part.repeat({"counted": False, "digits": 3})
    assert (part.counted, part.digits) == (False, 3)
    part.repeat({})
    assert (part.counted, part.digits) == (True, EXACT)


@pytest.mark.parametrize("counted", [True, False])
def test_stages_alone_bound_the_part_without_its_work(*, counted: bool) -> None:
    """And only where stages are not counted, their sums; nothing above the cutoff."""
    best = known().best()[0]
    for factor in (0.5, 1.2):
        part = part_of(problem())
        part.counted = counted
        part.bound_by_stages(best * factor)
        assert 0.0 < part.bound <= min(best * (1 + SAME), best * factor)
        assert part.source in (BOUNDS, SUMS)
        assert isinstance(part.pipelines(), Landscape if counted else FewestBehind)
        coarse = part_of(problem())
        coarse.counted = counted
        coarse.bound_by_stages(best * factor, coarse=True)
        assert coarse.bound <= part.bound
        assert coarse.source == BOUNDS


def test_sums_of_stages_bound_what_is_not_counted_alone() -> None:
    """Two micro-batches, so that the sum counts as much as the slowest."""
    found = {}
    for counted in (True, False):
        part = part_of(small(operators=8, global_batch=2, devices=2))
        part.counted = counted
        part.bound_by_work()
        part._work = 0.0  # as if little were known of it
        part.bound = 0.0
        part.bound_by_stages(INFINITE)
        found[counted] = part.source
    assert found == {True: BOUNDS, False: SUMS}


def test_where_no_pipeline_is_as_fast_the_cutoff_is_a_bound_to_the_digit() -> None:
    part = part_of(small())
    part.bound_by_work()
    low, least = part._low, part.bound
    for share in np.linspace(0.1, 0.9, 20).tolist():
        part.bound, part.source = 0.0, ""
        part.bound_by_stages(least * share)
        assert (part.bound, part.source, part._low) == (least * share, BOUNDS, low)


def test_a_bound_is_confirmed_up_to_rounding_and_not_beyond() -> None:
    """In pipelines of one stage and of several."""
    for each in (small(max_stages=1, devices=1), small(), small(global_batch=2), problem()):
        true = part_of(each)
        true.bound_by_work()
        true.bound_by_stages(INFINITE)
        low, high = true.bound, true.bound * 3
        slowest, _ = true.pipelines().least_slowest(true._low, high, 1e-9)
        for _ in range(25):
            middle = (low + high) / 2
            part = part_of(each)
            part.bound_by_work()
            part.confirm_by_stages(middle)
            if part.bound >= middle * (1 - 10 * CONFIRM_ROUNDING):
                low = middle
            else:
                high = middle
        assert low >= (true.weight * slowest + max(slowest, true._work)) * (1 - 1e-6)
        asked = low * (1 - 1e-6)
        part = part_of(each)
        part.bound_by_work()
        part.confirm_by_stages(asked)
        assert asked * (1 - 10 * CONFIRM_ROUNDING) <= part.bound <= asked


def test_the_time_of_a_pipeline_of_one_stage_is_confirmed_to_nearly_the_last_digit() -> None:
    """There is none that is faster by more than rounding, though there is one of that time."""
    part = part_of(small(max_stages=1, devices=1))
    part.bound_by_work()
    part.bound_by_stages(INFINITE)
    place = Place(1, 0, enters_node=False, leaves_node=True)
    seconds = part.stages.times(place)[part.stages.entry(1, 0, 4)]
    assert seconds > part._work
    asked = part.micro_batches * seconds * (1 + CONFIRM_ROUNDING / 5)
    part.bound = 0.0
    part.confirm_by_stages(asked)
    assert asked * (1 - 2 * CONFIRM_ROUNDING) <= part.bound <= asked


def test_the_slowest_stage_is_believed_where_no_pipeline_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    part = part_of(small())
    asked = []

    def exists(slowest: float) -> bool:
        asked.append(slowest)
        return slowest >= 2.0

    monkeypatch.setattr(part, "pipelines", lambda: SimpleNamespace(exists=exists))
    part.confirm_slowest(2.1)
    assert part._low == 0.0
    part.confirm_slowest(2.0)
    assert part._low == 2.0 * (1 - CONFIRM_ROUNDING)
    part.confirm_slowest(1.0)
    assert len(asked) == 2


# ---- the open graph -----------------------------------------------------------------------------


def test_no_more_is_open_than_the_cutoff_asks_for() -> None:
    part, best = opened(), known().best()[0]
    every = part.expand(INFINITE).graph.arcs
    assert part._slowest == part.pipelines().slowest_below(part.weight, part.ceiling)
    few = part.expand(best * 1.01).graph.arcs
    assert part._slowest == part.pipelines().slowest_below(part.weight, best * 1.01)
    assert 0 < few < every


@pytest.mark.parametrize("counted", [True, False])
def test_arcs_of_one_key_are_all_that_hold_the_same_stage(*, counted: bool) -> None:
    part = opened(counted=counted)
    assert part.open is not None
    graph = part.open.graph
    names = [part.key(arc) for arc in range(graph.arcs)]
    assert len(set(names)) > 3
    for arc, name in enumerate(names):
        place = part.open.places[part.open.place[arc]]
        entry = part.stages.entry(place.devices, int(graph.start[arc]), int(graph.stop[arc]))
        assert name == part.stages.key(place, entry)
        alike = [other for other, its in enumerate(names) if its == name]
        assert part.arcs_of(name).tolist() == alike
    assert part.arcs_of(names[0]._replace(devices=99)).size == 0
    assert part.arcs_of(names[0]._replace(entry=10**6)).size == 0


def solved(part: OperatorPart, path: tuple[int, ...]) -> None:
    while part.refine(path, 1e3):
        pass


def a_path(part: OperatorPart) -> tuple[int, ...]:
    """Return a path of two stages."""
    assert part.open is not None
    graph, arcs = part.open.graph, range(part.open.graph.arcs)
    return next((a, b) for a in arcs for b in arcs if graph.is_path((a, b)))


def test_a_path_whose_stages_are_solved_is_a_plan_at_its_time() -> None:
    part = opened()
    path = a_path(part)
    assert part.known_time(path) == math.inf
    assert part.known_time(()) == math.inf
    assert part.best_known_path(INFINITE) == ()
    assert not any(part.is_exact(arc) for arc in path)
    solved(part, path)
    assert all(part.is_exact(arc) for arc in path)
    assert part.sizes(path) == (1, 1)
    start, cut, end = part.cuts(path)
    assert (start, end) == (0, 4)
    assert 0 < cut < 4
    assert part.best_known_path(INFINITE) == path
    plan = part.plan(path)
    judged = evaluate(part.problem, plan)
    assert judged.legal
    assert judged.iteration_time == pytest.approx(part.known_time(path), rel=SAME)
    assert [(s.start, s.stop, s.first_device) for s in plan.stages] == [(0, cut, 0), (cut, 4, 1)]
    assert part.best_known_path(part.known_time(path)) == ()


def test_a_stage_that_has_no_way_is_on_no_known_path() -> None:
    part = opened()
    path = a_path(part)
    for arc, seconds in zip(path, (1.0, INFINITE), strict=True):
        way: Any = SimpleNamespace(optimum=SimpleNamespace(time=seconds, exact=True))
        part.stages.exact[part.key(arc)] = way
    assert part.best_known_path(math.inf) == ()
    assert part.known_time(path) == math.inf
    assert part.known_time(path[:1]) == 6.0


def test_stages_that_may_raise_a_path_most_are_looked_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that never were come before; effort grows by a factor, within the seconds."""
    part = opened()
    asked: list[tuple[object, int, int]] = []

    def refine(key: Any, start: int, stop: int, *, cutoff: float, effort: int, workers: int) -> Any:
        asked.append((key, effort, workers))
        assert cutoff == part._slowest
        optimum = SimpleNamespace(exact=False, time=times[key], bound=0.0)
        part.stages.exact[key] = SimpleNamespace(optimum=optimum, effort=effort)  # type: ignore[assignment]
        return part.stages.exact[key]

    monkeypatch.setattr(part.stages, "refine", refine)
    assert part.open is not None
    path = a_path(part)
    first, second = map(part.key, path)
    at = part.open.graph.time[list(path)].tolist()
    times = {first: at[0] + 1.0, second: at[1] + 2.0}
    assert part.refine(path, 10.0)
    assert asked == [(first, 0, 1), (second, 0, 1)]
    slowest = max(at)
    for arc, own in zip(path, (at[0] + 1.0, at[1] + 2.0), strict=True):
        doubt = part.weight * max(0.0, own - slowest) + own - part.open.graph.time[arc]
        assert part._doubt(arc, path) == pytest.approx(doubt, rel=1e-12)
    asked.clear()
    assert part.refine(path, 10.0)
    assert part.refine(path, 10.0)
    assert part.refine(path, 0.01)
    assert asked == [
        (second, FIRST_EFFORT, 1),
        (second, EFFORT_GROWTH * FIRST_EFFORT, 1),
        (second, EFFORT_PER_SECOND // 100, 1),
    ]
    part.workers = 2
    asked.clear()
    assert part.refine(path, 0.02)
    assert sorted(asked) == sorted(
        [(first, 2 * EFFORT_PER_SECOND // 100, 1), (second, 2 * EFFORT_PER_SECOND // 100, 1)]
    )


def test_effort_is_shared_by_all_that_are_looked_at_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three that were never looked at cost no effort; known ones of a path are one a time."""
    part = opened()
    path = a_path(part)
    asked = []
    real = part.stages.refine

    def refine(*key: Any, effort: int, **options: Any) -> Any:
        asked.append(effort)
        return real(*key, effort=effort, **options)

    monkeypatch.setattr(part.stages, "refine", refine)
    solved(part, path)
    assert asked[:2] == [0, 0]
    assert all(effort >= FIRST_EFFORT for effort in asked[2:])


def test_a_loose_stage_of_a_known_time_is_in_doubt_by_all_that_is_not_known() -> None:
    part = opened()
    path = a_path(part)
    assert part._doubt(path[0], path) > INFINITE / 2
