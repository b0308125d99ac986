"""Published training steps as jobs: the rows of `../shared/data/measured/steps`.

Some facts are of the framework that a row names, not of the row. NeMo, Megatron-Bridge and MPT's
own code fuse the loss into one kernel; Megatron-Bridge and NeMo from 25.07 on dispatch by DeepEP or
HybridEP. The Megatron of 2021 that BigScience's runs are by divides what pipeline ranks send among
the tensor-parallel ones, adds up gradients in a pass of its own, and waits for sums of input
gradients. Layouts of models whose layers no number of stages divides are those of NVIDIA's recipes.
"""

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ilp_planner.job.memory import rank_memory
from ilp_planner.specs import gpus
from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.gpu_cluster import Gpus, node_size
from ilp_planner.specs.gpus import Gpu
from ilp_planner.specs.pipeline_layout import PipelineLayout, balanced_layout, read_layout
from ilp_planner.specs.training import (
    GRAPHED,
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured"
FILES = ("a100", "h100", "h200", "b200", "b300", "gb200", "gb300")
# Devices of the rows -> rows of the table of GPUs, where names differ.
NAMES = {"H100": "H100-80GB"}
PRECISIONS = {
    "fp8-delayed": "fp8-delayed",
    "fp8-cs": "fp8-current",
    "mxfp8": "mxfp8",
    "nvfp4": "nvfp4",
}
SHARDINGS = {  # how the row's kind of FSDP begins
    "full": "parameters",
    "grad": "gradients",
    "hybr": "parameters",
    "Deep": "parameters",
}
LAYOUTS = {("deepseek-v3-671b", 16): "Et*4|(t*4|)*14tmL", ("deepseek-v3-671b", 32): "Et|(tt|)*30mL"}
# Recomputation, and overlap of the experts' messages, of NVIDIA's recipes where a row says neither:
# by device and degrees, in the files that `recipe_cases` names.
RECIPES = {
    ("deepseek-v3-671b", "B200", 1, 16, 8): ("modules mla_up_proj", False),
    ("deepseek-v3-671b", "H100", 2, 8, 64): ("modules mla_up_proj mlp", True),
}
# What models like Llama have in common.
LLAMA: dict[str, Any] = {
    "gated": True,
    "bias": False,
    "norm": "rmsnorm",
    "positions": "rope",
    "dropout": 0.0,
}
GROUPS = {"deepseek-v3-671b": {"groups": 8, "top_groups": 4}}  # of experts, that a token may go to
# Gbit/s of a node's network cards, by what a row says of them; otherwise those of the generation.
NETWORKS = {
    r"^4 x 100 ": 400,
    r"\b1600 Gbps": 1600,
    r"^400 Gb/s per node": 400,
    r"^800 Gb/s per node": 800,
}
FLEX = (25, 7)  # NeMo's release whose recipes dispatch by DeepEP
LOW = "low"
ROOM = 1.1  # predicted bytes of jobs of Megatron are less than that off
# Tasks whose step is that of pre-training: fine-tuning of all parameters on packed sequences, by
# NVIDIA's frameworks.
TASKS = {"pretrain": (), "sft": ("Megatron-Bridge",)}
TASK_NAMES = {"sft": "SFT", "lora": "LoRA"}
OLD = "Megatron-DeepSpeed"  # of 2022
BF16 = 899  # line of its chronicle from which on it trains in bf16, with gradients in fp32
NVIDIA, INTERNEVO, MOSAIC = ("NeMo", "Megatron-Bridge"), "InternEvo", "Composer"
FUSED = (*NVIDIA, MOSAIC)  # whose loss is one kernel by default


@dataclass(frozen=True, kw_only=True)
class Run:
    """One published step.

    name, group: of the row. family: the framework. gpu: the device. precision: in the row's words.
    network: bytes/s of a node's cards. seconds: measured. known: recomputation, graphs, dispatcher
    and overlap are all said.
    """

    name: str
    group: str
    family: str
    gpu: str
    model: str
    precision: str
    job: TrainingJob
    gpus: int
    network: float
    seconds: float
    version: tuple[int, ...] = ()
    known: bool = True


def newest(runs: list[Run]) -> list[Run]:
    """Return one run per group: of its newest release, the last one."""
    found: dict[str, Run] = {}
    for run in runs:
        if run.group not in found or run.version >= found[run.group].version:
            found[run.group] = run
    return list(found.values())


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """Return all rows with a time."""
    return tuple(
        row for file in FILES for row in json.loads((DATA / "steps" / f"{file}.json").read_text())
    )


def left_out(row: dict[str, Any]) -> str:
    """Return why a row is not judged by; empty where it is."""
    if row["confidence"] == LOW:
        return "low confidence"
    task = row["task"].split(" ")[0]
    if task not in TASKS or (TASKS[task] and row["framework"] not in TASKS[task]):
        return TASK_NAMES[task]
    if "hybrid" in row["model"]:
        return "hybrid, by the suite hybrids"
    if row["device"] == "H200-NVL":
        return "GPU not in the table"
    first = row["precision"].split(" ")[0]
    return "" if first.startswith(("bf16", "fp16")) or first in PRECISIONS else "fp8 kind unknown"


@cache
def runs() -> tuple[Run, ...]:
    """Return the rows that predictions are judged by."""
    return tuple(run for run in stated() if not too_large(run))


@cache
def stated() -> tuple[Run, ...]:
    """Return the rows that could be judged, among them those that do not fit."""
    return tuple(run_of(row) for row in rows() if not left_out(row))


def too_large(run: Run) -> bool:
    """Tell whether a run as its row states it needs `ROOM` times its GPU's memory at least, by
    bytes to which no constant is fitted: it recomputed or offloaded what the row does not say, so
    that its seconds are those of other work."""
    peak = max(rank_memory(run.job, rank).peak for rank in range(run.job.pp))
    return peak >= ROOM * gpu(run.gpu).memory


def run_of(row: dict[str, Any]) -> Run:
    """Return a row as a run."""
    return Run(
        name=row["id"],
        group=row["independent_group"],
        family=row["framework"],
        gpu=row["device"],
        model=row["model"]["name"],
        precision=row["precision"],
        job=job_of(row),
        gpus=row["gpus"],
        network=network_of(row),
        seconds=row["step_time_s"],
        version=_version(row["framework_version"]),
        known=_known(row),
    )


def _version(text: str) -> tuple[int, ...]:
    """Return the first number of a release, such as (25, 4, 1) of `container 25.04.01`."""
    found = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, found.group().split("."))) if found else ()


