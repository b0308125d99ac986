"""A search that starts from a saved plan, and from its bounds that still hold.

A bound of a part holds if the part's plans are among the proved ones, and none of them takes less.
The two requests decide that, never the bounds: in doubt only the plan is taken. Bounds are not
derived again; the certificate of the result claims them with its own, so that deriving that one
again checks them as well.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.errors import PlanError, SolverError
from ilp_planner.base.numerics import SAVED_ROUNDING
from ilp_planner.base.units import format_seconds
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.likeness import other_costs
from ilp_planner.optimize.certificate import claimed_bound, well_formed
from ilp_planner.optimize.result import CERTIFICATE_VERSION, EVERY_PART

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.plan import AnyPlan


NOTE = "start: "  # what notes on a saved plan begin with


class Known(NamedTuple):
    """A bound that a certificate claims of a part, in seconds, and the source of its proof."""

    bound: float
    by: str


@dataclass(frozen=True, kw_only=True)
class Start:
    """A saved plan and its proof.

    name: of the file, for people; empty for a plan of the same search, without notes.
    space: of the plan. seconds: of the plan, nan if unknown. request: of the plan; None: not known.
    certificate: empty for a plan that came from elsewhere. why_unproved: why its bounds are never
    taken; empty if they may be. ended: the search that it was saved by came to its end.
    prefer_plain: of its search, as in limits; nan if nothing is said. fastest: the fastest plan
    that it found; None if that is the plan itself.
    """

    name: str
    plan: AnyPlan
    space: str
    seconds: float = math.nan
    request: Request | None = None
    certificate: Mapping[str, Any] = field(default_factory=dict)
    why_unproved: str = ""
    ended: bool = False
    prefer_plain: float = math.nan
    fastest: AnyPlan | None = None


def start_from(search: SearchState, start: Start) -> None:
    """Give a starting search the valid parts of a saved plan and its bounds, with a note on these
    and on the reasons against more.

    Raises
    ------
    PlanError: the certificate is malformed, or contradicts its own plan.
    """
    other = next(_other_problem(search, start), "")
    if other:
        search.notes.append(f"{NOTE}nothing of {start.name}: {other}")
        return
    evaluation = evaluate(search.problem, start.plan)
    # The plan first: for bounds all parts are listed, for which there may be no time.
    plan = _take_plan(search, start, evaluation)
    plain = search.plan is start.plan and search.evaluation is evaluation
    if start.fastest is not None:
        _take_fastest(search, start)
    search.from_an_end = start.ended and search.plan is not None
    try:
        bounds = _take_bounds(search, start, evaluation)
    except OutOfTimeError:
        bounds = "none of its bounds: there was no time to list the parts"
    if start.name:
        search.notes.append(f"{NOTE}{plan}; {bounds}")
    if search.objective < search.bound * (1 - search.rounding):
        raise PlanError(
            f"{start.name}: certificate: found bounds of {search.bound!r} s and more, expected at "
            f"most the {search.objective!r} s of a plan"
        )
    search.report()
    alike = start.prefer_plain == search.limits.prefer_plain or not search.problem.space.graded
    if plain and alike and start.ended:
        _answer(search, start, evaluation)


def _other_problem(search: SearchState, start: Start) -> Iterator[str]:
    """Yield the reasons why a plan is of another problem."""
    problem = search.problem
    if start.space != problem.space.name:
        yield f"space {start.space} there, {problem.space.name} here"
    if start.plan.model != problem.model:
        yield f"model {start.plan.model} there, {problem.model} here"
    found, expected = start.plan.stages[-1].stop, len(problem.costs.chain)
    if found != expected:
        unit = problem.space.unit
        yield f"a model of {found} {unit}s there, of {expected} here"


def known_bounds(start: Start, part_key: str) -> dict[str, Known]:
    """Return the bounds that a certificate claims, by the names of parts: the least one if a name
    is there twice.

    Raises
    ------
    PlanError: it is malformed.
    """
    found: dict[str, Known] = {}
    try:
        with well_formed():
            for record in start.certificate.get("parts", ()):
                name, known = str(record[part_key]), Known(claimed_bound(record), str(record["by"]))
                found[name] = min(known, found.get(name, known))
    except PlanError as error:
        raise PlanError(f"{start.name}: {error}") from None
    return found


def _take_bounds(search: SearchState, start: Start, evaluation: Evaluation) -> str:
    """Let a search have the bounds that hold; return the parts used."""
    space = search.problem.space
    version = start.certificate.get("version", CERTIFICATE_VERSION)
    if version != CERTIFICATE_VERSION:
        return f"none of its bounds: certificate of version {version}, not {CERTIFICATE_VERSION}"
    known = known_bounds(start, space.part_key)
    why = next(_why_unproved(search, start, evaluation, known), "")
    if not why and known.keys() == {EVERY_PART}:
        why = "it has one of all plans alone, from before its parts were listed"
    if not why and start.request is not None:
        names = space.names_before(search, start.request.constraints)
        count = search.take_bounds([None if n is None else known.get(str(n)) for n in names])
        if count:
            search.borrowed = start.name
            return (
                f"bounds of {count} of {len(names)} parts are that file's, not derived again "
                "(`ilp-plan evaluate --check-certificate` does)"
            )
        why = "none is of a part that is here"
    return f"none of its bounds: {why}"


def _why_unproved(
    search: SearchState, start: Start, evaluation: Evaluation, known: Mapping[str, Known]
) -> Iterator[str]:
    """Yield why no bound is taken.

    Raises
    ------
    PlanError: all are above the time of the plan that they were saved with.
    """
    if not known:
        yield "it has none"
        return
    if start.why_unproved:
        yield start.why_unproved
    new, old = search.problem.request, start.request
    if new is None or old is None:
        yield "an input is an object, of which it is not known whether it is the same"
        return
    yield from other_costs(old, new)
    yield from search.problem.space.widened(old, new)
    # Costs that are the same give the plan the same time; else they are those of another program.
    found = evaluation.iteration_time
    if not abs(found - start.seconds) <= SAVED_ROUNDING * found:
        yield f"its plan takes {found:.7g} s, {start.seconds:.7g} s there"
    least = min(one.bound for one in known.values())
    if least > found * (1 + SAVED_ROUNDING):
        raise PlanError(
            f"{start.name}: certificate: found bounds of {least!r} s and more, expected at most "
            f"the {found!r} s of its own plan"
        )


def _take_fastest(search: SearchState, start: Start) -> None:
    """Let a search have the fastest plan that was found, if it is one here.

    Raises
    ------
    PlanError: it takes less than any can.
    """
    assert start.fastest is not None
    evaluation = evaluate(search.problem, start.fastest)
    if evaluation.legal and not search.problem.space.outside(search.problem, start.fastest):
        try:
            search.keep(start.fastest, evaluation, search.bound)
        except SolverError as error:
            raise PlanError(f"{start.name}: {error}") from None


def _answer(search: SearchState, start: Start, evaluation: Evaluation) -> None:
    """End a search that would end with the saved plan: the fastest one is proved, and the same
    preference for plain plans was asked for."""
    own = start.fastest or start.plan
    search.answered = search.plan is own and search.proved()
    if search.answered and search.plan is not start.plan:
        search.fastest = search.as_fastest()
        search.plan, search.evaluation = start.plan, evaluation
        search.objective = evaluation.iteration_time


def _take_plan(search: SearchState, start: Start, evaluation: Evaluation) -> str:
    """Let a search have the plan, or similar ones; return the parts used.

    Raises
    ------
    PlanError: the plan takes less than any can, so that costs were others.
    """
    space, problem = search.problem.space, search.problem
    why = next((str(rule) for rule in evaluation.violations), "")
    why = why or space.outside(problem, start.plan) or ""
    if not why:
        try:
            search.keep(start.plan, evaluation, search.bound)
        except SolverError as error:
            raise PlanError(f"{start.name}: {error}") from None
        return f"the plan of {start.name}, {format_seconds(search.objective)}"
    with suppress(OutOfTimeError):
        space.approach(search, start.plan)
    if search.plan is None:
        return f"no plan like that of {start.name}, which is none here ({why})"
    found = format_seconds(search.objective)
    return f"a plan like that of {start.name}, {found}, which is none here ({why})"
