"""Published training steps as jobs on clusters: rows of ../shared/data/measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilp_planner.specs.decoder import Decoder, Experts, LatentAttention
from ilp_planner.specs.pipeline_layout import balanced_layout, read_layout
from ilp_planner.specs.training import (
    Kernels,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured"


@dataclass(frozen=True, kw_only=True)
class Run:
    """One published step. name, group: of the row. family: framework. gpu: device.
    network: bytes/s of a node's cards. seconds: measured."""

    name: str
    group: str
    family: str
    gpu: str
    job: TrainingJob
    gpus: int
    network: float
    seconds: float
    row: Any


def model_of(row: dict[str, Any]) -> Decoder:
    m = row["model"]
    gated = m["gated"]
    moe, mla = m["moe"], m["mla"]
    experts = None
    if moe:
        first = 3 if "58 of 61" in str(moe["moe_layers"]) else 0
        experts = Experts(
            count=moe["experts"],
            top_k=moe["topk"],
            ffn=moe["expert_ffn"],
            shared_ffn=moe["shared_ffn"] or 0,
            dense_first=first,
        )
    latent = None
    if mla:
        latent = LatentAttention(
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
        latent=latent,
        experts=experts,
        qk_norm=bool(mla) or m["name"].startswith("qwen3"),
        prediction_layers=m.get("mtp_layers") or 0,
    )


PRECISION = {"fp8-delayed": "fp8-delayed", "fp8-cs": "fp8-current", "mxfp8": "mxfp8"}


def _flex(row: dict[str, Any]) -> bool:
    """Megatron-Bridge's recipes of experts dispatch by DeepEP or HybridEP unless they say so."""
    bridge = row["framework"] == "Megatron-Bridge" and row["dispatcher"] is None
    return row["dispatcher"] in ("deepep", "hybridep") or (
        bridge and "dropless" in str(row["moe_tokens"])
    )


# Of NVIDIA's recipes for models whose layers no number of stages divides (Megatron-Bridge).
LAYOUTS = {
    ("deepseek-v3-671b", 16): "Et*4|(t*4|)*14tmL",
    ("deepseek-v3-671b", 32): "Et|(tt|)*30mL",
}


def job_of(row: dict[str, Any]) -> TrainingJob:
    p, overlap = row["parallelism"], row["overlap"] if isinstance(row["overlap"], dict) else {}
    model = model_of(row)
    tp, pp, cp, ep = (p[k] or 1 for k in ("tp", "pp", "cp", "ep"))
    fsdp = str(p["fsdp"] or "")
    sharding = {
        "full": "parameters",
        "grad": "gradients",
        "hybr": "parameters",
        "Deep": "parameters",
    }.get(fsdp[:4], "none" if str(p["zero"]) == "0" else "optimizer")
    megatron = "Megatron" in row["framework"] or "NeMo" in row["framework"]
    old = row["framework"] == "Megatron-DeepSpeed"
    again = str(row["recompute"] or "none")
    recompute = Recompute()
    if again.startswith("full"):
        recompute = Recompute(granularity="full", method="uniform", layers=1)
    elif again.startswith(("selective: m", "modules")):
        names = again.replace("selective:", "").replace("modules", "")
        for c in "[]' ":
            names = names.replace(c, "")
        recompute = Recompute(granularity="selective", modules=tuple(names.split(",")))
    graphs = str(row["cuda_graphs"] or "none")
    moe = bool(model.experts)
    kernels = Kernels(
        attention="unfused"
        if old or any("unfused attention" in n for n in row["notes"])
        else "flash",
        fused_loss=False,
        grouped_experts=moe and not any("no grouped GEMM" in n for n in row["notes"]),
        fused_permute=moe,
        dispatcher=("flex" if _flex(row) else "alltoall") if moe else "allgather",
        capacity=1.0 if "dropped" in str(row["moe_tokens"]) else 0.0,
        pad_to_capacity="dropped" in str(row["moe_tokens"]),
        quantised=PRECISION.get(row["precision"].split(" ")[0], ""),
        graphs="transformer_engine"
        if graphs == "full iteration" or "attn" in graphs or graphs == "per layer"
        else "",
    )
    precise = row["grad_dtype"] or ("bf16" if megatron and not old else "fp32")
    optimizer = OptimizerSettings(
        sharding=sharding,
        gradient=2 if precise.startswith("bf16") or "PURE" in str(row["optimizer_sharding"]) else 4,
        overlap_gradients=bool(overlap.get("grad_reduce")) or sharding == "parameters",
        overlap_parameters=bool(overlap.get("param_gather")) or sharding == "parameters",
    )
    settings = Settings(
        cp=cp,
        ep=ep,
        etp=p["etp"] or 0,
        sequence_parallel=bool(p["sp"]) and tp > 1,
        precision="bf16",
        recompute=recompute,
        optimizer=optimizer,
        kernels=kernels,
        overlap_tensor=bool(overlap.get("tp_comm")) and tp > 1,
        overlap_experts=bool(overlap.get("moe_a2a")) and ep > 1,
        order="tp-cp-ep-dp-pp",
    )
    virtual = p["vp"] or 1
    layout = balanced_layout(model.layers, pp * virtual, prediction_layers=model.prediction_layers)
    text = overlap.get("pp_layout") or LAYOUTS.get((row["model"]["name"], pp * virtual))
    if text:
        layout = read_layout(text if model.prediction_layers else text.replace("m", ""))
    return TrainingJob(
        model=model,
        micro_batch=row["micro_batch"],
        global_batch=row["global_batch"],
        tp=tp,
        pp=pp,
        dp=row["gpus"] // (tp * pp * cp),
        layout=layout,
        settings=settings,
        devices_per_node=row["gpus_per_node"] or 8,
        generation={"A": 8, "H": 9, "B": 10}[row["device"][0]],
    )


