"""The judge: named checks on a plan, and its time and memory recomputed from costs. Imports no
solver."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.errors import UsageError
from ilp_planner.numerics import ROUNDING
from ilp_planner.plan import Surroundings
from ilp_planner.profiles.shares import Tally
from ilp_planner.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from ilp_planner.costs.base import StageCost
    from ilp_planner.costs.groups import GroupStageCost
    from ilp_planner.plan import Plan
    from ilp_planner.problem import Problem
    from ilp_planner.profiles.shares import Share
    from ilp_planner.profiles.table import Provenance

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

    iteration_time: seconds; nan when the plan is too broken to be priced.
    stages: cost of every stage. micro_batch_count: B. violations: empty for a legal plan.
    """

    iteration_time: float
    stages: tuple[StageCost, ...]
    micro_batch_count: int
    violations: tuple[Violation, ...]

    @property
    def legal(self) -> bool:
        """No rule is broken."""
        return not self.violations

    def __repr__(self) -> str:
        return f"<Evaluation {verdict_text(self.iteration_time, self.violations)}>"

    def frame(self, table: str = "stages") -> pd.DataFrame:
        """Return a table; see `evaluation_frame`."""
        return evaluation_frame(table, self.stages, self.violations)


def verdict_text(iteration_time: float, violations: Sequence[Violation]) -> str:
    """Return a verdict on one line. iteration_time: seconds."""
    broken = f"breaks {len(violations)} rules" if violations else "legal"
    time = "" if math.isnan(iteration_time) else f", {format_seconds(iteration_time)}"
    return broken + time


def evaluation_frame(
    table: str, stages: Sequence[StageCost | GroupStageCost], violations: Sequence[Violation]
) -> pd.DataFrame:
    """Return the table `stages`, `time`, `memory` or `violations` of a judged plan.

    A row per stage: seconds per micro-batch and bytes of its fullest device, and the named terms of
    either; or a row per broken rule.

    Raises
    ------
    UsageError: no such table.
    """
    # Imported here: pandas takes longer than judging a plan.
    import pandas as pd

    if table not in FRAMES:
        raise UsageError(f"frame: found {table!r}, expected one of {', '.join(FRAMES)}")
    if table == "violations":
        columns = [field.name for field in dataclasses.fields(Violation)]
        return pd.DataFrame([dataclasses.asdict(rule) for rule in violations], columns=columns)
    rows: list[dict[str, float]] = []
    for s, cost in enumerate(stages):
        memory = max(cost.memory) if isinstance(cost.memory, tuple) else cost.memory
        columns_of = {
            "stages": {"seconds": cost.time, "bytes": memory},
            "time": cost.time_terms,
            "memory": cost.memory_terms,
        }
        rows.append({"stage": s, **columns_of[table]})
    return pd.DataFrame(rows)


def evaluate(problem: Problem, plan: Plan) -> Evaluation:
    """Judge a plan: every broken rule, and time and memory recomputed in floating point."""
    broken = [
        *check_model(problem, plan),
        *check_operators_covered_once(problem, plan),
        *check_micro_batch(problem, plan),
        *check_devices_used_once(problem, plan),
    ]
    if broken:
        return Evaluation(
            iteration_time=math.nan, stages=(), micro_batch_count=0, violations=tuple(broken)
        )
    stages = stage_costs(problem, plan)
    violations = [
        *check_stage_count(problem, plan),
        *check_groups(problem, plan),
        *check_degrees(problem, plan),
        *check_profiled(plan, stages),
        *check_memory_fits(problem, stages),
    ]
    return Evaluation(
        iteration_time=plan.schedule.iteration_time([s.time for s in stages]),
        stages=stages,
        micro_batch_count=plan.micro_batches,
        violations=tuple(violations),
    )


def stage_costs(problem: Problem, plan: Plan) -> tuple[StageCost, ...]:
    """Price every stage where the plan puts it."""
    pairs = zip(plan.stages, surroundings(problem, plan), strict=True)
    return tuple(problem.costs.stage_cost(stage, around) for stage, around in pairs)


def surroundings(problem: Problem, plan: Plan) -> Iterator[Surroundings]:
    """Yield what the cost of each stage depends on besides itself."""
    per_node = problem.cluster.devices_per_node
    for s, stage in enumerate(plan.stages):
        yield Surroundings(
            micro_batch=plan.micro_batch,
            micro_batch_count=plan.micro_batches,
            behind=len(plan.stages) - 1 - s,
            enters_node=stage.first_device > 0 and stage.first_device % per_node == 0,
            leaves_node=(stage.first_device + stage.devices) % per_node == 0,
        )


