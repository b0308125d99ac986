"""Words for people of the settings of a plan, and of a job that is analysed."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.units import counted, format_percent
from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.values import CP_COMM, DISPATCHER, FUSED_LOSS
from ilp_planner.settings.values import MOMENTS as OF_MOMENTS
from ilp_planner.specs.training import LIGER, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ilp_planner.settings.values import Choice
    from ilp_planner.specs.training import Recompute, TrainingJob
    from ilp_planner.specs.tuning import Tuning

USUAL = Settings()
FP32 = (4, 8)  # bytes of a gradient and of both moments of a parameter
ONE = (4, 4)  # likewise with one moment
SHARED = {
    "none": "optimizer states not divided",
    "optimizer": "distributed optimizer (ZeRO-1)",
    "gradients": "gradients divided (ZeRO-2)",
    "parameters": "parameters divided (ZeRO-3, FSDP)",
}


class Told(NamedTuple):
    """Settings of a plan, to be told.

    virtual: stages per rank. brief: without the degrees, which stand beside them, and without the
    types of gradients and moments if they are of fp32.
    """

    settings: Settings
    virtual: int
    brief: bool


class Label(NamedTuple):
    """place: among the words of a plan. text: of a plan's settings; empty: nothing is said."""

    place: int
    text: Callable[[Told], str]


class JobLabel(NamedTuple):
    """place: among the words of a job. text: of a job; empty: nothing is said."""

    place: int
    text: Callable[[TrainingJob], str]


def unusual(place: int, field: str, text: str) -> Label:
    """Return the label of a field of settings with another value than its usual one, in a text."""
    read = attrgetter(field)

    def words(told: Told) -> str:
        value = read(told.settings)
        return text.format(value) if value != read(USUAL) else ""

    return Label(place, words)


def _loss(told: Told) -> str:
    kernel = FUSED_LOSS.read(told.settings)
    return {"none": "", LIGER: "Liger's loss"}.get(kernel, "fused loss")


def _context(told: Told) -> str:
    """Return `cp 4 by a2a+p2p over 2`."""
    s, way = told.settings, CP_COMM.read(told.settings)
    if s.cp == 1:
        return ""
    how = f" by {way}" * (way != CP_COMM.rest)
    inner = f" over {s.cp_inner}" if s.cp_inner else ""
    return f"cp{f' {s.cp}' * (not told.brief)}{how}{inner}" if how or not told.brief else ""


def _recompute(told: Told) -> str:
    again = told.settings.recompute
    if again.granularity == "none":
        return "no recomputation"
    if again.granularity == "selective":
        return f"recompute {', '.join(again.modules)}"
    return f"recompute full {again.method} {again.layers}"


def _virtual(told: Told) -> str:
    if told.virtual == 1:
        return ""
    turn, schedule = told.settings.turn, told.settings.schedule
    turns = f" in turns of {counted(turn, 'micro-batch')}" * bool(turn)
    divides = f", schedule {schedule}" * (schedule in DIVIDED)
    return f"{told.virtual} virtual stages per rank{turns}{divides}"


def _sharding(told: Told) -> str:
    kind, copies = told.settings.optimizer.sharding, told.settings.optimizer.instances
    return "" if kind == "none" else f"{kind} sharded{f' in {copies} copies' * (copies > 1)}"


def _of_types(text: str) -> Callable[[Told], str]:
    """Return the words for bytes of gradients or of moments."""

    def words(told: Told) -> str:
        optimizer = told.settings.optimizer
        own = (optimizer.gradient, optimizer.moments)
        usual = own == (ONE if optimizer.of_matrices else FP32) and not optimizer.moment_format
        return "" if told.brief and usual else text.format(optimizer)

    return words


def _moments(told: Told) -> str:
    """Return `moments of 8`, or `moments of 2 (8bit)`."""
    kind = told.settings.optimizer.moment_format
    return _of_types("moments of {0.moments}" + f" ({kind})" * bool(kind))(told)


def of_choice(place: int, choice: Choice) -> Label:
    """Return the label of a choice, whose value is told if it decides something."""

    def text(told: Told) -> str:
        value = choice.read(told.settings)
        silent = choice.idle(told.settings, True) or value == choice.rest
        return "" if silent else choice.text.format(value)

    return Label(place, text)


def _offload(settings: Settings) -> str:
    """Return `on the host: 50.00 % of the states, activations of core_attn`; empty for nothing."""
    found = []
    if share := settings.optimizer.offload:
        found.append(f"{format_percent(share)} of the states")
    if layers := settings.offload.layers:
        found.append(f"activations of the first {layers} layers")
    if modules := settings.offload.modules:
        found.append(f"activations of {' '.join(modules)}")
    return f"on the host: {', '.join(found)}" if found else ""


def _moments_of_job(job: TrainingJob) -> str:
    kind = OF_MOMENTS.read(job.settings)
    return f"moments {kind}" if job.settings.optimizer.moment_format else ""


def _muon(settings: Settings) -> str:
    """Return `optimizer muon, blockwise over tp, 5 turns`; empty for Adam."""
    optimizer = settings.optimizer
    if not optimizer.of_matrices:
        return ""
    turns = counted(optimizer.muon_steps, "turn")
    loose = ", not packed" * (not optimizer.packed and optimizer.sharding == "optimizer")
    return f"optimizer {optimizer.name}, {optimizer.muon_tp_mode} over tp, {turns}{loose}"


