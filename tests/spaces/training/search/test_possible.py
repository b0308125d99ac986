"""Parts that were found before are not looked for again, and none is forgotten."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ilp_planner
from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_check import judge_saved
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.heuristic import find_plan
from ilp_planner.optimize.result import EVERY_PART, Status, Stop
from ilp_planner.optimize.search.preference import prefer_plain
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.training import space as megatron_space
from ilp_planner.spaces.training.bounds.variant import never_fits
from ilp_planner.spaces.training.search import possible
from ilp_planner.spaces.training.search import search as megatron_search
from ilp_planner.spaces.training.search.first_plans import SAMPLES, likely_variants
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import (
    Remembered,
    likely_degrees,
    megatron_parts,
    plainest_parts,
    possible_degrees,
    possible_parts,
)
from ilp_planner.spaces.training.search.search import MegatronSearch, scout
from tests.examples import for_each, often
from tests.megatron_cases import GIB, MIXTURE, small_cluster, small_problem
from tests.runtime_cases import runtime_problem


@pytest.mark.slow
def test_each_goes_through_all_of_it_though_it_is_made_once() -> None:
    made = []

    def begin() -> Iterator[int]:
        made.append(True)
        return iter(range(5))

    every = Remembered(begin)
    first, second = iter(every), iter(every)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    assert ([*second], [*first], [*every]) == ([1, 2, 3, 4], [2, 3, 4], [0, 1, 2, 3, 4])
    assert made == [True]


@for_each("place", range(5))
def test_whoever_is_interrupted_takes_nothing_from_others(place: int) -> None:
    """What a Ctrl-C ends goes on from its beginning, not from its end."""
    left = [place]

    def begin() -> Iterator[int]:
        for number in range(5):
            if number == place and left:
                left.pop()
                raise KeyboardInterrupt
            yield number

    every = Remembered(begin)
    waiting = iter(every)
    before = [next(waiting) for _ in range(place)]
    with pytest.raises(KeyboardInterrupt):
        list(every)
    assert [*before, *waiting] == [*every] == [0, 1, 2, 3, 4]


def test_an_interrupted_enumeration_leaves_no_part_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    names = [part.name for part in megatron_parts(problem, problem.costs)]
    problem = small_problem()
    asked, is_refused = [], possible._is_refused

    def interrupted(part: MegatronPart) -> bool:
        asked.append(part)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return is_refused(part)

    with monkeypatch.context() as patched:
        patched.setattr(possible, "_is_refused", interrupted)
        with pytest.raises(KeyboardInterrupt):
            [*possible_parts(problem, problem.costs)]
    assert [part.name for part in megatron_parts(problem, problem.costs)] == names
    assert len(names) > 3


# ---- before all parts are listed ----------------------------------------------------------------


@for_each("most", [1, 3, 7])
def test_plainest_parts_are_some_of_all_with_one_choice_of_settings_each(most: int) -> None:
    problem = small_problem(small_cluster(2, 2), batch=8)
    every = {part.name: part for part in megatron_parts(problem, problem.costs)}
    found = list(plainest_parts(problem, problem.costs, most))
    assert 0 < len(found) <= most
    for part in found:
        alike = [
            other.degrees.choice
            for other in every.values()
            if other.degrees._replace(choice=0) == part.degrees._replace(choice=0)
        ]
        assert part.name in every
        assert (part.degrees.order, part.degrees.choice) == (0, min(alike))


def test_few_degrees_are_all_listed_instead() -> None:
    problem = small_problem(small_cluster(2, 2), batch=8)
    plain = [d for d in possible_degrees(problem, problem.costs) if not d.order]
    assert not list(plainest_parts(problem, problem.costs, len(plain)))
    assert list(plainest_parts(problem, problem.costs, len(plain) - 1))


@for_each("options", [{}, {"experts": MIXTURE}])
def test_likely_degrees_are_all_in_the_plainest_order_of_ranks(options: dict[str, Any]) -> None:
    """Each once, beside those that differ in replicas and pipeline ranks alone."""
    problem = small_problem(small_cluster(2, 2), batch=8, **options)
    plain = [d for d in possible_degrees(problem, problem.costs) if not d.order]
    groups = likely_degrees(problem, problem.costs)
    assert Counter(one for group in groups for one in group) == Counter(plain)
    for group in groups:
        assert [one.pp for one in group] == sorted({one.pp for one in group})
        assert len({one._replace(pp=0, dp=0) for one in group}) == 1
    first, each = groups[0][0], problem.cluster.nodes[0].devices
    assert first.tp * first.cp <= each
    assert first.micro_batch == 1


@for_each("memory", [0.5, 1.0, 4.0])
def test_likely_variants_are_not_ruled_out_and_take_as_long_as_they_say(memory: float) -> None:
    """The least bounds come first, and no plan takes less than its own."""
    problem = small_problem(small_cluster(2, 2), batch=16, memory_limit=memory * GIB)
    for likely in likely_variants(problem, lambda: True):
        assert likely == sorted(likely, key=lambda one: one.bound)
        for one in likely:
            assert not never_fits(one.part, one.variant)
            engine = MegatronSearch([one.part], goon=lambda: True)
            engine.work(0, one.variant)
            assert one.bound <= engine.cutoff * (1 + 1e-9)
            assert not engine.best or engine.best[0].variant == one.variant


@for_each("asked", [0, 1, 5])
def test_listing_ends_when_the_time_is_up_and_can_be_begun_again(asked: int) -> None:
    problem = small_problem(small_cluster(2, 2), batch=8)
    left = [asked]

    def check_time() -> None:
        if not left[0]:
            raise OutOfTimeError
        left[0] -= 1

    with pytest.raises(OutOfTimeError):
        megatron_parts(problem, problem.costs, check_time)
    names = [part.name for part in megatron_parts(problem, problem.costs)]
    other = small_problem(small_cluster(2, 2), batch=8)
    assert names == [part.name for part in megatron_parts(other, other.costs)]


def many_degrees() -> Problem:
    """Return a problem of more degrees than are looked at before all are listed."""
    return ilp_planner.problem(model="llama3-8b", gpus="64xH100", global_batch=64, space="megatron")


@contextmanager
def no_time_to_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let searches end before their parts are listed."""

    def no_time(*arguments: object) -> None:
        raise OutOfTimeError

    with monkeypatch.context() as patched:
        patched.setattr(megatron_space, "megatron_parts", no_time)
        yield


