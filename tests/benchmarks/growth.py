"""How the time until a plan is good enough grows with devices, layers and device types.

python -m tests.benchmarks --suite growth [--only TEXT] [--seconds 60]

Every row is a process of its own on two cores, with compiled kernels, that ends as soon as the gap
asked for is proved, beside the same of an older commit; seconds are those of the whole process.
Without `--seconds` it may take three times what is asked, and 20 s at least.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilp_planner.base.numerics import PROVED
from tests.benchmarks.cases import ROOT
from tests.benchmarks.kept import BESIDE, COMPILING, Kept, beside, loop, of_checkout, on_cores
from tests.benchmarks.mixed_cases import SEEDS
from tests.benchmarks.mixed_table import line
from tests.benchmarks.proof import gap_of
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

LONGER, LEAST = 3.0, 20.0  # times what is asked, and seconds: the limits of runs
MIB = 1024.0  # KiB, as the system counts what a process has at most
FASTEST = ("--prefer-plain", "0")  # a plainer plan may be above the gap
FASTEST_BEFORE = ("--tie", "0")  # as the older commit says it


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is solved, and what is asked of that.

    words: of `ilp-plan solve`, or of `mixed_one scale` for a generated instance. gap: relative,
    at which it is good enough. asked: seconds. most_mib: of the process, inf where nothing is
    asked.
    """

    words: str
    gap: float
    asked: float
    generated: bool = False
    most_mib: float = float("inf")

    @property
    def name(self) -> str:
        """What tables call it."""
        if not self.generated:
            return f"`{self.words}`"
        network, types, devices, layers, seed = self.words.split()
        size = f"{types} types x {devices} devices, {layers} layers, {network} network"
        return f"generated: {size}, seed {seed}"

    def limit(self, seconds: float | None) -> float:
        """Return how long a run may take, in seconds."""
        return seconds or max(LEAST, LONGER * self.asked)


def generated(sizes: str, asked: float) -> tuple[Case, ...]:
    """Return the instances of a size, with every seed."""
    return tuple(
        Case(words=f"{sizes} {seed}", gap=0.01, asked=asked, generated=True) for seed in SEEDS
    )


OPERATORS = "--space operators --global-batch-size"
LAYERS = "--cluster v100-32gb-1x8"
CASES = (
    Case(words=f"gpt3-13b --gpus 256xH100 {OPERATORS} 2048", gap=0.01, asked=5),
    Case(words=f"gpt3-13b --gpus 2048xH100 {OPERATORS} 2048", gap=0.01, asked=15),
    Case(words=f"gpt3-13b --gpus 4096xH100 {OPERATORS} 2048", gap=0.01, asked=30),
    Case(words=f"scale-layer-1024 {LAYERS} {OPERATORS} 1024", gap=0.0, asked=30, most_mib=1024.0),
    Case(words=f"scale-layer-2048 {LAYERS} {OPERATORS} 1024", gap=0.0, asked=90, most_mib=1024.0),
    Case(words=f"scale-layer-1024 {LAYERS} --global-batch-size 1024", gap=0.01, asked=30),
    *generated("fast 4 256 96", 30),
    *generated("slow 4 256 96", 100),
    *generated("fast 2 1024 96", 30),
    *generated("fast 3 512 96", 30),
    Case(words="gpt3-6.7b --gpus 2048xH100 --space groups --global-batch-size 1920", gap=0,
     asked=5),
    Case(words="gpt3-175b --gpus 2048xH100 --space groups --global-batch-size 1920", gap=0,
     asked=20),
    Case(words="gpt3-1.3b --cluster mixed-v100-t4 --space groups --global-batch-size 256", gap=0.0,
     asked=5),
    Case(words="gpt3-2.6b --cluster tests/benchmarks/three-zones.toml --space groups "
     "--global-batch-size 256", gap=0.01, asked=60),
    Case(words="llama3-70b --gpus 64xH100 --global-batch-size 512", gap=0.01, asked=5),
    Case(words="mixtral-8x7b --gpus 128xH100 --global-batch-size 1024", gap=0.01, asked=5),
    Case(words="gpt3-175b --gpus 1024xH100 --global-batch-size 1536", gap=0.01, asked=5),
    Case(words="deepseek-v3 --gpus 2048xH100 --global-batch-size 8192", gap=0.01, asked=20),
    Case(words="llama3-405b --gpus 16384xH100 --global-batch-size 2048", gap=0.01, asked=20),
)  # fmt: skip


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    kept = Kept("growth", [case.name for case in CASES])
    with tempfile.TemporaryDirectory() as folder, beside() as before:
        models = larger_models(Path(folder))
        for case in CASES:
            if only in case.name:
                limit = case.limit(seconds)
                for root in (before, ROOT):
                    run(case, COMPILING, models, root)
                row = {"case": case.name, "loop_s": loop(), **run(case, limit, models)}
                kept.add({**row, "before": run(case, limit, models, before)})
    write_table("growth", table(kept.rows))


