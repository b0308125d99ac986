"""Metis's figures for the checker that shares nothing with the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.costs.profiles.layers import LayerKey

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.peers.metis.costs import MetisCosts


def table_of(problem: Problem[MetisCosts]) -> dict[str, Any]:
    """Return the rows and figures that the costs of all plans come from; milliseconds and MiB, as
    in Metis's files."""
    costs, names = problem.costs, problem.cluster.type_names
    formulas, profile = costs.formulas, costs.formulas.profile
    pairs = []
    for kind, name in enumerate(names):
        row_name = formulas.row_name(name)
        for tp in profile.degrees(row_name):
            samples = profile.samples(row_name, tp)
            rows = [profile.rows[LayerKey(row_name, tp, x)] for x in samples]
            pairs.append(
                {
                    "type": kind,
                    "tp": tp,
                    "samples": list(samples),
                    "time": [row.compute.tolist() for row in rows],
                    "mib": [row.memory.tolist() for row in rows],
                    "sync": [row.sync for row in rows],
                }
            )
    return {
        "costs": costs.name,
        "layers": formulas.layers,
        "pairs": pairs,
        "parameters": [float(x) for x in profile.parameters],
        "optimizer": profile.optimizer,
        "batch_generator": profile.batch_generator,
        "hidden": formulas.hidden,
        "sequence": formulas.sequence,
        "vocabulary": formulas.vocabulary,
        "bandwidth": [formulas.cluster.bandwidth[name] for name in names],
    }
