"""Measure one thing of mixed clusters in a process of its own and print JSON.

python -m tests.benchmarks.mixed_one amp
python -m tests.benchmarks.mixed_one accuracy
python -m tests.benchmarks.mixed_one scale NETWORK TYPES DEVICES_PER_TYPE LAYERS SEED SECONDS [GAP]
"""

import json
import math
import resource
import sys
import time
from typing import Any

from tests.benchmarks.mixed_cases import MICRO_BATCHES


def scale(words: list[str]) -> dict[str, Any]:
    """Solve a generated instance, with the number of micro-batches fixed."""
    network = words[0]
    types, devices, layers, seed = map(int, words[1:5])
    started = time.perf_counter()

    from ilp_planner.optimize.solve import solve
    from ilp_planner.optimize.solvers.base import Limits
    from tests.benchmarks.generated import FAST, SLOW, instance
    from tests.problems import build_group_problem

    profile, cluster, batch = instance(
        types, devices, layers, seed, {"fast": FAST, "slow": SLOW}[network]
    )
    problem = build_group_problem(
        cluster,
        profile,
        model="generated",
        global_batch=batch,
        micro_batch_sizes=(batch // MICRO_BATCHES,),
    )
    seconds, gap = float(words[5]), float(words[6]) if len(words) > 6 else 0.0
    result = solve(problem, limits=Limits(seconds=seconds, gap=gap))
    found = math.isfinite(result.objective)
    return {
        "network": network,
        "types": types,
        "devices_per_type": devices,
        "layers": layers,
        "seed": seed,
        "limit_s": seconds,
        "objective_s": result.objective if found else None,
        "bound_s": result.bound,
        "gap": result.gap if found else None,
        "stopped_by": str(result.stopped_by),
        "search_s": result.wall,
        "wall_s": time.perf_counter() - started,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "notes": list(result.notes),
    }


def main() -> None:
    """Measure, print."""
    what, *words = sys.argv[1:]
    if what == "scale":
        print(json.dumps(scale(words)))
    elif what == "amp":
        from tests.benchmarks import amp

        print(json.dumps(amp.rows()))
    else:
        from tests.benchmarks import amp_accuracy

        print(json.dumps(amp_accuracy.rows()))


if __name__ == "__main__":
    main()
