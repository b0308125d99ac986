"""Between Metis's profile folders, profiles of layers and the native table.

A Metis file is a row per run of equal layers and three rows of the whole step: `forward_backward`
(all layers, the loss and the turn from forward to backward), `optimizer` and `batch_generator`.
Nothing of it is lost, to the last digit.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.layer_table import size_of
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile, layer_names
from ilp_planner.costs.profiles.measurements import Measurements, Record, measurements_of
from ilp_planner.costs.profiles.message_times import MessageTimes
from ilp_planner.costs.profiles.table import MIB, Provenance
from ilp_planner.costs.profiles.table_rows import (
    ANY,
    Wanted,
    complete_layers,
    describe_key,
    layer_rows,
    step_seconds,
)
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow, file_name, total
from ilp_planner.peers.units import MILLISECONDS, to_milliseconds, to_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas

    from ilp_planner.base.numerics import Floats


# ---- Metis's measurements as a layer profile -----------------------------------------------------
# Memory by parts, and the unit of its parameters.


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


# ---- tables --------------------------------------------------------------------------------------


STEPS = ("forward_backward", "optimizer", "batch_generator")  # as `MetisRow` calls them


def metis_table(
    profile: MetisProfile, *, hidden: int | None = None, sequence: int | None = None
) -> Measurements:
    """Return a folder as a native table.
    hidden, sequence: sizes of the model, as the folder lacks them."""
    sizes = {"hidden": hidden, "sequence": sequence}
    rows: list[dict[str, Any]] = []
    for key, row in profile.rows.items():
        shared = {
            "device": key.device,
            "tp": key.tp,
            "micro_batch": key.samples,
            **{name: size for name, size in sizes.items() if size is not None},
            "source": file_name(key),
        }
        rows += [{**shared, **found} for found in _layers(row)]
        for name in STEPS:
            spent = getattr(row, name)
            if spent is not None:
                rows.append({**shared, "record": Record.STEP, "name": name, **_time(spent)})
    return measurements_of(
        rows,
        profile.source,
        machine={"format": "metis", "model": profile.model_name},
        notes=profile.notes,
    )


def _layers(row: MetisRow) -> Iterator[dict[str, Any]]:
    """Yield a row per run of layers that take and hold the same."""
    names = layer_names(row.compute.size)
    figures = [
        (
            "layer" if name.startswith("layer") else name,
            float(row.compute[i]),
            float(row.memory[i]),
            None if row.parameters is None else float(row.parameters[i]),
        )
        for i, name in enumerate(names)
    ]
    start = 0
    for (name, spent, held, parameters), run in groupby(figures):
        stop = start + len(list(run))
        yield {
            "record": Record.LAYER,
            "name": name,
            "layers": str(start) if stop == start + 1 else f"{start}-{stop - 1}",
            **_time(spent),
            "memory_bytes": held * MIB,
            **({} if parameters is None else {"parameters": parameters}),
        }
        start = stop


def _time(milliseconds: float) -> dict[str, Any]:
    seconds, original = to_seconds(milliseconds)
    return {"time_s": seconds, **({"original": original} if original else {})}


def metis_profile(table: Measurements, wanted: Wanted = ANY) -> MetisProfile:
    """Return a native table in Metis's terms: a table of `metis_table`, to the last digit.

    Layers with parts of their memory have its sum.

    Raises
    ------
    ProfileError: no complete row of the layers, or memory that is not said.
    """
    found = complete_layers(table, wanted)
    steps = {name: step_seconds(table, name, wanted) for name in STEPS}
    rows = {}
    for key, frame in found.complete.items():
        spent = {name: _milliseconds(steps[name].get(key)) for name in STEPS}
        parameters = frame["parameters"].to_numpy(np.float64)
        rows[key] = MetisRow(
            compute=np.array(
                [
                    to_milliseconds(s, text)
                    for s, text in zip(frame["time_s"], frame["original"], strict=True)
                ]
            ),
            memory=layer_memory(table, key, frame) / MIB,
            parameters=None if np.isnan(parameters).any() else parameters,
            **spent,
        )
    constants = [key for key, row in rows.items() if row.parameters is not None]
    return MetisProfile(
        source=table.source,
        rows=rows,
        constants=min(constants or rows),
        model_name=table.machine.get("model", ""),
        notes=table.notes,
    )


def layer_memory(table: Measurements, key: LayerKey, frame: pandas.DataFrame) -> Floats:
    """Return the bytes that each layer needs altogether for one micro-batch, float64 [L]."""
    whole = frame["memory_bytes"].to_numpy(np.float64)
    workspace = frame[["forward_workspace_bytes", "backward_workspace_bytes"]].max(axis=1)
    parts = frame["state_bytes"] + frame["activation_bytes"] + workspace.fillna(0.0)
    memory: Floats = np.where(np.isnan(whole), parts.to_numpy(np.float64), whole)
    if np.isnan(memory).any():
        layer = int(np.argmax(np.isnan(memory)))
        raise ProfileError(
            f"{table.source}: {describe_key(key)}: layer {layer}: expected memory_bytes, or "
            "state_bytes and activation_bytes, found nothing"
        )
    return memory


def _milliseconds(row: pandas.Series | None) -> float | None:
    return None if row is None else to_milliseconds(float(row["time_s"]), str(row["original"]))


# ---- tables that did not come from Metis --------------------------------------------------------


def exportable_profile(
    table: Measurements, wanted: Wanted = ANY, *, model: str = ""
) -> tuple[MetisProfile, list[str]]:
    """Return any table with layers as Metis needs it, and the substitutes for missing values.

    Tensor-parallel messages that times leave out are added, as Metis's times have them. A pass over
    all layers that the table does not say is their sum; an optimiser step likewise.

    Raises
    ------
    ProfileError: a missing value without a substitute, by name.
    """
    profile, rows = metis_profile(table, wanted), layer_rows(table, wanted)
    messages, notes = MessageTimes(table), []
    found: dict[LayerKey, MetisRow] = {}
    for key, row in profile.rows.items():
        frame = rows.complete[key]
        once, _ = messages.added(frame, key.device, key.tp)
        compute = row.compute + 2 * once * MILLISECONDS
        whole, step, batch = row.forward_backward, row.optimizer, row.batch_generator
        if whole is None:
            whole = total(compute)
            notes.append("forward_backward_time_ms is the sum of the layers' times")
        if step is None and frame["optimizer_s"].notna().all():
            step = total(frame["optimizer_s"] * MILLISECONDS)
        if step is None:
            step = 0.0
            notes.append("optimizer_time_ms: the table has no such rows, 0 is written")
        if batch is None:
            batch = 0.0
            notes.append("batch_generator_time_ms: the table has no such rows, 0 is written")
        found[key] = replace(
            row, compute=compute, forward_backward=whole, optimizer=step, batch_generator=batch
        )
    first = profile.constants
    if found[first].parameters is None:
        first = min(found, key=lambda key: (key.tp, key.samples, key.device))
        weights = rows.complete[first]["weight_bytes"].to_numpy(np.float64)
        if np.isnan(weights).any():
            layer = int(np.argmax(np.isnan(weights)))
            raise ProfileError(
                f"{table.source}: {describe_key(first)}: layer {layer}: expected parameters or "
                "weight_bytes, found nothing: Metis needs parameters_per_layer_bytes"
            )
        found[first] = replace(found[first], parameters=weights * first.tp)
    predicted = sum(
        (rows.complete[key]["provenance"] != Provenance.MEASURED).any() for key in found
    )
    if predicted:
        notes.append(f"{predicted} of {len(found)} files have predicted rows")
    named = {key._replace(device=_device_name(key.device)): row for key, row in found.items()}
    if len(named) < len(found):
        raise ProfileError(f"{table.source}: two device types have the same name in Metis's files")
    shared = replace(
        profile,
        rows=named,
        constants=first._replace(device=_device_name(first.device)),
        model_name=model or profile.model_name,
    )
    return shared, list(dict.fromkeys(notes))


def _device_name(device: str) -> str:
    """Return a device type as the name of a file of Metis's can have it: no blanks, upper case."""
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", device).strip("-").upper() or "DEVICE"


