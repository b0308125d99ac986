"""What `solve` returns in Python: the outcome, which prints, saves, checks and exports itself."""

from __future__ import annotations

import html
import io
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ilp_planner.api.words import in_python
from ilp_planner.errors import PlanError, UsageError
from ilp_planner.report.console import PIPE_WIDTH, fitted
from ilp_planner.report.groups import group_result_lines, group_table, ranking_table
from ilp_planner.report.tables import result_lines, stage_table, summary
from ilp_planner.result import Outcome
from ilp_planner.result import Result as LayerOutcome
from ilp_planner.result import Result as OperatorOutcome

if TYPE_CHECKING:
    import os

    from rich.table import Table
    from rich.text import Text

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.api.check import Check
    from ilp_planner.api.problem import Problem
    from ilp_planner.formats.saved_groups import SavedGroups
    from ilp_planner.formats.saved_plan import SavedPlan


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Outcome):
    """What is known at the end of a search, and the problem that it was for.

    The figures are those of `Outcome`; `plan` and `evaluation` are None where no plan was found.
    """

    problem: Problem

    def __str__(self) -> str:
        return as_text(*self._report())

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def _report(self) -> tuple[Text, list[Table]]:
        raise NotImplementedError

    def saved(self) -> SavedPlan | SavedGroups:
        """Return what a file of the plan holds.

        Raises
        ------
        PlanError: there is no plan.
        UsageError: an input is an object that no file holds.
        """
        from ilp_planner.cli.inputs import Case
        from ilp_planner.cli.layer_inputs import LayerCase
        from ilp_planner.cli.layer_solve import saved_groups
        from ilp_planner.cli.solve import saved_plan
        from ilp_planner.cli.versions import versions

        need_plan(self)
        asked: Any = self.problem.inputs
        if asked is None:
            kinds = " and ".join(self.problem.objects) or "problem"
            raise UsageError(
                f"save: found a {kinds} that came as an object, expected a name or a path: a saved "
                "plan names the files that it is judged by"
            )
        instance: Any = self.problem.instance
        if isinstance(self, OperatorOutcome):
            return saved_plan(Case(problem=instance, inputs=asked), self, versions())
        assert isinstance(self, LayerOutcome)
        return saved_groups(LayerCase(problem=instance, inputs=asked), self, versions())

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the plan, its inputs, its proof and its evaluation to a file for `load`.

        Raises
        ------
        PlanError: there is no plan. UsageError: an input is an object that no file holds.
        OutputError: the file cannot be written.
        """
        from ilp_planner.formats.groups_json import write_groups
        from ilp_planner.formats.plan_json import write_plan
        from ilp_planner.formats.saved_groups import SavedGroups

        saved = self.saved()
        if isinstance(saved, SavedGroups):
            write_groups(Path(file), saved)
        else:
            write_plan(Path(file), saved)

    def check(self) -> Check:
        """Judge the plan again, and derive every bound of its certificate again."""
        from ilp_planner.api.check import check

        return check(self)

    def export(self, runtime: str, file: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the plan for a training system; return the files. See `export_plan`."""
        from ilp_planner.api.export import export_plan

        return export_plan(self.problem, need_plan(self), runtime, Path(file), self.certificate)

    def analyze(self) -> Analysis:
        """Return what every rank of the plan holds and sends."""
        from ilp_planner.api.analysis import analyze

        return analyze(self)


@dataclass(frozen=True, kw_only=True, repr=False)
class OperatorResult(Result, OperatorOutcome):
    """The outcome for a plan of operators on equal devices."""

    def _report(self) -> tuple[Text, list[Table]]:
        instance: Any = self.problem.instance
        tables = []
        if self.plan is not None and self.evaluation is not None:
            tables.append(stage_table(instance, self.plan, self.evaluation))
        return summary(result_lines(instance, self)), tables


@dataclass(frozen=True, kw_only=True, repr=False)
class LayerResult(Result, LayerOutcome):
    """The outcome for a plan of whole layers on groups of devices."""

    def _report(self) -> tuple[Text, list[Table]]:
        instance: Any = self.problem.instance
        tables = []
        if self.plan is not None and self.evaluation is not None:
            tables.append(group_table(instance, self.plan, self.evaluation))
        if self.ranking:
            tables.append(ranking_table(instance, self.ranking))
        return summary(group_result_lines(instance, self)), tables


def with_problem(outcome: OperatorOutcome | LayerOutcome, problem: Problem) -> Result:
    """Return an outcome that knows its problem."""
    values = {field.name: getattr(outcome, field.name) for field in fields(outcome)}
    if isinstance(outcome, OperatorOutcome):
        return OperatorResult(**values, problem=problem)
    return LayerResult(**values, problem=problem)


def need_plan(result: Any) -> Any:
    """Return the plan.

    Raises
    ------
    PlanError: there is none.
    """
    if result.plan is None:
        raise PlanError(f"no plan: {result.reason or 'none was found'}")
    return result.plan


def as_text(lines: Text, tables: list[Table]) -> str:
    """Return tables and then lines, as the command line prints them into a pipe."""
    console = Console(
        file=io.StringIO(), width=PIPE_WIDTH, markup=False, emoji=False, highlight=False
    )
    with console.capture() as printed:
        for table in tables:
            console.print(fitted(table, console.width), soft_wrap=True)
            console.print()
    return printed.get() + in_python(lines.plain)
