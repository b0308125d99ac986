"""The Python configuration of a run, as torchtitan 0.3.0 reads it.

Since 0.3.0 torchtitan is configured by a module with a function that returns its `Trainer.Config`
(`torchtitan/config/manager.py`: `--module`, `--config`). The written code calls torchtitan's own
classes with literals: no text of a plan is ever part of the program.

A decoder as torchtitan 0.3.0 builds it: calls of its own builders, with literals alone.

Its flavors are not used: they fix rotary base, scaling and epsilon, and these change the trained
model.
Sources: `models/llama3`, `models/qwen3`, `models/deepseek_v3` (`__init__.py`: the builders of
layers; `model.py`: YaRN's factor on scores), `models/common/config_utils.py`, `rope.py`.
"""

from collections.abc import Callable, ItemsView, Mapping, Sequence
from dataclasses import dataclass

from ilp_planner.formats.exported import Expected, Exported, commented, describe, module_name
from ilp_planner.formats.torchtitan import stage_modules
from ilp_planner.settings.keys import said
from ilp_planner.spaces.runtimes.limits import TORCH_SCHEDULES
from ilp_planner.spaces.runtimes.torchtitan_python import (
    RUNTIME,
    SCALINGS,
    TOOL,
    check_model,
    check_runnable,
    differences,
    recomputes_all,
    replicas,
    takes_graphs,
)
from ilp_planner.spaces.runtimes.torchtitan_releases import is_compiled
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Experts, Rotary
from ilp_planner.specs.training import OPERATORS, TrainingJob

# ---- torchtitan python models --------------------------------------------------------------------


Literals = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One of torchtitan's folders of models.

    model: its class. rope: the class of its rotary positions. output: initial values of the output
    layer's weights, for so many channels. layers: the lines that build the layers of a decoder.
    norms_heads: the builder of its layers always norms queries and keys.
    """

    folder: str
    model: str
    layers: Callable[[Decoder], str]
    rope: str = "ComplexRoPE"
    output: str = "family._output_linear_init({})"
    norms_heads: bool = False


def call(function: str, arguments: Literals, indent: int = 4) -> str:
    """Return a call with keyword arguments that are literals, one on each line."""
    margin = " " * indent
    lines = [f"{margin}    {name}={value!r},\n" for name, value in arguments.items()]
    return f"{function}(\n{''.join(lines)}{margin})"


def family_of(model: Decoder) -> Family:
    """Return the family with the layers of a decoder."""
    if model.latent:
        return DEEPSEEK
    plain = model.head * model.heads == model.hidden and not model.qk_norm
    return LLAMA if plain and model.experts is None else QWEN


def rope_literals(model: Decoder) -> Literals:
    """Return the arguments of the class of rotary positions."""
    rotary = model.rotary or Rotary()
    width = model.latent.rotary if model.latent else model.head
    found: dict[str, object] = {
        "dim": width,
        "max_seq_len": model.max_position_embeddings,
        "theta": rotary.base,
    }
    if rotary.scaling:
        name, factors, original = SCALINGS[rotary.scaling]
        values = (rotary.factor, rotary.slow, rotary.fast)
        found |= {"scaling": name, **dict(zip(factors, values, strict=True))}
        found[original] = rotary.original
        if rotary.scaling == "yarn":
            found["truncate"] = rotary.rounded
    return found


def model_text(model: Decoder) -> str:
    """Return the function `model`, which makes torchtitan's configuration of a decoder."""
    family = family_of(model)
    words = '{"weight": skip_param_init}' if model.tied else "family._EMBEDDING_INIT"
    config: Literals = {
        "dim": model.hidden,
        "vocab_size": model.vocab,
        "enable_weight_tying": model.tied,
    }
    sizes = f"num_embeddings={model.vocab}, embedding_dim={model.hidden}"
    output = f"in_features={model.hidden}, out_features={model.vocab}"
    begin = family.output.format(model.hidden)
    norm = f"normalized_shape={model.hidden}, param_init=family._NORM_INIT"
    fixed = "".join(f"        {name}={value!r},\n" for name, value in config.items())
    return (
        f"def model() -> family.{family.model}.Config:\n"
        f"    rope = {call(f'{family.rope}.Config', rope_literals(model))}\n"
        f"{family.layers(model)}"
        f"{_adjusted(model)}"
        f"    config = family.{family.model}.Config(\n{fixed}"
        f"        tok_embeddings=Embedding.Config(\n            {sizes},\n"
        f"            param_init={words},\n        ),\n"
        f"        norm=RMSNorm.Config({norm}),\n"
        f"        lm_head=Linear.Config({output}, param_init={begin}),\n"
        "        layers=layers,\n    )\n"
        "    for _, norm, _, _ in config.traverse(RMSNorm.Config):\n"
        f"        norm.eps = {model.epsilon!r}\n"
        "    return config\n"
    )


