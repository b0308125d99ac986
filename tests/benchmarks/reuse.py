"""What solves take of each other: from a saved plan, and from the other points of a sweep.

python -m tests.benchmarks --suite warm [--only TEXT] [--seconds 60]
python -m tests.benchmarks --suite pinned [--only TEXT]
python -m tests.benchmarks --suite sweep [--only TEXT]

Warm: after one change of what is asked, whole commands without the saved plan and with it. Pinned:
of every point all settings and nodes are said, so that it is a plan to judge, or none. Sweep:
points that differ in batch, sequence length or price, beside the same points with a sweep for each.
Seconds are of CPU on two cores, of all processes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ilp_planner.formats.saved_json import read_saved
from ilp_planner.plan import is_of_groups
from ilp_planner.specs.degrees import divisors
from tests.benchmarks.cases import ROOT
from tests.benchmarks.kept import Kept, on_cores
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import write_table

Row = dict[str, Any]

SECONDS = 60.0
SAME = 1e-9  # relative: of seconds per iteration
NODE = 8  # devices
WARM, MILLISECONDS = 0.1, 2.0  # asked: of the cold solve, at most, and of a pinned point
# Model, devices and samples.
CASES = {
    f"{model} on {devices} x H100": (model, devices, batch)
    for model, devices, batch in (
        ("llama3-70b", 64, 512),
        ("mixtral-8x7b", 64, 512),
        ("llama3-405b", 2048, 2048),
    )
}
SAID = (
    "gpus=64xH100", "cp_comm=p2p", "rank_order=tp-cp-ep-dp-pp", "layout=even", "virtual_stages=1",
    "global_batch=256,512,1024,2048", "micro_batch_sizes=4;8;16;32;64", "tp=1,2,4,8", "pp=1,2,4,8",
    "sharding=none,optimizer", "recompute=none;core_attn;full",
)  # fmt: skip
# Model -> what is varied besides.
PINNED = {
    "llama3-8b": (*SAID, "cp=1,2"),
    "llama3-70b": (*SAID, "cp=1,2"),
    "mixtral-8x7b": (*SAID, "cp=1", "ep=1,8"),
}
# What is varied, and its values: all points have the tables of a model on its GPUs in common.
ALIKE = {
    "batch": ("global_batch", "128,256,512,1024"),
    "sequence length": ("sequence_length", "2048,4096,8192,16384"),
    "price": ("price", "1,2,3,4"),
}
ALIKE_WORDS = ("llama3-8b", "--gpus", "32xH100")


def measure_warm(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    kept = Kept("warm", list(CASES))
    for name, case in CASES.items():
        if only in name:
            kept.add({"case": name, "changes": _changed(*case, seconds or SECONDS)})
    write_table("warm", warm_table(kept.rows))


def _changed(model: str, devices: int, batch: int, seconds: float) -> list[Row]:
    """Return what every change takes, without and with the plan of before."""
    words = ["solve", "--model", model, "--gpus", f"{devices}xH100", "--time-limit", str(seconds)]
    words += ["--global-batch-size", str(batch)]
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "plan.json"
        run([*words, "--output", str(saved)])
        return [
            {
                "change": change,
                "cold": run([*words, *more]),
                "warm": run([*words, *more, "--start", str(saved)]),
            }
            for change, more in changes_of(saved, devices, batch, seconds)
        ]


def changes_of(
    saved: Path, devices: int, batch: int, seconds: float
) -> Iterator[tuple[str, list[str]]]:
    """Yield what is changed, and the words that say it after those of before."""
    plan = read_saved(saved).plan
    assert is_of_groups(plan)
    assert plan.settings is not None
    tp = plan.stages[0].tp // plan.settings.cp
    others = ",".join(str(other) for other in divisors(NODE) if other != tp)
    yield "another time limit", ["--time-limit", str(seconds / 2)]
    yield "a constraint that the plan keeps", ["--tp", str(tp)]
    yield "a constraint that it does not keep", ["--tp", others]
    yield "1 GiB less memory", ["--headroom", "1GiB"]
    yield "a node less", ["--max-devices", str(devices - NODE)]
    yield "twice the batch", ["--global-batch-size", str(2 * batch)]


def measure_pinned(only: str, seconds: float | None) -> None:
    """Measure sweeps of points without a choice; write the results and the table."""
    kept = Kept("pinned", list(PINNED))
    for model, said in PINNED.items():
        if only in model:
            kept.add({"case": model} | _swept([model, "--all-devices"], said))
    write_table("pinned", pinned_table(kept.rows))


def measure_sweep(only: str, seconds: float | None) -> None:
    """Measure sweeps of points that are alike; write the results and the table."""
    kept = Kept("sweep", list(ALIKE))
    for name, (field, values) in ALIKE.items():
        if only in name:
            alone = [_swept(ALIKE_WORDS, [f"{field}={value}"]) for value in values.split(",")]
            row = {"case": name, "together": _swept(ALIKE_WORDS, [f"{field}={values}"])}
            kept.add(row | {"alone_cpu_s": sum(one["cpu_s"] for one in alone)})
    write_table("sweep", sweep_table(kept.rows))


def _swept(words: Sequence[str], said: Sequence[str]) -> Row:
    """Return the number of points of a sweep, and what it takes."""
    vary = [word for one in said for word in ("--vary", one)]
    batch = [] if any("global_batch" in one for one in said) else ["--global-batch-size", "256"]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "sweep.csv"
        command = ["sweep", *words, *vary, *batch, "--workers", "2", "--output", str(output)]
        found = run([*command, "--yes"])
        points = len(output.read_text().splitlines()) - 1
    return {"points": points, "wall_s": found["wall_s"], "cpu_s": found["cpu_s"]}


def run(words: Sequence[str]) -> Row:
    """Run a command in a process of its own on two cores; return its seconds and its plan's.

    Raises
    ------
    SystemExit: it failed, otherwise than for lack of a plan.
    """
    taken, found = answered(words)
    notes = [note for note in found.get("notes", ()) if note.startswith("start: ")]
    return taken | {
        "objective_s": found.get("objective_s"),
        "gap": found.get("gap"),
        "note": notes[0].rpartition("plan.json")[2] if notes else "",
    }


def answered(words: Sequence[str]) -> tuple[Row, Row]:
    """Run a command in a process of its own on two cores; return what it took, and its answer.

    Raises
    ------
    SystemExit: it failed, otherwise than for lack of a plan.
    """
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as errors:
        done = subprocess.Popen(
            [sys.executable, "-m", "ilp_planner", *words, "--json"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=printed, stderr=errors,
            preexec_fn=on_cores(),
        )  # fmt: skip
        _, status, used = os.wait4(done.pid, 0)
        wall, code = time.monotonic() - begun, os.waitstatus_to_exitcode(status)
        printed.seek(0)
        errors.seek(0)
        if code not in (0, 3, 4):
            sys.exit(f"{' '.join(words)}: {errors.read()}")
        text = printed.read()
    taken = {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "exit_code": code}
    return taken, json.loads(text) if text.strip() else {}


def warm_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what each change takes."""
    head = ["case", "change", "cold (CPU-s)", "warm (CPU-s)", "of cold", "asked"]
    lines = [line([*head, "taken of the file", "answer"]), "|---|---|" + "---:|" * 4 + "---|---|"]
    for row in rows:
        for one in row["changes"]:
            cold, warm = one["cold"], one["warm"]
            share = warm["cpu_s"] / cold["cpu_s"]
            cells = [row["case"], one["change"], f"{cold['cpu_s']:.1f}", f"{warm['cpu_s']:.1f}"]
            cells += [f"{100 * share:.0f} %", f"{100 * WARM:.0f} %"]
            lines.append(line([*cells, taken(warm["note"]), answer(cold, warm)]))
    return "\n".join(lines)


