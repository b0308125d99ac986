"""A search that starts from a saved plan for a runtime: bounds about the same plans, and plans near
one outside of the problem."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

from ilp_planner.inputs.constraints import KEEP, LAYOUT
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.distance import distance
from ilp_planner.spaces.training.enumerate.variants import leanest
from ilp_planner.spaces.training.search.first_plans import NEAREST, polish
from ilp_planner.spaces.training.search.membership import turn_of
from ilp_planner.spaces.training.search.search import MegatronSearch, parts_of, scout
from ilp_planner.specs.training import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart

# Demands that leave out variants of a part, or turns of these.
OF_VARIANTS = ("virtual_stages", "remainder", "micro_batch_group_size", "schedule")
HURRIED = 10.0  # seconds left: many parts may take longer to list
POLISHED = 6  # of them in which other variants are tried as well


def widened(old: Constraints, new: Constraints) -> Iterator[str]:
    """Yield reasons why parts may have plans under new constraints that they lack under old ones.

    Degrees and settings are demanded of parts as a whole. With an asked layout others are tried
    than without, and with parts of layers to recompute other combinations; blocks of all layers are
    tried if `full` is not.
    """
    texts = [{**constraints.texts} for constraints in (old, new)]
    for name in (LAYOUT, "recompute", *OF_VARIANTS):
        there, here = (text.get(name) for text in texts)
        if there == here:
            continue
        within = set((here or "").split(",")) <= set((there or "").split(","))
        narrower = name in OF_VARIANTS and here and (not there or within)
        if name == "recompute":
            narrower = not there and not {*PARTS} & {*new.recompute}
            narrower = narrower and ("full" in new.recompute or "block" not in new.recompute)
        if not narrower:
            yield f"{name.replace('_', ' ')}: {there or 'any'} there, {here or 'any'} here"
    if not set(old.keep) <= set(new.keep):
        yield f"{KEEP}: {old.texts[KEEP]} there, {new.texts.get(KEEP, 'none')} here"


def names_before(search: PartSearch[MegatronPart], asked: Constraints) -> list[str | None]:
    """Return the names of the parts of a search under other constraints: names say the differences
    from the plainest tried settings; None for parts with settings that were not."""
    problem = search.problem
    costs, ranks = problem.costs, problem.cluster.device_count
    before = costs.runtime.choices(costs.settings, asked, ranks)
    if before == costs.choices:
        return [state.part.name for state in search.states]
    known: dict[object, str | None] = {}

    def suffix(part: MegatronPart) -> str | None:
        alike = part.degrees._replace(micro_batch=0, nodes=())
        if alike not in known:
            tried = [costs.runtime.with_degrees(one, before[0], alike) for one in before]
            there = part.settings in tried
            own = tried[0]
            known[alike] = ", ".join(different(part.settings, own)) if there else None
        return known[alike]

    names = []
    for state in search.states:
        found, degrees = suffix(state.part), state.part.degrees.describe(problem.cluster)
        names.append(None if found is None else f"{degrees}, {found}" if found else degrees)
    return names


def approach(search: PartSearch[MegatronPart], plan: GroupPlan) -> None:
    """Look for plans in the parts with the degrees and settings nearest to a plan's; if there may
    be no time to list all parts, in a few of any before.

    Raises
    ------
    OutOfTimeError: the time was up before all parts were listed.
    """
    if plan.settings is None:
        return
    if search.deadline.left < HURRIED:
        scout(search)
    engine = MegatronSearch(parts_of(search), goon=search.goon, accept=search.accept)
    every = range(len(engine.parts))
    nearest = heapq.nsmallest(NEAREST, every, key=lambda n: distance(engine.parts[n], plan))
    for number in nearest:
        part = engine.parts[number]
        if not part.fits_at_all or not search.goon():
            continue
        before = engine.cutoff
        for variant in dict.fromkeys((like(part, plan), leanest(part))):
            engine.work(number, variant)
            if engine.cutoff < before:
                break
    polish(engine, nearest[:POLISHED])


def like(part: MegatronPart, plan: GroupPlan) -> Variant:
    """Return the variant of a part that is most like that of a plan."""
    assert plan.settings is not None
    again, schedule = plan.settings.recompute, plan.settings.schedule

    def unlike(variant: Variant) -> tuple[float, ...]:
        own = variant.recompute
        return (
            abs(math.log2(variant.virtual / plan.virtual)),
            variant.turn != turn_of(plan),
            variant.schedule != schedule,
            (own.granularity, own.method) != (again.granularity, again.method),
            own.modules != again.modules,
            abs(own.layers - again.layers),
        )

    return min(part.variants(), key=unlike)
