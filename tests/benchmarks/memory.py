"""Peak memory per GPU: predicted against measured.

python -m tests.benchmarks.memory

Rows: four peaks of a 7B GPT on H800 that the analysis tool was judged by (Megatron-LM PR 482, the
model code of 2023), every rank class of the B200 runs (MooreThreads/SimuMax), and what Megatron-LM
publishes of its own tests on A100, H100 and GB200 (`megatron_ci.json`: the last rank of runs with
all kinds of arguments, read as a launch line is). No constant of the model is fitted on them.

The tests' rows are told apart. What is there between two steps is states and what libraries hold.
Most runs are small, so what PyTorch's allocator does not split off, up to 1 MiB of a block, shows:
a run with expandable segments has none of it. With experts, tokens are assumed to be routed evenly,
which they are not; versions differ from run to run; and `megatron_ci.json` has the arguments as
they stood in another commit than the figures where the two files changed apart.

torchtitan's own runs are beside what PyTorch reserves. Published whole iterations that say their
memory are shown as well: one of NVIDIA's, and BigScience's, whose kind of figure is not known.
Nothing is fitted to them.

Three facts of the B200 runs, which their sources leave open, are the ones that the measured figures
agree with: the 405B model has 16 key-value heads, as its launch script says and its model file does
not (with 8 its runs come out 0.7 to 0.8 % low); the loss is Transformer Engine's kernel, which
writes the gradient over the logits (the file says no more than "fusion"); and the vocabulary has
one entry more than the script gives.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.job.memory import rank_memory
from ilp_planner.job.overheads import flow
from ilp_planner.job.states import stepped_width
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.gpu_architectures import AMPERE, BLACKWELL, HOPPER, GpuArchitecture
from ilp_planner.specs.training import Kernels, OptimizerSettings, Recompute, Settings, TrainingJob
from tests.benchmarks import published
from tests.benchmarks.published import LLAMA

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured"
CI = Path(__file__).parent / "megatron_ci.json"
RESULTS = Path(__file__).parent / "results" / "memory.json"
GIB, MIB = 2**30, 2**20
ARCHITECTURES = {"a100": AMPERE, "h100": HOPPER, "gb200": BLACKWELL}
# Terms of `RankMemory` that outlast a step.
LASTING = ("parameters", "gradients", "optimizer", "spare gradients", "workspace", "rotary table")

# The model code of 2023: flash attention, everything else Megatron's own.
LEGACY = Kernels(implementation="local", attention="flash")
UNFUSED = Kernels(implementation="local", attention="unfused")
LATENT = LatentAttention(query_rank=1536, key_value_rank=512, key=128, rotary=64, value=128)
B200_MODELS: dict[str, dict[str, Any]] = {
    "llama3-70b": {"hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256},
    "llama3-405b": {"hidden": 16384, "heads": 128, "kv_heads": 16, "ffn": 53248, "vocab": 128256},
    "deepseekv2": {"hidden": 5120, "heads": 128, "ffn": 12288, "vocab": 102400, "latent": LATENT,
     "qk_norm": True,
     "experts": Experts(count=160, top_k=6, ffn=1536, shared_ffn=3072, dense_first=1)},
    "deepseekv3": {"hidden": 7168, "heads": 128, "ffn": 18432, "vocab": 129280, "latent": LATENT,
     "qk_norm": True,
     "experts": Experts(count=256, top_k=8, ffn=2048, shared_ffn=2048, dense_first=1)},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measured rank. measured, predicted: bytes. dimensions: of the run, for trends."""

    case: str
    pp_rank: int
    measured: float
    predicted: float
    moment: str
    dimensions: dict[str, int]

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def tool_rows() -> list[Row]:
    """Return the four runs of the analysis tool: the fullest rank of each."""
    data = json.loads((DATA / "seed_pr482.json").read_text())
    m = data["model"]
    model = Decoder(
        layers=m["num_layers"],
        hidden=m["hidden"],
        heads=m["heads"],
        ffn=m["ffn"],
        sequence=m["seq"],
        vocab=m["vocab"],
        dropout=m["dropout"],
        gated=True,
    )
    rows = []
    for run in data["rows"]:
        job = TrainingJob(
            model=model,
            micro_batch=run["mbs"],
            global_batch=run["gbs"],
            tp=run["tp"],
            pp=run["pp"],
            dp=run["dp"],
            settings=Settings(kernels=LEGACY, optimizer=OptimizerSettings(sharding="optimizer")),
        )
        case = f"7B GPT, H800, dp{job.dp} pp{job.pp} tp{job.tp}"
        ranks = [_row(job, rank, case, run["measured"] * GIB, HOPPER) for rank in range(job.pp)]
        rows.append(max(ranks, key=lambda row: row.predicted))
    return rows


