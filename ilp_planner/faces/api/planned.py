"""Uses of a plan: its judgement, files of training systems, and memory of every rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.base.parts import part
from ilp_planner.faces.api.check import Check, check_plan
from ilp_planner.faces.api.words import Printed, python_words

if TYPE_CHECKING:
    import os

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.faces.page.view import View
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.throughput import Throughput


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
            `deepspeed`, `nemo`, `aceso`; `lp` or `mps` for the integer program that the proof
            leaves open.
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
        system = runtime_of(runtime).system
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

        return plan_summary(self._view(), str(self))

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
