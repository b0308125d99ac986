"""Why a training system cannot run a job: the error, and the checks that several share."""

from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from ilp_planner.base.errors import PlanError
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.settings.base import Key
from ilp_planner.settings.keys import wordless
from ilp_planner.settings.table import LOSS_FIELD, MOMENTS_FIELD
from ilp_planner.settings.values import FUSED_LOSS, MOMENTS
from ilp_planner.specs.pipeline_layout import LayoutStage
from ilp_planner.specs.training import (
    LIGER,
    MOMENT_FORMATS,
    OPERATORS,
    ORDERS,
    Offload,
    Recompute,
    TrainingJob,
)
from ilp_planner.specs.tuning import OF_ENCODER
from ilp_planner.specs.usual import unusual

LANGUAGE = ("embedding", "norms", "output")  # and all layers: the language model

# Schedules -> their names in `torch.distributed.pipelining`.
TORCH_SCHEDULES = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "interleaved-zb": "InterleavedZeroBubble",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}


class Unfit(NamedTuple):
    """A setting of a job that a tool cannot run. field: of `TrainingJob`."""

    field: str
    what: object

    def but(self, limit: str, nearest: str = "") -> PlanError:
        """Return the error. limit: the tool's, as a clause. nearest: a value that it can run
        instead."""
        end = f"; nearest it can run: {nearest}" if nearest else ""
        return PlanError(f"{self.field}: found {self.what}, but {limit}{end}")