def time_shares(problem: Problem, plan: Plan, evaluation: Evaluation) -> dict[Provenance, Share]:
    """Return the shares of the iteration time by where its figures come from; none of a plan that
    has no price, or one that is not profiled.

    The slowest stage counts with every micro-batch and each other one once.
    """
    stages = evaluation.stages
    if not stages or any(cost.unprofiled for cost in stages):
        return {}
    tally = Tally()
    counts = plan.schedule.counts([cost.time for cost in stages])
    around = surroundings(problem, plan)
    for stage, where, count in zip(plan.stages, around, counts, strict=True):
        for origin, seconds in problem.costs.time_origins(stage, where):
            tally.add(origin, count * seconds)
    return tally.shares()


def check_model(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The plan is for this model and this global batch."""
    if plan.model != problem.model.name:
        yield Violation("model", "plan", plan.model, problem.model.name)
    if plan.global_batch != problem.global_batch:
        yield Violation("global batch", "plan", str(plan.global_batch), str(problem.global_batch))


def check_operators_covered_once(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Stages cover the chain from the first operator to the last, in order, without gap or
    overlap."""
    position = 0
    for s, stage in enumerate(plan.stages):
        if stage.start != position or stage.stop <= stage.start:
            found = f"operators {stage.start} to {stage.stop}"
            yield Violation("operators covered once", f"stage {s}", found, f"a start at {position}")
        position = stage.stop
    count = len(problem.costs.operators)
    if position != count:
        yield Violation("operators covered once", "plan", f"{position} operators", str(count))


def check_micro_batch(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """The micro-batch divides the global batch and is one that the profile knows."""
    if plan.micro_batch < 1 or plan.global_batch % plan.micro_batch:
        limit = f"a divisor of {plan.global_batch}"
        yield Violation("micro-batch", "plan", str(plan.micro_batch), limit)
    elif plan.micro_batch not in problem.costs.micro_batches():
        known = ", ".join(map(str, problem.costs.micro_batches()))
        yield Violation("micro-batch", "plan", str(plan.micro_batch), f"one of {known}")


def check_devices_used_once(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Stages use the devices in order, each once, all of them."""
    position = 0
    for s, stage in enumerate(plan.stages):
        if stage.first_device != position:
            have = f"first device {stage.first_device}"
            yield Violation("devices used once", f"stage {s}", have, str(position))
        position = stage.first_device + stage.devices
    if position != problem.cluster.device_count:
        limit = str(problem.cluster.device_count)
        yield Violation("devices used once", "plan", f"{position} devices", limit)


def check_stage_count(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """No more stages than allowed."""
    if len(plan.stages) > problem.max_stages:
        yield Violation("stages", "plan", str(len(plan.stages)), f"at most {problem.max_stages}")


def check_groups(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """Device groups have an allowed size and never straddle a node."""
    per_node = problem.cluster.devices_per_node
    for s, stage in enumerate(plan.stages):
        if stage.devices not in problem.group_sizes:
            sizes = ", ".join(map(str, problem.group_sizes))
            yield Violation(
                "devices of a stage", f"stage {s}", str(stage.devices), f"one of {sizes}"
            )
        last = stage.first_device + stage.devices - 1
        if stage.first_device // per_node != last // per_node:
            have = f"devices {stage.first_device} to {last}"
            yield Violation("node straddled", f"stage {s}", have, f"nodes of {per_node}")


def check_degrees(problem: Problem, plan: Plan) -> Iterator[Violation]:
    """For every operator tp x dp is the stage's device count, and dp divides the micro-batch."""
    for s, stage in enumerate(plan.stages):
        for degrees in sorted({(x.tp, x.dp) for x in stage.strategies}):
            tp, dp = degrees
            if tp * dp != stage.devices:
                have = f"tp {tp} x dp {dp}"
                yield Violation("degrees", f"stage {s}", have, f"{stage.devices} devices")
            if plan.micro_batch % dp:
                limit = f"a divisor of the micro-batch {plan.micro_batch}"
                yield Violation("degrees", f"stage {s}", f"dp {dp}", limit)


def check_profiled(plan: Plan, stages: tuple[StageCost, ...]) -> Iterator[Violation]:
    """Every operator's strategy is in the profile."""
    for s, cost in enumerate(stages):
        if cost.unprofiled:
            i = cost.unprofiled[0]
            x = plan.stages[s].strategies[i - plan.stages[s].start]
            have = (
                f"operator {i} with tp {x.tp}, {plan.micro_batch // x.dp} samples per replica, "
                f"split {x.split} ({len(cost.unprofiled)} such operators)"
            )
            yield Violation("profiled", f"stage {s}", have, "a row of the profile")


def check_memory_fits(problem: Problem, stages: tuple[StageCost, ...]) -> Iterator[Violation]:
    """Every stage fits the memory of its devices."""
    for s, cost in enumerate(stages):
        if cost.memory > problem.memory_limit * (1 + ROUNDING):
            limit = f"at most {format_bytes(problem.memory_limit)}"
            yield Violation("memory", f"stage {s}", format_bytes(cost.memory), limit)
