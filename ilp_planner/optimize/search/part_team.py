"""Several parts of a search of stage graphs at once, each by a process.

What a process does in a part follows from what was known of it when it was asked, and of the best
plan: not from what other processes find meanwhile. So the plan and the bounds do not depend on how
many processes there are.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.team import Team
from ilp_planner.optimize.search.group_search import LABELS, GroupSearch, PartState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.plan import Plan

    Act = Callable[[GroupSearch[Any], PartState[Any]], None]

TOGETHER = 16  # parts at once, at most: what they find is known to the next ones


class Asked(NamedTuple):
    """What may be asked: an act in a part, by the part's number.

    known: the state of the part, without the part itself. objective: seconds of the best plan.
    threads: that the act may have. wanted: the parts that may be asked about again.
    """

    number: int
    act: Act
    known: PartState[Any]
    objective: float
    threads: int
    wanted: frozenset[int]


class Learned(NamedTuple):
    """The state of a part after an act. plan: the best one found, if it is better than the one
    known. solver: that goes on. ended: there was time for all of it."""

    known: PartState[Any]
    plan: Plan[Any] | None
    notes: tuple[str, ...]
    solver: str
    ended: bool


def act_in(
    search: GroupSearch[Any], states: Sequence[PartState[Any]], act: Act, most: int = TOGETHER
) -> None:
    """Let an act look into parts, in so many of them at once, and take what it finds in their
    order; parts that are closed by then are left out.

    Raises
    ------
    OutOfTimeError: the time is up; what was found is taken.
    """
    for first in range(0, len(states), most):
        search.check_time()
        some = [one for one in states[first : first + most] if not search.closed(one)]
        search.forget_closed()
        answers = _learned(search, some, act)
        for state, found in zip(some, answers, strict=True):
            _take(search, state, found)
        search.report()
        if not all(found.ended for found in answers):
            raise OutOfTimeError


def _learned(search: GroupSearch[Any], states: Sequence[PartState[Any]], act: Act) -> list[Learned]:
    """Return what an act finds in parts."""
    if search.team is None:
        count = search.limits.workers if search.solver in LABELS else 1
        search.team = Team(partial(answer, search), count, heavy=True, begun=search.begun)
    numbers = [search.states.index(state) for state in states]
    wanted = frozenset(n for n, one in enumerate(search.states) if not search.may_forget(one))
    threads = max(1, search.limits.workers // max(1, len(states)))
    asked = [
        (n, Asked(n, act, replace(s, part=None), search.objective, threads, wanted))
        for n, s in zip(numbers, states, strict=True)
    ]
    found: list[Learned] = search.team.ask(asked)
    # Another process may have reached the memory limit by itself.
    return [
        own if own.ended or not search.goon() else answer(search, question)
        for (_, question), own in zip(asked, found, strict=True)
    ]


def answer(search: GroupSearch[Any], asked: Asked) -> Learned:
    """Look into a part. The search itself stays as it is."""
    for number, one in enumerate(search.states):
        if number not in asked.wanted:
            one.part.forget()
    state = replace(asked.known, part=search.states[asked.number].part)
    own = copy.copy(search)
    own.__dict__["states"] = [state]
    own.limits = replace(search.limits, workers=asked.threads)
    own.objective, own.plan, own.evaluation = asked.objective, None, None
    own.progress, own.notes, own.team, ended = None, [], None, True
    try:
        asked.act(own, state)
    except OutOfTimeError:
        ended = False
    return Learned(replace(state, part=None), own.plan, tuple(own.notes), own.solver, ended)


def _take(search: GroupSearch[Any], state: PartState[Any], found: Learned) -> None:
    """Take what was found in a part.

    Raises
    ------
    SolverError: the judge finds its plan illegal, or faster than a bound.
    """
    state.learn(found.known)
    search.notes += found.notes
    search.solver = found.solver
    if found.plan is not None:
        search.accept(found.plan, state)
