"""Plans of Megatron's space that are as good as the best one, and what each needs to be said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.search.ties import RANK_ORDER, weight
from ilp_planner.spaces.megatron.layouts import best_layout
from ilp_planner.spaces.megatron.membership import turn_of, variant_of
from ilp_planner.spaces.megatron.partition import best_cut, least_peak
from ilp_planner.spaces.megatron.schedule_bound import LeastCuts
from ilp_planner.specs.pipeline_layout import FIRST
from ilp_planner.specs.training import CP_COMMUNICATIONS, ORDERS, Offload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.plan import GroupPlan
    from ilp_planner.search.group_search import PartSearch
    from ilp_planner.spaces.megatron.parts import MegatronPart
    from ilp_planner.spaces.megatron.variants import Variant
    from ilp_planner.specs.training import Settings

SHARDED = "sharded parameters"
EXCHANGED = "context parallelism by exchange of heads"
LAYOUT = "layout of unequal stages"
VIRTUAL = "virtual stages"
TURNS = "turns of more micro-batches than ranks"
DIVIDED = "divided backward passes"
TENSORS = "overlap of tensor parallelism"
EXPERTS = "overlap of expert parallelism"
GRAPHS = "CUDA graphs"
COMPILED = "torch.compile"
HOST = "states on the host"
ACTIVATIONS = "activations on the host"
FLEX = "dispatcher flex"
CONTEXT = "context parallelism"


def specialities(plan: GroupPlan) -> tuple[str, ...]:
    """Return what a launch line needs for a plan beyond degrees and a micro-batch."""
    assert plan.settings is not None
    settings, layers = plan.settings, [stage.stop - stage.start for stage in plan.stages]
    layers[0] -= 1
    layers[-1] -= 1  # the embedding and the output layer are not said
    again = settings.recompute.granularity
    found = {
        RANK_ORDER: settings.order != ORDERS[0],
        LAYOUT: len(set(layers)) > 1,
        VIRTUAL: plan.virtual > 1,
        TURNS: turn_of(plan) > 0,
        DIVIDED: plan.schedule.divides,
        f"{again} recomputation": again != "none",
        **_of_job(settings),
    }
    return tuple(name for name, needed in found.items() if needed)


def _of_job(settings: Settings) -> dict[str, bool]:
    """Return what settings need of a whole job."""
    return {
        CONTEXT: settings.cp > 1,
        EXCHANGED: settings.cp_comm != CP_COMMUNICATIONS[0],
        TENSORS: settings.overlap_tensor,
        EXPERTS: settings.overlap_experts,
        HOST: settings.optimizer.offload > 0,
        ACTIVATIONS: settings.offload != Offload(),
        FLEX: settings.kernels.dispatcher == "flex",
        GRAPHS: settings.kernels.graphs != "",
        COMPILED: settings.kernels.compiled,
        SHARDED: settings.optimizer.divides,
    }


def plainer(search: PartSearch[MegatronPart], limit: float) -> Iterator[GroupPlan]:
    """Yield plans that may take at most `limit` seconds and need less than the search's own, as
    long as there is time: of every variant the one of equal stages, and the best one.

    Variants that need least come first, and those that need more than what the search has taken by
    then are left out. Whichever virtual stages take what is left over, a plan is as plain, so those
    of the search's own plan will do, and the first ones. Beside the fastest plan of all, those that
    need as much as it are not looked for.
    """
    assert search.plan is not None
    usual = _remainders(search, search.plan)
    fastest = search.plan if search.proved() else None
    most = weight(specialities(search.plan))
    found = []
    for state in sorted(search.states, key=lambda s: s.bound):
        if state.bound > limit:
            break
        for variant in state.part.variants():
            if not search.goon():
                return
            needed = weight(_needs(state.part, variant))
            if needed <= most and variant.remainder in usual:
                found.append((needed, state.part, variant))
    found.sort(key=lambda entry: entry[0])
    for needed, part, variant in found:
        most = weight(specialities(search.plan))
        if needed > most or (needed == most and search.plan is fastest) or not search.goon():
            return
        if part.bound(variant) <= limit:
            yield from _best(part, variant, limit, search.goon)


def _remainders(search: PartSearch[MegatronPart], plan: GroupPlan) -> set[str]:
    """Return which virtual stages may take what is left over in plans as plain as one: the first
    ones, and those of the plan itself where it is of a part."""
    own = (variant_of(s.part, plan) for s in search.states if s.part.holds(plan))
    return {FIRST, *(variant.remainder for variant in own if variant is not None)}


def _needs(part: MegatronPart, variant: Variant) -> tuple[str, ...]:
    """Return what every plan of a variant needs."""
    again = variant.recompute.granularity
    found = {
        RANK_ORDER: part.degrees.order != 0,
        VIRTUAL: variant.virtual > 1,
        TURNS: variant.turn > 0,
        DIVIDED: variant.divided,
        f"{again} recomputation": again != "none",
        **_of_job(part.settings),
    }
    return tuple(name for name, needed in found.items() if needed)


def _best(
    part: MegatronPart, variant: Variant, limit: float, goon: Callable[[], bool]
) -> Iterator[GroupPlan]:
    even = even_ends(part, variant)
    if not part.spread(variant):
        cut = best_layout(part, variant, limit, goon).cut
        if cut is not None:
            yield part.group_plan(variant, cut.ends)
        return
    tables = part.tables(variant)
    cuts = LeastCuts(tables)
    if cuts.seconds + least_peak(tables) + part.ranks.constant > limit:
        return
    found = {cuts.ends, even}
    by_formula = best_cut(tables, limit, goon).cut
    if by_formula is not None:
        found.add(by_formula.ends)
    for ends in sorted(found - {()}):
        if part.keeps(variant, ends):
            yield part.group_plan(variant, ends)


def even_ends(part: MegatronPart, variant: Variant) -> tuple[int, ...]:
    """Return where ranks with equally many layers end; nothing where there are none."""
    layers, pp = part.costs.model.layers, part.degrees.pp
    if layers % (pp * variant.virtual):
        return ()
    each = layers // pp
    return (0, *(1 + each * (rank + 1) for rank in range(pp - 1)), layers + 2)
