"""NeMo's overrides: sections and names of Megatron-Bridge, what is said and what is refused."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from ilp_planner.base.errors import PlanError
from ilp_planner.base.library import library_files
from ilp_planner.formats.nemo import export_nemo
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.specs.lengths import FULL, JOINED, LONGEST, PACKED, Lengths
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.pipeline_layout import read_layout, split_layout
from ilp_planner.specs.training import (
    Kernels,
    Offload,
    OptimizerSettings,
    Recompute,
    Settings,
    TrainingJob,
)
from ilp_planner.specs.tuning import Tuning
from tests.examples import examples, for_each
from tests.formats.titan_cases import check_refusal
from tests.training_jobs import deepseek, gpt, job, jobs, llama
from tests.training_jobs import settings as usual

# fields of Megatron-Bridge 0.3.1's own dataclasses, read in its wheel; what it inherits from
# Megatron-Core is checked against Megatron-Core itself (tests/runtimes)
BRIDGE = {
    "train": {"micro_batch_size", "global_batch_size"},
    "dist": {"use_tp_pp_dp_mapping", "use_megatron_fsdp"},
    "checkpoint": {"ckpt_format"},
    "": {"mixed_precision"},
}


def read(text: str) -> dict:
    """Return the sections of a YAML text as flat as the exporter's."""
    found: dict = {"": {}}
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        key, _, value = line.strip().partition(":")
        if not value:
            section = key
            found[section] = {}
        else:
            found[section if line.startswith(" ") else ""][key] = json.loads(value)
    return found


def sections(case: TrainingJob) -> dict:
    return read(export_nemo(case, "run").files[".yaml"])


@examples(100)
@given(jobs())
def test_any_job_is_said_in_the_bridges_words(case: TrainingJob) -> None:
    found = sections(case)
    sharded = case.settings.optimizer.sharding in ("gradients", "parameters")
    assert ("checkpoint" in found) is sharded
    assert set(found) - {"checkpoint"} == {"", "train", "model", "ddp", "optimizer", "dist"}
    for name, known in BRIDGE.items():
        if name not in found:
            continue
        assert set(found[name]) <= known
    model = found["model"]
    assert model["num_layers"] == case.model.layers
    if "pipeline_model_parallel_layout" in model:
        assert read_layout(model["pipeline_model_parallel_layout"]) == case.pipeline
    else:
        assert len({stage.layers for stage in case.stages}) == 1


def test_a_layout_is_said_only_where_it_is_uneven() -> None:
    assert sections(job())["model"]["pipeline_model_parallel_layout"] == "Et|t*2|t*3|t*2L"
    assert "pipeline_model_parallel_layout" not in sections(job(layout=None))["model"]
    even = sections(job(pp=2, layout=split_layout([2] * 4)))["model"]
    assert "pipeline_model_parallel_layout" not in even
    assert even["virtual_pipeline_model_parallel_size"] == 2


@for_each(
    ("recompute", "said"),
    [
        (Recompute(), {}),
        (
            Recompute(granularity="selective", modules=("core_attn", "mlp")),
            {"recompute_granularity": "selective", "recompute_modules": ["core_attn", "mlp"]},
        ),
        (
            Recompute(granularity="full", method="block", layers=2),
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 2,
                "distribute_saved_activations": False,
            },
        ),
    ],
)
def test_recomputation(recompute: Recompute, said: dict) -> None:
    model = sections(job(settings=usual(recompute=recompute)))["model"]
    assert {k: v for k, v in model.items() if "recompute" in k or "saved" in k} == said


@pytest.mark.parametrize(
    ("sharding", "strategy"), [("gradients", "optim_grads"), ("parameters", "optim_grads_params")]
)
def test_zero_2_and_3_are_megatrons_fsdp(sharding: str, strategy: str) -> None:
    found = sections(job(settings=usual(optimizer=OptimizerSettings(sharding=sharding))))
    assert found["ddp"]["data_parallel_sharding_strategy"] == strategy
    assert found["ddp"]["use_megatron_fsdp"] is True
    assert found["dist"]["use_megatron_fsdp"] is True


def test_latent_attention_and_experts() -> None:
    model = sections(job(deepseek(), settings=usual(ep=2)))["model"]
    assert model["multi_latent_attention"] is True
    assert (model["q_lora_rank"], model["kv_lora_rank"]) == (48, 32)
    assert model["moe_layer_freq"] == [0, 1, 1, 1, 1, 1, 1, 1]
    assert model["moe_shared_expert_intermediate_size"] == 192
    assert model["expert_model_parallel_size"] == 2