def b200_rows() -> list[Row]:
    """Return one rank of every pipeline stage of the B200 runs."""
    data = json.loads((DATA / "b200_time_memory.json").read_text())
    rows = []
    for run in data["rows"]:
        job = b200_job(run)
        peaks = [rank["max_allocated_mb"] for rank in run["peak_memory_by_rank_mb"].values()]
        each = len(peaks) // job.pp
        for rank in range(job.pp):
            measured = float(np.mean(peaks[rank * each : (rank + 1) * each])) * MIB
            rows.append(_row(job, rank, run["case"].removesuffix("_cef"), measured, BLACKWELL))
    return rows


def b200_job(run: dict[str, Any]) -> TrainingJob:
    """Return one of the B200 runs as its launch script says it."""
    dimensions = B200_MODELS[run["model"]]
    experts = "experts" in dimensions
    # The scripts give --vocab-size to a NullTokenizer, which adds the end of a document.
    vocab = dimensions["vocab"] + 1
    model = Decoder(
        layers=run["layers"],
        sequence=run["seq"],
        tied=False,
        **LLAMA,
        **(dimensions | {"vocab": vocab}),
    )
    kernels = Kernels(fused_loss=True, fused_dropout=False)
    if experts:
        kernels = Kernels(
            fused_loss=True,
            fused_dropout=False,
            fused_permute=True,
            grouped_experts=True,
            capacity=1.0,
            pad_to_capacity=True,
            dispatcher="alltoall",
        )
    return TrainingJob(
        model=model,
        micro_batch=run["mbs"],
        global_batch=run["mbs"] * run["mbc"] * run["dp"],
        tp=run["tp"],
        pp=run["pp"],
        dp=run["dp"],
        settings=Settings(
            cp=run["cp"],
            cp_comm="a2a",
            ep=run["ep"],
            sequence_parallel=True,
            kernels=kernels,
            optimizer=OptimizerSettings(sharding="optimizer"),
        ),
    )


def ci_rows(*, experts: bool) -> list[Row]:
    """Return the peaks of Megatron-LM's own tests, of models with or without experts."""
    rows = []
    for run in json.loads(CI.read_text())["runs"]:
        job = ci_job(run)
        if bool(job.model.experts) != experts:
            continue
        gpu = ARCHITECTURES[run["gpu"]]
        case = f"{run['case'].partition('/')[2]}, {run['gpu']}"
        rows.append(_row(job, job.pp - 1, case, run["peak"], gpu))
    return rows


def ci_rest_rows() -> list[Row]:
    """Return what the same tests hold between two steps."""
    rows = []
    for run in json.loads(CI.read_text())["runs"]:
        if run["allocated"] is None:
            continue
        job = ci_job(run)
        memory = rank_memory(replace(job, gpu_architecture=ARCHITECTURES[run["gpu"]]), job.pp - 1)
        if memory.moment == "the start":
            continue
        predicted = sum(memory.terms[name] for name in LASTING)
        # Gradients that the step widened stay until the next one begins.
        predicted += stepped_width(job, expert=False) * memory.parameters
        if job.pp > 1:
            # Every virtual stage refers to the input that it got last, which has its gradient.
            predicted += 2 * job.virtual * flow(job).narrow
        rows.append(
            Row(
                case=f"{run['case'].partition('/')[2]}, {run['gpu']}",
                pp_rank=job.pp - 1,
                measured=run["allocated"],
                predicted=predicted,
                moment="between steps",
                dimensions={},
            )
        )
    return rows


