"""The proof of a bound on plans of whole layers for a checker that shares nothing with the planner.

`checker/checker.py` reads it; docs/reference/certificate.md has its format.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.parts import part
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.resource_prices import PricedGraph

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.costs.layers import LayerCosts
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.groups.parts import GroupPart

VERSION = 2
PICO, UNIT = 1e12, 4096e12  # picoseconds of a second; prices are in 1 / 4096 of them per device
MOST_TYPES, MOST_SAMPLES = 5, 1 << 16  # that the checker reads
# Cost models -> modules with the rows that the checker reads.
TABLES = {"native": "spaces.groups.independent", "metis": "peers.metis.independent"}
STEPS, SHORTER = 5, 0.9  # longest stages that prices are sought for, and their ratio


def layer_proof(
    problem: Problem[Any], bound: float, parts: Sequence[GroupPart] = (), *, summed: bool = False
) -> dict[str, Any]:
    """Return the claim that no plan of a problem takes less than `bound` seconds, with all that the
    checker needs to prove it.

    Empty if there is no bound, or the set of plans is none that the checker knows.

    Parameters
    ----------
    parts: one for each number of micro-batches, of a space that has them. summed: memory is checked
    of every group in sum, by Metis's rule.
    """
    cluster, costs = problem.cluster, problem.costs
    known = cluster.symmetric and len(costs.chain) > 1
    known &= len(cluster.type_names) <= MOST_TYPES and problem.global_batch <= MOST_SAMPLES
    if not (0 < bound < INFINITE) or not known or costs.spread or costs.mixed_tp:
        return {}
    names = cluster.type_names
    degrees = {
        name: [tp for tp in costs.degrees().get(name, ()) if tp <= problem.max_tp] for name in names
    }
    return {
        "version": VERSION,
        "bound_s": bound,
        "set": {
            "space": problem.space.name,
            "types": list(names),
            "nodes": [[names.index(x.device), x.devices, x.count] for x in cluster.nodes],
            "memory_limit_bytes": [math.ceil(problem.memory_limits[name]) for name in names],
            "tensor_degrees": [
                # Metis's replicas may be on several nodes
                [tp for tp in degrees[name] if not parts or tp <= max(cluster.node_sizes(name))]
                for name in names
            ],
            "global_batch": problem.global_batch,
            "micro_batches": list(problem.micro_batches),
            "max_stages": problem.max_stages,
            "recompute": list(costs.recomputations),
            "uneven": costs.uneven,
            "summed": summed,
        },
        "table": _table(problem),
        "cases": _cases(problem, bound, parts),
    }


def _table(problem: Problem[Any]) -> dict[str, Any]:
    """Return the rows and figures that the costs of all plans come from."""
    found: dict[str, Any] = part(f"{TABLES[problem.costs.name]}:table_of")(problem)
    return found


def table_of(problem: Problem[LayerCosts]) -> dict[str, Any]:
    """Return the same of the planner's own costs; seconds and bytes, rows as the profile has
    them."""
    costs, cluster, profile = problem.costs, problem.cluster, problem.costs.profile
    names, pairs = cluster.type_names, []
    for kind, name in enumerate(names):
        for tp in profile.degrees(name):
            key, samples = (name, tp), list(profile.samples(name, tp))
            pair = {"type": kind, "tp": tp, "samples": samples, **_rows(profile, key, samples)}
            pair["again"] = {
                way: _rows(rows.profile, key, samples) for way, rows in costs.again.items()
            }
            if key in profile.optimizer:
                pair["optimizer"] = profile.optimizer[key].tolist()
            if key in profile.most_samples:
                pair["most_samples"] = profile.most_samples[key]
            pairs.append(pair)
    within = (cluster.within.get(name, cluster.intra_node) for name in names)
    links = [(kind, kind, True, link) for kind, link in enumerate(within)]
    for a, b in combinations_with_replacement(range(len(names)), 2):
        links.append((a, b, False, cluster.type_link(names[a], names[b])))
    return {
        "costs": costs.name,
        "layers": len(costs.chain),
        "pairs": pairs,
        "isolated": profile.isolated,
        "rates": [costs.rates.get(name) for name in names],
        **asdict(costs.calibration),
        "gradients": profile.gradients.tolist(),
        "boundary": profile.boundary.tolist(),
        "links": [
            {
                "from": a,
                "to": b,
                "inside": inside,
                "latency": link.latency,
                "rate": link.bandwidth,
                "rings": [list(x) for x in link.collectives.items()],
            }
            for a, b, inside, link in links
        ],
    }


def _rows(profile: LayerProfile, key: tuple[str, int], samples: Sequence[int]) -> dict[str, Any]:
    """Return seconds of every layer for these samples, and bytes."""
    per_sample = profile.workspace_per_sample.get(key, np.zeros(len(profile.layers)))
    return {
        "time": [profile.time[LayerKey(*key, x)].tolist() for x in samples],
        "state": profile.state[key].tolist(),
        "activation": profile.activation[key].tolist(),
        "workspace": profile.workspace[key].tolist(),
        "per_sample": per_sample.tolist(),
    }


def _cases(problem: Problem[Any], bound: float, parts: Sequence[GroupPart]) -> list[dict[str, Any]]:
    """Return the groups of several types and the prices of every number of micro-batches; of a
    space without parts that have any, all of the groups, and no prices."""
    if not parts:
        return [
            {"micro_batches": batches, "several": "all", "prices": []}
            for batches in problem.micro_batches
        ]
    return [
        {
            "micro_batches": part.micro_batches,
            "several": _several(part),
            "prices": list(_prices(part, bound)),
        }
        for part in parts
    ]


def _several(part: GroupPart) -> str:
    """Return which groups of several types a part has: all, those with powers of two of replicas,
    such ones of two types, or none."""
    if part.complete:
        return "all"
    types = max((sum(map(bool, option.replicas)) for option in part.several), default=0)
    return {0: "none", 2: "pairs"}.get(types, "powers")


def _prices(part: GroupPart, bound: float) -> Iterator[list[int]]:
    """Yield [longest stage, price of a device of each type ...]: the best multipliers of plans with
    no longer stage, on the best links that groups can have."""
    cutoff = bound - part.constant
    outline = part.outline(cutoff)
    if outline is None or not outline.graph.arcs:
        return
    graph = PricedGraph(outline.graph)
    longest, steps = cutoff / (part.weight + 1), STEPS
    for slowest in (longest * SHORTER**step for step in reversed(range(steps))):
        found = graph.prices(slowest, cutoff)  # higher ones may be without an end
        if found.value < INFINITE:
            yield [math.ceil(slowest * PICO), *(int(x * UNIT) for x in found.price.tolist())]
