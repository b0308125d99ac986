"""Rows of the tables of training systems, and what several systems have alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError, shown
from ilp_planner.base.library import find_spec, hub_names, library_files, library_model
from ilp_planner.base.limits import RANKS
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.values import COUNTED_FULL
from ilp_planner.settings.table import DISPATCHER
from ilp_planner.specs.tuning import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.specs.images import AnyEncoder


Arguments = Mapping[str, Value]


class Given(dict[str, Any]):
    """Values by key. read: the keys whose values were looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value and note that it was looked at."""
        self.read.add(key)
        return super().get(key, default)


class Uncounted(NamedTuple):
    """The row of a key that is not counted, unless its value is one of these. text: what is not."""

    text: str
    unless: tuple[Any, ...] = (False, 0, "", "none", "false")


# An argument; arguments by value; or what makes them of a value, with a ValueError for one that is
# not modelled: what is expected instead.
Says = str | Mapping[Any, Arguments] | Callable[[Any], Arguments] | Uncounted


def only(*values: Any, otherwise: str = "") -> Callable[[Any], Arguments]:
    """Return a row for a key whose other values are not modelled. otherwise: what is expected."""

    def row(value: Any) -> Arguments:
        if value not in values:
            raise ValueError(otherwise or f"one of {', '.join(map(shown, values))}")
        return {}

    return row


def switch(on: Arguments, off: Arguments | None = None) -> Mapping[Any, Arguments]:
    """Return a row for true and false, also as words of a command line."""
    off = off or {}
    return {True: on, False: off, "true": on, "false": off}


def truth(value: Any) -> bool:
    """Tell whether a switch is on, in the words of a file or of a command line."""
    return value is not None and str(value).lower() not in ("false", "0", "none", "no")


def window(value: Any) -> Arguments:
    """Return the row of a key with the tokens that attention sees, a token's own among them."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= RANKS:
        raise ValueError("a whole number of tokens")
    return {"window_size": (value - 1, 0)}


def each(values: Iterable[Any], said: Arguments) -> dict[Any, Arguments]:
    """Return a row's part whose values all say the same."""
    return {value: said for value in values}  # noqa: C420 - dict.fromkeys of a mutable value


def both_activations(value: Any) -> Arguments:
    """Return the row of one key for the kernels of both activations."""
    return {"bias_swiglu_fusion": value, "bias_gelu_fusion": value}


