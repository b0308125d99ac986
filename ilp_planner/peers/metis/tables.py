"""Between Metis's profile folders and the native table.

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
from ilp_planner.costs.profiles.layers import layer_names
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
from ilp_planner.peers.metis.layers import metis_layer_profile
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow, file_name, total
from ilp_planner.peers.units import MILLISECONDS, to_milliseconds, to_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile

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
