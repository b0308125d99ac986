"""Every key of a saved file, edited: what is no longer true is refused, with the key in the reason,
or it is in the list of what no check covers."""

import copy
import functools
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ilp_planner.base.errors import PlannerError
from ilp_planner.base.files import to_json
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.saved_check import Judgement, judge_saved
from ilp_planner.formats.saved_json import decode_saved, encode_saved
from ilp_planner.formats.saved_plan import SavedPlan, claim_of, encode_aim, verdict_of
from ilp_planner.formats.saved_remarks import FREE, JUDGED_BY, ROWS
from ilp_planner.formats.versions import versions
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.objectives.any_nodes import solve_on_any_nodes
from ilp_planner.spaces.objectives.node_sets import node_sets
from ilp_planner.spaces.objectives.objective import OBJECTIVES
from ilp_planner.spaces.objectives.search import solve_on_sets
from ilp_planner.spaces.operators.build import OperatorSpace
from tests.every_space import problem_in, result_in
from tests.examples import for_each, thinned
from tests.formats.saved_cases import OF_LAYERS
from tests.megatron_cases import FEW, small_problem
from tests.spaces.objectives import cases


class Book(NamedTuple):
    """A plan of the shelf: the problem that it is of, and what its file holds. The inputs of the
    file are others, as problems made in tests are of no files."""

    problem: Problem[Any]
    data: dict[str, Any]


def bound_book(problem: Problem[Any], result: Result) -> Book:
    """Return what is saved of a result, with all keys that there are."""
    assert result.plan is not None
    saved = SavedPlan(
        plan=result.plan,
        inputs=OF_LAYERS,
        claim=claim_of(result, versions()),
        verdict=verdict_of(problem, result.plan, result.evaluation),
        certificate=result.certificate,
        aim={} if result.aim is None else encode_aim(result.aim),
    )
    return Book(problem, json.loads(to_json(encode_saved(saved))))


def aimed(objective: str, *, short: bool = False) -> Book:
    """Return a plan that was searched on all sets of nodes. short: of all but the dearest."""
    problem = cases.KINDS["megatron"][0](2)
    most = [one.hourly for one in node_sets(problem.cluster)][-2] if short else math.inf
    limits = Limits(seconds=1e6)
    return bound_book(
        *solve_on_sets(problem, OBJECTIVES[objective], max_hourly=most, limits=limits)
    )


def unproved(**options: Any) -> Book:
    """Return a plan of a search that may end before its proof, as it mostly does."""
    problem = problem_in("groups")
    return bound_book(problem, solve(problem, **options))


def plainer() -> Book:
    """Return a plan that is plainer than the fastest one."""
    problem = small_problem(layers=5, constraints=constraints_of({**FEW, "pp": 2}))
    result = solve(problem, limits=Limits(prefer_plain=0.5))
    assert result.fastest is not None
    return bound_book(problem, result)


IN_SPACES = ("operators", "groups", "metis", "megatron", "torchtitan", "deepspeed", "amp, free")
SHELF = {
    **{name: functools.partial(lambda n: bound_book(problem_in(n), result_in(n)), name)
       for name in IN_SPACES},
    "cheapest": functools.partial(aimed, "price"),
    "front": functools.partial(aimed, "both"),
    "within a budget": functools.partial(aimed, "price", short=True),
    "any nodes": lambda: bound_book(
        *solve_on_any_nodes(cases.KINDS["megatron"][0](2), limits=Limits(seconds=1e6))
    ),
    "within a gap": functools.partial(unproved, limits=Limits(gap=0.9)),
    "plainer than the fastest": plainer,
    "by a heuristic": functools.partial(unproved, solver="anneal", limits=Limits(gap=0.9)),
}  # fmt: skip


@functools.cache
def book(name: str) -> Book:
    """Return a plan of the shelf; not to be changed."""
    return SHELF[name]()


def judged(problem: Problem[Any], data: dict[str, Any]) -> Judgement:
    """Judge what a file holds, with its certificate."""
    saved = decode_saved(Fields(data, file="plan.json"))
    return judge_saved(problem, saved, certificate=bool(saved.certificate))


# ---- edits --------------------------------------------------------------------------------------

Place = tuple[str | int, ...]
JUDGED = [key for row in ROWS for key in row.keys]


