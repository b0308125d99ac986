"""Metis's measurements as a layer profile: memory by parts, and the unit of its parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile, layer_names
from ilp_planner.costs.profiles.table import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.peers.metis.profile import MetisProfile

# Mixed-precision Adam, bytes per parameter: fp16 weight and gradient, fp32 weight and two moments,
# and the fp32 gradient that the optimiser step makes.
ADAM_BYTES = 18
GRADIENT_BYTES = 2  # fp16


def metis_layer_profile(profile: MetisProfile, *, hidden: int, sequence: int) -> LayerProfile:
    """Return the profile in the planner's own terms.

    * time: the layers' own; `fb_sync`, which is the loss and the turn from forward to backward,
      goes to the last layer, so that one stage of all layers takes the measured
      forward_backward_time_ms.
    * state and activation: the measured memory is a line over the micro-batch sizes; its slope
      (never negative) is the activation per sample, and state is the least that covers every row.
      With one size only, state is 18 bytes (mixed-precision Adam) per parameter, at most what was
      measured.
    * gradients: 2 bytes (fp16) per parameter, 4 if the profile evidently counts fp32 bytes. The
      figures of the file are compared with the 12 hidden^2 parameters of a transformer layer: as
      elements, as fp16 or as fp32 bytes, of the whole layer or of one of tp devices; what comes
      within 40 % is what they are. Models of another shape: the memory of a layer at no sample, of
      all tp devices together, is about 18 bytes per parameter, so 18 units of an element count, 9
      of fp16 and 4 of fp32 bytes (fp32 trains with 16 bytes per parameter).
    * boundary: fp16 activations, 2 sequence hidden bytes per sample.
    * optimizer: that of the file with the least micro-batch, over the layers by their parameters.

    hidden, sequence: sizes of the model that was profiled.
    """
    elements, gradient_bytes, notes = _parameter_meaning(profile, hidden)
    parameters = profile.parameters * elements
    layers = profile.layers
    time: dict[LayerKey, Floats] = {}
    state: dict[tuple[str, int], Floats] = {}
    activation: dict[tuple[str, int], Floats] = {}
    optimizer: dict[tuple[str, int], Floats] = {}
    weight = parameters / parameters.sum() if parameters.sum() > 0 else np.full(layers, 1 / layers)
    for key, row in profile.rows.items():
        seconds = row.compute / 1e3
        seconds[-1] += max(row.sync, 0.0) / 1e3
        time[key] = seconds
    for device in profile.device_types:
        for tp in profile.degrees(device):
            sizes = profile.samples(device, tp)
            rows = [profile.rows[LayerKey(device, tp, size)] for size in sizes]
            memory = np.array([row.memory for row in rows]) * MIB
            known = ADAM_BYTES * parameters / tp
            state[device, tp], activation[device, tp] = _split_memory(sizes, memory, known)
            steps = [row.optimizer for row in rows if row.optimizer is not None]
            if steps:
                optimizer[device, tp] = steps[0] / 1e3 * weight
    boundary = np.full(layers + 1, 2.0 * sequence * hidden)
    boundary[[0, -1]] = 0.0
    return LayerProfile(
        source=f"metis:{profile.source}",
        layers=layer_names(layers),
        time=time,
        state=state,
        activation=activation,
        workspace={key: np.zeros(layers) for key in state},
        gradients=parameters * gradient_bytes,
        boundary=boundary,
        optimizer=optimizer,
        measured=frozenset(time),
        notes=(*profile.notes, *notes),
    )


def _split_memory(sizes: Sequence[int], memory: Floats, known: Floats) -> tuple[Floats, Floats]:
    """Return (state, activation per sample) in bytes, float64 [L], that cover every row.

    memory: float64 [sizes, L], bytes. known: float64 [L], state in bytes if one size must do.
    """
    at = np.asarray(sizes, dtype=np.float64)
    if at.size == 1:
        state = np.minimum(known, memory[0])
        return state, (memory[0] - state) / at[0]
    spread = at - at.mean()
    slope = np.maximum(spread @ (memory - memory.mean(axis=0)) / (spread @ spread), 0.0)
    # A steep line through few rows would start below nothing.
    slope = np.minimum(slope, (memory / at[:, None]).max(axis=0))
    state = np.maximum((memory - at[:, None] * slope).max(axis=0), 0.0)
    return state, slope


def _parameter_meaning(profile: MetisProfile, hidden: int) -> tuple[float, int, list[str]]:
    """Return parameters per unit of the file's figures, bytes of a gradient, and remarks."""
    figures = profile.parameters
    inner = figures[1:-1] if figures.size > 2 else figures
    figure = float(np.median(inner))
    if figure <= 0:
        return 1.0, GRADIENT_BYTES, []
    counted = f"{profile.source}: parameters_per_layer_bytes ({figure:.12g} in a layer)"
    tp = profile.constants.tp
    best = min(
        ((unit, shards) for shards in dict.fromkeys((1, tp)) for unit in (1, 2, 4)),
        key=lambda m: abs(math.log(figure / m[0] * m[1] / (12.0 * hidden**2))),
    )
    unit, shards = best
    if abs(math.log(figure / unit * shards / (12.0 * hidden**2))) > math.log(1.4):
        unit, shards = _unit_by_memory(profile, figure), 1
    notes = []
    if unit == 1:
        notes.append(
            f"{counted} are element counts, not bytes: gradients are planned with "
            f"{GRADIENT_BYTES} bytes each; cost model metis keeps them as bytes"
        )
    if shards > 1:
        notes.append(f"{counted} are those of one of {shards} tensor-parallel devices")
    gradient = 4 if unit == 4 else GRADIENT_BYTES
    return shards / unit, gradient, notes


def _unit_by_memory(profile: MetisProfile, figure: float) -> int:
    """Return bytes per parameter that the figures must be counted in, by the memory of a layer."""
    device, tp, _ = profile.constants
    sizes = profile.samples(device, tp)
    memory = np.array([profile.rows[LayerKey(device, tp, b)].memory for b in sizes]) * MIB * tp
    inner = memory[:, 1:-1] if memory.shape[1] > 2 else memory
    per_layer = np.median(inner, axis=1)
    state = per_layer[0]
    if len(sizes) > 1:
        state -= sizes[0] * max(0.0, (per_layer[-1] - per_layer[0]) / (sizes[-1] - sizes[0]))
    ratio = max(float(state), 1.0) / figure
    expected = {1: 18.0, 2: 9.0, 4: 4.0}
    return min(expected, key=lambda unit: abs(math.log(ratio / expected[unit])))
