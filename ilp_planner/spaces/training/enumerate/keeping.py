"""Kept stages of saved plans: their rank, and the cuts that leave them so and begin stages where
the model lets them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.training.job import begins, seats_of, spread
from ilp_planner.costs.training.memory import Fits
from ilp_planner.schedule.formulas import rank_of_stage
from ilp_planner.specs.pipeline_layout import REMAINDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.plan import GroupPlan
    from ilp_planner.settings.kept import KeptStage
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.spaces.training.enumerate.variants import Variant
    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob

# Ranks, and the first and last element of their virtual stages.
Kept = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]


def rank_of(stage: KeptStage, cluster: ClusterSpec, d: MegatronDegrees) -> int | None:
    """Return the pipeline rank that has the devices of a stage under some degrees; None if none
    has, or the degrees are others."""
    degrees = stage.tp, stage.cp, stage.ep, stage.etp, len(stage.devices)
    if (d.tp, d.cp, d.ep, d.etp, d.dp) != degrees:
        return None
    each = cluster.nodes[0].devices
    seats = seats_of(each, d.nodes, d.order, (d.pp, d.dp, d.tp * d.cp))
    for rank in np.flatnonzero(seats[:, 0, 0] == stage.devices[0][0]).tolist():
        if tuple(map(tuple, seats[rank].tolist())) == stage.devices:
            return int(rank)
    return None


def is_in(stage: KeptStage, plan: GroupPlan, job: TrainingJob) -> bool:
    """Tell whether a plan has a stage. job: the one that it describes."""
    etp = job.expert_tp if job.model.experts else 0
    degrees = job.tp, job.settings.cp, job.settings.ep, etp
    return degrees == (stage.tp, stage.cp, stage.ep, stage.etp) and any(
        tuple(replica.devices for replica in own.replicas) == stage.devices
        and tuple((plan.stages[k].start, plan.stages[k].stop) for k in job.stages_of(rank))
        == stage.ranges
        for rank, own in enumerate(plan.stages[: plan.ranks])
    )


def leaves_room(part: MegatronPart, virtual: int) -> bool:
    """Tell whether kept stages leave one element or more for every other one, with so many virtual
    stages on each rank, and are spread over these like the tried ones."""
    stages, done = part.degrees.pp * virtual, [(-1, 0, 0)]
    for rank, ranges in part.kept:
        if len(ranges) != virtual or not _tried(part, ranges):
            return False
        done += [(k * part.degrees.pp + rank, *ends) for k, ends in enumerate(ranges)]
    last = part.costs.model.layers + 2
    for (one, _, stop), (two, start, _) in pairwise([*sorted(done), (stages, last, last)]):
        others, free = two - one - 1, start - stop
        if not 0 <= others <= free or (free and not others):
            return False
    return True


def _tried(part: MegatronPart, ranges: tuple[tuple[int, int], ...]) -> bool:
    """Tell whether the layers of a rank are spread over its virtual stages as in some layout that
    is tried; all that are asked for are."""
    if len(ranges) == 1 or part.problem.constraints.layout is not None:
        return True
    last = part.costs.model.layers + 1
    if part.alike:
        counts = tuple(min(stop, last) - max(start, 1) for start, stop in ranges)
        edges = {"embedding": ranges[0][0] == 0, "output": ranges[-1][1] > last}
        return any(
            counts == spread(sum(counts), len(ranges), remainder, **edges)
            for remainder in REMAINDERS
        )
    inner = [stop - start for start, stop in ranges if start > 0 and stop <= last]
    return len(set(inner)) <= 1


def keeps(part: MegatronPart, stops: Sequence[int], *, v_shaped: bool = False) -> bool:
    """Tell whether virtual stages that end there, from 0 on, leave the stages that are kept, and
    begin where they may.

    v_shaped: they go down the ranks and back up.
    """
    if not begins(part.costs.model)[list(stops)].all():
        return False
    kept: dict[int, list[tuple[int, int]]] = {}
    for k, own in enumerate(pairwise(stops)):
        kept.setdefault(rank_of_stage(k, part.degrees.pp, v_shaped=v_shaped), []).append(own)
    return all(tuple(kept[rank]) == ranges for rank, ranges in part.kept)


def keeping(part: MegatronPart, layouts: NDArray[np.int64], variant: Variant) -> NDArray[np.int64]:
    """Return the layouts, [layouts, stages + 1], that leave the kept stages, and whose stages begin
    where they may."""
    layouts = layouts[begins(part.costs.model)[layouts].all(axis=1)]
    if not part.kept:
        return layouts
    every = layouts.tolist()
    return layouts[[keeps(part, stops, v_shaped=variant.v_shaped) for stops in every]]


def fits_kept(part: MegatronPart, virtual: int, found: Fits) -> Fits:
    """Return the fitting ranges that leave the kept stages, and begin where they may.

    With several virtual stages a rank keeps its number of elements: their first elements depend on
    all ranks, and are checked for every cut (`keeps`).
    """
    row, possible = found.row.copy(), list(found.possible)
    if virtual == 1 and part.costs.model.bound:
        possible = [each & begins(part.costs.model)[:, None] for each in possible]
    edge = np.arange(found.possible.shape[1])
    for rank, ranges in part.kept:
        only = edge[None, :] - edge[:, None] == sum(stop - start for start, stop in ranges)
        if virtual == 1:
            only &= (edge[:, None] == ranges[0][0]) & (edge[None, :] == ranges[0][1])
        possible.append(only & possible[row[rank]])
        row[rank] = len(possible) - 1
    return Fits(row=row, possible=np.stack(possible))
