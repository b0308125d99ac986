"""A layer profile from a native table, with the rows that planning needs and the table lacks.

These rows are: for every device type, the tensor-parallel degrees that its nodes hold and the model
allows, with 1, 2, 4 ... samples. If a degree has measured rows for other numbers of samples,
straight lines through these are a second prediction (`costs.launch_floor`). The one nearer to the
measured rows counts, when each of them is left out in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.launch_floor import line_errors
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.predictions import Want, complete
from ilp_planner.costs.profiles.table_rows import ANY, Wanted, several_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ilp_planner.costs.profiles.measurements import Measurements
    from ilp_planner.specs.cluster import ClusterSpec

MOST_DEGREE = 8  # that is predicted without a row of it: more ranks than any node of a table's had
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plannable:
    """The rows that planning may ask for.

    samples: of one replica. parts: numbers that a degree must divide; 0: only measured degrees are
    used.
    max_tp: at most.
    """

    samples: tuple[int, ...] = ()
    parts: int = 0
    max_tp: int | None = None


def completed_layers(
    table: Measurements, wanted: Wanted = ANY, *, cluster: ClusterSpec, ask: Plannable
) -> LayerProfile:
    """Return the layers of one model, under the table's names of device types.

    Layers that were timed by themselves are left as they are: the cost model decides their time
    among others.

    Raises
    ------
    ProfileError: no complete rows, rows of several models, or a missing figure, with its name.
    """
    measured = layer_profile(table, wanted, cluster)
    if measured.isolated:
        return measured
    lacking = _lacking(measured, cluster, ask)
    if not lacking:
        return measured
    sizes = several_sizes(table, wanted)
    wants = [
        Want(
            device=key.device or None,
            tp=key.tp,
            micro_batch=key.samples,
            sequence=sizes.sequence,
            hidden=sizes.hidden,
        )
        for key in lacking
    ]
    try:
        predicted = layer_profile(complete(table, wants), wanted, cluster)
    except ProfileError as error:
        note = f"{error}: straight lines through the measured rows are used instead"
        return replace(measured, notes=(*measured.notes, note))
    return _merged(measured, predicted)


def _lacking(profile: LayerProfile, cluster: ClusterSpec, ask: Plannable) -> list[LayerKey]:
    """Return the keys that planning may ask for and that have no row."""
    found: dict[LayerKey, None] = {}
    for name in cluster.type_names:
        wanted = cluster.device_types[name].profile.casefold()
        alike = [d for d in profile.devices if d.casefold() == wanted]
        room = max(cluster.node_sizes(name))
        for device in alike or [d for d in profile.devices if not d]:
            for tp in _degrees(profile, device, room, ask):
                most = profile.most_samples.get((device, tp))
                for samples in ask.samples:
                    key = LayerKey(device, tp, samples)
                    if key not in profile.time and (most is None or samples <= most):
                        found[key] = None
    return list(found)


def _degrees(profile: LayerProfile, device: str, room: int, ask: Plannable) -> list[int]:
    limit = min(room, ask.max_tp or room)
    degrees = [tp for tp in profile.degrees(device) if tp <= limit]
    tp = 1
    while ask.parts and tp <= min(limit, MOST_DEGREE):
        if ask.parts % tp == 0:
            degrees.append(tp)
        tp *= 2
    return sorted(set(degrees))


def _merged(measured: LayerProfile, predicted: LayerProfile) -> LayerProfile:
    """Return the measured profile with the predicted keys that are better than straight lines."""
    added = [
        key
        for key in predicted.time
        if key not in measured.time and _is_better(measured, predicted, key)
    ]
    if not added:
        return measured
    pairs = {(key.device, key.tp) for key in measured.time}

    def along(rows: Callable[[LayerProfile], Mapping[LayerKey, Row]]) -> dict[LayerKey, Row]:
        more = rows(predicted)
        return {**rows(measured), **{key: more[key] for key in added if key in more}}

    def held(
        rows: Callable[[LayerProfile], Mapping[tuple[str, int], Row]],
    ) -> dict[tuple[str, int], Row]:
        new = {pair: row for pair, row in rows(predicted).items() if pair not in pairs}
        return {**rows(measured), **new}

    return replace(
        measured,
        time=along(lambda p: p.time),
        state=held(lambda p: p.state),
        activation=held(lambda p: p.activation),
        workspace=held(lambda p: p.workspace),
        workspace_per_sample=held(lambda p: p.workspace_per_sample),
        optimizer=held(lambda p: p.optimizer),
        origins=along(lambda p: p.origins),
        errors=along(lambda p: p.errors),
        most_samples={**predicted.most_samples, **measured.most_samples},
        forward=along(lambda p: p.forward),
        notes=(*measured.notes, _remark(measured, added)),
    )


def _is_better(measured: LayerProfile, predicted: LayerProfile, key: LayerKey) -> bool:
    """Tell whether a predicted row is to be used: there is no other way to know, or a worse one."""
    known = [k for k in measured.time if (k.device, k.tp) == (key.device, key.tp)]
    if len(known) < 2:
        return True
    sizes = sorted(k.samples for k in known)
    inside = sizes[0] < key.samples < sizes[-1]
    lines = line_errors(measured, key.device, key.tp)[0 if inside else 1]
    error = predicted.errors.get(key)
    return error is not None and (lines is None or error < lines)


def _remark(measured: LayerProfile, added: Iterable[LayerKey]) -> str:
    degrees: dict[tuple[str, int], list[int]] = {}
    for key in added:
        degrees.setdefault((key.device, key.tp), []).append(key.samples)
    texts = [
        f"{device + ', ' if device else ''}tp {tp}: micro-batch {_range(sizes)}"
        for (device, tp), sizes in sorted(degrees.items())
    ]
    return f"{measured.source}: predicted, not measured: {'; '.join(texts)}"


def _range(sizes: Sequence[int]) -> str:
    ordered = sorted(sizes)
    return ", ".join(map(str, ordered)) if len(ordered) <= 4 else f"{ordered[0]} to {ordered[-1]}"
