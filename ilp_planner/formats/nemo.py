"""NeMo's Megatron-Bridge: a YAML of overrides, in the field names of its release 0.3.1.

`model` is Megatron-Core's `TransformerConfig` and the bridge's `GPTModelProvider` on top of it,
`ddp`, `optimizer`, `train` and `dist` the other parts of its `ConfigContainer`. A recipe of the
same family is loaded first and takes this file over its values (`process_config_with_overrides`):
functions, such as the MLP's activation, cannot be said in it. NeMo 2 has the same names in its
`GPTConfig` and `MegatronStrategy`.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ilp_planner.base.errors import PlanError
from ilp_planner.formats.exported import (
    Expected,
    Exported,
    commented,
    describe,
    unlike_torch,
)
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.flags import Value as Argument
from ilp_planner.formats.megatron.hybrid import EARLIER, PATTERN, hybrid_values
from ilp_planner.formats.megatron.model_features import feature_values, routing_values
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.formats.megatron.settings import FSDP_OF, state_values
from ilp_planner.job.encoder import recompute_of
from ilp_planner.settings.keys import said
from ilp_planner.settings.rules import ENCODER_FIELD
from ilp_planner.settings.table import CP_COMM, GROUPED_FIELD, GROUPED_PRODUCTS, LOSS_FUSION
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_frozen,
    check_heads,
    check_uncompiled,
    check_whole_encoders,
)
from ilp_planner.spaces.training.enumerate.unfit import hybrid_misfits
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.lengths import FULL, LONGEST, PACKED
from ilp_planner.specs.pipeline_layout import is_even, write_layout
from ilp_planner.specs.training import ORDERS, USUAL_FORMATS, Settings, TrainingJob
from ilp_planner.specs.tuning import OF_EACH

VERSION = "0.3.1"
TOOL = f"Megatron-Bridge {VERSION}"

Value = bool | int | float | str | None | list[int] | list[str] | dict[str, bool | int | str]
Section = dict[str, Value]


class Precision(NamedTuple):
    """A registered mixed precision. exact: layers at either end that are not quantised."""

    name: str
    number_format: str
    parameters: bool
    exact: int = 0


PRECISIONS = {
    "fp8-delayed": Precision("fp8_delayed_scaling", "hybrid", True),
    "fp8-current": Precision("fp8_current_scaling", "hybrid", True, 1),
    "fp8-blockwise": Precision("fp8_subchannel_scaling", "hybrid", False),
    "mxfp8": Precision("mxfp8", "e4m3", True),
}
POSITIONS = {"learned": "learned_absolute", "rope": "rope", "none": "none"}
# Arguments that are fields of the configuration under the same name.
FEATURES = (
    "layernorm_zero_centered_gamma", "softmax_type", "window_size", "window_attn_skip_freq",
    "qk_l2_norm", "no_rope_freq", "activation_func_clamp_value", "glu_linear_offset",
)  # fmt: skip
# What Megatron's arguments say of states, as the bridge says it: types by their names in torch.
STATES = ("use_precision_aware_optimizer", "sgd_momentum")
STATE_TYPES = ("exp_avg_dtype", "exp_avg_sq_dtype", "main_params_dtype")
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "uint8"}
SPLITS = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}
PIXELS = 200_704, 1_003_520  # of an image (`qwen2_5_collate_fn`)
QWEN25, QWEN3 = "Qwen2.5-VL", "Qwen3-VL"  # the models with encoders whose plans are written


def export_nemo(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the overrides of a recipe.

    Parameters
    ----------
    name: of the run, and of its file without its end.

    Raises
    ------
    PlanError: a setting that Megatron-Bridge cannot run, with its limit and the nearest possible
    value.
    """
    check_batch(job)
    check_heads(job, whole_groups=False)
    s = job.settings
    if s.order != ORDERS[0] and (s.cp > 1 or s.ep > 1):
        raise Unfit("settings.order", s.order).but(
            f"{TOOL} takes this order only without context and expert parallelism",
            f"order = {ORDERS[0]}",
        )
    check_uncompiled(job, TOOL)
    if s.precision == "fp32" and job.pp > 1:
        raise Unfit("settings.precision", "fp32").but(
            f"{TOOL} has no mixed_precision of this name, which also says how stages send",
            "pp = 1",
        )
    if s.precision == "fp32" and s.kernels.quantised:
        raise Unfit("settings.precision", "fp32").but(
            f"{TOOL} has no mixed_precision of {s.kernels.quantised} beside it", "precision = bf16"
        )
    sees = _seen(job)
    check_core(job)
    if (optimizer := s.optimizer).of_matrices:
        raise Unfit("settings.optimizer.name", optimizer.name).but(
            f"{TOOL} has Megatron-Core 0.16.1, where all ranks sum all gradients of it",
            "name = adam, or the export megatron",
        )
    sections: dict[str, Section] = {
        "train": {"micro_batch_size": job.micro_batch, "global_batch_size": job.global_batch},
        "model": {
            **_model(job),
            **sees,
            **_parallel(job),
            **_recompute(job),
            **_offload(job),
            **_kernels(job),
        },
        "ddp": _data_parallel(job),
        "optimizer": _optimizer(job),
        "dist": {"use_tp_pp_dp_mapping": s.order != ORDERS[0]},
    }
    if samples := _samples(job):
        sections["dataset"] = samples
    if s.tuning.rank:
        sections["peft"] = _adapters(job)
    elif s.tuning.frozen and not sees:
        raise Unfit("settings.tuning.frozen", ", ".join(s.tuning.frozen)).but(
            f"{TOOL} freezes nothing of a model of text but all beside adapters", "lora = 16"
        )
    if s.optimizer.sharding in FSDP_OF:
        sections["dist"]["use_megatron_fsdp"] = True
        sections["checkpoint"] = {"ckpt_format": "fsdp_dtensor"}
    top: Section = {} if s.precision == "fp32" else {"mixed_precision": _precision(job)}
    notes = _notes(job)
    head = [f"overrides for {TOOL}: {name}", *describe(job, engine=True)]
    head += [f"note: {n}" for n in notes]
    return Exported({".yaml": _yaml(head, top, sections)}, notes)