def places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every place in a file with its value; of lists the first and the last, and of parts
    that which has the plan."""
    if place and place[0] in JUDGED_BY:
        return
    if place:
        yield place, value
    if place == ("result", "fastest", "plan"):
        return  # judged like the plan itself
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*place, key))
    elif isinstance(value, list):
        least = [i for i, part in enumerate(value) if place[-1] == "parts" and bound_of(part) > 0]
        least = sorted(least, key=lambda number: bound_of(value[number]))[:1]
        for number in sorted({0, len(value) - 1, *least} & {*range(len(value))}):
            yield from places(value[number], (*place, number))


def bound_of(part: dict[str, Any]) -> float:
    """Return the bound of a part of a certificate."""
    return math.inf if part["bound_s"] is None else part["bound_s"]


def edits(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield how a value may be edited, and what it is then."""
    if isinstance(value, bool):
        yield "other", not value
    elif isinstance(value, int | float):
        yield "more", value * 2 + 1
        yield "less", value / 2 if isinstance(value, float) else value // 2
    elif isinstance(value, str):
        yield "other", "feasible" if value == "optimal" else "optimal"
    elif value is None:
        yield "other", 1e-9
    elif isinstance(value, list):
        yield "empty", []
        yield "shorter", value[:-1]
        yield "longer", [*value, *value[-1:]] if value else ["proved by hand"]
        yield "order", value[::-1]
    elif isinstance(value, dict):
        yield "longer", {**value, "proof": 1}
    if value is not None:
        yield "nothing", None


TRUE_TOO = {
    ("result", "nothing"): "nothing is claimed",
    ("certificate.parts.bound_s", "less"): "less is claimed",
    ("objective.sets.bound_s", "less"): "less is claimed",
    ("run.history.bound_s", "less"): "less was known",
    ("run.history.objective_s", "more"): "less was known",
    ("run.history.objective_s", "nothing"): "less was known",
    ("run.history", "longer"): "the last moment twice",
    ("run.history", "shorter"): "less is said",
    ("run.history", "empty"): "nothing is said",
    ("evaluation", "nothing"): "nothing is said",
    ("certificate.parts", "order"): "parts have names",
    ("objective.sets", "order"): "sets have counts",
}
"""What may be edited so that it is no less true."""


KINDS = ("result.stopped_by", "certificate.parts.*")  # of a few words, and without which no proof
HINTS = [f"certificate.parts.{name}" for name in OperatorSpace.proof_keys]


def key_of(place: Place) -> str:
    """Return the keys on the way to a place."""
    key = ".".join(part for part in place if isinstance(part, str))
    return "certificate.parts.*" if key.startswith(tuple(HINTS)) else key


def covered(key: str, keys: Any) -> bool:
    """Tell whether a key, or what it is in, is among others."""
    parts = key.split(".")
    return any(".".join(parts[:count]) in keys for count in range(1, len(parts) + 1))


def edited(data: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    """Return what a file holds with another value in a place."""
    changed = copy.deepcopy(data)
    inner: Any = changed
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return changed


@pytest.mark.slow
@for_each("name", SHELF)
def test_every_key_is_judged_or_free(name: str) -> None:
    for place, value in places(book(name).data):
        if not isinstance(value, dict | list):
            assert covered(key_of(place), {*JUDGED, *FREE}), place


@for_each("name", SHELF)
def test_a_plan_of_the_shelf_holds(name: str) -> None:
    found = judged(*book(name))
    assert found.holds, found.fault


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SHELF)
def test_an_edit_is_refused_or_of_what_is_free(name: str) -> None:
    problem, data = book(name)
    every = [
        (place, how, value)
        for place, had in places(data)
        for how, value in edits(had)
        if value != had
    ]
    taken = []
    for place, how, value in thinned(every, 13):
        key = key_of(place)
        # The true bound of a part that has not the plan may be any higher one.
        other = key == "certificate.parts.bound_s" and not at_the_bound(data, place)
        # An earlier plan may have been any that is slower than the fastest.
        slower = isinstance(value, float) and value >= data["result"]["objective_s"]
        other |= key == "run.history.objective_s" and slower
        if not covered(key, FREE) and (key, how) not in TRUE_TOO and not other:
            taken += [(place, how)] if holds(problem, edited(data, place, value)) else []
    assert taken == []


def at_the_bound(data: dict[str, Any], place: Place) -> bool:
    """Tell whether a part of the certificate is no better than the whole."""
    part: dict[str, Any] = data["certificate"]["parts"][place[2]]
    return bound_of(part) <= data["result"]["bound_s"] * (1 + 1e-9)


def holds(problem: Problem[Any], data: dict[str, Any]) -> bool:
    """Tell whether what a file holds is read, and found true."""
    try:
        return judged(problem, data).holds
    except PlannerError:
        return False


@pytest.mark.slow
@for_each("name", SHELF)
def test_what_is_free_changes_no_verdict(name: str) -> None:
    """A list of what is not covered has nothing that is; but for texts that cannot be others."""
    problem, data = book(name)
    for place, had in places(data):
        key = key_of(place)
        free = key in FREE and not covered(key, [*JUDGED, *KINDS])
        if free and not isinstance(had, dict | list):
            other = next(value for how, value in edits(had) if how in ("other", "more"))
            assert holds(problem, edited(data, place, other)), place


def test_what_is_judged_in_part_is_known() -> None:
    """Notes that are derived again, what closed the lowest part, the order of moments, and what
    might be given up."""
    both = {"result.notes", "result.prefer_plain", "certificate.parts.by", "run.history.after_s"}
    assert {*FREE} & {*JUDGED} == both
    assert all(itertools.chain(FREE.values(), TRUE_TOO.values()))
