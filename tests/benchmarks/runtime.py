"""Measure what is planned and analysed for Megatron-LM's runtime.

Every row is the command line in a process of its own, from start to end, with compiled kernels.
"""

import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.cases import ROOT
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

RESULTS = Path(__file__).parent / "results" / "runtime.json"
SECONDS = 200.0
RUNS = 7  # of an analysis


@dataclass(frozen=True)
class Case:
    """A model on a shipped cluster. nodes: as many of its nodes instead; batch: samples."""

    model: str
    cluster: str
    batch: int
    nodes: int | None = None


PLANNED = (
    Case("gpt3-1.3b", "v100-32gb-2x8", 512),
    Case("gpt3-13b", "a100-4x8", 512),
    Case("llama3-8b", "h100-8x8", 512),
    Case("llama3-70b", "h100-8x8", 512),
    Case("mixtral-8x7b", "h100-8x8", 512),
    Case("gpt3-175b", "h100-8x8", 1536, nodes=128),
    Case("deepseek-v3", "h100-8x8", 8192, nodes=256),
    Case("llama3-405b", "h100-8x8", 2048, nodes=256),
    Case("llama3-405b", "h100-8x8", 2048, nodes=2048),
)
ANALYSED = {
    "gpt3-1.3b on 16 GPUs": "--model gpt3-1.3b --tp 2 --pp 2 --dp 4 --global-batch-size 64",
    "deepseek-v3 on 2048 GPUs": (
        "--model deepseek-v3 --tp 2 --pp 16 --dp 64 --ep 64 --etp 1 "
        "--layout Et*3|(t*4|)*14t*2L --global-batch-size 4096 --sequence-parallel"
    ),
    "llama3-405b on 16384 GPUs": (
        "--model llama3-405b --tp 8 --pp 16 --dp 128 --layout Et*7|(t*8|)*14t*7L "
        "--global-batch-size 2048 --sequence-parallel --distributed-optimizer"
    ),
}


def measure(suite: str, only: str, seconds: float | None) -> None:
    """Run a suite (`megatron` or `analyze`), keep its rows, show them in the manual."""
    rows = list(
        planned_rows(only, seconds or SECONDS) if suite == "megatron" else analysed_rows(only)
    )
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record["machine"] = f"Python {platform.python_version()}, 2 cores"
    kept = {row["case"]: row for row in record.get(suite, [])} | {row["case"]: row for row in rows}
    record[suite] = list(kept.values())
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    name, table = (
        ("Megatron plans", planned_table) if suite == "megatron" else (suite, analysed_table)
    )
    write_table(name, table(record[suite]))