def ci_job(run: dict[str, Any]) -> TrainingJob:
    """Return what a test's launch line trains: unchecked, as lines of earlier releases have
    Transformer Engine's loss, which the newest refuse."""
    return job_of_arguments(read_arguments(run["arguments"].split(), run["world"]), checked=False)


def step_rows(family: str) -> list[Row]:
    """Return the fullest rank of the published steps that say their memory, of one framework.

    NVIDIA's are peaks of PyTorch's. What BigScience's column `Mem` (GB, rounded) is nobody says:
    what a rank needs in all is shown beside it.
    """
    found = []
    for row in published.rows():
        said = row.get("memory_gib")
        if not said or published.left_out(row) or not row["framework"].startswith(family):
            continue
        job = published.job_of(row)
        unit = 1e9 if family == published.OLD else GIB
        ranks = [
            _row(job, r, row["id"], said["peak"] * unit, job.gpu_architecture)
            for r in range(job.pp)
        ]
        fullest = max(ranks, key=lambda rank: rank.predicted)
        if family == published.OLD:
            needed = rank_memory(job, fullest.pp_rank).needed
            fullest = replace(fullest, predicted=needed)
        found.append(fullest)
    return found


def titan_rows() -> list[Row]:
    """Return what torchtitan published of its own runs at the end of 2024 (pytorch/torchtitan,
    `benchmarks/llama3_h100_202412_torchtitan.md`, BSD-3-Clause): H100 of 96 GB, FSDP.

    Its `Memory` is what PyTorch's allocator reserved at most (`metrics.py`): the peak, its
    fragmentation, and the buffers of other streams. Nothing is fitted to them.
    """
    rows = []
    for case, measured, job in titan_runs():
        memory = rank_memory(replace(job, gpu_architecture=HOPPER), 0)
        found = _row(job, 0, case, measured * GIB, HOPPER)
        beside = (memory.outside[name] for name in ("CUDA context", "NCCL"))
        rows.append(replace(found, predicted=memory.needed - sum(beside)))
    return rows


def titan_runs() -> list[tuple[str, float, TrainingJob]]:
    """Return what a run is called, its GiB, and its job.

    Llama 3.1 on sequences of 8192 tokens and more: 8B with the outputs of operators kept or, as
    70B, all layers recomputed. Products in 8 bits are torchao's, by one scale per tensor.
    """
    small = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336}
    large = {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672}
    found = []
    for gpus, sizes in ((8, (82.4, 77.0, 76.8)), (128, (67.0, 62.0, 61.8))):
        for how, size in zip(("", "compiled", "compiled fp8"), sizes, strict=True):
            job = _titan(small, 8192, 2, how, dp=gpus)
            found.append((f"8B, {gpus} H100, {how or 'eager'}", size, job))
    for cp, size in ((1, 83.9), (2, 84.2), (4, 84.0), (8, 84.5)):
        job = _titan(small, 32768 * cp, 1, "compiled fp8", cp=cp, dp=8 // cp, again=True)
        found.append((f"8B, 8 H100, cp {cp}, {job.model.sequence} tokens", size, job))
    job = _titan(large, 8192, 16, "compiled fp8", tp=8, dp=32, again=True)
    return [*found, ("70B, 256 H100, tp 8", 71.9, job), ("70B, the same, async", 67.6, job)]


TITAN_RECOMPUTE = {
    "none": Recompute(),
    "full": Recompute(granularity="full", method="uniform", layers=1),
    "op": Recompute(granularity="selective", modules=("operators",)),
}


def titan_h200_jobs() -> list[tuple[int, float, TrainingJob]]:
    """Return GPUs, tokens/s of each, and the job of Trainy's runs of torchtitan in June 2025
    (pytorch/torchtitan, `benchmarks/llama3-8b_h200_202506_trainy-whitefiber.md`, BSD-3-Clause).

    Its attention of then was FlashAttention 2 (`models/attention.py` of e7c0cae).
    """
    small = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336}
    found = []
    for gpus, tokens in ((32, 10938.0), (64, 10753.0)):
        job = _titan(small, 8192, 2, "compiled fp8", dp=gpus)
        kernels = replace(job.settings.kernels, flash_package=True)
        hidden = {"overlap_gradients": True, "overlap_parameters": True}
        optimizer = replace(job.settings.optimizer, **hidden)
        settings = replace(job.settings, kernels=kernels, optimizer=optimizer)
        found.append((gpus, tokens, replace(job, settings=settings, gpu_architecture=HOPPER)))
    return found