def larger_models(folder: Path) -> dict[str, str]:
    """Write the models that the catalogue lacks; return their files by name."""
    text = (ROOT / "models" / "scale-layer-1024.toml").read_text()
    path = folder / "scale-layer-2048.toml"
    path.write_text(text.replace("1024", "2048"))
    return {"scale-layer-2048": str(path)}


def run(case: Case, limit: float, models: dict[str, str], root: Path = ROOT) -> Row:
    """Solve in a process of its own until the gap is reached; return what it took. root: of the
    package.

    Raises
    ------
    SystemExit: it failed, otherwise than for lack of time or of a plan.
    """
    model, *others = case.words.split()
    if case.generated:
        command = ["tests.benchmarks.mixed_one", "scale", *case.words.split()]
        command += [str(limit), str(case.gap)]
    else:
        command = ["ilp_planner", "solve", "--model", models.get(model, model), *others]
        command += ["--time-limit", str(limit), "--gap", str(case.gap)]
        command += [*(FASTEST if root == ROOT else FASTEST_BEFORE), "--json"]
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=output,
            stderr=errors,
            cwd=root,
            env=of_checkout(root),
            preexec_fn=on_cores(),
        )
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode not in (0, 3, 4):
            sys.exit(f"{case.name}: {errors.read()}")
        found = json.loads(output.read())
    return {
        "limit_s": limit,
        "objective_s": found["objective_s"],
        "gap": found["gap"],
        "wall_s": wall,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / MIB,
    }


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown how soon the gap asked for was reached, or what it was at the limit."""
    cases = {case.name: case for case in CASES}
    head = ["case", "loop (s)", "gap asked", "asked (s)", "reached after (s)", "gap at the end"]
    head += ["CPU-s", f"{BESIDE}: gap", "CPU-s", "of its CPU-s", "MiB"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        case, before = cases[row["case"]], row.get("before")
        reached, share = _reached(case, row), "-"
        if before is not None and reached:
            share = f"{row['cpu_s'] / before['cpu_s']:.2f}"
            share = share if _reached(case, before) else f"≤ {share}"
        most = f" of {case.most_mib:.0f}" if case.most_mib < float("inf") else ""
        cells = [
            case.name,
            f"{row['loop_s']:.1f}" if "loop_s" in row else "-",
            percent(case.gap),
            f"{case.asked:.0f}",
            f"{row['wall_s']:.1f}" if reached else f"not in {row['limit_s']:.0f}",
            gap_of(row),
            f"{row['cpu_s']:.1f}",
            "-" if before is None else gap_of(before),
            "-" if before is None else f"{before['cpu_s']:.1f}",
            share,
            f"{row['peak_mib']:.0f}{most}",
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def _reached(case: Case, run: Row) -> bool:
    """Tell whether a run came to the gap that is asked for."""
    return run["gap"] is not None and run["gap"] <= max(case.gap, PROVED)
