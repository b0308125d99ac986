"""Time of a step of Muon: its products, the memory traffic beside them, its messages over tp.

Muon replaces the momentum of a matrix by the nearest orthogonal one, by the iteration of Newton and
Schulz (Jordan 2024, https://kellerjordan.github.io/posts/muon). A step X <- a X + (b A + c A^2) X
with A = X X^T has, for m x n with m <= n, products of 2 m^2 n, 2 m^3 and 2 m^2 n FLOPs
(`newton_schulz_step` of Emerging-Optimizers, `orthogonalized_optimizers/muon_utils.py`). They are
of bf16 (`--muon-fp32-matmul-prec medium`), all else of fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.work import kernel_time, rates_of
from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.modules import Module, Weight
from ilp_planner.job.shard import part
from ilp_planner.job.states import (
    SINGLE,
    sharing,
    stepped_as_matrix,
    trained_weights,
    whole_tables,
)
from ilp_planner.job.uneven import slower
from ilp_planner.job.work import Kernel, Product, step_traffic
from ilp_planner.specs.training import (
    BLOCKWISE_STEP,
    DISTRIBUTED,
    DUPLICATED,
    Settings,
    TrainingJob,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.training.network import Network
    from ilp_planner.specs.cluster import Device

# ---- matrices, as tensor-parallel ranks divide them, and the products of a step ------------------

PRECISION, HALF = "bf16", 2  # of its products, and bytes of a number
QKV = "linear_qkv"  # whose queries, keys and values are matrices of their own (`split_qkv`)
# Bytes per number that kernels of the step read and write beside its products, one after the other
# (`orthogonalized_optimizer.py: step`): weight decay, momentum, scale twice, update.
OF_SHARD = 2 * SINGLE + 3 * SINGLE + 4 * SINGLE + 3 * SINGLE
# Likewise of the numbers that the iteration reads: the norm, the quotient, to bf16 and back.
OF_ITERATION = SINGLE + 2 * SINGLE + 2 * (SINGLE + HALF)
GATHERED = 2 * SINGLE  # and of those that ranks have gathered and join

Build = Callable[[TrainingJob], Module]


class Matrix(NamedTuple):
    """One matrix, or equal ones. own: rows and columns of a rank's shard; whole: of all of it.
    split: which of both tensor-parallel ranks divide; None: neither. times: on a rank. expert: of
    routed experts."""

    own: tuple[int, int]
    whole: tuple[int, int]
    split: int | None
    times: int
    expert: bool

    @property
    def numbers(self) -> int:
        """Numbers on a rank of all of them."""
        return self.times * self.own[0] * self.own[1]


def matrices(job: TrainingJob, build: Build) -> tuple[Matrix, ...]:
    """Return the matrices in a module that Muon steps, of one replica's share of its parameters.

    build: makes the module for a job.
    """
    found: dict[Matrix, int] = {}
    own, whole = (trained_weights(build(one)) for one in (job, _undivided(job)))
    for (weight, times, name), (full, _, _) in zip(own, whole, strict=True):
        if stepped_as_matrix(weight, name):
            for each in _pieces(job, name, weight, full):
                found[each] = found.get(each, 0) + times
    return tuple(each._replace(times=times) for each, times in found.items())


def _undivided(job: TrainingJob) -> TrainingJob:
    """Return the job with parameters that no tensor-parallel ranks divide."""
    settings = replace(job.settings, etp=0, sequence_parallel=False)
    return replace(job, tp=1, settings=settings)


def _pieces(job: TrainingJob, name: str, weight: Weight, full: Weight) -> Iterator[Matrix]:
    """Yield a parameter, or its queries, keys and values."""
    own, whole = _sides(weight), _sides(full)
    split = next((axis for axis in (0, 1) if own[axis] != whole[axis]), None)
    if name != QKV:
        yield Matrix(own, whole, split, 1, weight.expert)
        return
    model = job.model
    queries, keys = model.heads * model.head, model.kv_heads * model.head
    for rows in (*(queries,) * (1 + model.attention_gate), keys, keys):
        yield Matrix((part(rows, job.tp), own[1]), (rows, own[1]), split, 1, weight.expert)


def _sides(weight: Weight) -> tuple[int, int]:
    rows, columns = weight.shape
    return rows, columns


class Step(NamedTuple):
    """The work of Muon's step of a matrix on a rank, its iteration of so many turns.

    once: bytes that kernels of no products read and write, all turns together. products: of a turn.
    gathered: bytes of the whole matrix that ranks gather before. summed: bytes that they sum in a
    turn.
    """

    once: float
    products: tuple[Kernel, ...]
    turns: int
    gathered: float = 0.0
    summed: float = 0.0


def step_of(matrix: Matrix, settings: Settings) -> Step:
    """Return the work of the step of one matrix (`newton_schulz_tp`).

    Ranks that share it do the iteration of its other side, also if that is the longer one.
    """
    optimizer, mode = settings.optimizer, settings.optimizer.muon_tp_mode
    divided = matrix.split is not None and mode != BLOCKWISE_STEP
    own = matrix.own[0] * matrix.own[1]
    copied = HALF + SINGLE if settings.width < SINGLE else 0
    traffic = own * (OF_SHARD + optimizer.gradient + copied)
    sides = matrix.whole if divided and mode == DUPLICATED else matrix.own
    m, n = min(sides), max(sides)
    if divided and mode == DISTRIBUTED:
        assert matrix.split is not None
        m, n = sides[1 - matrix.split], sides[matrix.split]
    traffic += m * n * (OF_ITERATION + GATHERED * (divided and mode == DUPLICATED))
    products = (_product(m, m, n), _product(m, m, m), _product(m, n, m))
    if not divided:
        return Step(traffic, products, optimizer.muon_steps)
    if mode == DUPLICATED:
        return Step(traffic, products, optimizer.muon_steps, gathered=SINGLE * m * n)
    return Step(traffic, products, optimizer.muon_steps, summed=HALF * m * m)


def _product(m: int, n: int, k: int) -> Kernel:
    """Return a product of m x k by k x n matrices of bf16."""
    return Kernel(2.0 * m * n * k, HALF * (m * k + k * n + m * n), Product(m, n, k))


# ---- seconds -------------------------------------------------------------------------------------

GROUPS = ("tp", "etp")  # of ranks that share a matrix, of experts the second


def muon_steps(
    job: TrainingJob, network: Network, devices: Sequence[Device], kind: int
) -> NDArray[np.float64]:
    """Return the seconds [n, 2] of the step of every element of the chain, as `_step` has them; the
    last norm's and prediction layers' are the output's."""

    def of(build: Build) -> NDArray[np.float64]:
        return _step(job, network, devices, kind, build)

    kinds = {number: of(partial(_layer, number=number)) for number in set(job.layer_kinds)}
    output, more = of(output_module), job.model.prediction_layers
    if more:
        output = output + of(final_norm_module) + more * of(prediction_module)
    return np.array([of(embedding_module), *(kinds[number] for number in job.layer_kinds), output])


