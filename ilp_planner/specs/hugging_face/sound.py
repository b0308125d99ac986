"""Encoders of sounds in a `config.json`, by the type of the whole model.

Defaults are those of `transformers`' configurations.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ilp_planner.base.limits import LAYERS
from ilp_planner.specs.hugging_face.config import Config
from ilp_planner.specs.sounds import FRAMES, SoundEncoder

AUDIO = "audio_config"
CHUNK = 30  # seconds that Whisper's feature extractor cuts and pads to
WHISPER = 50  # tokens a second
FINE = 13  # of Qwen3-Omni: 100 frames, halved three times and rounded up


def _whisper(audio: Config, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields that encoders like Whisper's have. names: of their keys."""
    return {
        "layers": audio.whole(audio.first(names["layers"], "num_hidden_layers"), 32, most=LAYERS),
        "hidden": audio.whole(audio.first(names["hidden"], "hidden_size"), 1280),
        "heads": audio.whole(audio.first(names["heads"], "num_attention_heads"), 20),
        "ffn": audio.whole(audio.first(names["ffn"], "intermediate_size"), 5120),
        "bins": audio.whole("num_mel_bins", 128),
    }


KEYS = {
    "layers": "encoder_layers", "hidden": "d_model", "heads": "encoder_attention_heads",
    "ffn": "encoder_ffn_dim",
}  # fmt: skip


def qwen2_audio(audio: Config, whole: Config) -> SoundEncoder:
    """Qwen2-Audio: Whisper's encoder over pieces of 30 seconds, and one product."""
    return SoundEncoder(
        **_whisper(audio, KEYS),
        positions=audio.whole("max_source_positions", CHUNK * WHISPER),
        chunk=CHUNK,
    )


def voxtral(audio: Config, whole: Config) -> SoundEncoder:
    """Voxtral: the same encoder; four tokens side by side, padding among them, become one."""
    fields = _whisper(audio, KEYS)
    width = _text(whole).whole("hidden_size", 3072)
    merge, left = divmod(fields["ffn"], fields["hidden"])
    if left:
        raise audio.error("intermediate_size", f"a multiple of hidden_size ({fields['hidden']})")
    return SoundEncoder(
        **fields,
        positions=audio.whole("max_source_positions", CHUNK * WHISPER),
        chunk=CHUNK,
        padded=True,
        merge=merge,
        joined=True,
        projector_ffn=width,
        projector_bias=False,
    )


def qwen2_5_omni(audio: Config, whole: Config) -> SoundEncoder:
    """Qwen2.5-Omni: sounds of any length, heard in windows of twice `n_window` frames."""
    return SoundEncoder(**_whisper(audio, KEYS), window=_window(audio, "n_window", 100, 2), marks=2)


def qwen3_omni(audio: Config, whole: Config) -> SoundEncoder:
    """Qwen3-Omni: convolutions in two dimensions, and a projector of two products."""
    fields = _whisper(audio, KEYS)
    return SoundEncoder(
        **fields,
        rate=FINE,
        channels=audio.whole("downsample_hidden_size", 480),
        key_bias=True,
        merge=1,
        window=_window(audio, "n_window_infer", 800, 1),
        projector_ffn=fields["hidden"],
    )


def ultravox(audio: Config, whole: Config) -> SoundEncoder:
    """Ultravox: Whisper's encoder over pieces of 30 seconds; tokens side by side, with zeros after
    the last ones, go through two products with norms and a gate (`UltravoxProjector`)."""
    fields = _whisper(audio, KEYS)
    gated = whole.text("projector_act", "swiglu") == "swiglu"
    return SoundEncoder(
        **fields | {"bins": audio.whole("num_mel_bins", 80)},
        positions=audio.whole("max_source_positions", CHUNK * WHISPER),
        chunk=CHUNK,
        merge=whole.whole("stack_factor", 8),
        joined=True,
        projector_ffn=whole.whole("hidden_size", 4096),
        projector_bias=False,
        projector_gated=gated,
        projector_rms="inner" if whole.flag("projector_ln_mid", False) else "outer",
    )


def _window(audio: Config, key: str, usual: int, times: int) -> int:
    """Return the seconds of a window that is so many times as many frames as a key says."""
    frames = times * audio.whole(key, usual)
    if frames % FRAMES:
        raise audio.error(key, f"a multiple of {FRAMES // times}: whole seconds")
    return frames // FRAMES


def _text(whole: Config) -> Config:
    """Return the configuration of the decoder."""
    return whole.inside("text_config") if whole.has("text_config") else whole


SOUNDS: Mapping[str, Callable[[Config, Config], SoundEncoder]] = {
    "qwen2_audio": qwen2_audio,
    "voxtral": voxtral,
    "ultravox": ultravox,
    "qwen2_5_omni_thinker": qwen2_5_omni,
    "qwen3_omni_moe_thinker": qwen3_omni,
}
