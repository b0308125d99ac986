"""Scripts of PEFT and the Trainer: what they are told, and a step of the Trainer itself."""

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import Expected
from ilp_planner.formats.exports import EXPORTS, Runtime, export_job
from ilp_planner.formats.peft import export_peft
from ilp_planner.settings.values import as_transformers
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import LatentAttention, Mamba
from ilp_planner.specs.lengths import GROUPED, LONGEST, Lengths
from ilp_planner.specs.training import OptimizerSettings, Recompute, Settings, TrainingJob
from ilp_planner.specs.tuning import Tuning
from tests.formats.test_odd_names import NAMES
from tests.training_jobs import LLAMA_LIKE

LORA = Tuning(rank=4, targets=("q_proj", "down_proj"), dropout=0.05, adapters="fp32")
FULL = Recompute(granularity="full", method="uniform", layers=1)


def job_of(tuning: Tuning, dp: int = 1, **optimizer: Any) -> TrainingJob:
    model = Decoder(layers=3, hidden=64, heads=4, sequence=32, ffn=128, vocab=64, **LLAMA_LIKE)
    settings = Settings(tuning=tuning, recompute=FULL, optimizer=OptimizerSettings(**optimizer))
    return TrainingJob(
        model=model, micro_batch=2, global_batch=4 * dp, dp=dp, settings=as_transformers(settings)
    )


def loaded(job: TrainingJob, folder: Path) -> ModuleType:
    """Return the script as a module."""
    file = folder / "run.py"
    file.write_text(export_peft(job, "run").files[".py"])
    spec = importlib.util.spec_from_file_location("run", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plan_of(job: TrainingJob) -> dict[str, Any]:
    text = export_peft(job, "run").files[".py"]
    compile(text, "run.py", "exec")
    match = re.search(r'PLAN = json.loads\("""(.*?)"""\)', text, re.DOTALL)
    assert match is not None
    found: dict[str, Any] = json.loads(match[1].replace("\\\\", "\\"))
    return found


def test_the_script_is_told_the_plan() -> None:
    plan = plan_of(job_of(replace(LORA, frozen=("layers:0-1",))))
    assert plan["lora"] == {
        **{"r": 4, "lora_alpha": 8, "lora_dropout": 0.05},
        **{"target_modules": ["q_proj", "down_proj"], "layers_to_transform": [2]},
    }
    arguments = plan["arguments"]
    assert arguments["per_device_train_batch_size"] == 2
    assert arguments["gradient_accumulation_steps"] == 2
    assert arguments["gradient_checkpointing"] is True
    frozen = plan_of(job_of(Tuning(frozen=("embedding", "layers:0-1"))))["frozen"]
    names = ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight")
    assert all(any(re.search(one, name) for one in frozen) for name in names)
    others = ("model.layers.2.mlp.up_proj.weight", "lm_head.weight", "model.layers.11.x")
    assert not any(re.search(one, name) for one in frozen for name in others)


@pytest.mark.parametrize("name", NAMES.values())
def test_scripts_of_odd_names_are_scripts(name: str) -> None:
    text = export_peft(job_of(LORA), name).files[".py"]
    compile(text, "run.py", "exec")
    assert "q_proj" in text


def test_replicas_share_by_ddp_fsdp_or_zero() -> None:
    alone = plan_of(job_of(LORA, dp=2))["arguments"]
    assert alone["ddp_find_unused_parameters"] is False
    whole = plan_of(job_of(LORA, dp=2, sharding="parameters", from_master=True))
    assert whole["sharded"] is True
    assert whole["arguments"]["fsdp"] == "full_shard auto_wrap"
    zero = plan_of(job_of(LORA, dp=2, sharding="parameters"))["arguments"]["deepspeed"]
    assert zero["zero_optimization"]["stage"] == 3


MOMENTS_KEPT = [
    ({}, "adamw_torch_fused"),
    ({"moment_format": "8bit"}, "adamw_8bit"),
    ({"moment_format": "8bit", "sharding": "optimizer"}, "adamw_8bit"),
    ({"moment_format": "8bit", "sharding": "parameters", "from_master": True}, "adamw_torch_8bit"),
    ({"moment_format": "paged"}, "paged_adamw_32bit"),
    ({"moment_format": "paged-8bit", "sharding": "parameters"}, "paged_adamw_8bit"),
    ({"moment_format": "paged-8bit", "from_master": True}, "paged_adamw_8bit"),
]


@pytest.mark.parametrize(("optimizer", "name"), MOMENTS_KEPT)
def test_the_optimizer_keeps_moments_as_the_plan_does(optimizer: dict[str, Any], name: str) -> None:
    """Whatever is trained."""
    for tuning in (LORA, Tuning()) if optimizer else (LORA,):
        assert plan_of(job_of(tuning, dp=2, **optimizer))["arguments"]["optim"] == name


@pytest.mark.slow
def test_names_of_optimizers_are_those_of_transformers() -> None:
    training_args = pytest.importorskip("transformers.training_args")
    known = {one.value for one in training_args.OptimizerNames}
    assert {name for _, name in MOMENTS_KEPT} <= known


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (
            {"moment_format": "paged", "sharding": "gradients", "from_master": True},
            "bitsandbytes steps no shards of FSDP",
        ),
        ({"moment_format": "8bit", "offload": 1.0, "sharding": "optimizer"}, "states stepped on"),
        ({"moment_format": "8bit", "name": "muon"}, "it is of Adam, not of muon"),
        ({"moments": 2}, "keeps both of Adam's in fp32"),
    ],
)
def test_moments_that_no_optimizer_keeps_are_refused(optimizer: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        export_peft(job_of(LORA, dp=2, **optimizer), "run")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"latent": LatentAttention(key_value_rank=16, key=8, rotary=4, value=8)},
            "latent attention",
        ),
        ({"pattern": "M*M", "mamba": Mamba(heads=4, head=32, state=16, groups=4)}, "Mamba-2"),
        ({"positions": "learned", "rotary": None}, "learnt positions"),
        ({}, ""),
    ],
)
def test_liger_has_its_loss_for_kinds_of_models_alone(changes: dict[str, Any], what: str) -> None:
    job = job_of(LORA)
    kernels = replace(job.settings.kernels, fused_loss=True, loss_kernel="liger")
    job = replace(
        job, model=replace(job.model, **changes), settings=replace(job.settings, kernels=kernels)
    )
    if not what:
        assert plan_of(job)["arguments"]["use_liger_kernel"] is True
        return
    with pytest.raises(PlanError, match=f"Liger has it for no model with {what}"):
        export_peft(job, "run")


