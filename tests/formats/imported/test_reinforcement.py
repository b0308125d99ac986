"""Of RL jobs the trainer is read: its degrees, the samples of a step, the longest sample."""

import re
from dataclasses import replace

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.imported.slime import LAYERS
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.tuning import BRIDGE_TARGETS, OF_EACH, Tuning, trains_encoder
from tests.imported_cases import ACTOR, arguments_of, job_of


def test_verl() -> None:
    job = job_of("verl", None)
    assert (job.world, job.tp, job.pp, job.dp) == (8, 4, 1, 2)
    assert (job.micro_batch, job.global_batch, job.model.sequence) == (2, 16 * 4, 2048)
    assert (job.model.layers, job.model.hidden) == (36, 4096)
    assert job.settings.sequence_parallel
    assert job.settings.optimizer.sharding == "optimizer"
    notes = "\n".join(arguments_of("verl", None).remarks)
    assert "rollout engine, reference model, critic and log-probabilities are not counted" in notes
    assert "16 prompts" in notes


def test_verl_has_adapters() -> None:
    tuning = job_of("verl", None, **{"actor_rollout_ref.model.lora.rank": 8}).settings.tuning
    assert tuning == Tuning(rank=8, targets=BRIDGE_TARGETS)


def test_verl_packs_tokens() -> None:
    """As many full samples as fit, in micro-batches that divide a replica's."""
    more = {f"{ACTOR}.use_dynamic_bsz": True, f"{ACTOR}.ppo_max_token_len_per_gpu": 3 * 2048}
    job = job_of("verl", None, **more)
    assert job.micro_batch == 2  # of 32 samples of a replica, 3 would fit
    one = job_of("verl", None, **{**more, f"{ACTOR}.ppo_max_token_len_per_gpu": 1024})
    assert one.micro_batch == 1
    ring = f"{ACTOR}.megatron.context_parallel_size"
    assert job_of("verl", None, **{**more, ring: 2}).micro_batch == 4  # 6 would, of 64 samples


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"actor_rollout_ref.model.lora.rank": -8}, "lora.rank: found -8, expected a whole"),
        ({"actor_rollout_ref.model.path": "me/mine"}, "found 'me/mine', a model that is not here"),
        ({"actor_rollout_ref.model.path": None}, "model.path: found null, expected the model"),
        ({f"{ACTOR}.megatron.tensor_model_parallel_size": 3}, "tensor_model_parallel_size"),
    ],
)
def test_verl_refuses(changed: dict[str, object], said: str) -> None:
    with pytest.raises(SpecError, match=r"^run\.yaml: ") as error:
        job_of("verl", None, **changed)
    assert said in str(error.value)


def test_layers_of_slime_are_read_with_what_is_not_counted() -> None:
    plain = job_of("slime", None)
    for module, remark in LAYERS.items():
        said = {"spec": [module, "get_spec"], "post_mlp_layernorm": True}
        args = arguments_of("slime", None, **said)
        assert any(f"spec: not counted: {remark}" in one for one in args.remarks)
        assert job_of("slime", None, **said).model == plain.model
    with pytest.raises(SpecError, match="spec: found a model of its own, expected Megatron"):
        job_of("slime", None, spec=["slime_plugins.models.other", "get_spec"])


@pytest.mark.parametrize(
    ("module", "name", "ours"),
    [
        ("qwen3_5", "/models/Qwen3.5-4B", "qwen3.5-4b-text"),
        ("qwen3_next", "Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"),
    ],
)
def test_delta_nets_of_slime_are_those_of_the_checkpoint(module: str, name: str, ours: str) -> None:
    wanted = read_model(f"models/{ours}.toml").architecture
    more = {
        "num_layers": wanted.layers,
        "spec": [f"slime_plugins.models.{module}", "get_spec"],
        "hf_checkpoint": name,
    }
    found = job_of("slime", None, **more).model
    mixers = [LAYER_KINDS[kind].mixer for kind in wanted.layer_kinds]
    # Launch lines do not say how many products transformers' own layers have.
    assert found.delta == replace(wanted.delta, projections=found.delta.projections)
    assert [LAYER_KINDS[kind].mixer for kind in found.layer_kinds] == mixers
    notes = arguments_of("slime", None, **more).remarks
    assert any(f"hf_checkpoint: {name}: read as {ours}" in note for note in notes)
    assert any("whole on every tensor-parallel rank" in note for note in notes)
    with pytest.raises(SpecError, match="hf_checkpoint: found null, expected the model whose"):
        job_of("slime", None, **(more | {"hf_checkpoint": None}))


