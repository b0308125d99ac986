"""The placement of parameters and optimiser states: the share of each that every rank of a job
holds.

A tensor is a box with three axes, each from 0 to 1: routed experts, rows and columns. The share of
a rank is a box in that box. Tensor parallelism divides rows or columns, expert parallelism experts,
and ranks with the same parameters divide states by rows, within their tensor-parallel share.
PyTorch's `fully_shard` divides each tensor so (`fsdp/_fully_shard/_fsdp_param.py`). Megatron's
distributed optimizer divides buffers of many tensors (`param_and_grad_buffer.py`); the same number
of bytes moves as if it divided each of them, but if tensor parallelism changes; it is an
approximation then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.groups import INSTANCE, Axis, grid, spanned
from ilp_planner.job.parts import state_bytes
from ilp_planner.job.states import divides_parameters, divides_states
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.specs.training import BLOCKWISE, SHARDINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.job.modules import Module, Weight
    from ilp_planner.specs.training import TrainingJob

PARTS = WEIGHTS, STATES = 0, 1  # of what is held of a parameter
EXPERTS, ROWS, COLUMNS = 0, 1, 2  # axes of a tensor
NOBODY = -1  # the stage of a device that holds nothing


class Kind(NamedTuple):
    """Tensors that are divided alike. expert: of routed experts. axis: that tensor parallelism
    divides, None if every rank has them whole. words: rows are of the padded vocabulary."""

    expert: bool
    axis: int | None
    words: bool = False


KINDS = (
    *(Kind(expert, axis) for expert in (False, True) for axis in (None, ROWS, COLUMNS)),
    Kind(expert=False, axis=ROWS, words=True),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Holdings:
    """The placement of a model on devices.

    sizes: bytes [units, kinds, 2] of the weights and of the states of the model's chain, whole.
    has: [stages, units, kinds], whether the devices of a stage hold their share of it. stage:
    [devices], of each, `NOBODY` for none. boxes: [devices, kinds, 2, 3, 2], the first and last
    coordinate of each device's weights and states, on every axis.
    """

    sizes: NDArray[np.float64]
    has: NDArray[np.bool_]
    stage: NDArray[np.int64]
    boxes: NDArray[np.float64]

    @property
    def bytes(self) -> NDArray[np.float64]:
        """Bytes [devices] of weights and states."""
        volumes = np.prod(self.boxes[..., 1] - self.boxes[..., 0], axis=-1)
        each = np.einsum("auk,ukp->akp", self.has, self.sizes)
        return np.where(self.stage >= 0, (each[self.stage] * volumes).sum(axis=(1, 2)), 0.0)

    def on(self, devices: Sequence[int], count: int) -> Holdings:
        """Return the same for the devices of a cluster.

        Parameters
        ----------
        devices: that of every rank. count: of devices in the cluster.
        """
        stage = np.full(count, NOBODY)
        stage[list(devices)] = self.stage
        boxes = np.zeros((count, *self.boxes.shape[1:]))
        boxes[list(devices)] = self.boxes
        return replace(self, stage=stage, boxes=boxes)


def job_holdings(job: TrainingJob) -> Holdings:
    """Return the placement of a model's chain on the ranks of a job: the embedding of words, the
    layers, and the output with its norm.

    Parameters have the bytes that memory has for them (`state_bytes`): frozen ones no states, and
    a base in 4 bits its own. Those of products that Transformer Engine computes in 8 or 4 bits
    count in the training precision.
    """
    ranks = np.arange(job.world)
    return Holdings(
        sizes=_sizes(job),
        has=_has(job),
        stage=_place(ranks, (grid(job)["pp"],))[0],
        boxes=np.stack([_boxes(job, ranks, kind) for kind in KINDS], axis=1),
    )


class Span(NamedTuple):
    """Units [start, stop) of a chain on replicas of so many tensor-parallel ranks each."""

    start: int
    stop: int
    tp: int
    dp: int


def chain_holdings(job: TrainingJob, spans: Sequence[Span]) -> Holdings:
    """Return the placement on ranks of stages with their own degrees: stage after stage, replica
    after replica.

    job: has the model and the settings of all stages.
    """
    each = [job_holdings(_alone(job, span)) for span in spans]
    words = [kind.words for kind in KINDS]
    has = np.zeros((len(spans), *each[0].sizes.shape[:2]), dtype=bool)
    for row, span in zip(has, spans, strict=True):
        row[span.start : span.stop] = True
        row[0, words] |= job.model.tied and span.stop == len(row)
    return replace(
        each[0],
        has=has,
        stage=np.repeat(np.arange(len(spans)), [span.tp * span.dp for span in spans]),
        boxes=np.concatenate([one.boxes for one in each]),
    )


def _alone(job: TrainingJob, span: Span) -> TrainingJob:
    """Return the job with the degrees of a stage, on one pipeline rank."""
    return replace(job, tp=span.tp, dp=span.dp, pp=1, layout=None)


def _place(ranks: NDArray[np.int64], axes: Sequence[Axis]) -> tuple[NDArray[np.int64], int]:
    """Return the number of every rank in its group over some axes, and the size of the group."""
    number, size = np.zeros_like(ranks), 1
    for axis in axes:
        number = number + ranks // axis.stride % axis.size * size
        size *= axis.size
    return number, size


def _boxes(job: TrainingJob, ranks: NDArray[np.int64], kind: Kind) -> NDArray[np.float64]:
    """Return the boxes [ranks, 2, 3, 2] of a kind of tensor."""
    axes, optimizer = grid(job, experts=kind.expert), job.settings.optimizer
    tensor, ways = _place(ranks, (axes["etp" if kind.expert else "tp"],))
    if kind.axis is None:
        tensor, ways = np.zeros_like(ranks), 1
    several = INSTANCE if optimizer.instances > 1 else ""
    group = spanned(job, "edp" if kind.expert else "dp-cp", several)[0]
    found = np.zeros((len(ranks), 2, 3, 2))
    found[..., 1] = 1.0
    if kind.expert:
        number, count = _place(ranks, (axes["ep"],))
        found[:, :, EXPERTS, 0] = number[:, None] / count
        found[:, :, EXPERTS, 1] = (number[:, None] + 1) / count
    divided = {WEIGHTS: divides_parameters(job), STATES: divides_states(job)}
    for part, shared in divided.items():
        share, shares = _place(ranks, group) if shared else (np.zeros_like(ranks), 1)
        if kind.axis == COLUMNS:
            found[:, part, COLUMNS] = _interval(tensor, ways)
            found[:, part, ROWS] = _interval(share, shares)
        else:  # rows of the rows that tensor parallelism leaves
            found[:, part, ROWS] = _interval(tensor * shares + share, ways * shares)
    if kind.words:
        found[:, :, ROWS] = np.minimum(found[:, :, ROWS] * job.padded_vocab / job.model.vocab, 1.0)
    return found


def _interval(number: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return the intervals [n, 2] of equal parts of a whole, by their numbers."""
    return np.stack([number, number + 1], axis=-1) / count


