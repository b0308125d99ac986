"""Reading a `config.json`: its objects key by key, rotary positions and attention windows."""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ilp_planner.base.errors import MISSING, SpecError, shown
from ilp_planner.base.limits import DIMENSION, FIGURE, LAYERS, MOST
from ilp_planner.specs.decoder_parts import SCALINGS, Rotary, Window

# ---- one object of a `config.json`, read key by key; null counts as missing ----------------------


# Fields of a decoder, by the keys that say them here: for what its constructor refuses.
KEYS = {
    "kv_heads": "num_key_value_heads",
    "heads": "num_attention_heads",
    "hidden": "hidden_size",
    "head": "head_dim",
    "top_groups": "topk_group",
    "top_k": "num_experts_per_tok",
    "groups": "n_group",
    "count": "the number of experts",
    "epsilon": "the epsilon of norms",
    "base": "rope_theta",
    "share": "partial_rotary_factor",
}


class Config:
    """An object of the file, with its place in it for messages."""

    def __init__(self, values: object, *, file: str, where: str = "") -> None:
        self.file, self.where = file, where
        if not isinstance(values, dict):
            raise SpecError(f"{file}: {where or 'file'}: found {_text(values)}, expected an object")
        self.values: dict[str, Any] = values

    def error(self, key: str, expected: str, found: str = "") -> SpecError:
        """Return the error to raise for a key. found: a text instead of its value."""
        text = found or _text(self.values.get(key))
        place = f"{self.where}.{key}" if self.where else key
        return SpecError(f"{self.file}: {place}: found {text}, expected {expected}")

    def has(self, *keys: str) -> bool:
        """Tell whether one of the keys has a value."""
        return any(self.values.get(key) is not None for key in keys)

    def first(self, *keys: str) -> str:
        """Return the first key that has a value; the first of all if none has."""
        return next((key for key in keys if self.has(key)), keys[0])

    def whole(
        self, key: str, default: int | None = None, *, least: int = 1, most: int = DIMENSION
    ) -> int:
        """Return a whole number in these limits, and in that of its key."""
        value, most = self.values.get(key), min(most, int(MOST.get(key, most)))
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.error(key, f"a whole number from {least} to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number above 0, or 0 if that is the default."""
        value: Any = self.values.get(key)
        if value is None and default is not None:
            return default
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or not 0 <= value <= FIGURE or (value == 0 and default != 0):
            raise self.error(key, f"a positive number of at most {FIGURE:g}")
        return float(value)

    def share(self, key: str, default: float) -> float:
        """Return a number of at least 0 and below 1."""
        value = self.values.get(key)
        if value is None:
            return default
        real = isinstance(value, int | float) and not isinstance(value, bool)
        if not real or math.isnan(value) or not 0 <= value < 1:
            raise self.error(key, "a number of at least 0 and below 1")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text, not empty."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, "a text")
        return value

    def listed(self, key: str, count: int) -> list[Any]:
        """Return a list of so many entries."""
        value = self.values.get(key)
        if not isinstance(value, list) or len(value) != count:
            raise self.error(key, f"a list of {count}, one entry per layer")
        return value

    def wholes(self, key: str) -> list[int]:
        """Return a list of whole numbers; empty if it is missing."""
        value = self.values.get(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(type(v) is int for v in value):
            raise self.error(key, "a list of whole numbers")
        return value

    def inside(self, key: str) -> "Config":
        """Return the object under a key."""
        where = f"{self.where}.{key}" if self.where else key
        return Config(self.values.get(key), file=self.file, where=where)

    @property
    def layers(self) -> int:
        """Return the number of layers."""
        return self.whole(self.first("num_hidden_layers", "n_layer"), most=LAYERS)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Report a constructor's refusal with the file and its keys."""
        try:
            yield
        except SpecError:
            raise
        except ValueError as error:
            text = re.sub(r"\b[a-z_]+\b", lambda m: KEYS.get(m[0], m[0]), str(error))
            raise SpecError(f"{self.file}: {self.where and self.where + ': '}{text}") from None


def _text(value: object) -> str:
    return shown(MISSING if value is None else value)


def one_of(names: Sequence[str]) -> str:
    """Return how messages list names."""
    return f"one of {', '.join(names)}"


# ---- rotary positions and attention windows ------------------------------------------------------
# As releases 4 and 5 of `transformers` write them.


PLAIN = ("default", "mrope")  # mrope: of text alone, the plain one
RENAMED = {"su": "longrope"}
FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"


def rotary_of(
    config: Config,
    *,
    base: float = 10000.0,
    base_key: str = "rope_theta",
    share: float = 1.0,
    share_key: str = "partial_rotary_factor",
    local_base: float = 0.0,
    none_every: int = 0,
) -> Rotary:
    """Return how positions turn. base, share, local_base: defaults of the file."""
    said = config.inside("rope_parameters") if config.has("rope_parameters") else config
    local = config.number("rope_local_base_freq", local_base)
    if said.has(FULL):
        if said.has(SLIDING):
            local = said.inside(SLIDING).number("rope_theta", local)
        said = said.inside(FULL)
    scaling = said
    if said is config:
        scaling = config.inside("rope_scaling") if config.has("rope_scaling") else said
    turned = said.number(said.first("rope_theta", base_key), config.number(base_key, base))
    part = config.number(share_key, share)
    if said is not config:
        part = said.number("partial_rotary_factor", part)
    with config.blamed():
        plain = Rotary(
            base=turned,
            share=min(part, 1.0),
            none_every=none_every,
            windowed_base=0.0 if local == turned else local,
        )
        return plain if scaling is config else _scaled(plain, scaling, config)


def _scaled(plain: Rotary, scaling: Config, config: Config) -> Rotary:
    """Return it with the scaling for longer samples."""
    key = scaling.first("rope_type", "type")
    named = scaling.text(key, "default")
    kind = RENAMED.get(named, named)
    if kind in PLAIN:
        return plain
    if kind not in SCALINGS:
        raise scaling.error(key, one_of([*PLAIN, *SCALINGS]))
    longest = config.whole("max_position_embeddings", 1)
    trained = config.whole("original_max_position_embeddings", longest)
    original = scaling.whole("original_max_position_embeddings", trained)
    factor = scaling.number("factor", longest / original)
    bounds = {"slow": "low_freq_factor", "fast": "high_freq_factor"}
    if kind != "llama3":
        bounds = {"slow": "beta_slow", "fast": "beta_fast"}
    yarn = kind == "yarn"
    return Rotary(
        base=plain.base,
        share=plain.share,
        none_every=plain.none_every,
        windowed_base=plain.windowed_base,
        scaling=kind,
        factor=factor,
        original=original,
        **{name: scaling.number(key, 0.0) for name, key in bounds.items()},
        magnitude=scaling.number("mscale", 0.0) if yarn else 0.0,
        magnitude_all=scaling.number("mscale_all_dim", 0.0) if yarn else 0.0,
        rounded=scaling.flag("truncate", True),
    )


def window_of(
    config: Config,
    *,
    key: str = "sliding_window",
    default: int = 0,
    full_every: int = 0,
    first: int = 0,
) -> Window | None:
    """Return the window of attention, if some layers have one.

    Parameters
    ----------
    key: of its size. default: for a missing key, not null. full_every, first: its layers if the
        file does not list them: all but one in so many, from this one on.
    """
    size = config.whole(key, 0, least=0) if key in config.values else default
    if not size:
        return None
    layers = config.layers
    window = Window(size=size, full_every=full_every, chunked=key == "attention_chunk_size")
    flags = window.layers(layers)
    if config.has("layer_types"):
        kinds = config.listed("layer_types", layers)
        flags = tuple(kind != FULL for kind in kinds)
    elif first:
        flags = tuple(i >= first for i in range(layers))
    return _with_layers(window, flags)


def _with_layers(window: Window, flags: tuple[bool, ...]) -> Window | None:
    """Return the window in these layers, said as shortly as possible."""
    if not any(flags):
        return None
    every = 0 if all(flags) else flags.index(False) + 1
    found = Window(size=window.size, full_every=every, chunked=window.chunked)
    if found.layers(len(flags)) == flags:
        return found
    return Window(size=window.size, windowed_in=flags, chunked=window.chunked)
