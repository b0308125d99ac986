"""What a plan becomes outside: files of training systems, and what every rank holds and sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.api.words import python_words
from ilp_planner.errors import PlanError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem


def export_plan(
    problem: Problem[Any], plan: AnyPlan, runtime: str, file: Path, certificate: Mapping[str, Any]
) -> tuple[Path, ...]:
    """Write a plan for a training system; return the files that were written.

    Parameters
    ----------
    runtime: `megatron`, `torchtitan`, `deepspeed`, `nemo`, `aceso`; `lp` or `mps` for the integer
        program of what the proof leaves open.
    file: what else a training system needs goes beside it.

    Raises
    ------
    UsageError: no such system. PlanError: it cannot run the plan.
    """
    from ilp_planner.evaluate import evaluate
    from ilp_planner.files import check_writable
    from ilp_planner.formats.aceso import save_aceso
    from ilp_planner.formats.exports import EXPORTS, PROGRAMS, TARGETS, Target, write_runtime

    if runtime not in TARGETS:
        raise UsageError(f"export: found {runtime!r}, expected one of {', '.join(TARGETS)}")
    with python_words():
        if runtime not in EXPORTS:
            check_writable(file)
        if runtime in PROGRAMS:
            from ilp_planner.program import write_program

            write_program(problem, plan, certificate, runtime, file)
            return (file,)
        if problem.spec is None:
            raise PlanError(f"export: found a plan without a model, which {runtime} needs")
        if runtime in EXPORTS:
            time = evaluate(problem, plan).iteration_time
            target = Target(problem.spec, problem.cluster, time)
            return write_runtime(plan, target, runtime, file).files
        save_aceso(file, plan, problem.spec)
        return (file,)


def analyze_plan(problem: Problem[Any], plan: AnyPlan, *, source: str, **said: Any) -> Analysis:
    """Return what every rank of a plan holds and sends.

    Parameters
    ----------
    source: what messages call the plan. said: name, limit, device, notes: as in
        `ilp_planner.analysis.plans.analyze_plan`.

    Raises
    ------
    PlanError: neither a training job nor its stages one by one can say the plan.
    """
    from ilp_planner.analysis import plans

    if problem.spec is None:
        raise PlanError("analyze: found a plan without a model, expected one whose model is named")
    return plans.analyze_plan(plan, problem.spec, problem.cluster, source=source, **said)
