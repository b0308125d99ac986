"""Families of plans for a runtime with the same shares of parameters and states on ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.search.families import Family
from ilp_planner.spaces.training.enumerate.layouts import even_ends
from ilp_planner.spaces.training.search.search import MegatronSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import AnyPlan, GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart


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
