"""One setting changed, all else equal: predicted against measured changes of time and memory.

python -m tests.benchmarks --suite ablations

Pairs of published runs (`../shared/data/measured/public/ablation_pairs.csv`) that differ in one
lever: recomputed modules, degrees, the share of the optimiser on the host, graphs, overlap of
experts. Each run is read as the launch line that `ilp-plan fit --megatron-args` reads, on the GPUs
that it names. The first run of a series is the one that the others are compared with. Lines say
what the source says; the recipe of its release says the rest.

A change is right if its sign is, and its size within a quarter of the measured change or within two
points, whichever is more. Changes are relative to the first run, but for the optimiser's step on
the host: it takes as long whatever the passes take, so that its seconds are compared.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ilp_planner.costs.training.iteration import iteration_terms
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.job.memory import RankMemory, rank_memory
from ilp_planner.job.overheads import workspace
from ilp_planner.job.states import state_widths, stepped_width
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.machine import with_constants
from ilp_planner.specs.training import TrainingJob

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured" / "public"
RESULTS = Path(__file__).parent / "results" / "ablations.json"
GB = 1e9  # of Megatron's `mem-max-allocated-gigabytes`
SHARE, POINTS = 0.25, 0.02  # of the measured change, and of the first run
OPTIMIZER = "optimizer offload share"
SHARES = (0.05, 1.0)  # of the host's memory rate

COMMON = (
    "--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope --bf16 "
    "--attention-dropout 0 --hidden-dropout 0 --make-vocab-size-divisible-by 1 "
    "--transformer-impl transformer_engine --tokenizer-type NullTokenizer "
    "--untie-embeddings-and-output-weights --use-distributed-optimizer --overlap-grad-reduce "
    "--overlap-param-gather --cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
)
NARROW = (
    "--use-precision-aware-optimizer --main-grads-dtype bf16 --exp-avg-dtype bf16 "
    "--exp-avg-sq-dtype bf16 --grad-reduce-in-bf16 "
)
MOONLIGHT = (
    "--num-layers 27 --hidden-size 2048 --ffn-hidden-size 11264 --num-attention-heads 16 "
    "--vocab-size 163840 --padded-vocab-size 163840 --max-position-embeddings 8192 "
    "--multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
    "--v-head-dim 128 --qk-layernorm --num-experts 64 --moe-router-topk 6 "
    "--moe-ffn-hidden-size 1408 --moe-shared-expert-intermediate-size 2816 "
    "--moe-layer-freq ([0]*1+[1]*26) --moe-router-load-balancing-type seq_aux_loss "
    "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "
    "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --rotary-base 50000 "
    "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 8 "
    "--expert-tensor-parallel-size 1 --micro-batch-size 1 --global-batch-size 4 "
    f"--seq-length 4096 --moe-permute-fusion --moe-shared-expert-overlap {NARROW}"
)
LLAMA_70B = (
    "--num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 "
    "--group-query-attention --num-query-groups 8 --vocab-size 128256 --padded-vocab-size 128256 "
    "--max-position-embeddings 131072 --seq-length 4096 --micro-batch-size 1 "
    "--global-batch-size 32 --sequence-parallel --fp8-format hybrid --fp8-recipe tensorwise "
    "--fp8-param-gather --grad-reduce-in-bf16 --defer-embedding-wgrad-compute "
    "--wgrad-deferral-limit 22 --tp-comm-overlap "
)
GRAPHS = "--cuda-graph-impl transformer_engine --te-rng-tracker --cuda-graph-modules "
QWEN_30B = (
    "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 "
    "--kv-channels 128 --group-query-attention --num-query-groups 4 --qk-layernorm "
    "--vocab-size 151936 --padded-vocab-size 151936 --max-position-embeddings 40960 "
    "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 "
    "--moe-router-load-balancing-type aux_loss --moe-grouped-gemm --rotary-base 1000000 "
    "--seq-length 4096 --expert-tensor-parallel-size 1 --micro-batch-size 1 "
)
TWO_TWO_FOUR = (
    "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
    "--expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall --moe-permute-fusion "
)
SIXTEEN = "--expert-model-parallel-size 16 --global-batch-size 1024 " + NARROW
RECOMPUTED = "--recompute-granularity selective --recompute-modules "
OVERLAP = "--overlap-moe-expert-parallel-comm "
# (model, what is fixed, begins so) -> arguments of all runs of a series.
SERIES = {
    ("Moonlight-16B", "tp2 pp1"): MOONLIGHT,
    ("Llama3-70B SFT", "mbs1 gbs32"): LLAMA_70B,
    # Eight samples and full recomputation, as the page's command and the recipe of its release.
    ("Qwen3-30B-A3B", "tp2 pp2 ep4, 2 nodes"): QWEN_30B
    + TWO_TWO_FOUR
    + "--global-batch-size 8 --recompute-granularity full --recompute-method uniform "
    + "--recompute-num-layers 1 ",
    ("Qwen3-30B-A3B", "tp2 pp2 ep4 pretrain"): QWEN_30B + TWO_TWO_FOUR + "--global-batch-size 16 ",
    ("Qwen3-30B-A3B SFT", "tp1 pp1 ep16 alltoall"): QWEN_30B
    + SIXTEEN
    + "--moe-token-dispatcher-type alltoall ",
    ("Qwen3-30B-A3B pretrain", "tp1 pp1 ep16 HybridEP"): QWEN_30B
    + SIXTEEN
    + "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
    + "--moe-permute-fusion --moe-router-force-load-balancing ",
}
# Setting of the table -> its value there -> arguments.
LEVERS: dict[str, dict[str, str]] = {
    "cuda graphs": {"off": "", "attn+router": GRAPHS + "attn moe_router moe_preprocess"},
    "expert overlap": {
        "off": "",
        "on": OVERLAP,
        "on + delayed wgrad": OVERLAP + "--delay-wgrad-compute",
    },
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a series. seconds, memory: of an iteration, and the peak in bytes; 0 where the
    table has none."""

    series: str
    value: str
    setting: str
    job: TrainingJob
    gpus: str
    seconds: float
    memory: float


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one setting changes, measured and predicted, relative to the first run of its series;
    seconds where `unit` says so."""

    series: str
    value: str
    what: str
    unit: str
    measured: float
    predicted: float
    first: float

    @property
    def allowed(self) -> float:
        """How far off a right prediction is at most."""
        points = POINTS * (self.first if self.unit == "s" else 1.0)
        return max(SHARE * abs(self.measured), points)

    @property
    def signed(self) -> bool:
        """Whether the sign is right; changes of less than half a point have none."""
        small = POINTS / 4 * (self.first if self.unit == "s" else 1.0)
        both = max(abs(self.measured), abs(self.predicted))
        return both <= small or self.measured * self.predicted > 0 or abs(self.measured) <= small

    @property
    def right(self) -> bool:
        return self.signed and abs(self.predicted - self.measured) <= self.allowed


def rows() -> list[dict[str, str]]:
    """Return the rows of the table."""
    with (DATA / "ablation_pairs.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def left_out(row: dict[str, str]) -> str:
    """Return why a row makes no run; "" if it makes one."""
    if row["outcome"].startswith("OOM") and "fragmentation" not in row["outcome"]:
        return "out of memory: its peak is not that of an iteration"
    if "expandable segments" in row["value"]:
        return "an allocator's setting, which changes no tensor"
    return "" if _series(row) else "no other run differs from it in one setting"


def _series(row: dict[str, str]) -> str:
    """Return the arguments of a row's series; "" if it is in none."""
    for (model, fixed), arguments in SERIES.items():
        if row["model"] == model and row["fixed"].startswith(fixed):
            return arguments
    return ""


