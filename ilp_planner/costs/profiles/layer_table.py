"""From a native table to the layer profile that planners of whole layers read.

Times are the rows', with the tensor-parallel messages that they leave out. Memory is the sum of the
rows' parts; of rows that say one figure for all (Metis's) it is split as `metis` does. Rows that
were not measured are predicted (`costs.completed_layers`); each second keeps its source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.parts import part
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile, layer_names
from ilp_planner.costs.profiles.link_times import link_times
from ilp_planner.costs.profiles.measurements import ISOLATED, Measurements
from ilp_planner.costs.profiles.message_times import MessageTimes
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.profiles.table_rows import (
    ANY,
    LayerRows,
    Wanted,
    complete_layers,
    describe_key,
    step_seconds,
    totals_only,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas

    from ilp_planner.base.numerics import Floats
    from ilp_planner.specs.cluster import ClusterSpec

MOST_NAMED = 4  # keys that a remark lists
HALF_BYTES, SINGLE_BYTES = 2, 4  # of a number
# Bytes of parameters, gradients and Adam's states per byte of half-precision weights, with
# single-precision gradients: (2 + 4 + 4 + 4 + 4) / 2; with half-precision ones it is 8.
MAIN_GRADIENTS = 9.0


def layer_profile(
    table: Measurements, wanted: Wanted = ANY, cluster: ClusterSpec | None = None
) -> LayerProfile:
    """Return the rows of one model as a layer profile, under the table's names of device types.
    cluster: its links time tensor-parallel messages if the table does not.

    Raises
    ------
    ProfileError: no complete rows, rows of several models, or a missing figure, with its name.
    """
    rows = complete_layers(table, wanted)
    messages = MessageTimes(table, cluster)
    if totals_only(rows.complete):
        profile: LayerProfile = part("peers.metis.tables:layers_of_totals")(table, wanted)
    else:
        profile = _of_parts(table, rows, wanted)
    found = _Times(rows, messages)
    time = {key: seconds + found.added[key] for key, seconds in profile.time.items()}
    for key, seconds in profile.time.items():
        if not (seconds > 0).all():
            raise ProfileError(
                f"{table.source}: {describe_key(key)}: layer {int(np.argmax(seconds <= 0))}: "
                f"'time_s': found {seconds.min():g}, expected more than 0: what takes no time was "
                "not measured (`ilp-plan profile check` finds such rows)"
            )
    return replace(
        profile,
        source=table.source,
        time=time,
        measured=frozenset(key for key in time if found.measured(key)),
        origins={key: found.origins(key, time[key]) for key in time if not found.measured(key)},
        errors={key: error for key in time if (error := found.error(key)) is not None},
        most_samples=_most_samples(rows),
        forward=found.forward(),
        isolated=_isolated(rows),
        links=link_times(table),
        notes=(*profile.notes, *_remarks(table, rows)),
    )


class _Times:
    """Sources of the seconds of every key."""

    def __init__(self, rows: LayerRows, messages: MessageTimes) -> None:
        self.rows = rows
        self.added: dict[LayerKey, Floats] = {}
        self.sent = {}
        for key, frame in rows.complete.items():
            once, origin = messages.added(frame, key.device, key.tp)
            self.added[key], self.sent[key] = 2 * once, origin  # forward and backward

    def forward(self) -> dict[LayerKey, Floats]:
        """Return the seconds of the forward pass, of the keys that say it of every layer."""
        found = {}
        for key, frame in self.rows.complete.items():
            once = frame["forward_s"].to_numpy(np.float64)
            if not np.isnan(once).any():
                found[key] = once + self.added[key] / 2
        return found

    def measured(self, key: LayerKey) -> bool:
        """Tell whether all of it is."""
        rows = self.rows.complete[key]["provenance"] == Provenance.MEASURED
        return bool(rows.all()) and self.sent[key].provenance is Provenance.MEASURED

    def origins(self, key: LayerKey, time: Floats) -> dict[Provenance, Floats]:
        """Return the seconds of each layer by source."""
        frame, added = self.rows.complete[key], self.added[key]
        found = {}
        for source in Provenance:
            seconds = np.where(frame["provenance"] == source, time - added, 0.0)
            if self.sent[key].provenance is source:
                seconds = seconds + added
            if seconds.any():
                found[source] = seconds
        return found

    def error(self, key: LayerKey) -> float | None:
        """Return the expected relative error of the predicted seconds; None: not known."""
        frame = self.rows.complete[key]
        known = (frame["provenance"] != Provenance.MEASURED) & frame["error"].notna()
        seconds = float(frame.loc[known, "time_s"].sum())
        off = float((frame.loc[known, "time_s"] * frame.loc[known, "error"]).sum())
        sent = self.sent[key]
        if sent.provenance is not Provenance.MEASURED and sent.error is not None:
            more = float(self.added[key].sum())
            seconds, off = seconds + more, off + more * sent.error
        return off / seconds if seconds > 0 else None


# ---- rows that say one figure of memory ---------------------------------------------------------


def size_of(table: Measurements, column: str) -> Any:
    """Return the number that all rows have in a column; None if they differ or lack it."""
    known = {int(value) for value in table.frame[column].dropna()}
    return known.pop() if len(known) == 1 else None


# ---- rows that say what memory is made of -------------------------------------------------------


def _of_parts(table: Measurements, rows: LayerRows, wanted: Wanted) -> LayerProfile:
    time = {key: _column(table, rows, key, "time_s") for key in rows.complete}
    state, activation, fixed, growing = {}, {}, {}, {}
    pairs = dict.fromkeys((key.device, key.tp) for key in rows.complete)
    first = min(rows.complete, key=lambda key: (key.tp, key.samples, key.device))
    for pair in pairs:
        keys = [key for key in rows.complete if (key.device, key.tp) == pair]
        sizes = np.array([key.samples for key in keys], dtype=np.float64)
        held = [_column(table, rows, key, "state_bytes") for key in keys]
        kept = [_column(table, rows, key, "activation_bytes") / key.samples for key in keys]
        state[pair], activation[pair] = np.max(held, axis=0), np.max(kept, axis=0)
        fixed[pair], growing[pair] = covering_line(
            sizes, np.array([_workspace(rows.complete[key]) for key in keys])
        )
    return LayerProfile(
        source=table.source,
        layers=_names(rows),
        time=time,
        state=state,
        activation=activation,
        workspace=fixed,
        workspace_per_sample=growing,
        gradients=_gradients(table, rows, first),
        boundary=_boundary(table, rows, wanted, first),
        optimizer=optimizer_steps(table, rows, wanted),
        notes=table.notes,
    )


def optimizer_steps(
    table: Measurements, rows: LayerRows, wanted: Wanted
) -> dict[tuple[str, int], Floats]:
    """Return (device type, tp) -> seconds of the optimiser's step of every layer, float64 [L]: of
    rows that say it, else the table's step of all layers, divided like the states that they say."""
    found = {}
    steps = step_seconds(table, "optimizer", wanted)
    for pair in dict.fromkeys((key.device, key.tp) for key in rows.complete):
        keys = [key for key in rows.complete if (key.device, key.tp) == pair]
        step = _optimizer_step([rows.complete[key] for key in keys])
        held = np.max([rows.complete[key]["state_bytes"].to_numpy(float) for key in keys], axis=0)
        if step is not None:
            found[pair] = step
        elif keys[0] in steps and not np.isnan(held).any():
            share = held / held.sum() if held.any() else 0.0 * held
            found[pair] = float(steps[keys[0]]["time_s"]) * share
    return found