@pytest.mark.slow
def test_a_search_without_time_to_list_its_parts_has_a_plan_and_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The certificate says what is known of all plans, and that can be derived again."""
    problem = many_degrees()
    plain = [d for d in possible_degrees(problem, problem.costs) if not d.order]
    assert len(plain) > SAMPLES
    with no_time_to_list(monkeypatch):
        result = solve(problem)
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, Stop.TIME)
    assert evaluate(problem, result.plan).legal
    assert 0 < result.bound < result.objective
    (record,) = result.certificate["parts"]
    assert record == {"part": EVERY_PART, "bound_s": result.bound, "by": result.bound_source}
    check = check_certificate(problem, result.certificate)
    assert check.holds
    assert check.bound == pytest.approx(result.bound, rel=ROUNDING)
    record["bound_s"] = result.objective * (1 + 1e-6)  # the parts prove more than is claimed
    assert not check_certificate(problem, result.certificate).holds


def test_the_plan_of_a_search_without_parts_is_saved_and_judged_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One part stands for all, and for nothing beside others."""
    with no_time_to_list(monkeypatch):
        ilp_planner.solve(many_degrees()).save(tmp_path / "plan.json")
    saved = ilp_planner.load(tmp_path / "plan.json")
    judged = ilp_planner.check(saved)
    assert (judged.fault, judged.holds) == ("", True)
    assert judged.bound == pytest.approx(saved.content.certificate["bound_s"], rel=ROUNDING)
    (record,) = saved.content.certificate["parts"]
    beside = {**saved.content.certificate, "parts": [record, {**record, "part": "dp 1"}]}
    forged = judge_saved(
        saved.problem, replace(saved.content, certificate=beside), certificate=False
    )
    assert forged.fault.startswith(
        "certificate.parts: found part every part, expected none of that name"
    )
    with pytest.raises(PlanError, match="is missing from 'parts'"):
        check_certificate(saved.problem, beside)


