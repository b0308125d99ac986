"""Solve one case in a process of its own and print JSON.

python -m tests.benchmarks.one CASE SOLVER SECONDS
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.cases import CASES, DATA, ROOT
from tests.oracle import ORACLE

GOOD = 1.02  # a good plan: within 2 % of the final one


def main() -> None:
    """Solve, export, let the oracle judge, print."""
    name, solver, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    case = next(case for case in CASES if case.name == name)
    started = time.perf_counter()

    from ilp_planner.base.units import parse_size
    from ilp_planner.optimize.solve import solve
    from ilp_planner.optimize.solvers.base import Limits
    from ilp_planner.peers.aceso.formats import write_aceso
    from ilp_planner.peers.aceso.source import read_aceso_profile
    from ilp_planner.spaces.operators.build import build_problem
    from ilp_planner.specs.cluster_reader import read_cluster
    from ilp_planner.specs.model_reader import read_model

    model = read_model(ROOT / "models" / f"{case.model}.toml")
    cluster = read_cluster(ROOT / "clusters" / f"{case.cluster}.toml")
    profile = read_aceso_profile(
        DATA / case.database, model.profile["aceso"], devices_per_node=cluster.devices_per_node
    )
    problem = build_problem(
        model,
        cluster,
        profile,
        cost_model="aceso",
        global_batch=case.global_batch,
        memory_limit=parse_size(case.memory),
    )
    seen: list[tuple[float, float]] = []
    result = solve(
        problem,
        limits=Limits(seconds=seconds),
        solver=solver,
        progress=lambda objective, _: seen.append((time.perf_counter() - started, objective)),
    )
    wall = time.perf_counter() - started
    good = [at for at, objective in seen if objective <= result.objective * GOOD]
    row = {
        "case": name,
        "solver": solver,
        "objective_ms": result.objective * 1e3,
        "bound_ms": result.bound * 1e3,
        "gap": result.gap,
        "status": str(result.status),
        "stopped_by": str(result.stopped_by),
        "first_good_s": good[0] if good else None,
        "wall_s": wall,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "notes": list(result.notes),
    }
    if result.plan is not None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "plan.json"
            file.write_text(json.dumps(write_aceso(result.plan, model)))
            judged = subprocess.run(
                [
                    sys.executable,
                    str(ORACLE),
                    str(file),
                    str(DATA / case.database),
                    "--gpus-per-node",
                    str(cluster.devices_per_node),
                    "--memory-limit",
                    case.memory.split()[0],
                ],
                capture_output=True,
                text=True,
                check=True,
            )
        verdict = json.loads(judged.stdout)
        row["oracle_ms"] = verdict["iteration_ms"]
        row["oracle_violations"] = verdict["legal"]
    print(json.dumps(row))


if __name__ == "__main__":
    main()