def _samples(job: TrainingJob) -> Section:
    """Return the way in which samples are made of documents (`FinetuningDatasetConfig`): packed,
    one each, padded to the longest of the micro-batch or to the sequence. Pretraining joins them.

    With context parallelism every document of a pack is divided by twice the ranks.
    """
    if job.model.encoders:  # the data sets of models that see pad to the longest of a micro-batch
        return {}
    if job.batching == PACKED:
        multiple = 2 * job.settings.cp if job.settings.cp > 1 else 1
        target = "megatron.bridge.data.datasets.packed_sequence.PackedSequenceSpecs"
        size = {"packed_sequence_size": job.model.sequence, "pad_seq_to_mult": multiple}
        return {"packed_sequence_specs": {"_target_": target, **size}}
    if job.batching == FULL:
        return {"dataset_kwargs": {"pad_to_max_length": True}}
    # The usual loader pads all of a global batch to its longest document.
    return {"dataloader_type": "cyclic"} if job.batching == LONGEST else {}


def _adapters(job: TrainingJob) -> Section:
    """Return the adapters (`peft/lora.py: LoRA`), named layer by layer if some have none."""
    tuning = job.settings.tuning
    if each := [name for name in tuning.targets if name in OF_EACH]:
        raise Unfit("settings.tuning.targets", ", ".join(each)).but(
            f"{TOOL} has one adapter for all experts of a GPU", "linear_fc1, linear_fc2"
        )
    frozen = tuning.frozen_layers(job.model.layers)
    layers = [str(layer) for layer, still in enumerate(frozen) if not still]
    targets = list(tuning.targets)
    if job.model.encoders or any(frozen):  # products of encoders may have the same names
        which = layers if any(frozen) else ["*"]
        targets = [f"*.layers.{layer}.*.{name}" for layer in which for name in tuning.targets]
    return {
        "_target_": "megatron.bridge.peft.lora.LoRA",
        "dim": tuning.rank,
        "alpha": 2 * tuning.rank,
        "dropout": tuning.dropout,
        "target_modules": targets,
    }


