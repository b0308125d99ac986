"""Shares of matrices that data-parallel ranks step: whole ones, so that they are uneven.

Megatron's layer-wise optimizer packs the matrices of each virtual stage into as many shards as
there are replicas, the largest first, each into the emptiest one, and fills all shards of the
buffers of parameters and gradients up to the fullest
(`optimizer/layer_wise_optimizer.py: _compute_per_buffer_param_layout` of Megatron core 0.19.0). Of
t numbers, the largest matrix of l, the fullest of n shards has max(t / n, l) here; such packing has
at most a third more than the least (Graham 1969, doi 10.1137/0117039). Layers count as an even
layout has them. Where buffers are not packed so, the matrices of all stages of a rank are dealt to
replicas, the smallest first, to and fro (`_shard_params_ping_pong`), which counts alike.
"""

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ilp_planner.job.decoder import layer_module
from ilp_planner.job.states import (
    divides_states,
    sharing,
    state_widths,
    stepped_as_matrix,
    trained_weights,
)
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.training import Recompute, Settings, TrainingJob


class Sizes(NamedTuple):
    """Numbers of the matrices of all layers, and of the largest one in most layers."""

    every: float
    largest: float


def fullest(job: TrainingJob, virtual: int, *, expert: bool) -> tuple[float, float]:
    """Return the numbers of matrices of the fullest share, and of the mean one.

    virtual: stages of a rank, which have shares each if buffers are packed.
    """
    optimizer = job.settings.optimizer
    if not (optimizer.of_matrices and divides_states(job)):
        return 0.0, 0.0
    settings = replace(job.settings, recompute=Recompute(), turn=0, schedule=USUAL)
    sizes = _sizes(job.model, settings, job.tp)[int(expert)]
    mean = sizes.every / job.pp / sharing(job, expert=expert)
    return max(mean, (virtual if optimizer.packed else 1) * sizes.largest), mean


def slower(job: TrainingJob, *, expert: bool) -> float:
    """Return how many times as long the fullest share takes as the mean one, of one stage on each
    rank."""
    most, mean = fullest(job, 1, expert=expert)
    return most / mean if mean else 1.0


def uneven_bytes(job: TrainingJob) -> dict[str, float]:
    """Return the bytes that the fullest share of matrices takes beyond the mean one, with those
    that fill up buffers, by name; nothing where shares are even."""
    found = 0.0
    if not job.settings.optimizer.of_matrices:
        return {}
    for expert in (False, True):
        most, mean = fullest(job, job.virtual, expert=expert)
        widths, ways = state_widths(job, expert=expert), sharing(job, expert=expert)
        room = (widths.parameter + widths.gradient) * job.settings.optimizer.packed
        found += (most - mean) * ways * (widths.optimizer + room)
    return {"uneven shares": found} if found else {}


@lru_cache(maxsize=1024)
def _sizes(model: Decoder, settings: Settings, tp: int) -> tuple[Sizes, Sizes]:
    """Return those of dense matrices and of experts'."""
    job = TrainingJob(model=model, micro_batch=1, global_batch=1, tp=tp, settings=settings)
    every, largest = [0.0, 0.0], [0.0, 0.0]
    usual = max(sorted(set(job.layer_kinds)), key=job.layer_kinds.count)
    for number in set(job.layer_kinds):
        layers = job.layer_kinds.count(number)
        for weight, times, name in trained_weights(layer_module(job, *job.kind(number))):
            if not stepped_as_matrix(weight, name):
                continue
            place = int(weight.expert)
            every[place] += layers * times * weight.count
            if number == usual:
                largest[place] = max(largest[place], float(weight.count))
    return Sizes(every[0], largest[0]), Sizes(every[1], largest[1])
