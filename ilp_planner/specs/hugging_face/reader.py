"""From the text of a `config.json` to a model."""

import difflib
from pathlib import PurePath

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document, read_json
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.hugging_face.build import SEQUENCE
from ilp_planner.specs.hugging_face.config import Config, one_of
from ilp_planner.specs.hugging_face.families import (
    FAMILIES,
    FULL_ATTENTION,
    LAYER_TYPES,
    LIGHTNING,
    NESTED,
    NOT_MODELLED,
    OTHER_PARTS,
    SIGNS,
    TEXT_OF,
)
from ilp_planner.specs.model import ModelSpec

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
    family, config = _family(whole)
    parts = _other_parts(whole)
    if parts and not text_only:
        expected = "a model of text alone: `text_only` plans its text and nothing else"
        raise whole.error(*parts[0][:1], expected, parts[0][1])
    model = FAMILIES[family](_completed(config, whole))
    precision = _precision(config, whole)
    return ModelSpec(
        name=_name(whole, document.name),
        precision=precision,
        architecture=model,
        remarks=tuple(_remarks(model, precision, [what for _, what in parts], config, whole)),
    )


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
    _refuse_signs(whole, config)
    family = TEXT_OF.get(own, own)
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


def _refuse_signs(*places: Config) -> None:
    """Refuse keys that make something else of a family than is modelled."""
    for place in places:
        for key, what in SIGNS.items():
            if place.values.get(key) not in (None, 0, [], {}):
                raise place.error(key, f"none, which is {MODELLED}", what)
        types = place.values.get("attn_type_list") or []
        if not isinstance(types, list) or any(one != FULL_ATTENTION for one in types):
            raise place.error("attn_type_list", f"ones, which is {MODELLED}", LIGHTNING)
        kinds = place.values.get("layer_types")
        for kind in kinds if isinstance(kinds, list) else ():
            if kind not in LAYER_TYPES:
                raise place.error("layer_types", one_of(LAYER_TYPES), f"{kind!r:.60}")


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
    if parts:
        found.append(f"{', '.join(parts)}: left out, the text alone is planned")
    if model.prediction_layers:
        found.append(
            f"multi-token prediction: {model.prediction_layers} more, trained with the rest"
        )
    return found