def _known(row: dict[str, Any]) -> bool:
    names = ("recompute", "cuda_graphs", "dispatcher", "moe_tokens", "overlap")
    return all(row[name] not in (None, "not read") for name in names)


def model_of(row: dict[str, Any]) -> Decoder:
    """Return the model that a row trains."""
    m = row["model"]
    gated, moe, mla = m["gated"], m["moe"], m["mla"]
    experts = moe and Experts(
        count=moe["experts"],
        top_k=moe["topk"],
        ffn=moe["expert_ffn"],
        shared_ffn=moe["shared_ffn"] or 0,
        **GROUPS.get(m["name"].partition("@")[0], {}),
        dense_first=3 if "58 of 61" in str(moe["moe_layers"]) else 0,
    )
    latent = mla and LatentAttention(
        query_rank=mla["q_lora"],
        key_value_rank=mla["kv_lora"],
        key=mla["qk_nope"],
        rotary=mla["qk_rope"],
        value=mla["v_head"],
    )
    return Decoder(
        layers=m["layers"],
        hidden=m["hidden"],
        heads=m["heads"],
        kv_heads=m["kv_groups"] or 0,
        head=m["head_dim"] or 0,
        ffn=m["ffn"],
        sequence=row["sequence"],
        vocab=m["vocab"],
        gated=gated,
        bias=not gated,
        norm="rmsnorm" if gated else "layernorm",
        positions="rope" if gated or m["activation"] == "squared-relu" else "learned",
        tied=bool(m["tied_embeddings"]),
        dropout=0.0,
        latent=latent or None,
        experts=experts or None,
        qk_norm=bool(mla) or m["name"].startswith("qwen3"),
        prediction_layers=m.get("mtp_layers") or 0,
    )


def job_of(row: dict[str, Any]) -> TrainingJob:
    """Return the job of a row."""
    p, model = row["parallelism"], model_of(row)
    tp, pp, cp, ep = (p[name] or 1 for name in ("tp", "pp", "cp", "ep"))
    overlap = row["overlap"] if isinstance(row["overlap"], dict) else {}
    again = row["recompute"]
    if again is None and overlap.get("moe_a2a") is None:
        again, hidden = RECIPES.get((row["model"]["name"], row["device"], tp, pp, ep), ("", False))
        overlap = overlap | {"moe_a2a": hidden}
    settings = Settings(
        cp=cp,
        ep=ep,
        etp=p["etp"] or 0,
        sequence_parallel=bool(p["sp"]) and tp > 1,
        precision="bf16",
        recompute=_recompute(str(again or "none")),
        offload=_offload(str(row["offload"] or "")),
        optimizer=_optimizer(row, overlap),
        kernels=_kernels(row, experts=model.experts is not None),
        overlap_tensor=bool(overlap.get("tp_comm")) and tp > 1,
        overlap_experts=bool(overlap.get("moe_a2a")) and ep > 1,
        scatter_sends=row["framework"] == OLD,
        async_tensor=row["framework"] != OLD,
        order="tp-cp-ep-dp-pp",
    )
    return TrainingJob(
        model=model,
        micro_batch=row["micro_batch"],
        global_batch=row["global_batch"],
        tp=tp,
        pp=pp,
        dp=row["gpus"] // (tp * pp * cp),
        layout=_layout(row, model, pp * (p["vp"] or 1), overlap.get("pp_layout")),
        settings=settings,
        devices_per_node=node_of(row),
        gpu_architecture=gpu(row["device"]).architecture,
    )


