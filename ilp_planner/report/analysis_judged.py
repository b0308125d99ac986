"""A plan that no training job can say: what its own cost model holds and sends, stage by stage."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.plan import GroupStage, OperatorStage
from ilp_planner.report.grid import Grid, grid_lines
from ilp_planner.report.tables import span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.costs.base import StageCost
    from ilp_planner.plan import AnyPlan

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStage:
    """One stage. tp, dp: `2`, or `1-4` where its operators differ. memory: bytes of its fullest
    device; memory_terms, time_terms: bytes and seconds per micro-batch, by the cost model's
    names."""

    what: str
    devices: int
    tp: str
    dp: str
    memory: float
    memory_terms: Mapping[str, float]
    time: float
    time_terms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A plan as its cost model sees it. reason: why it is no training job."""

    name: str
    costs: str
    reason: str
    micro_batches: int
    stages: tuple[JudgedStage, ...]
    violations: tuple[str, ...]


def judged_stages(plan: AnyPlan, costs: Sequence[StageCost]) -> Iterator[JudgedStage]:
    """Yield every stage with what the cost model says of it."""
    for stage, cost in zip(plan.stages, costs, strict=False):
        memory = max(cost.memory)
        if isinstance(stage, OperatorStage):
            tp, dp = span(x.tp for x in stage.strategies), span(x.dp for x in stage.strategies)
            unit = "operators"
        else:
            assert isinstance(stage, GroupStage)
            tp, dp, unit = str(stage.tp), str(stage.dp), "layers"
        yield JudgedStage(
            what=f"{unit} {stage.start}-{stage.stop - 1}",
            devices=len(stage.devices),
            tp=tp,
            dp=dp,
            memory=float(memory),
            memory_terms=dict(cost.memory_terms),
            time=cost.time,
            time_terms=dict(cost.time_terms),
        )


def judged_text(judged: Judged, *, width: int, styled: bool = False) -> str:
    """Return two tables, memory and time, and whose figures they are."""
    lines = []
    for title, factor, terms in (("GiB", GIB, "memory_terms"), ("ms", 1e-3, "time_terms")):
        names = list(dict.fromkeys(n for stage in judged.stages for n in getattr(stage, terms)))
        whole = "memory per\ndevice (GiB)" if terms == "memory_terms" else "micro-batch\n(ms)"
        heads = [f"{name.replace(' ', chr(10))}\n({title})" for name in names]
        grid = Grid(("stage", "holds", "devices", "tp", "dp", whole, *heads), frozenset((1,)))
        for s, stage in enumerate(judged.stages):
            total = stage.memory if terms == "memory_terms" else stage.time
            values = getattr(stage, terms)
            grid.add(
                str(s),
                stage.what,
                str(stage.devices),
                stage.tp,
                stage.dp,
                f"{total / factor:,.3f}",
                *(f"{values[n] / factor:,.3f}" if n in values else "-" for n in names),
            )
        lines += [*grid_lines(grid, width, styled=styled), ""]
    lines += [
        f"model    {judged.name}, {judged.micro_batches} micro-batches",
        f"figures  those of the cost model {judged.costs!r}, by its own names. No tensor and no "
        "message is derived: no training job says this plan:",
        f"         {judged.reason}",
        *(f"BROKEN   {violation}" for violation in judged.violations),
    ]
    return "\n".join(lines)


def judged_object(judged: Judged) -> dict[str, Any]:
    """Return the same for `--json`: bytes and seconds."""
    return {"source": f"cost model {judged.costs}", **asdict(judged)}
