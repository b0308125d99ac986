"""Decoders as torchtitan's models, in the names of its `ModelArgs` (release 0.2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ilp_planner.spaces.runtimes.limits import Unfit, check_usual_model
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import TrainingJob

Arguments = dict[str, object]
TOOL = "torchtitan 0.2.2"
LLAMA_KEYS = ("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "ffn")
QWEN_KEYS = (
    "vocab_size", "head_dim", "dim", "n_layers", "n_heads", "n_kv_heads", "qk_norm", "hidden_dim",
    "enable_weight_tying",
)  # fmt: skip
DEEPSEEK_KEYS = (
    "vocab_size", "dim", "inter_dim", "moe_inter_dim", "n_layers", "n_dense_layers", "n_heads",
    "moe_args", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
)  # fmt: skip
# The flavors of `models/*/__init__.py` of release 0.2.2, in the order of the keys.
LLAMA3 = {
    "8B": (4096, 32, 32, 8, 128256, 14336),
    "70B": (8192, 80, 64, 8, 128256, 28672),
    "405B": (16384, 126, 128, 8, 128256, 53248),
}
QWEN3 = {
    "0.6B": (151936, 128, 1024, 28, 16, 8, True, 3072, True),
    "1.7B": (151936, 128, 2048, 28, 16, 8, True, 6144, True),
    "4B": (151936, 128, 2560, 36, 32, 8, True, 9728, True),
    "8B": (151936, 128, 4096, 36, 32, 8, True, 12288, False),
    "14B": (151936, 128, 5120, 40, 40, 8, True, 17408, False),
    "32B": (151936, 128, 5120, 64, 64, 8, True, 25600, False),
    "30B-A3B": (151936, 128, 2048, 48, 32, 4, True, 6144, False),
    "235B-A22B": (151936, 128, 4096, 94, 64, 4, True, 12288, False),
}
# experts, top_k, width
QWEN3_EXPERTS = {"30B-A3B": (128, 8, 768), "235B-A22B": (128, 8, 1536)}
# moe_args: experts, top_k, shared
DEEPSEEK = {
    "16B": (102400, 2048, 10944, 1408, 27, 1, 16, (64, 6, 2), 0, 512, 128, 64, 128),
    "236B": (102400, 5120, 12288, 1536, 60, 1, 128, (160, 6, 2), 1536, 512, 128, 64, 128),
    "671B": (129280, 7168, 18432, 2048, 61, 3, 128, (256, 8, 1), 1536, 512, 128, 64, 128),
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
    PlanError: torchtitan lacks the model.
    """
    model = job.model
    _check_common(job)
    check_usual_model(job, TOOL)
    if model.latent:
        name, arguments = "deepseek_v3", _deepseek(model)
    elif _is_llama(model):
        name, arguments = "llama3", _llama(model)
    else:
        name, arguments = "qwen3", _qwen(model)
        if job.pp > 1:
            raise Unfit("pp", job.pp).but(f"{TOOL} has no pipeline for qwen3 and its kin", "pp = 1")
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
    qwen = {flavor: _named(QWEN_KEYS, row) for flavor, row in QWEN3.items()}
    for flavor, (count, top_k, width) in QWEN3_EXPERTS.items():
        qwen[flavor] |= _qwen_experts(count, top_k, 0, width)
    return {
        "llama3": {flavor: _named(LLAMA_KEYS, row) for flavor, row in LLAMA3.items()},
        "qwen3": qwen,
        "deepseek_v3": {flavor: _deepseek_named(row) for flavor, row in DEEPSEEK.items()},
    }


def _check_common(job: TrainingJob) -> None:
    """Refuse features that all of torchtitan's language models lack."""
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
            raise Unfit(field, found).but(f"{TOOL}'s models {limit}", f"{name} = {nearest}")


def _is_llama(m: Decoder) -> bool:
    own = m.head * m.heads == m.hidden
    return own and not (m.experts or m.qk_norm or m.tied)


def _llama(m: Decoder) -> Arguments:
    return _named(LLAMA_KEYS, (m.hidden, m.layers, m.heads, m.kv_heads, m.vocab, m.ffn))


def _qwen(m: Decoder) -> Arguments:
    sizes = m.vocab, m.head, m.hidden, m.layers, m.heads, m.kv_heads
    arguments = _named(QWEN_KEYS, (*sizes, m.qk_norm, m.ffn, m.tied))
    if m.experts:
        if not all(m.expert_layers):
            raise Unfit("model.experts", f"{sum(m.expert_layers)} of {m.layers} layers").but(
                f"{TOOL}'s qwen3 has experts in all layers or in none"
            )
        arguments |= _qwen_experts(m.experts.count, m.experts.top_k, _shared(m), m.experts.ffn)
    return arguments


def _deepseek(m: Decoder) -> Arguments:
    assert m.latent is not None
    if m.experts is None:
        raise Unfit("model.experts", "none").but(f"{TOOL} has latent attention only with experts")
    dense = m.layers - sum(m.expert_layers)
    if m.expert_layers != tuple(i >= dense for i in range(m.layers)):
        raise Unfit(
            "model.experts", f"experts in layers {[i for i, e in enumerate(m.expert_layers) if e]}"
        ).but(f"{TOOL}'s deepseek_v3 has its dense layers first")
    for field, found, wanted in (("qk_norm", m.qk_norm, True), ("tied", m.tied, False)):
        if found != wanted:
            raise Unfit(f"model.{field}", found).but(
                f"{TOOL}'s deepseek_v3 has it {str(wanted).lower()}",
                f"{field} = {str(wanted).lower()}",
            )
    sizes = m.vocab, m.hidden, m.ffn, m.experts.ffn, m.layers, dense, m.heads
    routed = m.experts.count, m.experts.top_k, _shared(m)
    latent = m.latent.key_value_rank, m.latent.key, m.latent.rotary, m.latent.value
    return _deepseek_named((*sizes, routed, m.latent.query_rank, *latent))


def _named(keys: Sequence[str], row: Sequence[object]) -> Arguments:
    return dict(zip(keys, row, strict=True))


def _qwen_experts(count: int, top_k: int, shared: int, width: int) -> Arguments:
    routed = _routed(count, top_k, shared)
    return {"moe_enabled": True, "moe_inter_dim": width, "moe_args": routed}


def _deepseek_named(row: Sequence[Any]) -> Arguments:
    named = _named(DEEPSEEK_KEYS, row)
    return named | {"moe_args": _routed(*row[DEEPSEEK_KEYS.index("moe_args")])}


def _routed(count: int, top_k: int, shared: int) -> Arguments:
    return {"num_experts": count, "num_shared_experts": shared, "top_k": top_k}


def _shared(m: Decoder) -> int:
    """Return how many experts wide the shared expert is."""
    assert m.experts is not None
    if m.experts.shared_ffn % m.experts.ffn:
        raise Unfit("model.experts.shared_ffn", m.experts.shared_ffn).but(
            f"{TOOL} takes whole multiples of experts.ffn ({m.experts.ffn})"
        )
    return m.experts.shared_ffn // m.experts.ffn
