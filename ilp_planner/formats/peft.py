"""A script of PEFT and Hugging Face's Trainer: adapters, a base in 4 bits, frozen parts, moments in
8 bits or in pages; replicas by DDP, FSDP or ZeRO.

Names are those of `transformers` 5 (`TrainingArguments`, `BitsAndBytesConfig`) and of PEFT 0.21
(`LoraConfig`, `prepare_model_for_kbit_training`). The script takes a model's folder and a file of
texts, which it packs to samples of the plan's length.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import Expected, Exported, describe, file_name
from ilp_planner.settings.keys import said
from ilp_planner.spaces.runtimes.peft import TOOL, check_peft, optimizer_name
from ilp_planner.specs.lengths import FULL, GROUPED, LONGEST
from ilp_planner.specs.tuning import OF_EXPERTS, layers_of

if TYPE_CHECKING:
    from ilp_planner.specs.training import TrainingJob

# Names of the tokenizer.
PADDINGS = {LONGEST: "longest", GROUPED: "longest", FULL: "max_length"}
SHARED = {"gradients": "shard_grad_op", "parameters": "full_shard"}  # what FSDP calls it
# Parts of a model -> how the names of their parameters look in transformers.
NAMES = {
    "embedding": r"embed_tokens\.|\.embeddings\.",
    "attention": r"\.self_attn\..*proj\.|\.mixer\.[qkvo]_proj\.",
    "mamba": r"\.(mamba|mixer)\.(in_proj|out_proj|conv1d|dt_bias|A_log|D$)",
    "delta": r"\.linear_attn\.(?!norm)",
    "mlp": (r"\.(mlp|feed_forward|mixer)\.(gate|up|down|gate_up)_proj\.|\.mlp\.fc[12]\."),
    "experts": (
        r"\.(mlp|mixer)\.(shared_)?experts?(_gate)?\.|\.block_sparse_moe\.experts\."
        r"|\.mixer\.fc[12]_latent_proj\."
    ),
    "router": r"\.(gate|router)\.(weight|bias)",
    "norms": r"norm\.|layernorm\.",
    "output": r"lm_head\.",
}
SCRIPT = '''"""{title}

torchrun --nproc_per_node={ranks} {file} --model FOLDER --data TEXTS.jsonl
"""

import argparse
import json
import re

import torch
import transformers

PLAN = json.loads("""
{plan}
""")


def model_of(folder):
    quantised = None
    if PLAN["base"] == "nf4":
        quantised = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            bnb_4bit_quant_storage=torch.bfloat16 if PLAN["sharded"] else torch.uint8,
        )
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, quantization_config=quantised, attn_implementation="sdpa"
    )
    model.config.use_cache = False
    layers = model.config.get_text_config().num_hidden_layers
    if PLAN["layers"] not in (None, layers):
        raise SystemExit(f"found {{layers}} layers, expected {{PLAN['layers']}}, as planned")
    if PLAN["lora"]:
        import peft

        if quantised is not None:
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        lora = dict(PLAN["lora"])
        if "target_parameters" in lora and "layers_to_transform" in lora:
            own = "|".join(map(str, lora["layers_to_transform"]))
            ends = "|".join(map(re.escape, lora["target_parameters"]))
            named = re.compile(rf"[.]layers[.]({{own}})[.].*({{ends}})$")
            names = [name for name, _ in model.named_parameters()]
            lora["target_parameters"] = [name for name in names if named.search(name)]
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **lora))
        if PLAN["arguments"]["gradient_checkpointing"]:
            model.enable_input_require_grads()
        return model
    for name, weight in model.named_parameters():
        still = any(re.search(pattern, name) for pattern in PLAN["frozen"])
        weight.requires_grad_(not still)
        if not still and PLAN["master"] == 4:
            weight.data = weight.data.float()
    return model


def samples(folder, file):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    length, ids = PLAN["sequence"], []
    texts = (json.loads(line)["text"] for line in open(file, encoding="utf-8"))
    each = (tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in texts)
    if PLAN["padding"]:
        return [{{"input_ids": one[:length]}} for one in each]
    for one in each:
        ids += one
    cut = [ids[i : i + length] for i in range(0, len(ids) - length + 1, length)]
    return [{{"input_ids": one, "labels": one}} for one in cut]


def collator(folder):
    if not PLAN["padding"]:
        return transformers.default_data_collator
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token

    def padded(rows):
        found = tokenizer.pad(
            rows, padding=PLAN["padding"], max_length=PLAN["sequence"], return_tensors="pt"
        )
        labels = found["input_ids"].masked_fill(found["attention_mask"] == 0, -100)
        return {{**found, "labels": labels}}

    return padded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder or name of the model")
    parser.add_argument("--data", required=True, help="JSON lines with a text each")
    parser.add_argument("--output", default={output})
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    asked = parser.parse_args()
    arguments = transformers.TrainingArguments(
        output_dir=asked.output, max_steps=asked.steps, learning_rate=asked.learning_rate,
        report_to=[], logging_steps=1, save_strategy="no", **PLAN["arguments"],
    )
    trainer = transformers.Trainer(
        model=model_of(asked.model), args=arguments,
        train_dataset=samples(asked.model, asked.data),
        data_collator=collator(asked.model),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
'''


def export_peft(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the script.

    Parameters
    ----------
    name: of the run, and of its file without its end.

    Raises
    ------
    PlanError: a setting that PEFT and the Trainer cannot run, with the limit and the nearest
    possible value; or nothing of the model is frozen.
    """
    if not job.settings.by_trainer:
        raise PlanError(
            f"settings.tuning: found none, but {TOOL} is written for adapters, frozen parts and "
            "moments in 8 bits or in pages; nearest it can run: lora = 16"
        )
    check_peft(job)
    text = SCRIPT.format(
        title=_plain("; ".join((f"{TOOL}: {name}", *describe(job, engine=False)))),
        plan=json.dumps(_plan(job), indent=1).replace("\\", "\\\\"),
        ranks=min(job.world, job.devices_per_node),
        file=file_name(name, ".py"),
        output=ascii(f"{name}-out"),
    )
    notes = ["learning rate, steps, model and texts are options of the script"]
    if job.settings.tuning.base:
        notes.append(
            "words, norms and hidden states are of fp32 beside a base in 4 bits "
            "(prepare_model_for_kbit_training)"
        )
    return Exported({".py": text}, tuple(notes))


