"""From the text of a `config.json` to a model.

The reader of every `model_type`, and known types that are not modelled.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import TypeVar

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document, read_json
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.hugging_face import dense, hybrid, routed
from ilp_planner.specs.hugging_face.config import Config, one_of
from ilp_planner.specs.hugging_face.dense import SEQUENCE
from ilp_planner.specs.hugging_face.sound import AUDIO, SOUNDS
from ilp_planner.specs.hugging_face.vision import ENCODERS, VISION
from ilp_planner.specs.model import ModelSpec

Made = TypeVar("Made")

# ---- families ------------------------------------------------------------------------------------


FAMILIES: Mapping[str, Callable[[Config], Decoder]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "ministral": dense.mistral,
    "ministral3": dense.ministral3,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "gemma": dense.gemma,
    "gemma2": dense.gemma2,
    "gemma3_text": dense.gemma3,
    "phi": dense.phi,
    "phi3": dense.phi3,
    "olmo": dense.olmo,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "nemotron": dense.nemotron,
    "glm": dense.glm,
    "glm4": dense.glm4,
    "falcon": dense.falcon,
    "gpt_neox": dense.gpt_neox,
    "gpt2": dense.gpt2,
    "gpt_bigcode": dense.gpt_bigcode,
    "starcoder2": dense.starcoder2,
    "smollm3": dense.smollm3,
    "mixtral": routed.mixtral,
    "qwen2_moe": routed.qwen2_moe,
    "qwen3_moe": routed.qwen3_moe,
    "gpt_oss": routed.gpt_oss,
    "olmoe": routed.olmoe,
    "minimax_m2": routed.minimax_m2,
    "llama4_text": routed.llama4,
    "glm4_moe": routed.glm4_moe,
    "deepseek_v2": routed.deepseek_v2,
    "deepseek_v3": routed.deepseek_v3,
    "kimi_k2": routed.deepseek_v3,
    "deepseek_v32": routed.deepseek_v32,
    "glm_moe_dsa": routed.glm_moe_dsa,
    "nemotron_h": hybrid.nemotron_h,
    "qwen3_next": hybrid.qwen3_next,
    "qwen3_5_text": hybrid.qwen3_5,
    "qwen3_5_moe_text": hybrid.qwen3_next,
    "bamba": hybrid.bamba,
    "deepseek_v4": hybrid.deepseek_v4,
}
# Models of text and something else, with the family of their text where they do not say it.
TEXT_OF: Mapping[str, str] = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl": "qwen3",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe",
    "qwen3_vl_moe_text": "qwen3_moe",
    "kimi_vl": "deepseek_v3",
    "glm4v": "glm4",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "internvl": "qwen2",
    "llava": "llama",
    "qwen2_audio": "qwen2",
    "voxtral": "llama",
    "ultravox": "llama",
    "qwen2_5_omni_thinker": "qwen2",
    "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_thinker": "qwen3_moe",
    "qwen3_omni_moe_text": "qwen3_moe",
}
# Models that hear and speak -> what of them is planned, the part that hears.
HEARS: Mapping[str, str] = dict.fromkeys(("qwen2_5_omni", "qwen3_omni_moe"), "thinker_config")
TALKER = "talker_config"
# Models that may name others in place of configurations -> the keys.
NAMED: Mapping[str, tuple[str, ...]] = {"ultravox": ("text_model_id", "audio_model_id")}
# Parts of a model that are not of text.
OTHER_PARTS = ("vision_config", "audio_config", "speech_config", "video_config")
NESTED = ("text_config", "language_config")  # what holds the part that is
# What is not modelled, and the models that have it.
LIGHTNING = "lightning attention"
LINEAR = "linear attention (gated delta nets)"
MAMBA = "Mamba layers"
SPARSE = "sparse attention, where an indexer chooses the keys"
ALIBI = "ALiBi positions"
ENCODER = "an encoder"
NOT_MODELLED: Mapping[str, str] = {
    **dict.fromkeys(
        ("mamba", "mamba2", "falcon_mamba", "falcon_h1", "jamba", "zamba", "zamba2",
         "granitemoehybrid"),
        MAMBA,
    ),
    **dict.fromkeys(
        ("olmo_hybrid", "kimi_linear"),
        LINEAR,
    ),
    **dict.fromkeys(("minimax", "minimax_m1", "minimax_text_01", "bailing_hybrid"),
                    LIGHTNING),
    **dict.fromkeys(("bloom", "mpt"), ALIBI),
    **dict.fromkeys(("bert", "roberta", "t5", "bart", "whisper", "modernbert"), ENCODER),
    **dict.fromkeys(("rwkv", "rwkv5", "rwkv6", "xlstm", "recurrent_gemma"), "recurrent layers"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "convolutions between layers of attention"),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), "embeddings for each layer"),
    **dict.fromkeys(("gemma4", "gemma4_text"),
                    "layers of two head widths, with keys that are values"),
    "mllama": "cross-attention to pictures",
    "nemotron-nas": "layers of different sizes",
    "deci": "layers of different sizes",
    "phimoe": "sparse mixer routing",
    "dbrx": "clipped queries, keys and values",
}  # fmt: skip
INDEXED = ("deepseek_v32", "glm_moe_dsa")
HYBRIDS = (
    "nemotron_h", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "bamba", "deepseek_v4",
)  # fmt: skip
# Keys that make another architecture of any family, where they have a value.
INDEXES = ("index_topk", "index_n_heads")
SIGNS: Mapping[str, str] = {
    "hybrid_override_pattern": MAMBA,
    "ssm_state_size": MAMBA,
    "mamba_d_state": MAMBA,
    "linear_num_key_heads": LINEAR,
    "full_attention_interval": LINEAR,
    **dict.fromkeys(INDEXES, SPARSE),
    "block_configs": "layers of different sizes",
    "cross_attention_layers": "cross-attention to pictures",
    "num_kv_shared_layers": "layers that share keys and values",
}
LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")
INDEXED_TYPES = ("indexed_attention",)
FULL_ATTENTION = 1  # in "attn_type_list", which MiniMax-M2 has; its elders have lightning attention


# ---- reader --------------------------------------------------------------------------------------


FILE = "config.json"
LONGEST_NAME = 200  # characters
MODELLED = "a decoder whose layers attend to all tokens before, or to the nearest"
HALF = ("float16", "torch.float16")  # types of weights that are trained in fp16


def read_config(document: Document, *, text_only: bool = False) -> ModelSpec:
    """Return the model that a `config.json` describes.

    Parameters
    ----------
    text_only: of a model of text and pictures or sounds, its text alone.

    Raises
    ------
    SpecError: one line with the file, the key, the found and the expected value.
    """
    whole = Config(read_json(document, SpecError, constants=True), file=document.name)
    named = _name(whole, document.name)
    whole, speaks = _hearing(whole)
    for key in NAMED.get(whole.text("model_type", ""), ()):
        if whole.has(key):
            own = key.replace("_model_id", "_config")
            expected = f"`{own}` with that model's configuration"
            if whole.has(own):
                expected = f"none beside `{own}`, if that is this model's configuration"
            raise whole.error(key, f"{expected}; without `{key}` the sizes in `{own}` count")
    family, config = _family(whole)
    parts = _other_parts(whole)
    encoder = None if text_only else _part(whole, VISION, ENCODERS)
    sounds = None if text_only else _part(whole, AUDIO, SOUNDS)
    for key, found in ((VISION, encoder), (AUDIO, sounds)):
        if found is not None:
            parts = [(other, what) for other, what in parts if other != key]
    if parts and not text_only:
        expected = "a model of text alone: `text_only` plans its text and nothing else"
        raise whole.error(*parts[0][:1], expected, parts[0][1])
    model = FAMILIES[family](_completed(config, whole))
    with whole.blamed():
        model = replace(model, encoder=encoder, sounds=sounds)
    precision = _precision(config, whole)
    return ModelSpec(
        name=named,
        precision=precision,
        architecture=model,
        remarks=(*_remarks(model, precision, [what for _, what in parts], config, whole), *speaks),
    )


def _part(
    whole: Config, key: str, makers: Mapping[str, Callable[[Config, Config], Made]]
) -> Made | None:
    """Return the encoder below a key, by the type of the model; None if it has none, or one that is
    not modelled."""
    make = makers.get(whole.text("model_type", ""))
    if make is None or not whole.has(key):
        return None
    own = whole.inside(key)
    with own.blamed():
        return make(own, whole)


def _hearing(whole: Config) -> tuple[Config, tuple[str, ...]]:
    """Return the part of a model that hears, and a remark on the part that speaks."""
    key = HEARS.get(whole.text("model_type", ""))
    if key is None:
        return whole, ()
    inner = whole.inside(key)
    remark = (
        f"{TALKER}: the talker, and what makes waves of its tokens, are not modelled: the thinker "
        "alone is planned, as where `enable_audio_output` is false"
    )
    return inner, (remark,) * whole.has(TALKER)


SIZES = ("num_hidden_layers", "hidden_size", "n_layer", "n_embd")


def _family(whole: Config) -> tuple[str, Config]:
    """Return the family of the text, and the object that describes it.

    Raises
    ------
    SpecError: it is not known, or not modelled.
    """
    if not whole.has("model_type"):
        raise whole.error("model_type", f"{one_of(sorted(FAMILIES))}{_hint(whole)}")
    config, kind = whole, whole.text("model_type")
    nested = next((key for key in NESTED if whole.has(key)), "")
    if nested and kind in FAMILIES and kind not in TEXT_OF and whole.has(*SIZES):
        found = f"a second model inside one of {kind!r}, which has sizes of its own"
        raise whole.error(nested, "one of the two; leave out the other", found)
    if nested:
        config = whole.inside(nested)
    own = config.text("model_type", kind)
    for place, name in ((whole, kind), (config, own)):
        if name in NOT_MODELLED:
            found = f"{name!r}, which has {NOT_MODELLED[name]}"
            raise place.error("model_type", MODELLED, found)
    family = TEXT_OF.get(own, own)
    if family not in HYBRIDS:
        _refuse_signs(whole, config, indexed=family in INDEXED)
    if family not in FAMILIES:
        near = difflib.get_close_matches(family, FAMILIES, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise config.error("model_type", f"{one_of(sorted(FAMILIES))}{meant}")
    return family, config


def _other_parts(whole: Config) -> list[tuple[str, str]]:
    """Return the parts of a model besides text: keys, and their content."""
    parts = [(key, key.removesuffix("_config") + " parts") for key in OTHER_PARTS if whole.has(key)]
    kind = whole.text("model_type")
    if not parts and kind in TEXT_OF and whole.has(*NESTED):
        return [("model_type", f"{kind!r}, which has vision parts")]
    return parts


def _hint(whole: Config) -> str:
    """Return the family that the class named in the file is of, as a repair."""
    named = whole.values.get("architectures")
    name = str(named[0]) if isinstance(named, list) and named else ""
    plain = name.removesuffix("ForCausalLM").lower()
    family = next((one for one in FAMILIES if one.replace("_", "") == plain), "")
    return f'; "model_type": "{family}" is that of {name}' if family else ""


def _refuse_signs(*places: Config, indexed: bool) -> None:
    """Refuse keys that make something else of a family than is modelled. indexed: it has an
    indexer."""
    known = INDEXED_TYPES if indexed else LAYER_TYPES
    for place in places:
        for key, what in SIGNS.items():
            if indexed and key in INDEXES:
                continue
            if place.values.get(key) not in (None, 0, [], {}):
                raise place.error(key, f"none, which is {MODELLED}", what)
        types = place.values.get("attn_type_list") or []
        if not isinstance(types, list) or any(one != FULL_ATTENTION for one in types):
            raise place.error("attn_type_list", f"ones, which is {MODELLED}", LIGHTNING)
        kinds = place.values.get("layer_types")
        for kind in kinds if isinstance(kinds, list) else ():
            if kind not in known:
                raise place.error("layer_types", one_of(known), f"{kind!r:.60}")


def _completed(config: Config, whole: Config) -> Config:
    """Return the text's object with values of the whole file."""
    if config is whole or config.has("tie_word_embeddings"):
        return config
    tied = whole.values.get("tie_word_embeddings")
    values = config.values | ({} if tied is None else {"tie_word_embeddings": tied})
    return Config(values, file=config.file, where=config.where)


