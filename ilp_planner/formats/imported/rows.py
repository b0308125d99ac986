"""Rows of the tables of training systems, and what several systems have alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ilp_planner.base.errors import shown
from ilp_planner.base.limits import RANKS
from ilp_planner.formats.megatron.flags import Value
from ilp_planner.formats.megatron.values import COUNTED_FULL
from ilp_planner.settings.table import DISPATCHER
from ilp_planner.specs.tuning import TARGETS

Arguments = Mapping[str, Value]


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
