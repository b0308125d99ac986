"""Legal training jobs outside of the proofs: the parts do not enumerate them."""

from __future__ import annotations

import dataclasses
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.costs.training.job import node_order, virtual_sizes
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.spaces.training.enumerate.choices import decided
from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
from ilp_planner.spaces.training.enumerate.keeping import is_in
from ilp_planner.spaces.training.enumerate.layouts import layouts_of
from ilp_planner.spaces.training.enumerate.recomputations import NOTHING
from ilp_planner.spaces.training.enumerate.variants import Variant, remainders, turns
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import possible_degrees
from ilp_planner.specs.pipeline_layout import ANYHOW, REMAINDERS
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.costs import MegatronCosts


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
    in_turns = job.virtual > 1 and not plan.schedule.divides
    yield from problem.constraints.broken(
        {
            "tp": degrees.tp,
            "pp": degrees.pp,
            "cp": degrees.cp,
            "ep": degrees.ep,
            "dp": degrees.dp,
            "micro_batch_size": degrees.micro_batch,
            "virtual_stages": plan.virtual,
            **({"micro_batch_group_size": settings.turn or job.pp} if in_turns else {}),
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
    if not _is_possible(degrees, problem):
        yield f"degrees: {degrees.describe(cluster)} is not tried, or not in this order of nodes"
        return
    own = dataclasses.replace(settings, recompute=NOTHING, etp=degrees.etp, turn=0, schedule=USUAL)
    every = (
        MegatronPart(problem, costs, degrees._replace(choice=number))
        for number in range(len(costs.choices))
    )
    part = next((one for one in every if one.settings == own), None)
    if part is None or not costs.runtime.tries(part.job, problem.constraints):
        yield "settings: others than the planner's, only those tried"
        return
    again, turn, tried = settings.recompute, turn_of(plan), part.variants()
    spreads = (*REMAINDERS, ANYHOW)
    alike = [Variant(plan.virtual, again, spread, turn, settings.schedule) for spread in spreads]
    least = (0,) if alike[0].divided else turns(part, plan.virtual)
    if turn not in least or all(dataclasses.replace(v, turn=least[0]) not in tried for v in alike):
        yield f"schedule: {alike[0]} is not tried"
    elif variant_of(part, plan) is None:
        yield (
            f"layout: {plan.virtual} virtual stages per rank with layers spread otherwise than "
            "those tried"
        )


def _is_possible(degrees: MegatronDegrees, problem: Problem[MegatronCosts]) -> bool:
    try:
        return degrees in possible_degrees(problem, problem.costs)
    except InfeasibleError:  # given jobs may be on as many devices as no searched plan has
        return False


def variant_of(part: MegatronPart, plan: GroupPlan) -> Variant | None:
    """Return the variant of a part that has a plan; None if its layers are spread otherwise over
    virtual stages. Any are if a layout is asked for, and the constraints compare it."""
    assert plan.settings is not None
    again, virtual, layers = plan.settings.recompute, plan.virtual, part.costs.model.layers
    plain = Variant(virtual, again, turn=turn_of(plan), schedule=plan.settings.schedule)
    constraints = part.problem.constraints
    if virtual == 1 or (constraints.layout is not None and not plain.divided):
        return dataclasses.replace(plain, remainder=remainders(part, virtual)[0])
    if constraints.one_layout is not None:
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
            return dataclasses.replace(plain, remainder=remainder)
    return None


def turn_of(plan: GroupPlan) -> int:
    """Return the size of a plan's microbatch groups: micro-batches that pass one virtual stage
    before the next one; 0: as many as ranks, or no other stage."""
    assert plan.settings is not None
    usual = plan.virtual == 1 or plan.settings.turn == plan.ranks
    return 0 if usual else plan.settings.turn
