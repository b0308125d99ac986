"""Why no plan is possible: the smallest part of what was asked for that cannot be had together."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

from ilp_planner.deadline import Deadline
from ilp_planner.errors import InfeasibleError, PlannerError
from ilp_planner.inputs.constraints import DEGREES, OF_PLANS, names_of
from ilp_planner.spaces.megatron.choices import CHOICES
from ilp_planner.spaces.megatron.parts import megatron_parts, possible_parts
from ilp_planner.spaces.megatron.variants import virtual_stages
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ilp_planner.problem import Problem
    from ilp_planner.spaces.megatron.costs import MegatronCosts
    from ilp_planner.spaces.megatron.parts import MegatronPart

    Made = Callable[[Collection[str]], Problem[MegatronCosts]]

SECONDS = 5.0  # of looking for what would do
SMALL = (1, 2)  # sizes of conflicts that are looked for before any irreducible one is taken


def check_possible(said: dict[str, str], made: Made) -> None:
    """Refuse what no plan can have, memory aside.

    Parameters
    ----------
    said: what was asked for by the names of parameters, as it was said.
    made: from the names of those that count to the problem with these alone.

    Raises
    ------
    InfeasibleError: one line with a smallest conflict, and what would do instead.
    """
    if _possible(made, said):
        return
    whole = made(said)
    if not whole.constraints.texts or not _possible(made, ()):
        megatron_parts(whole, whole.costs)  # raises what is wrong with the job itself
    names = _conflict(tuple(said), lambda some: _possible(made, some))
    both = {1: "it", 2: "both"}.get(len(names), "all of them")
    shown = ", ".join(f"`{name}={said[name]}`" for name in names)
    raise InfeasibleError(
        f"{shown}: no plan of {whole.model} on {whole.cluster.device_count} devices has {both}"
        f"{_repair(names, said, made)}"
    )


def _possible(made: Made, names: Collection[str]) -> bool:
    try:
        problem = made(names)
        return next(possible_parts(problem, problem.costs), None) is not None
    except PlannerError:
        return False


def _conflict(
    said: tuple[str, ...], possible: Callable[[Collection[str]], bool]
) -> tuple[str, ...]:
    """Return names that are impossible together: one or two where some are, otherwise such that
    the others are possible without any one of them."""
    for size in SMALL:
        for some in combinations(said, size):
            if not possible(some):
                return some
    left = said
    for name in said:
        others = tuple(other for other in left if other != name)
        if not possible(others):
            left = others
    return left


def _repair(names: Iterable[str], said: dict[str, str], made: Made) -> str:
    """Return which one change would make a plan possible, with all else that was said: the value
    that is nearest to one asked for; empty where it is not found."""
    deadline = Deadline(SECONDS)
    for name in names:
        if not deadline.goon():
            break
        left = [other for other in said if other != name]
        if not _possible(made, left):
            continue
        if name not in OF_PLANS:
            return f"; without `{name}` there are some"
        others = made(left)
        found = {v for part in possible_parts(others, others.costs) for v in _values(part, name)}
        asked = made(said).constraints
        nearest = min(found, key=lambda value: (_distance(asked.texts[name], value), value))
        return f"; `{name}={nearest}` would do"
    return ""


def _values(part: MegatronPart, name: str) -> Iterator[int | str]:
    """Yield what the plans of a part have of something that can be asked for."""
    if name == "virtual_stages":
        yield from virtual_stages(part)
    elif name in DEGREES:
        yield getattr(part.degrees, name)
    elif name in CHOICES:
        yield CHOICES[name].read(part.settings)
    elif name == "rank_order":
        yield ORDERS[part.degrees.order]
    else:
        yield from {name for v in part.variants() for name in names_of(v.recompute)}


def _distance(asked: str, value: int | str) -> float:
    """Return how far a value is from what was asked for; all texts are as far."""
    if isinstance(value, str):
        return 0.0
    numbers = [int(end) for item in asked.split(",") for end in item.split("..")]
    return min(abs(math.log2(value / number)) for number in numbers)
