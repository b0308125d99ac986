"""A plan beyond training jobs: memory and messages by its own cost model, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.printable import printable_lines
from ilp_planner.base.units import counted
from ilp_planner.faces.report.expected import expected_lines, expected_object
from ilp_planner.faces.report.grid import grid_lines
from ilp_planner.faces.report.tables import GIB, Table, span
from ilp_planner.faces.schemas import headed
from ilp_planner.plan import GroupStage, OperatorStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan as its cost model sees it. reason: why it is no training job."""

    problem: Problem[Any]
    plan: AnyPlan
    evaluation: Evaluation
    reason: str

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.problem.model


def judged_stages(judged: Judged) -> Iterator[dict[str, Any]]:
    """Yield every stage with the figures of the cost model, by that model's names.

    tp, dp: `2`, or `1-4` if its operators differ. memory: bytes of its fullest device; time:
    seconds per micro-batch.
    """
    for stage, cost in zip(judged.plan.stages, judged.evaluation.stages, strict=False):
        if isinstance(stage, OperatorStage):
            tp, dp = span(x.tp for x in stage.strategies), span(x.dp for x in stage.strategies)
            unit = "operators"
        else:
            assert isinstance(stage, GroupStage)
            tp = span(degree // judged.plan.cp for degree in stage.degrees)
            dp, unit = str(stage.dp), "layers"
        yield {
            "what": f"{unit} {stage.start}-{stage.stop - 1}",
            "devices": len(stage.devices),
            "tp": tp,
            "dp": dp,
            "memory": float(max(cost.memory)),
            "memory_terms": dict(cost.memory_terms),
            "time": cost.time,
            "time_terms": dict(cost.time_terms),
        }


def judged_text(judged: Judged, *, width: int, styled: bool = False) -> str:
    """Return two tables, memory and time, and the source of the figures."""
    lines, stages = [], list(judged_stages(judged))
    for key, unit, factor, whole in (
        ("memory", "GiB", GIB, "memory per\ndevice (GiB)"),
        ("time", "ms", 1e-3, "micro-batch\n(ms)"),
    ):
        names = list(dict.fromkeys(name for stage in stages for name in stage[f"{key}_terms"]))
        heads = [f"{name.replace(' ', chr(10))}\n({unit})" for name in names]
        grid = Table("stage", "holds", "devices", "tp", "dp", whole, *heads, left=("holds",))
        for s, stage in enumerate(stages):
            values = stage[f"{key}_terms"]
            grid.add(
                *map(str, (s, stage["what"], stage["devices"], stage["tp"], stage["dp"])),
                f"{stage[key] / factor:,.3f}",
                *(f"{values[n] / factor:,.3f}" if n in values else "-" for n in names),
            )
        lines += [*grid_lines(grid, width, styled=styled), ""]
    lines += [
        f"model    {judged.name}, {counted(judged.plan.micro_batches, 'micro-batch')}",
        *(f"{name}  {text}" for name, text in expected_lines(judged.problem, judged.plan)),
        f"figures  those of the cost model {judged.problem.costs.name!r}, by its own names. No "
        "tensor and no message is derived: no training job says this plan:",
        f"         {judged.reason}",
        *(f"note     {note}" for note in judged.problem.notes),
        *(f"BROKEN   {violation}" for violation in judged.evaluation.violations),
    ]
    return printable_lines(lines)


def judged_object(judged: Judged) -> dict[str, Any]:
    """Return the same for `--json`: bytes and seconds."""
    costs = judged.problem.costs.name
    return {
        **headed("analyze-costs"),
        "source": f"cost model {costs}",
        "name": judged.name,
        "costs": costs,
        "reason": judged.reason,
        "micro_batches": judged.plan.micro_batches,
        **expected_object(judged.problem, judged.plan, judged.evaluation.iteration_time),
        "stages": list(judged_stages(judged)),
        "notes": list(judged.problem.notes),
        "violations": list(map(str, judged.evaluation.violations)),
    }
