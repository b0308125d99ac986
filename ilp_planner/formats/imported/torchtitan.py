"""torchtitan's TOML, as its release 0.2.2 reads it: the columns of the settings, read backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.formats.imported.rows import (
    RECENT,
    Arguments,
    Says,
    Uncounted,
    each,
    only,
    switch,
)
from ilp_planner.formats.imported.table import MODEL, WORLD, Reading, System
from ilp_planner.settings.keys import KEYS
from ilp_planner.settings.table import COMPILED_FIELD, SHARED_FIELD
from ilp_planner.specs.training import OPERATORS

if TYPE_CHECKING:
    from ilp_planner.settings.base import Key

RUNTIME = "torchtitan@0.2.2"
SCHEDULES = {"1f1b": "1f1b", "interleaved1f1b": "1f1b", "interleavedzerobubble": "interleaved-zb",
             "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v"}  # fmt: skip
FAMILIES = {
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
    ("kimi_k2_7", "moonlight-16b-a3b"): "moonlight-16b-a3b",
}
PARALLEL = "parallelism"
# Modules beside layers, in the letters of a layout.
ENDS = {"tok_embeddings": "E", "norm": "", "output": "L", "lm_head": "L"}


def of_columns(runtime: str) -> dict[str, Says]:
    """Return the rows of the keys that the table of settings has for a release."""
    return {
        key.name: _of_column(key)
        for key in KEYS[runtime].values()
        if key.name and f"settings.{key.field}" != SHARED_FIELD  # which several keys say
    }


def _of_column(key: Key) -> Says:
    """Return the row of a key that `formats.torchtitan` writes."""
    field = f"settings.{key.field}"
    if not key.words:
        return field
    return {word: {field: value} for value, word in key.words.items()}


def finish(reading: Reading) -> None:
    """Say the model, what ranks share, and the samples of a micro-batch."""
    given, said = reading.given, reading.said
    name = str(given.get("model.name") or "").lower()
    flavor = str(given.get("model.flavor") or "").lower()
    if name:
        reading.say(MODEL, FAMILIES.get((name, flavor), f"{name}-{flavor}"), "model.flavor")
    shard = given.get(f"{PARALLEL}.data_parallel_shard_degree", -1)
    again = given.get(f"{PARALLEL}.fsdp_reshard_after_forward", "default")
    alone = reading.number("pipeline_model_parallel_size", 1) == 1
    if shard == 1:
        reading.say(SHARED_FIELD, "none")
    else:
        whole = again == "always" or (again == "default" and alone)
        reading.say(SHARED_FIELD, "parameters" if whole else "gradients")
    if alone:
        return
    # A local batch is divided into micro-batches, which pass the pipeline.
    parts = given.get(f"{PARALLEL}.pipeline_parallel_microbatch_size") or 1
    local = reading.number("micro_batch_size", 8)
    reading.say("micro_batch_size", parts, f"{PARALLEL}.pipeline_parallel_microbatch_size")
    if "global_batch_size" not in said and isinstance(parts, int) and local % parts == 0:
        reading.say("@micro-batches", local // parts)


def _cuts(value: Any) -> Arguments:
    """Return the layout of a pipeline whose stages have these modules."""
    expected = ValueError("for each stage tok_embeddings, layers.N in order, norm and output")
    parts, count = [], 0
    for part in value if isinstance(value, list) else [value]:
        names = [str(name) for name in part] if isinstance(part, list) else [str(part)]
        layers = [name for name in names if name.startswith("layers.")]
        own = [name for name in names if name not in layers]
        if layers != [f"layers.{count + k}" for k in range(len(layers))] or {*own} - ENDS.keys():
            raise expected
        count += len(layers)
        parts.append("".join(ENDS[name] for name in own[:1] if name in names[:1]))
        parts[-1] += f"t*{len(layers)}" * bool(layers)
        parts[-1] += "".join(ENDS[name] for name in own if ENDS[name] == "L")
    return {"pipeline_model_parallel_layout": "|".join(parts)} if parts else {}


def _batch(value: Any) -> Arguments:
    return {} if value == -1 else {"global_batch_size": value}


ROWS: dict[str, Says] = {
    **of_columns(RUNTIME),
    f"{PARALLEL}.fsdp_reshard_after_forward": only("default", "always", "never"),
    f"{PARALLEL}.data_parallel_shard_degree": lambda value: {},
    f"{PARALLEL}.data_parallel_replicate_degree": "settings.optimizer.instances",
    f"{PARALLEL}.tensor_parallel_degree": "tensor_model_parallel_size",
    f"{PARALLEL}.pipeline_parallel_degree": "pipeline_model_parallel_size",
    f"{PARALLEL}.expert_tensor_parallel_degree": "settings.etp",
    f"{PARALLEL}.pipeline_parallel_schedule": {
        word: {"settings.schedule": name} for word, name in SCHEDULES.items()
    },
    f"{PARALLEL}.pipeline_parallel_microbatch_size": lambda value: {},
    f"{PARALLEL}.module_fqns_per_model_part": _cuts,
    f"{PARALLEL}.pipeline_parallel_layers_per_stage": Uncounted(
        "virtual stages of so many layers; counted as one for each rank", (None, 0)
    ),
    f"{PARALLEL}.disable_loss_parallel": Uncounted(
        "logits gathered before the loss; counted as divided over tensor-parallel ranks"
    ),
    "model.name": lambda value: {},
    "model.flavor": lambda value: {},
    "world_size": WORLD,
    "training.seq_len": "seq_length",
    "training.local_batch_size": "micro_batch_size",
    "training.global_batch_size": _batch,
    "training.dtype": only("float32", otherwise="float32, of which bf16 is gathered"),
    "training.mixed_precision_param": {"bfloat16": {"bf16": True}, "float32": {"bf16": False}},
    "training.mixed_precision_reduce": only("float32"),
    "training.enable_cpu_offload": switch({"settings.optimizer.offload": 1.0}),
    "optimizer.name": each(("adamw", "adam"), {"optimizer": "adam"}),
    "activation_checkpoint.mode": {
        "none": {},
        "selective": {
            "settings.recompute.granularity": "selective",
            "settings.recompute.modules": (OPERATORS,),
        },
        "full": {
            "settings.recompute.granularity": "full",
            "settings.recompute.method": "uniform",
            "settings.recompute.layers": 1,
        },
    },
    "activation_checkpoint.selective_ac_option": only(
        "op", otherwise="op: every second layer is not modelled"
    ),
    "compile.enable": switch({COMPILED_FIELD: True}),
}

SYSTEM = System(
    name="torchtitan",
    rows=ROWS,
    aside=(
        "job.*", "profiling.*", "metrics.*", "lr_scheduler.*", "optimizer.*", "checkpoint.*",
        "training.*", "comm.*", "debug.*", "validation.*", "fault_tolerance.*", "experimental.*",
        "compile.*", "model.hf_assets_path", "model.tokenizer_path",
        "model.print_after_conversion", "activation_checkpoint.*", "memory_estimation.*",
        "quantize.*", "float8.*", "mx.*",
    ),
    usual={
        **RECENT,
        "bf16": True,
        "micro_batch_size": 8,
        "seq_length": 2048,
        "make_vocab_size_divisible_by": 1,
    },
    finish=finish,
    runtime=RUNTIME,
)  # fmt: skip
