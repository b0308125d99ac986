"""Of nearly equal plans for a runtime, the plainest one.

A setting that wins one percent on paper wins less than the times are off by, and costs whoever has
to run it. So a search ends with the plainest of the plans that take hardly longer than the fastest
one; how plain plans are, their space says as numbers that are compared one after the other
(`Space.plainness`). The proof is not touched: bound and certificate are about the fastest plan,
which stays beside the plainer one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.solvers.base import PREFER_PLAIN
from ilp_planner.optimize.solvers.registry import is_heuristic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.state import SearchState
    from ilp_planner.plan import Plan

Offer = TypeVar("Offer")
KEPT, MOST_KEPT = 0.1, 20.0  # of a time limit for plainer plans: the share, and seconds at most

Grades = tuple[int, ...]
"""How plain a plan is: the first number in which two plans differ decides, and less is plainer."""


def time_kept(seconds: float) -> float:
    """Return the part of a search's time limit for plainer plans, in seconds."""
    return min(KEPT * seconds, MOST_KEPT)


def check_preference(problem: Problem[Any], said: float | None, *, top: int, solver: str) -> None:
    """Refuse a share for plainer plans if none is looked for.

    said: the share that was asked for; None: nothing was.

    Raises
    ------
    UsageError: with the contradicting option.
    """
    if said and (why := why_alone(problem, top=top, solver=solver)):
        raise UsageError(f"prefer_plain: found {said:g} with {why}, expected none")


def why_alone(problem: Problem[Any], *, top: int, solver: str) -> str:
    """Return why a search looks for no other plan than the fastest one, by an option that rules
    others out; empty if it does."""
    if not problem.space.graded:
        return f"space {problem.space.name}, whose plans are for no training runtime"
    if top > 1:
        return f"`top={top}`, which lists the fastest plans"
    return f"`solver={solver}`, whose plan is taken as it is" if is_heuristic(solver) else ""


def plainer_first(
    offers: Iterable[Offer], graded: Callable[[Offer], tuple[float, Grades]]
) -> list[Offer]:
    """Return offers, the fastest first. Each goes before neighbours that are less plain and faster
    by no more than `PREFER_PLAIN`.

    An offer is before a faster one only if it is plainer and takes hardly longer; the first one is
    the plainest of the offers that take hardly longer than the fastest.

    Parameters
    ----------
    graded: returns the seconds of an offer, and how plain it is.
    """
    found: list[tuple[float, Grades, Offer]] = []
    for offer in sorted(offers, key=graded):
        seconds, grades = graded(offer)
        place = len(found)
        while place and grades < found[place - 1][1] and seconds <= most(found[place - 1][0]):
            place -= 1
        found.insert(place, (seconds, grades, offer))
    return [offer for _, _, offer in found]


def most(seconds: float) -> float:
    """Return the limit in seconds of a plainer offer than one of so many seconds."""
    return seconds * (1 + PREFER_PLAIN)


class Candidate(NamedTuple):
    """A legal plan. seconds: per iteration."""

    grades: Grades
    seconds: float
    plan: Plan[Any]
    evaluation: Evaluation


class Preference:
    """The plainest of the plans that were offered within a share of the fastest one."""

    def __init__(self, search: SearchState) -> None:
        assert search.plan is not None
        assert search.evaluation is not None
        self.search, self.bound = search, search.bound
        own = Candidate(self._grades(search.plan), search.objective, search.plan, search.evaluation)
        self.fastest, self.chosen, self._near = own, own, [own]

    def _grades(self, plan: Plan[Any]) -> Grades:
        return tuple(self.search.problem.space.plainness(self.search.problem, plan).values())

    @property
    def limit(self) -> float:
        """Seconds that a plan may take: a share more than the fastest one, and within the gap that
        is required."""
        limits = self.search.limits
        longest = self.fastest.seconds * (1 + limits.prefer_plain)
        if limits.require_gap < 1:
            longest = min(longest, self.bound / (1 - limits.require_gap) * (1 + PROVED))
        return longest

    def offer(self, plan: Plan[Any]) -> None:
        """Take a plan if it is legal and plainer than the chosen one, or as plain and faster.

        Raises
        ------
        SolverError: it is faster than a bound that was proved.
        """
        evaluation = self.search.evaluate(plan)
        seconds = evaluation.iteration_time
        if not evaluation.legal or seconds > self.limit:
            return
        one = Candidate(self._grades(plan), seconds, plan, evaluation)
        self._near.append(one)
        if seconds < self.fastest.seconds:  # where a search was ended before its proof
            self.search.keep(plan, evaluation, self.bound)
            self.fastest = one
        limit = self.limit
        near = (each for each in self._near if each.seconds <= limit or each is self.fastest)
        self.chosen = min(near, key=lambda each: each[:2])


def prefer_plain(search: SearchState) -> None:
    """Put the plainest plan within `limits.prefer_plain` of the best one in its place; of equally
    plain ones the fastest. The fastest of all stays beside it."""
    if search.plan is None or not search.limits.prefer_plain or search.answered:
        return
    preference = Preference(search)
    if not any(preference.chosen.grades):
        return
    if search.judged:
        for plan, _ in search.judged:
            preference.offer(plan)
    else:
        search.problem.space.offer_plainer(search, preference)
    chosen = preference.chosen
    if chosen is not preference.fastest:
        search.fastest = search.as_fastest()
        search.plan, search.evaluation = chosen.plan, chosen.evaluation
        search.objective = chosen.seconds
