"""A result in few lines: the verdict comes first, nothing is too wide, nothing unproved is said."""

import io
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.plain_console import PlainConsole
from ilp_planner.faces.report.brief import brief_lines, short_count
from ilp_planner.faces.report.console import BRIEF_WIDTH, write_brief
from ilp_planner.faces.report.grid import headed_lines
from ilp_planner.faces.report.lines import result_lines
from ilp_planner.faces.report.stages import result_tables
from ilp_planner.faces.report.verdict import at_least, rounded_up
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.optimize.result import Fastest, Ranked, Result, Status, Stop
from tests.every_space import every_space, problem_in, result_in
from tests.examples import for_each, thinned
from tests.mixed_cases import room_plan, room_problem, room_result

HEADS = re.compile(
    r"PROVED (OPTIMAL|CHEAPEST|FRONT|INFEASIBLE)|WITHIN [0-9.]+ %|NO (BOUND|PLAN FOUND)|OPEN FRONT"
)
LONG = "a-name-that-nobody-would-give-" * 8


def _faster(result: Result) -> Result:
    """Return a result as if its plan were a plainer one than the fastest."""
    assert result.plan is not None
    assert result.evaluation is not None
    fastest = Fastest(
        plan=result.plan, evaluation=result.evaluation, objective=result.objective,
        status=Status.OPTIMAL,
    )  # fmt: skip
    return replace(
        result, fastest=fastest, objective=1.015 * result.objective, status=Status.FEASIBLE
    )


def _ranked(result: Result) -> Result:
    assert result.plan is not None
    assert result.evaluation is not None
    entry = Ranked(plan=result.plan, evaluation=result.evaluation, bound=result.bound)
    return replace(result, ranking=(entry,) * 3)


def _without(**said: Any) -> Callable[[Result], Result]:
    return lambda result: replace(
        result, plan=None, evaluation=None, objective=math.inf, certificate={}, **said
    )


def _open(stop: Stop, share: float) -> Callable[[Result], Result]:
    return lambda result: replace(
        result, status=Status.FEASIBLE, stopped_by=stop, bound=share * result.bound
    )


# What a search may end with, made of what it ended with.
OUTCOMES: dict[str, Callable[[Result], Result]] = {
    "proved": lambda result: result,
    **{f"open, {stop}": _open(stop, 0.97) for stop in Stop},
    "far": _open(Stop.TIME, 0.2),
    "no bound": _open(Stop.TIME, 0.0),
    "a plainer one": _faster,
    "a plainer one, open": lambda result: _open(Stop.TIME, 0.9)(_faster(result)),
    "ranked": _ranked,
    "notes": lambda result: replace(result, notes=(LONG, LONG.replace("-", " "), "a", "b", "c")),
    "none found": _without(status=Status.UNKNOWN, stopped_by=Stop.TIME, bound=0.5),
    "none found, no bound": _without(status=Status.UNKNOWN, stopped_by=Stop.USER, bound=0.0),
    "infeasible": _without(
        status=Status.INFEASIBLE, stopped_by=Stop.PROOF, bound=math.inf, reason=f"{LONG} is missing"
    ),
}


@pytest.mark.few(5)
@for_each("outcome", OUTCOMES)
@every_space
def test_the_verdict_is_first_and_no_line_is_too_wide(space: str, outcome: str) -> None:
    problem, result = problem_in(space), OUTCOMES[outcome](result_in(space))
    if result.ranking and problem.space.why_unranked():
        return
    for named in thinned((replace(problem, model=LONG, notes=(LONG,)), problem), 2):
        lines = brief_lines(named, result, steps=(f"ilp-plan why {LONG}.json;",))
        assert sum(bool(HEADS.fullmatch(head)) for head, _ in lines[:2]) == 1
        text = headed_lines(lines, BRIEF_WIDTH)
        assert max(map(len, text.splitlines())) <= BRIEF_WIDTH
        assert len(text.splitlines()) <= 24
        for every in (False, True):
            shown = printed(named, result, every=every)
            assert max(map(len, shown.splitlines())) <= BRIEF_WIDTH


def printed(problem: Problem[Any], result: Result, *, every: bool) -> str:
    console = PlainConsole(file=io.StringIO(), width=BRIEF_WIDTH, highlight=False, markup=False)
    tables = result_tables(problem, result, every=every)
    details = result_lines(problem, result) if every else ()
    with console.capture() as captured:
        write_brief(console, BRIEF_WIDTH, brief_lines(problem, result), tables, details)
    return captured.get()


@every_space
def test_optimal_is_said_of_what_is_proved_alone(space: str) -> None:
    problem = problem_in(space)
    for name, change in OUTCOMES.items():
        result = change(result_in(space))
        lines = dict(brief_lines(problem, result))
        proved = result.plan is not None and proved_gap(result.objective, result.bound) == 0
        assert ("PROVED OPTIMAL" in lines) == proved, name
        assert ("PROVED INFEASIBLE" in lines) == (result.status is Status.INFEASIBLE), name
        within = next((head for head in lines if head.startswith("WITHIN")), None)
        if within is not None:
            share = float(within.split()[1]) / 100
            assert result.bound * (1 + share) >= result.objective * (1 - 1e-9), name
            optimal = result.fastest is not None and result.fastest.objective == result.bound
            assert ("proved optimal" in lines[within]) == optimal, name
        assert ("fastest" in lines) == (result.fastest is not None), name


@given(share=st.floats(1e-9, 50))
def test_a_share_is_never_said_to_be_less(share: float) -> None:
    text = rounded_up(share)
    said = 0.01 if text.startswith("<") else float(text.removesuffix(" %"))
    assert said / 100 >= share * (1 - 1e-8)
    assert said / 100 <= share * 1.2 + 2e-4


@given(seconds=st.floats(1e-6, 1e6))
def test_a_bound_is_never_said_to_be_more(seconds: float) -> None:
    number, unit = at_least(seconds).split()
    said = float(number) * {"s": 1, "ms": 1e-3, "us": 1e-6}[unit]
    assert 0.998 * seconds <= said <= seconds * (1 + 1e-8)


@given(
    lines=st.lists(
        st.tuples(st.text(st.characters(codec="ascii", categories=["L", "N"])),
                  st.text(st.sampled_from("abc  "))), min_size=1,
    ),
    width=st.integers(40, 120),
)  # fmt: skip
def test_lines_keep_their_width_and_their_words(lines: list[tuple[str, str]], width: int) -> None:
    text = headed_lines(lines, width)
    assert max(map(len, text.split("\n"))) <= width
    heads = max(len(head) for head, _ in lines)  # a longer one than a third of the width is cut
    if heads <= width // 3 and all(len(word) < 20 for _, text in lines for word in text.split()):
        words = [word for line in lines for part in line for word in part.split()]
        assert text.split() == words


def test_counts_of_tokens() -> None:
    assert [short_count(x) for x in (15e12, 1e12, 2e9, 1.5e6, 12)] == [
        "15T",
        "1T",
        "2B",
        "1.5M",
        "12",
    ]


def test_devices_that_are_left_out_are_named() -> None:
    room = room_problem()
    plan = room_plan(room, [(0, 6, 2, (2, 3, 4, 5))])
    head = brief_lines(room, room_result(room, plan))[0][1]
    assert "on 4 x A100, 2 of 3 nodes (2 x T4 idle)" in head
    assert "all 3 nodes" in brief_lines(room, room_result(room, room_plan(room)))[0][1]