def check_core(job: TrainingJob) -> None:
    """Refuse jobs that Megatron-Core below the bridge refuses or fails on later.

    Raises
    ------
    PlanError: its first rule that is broken, with the name of the argument in Megatron-LM.
    """
    # What the newest Megatron-LM refuses of losses, the Megatron-Core of this release has.
    kernels = replace(job.settings.kernels, loss_kernel="native")
    text = replace(job.model, encoder=None, sounds=None)
    job = replace(job, model=text, settings=replace(job.settings, kernels=kernels))
    for finding in check_arguments(arguments_of_job(job)):
        raise PlanError(f"{TOOL} runs Megatron-Core: {finding}")


def _model(job: TrainingJob) -> Section:
    """Return the architecture."""
    m = job.model
    if latent := m.experts.latent if m.experts else 0:
        raise Unfit("model.experts.latent", latent).but(f"{TOOL} has no such experts")
    if sparse := m.sparse:
        found = f"{sparse.top_k} keys that an indexer chooses"
        raise Unfit("model.sparse", found).but(f"{TOOL}'s Megatron-Core cannot build such layers")
    if pooled := m.compressed:
        found = f"a window of {pooled.window} tokens, and pooled keys"
        raise Unfit("model.compressed", found).but(
            f"{TOOL}'s Megatron-Core cannot build such layers"
        )
    hybrid = _hybrid(job)
    if m.positions == "learned" and m.max_position_embeddings != m.sequence:
        raise Unfit("model.max_position_embeddings", m.max_position_embeddings).but(
            f"{TOOL} has as many positions as the sequence is long",
            f"max_position_embeddings = {m.sequence}",
        )
    section: Section = {
        "num_layers": m.layers,
        "hidden_size": m.hidden,
        "ffn_hidden_size": m.ffn,
        "num_attention_heads": m.heads,
        "num_query_groups": m.kv_heads,
        "kv_channels": m.head,
        "seq_length": m.sequence,
        "vocab_size": m.vocab,
        "should_pad_vocab": True,
        "make_vocab_size_divisible_by": job.settings.vocab_multiple,
        "share_embeddings_and_output_weights": m.tied,
        "position_embedding_type": POSITIONS[m.positions],
        "normalization": NORMS[m.norm],
        "layernorm_epsilon": m.epsilon,
        "gated_linear_unit": m.gated,
        "add_bias_linear": m.bias,
        "add_qkv_bias": m.qkv_bias,
        "hidden_dropout": m.dropout,
        "attention_dropout": m.dropout,
        "qk_layernorm": m.qk_norm and m.qk_norm_of == "head",
    }
    if m.encoders:  # of three axes, and said by the recipe
        del section["position_embedding_type"]
    if m.rotary:
        section |= {"rotary_base": int(m.rotary.base), "rotary_percent": m.rotary.share}
    section |= {key: _listed(value) for key, value in _features(m).items()}
    if m.latent:
        section |= {
            "multi_latent_attention": True,
            "q_lora_rank": m.latent.query_rank or None,
            "kv_lora_rank": m.latent.key_value_rank,
            "qk_head_dim": m.latent.key,
            "qk_pos_emb_head_dim": m.latent.rotary,
            "v_head_dim": m.latent.value,
        }
    if m.experts:
        section |= {
            "num_moe_experts": m.experts.count,
            "moe_router_topk": m.experts.top_k,
            "moe_ffn_hidden_size": m.experts.ffn,
            "moe_shared_expert_intermediate_size": m.experts.shared_ffn or None,
            "moe_layer_freq": [int(has) for has in m.expert_layers],
            **{key: _listed(value) for key, value in routing_values(m.experts).items()},
        }
    section |= hybrid
    if m.prediction_layers:
        section["mtp_num_layers"] = m.prediction_layers
    if job.batching == LONGEST and job.pp > 1:
        section["variable_seq_lengths"] = True  # stages say how long what they send is
    return section


def _family(job: TrainingJob) -> str:
    """Return the name of the models with encoders that one is of; empty: of no known ones."""
    encoder = job.model.encoder
    if encoder is None or job.model.sounds:
        return ""
    return QWEN3 if encoder.deepstack else QWEN25 if encoder.window else ""


