"""The decoders that torchtitan 0.3.0's builders make: `models/llama3`, `models/qwen3`,
`models/deepseek_v3` and `models/common/rope.py` of that release."""

from ilp_planner.spaces.runtimes.limits import Unfit, check_usual_model
from ilp_planner.spaces.runtimes.torchtitan_python import TOOL
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Rotary
from ilp_planner.specs.training import TrainingJob

# Ways to scale angles -> torchtitan's name, and its words for factor, slow, fast and original.
SCALINGS = {
    "llama3": (
        "llama",
        ("scaling_factor", "low_freq_factor", "high_freq_factor"),
        "original_max_position_embeddings",
    ),
    "yarn": ("yarn", ("rope_factor", "beta_slow", "beta_fast"), "original_seq_len"),
}


def check_model(job: TrainingJob) -> None:
    """Refuse a model that torchtitan's builders do not make.

    Raises
    ------
    PlanError: the model's field, the found value and torchtitan's.
    """
    m = job.model
    check_usual_model(job, TOOL)
    for field, found, bad, limit, nearest in (
        ("norm", m.norm, m.norm != "rmsnorm", "norm all with RMSNorm", "rmsnorm"),
        ("positions", m.positions, m.positions != "rope", "rotate positions", "rope"),
        ("gated", m.gated, not m.gated, "have gated MLPs", "true"),
        ("bias", m.bias, m.bias, "have no biases but those of qkv_bias", "false"),
        ("qkv_bias", m.qkv_bias, m.qkv_bias and m.latent, "have none with latent ones", "false"),
        ("dropout", m.dropout, m.dropout > 0, "have no dropout", "0"),
        (
            "prediction_layers",
            m.prediction_layers,
            m.prediction_layers > 0,
            "are written without further predicted tokens, which have a loss of their own",
            "0",
        ),
        ("qk_norm", m.qk_norm, m.latent and not m.qk_norm, "norm latent ones", "true"),
    ):
        if bad:
            raise Unfit(f"model.{field}", found).but(
                f"{TOOL}'s models {limit}", f"{field} = {nearest}"
            )
    if (capacity := job.settings.kernels.capacity) > 0:
        raise Unfit("settings.kernels.capacity", capacity).but(
            f"{TOOL}'s models never drop tokens", "capacity = 0"
        )
    _check_rotary(m)
    if m.latent and m.experts and m.experts.shared_ffn % m.experts.ffn:
        raise Unfit("model.experts.shared_ffn", m.experts.shared_ffn).but(
            f"{TOOL} takes whole multiples of experts.ffn ({m.experts.ffn})"
        )


def _check_rotary(model: Decoder) -> None:
    """Refuse angles that torchtitan does not make."""
    rotary = model.rotary or Rotary()
    for field, found, usual in (
        ("share", rotary.share, 1.0),
        ("none_every", rotary.none_every, 0),
    ):
        if found != usual:
            raise Unfit(f"model.rotary.{field}", found).but(
                f"{TOOL} turns all channels of all layers", f"{field} = {usual}"
            )
    if rotary.scaling and rotary.scaling not in SCALINGS:
        raise Unfit("model.rotary.scaling", rotary.scaling).but(
            f"{TOOL} has {' and '.join(SCALINGS)}", 'scaling = ""'
        )
    if rotary.scaling == "yarn" and not model.latent:
        raise Unfit("model.rotary.scaling", "yarn").but(
            f"{TOOL} scales scores for it only in latent attention", 'scaling = ""'
        )
    if rotary.scaling == "yarn" and rotary.magnitude != rotary.magnitude_all:
        raise Unfit("model.rotary.magnitude_all", rotary.magnitude_all).but(
            f"{TOOL} scales whole scores alone", f"magnitude_all = {rotary.magnitude}"
        )