def taken(note: str) -> str:
    """Return what a note says that was taken."""
    if not note:
        return "nothing"
    plan = "a plan like it" if "which is none here" in note else "the plan"
    return f"{plan}, bounds" if "not derived again" in note else plan


def answer(cold: Row, warm: Row) -> str:
    """Return whether two solves found the same."""
    if cold["objective_s"] is None or warm["objective_s"] is None:
        return "no plan" if cold["exit_code"] == warm["exit_code"] else "differs"
    less = warm["objective_s"] / cold["objective_s"] - 1
    if abs(less) <= SAME and abs(cold["gap"] - warm["gap"]) <= SAME:
        return "the same"
    return f"{100 * less:+.3f} %, gaps {100 * cold['gap']:.2f} and {100 * warm['gap']:.2f} %"


def pinned_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what a point without a choice takes."""
    head = ["pinned sweep on 64 H100", "points", "sweep (s)", "CPU (s)", "CPU of a point (ms)"]
    lines = [line([*head, "asked (ms)"]), "|---|" + "---:|" * len(head)]
    for row in rows:
        cells = [row["case"], f"{row['points']:,}", f"{row['wall_s']:.1f}", f"{row['cpu_s']:.1f}"]
        each = 1e3 * row["cpu_s"] / row["points"]
        lines.append(line([*cells, f"{each:.1f}", f"{MILLISECONDS:.0f}"]))
    return "\n".join(lines)


def sweep_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what points take together, and one by one."""
    head = ["varied", "points", "one by one (CPU-s)", "together (CPU-s)", "of that"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        cpu, alone = row["together"]["cpu_s"], row["alone_cpu_s"]
        cells = [row["case"], f"{row['together']['points']}", f"{alone:.1f}", f"{cpu:.1f}"]
        lines.append(line([*cells, f"{cpu / alone:.2f}"]))
    return "\n".join(lines)