def _seen(job: TrainingJob) -> Section:
    """Return what is trained of a model with encoders (`qwen25_vl_provider.py`,
    `qwen3_vl_provider.py`). Its encoder is a module of transformers on the first stage, which all
    ranks of it compute whole and of which nothing is computed again.

    Raises
    ------
    PlanError: a model or a setting that it cannot run so, with the nearest possible value.
    """
    model, family = job.model, _family(job)
    if not model.encoders:
        return {}
    if not family:
        raise PlanError(
            f"model: found one that hears, or sees otherwise than {QWEN25} and {QWEN3}, but {TOOL} "
            "is written for these two; `ilp-plan supports` names the exports of a model"
        )
    frozen = check_frozen(job, TOOL)
    check_whole_encoders(job, TOOL)
    again = {recompute_of(job, one).granularity for one in model.encoders} - {"none"}
    if again:
        raise Unfit(ENCODER_FIELD, ", ".join(sorted(again))).but(
            f"{TOOL} computes nothing of an encoder again",
            f"{ENCODER_FIELD} = none, and in a model file as_decoder and recomputed = false",
        )
    for field, found, limit, nearest in _limits(job, family):
        raise Unfit(field, found).but(f"{TOOL}'s {family} {limit}", f"{field} = {nearest}")
    return {
        "freeze_language_model": frozen.language,
        "freeze_vision_model": frozen.encoder,
        "freeze_vision_projection": frozen.projector,
    }


def _limits(job: TrainingJob, family: str) -> Iterator[tuple[str, object, str, object]]:
    """Yield fields that models with encoders cannot run: found, what they do instead, nearest."""
    model, s, k = job.model, job.settings, job.settings.kernels
    padded, to = (LONGEST, "longest of the micro-batch") if job.pp == 1 else (FULL, "sequence")
    if job.batching not in ("", padded):
        yield "batching", job.batching, f"pads samples to the {to} with pp {job.pp}", padded
    if s.cp > 1:
        yield "settings.cp", s.cp, "needs all tokens of a sample on each rank", 1
    if k.graphs:
        what = "counts the images of a micro-batch on the host, outside of graphs"
        yield "settings.kernels.graphs", k.graphs, what, "none"
    if model.prediction_layers:
        what = "predicts one word"
        yield "model.prediction_layers", model.prediction_layers, what, 0
    after = "sends gradients and parameters after the passes, by its recipes"
    inside = "has the model of text, which Megatron-Core looks for then, inside another"
    for name, what in (
        ("overlap_grad_reduce", after),
        ("overlap_param_gather", after),
        ("overlap_moe_expert_parallel_comm", inside),
        ("defer_embedding_wgrad_compute", inside),
    ):
        if _own(job).get(name):
            yield f"settings ({name})", "true", what, "false"
    if family == QWEN25 or model.encoder is None:
        return
    if s.recompute.granularity == "full":
        what = "hands a list of images to the checkpoints of whole layers, which take none"
        yield "settings.recompute", str(s.recompute), what, "some modules, or none"
    if job.virtual > 1:
        yield "plan.virtual", job.virtual, "builds one stage a rank", 1
    if (first := job.stages[0].layers) < model.encoder.deepstack:
        what = f"adds images to the first {model.encoder.deepstack} layers on the first stage"
        yield "plan.stages", f"{first} layers there", what, f"{model.encoder.deepstack} layers"
    if s.offload.modules:
        what = "has no offloading of modules in its own forward pass"
        yield "settings.offload.modules", ", ".join(s.offload.modules), what, "none"
    if model.experts and not all(model.expert_layers):
        what = "has experts in all layers"
        yield "model.experts", f"{sum(model.expert_layers)} layers of them", what, model.layers
    if model.experts and not _own(job)[GROUPED_PRODUCTS]:
        yield GROUPED_FIELD, "false", "has grouped products of experts alone", "true"


