"""Limits of torchtitan 0.3.0 for a training job, and its differences.

Sources, all of release 0.3.0: `torchtitan/distributed/parallel_dims.py` and `pipeline_parallel.py`,
`trainer.py`, `models/common/decoder.py` (`update_from_config`), `models/common/moe_sharding.py`,
`distributed/full_dtensor.py`, `distributed/fsdp.py`, `components/quantization/`.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from ilp_planner.settings.keys import wordless
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_batch,
    check_heads,
    check_order,
    check_parts,
    check_plain_kernels,
    check_torch_schedule,
    check_usual_model,
    check_words,
)
from ilp_planner.spaces.runtimes.torchtitan_releases import check_shared_states, shared_differences
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.decoder_parts import Rotary
from ilp_planner.specs.training import USUAL_FORMATS, TrainingJob

VERSION = "0.3.0"
TOOL = f"torchtitan {VERSION}"
RUNTIME = "torchtitan"
# Queries of flex attention are shared in blocks of so many tokens: `_DEFAULT_SPARSE_BLOCK_SIZE` of
# torch.nn.attention.flex_attention, which torch's context parallelism checks.
ATTENTION_BLOCK = 128
# "each local GEMM dimension to be a multiple of 128": components/quantization/nvfp4.py
NVFP4_BLOCK = 128


def check_runnable(job: TrainingJob) -> None:
    """Refuse jobs that torchtitan cannot run, for any model.

    Raises
    ------
    PlanError: the job's field, the limit, and the nearest that torchtitan can run.
    """
    check_batch(job)
    check_order(job, TOOL)
    _check_kernels(job)
    check_heads(job, whole_groups=True)
    _check_sequence(job)
    _check_experts(job)
    _check_states(job)
    _check_pipeline(job)
    _check_recompute(job)
    _check_quantised(job)


def replicas(job: TrainingJob) -> int:
    """Return how often all states are held: `dp_replicate`, with nothing sharded among them."""
    optimizer = job.settings.optimizer
    return job.dp if optimizer.sharding == "none" else optimizer.instances


def takes_graphs(job: TrainingJob) -> bool:
    """Tell whether CUDA graphs replay all passes of a step, as torchtitan's do."""
    return job.settings.kernels.graphs == "full_iteration"


def differences(job: TrainingJob) -> Iterator[str]:
    """Yield torchtitan's differences, so that nobody takes the plan's bytes for its own."""
    s = job.settings
    yield from check_order(job, TOOL)
    if s.optimizer.sharding == "optimizer":
        yield (
            "settings.optimizer.sharding: optimizer; torchtitan's FSDP shards gradients and FP32 "
            "parameters as well and keeps gathered BF16 parameters between forward and backward"
        )
    if "core_attn" in s.recompute.modules:
        yield (
            "settings.recompute: core_attn; flex attention never keeps the scores, so that nothing "
            "is left to recompute"
        )
    for key, value in wordless(s, RUNTIME, ""):
        yield f"settings.{key.field}: {value}; {RUNTIME} {key.does}"
    if s.quantised:
        yield "settings.kernels.quantised: needs torchao"
    if s.kernels.quantised_parameters:
        yield "settings.kernels.quantised_parameters: torchtitan keeps parameters in FP32"
    yield from shared_differences(job)


def _check_kernels(job: TrainingJob) -> None:
    """Refuse kernels without a setting; graphs of whole steps and torch.compile have."""
    s = job.settings
    if takes_graphs(job) and (job.pp > 1 or s.ep > 1):
        field, degree = ("pp", job.pp) if job.pp > 1 else ("settings.ep", s.ep)
        raise Unfit("settings.kernels.graphs", s.kernels.graphs).but(
            f"{TOOL} has CUDA graphs only without a pipeline and expert parallelism "
            f"({field} is {degree})",
            'graphs = ""',
        )
    if takes_graphs(job):
        plain = replace(s, kernels=replace(s.kernels, graphs="", graphed=()))
        job = replace(job, settings=plain)
    check_plain_kernels(job, TOOL, compiles=True)


def _check_sequence(job: TrainingJob) -> None:
    """Refuse samples that ranks cannot share evenly."""
    s, sequence = job.settings, job.model.sequence
    parts, what = (job.tp, "tp") if s.sequence_parallel else (1, "1")
    if s.cp > 1:
        parts = math.lcm(2 * s.cp * parts, ATTENTION_BLOCK * s.cp)
        what = f"2 x cp x {what} and of {ATTENTION_BLOCK} x cp"
    if sequence % parts:
        raise Unfit("model.sequence", sequence).but(
            f"{TOOL} needs a multiple of {what} ({parts})",
            f"sequence = {sequence // parts * parts or parts}",
        )


