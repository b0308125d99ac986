"""Which legal training jobs the proofs are not about: what the parts do not enumerate."""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ilp_planner.schedule import USUAL
from ilp_planner.spaces.megatron.choices import decided
from ilp_planner.spaces.megatron.degrees import MegatronDegrees
from ilp_planner.spaces.megatron.job import node_order, virtual_sizes
from ilp_planner.spaces.megatron.keeping import is_in
from ilp_planner.spaces.megatron.layouts import layouts_of
from ilp_planner.spaces.megatron.parts import MegatronPart, possible_degrees
from ilp_planner.spaces.megatron.recomputations import NOTHING
from ilp_planner.spaces.megatron.variants import Variant, remainders
from ilp_planner.specs.pipeline_layout import REMAINDERS
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.plan import GroupPlan
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.megatron.costs import MegatronCosts


def left_out(problem: Problem[MegatronCosts], plan: GroupPlan) -> Iterator[str]:
    """Yield why a legal plan is in no part."""
    costs, cluster, settings = problem.costs, problem.cluster, plan.settings
    assert settings is not None
    job = costs.job(plan, cluster)
    degrees = MegatronDegrees(
        tp=job.tp,
        cp=settings.cp,
        ep=settings.ep,
        etp=job.expert_tp if job.model.experts else 0,
        dp=job.dp,
        pp=job.pp,
        micro_batch=job.micro_batch,
        order=ORDERS.index(settings.order),
        nodes=node_order(plan, cluster) or (),
    )
    yield from problem.constraints.broken(
        {
            "tp": degrees.tp,
            "pp": degrees.pp,
            "cp": degrees.cp,
            "ep": degrees.ep,
            "dp": degrees.dp,
            "virtual_stages": plan.virtual,
            "layout": job.pipeline,
            "rank_order": settings.order,
            "schedule": settings.schedule,
            **decided(settings, replicated=degrees.replicated),
        }
    )
    for stage in problem.constraints.keep:
        if not is_in(stage, plan, job):
            yield f"keep: {stage} is no stage of it"
    if not problem.constraints.recomputes(settings.recompute):
        yield (
            f"recompute: found {Variant(1, settings.recompute).again}, only "
            f"{problem.constraints.texts['recompute']} asked for"
        )
    if degrees not in possible_degrees(problem, costs):
        yield f"degrees: {degrees.describe(cluster)} is not tried, or not in this order of nodes"
        return
    own = dataclasses.replace(settings, recompute=NOTHING, schedule=USUAL, etp=degrees.etp)
    every = (
        MegatronPart(problem, costs, degrees._replace(choice=number))
        for number in range(len(costs.choices))
    )
    part = next((one for one in every if one.settings == own), None)
    if part is None or not costs.runtime.tries(part.job, problem.constraints):
        yield "settings: others than the planner's, only those tried"
        return
    if tuple(stage.replicas for stage in plan.stages[: plan.ranks]) != part.rank_devices():
        yield "devices: others than those that ranks have in the order of the nodes"
    alike = [
        Variant(plan.virtual, settings.recompute, remainder, settings.schedule)
        for remainder in REMAINDERS
    ]
    if not any(variant in part.variants() for variant in alike):
        yield f"schedule: {alike[0]} is not tried"
    elif variant_of(part, plan) is None:
        yield (
            f"layout: {plan.virtual} virtual stages per rank with layers spread otherwise than "
            "those tried"
        )


def variant_of(part: MegatronPart, plan: GroupPlan) -> Variant | None:
    """Return the variant of a part that has a plan; None where its layers are spread otherwise over
    virtual stages. Any are where a layout is asked for, which the constraints compare."""
    assert plan.settings is not None
    again, virtual, layers = plan.settings.recompute, plan.virtual, part.costs.model.layers
    plain = Variant(virtual, again, schedule=plan.settings.schedule)
    if virtual == 1 or part.problem.constraints.layout is not None:
        return plain
    ends = (0, *(stage.stop for stage in plan.stages))
    sizes = tuple(stop - start for start, stop in pairwise(ends))
    if plain.divided:
        return plain if ends in set(map(tuple, layouts_of(part, plain).tolist())) else None
    if not part.alike:
        return plain if len(set(sizes[1:-1])) == 1 else None
    rank_ends = [0, *accumulate(plan.per_rank(sizes))]
    for remainder in remainders(part, virtual):
        if sizes == virtual_sizes(rank_ends, virtual, layers, remainder):
            return Variant(virtual, again, remainder)
    return None