# ---- rows with one figure of memory ------------------------------------------------------------


def layers_of_totals(table: Measurements, wanted: Wanted) -> LayerProfile:
    """Return the layers of a table whose rows have their total memory alone.

    Raises
    ------
    ProfileError: the sizes of the model are not known.
    """
    sizes = {name: getattr(wanted, name) or size_of(table, name) for name in ("hidden", "sequence")}
    for name, size in sizes.items():
        if size is None:
            raise ProfileError(
                f"{table.source}: column {name!r}: found nothing, expected a number (`{name}`, or "
                "`model`, says it too)"
            )
    profile = _with_turn(metis_profile(table, wanted))
    return metis_layer_profile(profile, hidden=sizes["hidden"], sequence=sizes["sequence"])


def _with_turn(profile: MetisProfile) -> MetisProfile:
    """Return the profile with the time of the whole pass in predicted keys too: the layers' own,
    and the share of them that the nearest key takes besides."""
    known = [key for key, row in profile.rows.items() if row.forward_backward is not None]
    rows = dict(profile.rows)
    for key, row in profile.rows.items():
        if row.forward_backward is not None or not known:
            continue
        near = min(known, key=lambda k: (k.device != key.device, *_distance(k, key)))
        share = max(profile.rows[near].sync, 0.0) / total(profile.rows[near].compute)
        rows[key] = replace(row, forward_backward=total(row.compute) * (1 + share))
    return replace(profile, rows=rows)


def _distance(a: LayerKey, b: LayerKey) -> tuple[float, float]:
    """Return how far two keys are apart, in octaves: of the degree, then of the samples."""
    return abs(math.log2(a.tp / b.tp)), abs(math.log2(a.samples / b.samples))
