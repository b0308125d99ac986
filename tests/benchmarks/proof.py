"""How long it takes until a training plan is proved, on one core and on two, beside another commit.

python -m tests.benchmarks --suite proof [--only TEXT] [--seconds 60]
python -m tests.benchmarks --suite soon [--only TEXT] [--seconds 15]
python -m tests.benchmarks --suite nodes [--only TEXT] [--seconds 60]
python -m tests.benchmarks --suite cores [--only TEXT]

Every row is the whole command in a process of its own, the median of `TIMES`, each time beside the
commit that `BESIDE` names, after a short run of both that compiles. A loop of Python that is
measured with them says how fast the machine is.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilp_planner.base.numerics import PROVED
from tests.benchmarks.cases import ROOT
from tests.benchmarks.critical_one import CORES
from tests.benchmarks.kept import (
    BESIDE,
    COMPILING,
    Kept,
    beside,
    loop,
    measured,
    of_checkout,
    on_cores,
)
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

SECONDS, TIMES = 60.0, 3
CASES = (
    "llama3-70b --gpus 64xH100 --global-batch-size 512",
    "mixtral-8x7b --gpus 128xH100 --global-batch-size 1024",
    "deepseek-v3 --gpus 2048xH100 --global-batch-size 8192",
    "Qwen/Qwen3-30B-A3B --gpus 64xH100 --global-batch-size 512",
    "Qwen/Qwen3-235B-A22B --gpus 256xGB200 --global-batch-size 4096 --precision mxfp8",
    "gpt3-175b --gpus 2048xH100 --space groups --global-batch-size 1920",
    "gpt3-1.3b --cluster mixed-v100-t4 --space groups --global-batch-size 256",
    "llama3-70b --gpus 64xH100 --runtime torchtitan --global-batch-size 1024",
    "llama3-405b --gpus 2048xH100 --global-batch-size 2048",
)
FIGURES = ("wall_s", "cpu_s", "gap", "peak_mib")  # of a run
WAYS = ("before", "one core", "two cores")
# NVIDIA's published runs, by model, GPUs, batch and precision (NVIDIA-NeMo/Megatron-Bridge,
# docs/performance-summary.md and its archive, Apache-2.0), on two cores with little time.
SOON = 15.0
RECIPES = (
    "qwen3-30b-a3b --gpus 8xGB300 --global-batch-size 512 --precision mxfp8",
    "llama3-70b --gpus 64xGB300 --global-batch-size 256 --precision fp8-current",
    "llama3.1-8b --gpus 8xGB300 --global-batch-size 128 --precision fp8-current",
    "qwen3-30b-a3b --gpus 8xGB200 --global-batch-size 512 --precision mxfp8",
    "llama3-70b --gpus 64xGB200 --global-batch-size 256 --precision fp8-current",
    "qwen3-235b-a22b --gpus 256xGB200 --global-batch-size 4096 --precision mxfp8",
    "deepseek-v3 --gpus 256xGB200 --global-batch-size 4096 --precision mxfp8",
    "deepseek-v3 --gpus 256xB200 --global-batch-size 4096 --precision mxfp8",
    "qwen3-30b-a3b --gpus 8xB200 --global-batch-size 512 --precision mxfp8",
    "llama3.1-8b --gpus 8xB200 --global-batch-size 128 --precision fp8-current",
    "qwen3-30b-a3b --gpus 16xH100 --global-batch-size 1024 --precision fp8-current",
    "deepseek-v3 --gpus 1024xH100 --global-batch-size 8192 --precision fp8-current",
)
# What sets of nodes cost: with all nodes, and with any of them.
NODES = (
    "llama3-8b --gpus 64xH100 --global-batch-size 512",
    "gpt3-13b --gpus 32xA100-80GB --global-batch-size 512",
    "gpt3-1.3b --gpus 256xH100 --space operators --global-batch-size 1024",
    "mixtral-8x7b --gpus 64xH100 --global-batch-size 512",
    "mixtral-8x7b --gpus 128xH100 --global-batch-size 1024",
    "llama3-405b --gpus 2048xH100 --global-batch-size 2048",
    "llama3-70b --gpus 64xH100 --global-batch-size 512",
    "llama3-70b --gpus 64xH100 --runtime torchtitan --global-batch-size 1024",
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose words contain `only`; write the results and the table."""
    kept = Kept("proof", CASES)
    with beside() as before:
        for words in CASES:
            if only in words:
                kept.add(_row(words, seconds or SECONDS, before))
    write_table("proof", table(kept.rows))


def measure_soon(only: str, seconds: float | None) -> None:
    """Measure NVIDIA's recipes whose words contain `only`; write the results and the table."""
    kept = Kept("soon", RECIPES)
    for words in RECIPES:
        if only in words:
            kept.add({"case": words, "loop_s": loop(), **_run(words, seconds or SOON, ROOT, 2)})
    write_table("soon", soon_table(kept.rows))