def _builder(name: str, arguments: Literals) -> str:
    """Return a call of a family's builder of layers."""
    text = call(f"family.{name}", {**arguments, "attn_backend": "flex"})
    return f"{text.removesuffix('    )')}        rope=rope,\n    )"


def _attention(model: Decoder) -> dict[str, object]:
    return {
        "n_layers": model.layers,
        "dim": model.hidden,
        "n_heads": model.heads,
        "n_kv_heads": model.kv_heads,
    }


def _llama(model: Decoder) -> str:
    sizes = {**_attention(model), "hidden_dim": model.ffn}
    return f"    layers = {_builder('_build_llama3_layers', sizes)}\n"


def _qwen(model: Decoder) -> str:
    sizes = {**_attention(model), "head_dim": model.head}
    dense = _builder("_build_qwen3_layers", {**sizes, "hidden_dim": model.ffn})
    if model.experts is None:
        return f"    layers = {dense}\n"
    e = model.experts
    routed = _builder(
        "_build_qwen3_moe_layers",
        {
            **sizes,
            "moe_hidden_dim": e.ffn,
            "num_experts": e.count,
            "top_k": e.top_k,
            "moe_comm_backend": "standard",
        },
    )
    return _of_two_kinds(dense, routed, model.expert_layers)


def _deepseek(model: Decoder) -> str:
    assert model.latent is not None
    latent, rotary = model.latent, model.rotary or Rotary()
    e = model.experts or Experts(count=1, top_k=1, ffn=model.ffn)
    sizes: dict[str, object] = {
        "n_layers": model.layers,
        "dim": model.hidden,
        "n_heads": model.heads,
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.key_value_rank,
        "qk_nope_head_dim": latent.key,
        "qk_rope_head_dim": latent.rotary,
        "v_head_dim": latent.value,
        "mscale": rotary.magnitude or 1.0,
        "dense_hidden_dim": model.ffn,
        "moe_hidden_dim": e.ffn,
        "num_experts": e.count,
        "num_shared_experts": e.shared_ffn // e.ffn or 1,
        "router_top_k": e.top_k,
        "router_score_func": e.score,
        "moe_comm_backend": "standard",
        "non_blocking_capacity_factor": None,
    }
    dense, routed = (
        _builder("_build_dsv3_layers", {**sizes, "n_dense_layers": count})
        for count in (model.layers, 0)
    )
    return _of_two_kinds(dense, routed, model.expert_layers)


def _of_two_kinds(dense: str, routed: str, experts: Sequence[bool]) -> str:
    """Return the layers of a model, some with experts."""
    if len(set(experts)) == 1:
        return f"    layers = {routed if experts[0] else dense}\n"
    return (
        f"    dense = {dense}\n    routed = {routed}\n"
        f"    with_experts = {[int(flag) for flag in experts]!r}\n"
        "    layers = [\n        (dense, routed)[kind][number] "
        "for number, kind in enumerate(with_experts)\n    ]\n"
    )


