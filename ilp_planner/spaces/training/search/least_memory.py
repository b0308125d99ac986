"""The memory that suffices for a job of Megatron's space, and the constraint in the way."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.units import format_bytes
from ilp_planner.costs.training.job import nearest_beginnings, virtual_sizes
from ilp_planner.spaces.training.costs import MegatronCosts
from ilp_planner.spaces.training.enumerate.degrees import default_max_cp
from ilp_planner.spaces.training.enumerate.keeping import keeps
from ilp_planner.spaces.training.enumerate.layouts import layouts_of
from ilp_planner.spaces.training.enumerate.variants import leanest
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import (
    all_that_decides,
    has_variant,
    possible_choices,
    possible_degrees,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees

SECONDS = 2.0  # of looking
SPARE = 1.005  # on top of what would do: it is printed with two decimals


def more(problem: Problem[MegatronCosts]) -> str:
    """Say the memory that suffices for the plan of Megatron's space that was found to need least:
    with the most recomputation, and layers divided evenly, or as they are asked for."""
    name, limit = max(problem.memory_limits.items(), key=lambda item: item[1])
    least = least_share(problem) * SPARE
    if math.isinf(least):
        return in_the_way(problem)
    return (
        f"; {format_bytes(limit * least)} on each {name} would do, "
        f"{format_bytes(limit * (least - 1))} more, with none to spare{in_the_way(problem)}"
    )


def least_share(problem: Problem[MegatronCosts]) -> float:
    """Return the need of that plan, as a share of the memory of its devices; inf if none was found.

    Raises
    ------
    InfeasibleError: no choice of degrees is possible.
    """
    deadline, least = Deadline(SECONDS), math.inf
    for part in _lean_parts(problem):
        least = min(least, _needed(part))
        if not deadline.goon():
            break
    return least


def _lean_parts(problem: Problem[MegatronCosts]) -> Iterator[MegatronPart]:
    """Yield the parts with the fewest samples in a micro-batch, of those that are else alike: no
    other keeps less. Where all devices are of one type, the order of ranks does not matter either.

    Raises
    ------
    InfeasibleError: no choice of degrees is possible.
    """
    costs, alike = problem.costs, len(problem.cluster.type_names) == 1
    fewest: dict[MegatronDegrees, MegatronDegrees] = {}
    for degrees in possible_degrees(problem, costs):
        key = degrees._replace(micro_batch=0, order=0 if alike else degrees.order)
        if key not in fewest or degrees.micro_batch < fewest[key].micro_batch:
            fewest[key] = degrees
    for degrees in fewest.values():
        for number in possible_choices(problem, costs, degrees):
            part = MegatronPart(problem, costs, degrees._replace(choice=number))
            if has_variant(part):
                yield part


def in_the_way(problem: Problem[MegatronCosts]) -> str:
    """Name a constraint whose absence allows a plan; empty if none is found in the time."""
    deadline = Deadline(SECONDS)
    for name, text in problem.constraints.texts.items():
        if name not in ("max_devices", "without") and fits(without(problem, name), deadline):
            return f"; without {name.replace('_', ' ')} {text} a plan fits"
    return ""


def without(problem: Problem[MegatronCosts], name: str) -> Problem[MegatronCosts]:
    """Return a problem without one constraint of plans, or without headroom."""
    free = problem.constraints.headroom or 0 if name == "headroom" else 0
    costs = problem.costs
    if name == "cp":
        most = min(costs.max_cp, default_max_cp(costs.settings.kernels))
        costs = dataclasses.replace(costs, max_cp=most)
    return dataclasses.replace(
        problem,
        constraints=problem.constraints.but([name]),
        costs=costs,
        memory_limits={kind: limit + free for kind, limit in problem.memory_limits.items()},
    )


def fits(problem: Problem[MegatronCosts], deadline: Deadline) -> bool:
    """Tell whether some plan is found that fits."""
    known = problem.costs.known(problem.cluster)
    key = "some fit", *all_that_decides(problem, problem.costs), *problem.memory_limits.items()
    if key in known:
        found: bool = known[key]
        return found
    try:
        some = any(deadline.goon() and _fits(part) for part in _lean_parts(problem))
    except InfeasibleError:
        some = False
    if deadline.goon():
        known[key] = some
    return some


def _fits(part: MegatronPart) -> bool:
    """Tell whether no rank needs more than its limits, as `_needed` has them."""
    key, known = ("fits", *_decisive(part)), part.costs.known(part.problem.cluster)
    if key not in known:
        known[key] = part.fits_at_all and all(share <= 1 for share in _shares(part))
    found: bool = known[key]
    return found


def _needed(part: MegatronPart) -> float:
    """Return an upper bound on the need of ranks with equally many elements, as a share of their
    limits; inf if these are too few for their virtual stages, or differ from the kept stages'."""
    key, known = ("needed", *_decisive(part)), part.costs.known(part.problem.cluster)
    if key not in known:
        known[key] = max(_shares(part))
    found: float = known[key]
    return found


def _decisive(part: MegatronPart) -> tuple[Hashable, ...]:
    """Return all that decides the need of a part's leanest plan, for parts that share results."""
    return *part.decisive, *part.problem.memory_limits.items()


def _shares(part: MegatronPart) -> Iterator[float]:
    """Yield the need of each rank, as a share of its limit."""
    model, pp, variant = part.costs.model, part.degrees.pp, leanest(part)
    ends = [(model.layers + 2) * rank // pp for rank in range(pp + 1)]
    if not part.spread(variant):
        layouts = layouts_of(part, variant)
        if not len(layouts):
            yield math.inf
            return
        sizes = np.diff(layouts[np.diff(layouts).max(axis=1).argmin()])
    else:
        if model.bound:
            ends = [*nearest_beginnings(ends, model)] or ends
        sizes = np.array(virtual_sizes(ends, variant.virtual, model.layers, variant.remainder))
    stops = [0, *np.cumsum(sizes).tolist()]
    if sizes.min() < 1 or not keeps(part, stops, v_shaped=variant.v_shaped):
        yield math.inf
        return
    ranks = part.costs.ranks_memory(part.job_of_stages(variant, stops), part.problem.cluster)
    for rank, most in enumerate(part.limits):
        yield ranks[rank].needed / most
