"""Results of `solve` and `load` in Python: plans that print, save, check and export themselves.

Uses of a plan: its judgement, files of training systems, and memory of every rank.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, UsageError, described
from ilp_planner.base.parts import part
from ilp_planner.faces.api.words import Printed, brief_text, in_python, python_words
from ilp_planner.optimize.result import Result as Outcome

if TYPE_CHECKING:
    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.faces.page.view import View
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.formats.saved_plan import Claim, SavedPlan
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.certificate import CertificateCheck
    from ilp_planner.optimize.coverage import Coverage
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.throughput import Throughput


# ---- judging a plan again, and its proof ---------------------------------------------------------
# Nothing that a solver or a file claims is believed.


@dataclass(frozen=True, kw_only=True, repr=False)
class Check(Printed):
    """A plan and its proof, judged again."""

    judgement: Judgement

    @property
    def evaluation(self) -> Evaluation:
        """The plan judged anew."""
        return self.judgement.evaluation

    @property
    def certificate(self) -> CertificateCheck | None:
        """The proof derived again; None if the plan came without one."""
        return self.judgement.certificate

    @property
    def coverage(self) -> Coverage:
        """The plans of the proof, and why this one is outside, if it is."""
        return self.judgement.coverage

    @property
    def fault(self) -> str:
        """The first thing that does not hold; empty when everything does."""
        return in_python(self.judgement.fault)

    @property
    def holds(self) -> bool:
        """The plan is legal, takes the time that is claimed, and its bound is proved."""
        return self.judgement.holds

    @property
    def bound(self) -> float:
        """Seconds that no plan of the space is below, derived again; 0 without a certificate."""
        return 0.0 if self.certificate is None else self.certificate.bound

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan evaluate --json`."""
        from ilp_planner.faces.report.json_report import judgement_object

        return judgement_object(self.judgement)

    def __bool__(self) -> bool:
        return self.holds

    def __repr__(self) -> str:
        return f"<Check {self.fault or 'holds'}>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.evaluation import (
            judgement_lines,
            judgement_tables,
            verdict_lines,
        )

        judged = self.judgement
        tables = judgement_tables(judged)
        return brief_text(verdict_lines(judged), tables, judgement_lines(judged))


def check_plan(problem: Problem[Any], saved: SavedPlan, *, certificate: bool = True) -> Check:
    """Judge a plan again, and derive every bound of its certificate again, if it has one.

    Raises
    ------
    PlanError: the certificate is malformed.
    SolverError: the bound derived again is above the time of a plan that it is about.
    """
    from ilp_planner.formats.saved_check import judge_saved

    with python_words():
        derive = certificate and bool(saved.certificate)
        return Check(judgement=judge_saved(problem, saved, certificate=derive))


# ---- a plan and its uses -------------------------------------------------------------------------


class Planned(Printed, ABC):
    """A plan with its problem, solved or read from a file."""

    problem: Problem[Any]

    @abstractmethod
    def _kept(self) -> SavedPlan:
        """Return the plan, the claims about it, and its proof."""

    @property
    def _source(self) -> str:
        """The name of the plan in messages."""
        return "result"

    @property
    def details(self) -> str:
        """Every line about the plan."""
        return str(self)

    def as_start(self) -> Start:
        """Return the start of another search."""
        from ilp_planner.formats.saved_start import start_of

        return start_of(self._kept(), self._source)

    def check(self) -> Check:
        """Judge the plan again, and derive every bound of its certificate again."""
        return check_plan(self.problem, self._kept())

    def export(
        self, runtime: str, file: str | os.PathLike[str], *, nearest: bool = False
    ) -> tuple[Path, ...]:
        """Write the plan for a training system; return the files that were written.

        Parameters
        ----------
        runtime: `megatron`, `torchtitan` (its newest release, `torchtitan@0.2.2` another one),
            `deepspeed`, `nemo`, `peft`, `aceso`; `slurm` or `kubernetes` around the plan's own
            system, `slurm:nemo` around another; `lp` or `mps` for the integer program that the
            proof leaves open.
        file: further files of a training system go beside it.
        nearest: where the system cannot run the plan, write the nearest one that it runs.

        Raises
        ------
        UsageError: unknown system or release. PlanError: there is no plan, or the system cannot
        run it.
        """
        from ilp_planner.base.files import check_writable
        from ilp_planner.evaluate import evaluate
        from ilp_planner.formats.exports import EXPORTS, PROGRAMS, Target, runtime_of, write_runtime

        problem, kept, output = self.problem, self._kept(), Path(file)
        system = runtime_of(runtime, own=problem.space.name).system
        with python_words():
            if system not in EXPORTS:
                check_writable(output)
            if system in PROGRAMS:
                from ilp_planner.formats.program import write_program

                write_program(problem, kept.plan, kept.certificate, runtime, output)
                return (output,)
            if problem.spec is None:
                raise PlanError(f"export: found a plan without a model, which {runtime} needs")
            if system in EXPORTS:
                time = evaluate(problem, kept.plan).iteration_time
                target = Target(problem.spec, problem.cluster, time, problem.request)
                return write_runtime(kept.plan, target, runtime, output, nearest=nearest).files
            part("peers.aceso.formats:save_aceso")(output, kept.plan, problem.spec)
            return (output,)

    @property
    def throughput(self) -> Throughput | None:
        """Throughput of the plan, MFU, HFU and bubble; None if the model's dimensions are not
        known.

        Raises
        ------
        PlanError: there is no plan.
        """
        from ilp_planner.evaluate import evaluate
        from ilp_planner.spaces.throughput import throughput

        plan = self._kept().plan
        return throughput(self.problem, plan, evaluate(self.problem, plan))

    def page(self) -> str:
        """Return the plan as a page of HTML that fetches nothing, as `ilp-plan show` writes it.

        Raises
        ------
        PlanError: there is no plan.
        """
        from ilp_planner.faces.page.render import plan_page

        return plan_page([self._view()])

    def _view(self) -> View:
        from ilp_planner.faces.page.view import view_of
        from ilp_planner.formats.saved_check import judge_saved

        with python_words():
            judgement = judge_saved(self.problem, self._kept(), certificate=False)
            source = Path(self._source)
            return view_of(judgement, name=source.name, stem=source.stem)

    def _repr_html_(self) -> str:
        from ilp_planner.faces.page.render import plan_summary

        return plan_summary(self._view(), self.details)

    def analyze(self, **said: Any) -> Analysis:
        """Return memory and messages of every rank of the plan.

        Parameters
        ----------
        said: name, limit, device, notes: as in `ilp_planner.analysis.plans.analyze_plan`.

        Raises
        ------
        PlanError: neither a training job nor its stages one by one can say the plan.
        """
        from ilp_planner.analysis.plans import analyze_plan

        plan, spec = self._kept().plan, self.problem.spec
        if spec is None:
            raise PlanError(
                "analyze: found a plan without a model, expected one whose model is named"
            )
        return analyze_plan(plan, spec, self.problem.cluster, source=self._source, **said)


# ---- results of `solve` and `load` ---------------------------------------------------------------


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
        from ilp_planner.formats.saved_plan import SavedPlan, claim_of, encode_aim
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