def soon_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what is proved of recipes with little time."""
    head = ["case", "loop (s)", "wall (s)", f"gap after {SOON:.0f} s", "MiB"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        cells = [f"`{row['case']}`", f"{row['loop_s']:.1f}", f"{row['wall_s']:.1f}"]
        lines.append(line([*cells, gap_of(row), f"{row['peak_mib']:.0f}"]))
    return "\n".join(lines)


def measure_nodes(only: str, seconds: float | None) -> None:
    """Measure what sets of nodes cost in cases whose words contain `only`; write the results and
    the table."""
    kept, limit = Kept("nodes", NODES), seconds or SECONDS
    for words in NODES:
        if only in words:
            runs: dict[str, list[Row]] = {"all": [], "any": []}
            for _ in range(TIMES):
                for which, found in runs.items():
                    said = f"{words} --all-devices" if which == "all" else words
                    found.append(_run(said, limit, ROOT, 1))
            among = runs["any"][0]["among"]
            each = {which: _median(found) for which, found in runs.items()}
            kept.add({"case": words, "loop_s": loop(), "among": among, **each})
    write_table("nodes", nodes_table(kept.rows))


def nodes_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what sets of nodes cost."""
    head = ["case", "loop (s)", "all nodes (CPU-s)", "any nodes (CPU-s)", "times"]
    lines = [line([*head, "the bound covers"]), "|---|" + "---:|" * (len(head) - 1) + "---|"]
    for row in rows:
        alone, every = row["all"]["cpu_s"], row["any"]["cpu_s"]
        cells = [f"`{row['case']}`", f"{row['loop_s']:.1f}", f"{alone:.1f}", f"{every:.1f}"]
        covered = row["among"].rpartition("; on ")[2]
        lines.append(line([*cells, f"{every / alone:.2f}", covered]))
    return "\n".join(lines)


def measure_cores(only: str) -> None:
    """Measure what further cores leave, one for each process, of cases whose words contain `only`;
    write the results and the table."""
    kept = Kept("cores", CASES)
    for words in CASES:
        if only in words:
            found = measured("tests.benchmarks.critical_one", *words.split())
            kept.add({"case": words, "loop_s": loop(), "seconds": found})
    write_table("cores", cores_table(kept.rows))


def cores_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what further cores leave of one core's seconds."""
    head = ["case", "loop (s)", "one core (s)", "never shared (s)"]
    head += [f"{cores} cores, of one" for cores in CORES]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        seconds = row["seconds"]
        cells = [f"`{row['case']}`", f"{row['loop_s']:.1f}", f"{seconds['1']:.1f}"]
        cells += [f"{seconds['serial']:.1f}"]
        lines.append(line([*cells, *(f"{seconds[str(n)] / seconds['1']:.2f}" for n in CORES)]))
    return "\n".join(lines)


def _row(words: str, limit: float, before: Path) -> Row:
    runs: dict[str, list[Row]] = {way: [] for way in WAYS}
    loops = []
    for root in (before, ROOT):
        _run(words, COMPILING, root, None)
    for _ in range(TIMES):
        loops.append(loop())
        for way in WAYS:
            root, count = (before if way == "before" else ROOT), 1 + (way == "two cores")
            runs[way].append(_run(words, limit, root, None if way == "before" else count))
    each = {way: _median(found) for way, found in runs.items()}
    return {"case": words, "loop_s": statistics.median(loops), **each}


def _run(words: str, limit: float, root: Path, workers: int | None) -> Row:
    """Solve in a process of its own; return its seconds, and the memory of its largest process."""
    command = [sys.executable, "-m", "ilp_planner", "solve", "--json", "--model", *words.split()]
    command += ["--time-limit", str(limit)]
    command += [] if workers is None else ["--workers", str(workers)]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed:
        done = subprocess.Popen(
            command, cwd=root, env=of_checkout(root), stdout=printed, stderr=subprocess.DEVNULL,
            preexec_fn=on_cores(workers or 1),
        )  # fmt: skip
        _, status, used = os.wait4(done.pid, 0)
        wall = time.monotonic() - begun
        printed.seek(0)
        result = json.load(printed) if status == 0 else {"gap": None, "among": ""}
    gap = (result.get("fastest") or result)["gap"]  # not that of a plainer plan
    cpu, most = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    own = {"wall_s": wall, "cpu_s": cpu, "gap": gap, "peak_mib": most}
    return own | {"among": result["among"]}


def _median(runs: Sequence[Row]) -> Row:
    """Return the median of each figure; None if a run has none."""
    found = {}
    for key in FIGURES:
        values = [run[key] for run in runs]
        found[key] = None if None in values else statistics.median(values)
    return found


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown how long proofs take."""
    head = ["case", "loop (s)", f"{BESIDE}: CPU-s", "gap", "CPU-s", "gap", "of the CPU-s"]
    head += ["wall, two cores (s)", "of its wall", "of one core's wall", "MiB"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        before, one, two = (row[way] for way in WAYS)
        cells = [
            f"`{row['case']}`",
            f"{row['loop_s']:.1f}",
            f"{before['cpu_s']:.1f}",
            gap_of(before),
            f"{one['cpu_s']:.1f}",
            gap_of(one),
            share_of(one, before, "cpu_s"),
            f"{two['wall_s']:.1f}",
            share_of(two, before, "wall_s"),
            f"{two['wall_s'] / one['wall_s']:.2f}",
            f"{max(one['peak_mib'], two['peak_mib']):.0f}",
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def share_of(own: Row, before: Row, key: str) -> str:
    """Return what a run took of a figure of the older commit's: at most that, if this one alone
    came to its end; nothing, if it did not itself."""
    ended = [run["gap"] is not None and run["gap"] <= PROVED for run in (own, before)]
    return f"{'' if ended[1] else '≤ '}{own[key] / before[key]:.2f}" if ended[0] else "-"


def gap_of(run: Row) -> str:
    """Return the proved gap of a run, or that it had no plan."""
    if run["gap"] is None:
        return "no plan"
    return percent(0.0 if run["gap"] <= PROVED else run["gap"])
