"""Which of torchtitan's models a decoder is, in the names of its `ModelArgs` (release 0.2.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.formats.exported import refusal

if TYPE_CHECKING:
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import TrainingJob

Arguments = dict[str, object]
TOOL = "torchtitan 0.2.2"
CLASSES = {
    "llama3": "TransformerModelArgs",
    "qwen3": "Qwen3ModelArgs",
    "deepseek_v3": "DeepSeekV3ModelArgs",
}
# `models/*/__init__.py` of release 0.2.2: dim, layers, heads, key-value heads, MLP width
LLAMA3 = {
    "8B": (4096, 32, 32, 8, 14336),
    "70B": (8192, 80, 64, 8, 28672),
    "405B": (16384, 126, 128, 8, 53248),
}
LLAMA3_VOCAB = 128256
# dim, layers, heads, key-value heads, MLP width, tied, (experts, top_k, expert width)
QWEN3 = {
    "0.6B": (1024, 28, 16, 8, 3072, True, None),
    "1.7B": (2048, 28, 16, 8, 6144, True, None),
    "4B": (2560, 36, 32, 8, 9728, True, None),
    "8B": (4096, 36, 32, 8, 12288, False, None),
    "14B": (5120, 40, 40, 8, 17408, False, None),
    "32B": (5120, 64, 64, 8, 25600, False, None),
    "30B-A3B": (2048, 48, 32, 4, 6144, False, (128, 8, 768)),
    "235B-A22B": (4096, 94, 64, 4, 12288, False, (128, 8, 1536)),
}
QWEN3_VOCAB, QWEN3_HEAD = 151936, 128
# vocab, dim, layers, dense layers, heads, MLP width, experts, top_k, width, shared, query rank
DEEPSEEK = {
    "16B": (102400, 2048, 27, 1, 16, 10944, 64, 6, 1408, 2, 0),
    "236B": (102400, 5120, 60, 1, 128, 12288, 160, 6, 1536, 2, 1536),
    "671B": (129280, 7168, 61, 3, 128, 18432, 256, 8, 2048, 1, 1536),
}
DEEPSEEK_LATENT = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


@dataclass(frozen=True, slots=True)
class TitanModel:
    """A model in torchtitan's words. arguments: of its `ModelArgs`, empty for a known flavor."""

    name: str
    flavor: str
    arguments: Arguments
    notes: tuple[str, ...] = ()


def titan_model(job: TrainingJob) -> TitanModel:
    """Return the flavor, or the class with its arguments.

    Raises
    ------
    PlanError: torchtitan has no such model.
    """
    model = job.model
    _check_common(job)
    if model.latent:
        name, arguments = "deepseek_v3", _deepseek(model)
    elif _is_llama(model):
        name, arguments = "llama3", _llama(model)
    else:
        name, arguments = "qwen3", _qwen(model)
        if job.pp > 1:
            raise refusal("pp", job.pp, f"{TOOL} has no pipeline for qwen3 and its kin", "pp = 1")
    for flavor, known in flavors()[name].items():
        # its flavors of DeepSeek have flex attention, which context parallelism does not take
        if known == arguments and not (name == "deepseek_v3" and job.settings.cp > 1):
            return TitanModel(name, flavor, {})
    notes = (
        ("rotary base: torchtitan's default of the model class", "router: softmax scores, normed")
        if model.experts
        else ("rotary base: torchtitan's default of the model class",)
    )
    return TitanModel(name, "planned", arguments, notes)