@pytest.mark.parametrize(("batching", "asked"), [(LONGEST, None), (GROUPED, "group_by_length")])
def test_the_trainer_sorts_documents_where_the_plan_does(batching: str, asked: str | None) -> None:
    job = job_of(LORA)
    lengths = Lengths(lengths=(5, 9), counts=(2, 1), batching=batching)
    plan = plan_of(replace(job, model=replace(job.model, lengths=lengths)))
    assert plan["arguments"].get("train_sampling_strategy") == asked
    assert plan["padding"] == "longest"


@pytest.mark.parametrize("system", [name for name in EXPORTS if name != "peft"])
def test_systems_with_plain_moments_refuse_others(system: str) -> None:
    runtime = Runtime(system, next(iter(EXPORTS[system])))
    job = job_of(Tuning(), moment_format="paged-8bit", moments=2)
    with pytest.raises(PlanError, match=r"format: found paged-8bit, .*`peft` writes it"):
        export_job(runtime, job, "run", Expected())


def test_what_is_no_tuning_or_no_replica_is_refused() -> None:
    with pytest.raises(PlanError, match=r"found none, .*; nearest it can run: lora = 16"):
        export_peft(job_of(Tuning()), "run")
    bridge = replace(LORA, targets=("linear_qkv",))
    with pytest.raises(PlanError, match="has the names of Hugging Face"):
        export_peft(job_of(bridge), "run")
    wide = replace(job_of(LORA, dp=2), tp=2, dp=1)
    with pytest.raises(PlanError, match=r"tp: found 2, .* replicas alone"):
        export_peft(wide, "run")


@pytest.mark.parametrize(
    "system", [name for name in EXPORTS if name not in ("peft", "nemo", "swift")]
)
def test_systems_that_train_all_of_a_model_refuse_and_name_the_export(system: str) -> None:
    runtime = Runtime(system, next(iter(EXPORTS[system])))
    with pytest.raises(PlanError, match=r"rank: found 4, but .* trains all .*`peft` writes it"):
        export_job(runtime, job_of(LORA), "run", Expected())


def test_the_trainer_takes_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, where PEFT is installed: adapters are what the plan says, and are saved; with
    moments in 8 bits where bitsandbytes is installed too."""
    pytest.importorskip("peft")
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=128, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    words = {word: place for place, word in enumerate(["</s>", *"abcdefgh"])}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="</s>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>").save_pretrained(
        tmp_path / "model"
    )
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "a b c d " * 80}) + "\n")
    narrow = importlib.util.find_spec("bitsandbytes") is not None
    job = job_of(LORA, moment_format="8bit" * narrow)
    script = loaded(job, tmp_path)
    script.PLAN["arguments"] |= {"use_cpu": True} | ({} if narrow else {"optim": "adamw_torch"})
    words_said = ["--model", "model", "--data", "texts.jsonl", "--output", "out", "--steps", "1"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", *words_said])
    script.main()
    assert (tmp_path / "out" / "adapter_config.json").is_file()
    model = script.model_of("model")
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert trained == 3 * 4 * ((64 + 64) + (128 + 64))
