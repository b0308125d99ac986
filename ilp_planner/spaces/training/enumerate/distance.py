"""The distance of parts from a plan."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.search.parts import MegatronPart


def nearest(
    parts: Sequence[MegatronPart], plan: GroupPlan, numbers: Iterable[int], count: int
) -> list[int]:
    """Return so many of the numbers of parts, the nearest to a plan first."""
    unlike: dict[int, int] = {}
    return heapq.nsmallest(count, numbers, key=lambda n: distance(parts[n], plan, unlike))


def distance(part: MegatronPart, plan: GroupPlan, known: dict[int, int] | None = None) -> float:
    """Return the distance of a part's degrees and settings from a plan's: doublings of degrees and
    of the micro-batch, and settings that differ. Data parallelism follows from them.

    known: of parts that share settings, how many differ from the plan's.
    """
    settings, first, d = plan.settings, plan.stages[0], part.degrees
    assert settings is not None
    tp = max(1, first.tp // settings.cp)
    pairs = (
        (d.tp, tp),
        (d.cp, settings.cp),
        (d.ep, settings.ep),
        (d.etp or 1, (settings.etp or tp) if d.etp else 1),
        (d.pp, plan.ranks),
        (d.micro_batch, max(1, first.replicas[0].samples)),
    )
    doublings = sum(abs(math.log2(one / other)) for one, other in pairs)
    known, key = {} if known is None else known, id(part.settings)  # which is kept (`settings_of`)
    if key not in known:
        known[key] = len(different(part.settings, settings))
    return doublings + known[key] + (ORDERS[d.order] != settings.order)