def _layout(row: dict[str, Any], model: Decoder, stages: int, said: str | None) -> PipelineLayout:
    text = said or LAYOUTS.get((row["model"]["name"], stages))
    if any(note.startswith("partition: transformer|embed") for note in row["notes"]):
        each = (model.layers + 2) // stages  # embedding and output count as layers
        text = f"Et*{each - 1}|(t*{each}|)*{stages - 2}t*{each - 1}L"
    if text:
        return read_layout(text if model.prediction_layers else text.replace("m", ""))
    return balanced_layout(model.layers, stages, prediction_layers=model.prediction_layers)


def _recompute(text: str) -> Recompute:
    if text.startswith("full"):
        return Recompute(granularity="full", method="uniform", layers=1)
    if text.startswith(("selective: m", "modules")):
        names = re.findall(r"\w+", re.sub("^(selective:|modules)", "", text))
        return Recompute(granularity="selective", modules=tuple(names))
    return Recompute()


def _offload(text: str) -> Offload:
    found = re.match(r"activations of (\d+) layers", text)
    return Offload(layers=int(found[1])) if found else Offload()


def _kernels(row: dict[str, Any], *, experts: bool) -> Kernels:
    notes, tokens = " ".join(row["notes"]), str(row["moe_tokens"])
    said = row["dispatcher"]
    new = row["framework"] == "Megatron-Bridge" and "dropless" in tokens
    new |= row["framework"].startswith("NeMo") and _version(row["framework_version"]) >= FLEX
    flex = said in ("deepep", "hybridep") or (said is None and new)
    dropped = "dropped" in tokens
    return Kernels(
        attention="unfused" if row["framework"] == OLD or "unfused attention" in notes else "flash",
        flash_package=row["framework"].startswith((MOSAIC, "PyTorch", INTERNEVO)),
        fused_loss=row["framework"].startswith(FUSED),
        accumulation_fusion=row["framework"] not in (OLD, INTERNEVO),
        grouped_experts=experts and "no grouped GEMM" not in notes,
        fused_permute=experts,
        dispatcher=("flex" if flex else "alltoall") if experts else "allgather",
        capacity=1.0 if dropped else 0.0,
        pad_to_capacity=dropped,
        quantised=PRECISIONS.get(row["precision"].split(" ")[0], ""),
        **_graphs(str(row["cuda_graphs"] or "none")),
    )


def _graphs(text: str) -> dict[str, Any]:
    """Return the settings of CUDA graphs."""
    if text.replace("_", " ").startswith("full iteration"):
        return {"graphs": "full_iteration"}
    if text == "per layer":
        return {"graphs": "transformer_engine"}
    named = tuple(name for name in GRAPHED if re.search(rf"\b{name}\b", text))
    return {"graphs": "transformer_engine", "graphed": named} if named else {}


def _optimizer(row: dict[str, Any], overlap: dict[str, Any]) -> OptimizerSettings:
    p = row["parallelism"]
    kind = SHARDINGS.get(str(p["fsdp"] or "")[:4])
    sharding = kind or ("none" if str(p["zero"]) == "0" else "optimizer")
    always = sharding == "parameters"
    within = "groups of 8" in str(p["zero"]) or "shard in node" in str(p["fsdp"])
    return OptimizerSettings(
        sharding=sharding,
        gradient=2 if _half_gradients(row) else 4,
        instances=max(1, p["dp"] // 8) if within else 1,
        overlap_gradients=always or bool(overlap.get("grad_reduce")),
        overlap_parameters=always or bool(overlap.get("param_gather")),
    )


def _half_gradients(row: dict[str, Any]) -> bool:
    """Tell whether gradients are added up and summed over replicas in 16 bits."""
    if row["framework"] == OLD:
        return bool(row["source"]["line"] < BF16)
    usual = "bf16" if row["framework"].startswith((*NVIDIA, INTERNEVO)) else "fp32"
    pure = "PURE" in str(row["optimizer_sharding"])
    return pure or (row["grad_dtype"] or usual).startswith("bf16")


def gpu(name: str) -> Gpu:
    """Return the figures of a device of the rows."""
    return gpus.gpu(NAMES.get(name, name))


def node_of(row: dict[str, Any]) -> int:
    """Return the GPUs that links inside a node connect: of a rack, those of one domain."""
    kind = gpu(row["device"])
    if kind.domain > kind.node:
        return row["gpus"] if row["gpus"] <= kind.domain else node_size(Gpus(row["gpus"], kind))
    return int(row["gpus_per_node"] or 8)


def network_of(row: dict[str, Any]) -> float:
    """Return the bytes/s of a node's network cards, one way."""
    text = row["network"] or ""
    said = next((rate for how, rate in NETWORKS.items() if re.search(how, text)), None)
    return said / 8 * 1e9 if said else gpu(row["device"]).network_bandwidth * node_of(row)