def _has(job: TrainingJob) -> NDArray[np.bool_]:
    """Return whether every pipeline rank has every unit's tensors. A tied output layer, and
    prediction layers, have a copy of the words on the last rank."""
    model, starts = job.model, job.pipeline.starts
    found = np.zeros((job.pp, model.layers + 2, len(KINDS)), dtype=bool)
    for number, stage in enumerate(job.stages):
        own = found[job.rank_of(number)]
        own[0] |= stage.embedding
        own[1 + starts[number] : 1 + starts[number] + stage.layers] = True
        own[-1] |= stage.loss
        copies = (model.tied and stage.loss) or stage.prediction_layers > 0
        own[0, [kind.words for kind in KINDS]] |= copies and job.pp > 1
    return found


def _sizes(job: TrainingJob) -> NDArray[np.float64]:
    """Return the bytes [units, kinds, 2] of the weights and states of a job's model."""
    alone, halved = _on(job, 1), _on(job, 2)
    words = alone.padded_vocab

    def both(make: Callable[..., Module], *kind: Any, words: int = 0) -> NDArray[np.float64]:
        return _bytes(alone, make(alone, *kind), make(halved, *kind), words)

    layers = {number: both(layer_module, *job.kind(number)) for number in set(job.layer_kinds)}
    last = both(output_module, words=words)
    if job.model.prediction_layers:
        last += both(final_norm_module)
        last += job.model.prediction_layers * both(prediction_module)
    first = both(embedding_module, words=words)
    return np.stack([first, *(layers[number] for number in job.layer_kinds), last])


def _on(job: TrainingJob, tp: int) -> TrainingJob:
    """Return the job on ranks that divide tensors and the number of experts alone, and have what
    stays from one iteration to the next: all states, also those that wait in the host's memory, and
    no copies for the passes."""
    optimizer = job.settings.optimizer
    optimizer = replace(
        optimizer,
        sharding=SHARDINGS[-1] if optimizer.from_master else optimizer.sharding,
        instances=1,
        offload=0.0,
        moment_format=BLOCKWISE if optimizer.blockwise else "",
    )
    settings = replace(
        job.settings,
        cp=1,
        cp_inner=0,
        etp=tp,
        schedule=USUAL,
        turn=0,
        optimizer=optimizer,
        kernels=job.settings.kernels.exact,
    )
    return replace(job, tp=tp, pp=1, dp=1, settings=settings)


def _bytes(job: TrainingJob, whole: Module, half: Module, words: int) -> NDArray[np.float64]:
    """Return the bytes [kinds, 2] of a module's weights and states, without rows of padding.

    whole, half: as the rank of the job has it, and as one of two tensor-parallel ranks has it.
    words: rows of a tensor that has one for every word, with padding; 0 if there is none.
    """
    found = np.zeros((len(KINDS), len(PARTS)))
    for number, kind in enumerate(KINDS):
        states = state_bytes(job, _of_kind(kind, whole, half, words))
        found[number] = states.weights, states.optimizer
        if kind.expert:
            found[number] *= job.settings.ep
        if kind.words:
            found[number] *= job.model.vocab / job.padded_vocab
    return found


def _of_kind(kind: Kind, whole: Module, half: Module, words: int) -> Module:
    """Return a module with its tensors of a kind alone."""
    weights = zip(whole.weights, half.weights, strict=True)
    children = zip(whole.children, half.children, strict=True)
    return replace(
        whole,
        weights=tuple(a for a, b in weights if _kind(a, b, words) == kind),
        children=tuple(_of_kind(kind, a, b, words) for a, b in children),
    )


def _kind(whole: Weight, half: Weight, words: int) -> Kind:
    """Return the kind of a tensor: two ranks divide the axis that is smaller on one of them."""
    shrunk = [n for n, (a, b) in enumerate(zip(whole.shape, half.shape, strict=True)) if b < a]
    axis = None if not shrunk else COLUMNS if shrunk[0] else ROWS
    of_words = axis == ROWS and whole.shape[0] == words and not whole.expert
    return Kind(whole.expert, axis, of_words)