def test_the_indexer_of_slime_is_that_of_the_checkpoint() -> None:
    """Nothing trains it; its keys are gathered over context-parallel ranks."""
    wanted = read_model("models/glm5.toml").architecture
    latent = {
        **{"multi_latent_attention": True, "q_lora_rank": 2048, "kv_lora_rank": 512},
        **{"qk_head_dim": 192, "v_head_dim": 256, "qk_pos_emb_head_dim": 64},
    }
    more = {
        **{"spec": ["slime_plugins.models.glm5.glm5", "get_glm5_spec"], **latent},
        **{"hf_checkpoint": "/models/GLM-5", "group_query_attention": False},
        **{"context_parallel_size": 2, "allgather_cp": True, "sequence_parallel": True},
        **{"max_position_embeddings": 4096},
    }
    job = job_of("slime", None, **more)
    assert job.model.sparse == replace(wanted.sparse, loss="none")
    assert job.settings.cp_comm == "all_gather"
    later = job_of("slime", None, **(more | {"hf_checkpoint": "/models/GLM-5.2-FP8"}))
    assert (later.model.sparse.every, later.model.sparse.offset) == (4, 3)
    notes = arguments_of("slime", None, **more).remarks
    assert any("an indexer whose products are divided among tensor-parallel" in n for n in notes)
    with pytest.raises(SpecError, match="hf_checkpoint: found null, expected the model whose inde"):
        job_of("slime", None, **(more | {"hf_checkpoint": None}))


def test_slime() -> None:
    job = job_of("slime", None)
    assert (job.world, job.tp, job.dp) == (8, 2, 4)
    assert (job.micro_batch, job.global_batch, job.model.sequence) == (4, 32, 1024)
    assert job.model.positions == "rope"
    assert not job.model.bias
    plain = job_of("slime", None, use_dynamic_batch_size=None, micro_batch_size=2)
    assert plain.micro_batch == 2
    more = {"global_batch_size": None, "num_steps_per_rollout": 2}
    assert job_of("slime", None, **more).global_batch == 8 * 4 // 2


def test_types_of_swift_are_read_or_named() -> None:
    halves = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    for said, precision in halves.items():
        found = job_of("ms-swift", None, torch_dtype=said, bf16=None)
        assert found.settings.precision == precision
    with pytest.raises(SpecError, match="torch_dtype: found 'bf16', expected one of 'bfloat16'"):
        job_of("ms-swift", None, torch_dtype="bf16")
    ranked = job_of("ms-swift", None, task_type="generative_reranker")
    assert ranked == job_of("ms-swift", None)
    with pytest.raises(SpecError, match="task_type: found 'reranker', expected causal_lm"):
        job_of("ms-swift", None, task_type="reranker")
    heads = ({"task_type": "seq_cls", "num_labels": "5"}, {"task_type": "embedding"})
    for said, outputs in zip((*heads, {"rlhf_type": "rm"}), (5, 1, 1), strict=True):
        headed = job_of("ms-swift", None, **said).model
        assert (headed.outputs, headed.tied) == (outputs, False)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-Omni-7B", "/m/Qwen2.5-Omni-7B"])
def test_models_that_hear_have_both_encoders(name: str) -> None:
    for said, trained in (({}, False), ({"freeze_vit": False, "freeze_aligner": False}, True)):
        job = job_of("ms-swift", None, model=name, max_length=2048, **said)
        assert [one.name for one in job.model.encoders] == ["encoder", "sounds"]
        assert all(one.whole and one.recomputed is trained for one in job.model.encoders)
        assert trains_encoder(job.model, job.settings.tuning) is trained
    notes = arguments_of("ms-swift", None, model=name, max_length=2048).remarks
    assert any(note.startswith("sounds: 30 seconds a sample assumed") for note in notes)


def test_swift_has_adapters_of_each_expert() -> None:
    plain, routed = (
        job_of("ms-swift", None, model=name, max_length=2048, tuner_type="lora")
        for name in ("Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B")
    )
    assert plain.settings.tuning.targets == BRIDGE_TARGETS
    assert routed.settings.tuning.targets == (*BRIDGE_TARGETS, *OF_EACH)


@pytest.mark.parametrize("name", ["Qwen/Qwen3-Omni-30B-A3B"])
def test_models_of_sounds_name_that_of_their_text(name: str) -> None:
    with pytest.raises(SpecError, match=r"parts for pictures or sounds, expected a model") as error:
        job_of("ms-swift", None, model=name)
    (repair,) = re.findall(r"--set model=(\S+) plans its text", str(error.value))
    assert job_of("ms-swift", None, model=repair).tp == job_of("ms-swift", None).tp
    with pytest.raises(SpecError, match="a model that is not here"):
        job_of("ms-swift", None, model="OpenGVLab/InternVL3_5-8B")