def _layer(job: TrainingJob, number: int) -> Module:
    return layer_module(job, *job.kind(number))


def _step(
    job: TrainingJob, network: Network, devices: Sequence[Device], kind: int, build: Build
) -> NDArray[np.float64]:
    """Return the seconds [2] of the step of a module's dense and expert parameters, all of a
    replica's, on the slowest of some devices; of matrices that replicas divide, as many times those
    of the fullest share as there are replicas.

    Parameters
    ----------
    kind: the first pipeline rank with the same links. build: makes the module for a job.
    """
    every = matrices(job, build)
    found = np.zeros(2)
    uneven = np.array([slower(job, expert=expert) for expert in (False, True)])
    for matrix in every:
        alone = max(matrix_seconds(matrix, job, device) for device in devices)
        found[int(matrix.expert)] += matrix.times * (alone + _sent(matrix, job, network, kind))
    slowest = min(rates_of(device).streaming * device.machine.stepping for device in devices)
    return uneven * found + left_to_adam(job, build, every) * step_traffic(job.settings) / slowest


def left_to_adam(job: TrainingJob, build: Build, every: Sequence[Matrix]) -> NDArray[np.float64]:
    """Return the dense and expert parameters [2] of a module that Muon does not step; of a table
    that one replica steps for all, as many times those as there are replicas."""
    found, module = np.zeros(2), build(job)
    for weight, times, _ in trained_weights(module):
        found[int(weight.expert)] += times * weight.count
    found[0] += whole_tables(job, module) * (sharing(job, expert=False) - 1)
    for matrix in every:
        found[int(matrix.expert)] -= matrix.numbers
    return found


def matrix_seconds(matrix: Matrix, job: TrainingJob, device: Device) -> float:
    """Return the seconds of a matrix's step on a device, messages left out."""
    step = step_of(matrix, job.settings)
    rate = rates_of(device).streaming * device.machine.stepping
    return step.once / rate + step.turns * kernel_time(step.products, device, PRECISION)


def _sent(matrix: Matrix, job: TrainingJob, network: Network, kind: int) -> float:
    step, route = (
        step_of(matrix, job.settings),
        network.route(job, GROUPS[int(matrix.expert)], kind),
    )
    gathered = route.seconds("all_gather", step.gathered)
    return gathered + step.turns * route.seconds("all_reduce", step.summed)
