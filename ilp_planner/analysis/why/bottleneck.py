"""The bottleneck rank of a plan, and the slack of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan, Stage
    from ilp_planner.problem import Problem

SLOWEST = 1e-9  # relative: ranks that take as long as the slowest one


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """Busy time and memory of a pipeline rank, for a micro-batch.

    load: seconds. slack: seconds per micro-batch that it could take longer, or wait, without being
    the slowest. room: bytes that are left on its fullest device, below 0 if it holds too much;
    None: memory is not modelled.
    """

    number: int
    load: float
    slack: float
    room: float | None

    @property
    def slowest(self) -> bool:
        """Whether the others wait for it."""
        return self.slack <= SLOWEST * self.load


def rank_loads(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[RankLoad, ...]:
    """Return the loads of a priced plan's pipeline ranks, in their order."""
    costs = evaluation.stages
    loads = plan.per_rank([stage.time for stage in costs])
    longest = max(loads)
    return tuple(
        RankLoad(
            number=number,
            load=load,
            slack=longest - load,
            room=_room(problem, plan.stages[number], costs[number].memory),
        )
        for number, load in enumerate(loads)
    )


def _room(problem: Problem[Any], stage: Stage, memory: Sequence[float]) -> float | None:
    if not any(memory):
        return None
    types, limits = problem.cluster.type_of, problem.memory_limits
    return min(
        min(limits[types[device]] for device in devices) - used
        for devices, used in zip(stage.parts(len(memory)), memory, strict=True)
    )