def test_models_of_images_have_their_encoder() -> None:
    name = "/m/Qwen2.5-VL-7B-Instruct"
    plain = job_of("ms-swift", None, model=name, max_length=2048)
    assert plain.model.encoder is not None
    assert plain.model.encoder.whole
    assert not plain.model.encoder.recomputed
    assert plain.settings.tuning.frozen == ("encoder", "projector")  # by default
    whole = job_of("ms-swift", None, model=name, max_length=2048, freeze_vit="false")
    assert whole.model.encoder is not None
    assert whole.model.encoder.recomputed
    assert whole.settings.tuning.frozen == ("projector",)
    adapted = job_of("ms-swift", None, model=name, max_length=2048, tuner_type="lora")
    assert adapted.settings.tuning.rank == 8
    assert not adapted.settings.tuning.frozen


def test_parts_of_models_of_images_that_swift_freezes_are_not_dropped() -> None:
    name = "/m/Qwen2.5-VL-7B-Instruct"
    aligned = job_of("ms-swift", None, model=name, freeze_llm="true", freeze_aligner="false")
    every = ("encoder", "embedding", "layers:0-27", "norms", "output")
    assert aligned.settings.tuning.frozen == every
    both = job_of("ms-swift", None, model=name, freeze_vit=False, freeze_aligner=False)
    assert not both.settings.tuning
    assert job_of("ms-swift", None, freeze_llm="true") == job_of("ms-swift", None)  # of text
    for key in ("freeze_aligner", "freeze_vit"):
        for way, count in (("full", 0), ("lora", 1)):
            said = {"tuner_type": way, key: "false"}
            remarks = arguments_of("ms-swift", None, model=name, **said).remarks
            assert sum(one.startswith(f"{key}: not counted: ") for one in remarks) == count
    for key in ("freeze_parameters_regex", "trainable_parameters_regex"):
        with pytest.raises(SpecError, match=f"{key}: found '.*layers.*', expected no frozen"):
            job_of("ms-swift", None, **{key: ".*layers.*"})


@pytest.mark.parametrize("key", ["packing", "padding_free", "group_by_length"])
def test_samples_of_documents_of_swift_are_counted_as_full_ones(key: str) -> None:
    for value in (True, "true", False, "false"):
        remarks = arguments_of("ms-swift", None, **{key: value}).remarks
        told = any(one.startswith(f"{key}: not counted: ") for one in remarks)
        assert told == (str(value).lower() == "true")


def test_swift() -> None:
    job = job_of("ms-swift", None)
    assert (job.world, job.tp, job.pp, job.dp) == (8, 2, 2, 2)
    assert (job.micro_batch, job.global_batch, job.model.sequence) == (2, 16, 1024)
    assert job.settings.recompute.modules == ("core_attn",)
    assert job_of("ms-swift", None, recompute_granularity="none").settings.recompute.kind == "none"
    longer = job_of("ms-swift", None, rlhf_type="grpo", max_completion_length=512)
    assert longer.model.sequence == 1536
    notes = "\n".join(arguments_of("ms-swift", None, rlhf_type="grpo").remarks)
    assert "the trainer alone is judged" in notes
    pairs = job_of("ms-swift", None, rlhf_type="dpo")
    assert (pairs.micro_batch, pairs.global_batch) == (2 * 2, 2 * 16)
    with pytest.raises(SpecError, match="expected full or lora"):
        job_of("ms-swift", None, tuner_type="longlora")
    tuning = job_of("ms-swift", None, tuner_type="lora", lora_rank=16).settings.tuning
    assert tuning == Tuning(rank=16, targets=BRIDGE_TARGETS, dropout=0.05)
    some = job_of("ms-swift", None, tuner_type="lora", target_modules="linear_qkv linear_proj")
    assert some.settings.tuning.targets == ("linear_qkv", "linear_proj")


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B-Instruct", "/data/Qwen2.5-7B-Instruct/", "x/qwen2.5-7b"],
)
def test_models_by_their_names(name: str) -> None:
    assert job_of("ms-swift", None, model=name).model.hidden == 3584


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-VL-8B-Instruct", "Qwen/Qwen2.5-8B", "7B", ""])
def test_other_names_are_no_models(name: str) -> None:
    with pytest.raises(SpecError, match="model: found"):
        job_of("ms-swift", None, model=name)


def test_chatlearn() -> None:
    job = job_of("chatlearn", None)
    assert (job.world, job.tp, job.dp) == (8, 2, 4)
    assert (job.micro_batch, job.global_batch, job.model.sequence) == (2, 32, 2048)
    packed = job_of("chatlearn", None, models__policy_trainer__packing=True)
    assert packed.micro_batch == 4  # full samples in 8192 tokens
    with pytest.raises(SpecError, match="train_backend: found 'fsdp', expected megatron"):
        job_of("chatlearn", None, runtime_args__train_backend="fsdp")