def _adjusted(model: Decoder) -> str:
    """Return the adjustments that the builders of layers have no argument for."""
    lines = []
    if family_of(model).norms_heads and not model.qk_norm:
        lines.append("layer.attention.qk_norm = None")
    if model.qkv_bias:
        lines.append("layer.attention.qkv_linear.wqkv.bias = True")
    if not lines and not any(model.expert_layers):
        return ""
    text = "".join(f"        {line}\n" for line in lines)
    return f"    for layer in layers:\n{text}{_routing(model)}"


def _routing(model: Decoder) -> str:
    e = model.experts
    if e is None:
        return ""
    router: Literals = {
        "score_func": e.score,
        "route_norm": e.normed,
        "route_scale": e.scale,
        "num_expert_groups": e.groups if e.top_groups else None,
        "num_limited_groups": e.top_groups or None,
    }
    lines = [f"layer.moe.router.{name} = {value!r}\n" for name, value in router.items()]
    if not e.correction:
        lines.append("layer.moe.load_balance_coeff = None\n")
    if not e.shared_ffn:
        lines.append("layer.moe.shared_experts = None\n")
    elif not model.latent:
        shared = (
            f"dim={model.hidden}, hidden_dim={e.shared_ffn},\n"
            f"{' ' * 16}w1_param_init=family._LINEAR_INIT, w2w3_param_init=family._LINEAR_INIT,\n"
        )
        lines.append(
            f"layer.moe.shared_experts = make_ffn_config(\n{' ' * 16}{shared}{' ' * 12})\n"
        )
    body = "".join(f"            {line}" for line in lines)
    return f"        if layer.moe is not None:\n{body}"


LLAMA = Family(folder="llama3", model="Llama3Model", layers=_llama)
QWEN = Family(
    folder="qwen3",
    model="Qwen3Model",
    layers=_qwen,
    rope="CosSinRoPE",
    output="family._LINEAR_INIT",
    norms_heads=True,
)
DEEPSEEK = Family(folder="deepseek_v3", model="DeepSeekV3Model", layers=_deepseek)


# ---- torchtitan python ---------------------------------------------------------------------------


FUNCTION = "planned"  # what `--config` names


def export_torchtitan_python(job: TrainingJob, name: str, _: Expected | None = None) -> Exported:
    """Return the module that configures a run of this name, or raise a PlanError: a setting that
    torchtitan cannot run, with its limit and the nearest possible value."""
    check_model(job)
    check_runnable(job)
    notes = tuple(differences(job))
    head = commented(
        [
            f"{TOOL}: {name}",
            *describe(job, engine=False),
            *(f"note: {note}" for note in notes),
            f"start: torchrun ... -m torchtitan.train --module {module_name(name)} --config "
            f"{FUNCTION} --hf_assets_path ... --dataloader.dataset ...",
        ]
    )
    text = "\n".join(head) + f"\n\n{_imports(job)}\n\n{model_text(job.model)}\n\n{_planned(job)}"
    return Exported({".py": text}, notes)


@dataclass(frozen=True, slots=True)
class Import:
    """Names of one module of torchtitan."""

    module: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"from torchtitan.{self.module} import {', '.join(self.names)}"


def _imports(job: TrainingJob) -> str:
    """Return the lines that import what the module calls."""
    family, experts = family_of(job.model), job.model.experts
    found = [
        Import("components.loss", ("CrossEntropyLoss",)),
        Import("components.optimizer", ("default_adamw",)),
        Import("config", ("CompileConfig", "ParallelismConfig", "TrainingConfig")),
        Import("hf_datasets.text_datasets", ("HuggingFaceTextDataLoader",)),
        Import("models.common", (family.rope, "Embedding", "Linear", "RMSNorm")),
        Import("models", (f"{family.folder} as family",)),
        Import("trainer", ("Trainer",)),
    ]
    if experts and experts.shared_ffn and not job.model.latent:
        found.append(Import("models.common.config_utils", ("make_ffn_config",)))
    if job.model.tied:
        found.append(Import("models.common.param_init", ("skip_param_init",)))
    if policy := _policy(job):
        found.append(Import("distributed.activation_checkpoint", (policy,)))
    if job.settings.quantised:
        found += [Import(f"components.{module}", (name,)) for module, name in _converter(job)]
    lines = sorted(map(str, found))
    return "\n".join(["from dataclasses import replace", "", *lines, ""])


