"""Peak memory of a device of every pipeline rank, against the card's."""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.fullest import fullest_replica
from ilp_planner.base.units import number_ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem

WHOLE = "memory"  # of what the cost model does not split


class RankBar(NamedTuple):
    """The fullest device of pipeline ranks that are alike, bytes.

    ranks: `0`, or `1-6`. parts: by name; they add up to `used`. limit: for plans. card: real memory
    of the device. device: its type.
    """

    ranks: str
    parts: tuple[tuple[str, float], ...]
    used: float
    limit: float
    card: float
    device: str

    @property
    def scale(self) -> float:
        """Bytes that the whole width of a drawing needs."""
        return max(self.used, self.limit, self.card)


def memory_bars(
    problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation
) -> tuple[RankBar, ...]:
    """Return a bar for all neighbouring pipeline ranks that hold the same; none if the plan has no
    price, or its cost model counts no memory."""
    bars = list(_bars(problem, plan, evaluation))
    return tuple(
        bar._replace(ranks=number_ranges(rank for rank, _ in run))
        for bar, run in (
            (bar, list(run)) for bar, run in groupby(enumerate(bars), key=lambda pair: pair[1])
        )
    )


def _bars(problem: Problem[Any], plan: AnyPlan, evaluation: Evaluation) -> Iterator[RankBar]:
    # The first virtual stage of a rank has the memory of all.
    for stage, cost in zip(plan.stages[: plan.ranks], evaluation.stages, strict=False):
        if not cost.memory_terms and not any(cost.memory):
            return
        used, name = fullest_replica(problem, stage, cost)
        parts = tuple((part, size) for part, size in cost.memory_terms.items() if size > 0)
        if not math.isclose(sum(size for _, size in parts), used, rel_tol=1e-6):
            parts = ((WHOLE, used),)  # parts are of another replica than the fullest
        device = problem.cluster.device_types[name]
        yield RankBar(
            ranks="",
            parts=parts,
            used=used,
            limit=problem.memory_limits[name],
            card=float(device.memory),
            device=device.type,
        )


def part_names(bars: tuple[RankBar, ...]) -> tuple[str, ...]:
    """Return the names of all parts, in their order."""
    return tuple(dict.fromkeys(name for bar in bars for name, _ in bar.parts))
