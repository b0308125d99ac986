"""Vision encoders in a `config.json`, by the type of the whole model.

Defaults are those of `transformers`' configurations.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ilp_planner.base.limits import LAYERS
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.hugging_face.config import Config

IMAGE = 448  # pixels of a side, where a configuration takes any size
DEEPSTACK = 3  # inner layers with projectors, where a configuration names none
VISION = "vision_config"


def qwen2_vl(vision: Config, whole: Config) -> Encoder:
    """Qwen2-VL: layer norms, MLPs of four times the width, attention to all patches."""
    width = vision.whole("embed_dim", 1280)
    return Encoder(
        layers=vision.whole("depth", 32, most=LAYERS),
        hidden=width,
        heads=vision.whole("num_heads", 16),
        ffn=width * vision.whole("mlp_ratio", 4),
        activation="quick_gelu",
        **_patches(vision, 14),
        patch_bias=False,
        projector_norm="patch",
    )


def qwen2_5_vl(vision: Config, whole: Config) -> Encoder:
    """Qwen2.5-VL: gated MLPs, and windows of attention in all but a few layers."""
    return Encoder(
        layers=vision.whole("depth", 32, most=LAYERS),
        hidden=vision.whole("hidden_size", 1280),
        heads=vision.whole("num_heads", 16),
        ffn=vision.whole("intermediate_size", 3420),
        gated=True,
        activation="silu",
        norm="rmsnorm",
        **_patches(vision, 14),
        patch_bias=False,
        window=vision.whole("window_size", 112),
        full_layers=_named_layers(vision, "fullatt_block_indexes", 4),
        projector_norm="patch",
    )


def qwen3_vl(vision: Config, whole: Config) -> Encoder:
    """Qwen3-VL: learnt positions, and projectors of inner layers (deepstack). Megatron-Bridge
    recomputes its layers as it does the decoder's."""
    return Encoder(
        layers=vision.whole("depth", 27, most=LAYERS),
        hidden=vision.whole("hidden_size", 1152),
        heads=vision.whole("num_heads", 16),
        ffn=vision.whole("intermediate_size", 4304),
        **_patches(vision, 16),
        positions=vision.whole("num_position_embeddings", 2304),
        projector_norm="patch",
        deepstack=_named_layers(vision, "deepstack_visual_indexes", DEEPSTACK),
        as_decoder=True,
    )


def qwen3_5(vision: Config, whole: Config) -> Encoder:
    """Qwen3.5: as Qwen3-VL, without projectors of inner layers."""
    return replace(qwen3_vl(vision, whole), deepstack=0)


def qwen3_omni(vision: Config, whole: Config) -> Encoder:
    """Qwen3-Omni: as Qwen3-VL, a module of transformers in Megatron-Bridge."""
    return replace(qwen3_vl(vision, whole), as_decoder=False)


def internvl(vision: Config, whole: Config) -> Encoder:
    """InternVL: tiles of one size, whose patches are merged by a pixel shuffle."""
    if vision.flag("use_qk_norm", False):
        raise vision.error("use_qk_norm", "false: an encoder with normed keys is not modelled")
    size, patch = _side(vision, "image_size", 448), _side(vision, "patch_size", 14)
    return Encoder(
        layers=vision.whole("num_hidden_layers", 24, most=LAYERS),
        hidden=vision.whole("hidden_size", 1024),
        heads=vision.whole("num_attention_heads", 16),
        ffn=vision.whole("intermediate_size", 4096),
        patch=patch,
        merge=2,
        image_size=size,
        fixed_size=True,
        class_token=True,
        positions=(size // patch) ** 2 + 1,
        vectors=1,
        scales=2,
        projector_norm="merged",
        projector_ffn=_text(whole).whole("hidden_size"),
    )


def llava(vision: Config, whole: Config) -> Encoder:
    """LLaVA 1.5: CLIP's vision transformer, and a projector of two products."""
    size, patch = vision.whole("image_size", 224), vision.whole("patch_size", 32)
    return Encoder(
        layers=vision.whole("num_hidden_layers", 12, most=LAYERS),
        hidden=vision.whole("hidden_size", 768),
        heads=vision.whole("num_attention_heads", 12),
        ffn=vision.whole("intermediate_size", 3072),
        activation="quick_gelu",
        patch=patch,
        image_size=size,
        fixed_size=True,
        patch_bias=False,
        class_token=True,
        positions=(size // patch) ** 2 + 1,
        vectors=5,  # a class token, norms before and after the layers
        projector_ffn=_text(whole).whole("hidden_size", 4096),
    )


def _text(whole: Config) -> Config:
    """Return the configuration of the decoder."""
    return whole.inside("text_config") if whole.has("text_config") else whole


def _named_layers(vision: Config, key: str, usual: int) -> int:
    """Return the number of layers that a list names; an empty one names none."""
    return len(vision.wholes(key)) if vision.has(key) else usual


def _side(vision: Config, key: str, default: int) -> int:
    """Return the pixels of a side; a list has those of both sides."""
    found = vision.values.get(key)
    side = found[0] if isinstance(found, list) and found else found
    if side is None:
        return default
    if isinstance(side, bool) or not isinstance(side, int) or side < 1:
        raise vision.error(key, "a whole number of pixels")
    return side


def _patches(vision: Config, patch: int) -> dict[str, Any]:
    """Return the fields of an encoder that takes images of any size: those of its patches, and the
    size nearest to `IMAGE` that they divide. patch: pixels of a side by default."""
    patch = vision.whole("patch_size", patch)
    merge = vision.whole("spatial_merge_size", 2)
    side = patch * merge
    return {
        "patch": patch,
        "frames": vision.whole("temporal_patch_size", 2),
        "merge": merge,
        "image_size": max(1, round(IMAGE / side)) * side,
    }


ENCODERS: Mapping[str, Callable[[Config, Config], Encoder]] = {
    "qwen2_vl": qwen2_vl,
    "qwen2_5_vl": qwen2_5_vl,
    "qwen3_vl": qwen3_vl,
    "qwen3_vl_moe": qwen3_vl,
    "qwen3_5": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "internvl": internvl,
    "llava": llava,
    "qwen2_5_omni_thinker": qwen2_5_vl,
    "qwen3_omni_moe_thinker": qwen3_omni,
}
