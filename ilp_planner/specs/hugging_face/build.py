"""Common readers of Hugging Face families: sizes, norms, activation, biases, experts."""

from typing import Any

from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Experts
from ilp_planner.specs.hugging_face.config import Config, one_of
from ilp_planner.specs.hugging_face.positions import rotary_of

SEQUENCE = 4096  # tokens of a sample: no configuration says how long samples of training are
# Activations by the names of `transformers`; approximations of GELU are GELU.
ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu",
    "gelu_fast": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
}
# Sizes, by the names that files have for them.
SIZES = {
    "hidden": ("hidden_size", "n_embd"),
    "heads": ("num_attention_heads", "n_head"),
    "positions": ("max_position_embeddings", "n_positions"),
}


def decoder(
    config: Config,
    *,
    epsilon: str = "rms_norm_eps",
    usual_epsilon: float = 1e-6,
    act: str = "hidden_act",
    usual_act: str = "silu",
    tied: bool = False,
    **choices: Any,
) -> Decoder:
    """Return a decoder; by default one like Llama: RMSNorm, SwiGLU, rotary positions, no bias.

    Parameters
    ----------
    epsilon, act: keys of the epsilon of norms and of the activation. usual_epsilon, usual_act,
        tied: defaults of the file. choices: fields of the decoder that are otherwise.
    """
    heads = config.whole(config.first(*SIZES["heads"]))
    longest = choices.pop("longest", None)
    longest = config.whole(config.first(*SIZES["positions"]), longest)
    named = config.text(act, usual_act)
    if named not in ACTIVATIONS:
        raise config.error(act, one_of(sorted(ACTIVATIONS)))
    values: dict[str, Any] = {
        "layers": config.layers,
        "hidden": config.whole(config.first(*SIZES["hidden"])),
        "heads": heads,
        "sequence": min(SEQUENCE, longest),
        "max_position_embeddings": longest,
        "vocab": config.whole("vocab_size"),
        "gated": True,
        "bias": False,
        "norm": "rmsnorm",
        "positions": "rope",
        "tied": config.flag("tie_word_embeddings", tied),
        "dropout": 0.0,
        "epsilon": config.number(epsilon, usual_epsilon),
        "activation": ACTIVATIONS[named],
    }
    if "ffn" not in choices:
        values["ffn"] = config.whole("intermediate_size")
    if "kv_heads" not in choices:
        values["kv_heads"] = config.whole("num_key_value_heads", heads)
    if "head" not in choices:
        values["head"] = config.whole("head_dim", 0, least=0)
    values |= choices
    if values["positions"] == "rope" and "rotary" not in values:
        values["rotary"] = rotary_of(config)
    with config.blamed():
        return Decoder(**values)


def attention_biases(config: Config, *, usual: bool = False, mlp: bool = False) -> dict[str, Any]:
    """Return biases of attention alone, or of all products."""
    attention = config.flag("attention_bias", usual)
    both = config.flag("mlp_bias", mlp)
    if both and not attention:
        raise config.error("mlp_bias", "false without attention_bias", "true")
    if both:
        return {"bias": True}
    return {"qkv_bias": attention, "projection_bias": attention}


def expert_layers(flags: list[bool]) -> dict[str, Any]:
    """Return `dense_first` and `every` of `Experts`, or `experts_in` of a decoder, for layers with
    and without experts."""
    if any(flags):
        first = flags.index(True)
        later = next((i for i in range(first + 1, len(flags)) if flags[i]), 2 * first + len(flags))
        every = later - first
        if flags == [i >= first and (i - first) % every == 0 for i in range(len(flags))]:
            return {"dense_first": first, "every": min(every, len(flags))}
    return {"experts_in": tuple(flags)}


def with_experts(
    config: Config, flags: list[bool], *, experts: dict[str, Any], **choices: Any
) -> Decoder:
    """Return a decoder with experts in some layers. choices: as `decoder` takes them."""
    if not any(flags):
        return decoder(config, **choices)
    where = expert_layers(flags)
    listed = {"experts_in": where.pop("experts_in")} if "experts_in" in where else {}
    with config.blamed():
        routed = Experts(**experts, **where)
    return decoder(config, experts=routed, **listed, **choices)


def expert_count(config: Config) -> int:
    """Return the number of routed experts, under one of three names."""
    return config.whole(config.first("num_local_experts", "num_experts", "n_routed_experts"))