def _lever(row: dict[str, str]) -> str:
    """Return the arguments of a row's own setting."""
    setting, value = row["setting"], row["value"]
    if setting in LEVERS:
        return LEVERS[setting][value]
    if setting == OPTIMIZER:
        share, _, overlapped = value.partition(" ")
        if float(share) == 0:
            return ""
        more = " --overlap-cpu-optimizer-d2h-h2d" if overlapped else ""
        return f"--optimizer-cpu-offload --optimizer-offload-fraction {share}{more}"
    degrees, _, modules = value.rpartition(", ")
    words = []
    for degree in degrees.split():
        name, number = degree.rstrip("0123456789"), degree.lstrip("tvp")
        words += {
            "tp": ["--tensor-model-parallel-size", number],
            "pp": ["--pipeline-model-parallel-size", number],
            "vpp": ["--num-virtual-stages-per-pipeline-rank", number],
        }[name]
    if modules != "none":
        words += [RECOMPUTED + modules.replace("+", " ")]
    if "--fp8-recipe tensorwise" in _series(row) and "mlp" not in modules:
        words.append(GRAPHS + "mlp")  # its recipe's, which recomputing the MLP rules out
    return " ".join(words)


def _as_bridge(job: TrainingJob) -> TrainingJob:
    """Return the job with the master copy that Megatron-Bridge keeps.

    Its settings of precision name a recipe of 8 bits, `tensorwise`, where there is none
    (`mixed_precision.py`), and with any recipe but delayed scaling Megatron keeps the copy itself,
    whole, and copies gradients to four bytes (`use_precision_aware_optimizer_no_fp8_or_ds_fp8`).
    """
    optimizer = replace(job.settings.optimizer, master=4)
    return replace(job, settings=replace(job.settings, optimizer=optimizer))


def run_of(row: dict[str, str]) -> Run:
    """Return the run of a row."""
    line = COMMON + _series(row) + _lever(row)
    world = int(row["gpus"])
    job = _as_bridge(job_of_arguments(read_arguments(line.split(), world), checked=False))
    said = row["step_time_s"]
    rate, _, unit = said.partition(" ")
    # Of TFLOP/s only ratios are used: per unit of work.
    seconds = (1 / float(rate) if unit else float(said)) if said else 0.0
    return Run(
        series=f"{row['model']}, {row['fixed'].split(';')[0].split(' dp by')[0]}",
        value=row["value"],
        setting=row["setting"],
        job=job,
        gpus=f"{world}x{row['device']}",
        seconds=seconds,
        memory=float(row["peak_memory_gb"] or 0.0) * GB,
    )