def _optimizer_step(frames: Sequence[pandas.DataFrame]) -> Floats | None:
    """Return the seconds of the optimiser step, float64 [L]: the same for any micro-batch, so the
    median of all measured ones, else predicted; None if nothing says it."""
    for measured in (True, False):
        known = [
            frame["optimizer_s"].to_numpy(np.float64)
            for frame in frames
            if bool((frame["provenance"] == Provenance.MEASURED).all()) == measured
        ]
        known = [step for step in known if not np.isnan(step).any()]
        if known:
            return np.asarray(np.median(known, axis=0), np.float64)
    return None


def _column(table: Measurements, rows: LayerRows, key: LayerKey, name: str) -> Floats:
    values = rows.complete[key][name].to_numpy(np.float64)
    if np.isnan(values).any():
        raise ProfileError(
            f"{table.source}: {describe_key(key)}: layer {int(np.argmax(np.isnan(values)))}: "
            f"{name!r}: found nothing, expected a number: planning needs it"
        )
    return values


def _workspace(frame: pandas.DataFrame) -> Floats:
    """Return the bytes beside kept ones, in the pass that needs more."""
    both = frame[["forward_workspace_bytes", "backward_workspace_bytes"]].max(axis=1)
    return both.fillna(0.0).to_numpy(np.float64)


