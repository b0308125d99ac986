"""A search that starts from a saved plan for a runtime: bounds about the same plans, plans near one
outside of the problem, and families of plans that keep its shares of parameters and states."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import KEEP, LAYOUT
from ilp_planner.spaces.base import Family
from ilp_planner.spaces.training.enumerate.choices import different
from ilp_planner.spaces.training.enumerate.distance import nearest
from ilp_planner.spaces.training.enumerate.layouts import even_ends
from ilp_planner.spaces.training.enumerate.variants import leanest
from ilp_planner.spaces.training.search.first_plans import NEAREST, polish
from ilp_planner.spaces.training.search.membership import turn_of
from ilp_planner.spaces.training.search.search import MegatronSearch, parts_of, scout
from ilp_planner.specs.training import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import AnyPlan, GroupPlan
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart


# ---- bounds and plans near a saved one -----------------------------------------------------------


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
    before = costs.runtime.choices(costs.settings, asked, ranks, costs.model)
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
    near = nearest(engine.parts, plan, range(len(engine.parts)), NEAREST)
    for number in near:
        part = engine.parts[number]
        if not part.fits_at_all or not search.goon():
            continue
        before = engine.cutoff
        for variant in dict.fromkeys((like(part, plan), leanest(part))):
            engine.work(number, variant)
            if engine.cutoff < before:
                break
    polish(engine, near[:POLISHED])


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


# ---- plans with the same shares of parameters and states on ranks --------------------------------


class JobCut(NamedTuple):
    """The ends of the virtual stages of a job. v_shaped: they go down the ranks and back up."""

    stops: tuple[int, ...]
    virtual: int
    v_shaped: bool


@dataclass(frozen=True, eq=False)
class JobFamily(Family[JobCut]):
    """Parts of a space that differ in micro-batches and in settings that change no share."""

    problem: Problem[MegatronCosts]
    parts: Sequence[MegatronPart]

    @cached_property
    def variants(self) -> list[tuple[float, MegatronPart, Variant]]:
        """Every variant of every part with its bound in seconds, the least first."""
        every = ((part.bound(one), part, one) for part in self.parts for one in part.variants())
        return sorted(every, key=lambda entry: entry[0])

    @property
    def plan(self) -> GroupPlan:
        """One of the plans, with as few stages as any, of any lengths."""
        _, part, variant = min(self.variants, key=lambda entry: entry[2].virtual)
        count = part.degrees.pp * (1 if part.spread(variant) else variant.virtual)
        last = part.costs.model.layers + 2
        return part.group_plan(variant, [last * k // count for k in range(count + 1)])

    def cuts(self, before: AnyPlan) -> Iterator[tuple[JobCut, GroupPlan]]:
        """Yield the cut of a plan of before and cuts of equal stages."""
        found: set[JobCut] = set()
        for _, part, variant in self.variants:
            even = even_ends(part, variant) if part.spread(variant) else ()
            for ends in (_ends_before(part, variant, before), even):
                if not ends:
                    continue
                stops = tuple(part.stops(variant, ends))
                cut = JobCut(stops, variant.virtual, variant.v_shaped)
                if cut not in found:
                    found.add(cut)
                    yield cut, part.group_plan(variant, ends)

    def fastest_of(self, cut: JobCut, limit: float, goon: Callable[[], bool]) -> GroupPlan | None:
        """Return the fastest legal plan with a cut that takes at most `limit` seconds."""
        best: GroupPlan | None = None
        for bound, part, variant in self.variants:
            if bound > limit or not goon():
                break
            ends = _ends(part, variant, cut)
            if ends is None or not part.keeps(variant, ends):
                continue
            if part.seconds(variant, ends) > limit:
                continue
            plan = part.group_plan(variant, ends)
            evaluation = evaluate(self.problem, plan)
            time = evaluation.iteration_time
            if not evaluation.legal or time > limit or (best and time == limit):
                continue
            if self.problem.space.contains(self.problem, plan):
                best, limit = plan, time
        return best

    def fastest(self, limit: float, goon: Callable[[], bool]) -> GroupPlan | None:
        """Return the fastest legal plan that takes less than `limit` seconds."""
        engine = MegatronSearch(self.parts, goon=goon)
        engine.ceiling = limit
        engine.run()
        return engine.best[0].plan if engine.best else None


def families(search: PartSearch[MegatronPart], limit: float) -> Iterator[JobFamily]:
    """Yield the families of a space that may have a plan of at most `limit` seconds."""
    found: dict[object, list[MegatronPart]] = {}
    for state in search.states:
        part = state.part
        if part.trivial_bound() <= limit and part.least_bound() <= limit:
            found.setdefault(_shares(part), []).append(part)
    for parts in found.values():
        family = JobFamily(search.problem, parts)
        if family.variants:
            yield family


def _shares(part: MegatronPart) -> object:
    """Return all that decides a rank's share of the parameters and states of its stage."""
    optimizer = replace(
        part.settings.optimizer,
        gradient=0,
        offload=0.0,
        overlap_offload=False,
        overlap_gradients=False,
        overlap_parameters=False,
    )
    return part.degrees._replace(micro_batch=0, choice=0), optimizer


def _ends_before(part: MegatronPart, variant: Variant, before: AnyPlan) -> tuple[int, ...] | None:
    """Return the ends of stages as in a plan of before; None if there are not as many."""
    shaped = before.virtual > 1 and before.rank_of(before.ranks) != 0
    if (before.ranks, before.virtual) != (part.degrees.pp, variant.virtual):
        return None
    stops = (0, *(stage.stop for stage in before.stages))
    if stops[-1] != part.costs.model.layers + 2:
        return None
    return _ends(part, variant, JobCut(stops, before.virtual, shaped))


def _ends(part: MegatronPart, variant: Variant, cut: JobCut) -> tuple[int, ...] | None:
    """Return a cut in a variant's terms: the ends of its ranks, or of its virtual stages; None if
    it lacks the cut."""
    if (cut.virtual, cut.v_shaped) != (variant.virtual, variant.v_shaped):
        return None
    if not part.spread(variant):
        return cut.stops
    sizes = [stop - start for start, stop in pairwise(cut.stops)]
    pp = part.degrees.pp
    ends = (0, *accumulate(sum(sizes[rank::pp]) for rank in range(pp)))
    return ends if tuple(part.stops(variant, ends)) == cut.stops else None
