"""The state of every search: the best plan so far, its bound, and the remaining time."""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import (
    CERTIFICATE_VERSION,
    EVERY_PART,
    Fastest,
    Ranked,
    Result,
    Status,
    Stop,
    relative_gap,
)
from ilp_planner.optimize.search.confirm import CONFIRMER, confirm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.base.team import Team
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.start import Known
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.plan import Plan


class Proved(Protocol):
    """A part of the space, or all of it."""

    @property
    def bound(self) -> float:
        """Lower bound of its plans in seconds."""

    @property
    def source(self) -> str:
        """The source of the bound's proof."""

    def record(self) -> dict[str, Any]:
        """Return the record for a certificate."""


class Unlisted(NamedTuple):
    """A whole space without a list of its parts.

    bound: lower bound of its plans in seconds; source: of its proof. key: of a part's name in
    certificates of the space.
    """

    bound: float = 0.0
    source: str = ""
    key: str = "part"

    def record(self) -> dict[str, Any]:
        """Return the record for a certificate."""
        return {self.key: EVERY_PART, "bound_s": self.bound, "by": self.source}


class SearchState(ABC):
    """The best plan of a search so far. Its bound is valid at any moment, so that an interrupt
    loses nothing.

    objective: seconds, inf without a plan. rounding: relative, of times that are added in another
    order than the evaluator does. borrowed: the saved plan that bounds were taken from, empty for
    none.
    closing: the objective that it begins with is that of a good plan elsewhere, and nothing but a
    better one is of interest.
    from_an_end: it began with the plan of a search that came to its end, or with one like it.
    answered: a saved plan is the answer.
    begun: when it began, by `time.monotonic`.
    judged: all plans of the space, if these are so few that each was judged. fastest: the fastest
    plan, if a plainer one was put in its place. team: processes that answer questions of this
    search until it ends (`end`), if it asks any.
    """

    rounding = PROVED

    def __init__(self, problem: Problem[Any], task: Task) -> None:
        self.problem = problem
        self.limits, self.solver, self.progress, deadline = task
        self.exactly = dataclasses.replace(task.limits, gap=0.0)  # what is solved on the way
        self.deadline = deadline or task.limits.deadline()
        self.begun = time.monotonic()
        self.plan: Plan[Any] | None = None
        self.evaluation: Evaluation | None = None
        self.objective = math.inf
        self.notes = list(problem.notes)
        self.confirmed_by = ""
        self.borrowed = ""
        self.from_an_end = False
        self.closing = False
        self.answered = False
        self.judged: tuple[tuple[Plan[Any], Evaluation], ...] = ()
        self.fastest: Fastest | None = None
        self.team: Team[Any, Any] | None = None

    def end(self) -> None:
        """End the processes that answer its questions."""
        if self.team is not None:
            self.team.end()

    @abstractmethod
    def proved_parts(self) -> Sequence[Proved]:
        """Return the parts of the space, as far as they have been looked at."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """Seconds; no plan takes less."""

    def take_bounds(self, known: Sequence[Known | None]) -> int:
        """Take bounds of the parts that were proved before, None for parts without one; return of
        how many. No search can that must know how they were proved."""
        return 0

    def evaluate(self, plan: Plan[Any]) -> Evaluation:
        """Judge a plan; judgements are cached."""
        known = (evaluation for one, evaluation in self.judged if one is plan)
        return next(known, None) or evaluate(self.problem, plan)

    def goon(self) -> bool:
        """Tell whether there is time left."""
        return self.deadline.goon()

    def check_time(self) -> None:
        """Stop here when the time is up."""
        self.deadline.check()

    def gap_reached(self) -> bool:
        """Tell whether the plan is good enough."""
        return relative_gap(self.objective, self.bound) <= max(self.limits.gap, PROVED)

    def proved(self) -> bool:
        """Tell whether no plan is better than the one found."""
        return relative_gap(self.objective, self.bound) <= PROVED

    def as_fastest(self) -> Fastest:
        """Return the best plan so far, with its bound."""
        assert self.plan is not None
        assert self.evaluation is not None
        return Fastest(
            plan=self.plan,
            evaluation=self.evaluation,
            objective=self.objective,
            status=Status.FEASIBLE,
        ).beside(self.bound)

    def keep(self, plan: Plan[Any], evaluation: Evaluation, bound: float) -> bool:
        """Take a plan if it is the best, and tell whether it is.

        Parameters
        ----------
        bound: its lower bound in seconds.

        Raises
        ------
        SolverError: the evaluator finds it illegal, or faster than the bound.
        """
        if not evaluation.legal:
            raise SolverError(f"the search believes in an illegal plan: {evaluation.violations[0]}")
        found = evaluation.iteration_time
        if found < bound * (1 - self.rounding):
            raise SolverError(
                f"a plan of {found!r} s is below the proved bound of {bound!r} s{self._blame}"
            )
        if not found < self.objective:
            return False
        self.plan, self.evaluation, self.objective = plan, evaluation, found
        self.report()
        return True

    @property
    def _blame(self) -> str:
        """Possible causes of a bound that does not hold."""
        if not self.borrowed:
            return ""
        return (
            f"; bounds of {self.borrowed} were taken: `ilp-plan evaluate --check-certificate` says "
            "whether they hold, and without `start` none is"
        )

    def report(self) -> None:
        """Tell whoever listens."""
        if self.progress is not None:
            self.progress(self.objective, min(self.bound, self.objective))

    def confirm(self) -> None:
        """Let CP-SAT solve the residual problem of a proof by the default: it must find the same
        optimum.

        Raises
        ------
        SolverError: it does not.
        """
        if self.plan is None or self.solver != "auto" or self.judged or not self.proved():
            return
        last = None
        with suppress(OutOfTimeError):
            if self.goon():
                last = self.problem.space.last_problem(self, self.plan)
        if not self.deadline.wanted():  # perhaps only since the last problem raised the bound
            return
        if last is None:
            reason = (
                "no integer program says it, or none that is small"
                if self.goon()
                else "no time was left"
            )
            self.notes.append(f"not confirmed by {CONFIRMER}: {reason}")
            return
        confirmation = confirm(last, self.objective, self.rounding, self.limits, self.deadline)
        self.confirmed_by, note = confirmation
        self.notes += [note] if note else []

    def result(self, stop: Stop, ranking: tuple[Ranked, ...] = ()) -> Result:
        """Put together the result at the end.

        Raises
        ------
        SolverError: the bound is above the plan's time.
        """
        if self.bound > self.objective * (1 + self.rounding):
            raise SolverError(
                f"the bound of {self.bound!r} s is above the plan of {self.objective!r} s"
                f"{self._blame}"
            )
        bound, parts, reason = min(self.bound, self.objective), self.proved_parts(), ""
        if self.plan is not None:
            proved = relative_gap(self.objective, bound) <= PROVED
            status = Status.OPTIMAL if proved else Status.FEASIBLE
            bound = self.objective if proved else bound
            if proved and stop is not Stop.USER:
                stop = Stop.PROOF
        else:
            status = Status.INFEASIBLE if self.bound >= NEVER else Status.UNKNOWN
            bound = math.inf if self.bound >= NEVER else bound
        if status is Status.INFEASIBLE:
            reason = self.problem.space.explain(self)
        lowest = min(parts, key=lambda part: part.bound, default=None)
        return Result(
            plan=self.plan,
            evaluation=self.evaluation,
            status=status,
            stopped_by=stop,
            objective=self.objective,
            bound=bound,
            bound_source=lowest.source if lowest is not None and self.bound > 0 else "",
            wall=self.deadline.elapsed,
            solver=self.solver,
            seed=self.limits.seed,
            certificate={
                "version": CERTIFICATE_VERSION,
                "bound_s": bound if math.isfinite(bound) else None,
                "parts": [part.record() for part in parts],
            },
            notes=tuple(self.notes),
            reason=reason,
            among=self.problem.space.describe(self.problem),
            confirmed_by=self.confirmed_by,
            ranking=ranking,
            fastest=self.fastest and self.fastest.beside(self.bound),
            prefer_plain=self.limits.prefer_plain if self.problem.space.graded else math.nan,
        )