def _graphs(settings: Settings) -> str:
    kernels = settings.kernels
    return f"CUDA graphs {' '.join((kernels.graphs, *kernels.graphed))}" * bool(kernels.graphs)


def describe_recompute(recompute: Recompute) -> str:
    """Return `full: 4 layers of each stage` or the like."""
    if recompute.granularity == "none":
        return "none"
    if recompute.granularity == "selective":
        return f"selective: {', '.join(recompute.modules)}"
    spread = ", inputs over tp" if recompute.distribute else ""
    if recompute.method == "block":
        return f"full: first {recompute.layers} layers of each stage{spread}"
    if recompute.layers <= 1:
        return f"full: every layer{spread}"
    return f"full: in chunks of {recompute.layers} layers{spread}"


def _precision(job: TrainingJob) -> str:
    kernels, precision = job.settings.kernels, job.settings.precision
    if not kernels.quantised:
        return precision
    low = ", parameters too" * kernels.quantised_parameters
    ends = kernels.exact_first, kernels.exact_last
    exact = f", not in the first {ends[0]} and last {ends[1]} layers" * any(ends)
    return f"{precision} with products in {kernels.quantised}{low}{exact}"


def _sequence_parallel(job: TrainingJob) -> str:
    return (
        f"sequence parallelism {'on' if job.settings.sequence_parallel and job.tp > 1 else 'off'}"
    )


def _experts(job: TrainingJob) -> str:
    if job.model.experts is None:
        return ""
    how = DISPATCHER.text.format(DISPATCHER.read(job.settings))
    return f"ep {job.settings.ep}, etp {job.expert_tp}, {how}"


def _overlaps(job: TrainingJob) -> str:
    names = ["tensor"] * job.settings.overlap_tensor + ["expert"] * job.settings.overlap_experts
    return f"{' and '.join(names)}-parallel messages overlapped" if names else ""


def _tuning(tuning: Tuning) -> str:
    """Return `adapters of rank 16 beside q_proj, v_proj, base in nf4, frozen embedding`."""
    found = []
    if tuning.rank:
        beside = f" beside {', '.join(tuning.targets)}" if tuning.targets else ""
        dropout = f" with dropout {tuning.dropout:g}" if tuning.dropout else ""
        found.append(f"adapters of rank {tuning.rank}{beside}{dropout}")
    if tuning.base:
        found.append(f"base in {tuning.base}")
    if tuning.frozen:
        found.append(f"frozen {', '.join(tuning.frozen)}")
    return ", ".join(found)


CONTEXT = Label(20, _context)
EP = Label(
    30,
    lambda t: f"ep {t.settings.ep}" * ((t.settings.ep > 1 or t.settings.etp > 0) and not t.brief),
)
RECOMPUTE = Label(60, _recompute)
VIRTUAL_STAGES = Label(70, _virtual)
OVERLAP_SENDS = Label(
    80,
    lambda t: (
        "messages between stages not overlapped" * (t.virtual > 1 and not t.settings.overlap_sends)
    ),
)
SHARDING = Label(100, _sharding)
GRADIENTS = Label(110, _of_types("gradients of {0.gradient} bytes"))
MOMENTS = Label(120, _moments)
OPTIMIZER = Label(105, lambda t: _muon(t.settings))
LOSS = Label(140, _loss)
OFFLOAD = Label(190, lambda t: _offload(t.settings))
TUNING = Label(5, lambda t: _tuning(t.settings.tuning))
CUDA_GRAPHS = Label(200, lambda t: _graphs(t.settings))

JOB_TUNING = JobLabel(15, lambda job: _tuning(job.settings.tuning))
JOB_PRECISION = JobLabel(10, _precision)
JOB_SHARDING = JobLabel(20, lambda job: SHARED[job.settings.optimizer.sharding])
JOB_RECOMPUTE = JobLabel(30, lambda job: f"recompute {describe_recompute(job.settings.recompute)}")
JOB_SEQUENCE_PARALLEL = JobLabel(40, _sequence_parallel)
JOB_VIRTUAL_STAGES = JobLabel(
    50, lambda job: f"{job.virtual} virtual stages per GPU" * (job.virtual > 1)
)
JOB_CONTEXT = JobLabel(
    60, lambda job: CP_COMM.text.format(CP_COMM.read(job.settings)) * (job.settings.cp > 1)
)
JOB_EXPERTS = JobLabel(70, _experts)
JOB_ATTENTION = JobLabel(80, lambda job: f"{job.settings.kernels.attention} attention")
JOB_OVERLAPS = JobLabel(90, _overlaps)
JOB_OFFLOAD = JobLabel(100, lambda job: _offload(job.settings))
JOB_CUDA_GRAPHS = JobLabel(110, lambda job: _graphs(job.settings))
JOB_MOMENTS = JobLabel(25, _moments_of_job)
JOB_OPTIMIZER = JobLabel(24, lambda job: _muon(job.settings))
JOB_COMPILE = JobLabel(120, lambda job: "layers compiled" * job.settings.kernels.compiled)