@cache
def runs() -> tuple[Run, ...]:
    """Return all runs that belong to a series."""
    return tuple(run_of(row) for row in rows() if not left_out(row))


def predicted(run: Run, **constants: float) -> tuple[float, float]:
    """Return the predicted seconds of an iteration, and the bytes of the fullest rank: at its peak,
    but between steps where the table has that (`mem-allocated`, of the optimiser on the host).

    constants: of the machine, instead of its own.
    """
    cluster = gpu_cluster(parse_gpus(run.gpus))
    types = {
        name: replace(device, machine=with_constants(device.machine, constants))
        for name, device in cluster.device_types.items()
    }
    cluster = replace(cluster, device_types=types)
    job = replace(
        run.job,
        gpu_architecture=gpu_architecture(cluster),
        devices_per_node=cluster.nodes[0].devices,
    )
    ranks = RankCosts(job, Network(cluster, tuple(range(cluster.node_count))))
    seconds = sum(iteration_terms(ranks, job).values())
    every = [rank_memory(job, rank) for rank in range(job.pp)]
    if run.setting == OPTIMIZER:
        return seconds, max(_between_steps(job, memory) for memory in every)
    return seconds, max(memory.peak for memory in every)


def _between_steps(job: TrainingJob, memory: RankMemory) -> float:
    """Return the bytes of a rank's states and workspaces, and of gradients copied for the step."""
    counts = {True: memory.expert_parameters}
    counts[False] = memory.parameters - counts[True]
    widths = {
        flag: state_widths(job, expert=flag).total + stepped_width(job, expert=flag)
        for flag in counts
    }
    return workspace(job) + sum(count * widths[flag] for flag, count in counts.items())


def host_share() -> float:
    """Return the share of its memory's rate that the host reaches in the optimiser's step: the
    median of those by which each run of the series takes as much longer as it was measured to.

    It is the default of `Machine.host_memory`. All runs are of one source; torchrun gives each of
    their processes one thread.
    """
    first, *others = (run for run in runs() if run.setting == OPTIMIZER)

    def off(share: float, run: Run) -> float:
        longer = predicted(run, host_memory=share)[0] - predicted(first, host_memory=share)[0]
        return longer - (run.seconds - first.seconds)

    return float(np.median([brentq(off, *SHARES, args=(run,), xtol=1e-3) for run in others]))


def changes() -> Iterator[Change]:
    """Yield the changes of time and memory of all pairs."""
    for series, found in groupby(runs(), key=lambda run: (run.series, run.setting)):
        first, *others = found
        time, memory = predicted(first)
        for run in others:
            other_time, other_memory = predicted(run)
            name = {"series": series[0], "value": run.value}
            if run.seconds:
                absolute = run.setting == OPTIMIZER
                yield Change(
                    **name,
                    what="time",
                    unit="s" if absolute else "%",
                    measured=(run.seconds - first.seconds) / (1 if absolute else first.seconds),
                    predicted=(other_time - time) / (1 if absolute else time),
                    first=first.seconds,
                )
            if run.memory and first.memory:
                yield Change(
                    **name,
                    what="memory",
                    unit="%",
                    measured=run.memory / first.memory - 1,
                    predicted=other_memory / memory - 1,
                    first=first.memory,
                )


def measure() -> None:
    """Compare all pairs and write down what was found."""
    if not DATA.is_dir():
        print("ablations: left out, no pairs in ../shared/data/measured/public")
        return
    found: list[dict[str, Any]] = []
    for one in changes():
        found.append(
            {
                "series": one.series,
                "value": one.value,
                "what": one.what,
                "unit": one.unit,
                "measured": round(one.measured, 4),
                "predicted": round(one.predicted, 4),
                "sign": one.signed,
                "right": one.right,
            }
        )
        print(found[-1], flush=True)
    print(sum(row["right"] for row in found), "of", len(found), "are right")
    RESULTS.write_text(json.dumps({"changes": found}, indent=1) + "\n")


def known() -> dict[str, Any]:
    """Return what was written down last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def ablations_table(found: dict[str, Any]) -> str:
    """Return a row per series and value as Markdown."""
    lines = [
        "| runs | one setting changed | what | measured | predicted | sign | within a quarter or 2 "
        "points |",
        "|---|---|---|---:|---:|---|---|",
    ]
    for row in found["changes"]:
        both = (_shown(row[key], row["unit"]) for key in ("measured", "predicted"))
        verdicts = ("yes" if row[key] else "**no**" for key in ("sign", "right"))
        cells = (row["series"], row["value"], row["what"], *both, *verdicts)
        lines.append("| " + " | ".join(cells) + " |")
    right = sum(row["right"] for row in found["changes"])
    signs = sum(row["sign"] for row in found["changes"])
    every = len(found["changes"])
    return "\n".join(
        [*lines, "", f"Signs: {signs} of {every} are right; sizes: {right} of {every}."]
    )


def _shown(value: float, unit: str) -> str:
    return f"{value:+.2f} s" if unit == "s" else f"{value:+.1%}"
