"""Why nothing fits: the operator or the stage that needs too much memory, and how much too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import format_bytes
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.paths import best_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.bounds.pipeline import Landscape
    from ilp_planner.optimize.bounds.pipelines import Place

HUGE = 2.0**60  # bytes


def explain_infeasible(problem: Problem[Any], parts: list[OperatorPart]) -> str:
    """Return why no plan fits the memory limit, '' when memory alone does not rule out all."""
    best: tuple[float, str] = (INFINITE, "")
    states = _largest_states(problem, parts)
    if states[0] > problem.memory_limit:
        best = states
    for part in [] if best[1] else parts:
        if not part.divisible:
            continue
        needed, where = _fullest_stage(problem, part)
        if needed <= problem.memory_limit * (1 + ROUNDING):
            return ""
        best = min(best, (needed, where))
    if not best[1]:
        sizes = ", ".join(map(str, problem.space.stage_sizes(problem)))
        return (
            f"{problem.cluster.device_count} devices cannot be split into at most "
            f"{problem.max_stages} stages of {sizes} devices with a profiled strategy"
        )
    missing = format_bytes(best[0] - problem.memory_limit)
    return (
        f"nothing fits: {best[1]} needs at least {format_bytes(best[0])} per device, "
        f"{missing} more than the limit of {format_bytes(problem.memory_limit)}"
    )


def _fullest_stage(problem: Problem[Any], part: OperatorPart) -> tuple[float, str]:
    """Return the bytes of the fullest device in the leanest pipeline, and its content."""
    # on a copy: what the search has proved stays as it is
    scape = _landscape(OperatorPart(problem, part.micro_batch))
    low, high = scape.least_slowest(1.0, HUGE, 1e-7)
    if high >= INFINITE:
        return INFINITE, ""
    if low <= problem.memory_limit * (1 + ROUNDING):
        return low, ""
    weight = 1e9 - 1  # the sum is a tie-breaker
    graph = scape.open_graph(weight, high * (weight + 1) * 1.001, low).graph
    path, _ = best_path(graph)
    arc = max(path, key=lambda a: graph.time[a])
    start, stop = int(graph.start[arc]), int(graph.stop[arc])
    names = problem.costs.chain
    if stop - start == 1:
        return low, f"operator {start} ({names[start]})"
    return low, f"the stage of operators {start} ({names[start]}) to {stop - 1} ({names[stop - 1]})"


def _landscape(part: OperatorPart) -> Landscape:
    """Return the pipelines over the bytes (not seconds) that each stage needs at least."""
    stages = part.stages
    stages.set_longest(INFINITE)
    tables: dict[tuple[int, int, bool], NDArray[np.float64]] = {}

    def sizes(place: Place) -> NDArray[np.float64]:
        key = (place.devices, stages.in_flight(place.behind), place.enters_node)
        if key not in tables:
            tables[key] = np.maximum(stages.memory(*key), 1.0)
        row: NDArray[np.float64] = tables[key][int(place.leaves_node)]
        return row

    return part.landscape(sizes)


def _largest_states(problem: Problem[Any], parts: list[OperatorPart]) -> tuple[float, str]:
    """Return the operator with the largest parameters and optimiser states, and their bytes."""
    largest: tuple[float, str] = (0.0, "")
    for operator, name in enumerate(problem.costs.chain):
        needs = [
            chain.tables.state_factor * float(chain.operators.weights[operator, option])
            for part in parts
            for chain in part.stages.chains.values()
            for option in range(chain.operators.weights.shape[1])
            if chain.operators.compute[operator, option] < INFINITE
        ]
        if needs and min(needs) > largest[0]:
            largest = min(needs), f"operator {operator} ({name}) with its optimiser states alone"
    return largest
