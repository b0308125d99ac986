"""The states of a parameter: gradient, master copy, moments, and their holders."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ilp_planner.job.modules import Module, Weight
from ilp_planner.job.quantised import weight_width
from ilp_planner.specs.training import SHARDINGS, OptimizerSettings, TrainingJob

SINGLE = 4  # bytes of a number in fp32
MATRIX = 2  # dimensions
# bitsandbytes (`optim/optimizer.py`): numbers of a block of 8 bits, which has its largest one in
# fp32; numbers of a tensor from which on it has blocks, and from which on it has pages.
BLOCK = 256
LEAST_IN_BLOCKS, LEAST_IN_PAGES = 4096, 10**5
TABLES = ("word_embeddings", "position_embeddings")
# Tables that Muon leaves to Adam (`is_embedding_or_output_parameter` of Megatron core).
OF_WORDS = ("word_embeddings", "output_layer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """The moments of replicas' messages for sharded states.

    forward, backward: every micro-batch gathers parameters for this pass. once: an iteration
    gathers them once besides. reduces: every micro-batch reduces gradients into shards; otherwise
    an iteration does so once. sums: likewise over several instances, and over tensor-parallel ranks
    for undivided parameters.
    """

    forward: bool = False
    backward: bool = False
    once: bool = False
    reduces: bool = False
    sums: bool = False

    @property
    def in_passes(self) -> bool:
        """Every micro-batch sends some of it, beside its passes."""
        return self.forward or self.backward or self.reduces


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWidths:
    """Bytes on a rank per parameter of its shard. optimizer: master copy and moments."""

    parameter: float
    gradient: float
    optimizer: float

    @property
    def total(self) -> float:
        """Bytes per parameter."""
        return self.parameter + self.gradient + self.optimizer


def state_widths(job: TrainingJob, *, expert: bool) -> StateWidths:
    """Return the bytes of each parameter on a rank; with optimizers of matrices, of a matrix.

    Megatron's distributed optimizer divides states among the ranks that have the same parameters:
    data- times context-parallel ones, or the replicas of a routed expert. Several instances of it
    divide among fewer. ZeRO-2 and -3 divide gradients and parameters likewise (Rajbhandari et al.
    2020, arXiv 1910.02054, section 5). PyTorch's `fully_shard` has shards of the master copy alone,
    and the gathered ones of a micro-batch (`fsdp/_fully_shard/_fsdp_param.py`).
    """
    settings = job.settings
    optimizer = settings.optimizer
    ways, level = sharing(job, expert=expert), _level(job)
    master = optimizer.master if settings.width < SINGLE else 0
    parameter = settings.width / (ways if level >= 3 else 1)
    if optimizer.from_master:
        shards = ways if level else 1
        parameter = (master or settings.width) / shards + (settings.width if level < 3 else 0)
        master = 0
    stays = master if optimizer.keeps_master else 0
    states = stays + (master - stays + _on_device(optimizer)) * (1 - optimizer.offload)
    return StateWidths(
        parameter=parameter,
        gradient=optimizer.gradient / (ways if _divides_gradients(job) else 1),
        optimizer=states / (ways if level >= 1 else 1),
    )


def _on_device(optimizer: OptimizerSettings) -> int:
    """Return bytes of both moments of a parameter on the device, at least."""
    return 0 if optimizer.paged else optimizer.moments


class Moments(NamedTuple):
    """Bytes of both moments of some parameters. plain: on the device, as `state_widths` has them.
    stays: on the device throughout. paged: in pages, which come to the device for the step."""

    plain: float
    stays: float
    paged: float


def moments_of(job: TrainingJob, module: Module, *, expert: bool) -> Moments:
    """Return the moments of a module's trained parameters, all of a replica's.

    Muon leaves all but matrices to Adam, and tables of words (`stepped_as_matrix`).
    bitsandbytes has blocks for tensors of 4,096 numbers and more, and the Trainer none for tables
    of words (`trainer.py: create_optimizer`). Replicas that share states have them of all: ZeRO
    joins parameters in one tensor; torchao's Adam, which FSDP takes, asks its shard of a tensor,
    and only vectors are as short.

    Parameters
    ----------
    expert: those of routed experts; otherwise all others.
    """
    optimizer, whole = job.settings.optimizer, _level(job) > 0
    plain, stays, paged = 0.0, 0.0, 0.0
    for weight, times, name in trained_weights(module):
        if weight.expert is not expert:
            continue
        count, words = weight.count, name in TABLES
        if optimizer.of_matrices:
            wide = not stepped_as_matrix(weight, name)
        else:
            wide = not optimizer.blockwise or not (
                whole or (count >= LEAST_IN_BLOCKS and not words)
            )
        numbers = count * (2 * SINGLE if wide else optimizer.moments)
        if optimizer.blockwise and not wide:
            stays += times * 2 * SINGLE * -(-count // BLOCK)
        if optimizer.paged and (whole or count >= LEAST_IN_PAGES):
            paged += times * numbers
        else:
            stays += times * numbers
        plain += times * count * _on_device(optimizer)
    return Moments(plain, stays, paged)


def stepped_as_matrix(weight: Weight, name: str) -> bool:
    """Return whether Muon steps a tensor itself. name: of its module."""
    return len(weight.shape) == MATRIX and name not in OF_WORDS


def whole_tables(job: TrainingJob, module: Module) -> float:
    """Return the numbers of tables of words that one replica steps for all, if Muon's buffers are
    not packed: whole tensors of Adam as well are dealt to replicas then."""
    if job.settings.optimizer.scatters or not divides_states(job):
        return 0.0
    every = trained_weights(module)
    return float(sum(n * one.count for one, n, name in every if name in OF_WORDS))


def whole_states(job: TrainingJob, module: Module) -> float:
    """Return the bytes of the states of such tables beyond a share of them."""
    both = job.settings.optimizer.master + 2 * SINGLE
    return whole_tables(job, module) * both * (1 - 1 / sharing(job, expert=False))


def trained_weights(module: Module, times: int = 1) -> Iterator[tuple[Weight, int, str]]:
    """Yield each trained tensor in a module, how often it is there, and the name of its module."""
    times *= module.repeat
    for weight in module.weights:
        if weight.trained:
            yield weight, times, module.name
    for child in module.children:
        yield from trained_weights(child, times)


def adapter_widths(job: TrainingJob) -> StateWidths:
    """Return the bytes of each parameter of an adapter on a rank.

    Of single precision, it is stepped itself: there is no other copy (PEFT's
    `autocast_adapter_dtype`).
    """
    if job.settings.tuning.adapters != "fp32":
        return state_widths(job, expert=False)
    level, ways = _level(job), sharing(job, expert=False)
    optimizer = job.settings.optimizer
    moments = _on_device(optimizer) * (1 - optimizer.offload)
    return StateWidths(
        parameter=SINGLE / (ways if level >= 3 else 1),
        gradient=SINGLE / (ways if _divides_gradients(job) else 1),
        optimizer=moments / (ways if level >= 1 else 1),
    )


def frozen_width(job: TrainingJob, width: float, *, expert: bool) -> float:
    """Return bytes on a rank per parameter that is not trained, whose number has a width.

    `fully_shard` divides it as it divides others, and has a gathered copy beside a share unless it
    is given up.
    """
    ways, level = sharing(job, expert=expert), _level(job)
    if job.settings.optimizer.from_master and level == 2 and ways > 1:
        return width / ways + width
    return width / (ways if level >= 3 else 1)


def quantised_width(job: TrainingJob, *, expert: bool) -> float:
    """Return bytes on a rank per parameter of a quantised product, copies included.

    torchao quantises gathered parameters of `fully_shard` at their use, and keeps nothing of them.
    """
    if job.settings.optimizer.from_master:
        return state_widths(job, expert=expert).parameter
    return weight_width(job, sharing(job, expert=expert) if _level(job) >= 3 else 1)


def sharing(job: TrainingJob, *, expert: bool) -> int:
    """Return among how many ranks the states of a parameter can be divided."""
    replicas = job.expert_dp if expert else job.dp * job.settings.cp
    return max(1, replicas // job.settings.optimizer.instances)


def stepped_width(job: TrainingJob, *, expert: bool) -> float:
    """Return bytes per parameter that a step needs for a moment.

    Gradients that were added up in two bytes are copied to four before the step
    (`distrib_optimizer.py`: `shard_model_grad.float()`). The precision-aware optimizer reads them
    where they lie (`decoupled_grad` there); with remainders as its master copy it is the one that
    steps.
    """
    optimizer = job.settings.optimizer
    if optimizer.gradient >= SINGLE or job.settings.width >= SINGLE:
        return 0.0
    if not optimizer.master or optimizer.master < SINGLE:
        return 0.0
    return SINGLE / (sharing(job, expert=expert) if _level(job) else 1)


def copies_parameters(job: TrainingJob) -> bool:
    """Return whether parameters move into a buffer of their own at the start.

    With the distributed optimizer (`param_and_grad_buffer.py`), as its ranks gather them there.
    """
    return _level(job) == 1


def gathers(job: TrainingJob) -> tuple[bool, bool]:
    """Return whether whole parameters, and whole gradients, exist for a few layers only."""
    return _level(job) >= 3, _divides_gradients(job)


def divides_parameters(job: TrainingJob) -> bool:
    """Return whether each rank keeps its share of the parameters alone, from one iteration to the
    next."""
    level = _level(job)
    return level >= 3 or (level > 0 and job.settings.optimizer.from_master)


def divides_states(job: TrainingJob) -> bool:
    """Return whether each rank keeps its share of the optimiser's states alone."""
    return _level(job) >= 1


