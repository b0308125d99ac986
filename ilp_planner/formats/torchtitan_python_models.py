"""A decoder as torchtitan 0.3.0 builds it: calls of its own builders, with literals alone.

Its flavors are not used: they fix rotary base, scaling and epsilon, and these change the trained
model.
Sources: `models/llama3`, `models/qwen3`, `models/deepseek_v3` (`__init__.py`: the builders of
layers; `model.py`: YaRN's factor on scores), `models/common/config_utils.py`, `rope.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ilp_planner.spaces.runtimes.torchtitan_python_models import SCALINGS
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Experts, Rotary

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