def _planned(job: TrainingJob) -> str:
    """Return the function that `--config` names."""
    asynchronous = said(job.settings, RUNTIME, "compile")["enable_async_tensor_parallel"]
    policy = _policy(job)
    checkpoint = f"{policy}.Config()" if policy else "None"
    return (
        f"def {FUNCTION}() -> Trainer.Config:\n"
        "    config = model()\n"
        f"{_quantised(job)}"
        '    spec = family.model_registry("debugmodel")\n'
        "    return Trainer.Config(\n"
        '        model_spec=replace(spec, flavor="planned", model=config),\n'
        f"        loss=CrossEntropyLoss.Config(global_vocab_size={job.model.vocab}),\n"
        "        optimizer=default_adamw(),\n"
        "        dataloader=HuggingFaceTextDataLoader.Config(),\n"
        f"        training={call('TrainingConfig', _training(job), 8)},\n"
        f"        parallelism={call('ParallelismConfig', _parallelism(job), 8)},\n"
        f"        activation_checkpoint={checkpoint},\n"
        f"        compile=CompileConfig(enable={is_compiled(job)!r}, "
        f"enable_async_tensor_parallel={asynchronous!r}),\n"
        "    )\n"
    )


def _training(job: TrainingJob) -> Literals:
    s = job.settings
    return {
        "seq_len": job.model.sequence,
        "local_batch_size": job.micro_batch * (job.micro_batches if job.pp > 1 else 1),
        "global_batch_size": job.global_batch,
        "dtype": "float32",
        "mixed_precision_param": "float32" if s.precision == "fp32" else "bfloat16",
        "mixed_precision_reduce": "float32",
        "enable_cpu_offload": s.optimizer.offload > 0,
        "disable_cuda_graphs": not takes_graphs(job),
    }


def _parallelism(job: TrainingJob) -> Literals:
    """Return degrees, sharding of states, schedule, and the place of every module."""
    found: dict[str, object] = {
        "data_parallel_replicate_degree": replicas(job),
        "data_parallel_shard_degree": job.dp // replicas(job),
        "fsdp_reshard_after_forward": "",
        "tensor_parallel_degree": job.tp,
        "enable_sequence_parallel": "",
        "context_parallel_degree": "",
        "expert_parallel_degree": "",
        "pipeline_parallel_degree": job.pp,
    }
    found |= said(job.settings, RUNTIME, "parallelism")
    if job.pp > 1:
        found |= {
            "pipeline_parallel_schedule": TORCH_SCHEDULES[job.schedule.name],
            "pipeline_parallel_microbatch_size": job.micro_batch,
            "module_fqns_per_model_part": stage_modules(job, output="lm_head"),
        }
    return found


def _policy(job: TrainingJob) -> str:
    """Return the class of the policy that recomputes as the plan does; empty for nothing."""
    if OPERATORS in job.settings.recompute.modules:
        return "SelectiveAC"
    return "FullAC" if recomputes_all(job) else ""


def _converter(job: TrainingJob) -> ItemsView[str, str]:
    """Return the module, and the class in it, that swaps products for quantised ones."""
    return said(job.settings, RUNTIME, "components").items()


def _quantised(job: TrainingJob) -> str:
    """Return the lines that swap the products of layers for quantised ones."""
    kernels = job.settings.kernels
    if not kernels.quantised:
        return ""
    last = job.model.layers - kernels.exact_last
    names = [f"layers.{layer}." for layer in range(kernels.exact_first, last)]
    words = f"fqns={names!r}, model_compile_enabled={is_compiled(job)!r}"
    ((_, converter),) = _converter(job)
    made = f"{converter}.Config({words}).build()"
    return f"    config = {made}.convert(config)\n"