def test_gelu_without_bias_is_not_fused() -> None:
    """Megatron has no such kernel and refuses the flag."""
    plain = sections(job(llama(gated=False, ffn=704)))["model"]
    assert plain["bias_activation_fusion"] is False
    assert sections(job())["model"]["bias_activation_fusion"] is True


LOCAL = Kernels(implementation="local", attention="unfused", accumulation_fusion=False)


@for_each(
    ("case", "part"),
    [
        (job(), "silu"),
        (job(deepseek()), "MLAModelProvider"),
        (job(settings=usual(kernels=LOCAL)), "local_layer_spec"),
        (job(settings=usual(kernels=Kernels(attention="unfused"))), "AttnBackend.unfused"),
        (job(settings=usual(kernels=Kernels(flash_package=True))), "AttnBackend.flash"),
        (job(settings=usual(optimizer=OptimizerSettings(sharding="optimizer", master=2))),
         "settings.optimizer.master: 2; 4 here"),
        (job(), "CUDA_DEVICE_MAX_CONNECTIONS"),
        (job(settings=usual(kernels=Kernels(graphs="local"))), "te_rng_tracker"),
        (job(settings=usual(kernels=Kernels(graphs="full_iteration"))), "check_for_nan_in_loss"),
        (job(settings=usual(overlap_tensor=True)), "comm_overlap of the recipe"),
        (job(settings=usual(kernels=Kernels(quantised="fp8-blockwise"))), "number_format: hybrid"),
        (job(settings=usual(kernels=Kernels(quantised="fp8-current", quantised_parameters=True))),
         "exact_first, exact_last: 0, 0; mixed_precision has 1, 1"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say_is_noted(case: TrainingJob, part: str) -> None:
    exported = export_nemo(case, "run")
    assert any(part in note for note in exported.notes)
    assert part in exported.files[".yaml"]


def quantised(precision: str = "bf16", **kernels: object) -> TrainingJob:
    return job(settings=usual(precision=precision, kernels=Kernels(**kernels)))


@for_each(
    ("case", "name"),
    [
        (quantised(), "bf16_mixed"),
        (quantised(quantised="fp8-delayed", quantised_parameters=True),
         "bf16_with_fp8_delayed_scaling_mixed"),
        (quantised("fp16", quantised="fp8-current", quantised_parameters=True),
         "fp16_with_fp8_current_scaling_mixed"),
        (quantised(quantised="fp8-blockwise"), "bf16_with_fp8_subchannel_scaling_mixed"),
        (quantised(quantised="mxfp8", quantised_parameters=True), "bf16_with_mxfp8_mixed"),
    ],
)  # fmt: skip
def test_the_mixed_precision_says_the_recipe(case: TrainingJob, name: str) -> None:
    """Names that `MIXED_PRECISION_RECIPES` of `megatron.bridge.training` has."""
    assert sections(case)[""]["mixed_precision"] == name


def test_graphs_and_overlaps() -> None:
    model = sections(job(settings=usual(overlap_tensor=True)))["model"]
    assert model["tp_comm_overlap"] is True
    model = sections(quantised(graphs="transformer_engine", graphed=("attn",)))["model"]
    assert model["cuda_graph_impl"] == "transformer_engine"
    assert model["cuda_graph_scope"] == ["attn"]
    model = sections(quantised(graphs="full_iteration"))["model"]
    assert model["cuda_graph_impl"] == "local"
    assert model["cuda_graph_scope"] == ["full_iteration"]
    plain = sections(job())["model"]
    assert not {"tp_comm_overlap", "cuda_graph_impl", "cross_entropy_fusion_impl"} & set(plain)


def test_what_lies_on_the_host() -> None:
    assert not {"cpu_offloading", "offload_modules"} & set(sections(job())["model"])
    states = OptimizerSettings(sharding="optimizer", offload=0.5, overlap_offload=True)
    optimizer = sections(job(settings=usual(optimizer=states)))["optimizer"]
    assert optimizer["optimizer_offload_fraction"] == 0.5
    assert optimizer["overlap_cpu_optimizer_d2h_h2d"] is True
    moved = Offload(modules=("core_attn", "attn_proj"), smallest=1000)
    model = sections(job(settings=usual(offload=moved)))["model"]
    assert model["fine_grained_activation_offloading"] is True
    assert model["offload_modules"] == ["core_attn", "attn_proj"]
    assert model["min_offloaded_tensor_size"] == 1000
    first = job(settings=usual(offload=Offload(layers=3)), pp=1, layout=None)
    model = sections(first)["model"]
    assert (model["cpu_offloading"], model["cpu_offloading_num_layers"]) == (True, 3)
    with pytest.raises(PlanError, match="--cpu-offloading-num-layers"):
        sections(job(settings=usual(offload=Offload(layers=3))))


@for_each(
    ("cp", "how", "inner", "words"),
    [
        (1, "a2a", 0, (None, None)),
        (4, "p2p", 0, (None, None)),  # Megatron-Core's own default
        (4, "a2a", 0, ("a2a", None)),
        (4, "a2a+p2p", 2, ("a2a+p2p", [2, 2])),
    ],
)
def test_ranks_of_context_parallelism_attend_as_in_the_plan(
    cp: int, how: str, inner: int, words: tuple[str | None, list[int] | None]
) -> None:
    model = sections(job(settings=usual(cp=cp, cp_comm=how, cp_inner=inner)))["model"]
    said = model.get("cp_comm_type"), model.get("hierarchical_context_parallel_sizes")
    assert said == words


@for_each(
    ("optimizer", "types"),
    [
        ({}, {}),
        (
            {"moments": 4, "master": 2},
            {"exp_avg_dtype": "bfloat16", "exp_avg_sq_dtype": "bfloat16"},
        ),
        ({"moments": 3, "master": 2}, {"exp_avg_dtype": "bfloat16", "exp_avg_sq_dtype": "uint8"}),
        ({"offload": 1.0, "master": 2}, {"main_params_dtype": "float16"}),
        ({"offload": 1.0}, {}),
    ],
)
def test_types_of_states_are_said(optimizer: dict[str, object], types: dict[str, str]) -> None:
    """The bridge turns texts like `torch.bfloat16` into types (`omegaconf_utils.py`)."""
    states = OptimizerSettings(**{"sharding": "optimizer", **optimizer})
    found = sections(job(settings=usual(optimizer=states)))["optimizer"]
    said = {key: value for key, value in found.items() if key.endswith("_dtype")}
    assert said == {key: f"torch.{name}" for key, name in types.items()}
    assert found.get("use_precision_aware_optimizer", False) == bool(optimizer)


def test_kernels_of_the_end_of_a_pipeline_are_said() -> None:
    deferred = sections(quantised(deferred_output=True, deferral_limit=3, deterministic=True))
    names = ("defer_embedding_wgrad_compute", "wgrad_deferral_limit", "deterministic_mode")
    assert [deferred["model"][name] for name in names] == [True, 3, True]
    assert not {*names} & {*sections(job())["model"]}


@pytest.mark.parametrize("kernel", ["te", "native"])
def test_the_kernel_of_the_loss(kernel: str) -> None:
    model = sections(quantised(fused_loss=True, loss_kernel=kernel))["model"]
    assert model["cross_entropy_fusion_impl"] == kernel


REFUSED = {
    "quantised products of fp32": (
        job(
            settings=usual(precision="fp32", kernels=Kernels(quantised="mxfp8")), pp=1, layout=None
        ),
        "settings.precision",
        {"settings": usual()},
    ),
    "4 bits": (quantised(quantised="nvfp4"), "kernels.quantised", {"settings": usual()}),
    "parameters": (quantised(quantised="fp8-delayed"), "quantised_parameters",
     {"settings": quantised(quantised="fp8-delayed", quantised_parameters=True).settings}),
    "format": (quantised(quantised="mxfp8", quantised_parameters=True, number_format="hybrid"),
     "number_format",
     {"settings": quantised(quantised="mxfp8", quantised_parameters=True).settings}),
    "ends": (quantised(quantised="fp8-current", quantised_parameters=True, exact_last=2),
     "exact_last",
     {"settings": quantised(quantised="fp8-current", quantised_parameters=True).settings}),
    "batch": (job(global_batch=63), "global_batch", {"global_batch": 64}),
    "heads": (job(tp=3), "heads", {"tp": 1}),
    "positions": (job(gpt(max_position_embeddings=1024)), "max_position_embeddings",
     {"model": gpt()}),
    "order": (job(settings=usual(cp=2, order="tp-cp-ep-pp-dp")), "settings.order",
     {"settings": usual(order="tp-cp-ep-pp-dp")}),
    "fp32": (job(settings=usual(precision="fp32")), "precision", {"settings": usual()}),
}  # fmt: skip


@for_each("name", REFUSED)
def test_what_the_bridge_cannot_run_is_refused_and_repaired(name: str) -> None:
    check_refusal(export_nemo, REFUSED[name])


def test_megatron_cores_rules_hold_for_the_bridge() -> None:
    """Seven query groups cannot be shared by two ranks, whoever starts Megatron-Core."""
    case = job(llama(heads=14, hidden=224, kv_heads=7))
    with pytest.raises(PlanError, match="Megatron-Core: --num-query-groups"):
        export_nemo(case, "run")


def test_small_numbers_stay_numbers() -> None:
    """YAML 1.1 takes 1e-05 for a text."""
    text = export_nemo(job(llama(dropout=1e-5)), "run").files[".yaml"]
    assert "hidden_dropout: 1.0e-05" in text


def test_names_cannot_break_out_of_the_comments() -> None:
    text = export_nemo(job(), "a\nmodel:").files[".yaml"]
    assert text.splitlines().count("model:") == 1


def test_samples_of_documents() -> None:
    def said(batching: str, **degrees: Any) -> dict:
        found = Lengths(lengths=(100, 400), counts=(5, 1), batching=batching)
        own = usual(cp=degrees.pop("cp", 1))
        one = {"micro_batch": 1, "pp": 1, **degrees}
        return sections(job(llama(lengths=found), settings=own, **one))

    specs = said(PACKED)["dataset"]["packed_sequence_specs"]
    assert specs["packed_sequence_size"] == llama().sequence
    assert specs["pad_seq_to_mult"] == 1
    divided = said(PACKED, cp=2)["dataset"]["packed_sequence_specs"]
    assert divided["pad_seq_to_mult"] == 4
    assert said(FULL)["dataset"] == {"dataset_kwargs": {"pad_to_max_length": True}}
    assert said(LONGEST)["dataset"] == {"dataloader_type": "cyclic"}
    assert "variable_seq_lengths" not in said(LONGEST)["model"]
    assert said(LONGEST, pp=2)["model"]["variable_seq_lengths"]
    assert "dataset" not in said(JOINED)


def of_transformers(name: str, **own: Any) -> Decoder:
    """Return a model with an encoder as the bridge has it."""
    model = SEEING[name]
    encoder = replace(model.encoder, **({"whole": True, "as_decoder": False} | own))
    return replace(model, encoder=encoder)


def sees(model: Decoder, *, grouped: bool = True, **changes: Any) -> TrainingJob:
    shape = {"micro_batch": 1, "global_batch": 32, "tp": 1, "pp": 1, "dp": 8}
    own = {key: changes.pop(key) for key in (*shape, "layout") if key in changes}
    kernels = changes.pop("kernels", Kernels(grouped_experts=grouped and bool(model.experts)))
    settings = Settings(kernels=kernels, **changes)
    return TrainingJob(model=model, settings=settings, **(shape | own))


SEEING = {
    path.stem: model
    for path in library_files("models")
    if (model := as_decoder(read_model(path).architecture)) and model.encoders
}
WRITTEN = {name for name in SEEING if name.startswith(("qwen2.5-vl", "qwen3-vl"))}


@for_each("name", sorted(SEEING))
def test_models_with_encoders_are_written_or_refused_by_name(name: str) -> None:
    if name not in WRITTEN:
        with pytest.raises(PlanError, match="found one that hears, or sees otherwise"):
            export_nemo(sees(SEEING[name]), "run")
        return
    found = sections(sees(of_transformers(name)))["model"]
    assert not any(value for key, value in found.items() if key.startswith("freeze_"))
    assert "position_embedding_type" not in found  # the recipe's, of three axes
    assert found["num_layers"] == SEEING[name].layers


@for_each(
    ("frozen", "said"),
    [
        (("encoder",), "vision_model"),
        (("projector",), "vision_projection"),
        (("embedding", "norms", "output", "layers:0-35"), "language_model"),
    ],
)
def test_parts_that_are_frozen(frozen: tuple[str, ...], said: str) -> None:
    model = of_transformers("qwen3-vl-8b")
    found = sections(sees(model, tuning=Tuning(frozen=frozen)))["model"]
    on = {key for key, value in found.items() if key.startswith("freeze_") and value}
    assert on == {f"freeze_{said}"}


def test_adapters_are_in_the_language_model_alone() -> None:
    """Products of Qwen3-VL's encoder have the names of the decoder's."""
    tuning = Tuning(rank=8, targets=("linear_fc1", "linear_fc2"))
    found = sections(sees(of_transformers("qwen3-vl-8b"), tuning=tuning))
    patterns = [one.replace("*", ".*") for one in found["peft"]["target_modules"]]
    for module, adapted in (
        ("module.language_model.decoder.layers.3.mlp.linear_fc1", True),
        ("module.vision_model.blocks.3.mlp.linear_fc1", False),
        ("module.vision_model.merger.linear_fc2", False),
    ):
        assert any(re.fullmatch(pattern, module) for pattern in patterns) == adapted
    assert found["model"]["freeze_vision_model"]
    assert found["model"]["freeze_vision_projection"]


def _lengths(model: Decoder, batching: str) -> Decoder:
    return replace(model, lengths=Lengths(lengths=(512, 2048), counts=(2, 1), batching=batching))


EIGHT, EXPERT = of_transformers("qwen3-vl-8b"), of_transformers("qwen3-vl-30b-a3b")
AGAIN = Recompute(granularity="full", method="uniform", layers=1)
CORE = Recompute(granularity="selective", modules=("core_attn",))
BESIDE = OptimizerSettings(sharding="optimizer", overlap_gradients=True, overlap_parameters=True)
WITH_ENCODERS = {
    "divided": (sees(of_transformers("qwen3-vl-8b", whole=False), tp=2, dp=4), "whole = true"),
    "context": (sees(EIGHT, cp=2, dp=4), "settings.cp = 1"),
    "recomputed": (sees(EIGHT, encoder_recompute="full"), "encoder_recompute = none"),
    "parts": (sees(EIGHT, tuning=Tuning(frozen=("norms",))), "freeze = "),
    "graphs": (sees(EIGHT, kernels=Kernels(graphs="local")), "settings.kernels.graphs = none"),
    "virtual": (sees(EIGHT, pp=2, dp=4, layout=split_layout([9] * 4)), "plan.virtual = 1"),
    "first stage": (sees(EIGHT, pp=2, dp=4, layout=split_layout([2, 34])), "3 layers"),
    "offloaded": (
        sees(EIGHT, offload=Offload(modules=("attn_norm",))),
        "settings.offload.modules = none",
    ),
    "whole layers": (sees(EIGHT, recompute=AGAIN), "some modules, or none"),
    "beside passes": (sees(EIGHT, optimizer=BESIDE), "settings .overlap_grad_reduce. = false"),
    "experts beside": (
        sees(EXPERT, ep=8, overlap_experts=True),
        "settings .overlap_moe_expert_parallel_comm. = false",
    ),
    "deferred": (
        sees(of_transformers("qwen2.5-vl-7b"), pp=2, dp=4, kernels=Kernels(deferred_output=True)),
        "settings .defer_embedding_wgrad_compute. = false",
    ),
    "experts one by one": (sees(EXPERT, grouped=False), "grouped_experts = true"),
    "packed": (sees(_lengths(EIGHT, PACKED)), "batching = longest"),
    "full": (sees(_lengths(EIGHT, FULL)), "batching = longest"),
    "longest": (sees(_lengths(EIGHT, LONGEST), pp=2, dp=4), "batching = full"),
}


@for_each("name", WITH_ENCODERS)
def test_what_models_with_encoders_cannot_run_there(name: str) -> None:
    case, nearest = WITH_ENCODERS[name]
    with pytest.raises(PlanError, match=f"Megatron-Bridge .*; nearest it can run: .*{nearest}"):
        export_nemo(case, "run")


@for_each(
    "case",
    [
        sees(of_transformers("qwen2.5-vl-7b"), pp=2, dp=4, layout=split_layout([7] * 4)),
        sees(of_transformers("qwen2.5-vl-72b"), tp=8, pp=4, dp=2, sequence_parallel=True),
        sees(EIGHT, pp=2, dp=4, layout=split_layout([17, 19])),
        sees(EXPERT, ep=8, recompute=CORE),
        sees(of_transformers("qwen2.5-vl-7b"), recompute=AGAIN),
        sees(_lengths(EIGHT, LONGEST)),
        sees(_lengths(EIGHT, FULL), pp=2, dp=4),
    ],
)
def test_what_models_with_encoders_run_there(case: TrainingJob) -> None:
    assert "dataset" not in sections(case)