def _hybrid(job: TrainingJob) -> Section:
    """Return the layers of a hybrid: a pattern of `MambaModelProvider`, whose stages have equally
    many of them and are one a rank, or the kinds of attention of a transformer's layers."""
    for key, found, expected in hybrid_misfits(job.model):
        raise Unfit(f"model.{key}", found).but(f"{TOOL} builds others", f"{key} = {expected}")
    values = {key: value for key, value in hybrid_values(job.model).items() if key != "spec"}
    if PATTERN in values:
        if job.virtual > 1 or len({stage.layers for stage in job.stages}) > 1:
            raise Unfit("plan.stages", write_layout(job.pipeline)).but(
                f"{TOOL} gives each rank one stage of a hybrid's layers, all of one length"
            )
        values[EARLIER] = values.pop(PATTERN)
    return {key: _listed(value) for key, value in values.items()}


def _features(model: Decoder) -> dict[str, Argument]:
    """Return the features of the model, by the names of the configuration's fields."""
    values = feature_values(model)
    return {key: value for key, value in values.items() if key in FEATURES}


def _listed(value: Argument) -> Value:
    if not isinstance(value, tuple):
        return value
    return [int(entry) for entry in value if isinstance(entry, int)]


def _parallel(job: TrainingJob) -> Section:
    """Return the degrees and the pipeline; a layout if the split is not Megatron's own."""
    s, own = job.settings, _own(job)
    section: Section = {
        "tensor_model_parallel_size": job.tp,
        "pipeline_model_parallel_size": job.pp,
        "virtual_pipeline_model_parallel_size": job.virtual if job.virtual > 1 else None,
        **{key: own[key] for key in ("context_parallel_size", "expert_model_parallel_size")},
        "expert_tensor_parallel_size": job.expert_tp,
        # as Megatron's own parser turns it off; the configuration refuses it
        "sequence_parallel": s.sequence_parallel and job.tp > 1,
    }
    if s.cp > 1:
        section |= _unusual(job, CP_COMM)
    if s.cp > 1 and s.hierarchy:
        section["hierarchical_context_parallel_sizes"] = list(s.hierarchy)
    section |= _unusual(job, "microbatch_group_size_per_vp_stage", "overlap_p2p_comm")
    if job.pp > 1 and not is_even(job.pipeline, job.model.prediction_layers):
        section["pipeline_model_parallel_layout"] = write_layout(job.pipeline)
        section |= dict.fromkeys(SPLITS, False)  # excluded by a layout; some recipes have them
    return section


def _recompute(job: TrainingJob) -> Section:
    r = job.settings.recompute
    if r.granularity == "none":
        return {}
    if r.granularity == "selective":
        return {"recompute_granularity": "selective", "recompute_modules": list(r.modules)}
    return {
        "recompute_granularity": "full",
        "recompute_method": r.method,
        "recompute_num_layers": max(1, r.layers),
        "distribute_saved_activations": r.distribute,
    }


def _offload(job: TrainingJob) -> Section:
    o = job.settings.offload
    if o.layers:
        return {"cpu_offloading": True, "cpu_offloading_num_layers": o.layers}
    if not o.modules:
        return {}
    return {
        "fine_grained_activation_offloading": True,
        "offload_modules": list(o.modules),
        "min_offloaded_tensor_size": o.smallest,
    }


def _kernels(job: TrainingJob) -> Section:
    k, own = job.settings.kernels, _own(job)
    section: Section = {
        LOSS_FUSION: own[LOSS_FUSION],
        **({"cross_entropy_fusion_impl": k.loss_kernel} if own[LOSS_FUSION] else {}),
        "bias_dropout_fusion": own["bias_dropout_fusion"],
        # there is no kernel of GeLU without a bias, and Megatron refuses the flag
        "bias_activation_fusion": k.fused_activation and (job.model.gated or job.model.bias),
        "gradient_accumulation_fusion": own["gradient_accumulation_fusion"],
    }
    section |= _unusual(
        job,
        "tp_comm_overlap",
        "overlap_moe_expert_parallel_comm",
        "defer_embedding_wgrad_compute",
        "wgrad_deferral_limit",
        "deterministic_mode",
    )
    section |= _graphs(job)
    if job.model.experts:
        section |= {key: value for key, value in own.items() if key.startswith("moe_")}
        section["moe_expert_capacity_factor"] = k.capacity or None
    return section