def _titan(
    sizes: dict[str, int],
    sequence: int,
    samples: int,
    how: str,
    *,
    dp: int,
    tp: int = 1,
    cp: int = 1,
    again: bool = False,
) -> TrainingJob:
    """Return a job of torchtitan. how: layers are compiled, products in 8 bits. again: full
    recomputation."""
    model = Decoder(sequence=sequence, vocab=128256, kv_heads=8, tied=False, **LLAMA, **sizes)
    kernels = Kernels(
        compiled="compiled" in how,
        quantised="fp8-current" if "fp8" in how else "",
        fused_loss=False,
    )
    settings = titan_settings(kernels, "full" if again else "op")
    return TrainingJob(
        model=model,
        micro_batch=samples,
        global_batch=samples * dp,
        tp=tp,
        dp=dp,
        settings=replace(settings, cp=cp, sequence_parallel=tp > 1),
    )


def titan_settings(kernels: Kernels, recompute: str) -> Settings:
    """Return the settings of torchtitan's FSDP. recompute: one of `TITAN_RECOMPUTE`."""
    return Settings(
        keeps_gathered=True,
        kernels=kernels,
        recompute=TITAN_RECOMPUTE[recompute],
        optimizer=OptimizerSettings(sharding="parameters", from_master=True),
    )


def _row(job: TrainingJob, rank: int, case: str, measured: float, gpu: GpuArchitecture) -> Row:
    memory = rank_memory(replace(job, gpu_architecture=gpu), rank)
    return Row(
        case=case,
        pp_rank=rank,
        measured=measured,
        predicted=memory.peak,
        moment=memory.moment,
        dimensions={
            "tp": job.tp,
            "pp": job.pp,
            "layers": job.model.layers,
            "sequence": job.model.sequence,
        },
    )


def main() -> None:
    """Print the rows and write them down."""
    groups = {
        "analysis tool": tool_rows(),
        "b200": b200_rows(),
        "Megatron CI": ci_rows(experts=False),
        "Megatron CI, experts": ci_rows(experts=True),
        "Megatron CI, between steps": ci_rest_rows(),
        "published steps, NVIDIA": step_rows("NeMo"),
        "published steps, BigScience": step_rows(published.OLD),
        "torchtitan": titan_rows(),
    }
    found = {}
    for name, rows in groups.items():
        errors = np.array([abs(row.error) for row in rows])
        for row in rows:
            print(
                f"{row.case[-55:]:55} stage {row.pp_rank} {row.measured / GIB:8.2f} "
                f"{row.predicted / GIB:8.2f} GiB {row.error:+8.2%}  {row.moment}"
            )
        print(f"{name}: mean {errors.mean():.2%}, worst {errors.max():.2%}\n")
        found[name] = {
            "mape": round(float(errors.mean()), 5),
            "worst": round(float(errors.max()), 5),
            "rows": [
                {
                    "case": row.case,
                    "pp_rank": row.pp_rank,
                    "predicted_gib": round(row.predicted / GIB, 2),
                    "error": round(row.error, 5),
                    "moment": row.moment,
                }
                for row in rows
            ],
        }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
