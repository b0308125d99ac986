"""The plan that Megatron-LM can run and that is nearest to one that it cannot.

Degrees first: the tensor-parallel degree that most layers have, then the number of stages, then the
micro-batch; then the recomputation wanted, or the next one that fits memory; then the wanted cuts,
if they are legal, or the best ones.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlannerError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import Constraints
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.spaces.training.build import build
from ilp_planner.spaces.training.enumerate.partition import best_cut
from ilp_planner.spaces.training.enumerate.recomputations import FULL, NOTHING, SELECTIVE
from ilp_planner.spaces.training.enumerate.variants import Variant
from ilp_planner.spaces.training.search.possible import megatron_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.search.parts import MegatronPart
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.training import Recompute, Settings

MOST_TRIES = 60  # choices of degrees


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """The wished degrees of a plan, as far as one number says them. ends: of the ranks on the chain
    of word embedding, layers and output."""

    tp: int
    pp: int
    micro_batch: int
    ends: tuple[int, ...]
    recompute: Recompute = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A plan and its seconds per iteration."""

    plan: GroupPlan
    seconds: float


def wish_of(
    stages: Sequence[tuple[int, int, int]], micro_batch: float, recompute: Recompute = NOTHING
) -> Wish:
    """Return the majority values of a plan.

    Parameters
    ----------
    stages: (start, stop, tp) of each, on the chain. micro_batch: samples of a replica.
    """
    layers: Counter[int] = Counter()
    for start, stop, tp in stages:
        layers[tp] += stop - start
    return Wish(
        tp=max(layers, key=lambda tp: (layers[tp], tp)),
        pp=len(stages),
        micro_batch=max(1, round(micro_batch)),
        ends=(0, *(stop for _, stop, _ in stages)),
        recompute=recompute,
    )


def near_request(
    global_batch: int, settings: Settings | None, asked: Request | None = None
) -> Request:
    """Return the request for plans near one: its batch, its precision and the memory of usable
    devices.

    Parameters
    ----------
    settings: of the plan, if it has some. asked: the request of the plan, if known.
    """
    asked = asked or Request(files={})
    precision = asked.precision
    if settings is not None:
        precision = settings.kernels.quantised or settings.precision
    return Request(
        files={},
        space="megatron",
        global_batch=global_batch,
        precision=precision,
        memory_limit=asked.memory_limit,
        constraints=Constraints(headroom=asked.constraints.headroom),
    )


def nearest_plan(
    model: ModelSpec, cluster: ClusterSpec, request: Request, wish: Wish
) -> Nearest | None:
    """Return the nearest plan; None if Megatron-LM has none for this cluster, or none was found
    among the nearest degrees.

    Parameters
    ----------
    request: as `near_request` makes it.
    """
    try:
        objects = {"model": model, "cluster": cluster}
        problem = build(InputFiles(request, objects=objects))
        return next(nearest_plans(problem, wish, MOST_TRIES), None)
    except PlannerError:
        return None


def nearest_plans(
    problem: Problem[MegatronCosts], wish: Wish, tries: int | None = None
) -> Iterator[Nearest]:
    """Yield legal plans of a problem, one of each choice of degrees, the nearest first.

    Parameters
    ----------
    tries: how many choices are tried; None: all.

    Raises
    ------
    PlannerError: there is none at all.
    """
    parts = megatron_parts(problem, problem.costs)
    parts.sort(key=lambda part: _distance(part, wish))
    for part in parts[:tries]:
        if not part.fits_at_all:
            continue
        for recompute in dict.fromkeys((wish.recompute, SELECTIVE, FULL)):
            found = _cut(problem, part, Variant(1, recompute), wish)
            if found is not None:
                yield found
                break


def _distance(part: MegatronPart, wish: Wish) -> tuple[float, ...]:
    d = part.degrees
    return (
        abs(math.log2(d.tp / wish.tp)),
        abs(d.pp - wish.pp),
        abs(math.log2(d.micro_batch / wish.micro_batch)),
        d.cp,
        d.ep,
        d.order,
    )


def _cut(
    problem: Problem[MegatronCosts], part: MegatronPart, variant: Variant, wish: Wish
) -> Nearest | None:
    """Return a legal plan of a variant: with the wanted cuts if they are."""
    if part.degrees.pp == len(wish.ends) - 1:
        plan = part.group_plan(variant, wish.ends)
        evaluation = evaluate(problem, plan)
        if evaluation.legal:
            return Nearest(plan=plan, seconds=evaluation.iteration_time)
    cut = best_cut(part.tables(variant)).cut
    if cut is None:
        return None
    plan = part.group_plan(variant, cut.ends)
    return Nearest(plan=plan, seconds=evaluate(problem, plan).iteration_time)