def _name(whole: Config, file: str) -> str:
    """Return the name of the model: the file's, else its folder's name, or its own."""
    said = whole.values.get("_name_or_path")
    if isinstance(said, str) and said.strip() and not said.startswith((".", "/", "~")):
        return " ".join(said.split())[:LONGEST_NAME]
    path = PurePath(file)
    own = path.parent.name if path.name == FILE else path.name.removesuffix(".json")
    return own or "model"


def _precision(config: Config, whole: Config) -> str:
    """Return the precision of training: fp16 if the weights are, else bf16."""
    for place in (config, whole):
        kind = place.text(place.first("dtype", "torch_dtype"), "")
        if kind:
            return "fp16" if kind in HALF else "bf16"
    return "bf16"


def _remarks(model: Decoder, precision: str, parts: list[str], *places: Config) -> list[str]:
    """Return notes on assumptions, and on unplanned parts."""
    found = []
    if model.sequence == SEQUENCE:
        found.append(
            f"sequence: {SEQUENCE} tokens assumed: no {FILE} says how long samples of training are"
        )
    if any(place.has("quantization_config") for place in places):
        found.append(
            "quantization_config: is about inference, and not read: training is in "
            f"{precision} unless another precision is asked for"
        )
    if encoder := model.encoder:
        found.append(
            f"images: {encoder.images} of {encoder.image_size} x {encoder.image_size} pixels a "
            f"sample assumed, {encoder.tokens} tokens each"
        )
    if sounds := model.sounds:
        found.append(
            f"sounds: {sounds.seconds} seconds a sample assumed, {sounds.image_tokens} tokens"
        )
    if parts:
        found.append(f"{', '.join(parts)}: left out, the text alone is planned")
    if model.prediction_layers:
        found.append(
            f"multi-token prediction: {model.prediction_layers} more, trained with the rest"
        )
    return found
