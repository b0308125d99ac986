"""The judge: named checks on a plan, and its time and memory recomputed from costs. Imports no
solver."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.base.units import counted, format_seconds
from ilp_planner.plan import first_devices

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from ilp_planner.costs.base import PlanCost, StageCost
    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import Plan, Stage

FRAMES = ("stages", "time", "memory", "violations")


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a plan breaks. where: `plan`, `stage 3`; have, limit: as shown to the user."""

    rule: str
    where: str
    have: str
    limit: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: found {self.have}, expected {self.limit}"


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation:
    """A plan judged.

    cost: None when the plan is too broken to be priced. violations: empty for a legal plan.
    idle: devices that are in no stage.
    """

    cost: PlanCost | None
    violations: tuple[Violation, ...]
    idle: tuple[int, ...] = ()

    @property
    def iteration_time(self) -> float:
        """Seconds; nan when the plan cannot be priced."""
        return math.nan if self.cost is None else self.cost.iteration_time

    @property
    def stages(self) -> tuple[StageCost, ...]:
        """Cost of every stage; none when the plan cannot be priced."""
        return () if self.cost is None else self.cost.stages

    @property
    def memory(self) -> float:
        """Bytes of the fullest device; nan when the plan cannot be priced."""
        return max((max(cost.memory, default=0.0) for cost in self.stages), default=math.nan)

    @property
    def legal(self) -> bool:
        """No rule is broken."""
        return not self.violations

    def __repr__(self) -> str:
        broken = f"breaks {len(self.violations)} rules" if self.violations else "legal"
        time = "" if self.cost is None else f", {format_seconds(self.iteration_time)}"
        return f"<Evaluation {broken}{time}>"

    def frame(self, table: str = "stages") -> pd.DataFrame:
        """Return the table `stages`, `time`, `memory` or `violations`.

        A row per stage: seconds per micro-batch and bytes of its fullest device, and the named
        terms of either; or a row per broken rule.

        Raises
        ------
        UsageError: unknown table.
        """
        # Imported here: pandas takes longer than judging a plan.
        import pandas as pd

        if table not in FRAMES:
            raise UsageError(f"frame: found {table!r}, expected one of {', '.join(FRAMES)}")
        if table == "violations":
            columns = [field.name for field in dataclasses.fields(Violation)]
            broken = [dataclasses.asdict(rule) for rule in self.violations]
            return pd.DataFrame(broken, columns=columns)
        rows: list[dict[str, float]] = []
        for s, cost in enumerate(self.stages):
            columns_of = {
                "stages": {"seconds": cost.time, "bytes": max(cost.memory, default=math.nan)},
                "time": cost.time_terms,
                "memory": cost.memory_terms,
            }
            rows.append({"stage": s, **columns_of[table]})
        return pd.DataFrame(rows)


def evaluate(problem: Problem[Any], plan: Plan[Any]) -> Evaluation:
    """Judge a plan: every broken rule, and time and memory recomputed in floating point."""
    idle = idle_devices(problem, plan)
    broken = (
        *check_model(problem, plan),
        *check_covered_once(problem, plan),
        *check_devices_used_once(problem, plan),
    ) or tuple(problem.space.check_whole(problem, plan))
    if broken:
        return Evaluation(cost=None, violations=broken, idle=idle)
    cost = problem.costs.plan_cost(plan, problem.cluster)
    violations = (
        *check_stage_count(problem, plan),
        *check_profiled(cost),
        *problem.space.check(problem, plan, cost),
        *check_idle(problem, idle),
    ) or tuple(check_time(cost))
    return Evaluation(cost=cost, violations=violations, idle=idle)


def idle_devices(problem: Problem[Any], plan: Plan[Any]) -> tuple[int, ...]:
    """Return the devices that are in no stage, ascending."""
    count, used = problem.cluster.device_count, plan.used
    if used == first_devices(count):
        return ()
    others = chain.from_iterable(stage.devices for stage in _elsewhere(plan))
    return tuple(sorted({*range(count)} - {*used, *others}))


