"""Results of `solve` and `load` in Python: plans that print, save, check and export themselves."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, UsageError
from ilp_planner.faces.api.check import check_plan
from ilp_planner.faces.api.planned import Planned
from ilp_planner.faces.api.words import Printed, brief_text, described, python_words
from ilp_planner.optimize.result import Result as Outcome

if TYPE_CHECKING:
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import Claim, SavedPlan
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Planned, Outcome):
    """The result at the end of a search, and its problem.

    The figures are as in `ilp_planner.optimize.result.Result`; `plan` and `evaluation` are None if
    no plan was found.
    """

    problem: Problem[Any]

    def __str__(self) -> str:
        return self._text(every=False)

    @property
    def details(self) -> str:
        """The output of `ilp-plan solve --verbose`."""
        return self._text(every=True)

    def _text(self, *, every: bool) -> str:
        from ilp_planner.faces.report.brief import brief_lines
        from ilp_planner.faces.report.lines import result_lines
        from ilp_planner.faces.report.stages import result_tables

        lines = brief_lines(self.problem, self)
        tables = result_tables(self.problem, self, every=every)
        return brief_text(lines, tables, result_lines(self.problem, self) if every else ())

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan solve --json`."""
        from ilp_planner.faces.report.json_report import result_object

        return result_object(self.problem, self)

    def _repr_html_(self) -> str:
        # Without a plan there is nothing to draw.
        return super()._repr_html_() if self.plan is not None else Printed._repr_html_(self)

    @property
    def found(self) -> AnyPlan:
        """The plan.

        Raises
        ------
        PlanError: there is none.
        """
        if self.plan is None:
            raise PlanError(f"no plan: {self.reason or 'none was found'}")
        return self.plan

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the plan, its inputs, its proof and its evaluation to a file for `load`.

        Raises
        ------
        PlanError: there is no plan. UsageError: an input is an object that no file holds.
        OutputError: the file cannot be written.
        """
        from ilp_planner.formats.saved_json import write_saved
        from ilp_planner.formats.saved_plan import saved_result
        from ilp_planner.formats.versions import versions

        _ = self.found
        if self.problem.request is None:
            raise UsageError(
                "save: found an input that came as an object, expected a name or a path: a saved "
                "plan names the files that it is judged by"
            )
        write_saved(Path(file), saved_result(self.problem, self, versions()))

    def as_start(self) -> Start:
        """Return the start of another search; of objects that no file holds, the plan alone."""
        return replace(
            super().as_start(), space=self.problem.space.name, request=self.problem.request
        )

    def _kept(self) -> SavedPlan:
        from ilp_planner.formats.aim_json import encode_aim
        from ilp_planner.formats.saved_plan import SavedPlan, claim_of
        from ilp_planner.formats.versions import versions
        from ilp_planner.inputs.request import Request

        request = self.problem.request or Request(files={})
        return SavedPlan(
            plan=self.found,
            inputs=request,
            claim=claim_of(self, versions()),
            certificate=self.certificate,
            aim={} if self.aim is None else encode_aim(self.aim),
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Saved(Planned):
    """A plan that was read from a file, with the problem that it was solved for."""

    file: Path
    problem: Problem[Any]
    content: SavedPlan

    @property
    def plan(self) -> AnyPlan:
        """The decision."""
        return self.content.plan

    @property
    def evaluation(self) -> Evaluation:
        """The plan judged anew."""
        from ilp_planner.evaluate import evaluate

        return evaluate(self.problem, self.plan)

    @property
    def claim(self) -> Claim | None:
        """The claim of the solver; None for a plan that came from elsewhere."""
        return self.content.claim

    def __repr__(self) -> str:
        return f"<Saved {self.file}: {self.plan!r}>"

    def __str__(self) -> str:
        return str(check_plan(self.problem, self.content, certificate=False))

    def _kept(self) -> SavedPlan:
        return self.content

    @property
    def _source(self) -> str:
        return str(self.file)


def load(file: str | os.PathLike[str], *, accept_changed: bool = False) -> Saved:
    """Read a saved plan, and build its problem again from the file and its profile.

    Parameters
    ----------
    accept_changed: judge by the inputs as they are now, also where they differ from those recorded.

    Raises
    ------
    UsageError: it is no path. PlanError: it cannot be read, or its profile has changed.
    """
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import problem_of

    if not isinstance(file, str | os.PathLike):
        raise UsageError(f"load: found {described(file)}, expected the path of a saved plan")
    path = Path(file)
    with python_words():
        content = read_saved(path)
        problem = problem_of(content, path, accept_changed=accept_changed)
    return Saved(file=path, problem=problem, content=content)
