"""Heuristics beside the portfolio on the repository's own cases, and the manual's table of it.

python -m tests.benchmarks --suite search [--only TEXT] [--seconds 100]

Each solve is a process of its own with compiled code loaded before. Gaps are to what `auto` proves
in its time limit; of a heuristic's seeds, the worst gap counts.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilp_planner.coverage import proved_gap
from ilp_planner.solvers.registry import HEURISTICS
from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "search.json"
AMP_DATA = ROOT.parent / "shared" / "data" / "amp" / "profiles.json"
SECONDS = 100.0
SEEDS = (0, 1, 2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One problem. model, cluster: names of shipped files. space: empty for what a request
    that names none is about. experiment: of AMP's data."""

    name: str
    model: str = "gpt3-1.3b"
    cluster: str = ""
    batch: int = 512
    space: str = ""
    experiment: str = ""
    placement: str = ""


CASES = (
    Case(
        name="operators: gpt3-1.3b on 4 x V100",
        cluster="v100-32gb-1x4",
        batch=1024,
        space="operators",
    ),
    Case(
        name="operators: gpt3-1.3b on 8 x V100",
        cluster="v100-32gb-1x8",
        batch=1024,
        space="operators",
    ),
    Case(
        name="operators: gpt3-13b on 32 x V100",
        model="gpt3-13b",
        cluster="v100-32gb-4x8",
        space="operators",
    ),
    Case(name="layers: gpt3-1.3b on 12 x A100 + 4 x T4", cluster="mixed-a100-t4", space="groups"),
    Case(
        name="layers: gpt3-1.3b on 16 x H100 + 16 x A100 + 32 x V100",
        cluster="mixed-h100-a100-v100",
        space="groups",
    ),
    Case(
        name="Megatron: llama3-8b on 64 x H100",
        model="llama3-8b",
        cluster="h100-8x8",
        space="megatron",
    ),
    Case(
        name="Megatron: mixtral-8x7b on 64 x H100",
        model="mixtral-8x7b",
        cluster="h100-8x8",
        space="megatron",
    ),
    Case(name="AMP: het_cluster", experiment="het_cluster"),
    Case(name="AMP: het_cluster, placement free", experiment="het_cluster", placement="free"),
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    known = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = {row["case"]: row for row in known}
    limit = seconds or SECONDS
    for case in CASES:
        if only not in case.name:
            continue
        if case.experiment and not AMP_DATA.exists():
            print(f"{case.name}: left out, AMP's profiles are not at ../shared/data/amp")
            continue
        rows[case.name] = measured(case, limit)
        print("search", json.dumps(rows[case.name]), flush=True)
        machine = f"Python {platform.python_version()}, 2 threads, {limit:.0f} s limit"
        order = [rows[c.name] for c in CASES if c.name in rows]
        RESULTS.write_text(json.dumps({"machine": machine, "rows": order}, indent=1) + "\n")
    write_table("search", table([rows[c.name] for c in CASES if c.name in rows]))


def measured(case: Case, limit: float) -> Row:
    """Return a case's row: the portfolio's answer, and the heuristics' by seed."""
    row: Row = {"case": case.name, "auto": one(case, "auto", 0, limit)}
    for name in HEURISTICS:
        row[name] = [one(case, name, seed, limit) for seed in SEEDS]
    return row


def one(case: Case, solver: str, seed: int, limit: float) -> Row:
    """Solve in a process of its own."""
    words = [case.name, solver, str(seed), str(limit)]
    run = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.search_one", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if run.returncode:
        sys.exit(f"{case.name}, {solver}: {run.stderr}")
    found: Row = json.loads(run.stdout.splitlines()[-1])
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    head = ["case", "`auto` (ms)", "proved gap", "s"]
    for name in HEURISTICS:
        head += [f"`{name}` gap (worst of {len(SEEDS)} seeds)", "s"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(line(list(cells(row))) for row in rows)])


def cells(row: Row) -> Iterator[str]:
    """Yield the cells of a row; seconds are the mean of the seeds'."""
    exact = row["auto"]
    yield row["case"]
    yield "-" if exact["objective_s"] is None else f"{1e3 * exact['objective_s']:.1f}"
    yield "-" if exact["gap"] is None else percent(exact["gap"])
    yield f"{exact['wall_s']:.1f}"
    for name in HEURISTICS:
        plans = [run["objective_s"] for run in row[name]]
        missing = plans.count(None)
        if missing:
            yield f"no plan with {missing} seeds"
        else:
            yield percent(proved_gap(max(plans), exact["bound_s"]))
        yield f"{sum(run['wall_s'] for run in row[name]) / len(plans):.1f}"