def time_shares(
    problem: Problem[Any], plan: Plan[Any], evaluation: Evaluation | None
) -> dict[Provenance, Share]:
    """Return the shares of the iteration time by where its figures come from; none of a plan that
    has no price, or one that is not profiled."""
    stages = () if evaluation is None else evaluation.stages
    if not stages or any(cost.unprofiled for cost in stages):
        return {}
    shares: dict[Provenance, Share] = problem.costs.shares(plan, problem.cluster)
    return shares


def check_model(problem: Problem[Any], plan: Plan[Any]) -> Iterator[Violation]:
    """The plan is for this model and batch, in micro-batches that the space has."""
    if plan.model != problem.model:
        yield Violation("model", "plan", plan.model, problem.model)
    if plan.global_batch != problem.global_batch:
        have = f"{plan.global_batch} samples"
        yield Violation("global batch", "plan", have, str(problem.global_batch))
    short = problem.space.short_batches(problem)
    if not plan.batches.possible or (plan.batches.short and not short):
        have = counted(plan.micro_batches, "micro-batch")
        limit = "samples in each" if short else f"a divisor of {plan.global_batch}"
        yield Violation("micro-batches", "plan", have, limit)


def check_covered_once(problem: Problem[Any], plan: Plan[Any]) -> Iterator[Violation]:
    """Stages cover the chain from its beginning to its end, in order, each once and none empty."""
    position, unit = 0, problem.space.unit
    for s, stage in enumerate(plan.stages):
        if stage.start != position or stage.stop <= stage.start:
            have = f"{unit}s {stage.start} to {stage.stop - 1}"
            limit = f"from {unit} {position} on"
            yield Violation(f"{unit}s covered once", f"stage {s}", have, limit)
            return
        position = stage.stop
    count = len(problem.costs.chain)
    if position != count:
        have = f"{position} {unit}s"
        yield Violation(f"{unit}s covered once", "plan", have, f"{count} {unit}s")


def check_devices_used_once(problem: Problem[Any], plan: Plan[Any]) -> Iterator[Violation]:
    """Every device exists and is in one place of one stage; virtual stages share theirs."""
    count, used, seen = problem.cluster.device_count, plan.used, set[int]()
    if used == first_devices(len(used)) and len(used) <= count and not any(_elsewhere(plan)):
        return  # as nearly always, and there may be many of them
    for s, stage in enumerate(plan.stages):
        if s >= plan.ranks:
            if not stage.is_with(plan.stages[plan.rank_of(s)]):
                limit = f"those of stage {plan.rank_of(s)}"
                yield Violation("devices used once", f"stage {s}", "other devices", limit)
            continue
        for device in stage.devices:
            if not 0 <= device < count:
                limit = f"0 to {count - 1}"
                yield Violation("devices used once", f"stage {s}", f"device {device}", limit)
            elif device in seen:
                have = f"device {device} again"
                yield Violation("devices used once", f"stage {s}", have, "every device once")
            seen.add(device)


def _elsewhere(plan: Plan[Any]) -> Iterator[Stage]:
    """Yield the virtual stages that are not on the devices of their rank."""
    for number in range(plan.ranks, len(plan.stages)):
        if not plan.stages[number].is_with(plan.stages[plan.rank_of(number)]):
            yield plan.stages[number]


def check_stage_count(problem: Problem[Any], plan: Plan[Any]) -> Iterator[Violation]:
    """No more pipeline ranks than allowed."""
    if plan.ranks > problem.max_stages:
        yield Violation("stages", "plan", str(plan.ranks), f"at most {problem.max_stages}")


def check_profiled(cost: PlanCost) -> Iterator[Violation]:
    """Everything that the plan does is in the profile."""
    for s, stage in enumerate(cost.stages):
        for missing in stage.unprofiled:
            yield Violation("profiled", f"stage {s}", missing, "a row of the profile")


def check_time(cost: PlanCost) -> Iterator[Violation]:
    """The time of a plan that breaks no other rule is known."""
    if not math.isfinite(cost.iteration_time):
        have = f"{cost.iteration_time} seconds"
        yield Violation("profiled", "plan", have, "seconds by rows of the profile")


def check_idle(problem: Problem[Any], idle: tuple[int, ...]) -> Iterator[Violation]:
    """Every device is used if the space has no idle ones."""
    if idle and not problem.space.idles:
        yield Violation("devices used once", "plan", f"{len(idle)} idle devices", "none idle")