@pytest.mark.slow
def test_a_start_that_no_search_ended_with_is_improved_like_any_first_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plans near to it are looked for, though it came from a search; near to one that was proved
    there is none."""
    steps: list[float] = []

    def step(engine: MegatronSearch) -> None:
        steps.append(engine.cutoff)

    monkeypatch.setattr(megatron_search, "climb", step)
    with no_time_to_list(monkeypatch):
        early = ilp_planner.solve(many_degrees())
    ended = ilp_planner.solve(many_degrees(), start=early)
    assert ended.stopped_by is Stop.PROOF
    assert len(steps) == 1
    assert ended.objective <= steps[0] <= early.objective
    again = ilp_planner.solve(many_degrees(), start=ended)
    assert again.objective == ended.objective
    assert len(steps) == 1


@pytest.mark.parametrize("solver", ["anneal", "gradient"])
def test_heuristics_have_a_plan_before_the_parts_are_listed(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = many_degrees()
    with no_time_to_list(monkeypatch):
        result = find_plan(problem, Limits(), solver)
    assert result.stopped_by is Stop.TIME
    assert evaluate(problem, result.plan).legal


def test_nothing_asks_for_the_parts_of_a_search_that_had_no_time_to_list_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither for plainer plans nor for others to rank: a plan that needs something special stays,
    and is the only one of a ranking."""
    problem = many_degrees()
    search = problem.space.begin(problem, Task(Limits(prefer_plain=0.02), "auto", None, None))
    scout(search)
    search.deadline = Deadline(0.0)
    monkeypatch.setattr(
        type(problem.space), "plainness", lambda space, problem, plan: {"degrees": 1}
    )
    plan, notes = search.plan, list(search.notes)
    prefer_plain(search)
    assert (search.plan, search.notes) == (plan, notes)
    (only,) = problem.space.rank(search, 3)
    assert (only.plan, only.bound) == (plan, search.bound)
    assert not search.listed
    with pytest.raises(OutOfTimeError):
        _ = search.states


def test_no_part_is_listed_after_the_end() -> None:
    """Neither a plan nor a part was looked at, and the bound of all is there."""
    result = solve(many_degrees(), deadline=Deadline(0.0))
    assert (result.status, result.stopped_by) == (Status.UNKNOWN, Stop.TIME)
    assert [record["part"] for record in result.certificate["parts"]] == [EVERY_PART]
    assert result.bound > 0


@pytest.mark.slow
@pytest.mark.parametrize("batch", often([64, 128], 64))
def test_a_start_is_there_though_there_is_no_time_to_list_the_parts(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Its plan, or where that is none of the problem a first one; its bounds are not."""
    ended = ilp_planner.solve(many_degrees())
    problem = ilp_planner.problem(
        model="llama3-8b", gpus="64xH100", global_batch=batch, space="megatron"
    )
    with no_time_to_list(monkeypatch):
        found = ilp_planner.solve(problem, start=ended, seconds=9.0)
    assert found.stopped_by is Stop.TIME
    assert evaluate(problem, found.plan).legal
    (note,) = (note for note in found.notes if note.startswith("start: "))
    if batch == 64:
        # A plan that was taken as it is plainer has the fastest one beside it.
        assert found.plan == (ended.plan if ended.fastest is None else ended.fastest.plan)
        assert note.endswith("none of its bounds: there was no time to list the parts")
    else:
        assert note.startswith("start: a plan like that of ")
    assert check_certificate(problem, found.certificate).holds


@for_each("space", ["megatron", "torchtitan", "deepspeed"])
@for_each("model", ["dense", "experts"])
def test_parts_that_differ_in_settings_alone_share_a_factor_of_their_bounds(
    space: str, model: str
) -> None:
    problem = runtime_problem(space, model=model, global_batch=16)
    parts, alone = (megatron_parts(problem, problem.costs) for _ in range(2))
    shared = 0
    for before, part in pairwise(parts):
        part.share_fill(before)
        shared += "fill_factor" in vars(part)
    assert shared
    assert [part.fill_factor for part in parts] == [part.fill_factor for part in alone]
