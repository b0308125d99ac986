"""Rotary positions and attention windows, as releases 4 and 5 of `transformers` write them."""

from ilp_planner.specs.decoder_parts import SCALINGS, Rotary, Window
from ilp_planner.specs.hugging_face.config import Config, one_of

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