def _check_experts(job: TrainingJob) -> None:
    """Refuse degrees of experts: whole ones on ranks of ep, or each divided as the rest is."""
    s, experts = job.settings, job.model.experts
    if experts is None:
        if s.ep > 1:
            raise Unfit("settings.ep", s.ep).but("the model has no experts", "ep = 1")
        return
    wanted = job.tp if s.ep == 1 else 1
    if job.expert_tp != wanted:
        why = "splits experts like the rest where ep is 1" if s.ep == 1 else (
            "keeps experts whole where ep is above 1: it takes the ranks of tp for ep"
        )  # fmt: skip
        raise Unfit("settings.etp", job.expert_tp).but(f"{TOOL} {why}", f"etp = {wanted}")
    if experts.count % s.ep:
        raise Unfit("settings.ep", s.ep).but(f"it must divide experts.count ({experts.count})")
    ranks = job.tp * s.cp * job.dp // replicas(job)
    if ranks % s.ep:
        raise Unfit("settings.ep", s.ep).but(
            f"{TOOL} takes the experts' ranks from tp x cp x sharded dp ({ranks})"
        )


def _check_states(job: TrainingJob) -> None:
    """Refuse an optimizer, a precision or a sharing of states that torchtitan does not have."""
    s, optimizer = job.settings, job.settings.optimizer
    check_shared_states(job, TOOL, f"{TOOL}'s configuration is written with AdamW")
    if optimizer.sharding == "none" and s.cp > 1:
        raise Unfit("settings.optimizer.sharding", "none").but(
            f"{TOOL} shards states among the ranks of cp", "sharding = gradients"
        )
    if job.dp % optimizer.instances:
        raise Unfit("settings.optimizer.instances", optimizer.instances).but(
            f"it must divide dp ({job.dp})"
        )


def _check_pipeline(job: TrainingJob) -> None:
    """Refuse a pipeline that torch's schedules or torchtitan's split do not take."""
    if job.pp == 1:
        return
    if job.model.tied:
        raise Unfit("pp", job.pp).but(
            f"{TOOL} has no pipeline for models with tied embeddings", "pp = 1"
        )
    check_torch_schedule(job, TOOL)


def _check_recompute(job: TrainingJob) -> None:
    """Refuse recomputation of anything but all layers, or of tensors that flex attention never
    keeps."""
    r = job.settings.recompute
    if r.distribute:
        raise Unfit("settings.recompute.distribute", "true").but(
            f"{TOOL} does not divide kept inputs; with sequence parallelism they are divided "
            "already",
            "distribute = false",
        )
    check_parts(r, TOOL)
    if r.granularity != "full" or recomputes_all(job):
        return
    if r.method == "uniform":
        raise Unfit("settings.recompute.layers", r.layers).but(
            f"{TOOL} keeps the input of every recomputed layer", "method = uniform, layers = 1"
        )
    most = max(stage.layers for stage in job.stages)
    raise Unfit("settings.recompute.layers", r.layers).but(
        f"{TOOL} recomputes all layers or none, not the first of each stage",
        f"granularity = none, or layers = {most}",
    )


def recomputes_all(job: TrainingJob) -> bool:
    """Tell whether every layer is recomputed from its own input."""
    r = job.settings.recompute
    most = max(stage.layers for stage in job.stages)
    if r.granularity != "full":
        return False
    return r.layers <= 1 if r.method == "uniform" else r.layers >= most


def _check_quantised(job: TrainingJob) -> None:
    """Refuse quantised products without a converter."""
    kernels, model = job.settings.kernels, job.model
    recipe = kernels.quantised
    if not recipe:
        return
    check_words(job, RUNTIME, "components", TOOL)
    if model.experts:
        raise Unfit("settings.kernels.quantised", recipe).but(
            f"{TOOL} quantises experts only by another recipe", 'quantised = ""'
        )
    if kernels.number_format and kernels.number_format != USUAL_FORMATS[recipe]:
        raise Unfit("settings.kernels.number_format", kernels.number_format).but(
            f"{TOOL} has one format, {USUAL_FORMATS[recipe]}", 'number_format = ""'
        )
    if kernels.exact_first + kernels.exact_last >= model.layers:
        raise Unfit("settings.kernels.exact_first", kernels.exact_first).but(
            f"with exact_last ({kernels.exact_last}) it leaves none of {model.layers} layers for "
            f"{TOOL} to quantise",
            'quantised = ""',
        )
    widths = {"hidden": model.hidden, "ffn / tp": model.ffn // job.tp}
    widths["attention's width / tp"] = model.value_width // job.tp
    for name, width in widths.items():
        if recipe == "nvfp4" and width % NVFP4_BLOCK:
            raise Unfit("settings.kernels.quantised", recipe).but(
                f"its products in {TOOL} take widths in multiples of {NVFP4_BLOCK}, and {name} is "
                f"{width}",
                'quantised = ""',
            )


# Ways to scale angles -> torchtitan's name, and its words for factor, slow, fast and original.
# The decoders that torchtitan 0.3.0's builders make: `models/llama3`, `models/qwen3`,
# `models/deepseek_v3` and `models/common/rope.py` of that release.

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