def planned_rows(only: str, seconds: float) -> Iterator[Row]:
    """Solve the cases in Megatron's space."""
    for case in PLANNED:
        if only not in case.model:
            continue
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            words = ["--model", str(ROOT / "models" / f"{case.model}.toml")]
            words += ["--cluster", str(cluster_file(case, folder))]
            words += ["--global-batch-size", str(case.batch), "--time-limit", str(seconds)]
            words += ["--runtime", "megatron", "--output", "plan.json", "--json"]
            started = time.perf_counter()
            done = run(["solve", *words], folder)
            wall = time.perf_counter() - started
            if done.returncode:
                yield {"case": case_name(case), "batch": case.batch, "problem": done.stderr.strip()}
                continue
            answer = json.loads(done.stdout)
            launch = run(["export", "plan.json", "--to", "megatron", "--output", "run.sh"], folder)
            assert launch.returncode == 0, launch.stderr
            arguments = json.loads((folder / "run.args.json").read_text())["arguments"]
        row = {
            "case": case_name(case),
            "batch": case.batch,
            "flags": chosen(arguments),
            "objective_s": answer["objective_s"],
            "gap": answer["gap"],
            "physical_s": answer["physical_bound_s"],
            "expected_error": answer["expected_error"],
            "stopped_by": answer["stopped_by"],
            "wall_s": wall,
            "peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        }
        print("megatron", json.dumps(row)[:240], flush=True)
        yield row


def case_name(case: Case) -> str:
    """Return the model and the devices."""
    device, size = case.cluster.rsplit("-", 1)
    nodes, each = size.split("x")
    return f"{case.model} on {(case.nodes or int(nodes)) * int(each)} x {device.upper()}"


def cluster_file(case: Case, folder: Path) -> Path:
    """Return the cluster of a case, written anew where it has another number of nodes."""
    shipped = ROOT / "clusters" / f"{case.cluster}.toml"
    if case.nodes is None:
        return shipped
    lines = [
        f"count = {case.nodes}" if text.startswith("count = ") else text
        for text in shipped.read_text().splitlines()
    ]
    file = folder / "cluster.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def chosen(arguments: dict[str, Any]) -> str:
    """Return what was decided, as flags of a launch line."""
    short = {
        "tensor-model-parallel-size": "tp",
        "pipeline-model-parallel-size": "pp",
        "context-parallel-size": "cp",
        "expert-model-parallel-size": "ep",
        "expert-tensor-parallel-size": "etp",
        "micro-batch-size": "micro-batch",
        "cp-comm-type": "by",
        "data-parallel-sharding-strategy": "FSDP",
        "recompute-granularity": "recompute",
        "recompute-modules": "of",
        "recompute-num-layers": "of layers",
        "pipeline-model-parallel-layout": "layout",
        "num-virtual-stages-per-pipeline-rank": "virtual",
        "num-layers-per-virtual-pipeline-stage": "layers per virtual stage",
    }
    found = [f"{name} {arguments[flag]}" for flag, name in short.items() if flag in arguments]
    return ", ".join(text for text in found if not text.endswith("p 1"))


def analysed_rows(only: str) -> Iterator[Row]:
    """Time whole processes."""
    for name, options in ANALYSED.items():
        if only not in name:
            continue
        found = []
        for _ in range(RUNS):
            started = time.perf_counter()
            done = run(["analyze", *options.split()], ROOT)
            found.append(time.perf_counter() - started)
            assert done.returncode == 0, done.stderr
        row = {"case": name, "least_s": min(found), "median_s": statistics.median(found)}
        print("analyze", json.dumps(row), flush=True)
        yield row


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line."""
    return subprocess.run(
        [sys.executable, "-m", "ilp_planner", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def planned_table(rows: list[Row]) -> str:
    """Return the plans in Megatron's space as Markdown."""
    heads = (
        "case", "samples", "plan", "iteration (s)", "expected error", "gap", "physical bound (s)",
        "s", "peak memory (MB)",
    )  # fmt: skip
    lines = [line(heads), "|---|---:|---|" + "---:|" * 6]
    for row in rows:
        if "problem" in row:
            lines.append(line([row["case"], f"{row['batch']}", row["problem"], *["-"] * 6]))
            continue
        wall = f"{row['wall_s']:.1f}" + ("" if row["stopped_by"] == "proof" else " (limit)")
        lines.append(
            line(
                [
                    row["case"],
                    f"{row['batch']}",
                    row["flags"].replace("|", "\\|"),
                    f"{row['objective_s']:.3f}",
                    "-" if row["expected_error"] is None else f"{row['expected_error']:.0%}",
                    percent(row["gap"]),
                    f"{row['physical_s']:.3f}",
                    wall,
                    f"{row['peak_mb']:.0f}",
                ]
            )
        )
    return "\n".join(lines)


def analysed_table(rows: list[Row]) -> str:
    """Return the seconds of whole analyses as Markdown."""
    lines = [line(("job", "least of 7 runs (s)", "median (s)")), "|---|---:|---:|"]
    lines += [line([r["case"], f"{r['least_s']:.2f}", f"{r['median_s']:.2f}"]) for r in rows]
    return "\n".join(lines)