def flavors() -> dict[str, dict[str, Arguments]]:
    """Return the arguments of torchtitan's own flavors; `ffn` stands for llama3's two."""
    llama: dict[str, Arguments] = {
        flavor: {
            "dim": dim,
            "n_layers": layers,
            "n_heads": heads,
            "n_kv_heads": groups,
            "vocab_size": LLAMA3_VOCAB,
            "ffn": ffn,
        }
        for flavor, (dim, layers, heads, groups, ffn) in LLAMA3.items()
    }
    qwen: dict[str, Arguments] = {}
    for flavor, (dim, layers, heads, groups, ffn, tied, experts) in QWEN3.items():
        qwen[flavor] = {
            "vocab_size": QWEN3_VOCAB,
            "head_dim": QWEN3_HEAD,
            "dim": dim,
            "n_layers": layers,
            "n_heads": heads,
            "n_kv_heads": groups,
            "qk_norm": True,
            "hidden_dim": ffn,
            "enable_weight_tying": tied,
        }
        if experts:
            count, top_k, width = experts
            qwen[flavor] |= {
                "moe_enabled": True,
                "moe_inter_dim": width,
                "moe_args": _routed(count, top_k, 0),
            }
    deepseek: dict[str, Arguments] = {
        flavor: {
            "vocab_size": vocab,
            "dim": dim,
            "inter_dim": ffn,
            "moe_inter_dim": width,
            "n_layers": layers,
            "n_dense_layers": dense,
            "n_heads": heads,
            "moe_args": _routed(count, top_k, shared),
            "q_lora_rank": query,
            **DEEPSEEK_LATENT,
        }
        for flavor, (
            vocab,
            dim,
            layers,
            dense,
            heads,
            ffn,
            count,
            top_k,
            width,
            shared,
            query,
        ) in DEEPSEEK.items()
    }
    return {"llama3": llama, "qwen3": qwen, "deepseek_v3": deepseek}


def model_module(model: TitanModel, identifier: str) -> str:
    """Return the Python module that registers a model with torchtitan."""
    names = CLASSES[model.name]
    values = dict(model.arguments)
    experts = values.pop("moe_args", None)
    if (ffn := values.pop("ffn", None)) is not None:
        values |= _llama_width(int(str(values["dim"])), int(str(ffn)))
    lines = [f"    {key}={value!r},\n" for key, value in values.items()]
    imports = [
        f"from torchtitan.models.{model.name} import {names}, get_train_spec\n",
        "from torchtitan.protocols.train_spec import register_train_spec\n",
    ]
    if isinstance(experts, dict):
        imports.insert(1, "from torchtitan.models.moe import MoEArgs\n")
        inner = {**experts, "score_func": "softmax", "route_norm": True}
        inner["score_before_experts"] = False
        lines.append(
            f"    moe_args=MoEArgs({', '.join(f'{k}={v!r}' for k, v in inner.items())}),\n"
        )
    return (
        f'"""The model of a plan, for {TOOL}; imported through experimental.custom_import."""\n\n'
        "from dataclasses import replace\n\n"
        f"{''.join(imports)}\n"
        f"PLANNED = {names}(\n{''.join(lines)})\n\n"
        f"register_train_spec({identifier!r}, "
        'replace(get_train_spec(), model_args={"planned": PLANNED}))\n'
    )


def _llama_width(dim: int, ffn: int) -> Arguments:
    """Return what makes llama3's `FeedForward` exactly so wide.

    It takes 2/3 of 4 dim times the multiplier, rounded down and then up to a multiple.
    """
    return {"ffn_dim_multiplier": ffn / int(8 * dim / 3), "multiple_of": ffn}


def _check_common(job: TrainingJob) -> None:
    """Refuse what none of torchtitan's language models has."""
    m, k = job.model, job.settings.kernels
    wrong: tuple[tuple[str, object, bool, str, str], ...] = (
        ("model.norm", m.norm, m.norm != "rmsnorm", "norm all with RMSNorm", "rmsnorm"),
        ("model.positions", m.positions, m.positions != "rope", "rotate positions", "rope"),
        ("model.gated", m.gated, not m.gated, "have gated MLPs", "true"),
        ("model.bias", m.bias, m.bias, "have no biases", "false"),
        ("model.qkv_bias", m.qkv_bias, m.qkv_bias, "have no biases", "false"),
        ("model.dropout", m.dropout, m.dropout > 0, "have no dropout", "0"),
        (
            "model.prediction_layers",
            m.prediction_layers,
            m.prediction_layers > 0,
            "predict one token",
            "0",
        ),
        ("settings.kernels.capacity", k.capacity, k.capacity > 0, "never drop tokens", "0"),
    )
    for field, found, bad, limit, nearest in wrong:
        if bad:
            name = field.rsplit(".", 1)[1]
            raise refusal(field, found, f"{TOOL}'s models {limit}", f"{name} = {nearest}")