def override(key: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the word of a launch line that sets a key of a file, as Hydra takes it."""
    text = ",".join(values)
    return (f"{key}=[{text}]" if "," in text else f"{key}={text}",)


OF_DOCUMENTS = f"of documents (`--lengths`); {COUNTED_FULL}"
FULL = "full or lora: other ways to train few parameters are not modelled"
PAIRS = ("dpo", "rm")  # stages whose samples are a chosen and a rejected answer, in one batch
EVERY_PRODUCT = ("all", "all-linear", None, "")  # words for adapters beside all products


def targets_of(value: Any, every: tuple[str, ...]) -> tuple[str, ...]:
    """Return the products with adapters that a list or a text names. every: those of a word for
    all.

    Raises
    ------
    ValueError: one that has none.
    """
    if not isinstance(value, list | tuple):
        if value in EVERY_PRODUCT:
            return every
        value = str(value).replace(",", " ").split()
    if any(name in EVERY_PRODUCT for name in value):
        return every
    if unknown := [name for name in value if name not in TARGETS]:
        raise ValueError(f"some of {', '.join(every)}, found {unknown[0]}")
    return tuple(value)


# Defaults of systems whose models are recent ones.
NO_DROPOUT: Arguments = {"hidden_dropout": 0.0, "attention_dropout": 0.0}
UNMASKED: Arguments = {**NO_DROPOUT, "create_attention_mask_in_dataloader": False}
RECENT: Arguments = {**UNMASKED, DISPATCHER: "alltoall", "moe_grouped_gemm": True}


# Ends of names of models that were trained on, or are in another format; they have the same sizes.
# ---- Models that a configuration names, as Hugging Face does, in Megatron-LM's arguments ---------

TRAINED_ON = re.compile(
    r"[-_.](instruct|base|chat|it|hf|thinking|\d{4}|fp8|bf16|dpo|sft|v0\.\d|torch_dist|mcore)$",
    re.IGNORECASE,
)

TEXT = "-text"  # ends the name of a file of `models/` that leaves out the encoders of a model

# Words in names of models with encoders of pictures or sounds.
PICTURES = re.compile(r"[-_](VL|Omni)(?=[-_])", re.IGNORECASE)

# Words in names of models that have the sizes of another model, and another head.
HEADED = re.compile(r"[-_](Embedding|Reranker)(?=[-_])", re.IGNORECASE)


def model_arguments(
    name: str, source: str, key: str
) -> tuple[dict[str, Value], list[str], dict[str, AnyEncoder]]:
    """Return the arguments that say a named model, notes on which file has it, and its encoders, by
    the names of their fields.

    Parameters
    ----------
    name: at Hugging Face, of a folder with its configuration, or of one that is named like it.
    source, key: that name it, for messages.

    Raises
    ------
    SpecError: the library has no such model, or its encoder is not modelled, as one of sounds.
    """
    from ilp_planner.formats.megatron.model import model_values
    from ilp_planner.specs.decoder import as_decoder
    from ilp_planner.specs.model_reader import read_model

    file = _file_of(name) or _file_of(HEADED.sub("", name))
    if file is None and (text := _file_of(PICTURES.sub("", name))) is not None:
        raise SpecError(
            f"{source}: {key}: found {name!r}, which has parts for pictures or sounds, expected a "
            f"model of text alone: --set {key}={text.stem} plans its text and nothing else"
        )
    if file is None:
        raise SpecError(
            f"{source}: {key}: found {name!r}, a model that is not here, expected one of `ilp-plan "
            f"models` or a folder with its config.json: --set {key}=FOLDER"
        )
    spec = read_model(file)
    decoder = as_decoder(spec.architecture)
    if decoder is None:
        raise SpecError(
            f"{source}: {key}: found {name}, of the family {spec.family}, expected a decoder-only "
            "transformer"
        )
    encoders = {encoder.name: encoder for encoder in decoder.encoders}
    values = model_values(replace(decoder, encoder=None, sounds=None), 1)
    values |= {"hidden_dropout": 0.0, "attention_dropout": 0.0}
    if decoder.experts is not None:
        values["moe_grouped_gemm"] = True
    exact = file.stem == name or name in hub_names()
    has = (
        "is its text; other parts are not counted" if file.stem.endswith(TEXT) else "has its sizes"
    )
    notes = [] if exact else [f"{key}: {name}: read as {file.stem}, which {has}"]
    if sounds := decoder.sounds:
        notes.append(f"sounds: {sounds.seconds} seconds a sample assumed: no setting says them")
    if encoder := decoder.encoder:
        notes.append(
            f"images: {encoder.images} of {encoder.image_size} x {encoder.image_size} pixels a "
            "sample assumed: no setting says them"
        )
    return values, notes, encoders


def _file_of(name: str) -> Path | None:
    """Return the file of a model: of its own folder, or of the model whose sizes it has."""
    try:
        return find_spec(name, "models")
    except SpecError:
        pass
    short = name.rstrip("/")
    stems = {path.stem: path for path in library_files("models")}
    own = {hub.rpartition("/")[2].casefold(): path for hub, path in hub_names().items()}
    while True:
        last = short.rpartition("/")[2].casefold()
        named = library_model(short) or stems.get(last) or own.get(last)
        if found := named or stems.get(f"{last}{TEXT}"):
            return found
        shorter = TRAINED_ON.sub("", short)
        if shorter == short:
            return None
        short = shorter