def _own(job: TrainingJob) -> Section:
    """Return the fields that are arguments of Megatron-LM with just the value of a setting."""
    return said(job.settings, "megatron", "")


def _unusual(job: TrainingJob, *names: str) -> Section:
    """Return some of these fields, if a job does not have their usual value."""
    own, usual = _own(job), said(Settings(), "megatron", "")
    return {name: own[name] for name in names if own[name] != usual[name]}


def _graphs(job: TrainingJob) -> Section:
    """Return CUDA graphs; one of the full iteration is a scope of the local ones here."""
    k = job.settings.kernels
    if not k.graphs:
        return {}
    whole = k.graphs == "full_iteration"
    return {
        "cuda_graph_impl": "local" if whole else k.graphs,
        "cuda_graph_scope": ["full_iteration"] if whole else list(k.graphed),
        "use_te_rng_tracker": True,
    }


def _precision(job: TrainingJob) -> str:
    """Return the name of the mixed precision, with the recipe of quantised products.

    Raises
    ------
    PlanError: there is none for the job.
    """
    s, k = job.settings, job.settings.kernels
    if not k.quantised:
        return f"{s.precision}_mixed"
    if k.quantised not in PRECISIONS:
        raise Unfit("settings.kernels.quantised", k.quantised).but(
            f"{TOOL} has mixed precisions of {', '.join(PRECISIONS)}", "quantised = mxfp8"
        )
    known = PRECISIONS[k.quantised]
    if k.number_format not in ("", known.number_format):
        raise Unfit("settings.kernels.number_format", k.number_format).but(
            f"{TOOL} has {k.quantised} in {known.number_format}",
            f"number_format = {known.number_format}",
        )
    if k.quantised_parameters != known.parameters:
        raise Unfit("settings.kernels.quantised_parameters", str(k.quantised_parameters)).but(
            f"{TOOL} has it {str(known.parameters).lower()} with {k.quantised}",
            f"quantised_parameters = {str(known.parameters).lower()}",
        )
    for name, count in (("exact_first", k.exact_first), ("exact_last", k.exact_last)):
        if count not in (0, known.exact):
            raise Unfit(f"settings.kernels.{name}", count).but(
                f"{TOOL} has {known.exact} with {k.quantised}", f"{name} = {known.exact}"
            )
    return f"{s.precision}_with_{known.name}_mixed"


def _data_parallel(job: TrainingJob) -> Section:
    o, own = job.settings.optimizer, _own(job)
    names = ("overlap_grad_reduce", "overlap_param_gather", "num_distributed_optimizer_instances")
    section: Section = {
        "use_distributed_optimizer": o.sharding != "none",
        "grad_reduce_in_fp32": o.gradient == 4,
        **{name: own[name] for name in names},
    }
    if o.sharding in FSDP_OF:
        section["use_megatron_fsdp"] = True
        section["data_parallel_sharding_strategy"] = FSDP_OF[o.sharding]
    return section


def _optimizer(job: TrainingJob) -> Section:
    o = job.settings.optimizer
    section: Section = {"optimizer": o.name, "use_distributed_optimizer": o.sharding != "none"}
    if o.offload:
        section |= {
            "optimizer_cpu_offload": True,
            "optimizer_offload_fraction": o.offload,
            "overlap_cpu_optimizer_d2h_h2d": o.overlap_offload,
        }
    states = state_values(o, job.settings.precision)
    section |= {key: _listed(states[key]) for key in STATES if key in states}
    types = {key: str(states[key]) for key in STATE_TYPES if key in states}
    return section | {key: f"torch.{TYPES[name]}" for key, name in types.items()}


