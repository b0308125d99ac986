"""Features of decoders that Megatron-LM cannot train: no argument of `pretrain_gpt.py` says them.

Facts from `megatron/training/arguments.py` and `megatron/core/models`, read in 2026.
"""

from collections.abc import Iterator

from ilp_planner.base.errors import SpecError
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.layer_kinds import LAYER_KINDS

# Of an MLP: gated or not -> activations that have a switch.
SWITCHED = {True: ("silu", "quick_gelu"), False: ("gelu", "relu2")}
# Constants of `--use-rope-scaling`, which only its factor can be changed of.
LLAMA3 = {"slow": 1.0, "fast": 4.0, "original": 8192}
CHUNK, KERNEL = 128, 4  # of Mamba layers


def check_model(model: Decoder) -> None:
    """Refuse a model that Megatron-LM cannot train.

    Raises
    ------
    SpecError: the first key that it cannot say, the found and the possible value.
    """
    for key, found, expected in misfits(model):
        raise SpecError(f"{key}: found {found}, expected {expected}: Megatron-LM has no other")


def misfits(model: Decoder) -> Iterator[tuple[str, object, str]]:
    """Yield inexpressible features: a key of the model, its value, and the expressible ones."""
    gate = "gated" if model.gated else "ungated"
    over_all = model.qk_norm and model.qk_norm_of == "heads"
    rows: tuple[tuple[str, object, bool, str], ...] = (
        ("norm", model.norm, model.norm_vectors == 0, "layernorm or rmsnorm"),
        ("norm_at", model.norm_at, model.norm_at != "input", "input"),
        ("parallel_norms", model.parallel_norms, model.parallel_norms > 0, "0"),
        ("qk_norm_of", model.qk_norm_of, over_all, "head or l2"),
        ("projection_bias", "true", model.projection_bias, "false"),
        ("output_bias", "true", model.output_bias, "false"),
        ("attention_softcap", model.attention_softcap, model.attention_softcap > 0, "none"),
        ("output_softcap", model.output_softcap, model.output_softcap > 0, "none"),
        (
            "activation",
            f"{model.activation}, {gate}",
            model.activation not in SWITCHED[model.gated],
            " or ".join(SWITCHED[model.gated]),
        ),
        ("window.chunked", "true", bool(model.window and model.window.chunked), "false"),
    )
    yield from ((key, found, expected) for key, found, bad, expected in rows if bad)
    yield from _rotary_misfits(model)
    yield from _sparse_misfits(model)
    yield from _compressed_misfits(model)
    yield from hybrid_misfits(model)


def _sparse_misfits(model: Decoder) -> Iterator[tuple[str, object, str]]:
    """Yield sizes that kernels of sparse attention have not (`ops/tilelang_dsa.py` and
    `ops/tilelang_indexer_bwd.py` of `megatron.core` 0.19.0)."""
    sparse, latent = model.sparse, model.latent
    if sparse is None or latent is None:
        return
    chosen = min(sparse.top_k, model.sequence)
    for key, found, bad, expected in (
        ("latent.key_value_rank", latent.key_value_rank, latent.key_value_rank != 512, "512"),
        ("latent.rotary", latent.rotary, latent.rotary != 64, "64"),
        ("sparse.top_k", chosen, chosen % 64, "a multiple of 64, with the tokens of a sample"),
        (
            "sparse.heads",
            sparse.heads,
            sparse.trained and (sparse.heads > 64 or sparse.heads % 8),
            "a multiple of 8 up to 64, or loss none",
        ),
    ):
        if bad:
            yield key, found, expected


def _compressed_misfits(model: Decoder) -> Iterator[tuple[str, object, str]]:
    """Yield sizes that compressed attention has not (`csa.py` of `megatron.core`, branch dev), and
    what no argument says of it."""
    compressed, experts = model.compressed, model.experts
    if compressed is None or experts is None:
        return
    for name, found, expected in (("near", compressed.near, 4), ("far", compressed.far, 128)):
        if found != expected:
            yield f"compressed.{name}", found, f"{expected}"


def _rotary_misfits(model: Decoder) -> Iterator[tuple[str, object, str]]:
    rotary = model.rotary
    if rotary is None:
        return
    if rotary.base % 1:
        yield "rotary.base", rotary.base, "a whole number"
    if model.compressed and rotary.scaling not in ("", "yarn"):
        yield "rotary.scaling", rotary.scaling, "yarn"
    if rotary.windowed_base not in (0, rotary.base) and not model.compressed:
        yield "rotary.windowed_base", rotary.windowed_base, f"that of all layers ({rotary.base:g})"
    kinds = ("yarn",) if model.latent else ("linear", "llama3", "yarn")
    if rotary.scaling and rotary.scaling not in kinds:
        yield "rotary.scaling", rotary.scaling, " or ".join(kinds)
    elif rotary.scaling == "linear" and rotary.factor % 1:
        yield "rotary.factor", rotary.factor, "a whole number"
    elif rotary.scaling == "llama3":
        for name, value in LLAMA3.items():
            if getattr(rotary, name) != value:
                yield f"rotary.{name}", getattr(rotary, name), f"{value:g}"


def hybrid_misfits(model: Decoder) -> list[tuple[str, object, str]]:
    """Return features of hybrids that no argument says: a key of the model, its value, and the
    expressible ones."""
    if not model.pattern:
        return []
    blocks = {LAYER_KINDS[kind].blocks for kind in model.layer_kinds}
    inner = {LAYER_KINDS[kind].inner for kind in model.layer_kinds}
    mixed = len(blocks) > 1 or (blocks == {2} and len(inner) > 1)
    mamba = model.mamba
    rows: list[tuple[str, object, bool, str]] = [
        ("pattern", model.pattern, mixed, "layers of one letter each, or of the same two blocks"),
    ]
    if mamba:
        rows += [
            ("mamba.chunk", mamba.chunk, mamba.chunk != CHUNK, f"{CHUNK}"),
            ("mamba.kernel", mamba.kernel, mamba.kernel != KERNEL, f"{KERNEL}"),
            ("mamba.conv_bias", "false", not mamba.conv_bias, "true"),
        ]
    if model.prediction_layers and 1 in blocks and not model.experts:
        rows.append(("prediction_layers", model.prediction_layers, True, "0 without experts"))
    return [(key, found, expected) for key, found, bad, expected in rows if bad]