def rhythm(job: TrainingJob) -> Rhythm:
    """Return when a job's replicas send.

    Megatron gathers stepped parameters once. With sharded gradients (ZeRO-2) every micro-batch
    reduces; with sharded parameters (ZeRO-3) every micro-batch gathers twice, to compute forward
    and backward (Rajbhandari et al. 2020, arXiv 1910.02054, section 7). Several instances sum their
    shards after the last micro-batch (`megatron_fsdp.py: outer_fsdp_group_grad_reduce`).

    `fully_shard` gathers and reduces with every micro-batch, over instances as well; with nothing
    sharded it reduces alone, as torchtitan's plain replicas do. In a pipeline gradients are reduced
    after the last one, and parameters stay after a backward pass: one right after another gathers
    none, nor does the next forward pass. If forward passes give parameters up, M micro-batches
    gather M + 1 times: the ones that fill the pipeline, and one more, in their forward passes, the
    others in their backward ones; as many gather nothing when it empties. Counted here is a
    gathering for each backward pass, and one.
    """
    level, sharded = _level(job), _level(job) >= 3
    if not job.settings.optimizer.from_master:
        return Rhythm(
            forward=sharded, backward=sharded, once=level in (1, 2), reduces=level in (2, 3)
        )
    if reduces_late(job):
        return Rhythm(backward=sharded, once=level > 0)
    return Rhythm(forward=level > 0, backward=sharded, reduces=True, sums=True)


def gathers_frozen(job: TrainingJob) -> bool:
    """Return whether replicas gather parameters that are not trained: where each keeps a share of
    them alone. A step changes none of them, so that nothing else sends them."""
    return _level(job) >= 3 or (_level(job) > 0 and job.settings.optimizer.from_master)


def reduces_late(job: TrainingJob) -> bool:
    """Return whether gradients that are divided wait, whole, for the last micro-batch.

    PyTorch's pipelines reduce gradients of `fully_shard` after it
    (`pipelining/stage.py: perform_reduce_grad`); until then they are added up in the width of their
    reduction (`_fsdp_param.py: to_accumulated_grad_if_needed`).
    """
    return job.settings.optimizer.from_master and job.pp > 1


def stay_gathered(job: TrainingJob) -> bool:
    """Return whether parameters that a forward pass gives up stay gathered after a backward pass,
    as in PyTorch's pipelines (`pipelining/stage.py: set_reshard_after_backward`)."""
    return reduces_late(job) and _level(job) >= 3


def _divides_gradients(job: TrainingJob) -> bool:
    return _level(job) >= 2 and not reduces_late(job)


def _level(job: TrainingJob) -> int:
    return SHARDINGS.index(job.settings.optimizer.sharding)
