"""Plans with proofs of the commonest pairs of a model and a cluster, for docs/benchmarks/plans.md.

python -m tests.benchmarks --suite plans [--only TEXT] [--seconds 60]
"""

import json
import shlex
import sys
from typing import Any, NamedTuple

from tests.benchmarks.kept import CORES, Kept, Row, process
from tests.benchmarks.table import percent, write_table

SECONDS = 60.0


class Pair(NamedTuple):
    """A model, GPUs and samples of a step."""

    model: str
    gpus: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.model} on {self.gpus}"

    def command(self, seconds: float) -> str:
        """Return the command that plans it."""
        return (
            f"ilp-plan solve {self.model} --gpus {self.gpus} --global-batch-size {self.batch} "
            f"--time-limit {seconds:g}"
        )


PAIRS = (
    Pair("llama3-8b", "8xH100", 128),
    Pair("llama3-8b", "8xMI300X", 128),
    Pair("llama3-8b", "64xH100", 512),
    Pair("llama3-70b", "64xH100", 128),
    Pair("llama3-70b", "64xMI300X", 128),
    Pair("llama3-70b", "64xB200", 128),
    Pair("llama3-405b", "512xH100", 512),
    Pair("llama3-405b", "512xGB200", 512),
    Pair("qwen3-8b", "8xH100", 256),
    Pair("qwen3-32b", "64xH200", 256),
    Pair("qwen3-30b-a3b", "16xH100", 512),
    Pair("qwen3-30b-a3b", "8xB200", 512),
    Pair("qwen3-235b-a22b", "256xH100", 2048),
    Pair("qwen3-235b-a22b", "64xGB200", 1024),
    Pair("mixtral-8x7b", "64xH100", 256),
    Pair("deepseek-v3", "1024xH100", 8192),
    Pair("deepseek-v3", "256xGB200", 2048),
    Pair("nemotron-h-56b", "64xH100", 192),
    Pair("gpt-oss-20b", "8xH200", 256),
    Pair("gpt-oss-120b", "64xB200", 1280),
)
NAMES = {"tp": "tp", "pp": "pp", "cp": "cp", "ep": "ep", "dp": "dp", "virtual_stages": "virtual"}


def kept(limit: float = SECONDS) -> Kept:
    """Return what was written down last."""
    names = [pair.name for pair in PAIRS]
    return Kept("plans", names, machine=f"{CORES} cores, {limit:.0f} s limit")


def measure(only: str, seconds: float | None) -> None:
    """Plan the pairs whose name contains `only`; write results and the table."""
    limit = seconds or SECONDS
    found = kept(limit)
    for pair in PAIRS:
        if only in pair.name:
            found.add(row_of(pair, limit))
    write_table("plans", plans_table(found.rows))


def row_of(pair: Pair, limit: float) -> Row:
    """Return what is found for a pair."""
    command = pair.command(limit)
    done = process("ilp_planner", *shlex.split(command)[1:], "--json")
    if not done.stdout:
        sys.exit(f"{command}: {done.stderr}")
    said = json.loads(done.stdout)
    settings, degrees = said["settings"], said["parallelism"]
    again = settings["recompute"]
    return {
        "case": pair.name,
        "command": command,
        "degrees": {name: degrees[key] for key, name in NAMES.items() if degrees[key] > 1},
        "micro_batch_size": degrees["micro_batch_size"],
        "sharding": settings["optimizer"]["sharding"],
        "recompute": "+".join(again["modules"]) or again["granularity"],
        "seconds": said["objective_s"],
        "bound": said["bound_s"],
        "gap": said["gap"],
        "status": said["status"],
        "wall_s": round(said["wall_s"], 1),
        "mfu": said["throughput"]["mfu"],
        "tokens_per_s_per_gpu": said["throughput"]["tokens_per_s_per_gpu"],
        "expected": said["expected_interval"],
    }


def plans_table(rows: list[Row]) -> str:
    """Return a row per pair as Markdown."""
    lines = [
        "| model and cluster | samples | plan | s | bound (s) | gap | MFU | tokens/s per GPU "
        "| 4 of 5 runs (s) |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    batches = {pair.name: pair.batch for pair in PAIRS}
    for row in rows:
        ends = row["expected"]
        cells = [
            row["case"],
            str(batches[row["case"]]),
            plan_words(row),
            f"{row['seconds']:.3f}",
            f"{row['bound']:.3f}",
            percent(row["gap"]),
            f"{row['mfu']:.1%}",
            f"{row['tokens_per_s_per_gpu']:,.0f}",
            "-" if ends is None else f"{ends['low_s']:.3g} to {ends['high_s']:.3g}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plan_words(row: dict[str, Any]) -> str:
    """Return the degrees, the micro-batch, sharding and recomputation of a plan."""
    degrees = " ".join(f"{name} {value}" for name, value in row["degrees"].items())
    again = row["recompute"]
    parts = [
        degrees,
        f"micro-batch {row['micro_batch_size']}",
        *([f"sharded {row['sharding']}"] if row["sharding"] not in ("none", "optimizer") else []),
        *([f"recompute {again}"] if again != "none" else []),
    ]
    return ", ".join(parts)
