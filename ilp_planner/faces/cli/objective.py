"""The options of `solve` for an objective over sets of nodes, and its search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from ilp_planner.base.errors import UsageError
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.report.live import Progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.spaces.objectives.objective import Objective as Aimed
    from ilp_planner.spaces.objectives.search import Chosen

Objective = Annotated[
    str,
    o.solving(
        "--objective",
        "What is minimised: time, of an iteration; price, of a token; or both, as time,price: a "
        "plan for every budget. For price, any nodes may stay idle.",
        "NAMES",
        default=True,
    ),
]
MaxPricePerHour = Annotated[
    float | None,
    o.limited(
        "--max-price-per-hour",
        "What the nodes of a plan may cost per hour; any nodes may stay idle.",
        "PRICE",
    ),
]
AllDevices = Annotated[
    bool,
    o.limited(
        "--all-devices",
        "Leave no node out, whether or not a plan is faster without it.",
    ),
]
Price = Annotated[
    str | None,
    o.problem(
        "--price",
        "What a device costs per hour instead of what the cluster says: 2.5, of every type as "
        "a100=2.5,t4=0.4, or spot, for the spot prices of the cluster.",
        "PRICE",
    ),
]


def on_sets(
    problem: Problem[Any],
    objective: Aimed,
    max_price_per_hour: float | None,
    task: Task,
    besides: Mapping[str, object],
) -> Chosen:
    """Search sets of nodes for the objective; return the result with the problem of its nodes.

    besides: options that this search does not take, by name, None if they are not given.

    Raises
    ------
    UsageError: an option that a search over sets of nodes does not take.
    """
    from ilp_planner.spaces.objectives.objective import PRICE
    from ilp_planner.spaces.objectives.search import solve_on_sets

    for name, said in besides.items():
        if said is not None:
            raise UsageError(f"{name}: found {said} where any nodes may be used, expected none")
    with Progress(unit="" if objective is PRICE else "s") as progress:
        return solve_on_sets(
            problem,
            objective,
            max_hourly=math.inf if max_price_per_hour is None else max_price_per_hour,
            limits=task.limits,
            solver=task.solver,
            progress=progress,
            deadline=task.deadline,
        )
