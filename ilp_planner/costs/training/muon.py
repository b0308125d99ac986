"""Time of a step of Muon: its products, the memory traffic beside them, its messages over tp."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.work import kernel_time, rates_of
from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.matrices import PRECISION, matrices, step_of
from ilp_planner.job.states import sharing, trained_weights, whole_tables
from ilp_planner.job.uneven import slower
from ilp_planner.job.work import step_traffic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.training.network import Network
    from ilp_planner.job.matrices import Build, Matrix
    from ilp_planner.job.modules import Module
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.training import TrainingJob

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
