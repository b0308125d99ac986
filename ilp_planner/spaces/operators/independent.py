"""The proof of a bound on plans of operators for a checker that shares nothing with the planner.

`checker/checker.py` reads it; docs/reference/certificate.md has its format. All that can be
wrong here makes a weaker bound there: the prices steer, and the rows are what both count with.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import MEMORY_ROUNDING
from ilp_planner.optimize.bounds.labels import least_reserved
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.prices import Ends, search_price
from ilp_planner.optimize.bounds.sweep import Chain, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.costs.chain import ChainCosts
    from ilp_planner.inputs.problem import Problem

VERSION = 1
UNIT = 4096e12  # a price is a whole number of 1 / 4096 picoseconds per byte
LONGER = 1.02  # times an even share of the time: a stage that a bound is about


def independent_proof(
    problem: Problem[Any], bound: float, nodes: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the claim that no plan of a problem takes less than `bound` seconds, with all that the
    checker needs to prove it.

    Empty if there is no bound, or the set of plans is narrower than the checker knows.

    Parameters
    ----------
    nodes: numbers of nodes that the claim is about; empty: all of the problem.
    """
    cluster = problem.cluster
    if not (0 < bound < INFINITE) or problem.constraints.texts:
        return {}
    parts = [OperatorPart(problem, size) for size in problem.micro_batch_sizes]
    return {
        "version": VERSION,
        "bound_s": bound,
        "set": {
            "nodes": sorted(n for n in nodes if n <= cluster.node_count) or [cluster.node_count],
            "devices_per_node": cluster.devices_per_node,
            "devices_of_stages": list(problem.space.stage_sizes(problem)),
            "max_stages": problem.max_stages,
            "global_batch": problem.global_batch,
            "micro_batches": [part.micro_batch for part in parts],
            "memory_limit_bytes": math.ceil(problem.memory_limit),
        },
        "table": table_of(problem.costs),
        "cases": [
            {"micro_batch": part.micro_batch, "prices": list(_prices(problem, part, bound))}
            for part in parts
        ],
    }


def table_of(costs: ChainCosts) -> dict[str, Any]:
    """Return the rows and tables that the costs of all plans come from; seconds and bytes."""
    profile = costs.profile
    names = list(dict.fromkeys(costs.chain))
    number = {name: i for i, name in enumerate(names)}
    return {
        "costs": costs.name,
        "family": costs.family,
        "operators": names,
        "chain": [number[name] for name in costs.chain],
        "samples": list(profile.micro_batch_sizes),
        "tensor_degrees": list(profile.tensor_degrees),
        "splits": list(profile.splits),
        "rows": [
            [
                number[key.operator], key.micro_batch, key.tp, key.split, row.forward,
                row.backward, row.input, row.output, row.weights, row.activations,
                row.forward_reserved, row.backward_reserved,
            ]
            for key, row in profile.rows.items()
            if key.operator in number
        ],
        "intra_node": list(profile.intra_node),
        "inter_node": list(profile.inter_node),
        "collectives": [
            {"name": name, "devices": devices, "mib": list(times), "seconds": [*times.values()]}
            for (name, devices), times in profile.collectives.items()
        ],
    }  # fmt: skip


def _prices(problem: Problem[Any], part: OperatorPart, bound: float) -> Iterator[list[int]]:
    """Yield [devices, micro-batches in flight, floor, price]: for every group and number in flight,
    the best multiplier of memory of a stage that takes about as long as an even share."""
    devices, count = problem.cluster.device_count, len(problem.costs.chain)
    longest = LONGER * bound / part.micro_batches
    floors = (0, 1) if problem.costs.weight_floor else (0,)
    places: dict[tuple[int, int], list[int]] = {}
    for step in part.steps if part.divisible else ():
        place = step.place
        key = place.devices, part.stages.in_flight(place.behind)
        places.setdefault(key, []).append(devices - step.used - place.devices)
    for (group, flight), before in sorted(places.items()):
        found = set()
        for first in {min(before), max(before)}:
            start = min(count - 1, count * first // devices)
            chain = part.stages.chains[group]
            found.add(
                round(UNIT * _best_price(chain, start, flight, problem.memory_limit, longest))
            )
        for price in sorted(found - {0}):
            for floor in floors:
                yield [group, flight, floor, price]


def _best_price(chain: Chain, start: int, flight: int, limit: float, longest: float) -> float:
    """Return the best multiplier, in seconds per byte, of the longest stage from an operator on
    that takes at most `longest` seconds; 0 if memory does not bind."""
    alone = chain.operators.compute[start:].min(axis=1).cumsum()
    low, high, price = start + 1, start + max(1, int(np.searchsorted(alone, longest))), 0.0
    while low <= high:
        stop = (low + high) // 2
        operators = chain.operators.only(slice(start, stop))
        memory = Memory(
            in_flight=float(flight), factor=float(chain.tables.state_factor),
            floor=chain.tables.weight_floor, limit=limit * (1 + MEMORY_ROUNDING),
        )  # fmt: skip
        reserved = least_reserved(operators)
        ends = Ends(
            inputs=chain.input[start], enter=chain.enter[0, start],
            leave=np.ascontiguousarray(chain.least_leave[0, stop - 1]),
            first=np.ones(chain.input.shape[1], np.bool_),
        )  # fmt: skip
        room = memory.limit - float(reserved[0, 0]) - float(reserved[1, 0])
        path = np.zeros(stop - start, np.int64)
        _, found, least = search_price(operators, ends, memory, np.inf, room, path)
        if found < 0 or least > longest:  # no price frees enough, or it takes too long
            high = stop - 1
        else:
            low, price = stop + 1, found
    return price