def covering_line(sizes: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return (fixed, per sample), float64 [L], of lines that are nowhere below the values.
    sizes: float64 [k], ascending. values: float64 [k, L]."""
    if sizes.size == 1:
        return np.zeros_like(values[0]), values[0] / sizes[0]
    slope = np.maximum((values[-1] - values[0]) / (sizes[-1] - sizes[0]), 0.0)
    fixed = np.maximum((values - sizes[:, None] * slope).max(axis=0), 0.0)
    return fixed, slope


def _gradients(table: Measurements, rows: LayerRows, key: LayerKey) -> Floats:
    """Return the bytes of gradients of all tensor-parallel ranks together, by layer: said, or as
    wide as the states tell."""
    said = rows.complete[key]["gradient_bytes"].to_numpy(np.float64)
    if not np.isnan(said).any():
        return said * key.tp
    weights = _column(table, rows, key, "weight_bytes")
    states = _column(table, rows, key, "state_bytes")
    ratio = states.sum() / weights.sum() if weights.sum() > 0 else 0.0
    wide = ratio >= (MAIN_GRADIENTS + MAIN_GRADIENTS - 1) / 2
    return weights * key.tp * (2.0 if wide else 1.0)


def _boundary(table: Measurements, rows: LayerRows, wanted: Wanted, key: LayerKey) -> Floats:
    """Return the bytes per sample that cross a cut before each layer: said, or a sample's
    activations."""
    frame = rows.complete[key]
    left = frame["output_bytes"].to_numpy(np.float64)[:-1] / key.samples
    right = frame["input_bytes"].to_numpy(np.float64)[1:] / key.samples
    found = np.fmax(left, right)
    if np.isnan(found).any():
        hidden = wanted.hidden or size_of(table, "hidden")
        sequence = wanted.sequence or size_of(table, "sequence")
        if hidden is None or sequence is None:
            place = int(np.argmax(np.isnan(found)))
            raise ProfileError(
                f"{table.source}: {describe_key(key)}: layer {place}: 'output_bytes': found "
                "nothing, expected a number, or the columns hidden and sequence"
            )
        width = SINGLE_BYTES if (wanted.dtype or frame["dtype"].iloc[0]) == "fp32" else HALF_BYTES
        found = np.where(np.isnan(found), float(width * hidden * sequence), found)
    return np.concatenate([[0.0], found, [0.0]])


def _names(rows: LayerRows) -> tuple[str, ...]:
    """Return a name of its own for every layer: layers of one kind are numbered."""
    if not any(rows.names):
        return layer_names(rows.layers)
    count: dict[str, int] = {}
    found = []
    for name in rows.names:
        kind = name or "layer"
        count[kind] = count.get(kind, 0) + 1
        found.append(kind if rows.names.count(name) == 1 else f"{kind} {count[kind]}")
    return tuple(found)


# ---- what cannot run, and what is said of it ----------------------------------------------------


def _most_samples(rows: LayerRows) -> dict[tuple[str, int], int]:
    """Return the samples that can run if more ran out of memory or failed.

    Measured were a few layers, fewer than in most stages: sizes that did not run there are not
    planned. A row that did run, of as many samples, says otherwise.
    """
    most: dict[tuple[str, int], int] = {}
    for key in rows.refused:
        pair = (key.device, key.tp)
        largest = max((k.samples for k in rows.complete if (k.device, k.tp) == pair), default=0)
        if key.samples > largest:
            most[pair] = min(most.get(pair, key.samples - 1), key.samples - 1)
    return most


def _remarks(table: Measurements, rows: LayerRows) -> list[str]:
    notes = []
    if _isolated(rows):
        notes.append(
            f"{table.source}: each layer was timed by itself: what it takes among the others is a "
            "prediction"
        )
    if rows.refused:
        texts = [f"{describe_key(key)}: {why}" for key, why in rows.refused.items()]
        notes.append(f"{table.source}: not runnable when measured, and left out: {_some(texts)}")
    if rows.partial:
        texts = [describe_key(key) for key in rows.partial]
        notes.append(f"{table.source}: only some of {rows.layers} layers, left out: {_some(texts)}")
    return notes


def _isolated(rows: LayerRows) -> bool:
    return all(bool((frame["timing"] == ISOLATED).all()) for frame in rows.complete.values())


def _some(texts: Sequence[str]) -> str:
    shown = "; ".join(texts[:MOST_NAMED])
    return shown if len(texts) <= MOST_NAMED else f"{shown}; {len(texts) - MOST_NAMED} more"


def check_layers(profile: LayerProfile, layers: int, model: str) -> None:
    """Refuse a model with another number of layers than the table has.
    layers: of the model, embedding and head included. model: to blame.

    Raises
    ------
    ProfileError: with both numbers.
    """
    if layers != len(profile.layers):
        raise ProfileError(
            f"{profile.source}: has {len(profile.layers)} layers, embedding and head included, "
            f"expected {layers} as in {model}"
        )