def _plain(text: str) -> str:
    """Return a text that ends no string of Python that it stands in."""
    return text.encode("unicode_escape").decode().replace('"', "'")


def _plan(job: TrainingJob) -> dict[str, Any]:
    """Return what the script is told."""
    tuning, optimizer = job.settings.tuning, job.settings.optimizer
    lora = None
    if tuning.rank:
        lora = {
            "r": tuning.rank,
            "lora_alpha": 2 * tuning.rank,
            "lora_dropout": tuning.dropout,
            "target_modules": [name for name in tuning.targets if name not in OF_EXPERTS],
        }
        if parameters := [name for name in tuning.targets if name in OF_EXPERTS]:
            lora["target_parameters"] = parameters
        frozen = tuning.frozen_layers(job.model.layers)
        if any(frozen):
            lora["layers_to_transform"] = [i for i, still in enumerate(frozen) if not still]
    return {
        "lora": lora,
        "layers": job.model.layers if any(map(layers_of, tuning.frozen)) else None,
        "base": tuning.base,
        "frozen": [_pattern(part) for part in tuning.frozen],
        "sharded": job.dp > 1 and optimizer.sharding == "parameters",
        "master": optimizer.master or 4,
        "sequence": job.model.sequence,
        "padding": PADDINGS.get(job.batching, ""),
        "arguments": trainer_arguments(job),
    }


def trainer_arguments(job: TrainingJob) -> dict[str, Any]:
    """Return what the Trainer is told of a job (`TrainingArguments`).

    Raises
    ------
    PlanError: PEFT and the Trainer cannot run it.
    """
    check_peft(job)
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": job.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "bf16": True,
        "gradient_checkpointing": job.settings.recompute.granularity == "full",
        "optim": optimizer_name(job),
        "use_liger_kernel": job.settings.kernels.chunked_loss,
    }
    if job.batching == GROUPED:
        arguments["train_sampling_strategy"] = "group_by_length"
    if arguments["gradient_checkpointing"]:
        arguments["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
    return arguments | _shared(job)


def _pattern(part: str) -> str:
    """Return how the names of a part's parameters look."""
    span = layers_of(part)
    if span is None:
        return NAMES[part]
    numbers = "|".join(map(str, range(span[0], span[1] + 1)))
    return rf"\.layers\.({numbers})\."


def _shared(job: TrainingJob) -> dict[str, Any]:
    """Return how replicas share states: by FSDP, by DeepSpeed, or not."""
    optimizer = job.settings.optimizer
    if job.dp == 1:
        return {}
    if optimizer.sharding == "none":
        return {"ddp_find_unused_parameters": False}
    if optimizer.from_master:
        config = {
            "fsdp_version": 2,
            "reshard_after_forward": optimizer.sharding == "parameters",
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        }
        return {"fsdp": f"{SHARED[optimizer.sharding]} auto_wrap", "fsdp_config": config}
    stage = said(job.settings, "deepspeed", "zero_optimization")["stage"]
    zero = {
        "train_micro_batch_size_per_gpu": job.micro_batch,
        "gradient_accumulation_steps": job.micro_batches,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "overlap_comm": optimizer.overlap_gradients},
    }
    return {"deepspeed": zero}