def _notes(job: TrainingJob) -> tuple[str, ...]:
    notes = [*unlike_torch(job, TOOL)]
    if job.settings.tuning.rank:
        notes.append("checkpoint.pretrained_checkpoint must be set in the recipe, for adapters")
    family = _family(job)
    if job.model.gated and job.model.activation == "silu" and not family:
        notes.append("model.activation_func: a recipe with SwiGLU (silu) must be the base")
    if job.model.activation not in ("gelu", "silu"):
        notes.append(f"model.activation_func: {job.model.activation} must be set in the recipe")
    if job.model.rotary and job.model.rotary.scaling:
        scaling = job.model.rotary.scaling
        notes.append(f"model.rotary.scaling: {scaling} must be set in the recipe")
    if job.model.latent:
        notes.append("model: a recipe with latent attention must be the base (MLAModelProvider)")
    if family:
        notes += [
            f"model: a recipe of {family} with this model's hf_path must be the base, which its "
            "encoder is read of, and vlm_step's forward_step its step",
            *_resized(job),
        ]
        if family == QWEN3 and job.padded_vocab != job.model.vocab:
            notes.append(f"settings.vocab_multiple: {job.model.vocab} words here, not padded")
    if job.settings.kernels.implementation == "local":
        notes.append(
            "model.transformer_layer_spec: Transformer Engine unless local_layer_spec is given"
        )
    told = said(job.settings, "megatron", "")["attention_backend"]
    backend = told or job.settings.kernels.attention
    if told or backend == "unfused":
        notes.append(f"model.attention_backend: AttnBackend.{backend} must be set in the recipe")
    k = job.settings.kernels
    if k.fp8_attention:
        notes.append(
            "mixed_precision.fp8_dot_product_attention = true must be set in the recipe, as no "
            "named mixed_precision has it"
        )
    if job.settings.optimizer.master == 2 and k.quantised != "fp8-delayed":
        notes.append(
            "settings.optimizer.master: 2; 4 here, as mixed_precision names the recipe tensorwise "
            "where there is none"
        )
    if k.quantised:
        known = PRECISIONS[k.quantised]
        if (k.exact_first, k.exact_last) != (known.exact, known.exact):
            notes.append(
                f"settings.kernels.exact_first, exact_last: {k.exact_first}, {k.exact_last}; "
                f"mixed_precision has {known.exact}, {known.exact}"
            )
        if not k.number_format and known.number_format != USUAL_FORMATS[k.quantised]:
            notes.append(f"settings.kernels.number_format: {known.number_format} here")
    if k.graphs:
        notes.append("rng.te_rng_tracker = true must be set in the recipe, for CUDA graphs")
    if k.graphs == "full_iteration":
        notes.append(
            "rerun_state_machine.check_for_nan_in_loss and ddp.check_for_nan_in_grad must "
            "be false in the recipe, for a graph of the full iteration"
        )
    if job.settings.overlap_tensor or job.settings.overlap_experts:
        notes.append("comm_overlap of the recipe, where it has one, takes over model's overlaps")
    if job.settings.offload.modules:
        notes.append("NVTE_CPU_OFFLOAD_V1=1 must be set, or weights are offloaded too")
    if job.tp > 1 or job.settings.cp > 1:
        notes.append("CUDA_DEVICE_MAX_CONNECTIONS=1 must be set before Blackwell")
    return tuple(notes)


def _resized(job: TrainingJob) -> Iterator[str]:
    """Yield a note on images that the bridge makes smaller or larger, and on lengths."""
    encoder = job.model.encoder
    if encoder and not PIXELS[0] <= (size := encoder.image_size) ** 2 <= PIXELS[1]:
        yield (
            f"model.encoder.image_size: {size}: collate.py has images of {PIXELS[0]:,} to "
            f"{PIXELS[1]:,} pixels, unless collate_impl is another"
        )
    if job.batching == LONGEST:
        yield "batching: longest: vlm_step pads to a multiple of 128 tokens"


def _yaml(head: list[str], top: Section, sections: dict[str, Section]) -> str:
    """Return YAML text; JSON's scalars and flat lists are YAML's as well."""
    lines = commented(head)
    lines += [f"{key}: {_scalar(value)}" for key, value in top.items()]
    for name, section in sections.items():
        lines.append(f"{name}:")
        lines += [f"  {key}: {_scalar(value)}" for key, value in section.items()]
    return "\n".join(lines) + "\n"


def _scalar(value: Value) -> str:
    text = json.dumps(value)
    # YAML 1.1 takes 1e-05 for a text, 1.0e-05 for a number
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text