def _is_llama(m: Decoder) -> bool:
    own = m.head * m.heads == m.hidden
    return own and not (m.experts or m.qk_norm or m.tied)


def _llama(m: Decoder) -> Arguments:
    return {
        "dim": m.hidden,
        "n_layers": m.layers,
        "n_heads": m.heads,
        "n_kv_heads": m.kv_heads,
        "vocab_size": m.vocab,
        "ffn": m.ffn,
    }


def _qwen(m: Decoder) -> Arguments:
    arguments: Arguments = {
        "vocab_size": m.vocab,
        "head_dim": m.head,
        "dim": m.hidden,
        "n_layers": m.layers,
        "n_heads": m.heads,
        "n_kv_heads": m.kv_heads,
        "qk_norm": m.qk_norm,
        "hidden_dim": m.ffn,
        "enable_weight_tying": m.tied,
    }
    if m.experts:
        if not all(m.expert_layers):
            raise refusal(
                "model.experts",
                f"{sum(m.expert_layers)} of {m.layers} layers",
                f"{TOOL}'s qwen3 has experts in all layers or in none",
            )
        arguments |= {
            "moe_enabled": True,
            "moe_inter_dim": m.experts.ffn,
            "moe_args": _routed(m.experts.count, m.experts.top_k, _shared(m)),
        }
    return arguments


def _deepseek(m: Decoder) -> Arguments:
    assert m.latent is not None
    if m.experts is None:
        raise refusal("model.experts", "none", f"{TOOL} has latent attention only with experts")
    dense = m.layers - sum(m.expert_layers)
    if m.expert_layers != tuple(i >= dense for i in range(m.layers)):
        raise refusal(
            "model.experts",
            f"experts in layers {[i for i, e in enumerate(m.expert_layers) if e]}",
            f"{TOOL}'s deepseek_v3 has its dense layers first",
        )
    for field, found, wanted in (("qk_norm", m.qk_norm, True), ("tied", m.tied, False)):
        if found != wanted:
            raise refusal(
                f"model.{field}",
                found,
                f"{TOOL}'s deepseek_v3 has it {str(wanted).lower()}",
                f"{field} = {str(wanted).lower()}",
            )
    return {
        "vocab_size": m.vocab,
        "dim": m.hidden,
        "inter_dim": m.ffn,
        "moe_inter_dim": m.experts.ffn,
        "n_layers": m.layers,
        "n_dense_layers": dense,
        "n_heads": m.heads,
        "moe_args": _routed(m.experts.count, m.experts.top_k, _shared(m)),
        "q_lora_rank": m.latent.query_rank,
        "kv_lora_rank": m.latent.key_value_rank,
        "qk_nope_head_dim": m.latent.key,
        "qk_rope_head_dim": m.latent.rotary,
        "v_head_dim": m.latent.value,
    }


def _routed(count: int, top_k: int, shared: int) -> Arguments:
    return {"num_experts": count, "num_shared_experts": shared, "top_k": top_k}


def _shared(m: Decoder) -> int:
    """Return how many experts wide the shared expert is."""
    assert m.experts is not None
    if m.experts.shared_ffn % m.experts.ffn:
        raise refusal(
            "model.experts.shared_ffn",
            m.experts.shared_ffn,
            f"{TOOL} takes whole multiples of experts.ffn ({m.experts.ffn})",
        )
    return m.experts.shared_ffn // m.experts.ffn
