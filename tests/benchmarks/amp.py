"""AMP's 171 configurations, each solved to proved optimality under AMP's own cost model.

    python -m tests.benchmarks.amp

prints a row per published configuration and one per experiment: the best plan of AMP's whole space,
and the best one with the placement free (under the repaired formula). AMP's own search took about
1100 s for 53 configurations.
"""

import json
import time
from typing import Any

from ilp_planner.peers.amp.costs import AmpCosts
from ilp_planner.peers.amp.degrees import rank_plans
from ilp_planner.peers.amp.placement import place
from tests.amp_cases import EXPERIMENTS, degrees_of, experiment, partition_of, trials


def configurations(name: str) -> list[dict[str, Any]]:
    """Return a row per published configuration of one experiment: AMP's cost and the optimum."""
    found = experiment(name)
    costs = AmpCosts(profile=found.profile)
    best = {p.degrees: p for p in rank_plans(costs, found.cluster, found.global_batch)}
    rows = []
    for trial in trials():
        if trial["experiment"] != name:
            continue
        degrees = degrees_of(trial)
        partition = partition_of(trial, found.profile.model)
        amp = costs.terms(found.cluster, degrees, partition, found.global_batch).total
        plan = best[degrees]
        rows.append(
            {
                "experiment": name,
                **degrees._asdict(),
                "amp_printed_s": trial["predicted_s"],
                "amp_s": amp,
                "amp_partition": partition,
                "optimal_s": plan.cost,
                "bound_s": plan.bound,
                "partition": list(plan.partition),
                "amp_above_optimum": amp / plan.cost - 1,
            }
        )
    return rows


def rows() -> list[dict[str, Any]]:
    """Return a row per experiment: what was reached, proved, and in how many seconds."""
    found = []
    for name in EXPERIMENTS:
        case = experiment(name)
        costs = AmpCosts(profile=case.profile)
        rank_plans(costs, case.cluster, case.global_batch, max_tp=1)  # compiles
        begin = time.perf_counter()
        ranking = rank_plans(costs, case.cluster, case.global_batch)
        jointly = time.perf_counter() - begin
        begin = time.perf_counter()
        free = place(costs, case.cluster, case.global_batch)
        placing = time.perf_counter() - begin
        each = configurations(name)
        found.append(
            {
                "experiment": name,
                "configurations": len(each),
                "predictions_reproduced": sum(
                    round(row["amp_s"], 4) == row["amp_printed_s"] for row in each
                ),
                "amp_best_s": min(row["amp_s"] for row in each),
                "best_s": ranking[0].cost,
                "bound_s": ranking[0].bound,
                "degrees": ranking[0].degrees._asdict(),
                "partition": list(ranking[0].partition),
                "amp_not_optimal": sum(row["amp_above_optimum"] > 1e-4 for row in each),
                "amp_worst_above_optimum": max(row["amp_above_optimum"] for row in each),
                "wall_s": jointly,
                "free_best_s": free.plan.cost,
                "free_bound_s": free.bound,
                "free_degrees": free.plan.degrees._asdict(),
                "free_partition": list(free.plan.partition),
                "free_nodes": [
                    [case.cluster.node_of[d] for d in stage.devices]
                    for stage in free.plan.group_plan(name, case.global_batch).stages
                ],
                "free_proof": free.proof,
                "free_wall_s": placing,
            }
        )
    return found


def main() -> None:
    """Print every row as a line of JSON."""
    for name in EXPERIMENTS:
        for row in configurations(name):
            print(json.dumps(row))
    for row in rows():
        print(json.dumps(row))


if __name__ == "__main__":
    main()