def network_of(row: dict[str, Any]) -> float:
    """Bytes/s of a node, one way."""
    text = row["network"] or ""
    gbit = 8 * 400 if row["device"][0] in "HB" else 8 * 200
    for key, value in (
        ("4 x 100", 400),
        ("1600 Gbps", 1600),
        ("400 Gb/s per node", 400),
        ("800 Gb/s per node", 800),
    ):
        if text.startswith(key) or (
            key in text and not key.startswith("4 x") and "each" not in text and "8x400" not in text
        ):
            gbit = value
    return gbit / 8 * 1e9


def runs(*files: str) -> list[Run]:
    found = []
    for file in files:
        for row in json.loads((DATA / "steps" / f"{file}.json").read_text()):
            if row["confidence"] == "low" or not row["task"].startswith("pretrain"):
                continue
            try:
                job = job_of(row)
            except (ValueError, TypeError, KeyError) as error:
                print("skipped", row["id"], error)
                continue
            found.append(
                Run(
                    name=row["id"],
                    group=row["independent_group"],
                    family=row["framework"],
                    gpu=row["device"],
                    job=job,
                    gpus=row["gpus"],
                    network=network_of(row),
                    seconds=row["step_time_s"],
                    row=row,
                )
            )
    return found


def b200_runs() -> list[Run]:
    """Return the B200 runs of MooreThreads/SimuMax."""
    from tests.benchmarks.memory import b200_job

    found = []
    for row in json.loads((DATA / "b200_time_memory.json").read_text())["rows"]:
        job = b200_job(row)
        found.append(
            Run(
                name=row["case"],
                group=row["case"],
                family="SimuMax",
                gpu="B200",
                job=job,
                gpus=row["gpus"],
                network=400e9,
                seconds=row["real_ms"] / 1e3,
                row={"model": {"name": row["model"]}, "precision": "bf16", "recompute": "none"},
            )
        )
    return found


# The kernels of 2021-22: scores of every pair of tokens, fused softmax and dropout.
UNFUSED_2021 = Kernels(implementation="local", attention="unfused")


def _gpt(
    layers: int, hidden: int, heads: int, sequence: int, vocab: int, dropout: float = 0.1
) -> Decoder:
    return Decoder(
        layers=layers, hidden=hidden, heads=heads, sequence=sequence, vocab=vocab, dropout=dropout
    )


def selene_runs() -> list[Run]:
    """Return the runs of Narayanan et al. 2021, table 1, and Korthikanti et al. 2022, table 5."""
    found = []
    data = json.loads((DATA / "sc21_table1.json").read_text())
    for row in data["table"]:
        each = row["layers_per_virtual_stage"]
        virtual = row["num_layers"] // row["pp"] // each if each else 1
        job = TrainingJob(
            model=_gpt(row["num_layers"], row["hidden"], row["heads"], data["seq"], data["vocab"]),
            micro_batch=row["micro_batch"],
            global_batch=row["global_batch"],
            tp=row["tp"],
            pp=row["pp"],
            dp=row["dp"],
            layout=balanced_layout(row["num_layers"], row["pp"] * virtual),
            settings=Settings(
                precision="fp16",
                kernels=UNFUSED_2021,
                optimizer=OptimizerSettings(gradient=2),
                recompute=Recompute(granularity="full", method="uniform", layers=1),
                order="tp-cp-ep-dp-pp",
            ),
            generation=8,
        )
        found.append(
            Run(
                name=f"sc21 {row['params_B']}B",
                group=f"sc21 {row['params_B']}B",
                family="SC21",
                gpu="A100-80GB",
                job=job,
                gpus=row["gpus"],
                network=200e9,
                seconds=row["derived_iteration_time_s"],
                row={
                    "model": {"name": f"gpt {row['params_B']}B"},
                    "precision": "fp16",
                    "recompute": "full",
                },
            )
        )
    data = json.loads((DATA / "korthikanti2022.json").read_text())
    for name, c in data["configs"].items():
        for kind, seconds in data["iteration_time_s"][name].items():
            full = kind == "full"
            job = TrainingJob(
                model=_gpt(c["layers"], c["hidden"], c["heads"], data["seq"], data["vocab"]),
                micro_batch=c["mbs"],
                global_batch=c["gbs"],
                tp=c["tp"],
                pp=c["pp"],
                dp=1,
                layout=balanced_layout(c["layers"], c["pp"] * c["vpp_stages"]),
                settings=Settings(
                    precision="fp16",
                    kernels=UNFUSED_2021,
                    optimizer=OptimizerSettings(gradient=2),
                    sequence_parallel=not full,
                    recompute=Recompute(granularity="full", method="uniform", layers=1)
                    if full
                    else Recompute(granularity="selective"),
                ),
                generation=8,
            )
            found.append(
                Run(
                    name=f"korthikanti {name} {kind}",
                    group=f"{name} {kind}",
                    family="Korthikanti",
                    gpu="A100-80GB",
                    job=job,
                    gpus=c["gpus"],
                    network=200e9,
                    seconds=seconds,
                    row={"model": {"name": f"gpt {name}"}, "precision": "fp16", "recompute": kind},
                )
            )
    return found
