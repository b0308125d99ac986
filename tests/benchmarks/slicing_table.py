"""Every solver on pipeDejavu's slicing problems, and the manual's table of it.

python -m tests.benchmarks --suite slicing [--only 64,16] [--seconds 20]

Times are of the whole call of a solver on a finished graph, compiled code loaded before. The
optimum is the DP's; what another solver calls proved must agree with it.
"""

import time
from typing import Any

from ilp_planner.optimize.result import Status, relative_gap
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.base import Limits
from tests.benchmarks.kept import Kept
from tests.benchmarks.mixed_table import line
from tests.benchmarks.slicing import Slicing, slicing
from tests.benchmarks.table import percent, write_table

SECONDS = 20.0
SEEDS = (1, 2, 3, 4, 5)
SOLVERS = ("dp", "cp-sat", "milp", "gradient", "anneal")
# (layers, stages) -> seconds of pipeDejavu's DP on costs of the same distribution: what is saved in
# the notebook auto_pipeline_slicing_dp_ipynb-copy.ipynb of github.com/explcre/pipeDejavu.
PUBLISHED = {
    (12, 4): 0.041,
    (24, 8): 1.454,
    (24, 12): 1.780,
    (36, 8): 7.414,
    (48, 12): 30.94,
    (48, 24): 55.35,
    (64, 16): 130.8,
    (128, 12): 1504.3,
    (128, 50): 5430.1,
}


def measure(only: str, seconds: float | None) -> None:
    """Measure the sizes whose name contains `only`; write the results and the table."""
    limit = seconds or SECONDS
    kept = Kept(
        "slicing",
        list(PUBLISHED),
        lambda row: (row["layers"], row["stages"]),
        f"2 threads, {limit:.0f} s limit",
    )
    warm = slicing(12, 4, 0).graph()
    for name in SOLVERS:
        registry.get(name).solve(warm, Limits())
    for layers, stages in PUBLISHED:
        if only in f"{layers},{stages}":
            kept.add(measure_size(layers, stages, limit))
    write_table("slicing", table(kept.rows))


def measure_size(layers: int, stages: int, limit: float) -> dict[str, Any]:
    """Return what every solver does on the problems of one size, seed by seed."""
    problems = [slicing(layers, stages, seed) for seed in SEEDS]
    graphs = [problem.graph() for problem in problems]
    row: dict[str, Any] = {
        "layers": layers,
        "stages": stages,
        "arcs": graphs[0].arcs,
        "seeds": list(SEEDS),
        "uniform": [problem.uniform() for problem in problems],
    }
    for name in SOLVERS:
        runs = []
        for problem, graph in zip(problems, graphs, strict=True):
            started = time.perf_counter()
            solution = registry.get(name).solve(graph, Limits(seconds=limit))
            wall = time.perf_counter() - started
            runs.append(_run(problem, solution.objective, solution.bound, wall, solution.status))
        row[name] = runs
    for name in SOLVERS:
        for run, exact in zip(row[name], row["dp"], strict=True):
            if run["value"] < exact["value"] - 1e-6 or run["bound"] > exact["value"] + 1e-6:
                raise SystemExit(f"{layers},{stages}: {name} says {run}, dp says {exact}")
    return row


def _run(
    problem: Slicing, objective: float, bound: float, wall: float, status: Status
) -> dict[str, Any]:
    """Return one solve in pipeDejavu's units."""
    return {
        "value": round(problem.value(objective), 6),
        "bound": problem.value(bound),
        "proved": status is Status.OPTIMAL,
        "wall_s": round(wall, 5),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table as Markdown: the worst of the seeds in every cell."""
    heads = (
        "layers, stages",
        "optima",
        "pipeDejavu's DP (s)",
        "`dp` (s)",
        "`cp-sat` gap, s",
        "`milp` gap, s",
        "`gradient` above the optimum, s",
        "`anneal` above the optimum, s",
        "equal stages above the optimum",
    )
    found = {(row["layers"], row["stages"]): row for row in rows}
    lines = [line(heads), "|---|---|" + "---:|" * 7]
    for size, published in PUBLISHED.items():
        row = found.get(size)
        if row is None:
            lines.append(line([f"{size[0]}, {size[1]}", "not measured", *["-"] * 7]))
            continue
        optima = [run["value"] for run in row["dp"]]
        uniform = max(u / best - 1 for u, best in zip(row["uniform"], optima, strict=True))
        cells = [
            f"{size[0]}, {size[1]}",
            f"{min(optima):.0f} .. {max(optima):.0f}",
            f"{published:g}",
            slowest(row["dp"]),
            *(proof(row[name]) for name in ("cp-sat", "milp")),
            *(above(row[name], optima) for name in ("gradient", "anneal")),
            percent(uniform),
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def slowest(runs: list[dict[str, Any]]) -> str:
    """Return the longest time in seconds."""
    return f"{max(run['wall_s'] for run in runs):.3f}"


def proof(runs: list[dict[str, Any]]) -> str:
    """Return the largest proved gap and the longest time."""
    gap = max(0.0 if r["proved"] else relative_gap(r["value"], r["bound"]) for r in runs)
    return f"{percent(gap)}, {slowest(runs)}"


def above(runs: list[dict[str, Any]], optima: list[float]) -> str:
    """Return how far the worst path is above its optimum, and the longest time."""
    worst = max(run["value"] / best - 1 for run, best in zip(runs, optima, strict=True))
    return f"{percent(max(worst, 0.0))}, {slowest(runs)}"
