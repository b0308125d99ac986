"""Plans for training systems, and the integer programs that they solve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.api.check import evaluate, is_layers
from ilp_planner.api.words import python_words
from ilp_planner.errors import PlanError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.api.problem import Problem

OTHERS = ("aceso", "lp", "mps")


def export_plan(
    problem: Problem, plan: Any, runtime: str, file: Path, certificate: dict[str, Any]
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
    from ilp_planner.cli.export_runtime import RUNTIMES, write_runtime
    from ilp_planner.files import check_writable

    if runtime not in (*RUNTIMES, *OTHERS):
        raise UsageError(
            f"export: found {runtime!r}, expected one of {', '.join((*RUNTIMES, *OTHERS))}"
        )
    if problem.model is None and runtime not in ("lp", "mps"):
        raise PlanError(f"export: found a plan without a model, which {runtime} needs")
    with python_words():
        if runtime in RUNTIMES:
            assert problem.model is not None
            time = evaluate(problem, plan).iteration_time
            written, _ = write_runtime(plan, time, problem.model, problem.cluster, runtime, file)
            return written
        check_writable(file)
        if is_layers(problem):
            raise PlanError(
                f"export: found a plan of whole layers, expected one of operators for {runtime}"
            )
        if runtime == "aceso":
            from ilp_planner.formats.aceso import save_aceso

            assert problem.model is not None
            save_aceso(file, plan, problem.model)
            return (file,)
        from ilp_planner.certificate import plan_graph
        from ilp_planner.solvers.pulp_backend import write_program

        graph = plan_graph(problem.instance, certificate, plan)  # type: ignore[arg-type]
        write_program(graph, file, runtime)
        return (file,)