def check_batch(job: TrainingJob) -> None:
    """Refuse a global batch that the replicas cannot share.

    Raises
    ------
    PlanError: with the next multiple.
    """
    step = job.micro_batch * job.dp
    if job.global_batch % step:
        above = -(-job.global_batch // step) * step
        raise Unfit("global_batch", job.global_batch).but(
            f"it must be a multiple of micro_batch x dp ({job.micro_batch} x {job.dp})",
            f"global_batch = {above}",
        )


def check_heads(job: TrainingJob, *, whole_groups: bool) -> None:
    """Refuse heads that the tensor-parallel ranks cannot share.

    Parameters
    ----------
    whole_groups: every rank needs whole keys and values as well.

    Raises
    ------
    PlanError: with the largest degree that can be shared.
    """
    model = job.model
    groups = model.heads if model.latent or not whole_groups else model.kv_heads
    what = "heads" if groups == model.heads else "kv_heads"
    if groups % job.tp:
        fits = max(t for t in range(1, job.tp) if not groups % t)
        raise Unfit("tp", job.tp).but(f"it must divide {what} ({groups})", f"tp = {fits}")


def check_order(job: TrainingJob, tool: str) -> tuple[str, ...]:
    """Refuse an order of ranks that a tool does not have, unless it is all the same here.

    Returns
    -------
    A note if GPUs of one node only change places.

    Raises
    ------
    PlanError: data-parallel ranks are nearer in the plan than pipeline ranks, or the reverse.
    """
    usual = ORDERS[0]
    if job.settings.order == usual or 1 in (job.pp, job.dp):
        return ()
    if job.world <= job.devices_per_node:
        return (f"settings.order: {job.settings.order}; {tool} has {usual}, alike in one node",)
    raise Unfit("settings.order", job.settings.order).but(
        f"{tool} has one order of ranks",
        f"order = {usual}; plans of one stage, which `max_stages=1` asks for, run in either",
    )


def check_parts(recompute: Recompute, tool: str) -> None:
    """Refuse recomputation of parts of layers without a policy of torchtitan: it has operators, and
    the core of attention: its scores are never kept.

    Raises
    ------
    PlanError: names the parts.
    """
    if more := [name for name in recompute.modules if name not in ("core_attn", OPERATORS)]:
        raise Unfit("settings.recompute.modules", " ".join(recompute.modules)).but(
            f"{tool} cannot recompute {' '.join(more)} alone",
            f"granularity = full, or modules = {OPERATORS}",
        )


def check_uncompiled(job: TrainingJob, tool: str) -> None:
    """Refuse layers that torch.compile compiles if a tool has no setting for it.

    Raises
    ------
    PlanError: names the setting.
    """
    if job.settings.kernels.compiled:
        raise Unfit("settings.kernels.compiled", "true").but(
            f"{tool} has no setting for layers that torch.compile compiles", "compiled = false"
        )


class FrozenParts(NamedTuple):
    """Which parts of a model with encoders are not trained."""

    encoder: bool
    projector: bool
    language: bool


def check_frozen(job: TrainingJob, tool: str) -> FrozenParts:
    """Return what a tool freezes that can freeze encoders, projectors and the language model only
    as wholes. Adapters freeze the encoders and their projectors.

    Raises
    ------
    PlanError: another part is frozen.
    """
    model, tuning = job.model, job.settings.tuning
    language = {*LANGUAGE, f"layers:0-{model.layers - 1}"}
    parts = {*tuning.frozen} - {*OF_ENCODER}
    if parts and parts != language and not tuning.rank:
        raise Unfit("settings.tuning.frozen", ", ".join(tuning.frozen)).but(
            f"{tool} freezes encoders, projectors or all of the language model",
            f"freeze = {','.join(sorted(language))}",
        )
    encoder, projector = (bool(tuning.rank) or part in tuning.frozen for part in OF_ENCODER)
    return FrozenParts(encoder, projector, not tuning.rank and parts == language)


def check_whole_encoders(job: TrainingJob, tool: str) -> None:
    """Refuse encoders that ranks divide, for a tool whose encoders are modules of transformers.

    Raises
    ------
    PlanError: names the key of the model file.
    """
    for encoder in job.model.encoders:
        if job.tp > 1 and not encoder.whole:
            raise Unfit(f"model.{encoder.name}.whole", False).but(
                f"{tool} has a module of transformers, which no ranks divide", "whole = true"
            )
        if encoder.cp_divided and job.settings.cp > 1:
            raise Unfit(f"model.{encoder.name}.cp_divided", True).but(
                f"{tool} computes all images on each rank", "cp_divided = false"
            )


def check_plain_kernels(job: TrainingJob, tool: str, *, compiles: bool = False) -> None:
    """Refuse settings that a tool lacks: messages beside products, CUDA graphs, torch.compile,
    microbatch groups, and activations in the host's memory.

    Parameters
    ----------
    compiles: the tool has torch.compile, and with it tensor-parallel messages beside products.

    Raises
    ------
    PlanError: names the setting.
    """
    s = job.settings
    overlaps = s.overlap_tensor and not (compiles and job.tp > 1)
    if not compiles:
        check_uncompiled(job, tool)
    for name, on, what, plain in (
        ("overlap_tensor", overlaps, "tensor-parallel messages beside products", "false"),
        ("overlap_experts", s.overlap_experts, "exchanges of tokens beside products", "false"),
        ("kernels.graphs", s.kernels.graphs, "CUDA graphs of training steps", '""'),
        ("turn", str(s.turn or ""), "turns of virtual stages", "0"),
        (
            "overlap_sends",
            "" if s.overlap_sends else "false",
            "stages that wait for messages",
            "true",
        ),
    ):
        if on:
            found = on if isinstance(on, str) else "true"
            raise Unfit(f"settings.{name}", found).but(
                f"{tool} has no setting for {what}", f"{name.rpartition('.')[2]} = {plain}"
            )
    if s.offload != Offload():
        field = "layers" if s.offload.layers else "modules"
        plain = "0" if s.offload.layers else "[]"
        raise Unfit(f"settings.offload.{field}", getattr(s.offload, field)).but(
            f"{tool} has no setting for activations in the host's memory", f"{field} = {plain}"
        )


def check_words(job: TrainingJob, runtime: str, section: str, tool: str) -> None:
    """Refuse values of settings that a tool has no word for, by the keys of a section.

    Raises
    ------
    PlanError: names the setting, and the values with a word.
    """
    for key, value in wordless(job.settings, runtime, section):
        raise Unfit(f"settings.{key.field}", value).but(
            f"{tool} has {' and '.join(key.words)}{key.does}", nearest_word(key)
        )


def nearest_word(key: Key) -> str:
    """Return the first value that a tool has a word for, as it is said in a refusal."""
    return f"{key.field.rpartition('.')[2]} = {next(iter(key.words))}"


def check_moments(job: TrainingJob, tool: str) -> None:
    """Refuse Adam's moments in narrower numbers without blocks.

    Raises
    ------
    PlanError: with their type.
    """
    types = MOMENTS.read(job.settings)
    if types not in ("fp32", *MOMENT_FORMATS):
        raise Unfit(MOMENTS_FIELD, attrgetter(MOMENTS_FIELD)(job)).but(
            f"{tool} keeps both of Adam's in fp32, 8 bytes together", "moments = 8"
        )


def check_loss(job: TrainingJob, tool: str) -> None:
    """Refuse Megatron-LM's and Transformer Engine's kernel of the loss.

    Raises
    ------
    PlanError: with the kernel.
    """
    kernel = FUSED_LOSS.read(job.settings)
    if kernel not in ("none", LIGER):
        raise Unfit(LOSS_FIELD, kernel).but(
            f"{tool} has PyTorch's cross-entropy, or Liger's by the Trainer",
            f"{LOSS_FIELD} = {LIGER}",
        )


def unlike_moments(job: TrainingJob, tool: str) -> Iterator[str]:
    """Yield the difference of a tool that has Adam's moments in fp32 alone."""
    types = MOMENTS.read(job.settings)
    if job.settings.optimizer.name.startswith("adam") and types != "fp32":
        yield f"settings.optimizer.moments: {types}; {tool} keeps both of Adam's in fp32"


def check_usual_model(job: TrainingJob, tool: str) -> None:
    """Refuse features that the models of a tool lack.

    Raises
    ------
    PlanError: names the field of the model.
    """
    for name, found, usual in unusual(job.model):
        plain = usual if isinstance(usual, str) else str(usual).lower()
        raise Unfit(f"model.{name}", found).but(f"{tool}'s models have {plain or 'none'}")


def check_stages_hold_something(job: TrainingJob, tool: str) -> None:
    """Refuse a stage without parameters if the tool's optimizer needs some on every rank."""
    for number, stage in enumerate(job.stages):
        if stage == LayoutStage():
            raise Unfit(f"layout, stage {number}", "no layer").but(
                f"{tool} needs one on every stage"
            )


def check_torch_schedule(job: TrainingJob, tool: str) -> None:
    """Refuse pipelines that torch's schedules do not take (`torch.distributed.pipelining`).

    Raises
    ------
    PlanError: with the batch that would do.
    """
    check_stages_hold_something(job, tool)
    if job.settings.schedule != USUAL:
        _check_divided(job, tool)
        return
    batches = job.micro_batches
    if job.virtual == 1 and batches < job.pp:
        raise Unfit("global_batch", job.global_batch).but(
            f"torch's 1F1B needs at least pp micro-batches ({job.pp}), not {batches}",
            f"global_batch = {job.pp * job.micro_batch * job.dp}",
        )
    rounds = max(1, batches // job.pp)
    if job.virtual > 1 and batches % rounds:
        raise Unfit("global_batch", job.global_batch).but(
            f"torch's interleaved 1F1B needs micro-batches ({batches}) in {rounds} equal rounds",
            f"global_batch = {rounds * job.pp * job.micro_batch * job.dp}",
        )


def _check_divided(job: TrainingJob, tool: str) -> None:
    """Refuse settings that torch does not run, or runs otherwise than counted, with divided
    backward passes.

    Checkpoints recompute a layer for the gradients of inputs, and once more for every group of its
    weights (`stage_backward_weight` calls autograd for each). torchao's products always make both
    gradients in one function. `fully_shard` gives gathered parameters up between both parts.
    Compiled stages are refused (`_check_torch_compile_compatibility`), and async tensor parallelism
    compiles them.
    """
    s, usual = job.settings, f"schedule = {USUAL}"
    limit = f"{tool} divides backward passes ({s.schedule}) only"
    again, recipe = s.recompute, s.kernels.quantised
    for field, found, bad, only in (
        ("recompute", again.kind, again.granularity != "none", "without recomputation"),
        ("kernels.quantised", recipe, recipe, "of products that are not quantised"),
        ("overlap_tensor", "true", s.overlap_tensor, "of stages that are not compiled"),
        ("kernels.compiled", "true", s.kernels.compiled, "of stages that are not compiled"),
        (
            "optimizer.sharding",
            s.optimizer.sharding,
            s.optimizer.sharding == "parameters",
            "of parameters that stay gathered",
        ),
    ):
        if bad:
            raise Unfit(f"settings.{field}", found).but(f"{limit} {only}", usual)
