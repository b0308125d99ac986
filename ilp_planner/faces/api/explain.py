"""The verbs `why` and `compare`: limits of a plan, the cost of another one, plans side by side."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError, described
from ilp_planner.faces.api.result import Result, Saved, load
from ilp_planner.faces.api.words import Printed, as_text, expect, positive, python_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.analysis.compare.entry import Entry
    from ilp_planner.analysis.why.alternative import Alternative
    from ilp_planner.analysis.why.why import Case, Why
    from ilp_planner.inputs.problem import Problem

SECONDS = 12.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Printed):
    """The limits of a plan. found: seconds, ranks and gains. within: relative, as it was said."""

    found: Why
    within: float

    def __repr__(self) -> str:
        return f"<Explanation {self.found.case.name}, {len(self.found.gains)} changes>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.why import Told, why_lines, why_tables

        return as_text(why_lines(self.found, Told(self.within)), why_tables(self.found))

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan why --json`."""
        from ilp_planner.faces.report.why import Told, why_object

        return why_object(self.found, Told(self.within))


@dataclass(frozen=True, kw_only=True, repr=False)
class Instead(Printed):
    """Why not another plan. found: both plans, and the proved range of the difference."""

    found: Alternative

    def __repr__(self) -> str:
        return f"<Instead {self.found.other.name} of {self.found.own.name}>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.alternative import alternative_lines, alternative_tables

        return as_text(list(alternative_lines(self.found)), alternative_tables(self.found))

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan why --not ... --json`."""
        from ilp_planner.faces.report.alternative import alternative_object

        return alternative_object(self.found)


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Printed):
    """Plans side by side on one problem."""

    problem: Problem[Any]
    entries: tuple[Entry, ...]

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.entries)} plans>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.comparison import (
            comparison_lines,
            comparison_table,
            detail_tables,
        )
        from ilp_planner.faces.report.lines import problem_lines

        problem = self.problem
        lines = comparison_lines(problem_lines(problem), problem.notes, self.entries)
        tables = [comparison_table(self.entries), *detail_tables(self.entries)]
        return as_text(lines, tables)

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan compare --json`."""
        from ilp_planner.faces.report.comparison import comparison_object

        return comparison_object(self.problem, self.entries)


def why(
    subject: Result | Saved | str | os.PathLike[str],
    *,
    instead: str | os.PathLike[str] | Mapping[str, object] | None = None,
    seconds: float = SECONDS,
    workers: int | None = None,
    within: float = 0.05,
    set_values: Mapping[str, str] | None = None,
) -> Explanation | Instead:
    """Return the limits of a plan, the terms of its time and the gains of changes; or why not
    another one.

    Parameters
    ----------
    subject: a result, a plan of `load`, or the file of a plan.
    instead: the other one: constraints as `tp=8` or `{"tp": 8}`, for their best plan; a saved plan;
        a launch script, read and not run; or `aceso:FILE`.
    seconds: of all searches together. workers: searches at once, each in a process of its own;
        None: one per core. within: how far above the best the plan may be, for the error of times
        that it survives. set_values: of a launch script, values that only a run would tell.

    Raises
    ------
    PlanError: no plan, one that is not legal, or an alternative of another problem. UsageError:
    what cannot be asked. SolverError: the judge refutes the result of the search.
    """
    from ilp_planner.analysis.compare.judge import Asked
    from ilp_planner.analysis.why.why import why as ask
    from ilp_planner.base.children import cores
    from ilp_planner.base.deadline import Deadline

    deadline = Deadline(seconds)
    if not 0 < within < 1:
        raise UsageError(f"within: found {within}, expected a fraction above 0 and below 1")
    count = cores() if workers is None else positive("workers", workers)
    with python_words():
        case = case_of(subject, count)
        if instead is None:
            return Explanation(found=ask(case, deadline), within=within)
        if isinstance(instead, str | os.PathLike):
            asked = Asked(os.fspath(instead), set_values or {})
            return Instead(found=_instead(case, asked, deadline))
        return Instead(found=_demands(case, instead, deadline))


def case_of(subject: Result | Saved | str | os.PathLike[str], workers: int) -> Case:
    """Return the plan that is asked about."""
    from ilp_planner.analysis.why.why import Case
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.inputs.files import plan_folders

    if isinstance(subject, str | os.PathLike):
        subject = load(subject)
    expect("why", subject, Result, Saved)
    return Case(
        judgement=judge_saved(subject.problem, subject._kept(), certificate=False),
        name=subject._source,
        folders=plan_folders(subject.file) if isinstance(subject, Saved) else (),
        workers=workers,
    )


def _instead(case: Case, asked: Any, deadline: Any) -> Alternative:
    from ilp_planner.analysis.why.alternative import given_plan, with_demands
    from ilp_planner.inputs.demand import demanded, names_plan

    if names_plan(asked.text):
        return given_plan(case, asked)
    demands = demanded(asked.text, "instead")
    return with_demands(case, demands, asked.text, deadline)


def _demands(case: Case, said: Any, deadline: Any) -> Alternative:
    from collections.abc import Mapping

    from ilp_planner.analysis.why.alternative import with_demands
    from ilp_planner.inputs.constraints import NAMES, constraints_of

    if not isinstance(said, Mapping):
        raise UsageError(
            f"instead: found {described(said)}, expected constraints, a path, or aceso:FILE"
        )
    unknown = next((name for name in said if name not in NAMES), None)
    if unknown is not None:
        raise UsageError(f"instead: found {unknown!r}, expected some of {', '.join(NAMES)}")
    demands = constraints_of(said)
    text = " ".join(f"{name}={value}" for name, value in demands.texts.items())
    return with_demands(case, demands, text, deadline)


def compare(
    first: Saved | str | os.PathLike[str],
    *others: str | os.PathLike[str],
    set_values: Mapping[str, str] | None = None,
) -> Comparison:
    """Put plans side by side on one problem, with their differences and the terms of their times.

    Parameters
    ----------
    first: a plan of `load`, or the file of a plan; it says the problem. others: files of plans,
        launch scripts (read and not run), or `aceso:FILE`. set_values: of a launch script, values
        that only a run would tell.

    Raises
    ------
    PlanError: the first is no saved plan. SolverError: a plan is faster than a bound that is about
    it.
    """
    from ilp_planner.analysis.compare.entry import check_consistent
    from ilp_planner.analysis.compare.judge import Asked, plan_entry

    if isinstance(first, str | os.PathLike):
        first = load(first)
    expect("compare", first, Saved)
    with python_words():
        problem, given = first.problem, set_values or {}
        texts = [str(first.file), *(str(os.fspath(one)) for one in others)]
        entries = tuple(plan_entry(problem, Asked(text, supplied=given)) for text in texts)
        check_consistent(entries)
    return Comparison(problem=problem, entries=entries)
