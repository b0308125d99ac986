"""Seconds of single layers under the degrees of a training job, as far as a profile has them.

Unlike a `LayerProfile`, with all layers or none for a key and the tensor-parallel degree alone, a
table of elements may lack any row: its reader decides the substitute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.device_names import names_of_types
from ilp_planner.costs.profiles.layer_table import layer_profile, optimizer_steps
from ilp_planner.costs.profiles.link_times import link_times
from ilp_planner.costs.profiles.measurements import (
    ISOLATED,
    Measurements,
    Record,
    RowStatus,
    layer_range,
    plain_rows,
)
from ilp_planner.costs.profiles.table import Origin, Provenance
from ilp_planner.costs.profiles.table_rows import (
    ANY,
    Wanted,
    layer_rows,
    rows_of_model,
    totals_only,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder

SUM_AGREES = 0.02  # relative: medians of passes do not quite add up to the median of both


class Shard(NamedTuple):
    """A rank's share of a layer: device type, degrees, samples of a replica.
    ep, etp: of routed experts; 0 for elements that they do not divide."""

    device: str
    tp: int
    samples: int
    cp: int = 1
    ep: int = 0
    etp: int = 0

    def of(self, *, routed: bool) -> Shard:
        """Return the shard of an element that has routed experts, or has none."""
        return self if routed else self._replace(ep=0, etp=0)

    def describe(self) -> str:
        """Return `A100, tp 2, ep 4 x tp 1, micro-batch 1`."""
        text = f"{self.device}, " if self.device else ""
        text += f"tp {self.tp}" + (f", cp {self.cp}" if self.cp > 1 else "")
        text += f", ep {self.ep} x tp {self.etp}" if self.ep else ""
        return f"{text}, micro-batch {self.samples}"


class ElementRow(NamedTuple):
    """Seconds of an element for one micro-batch.

    both: forward and backward. forward: of these; NaN if it is not known. sent: messages of
    tensor-parallel ranks are in them. origin: their source.
    """

    both: float
    forward: float = math.nan
    sent: bool = False
    origin: Origin = Origin()


@dataclass(frozen=True, kw_only=True, eq=False)
class ElementProfile:
    """Rows of one model of so many layers, embedding and head included.

    source: for the user. rows: (shard, number of the layer) -> its seconds. optimizer: (device
    type, tp) -> float64 [layers], seconds of the optimiser's step of a rank that has all experts;
    empty if unknown. links: times of messages, if measured; None: it was not. notes: one-line
    remarks.
    """

    source: str
    layers: int
    rows: Mapping[tuple[Shard, int], ElementRow]
    optimizer: Mapping[tuple[str, int], Floats] = field(default_factory=dict)
    links: LinkTimes | None = None
    notes: tuple[str, ...] = ()

    @property
    def shards(self) -> tuple[Shard, ...]:
        """Shards that have a row of any layer, in order."""
        return tuple(sorted({shard for shard, _ in self.rows}))

    def of_types(self, cluster: ClusterSpec) -> ElementProfile:
        """Return the rows of the cluster's device types, under the cluster's names for them.

        Raises
        ------
        ProfileError: a device type has no rows.
        """
        known = sorted({shard.device for shard, _ in self.rows})
        origins = names_of_types(known, cluster, self.source)
        rows = {
            (shard._replace(device=name), layer): row
            for name, origin in origins.items()
            for (shard, layer), row in self.rows.items()
            if shard.device == origin
        }
        optimizer = {
            (name, tp): step
            for name, origin in origins.items()
            for (device, tp), step in self.optimizer.items()
            if device == origin
        }
        return replace(self, rows=rows, optimizer=optimizer)


def routed_elements(decoder: Decoder) -> tuple[bool, ...]:
    """Return for each element of the chain whether it has routed experts: layers with them, and a
    head that predicts tokens ahead by layers with them."""
    ahead = bool(decoder.prediction_layers) and decoder.expert_layers[-1]
    return (False, *decoder.expert_layers, ahead)


def elements_of_layers(profile: LayerProfile, decoder: Decoder) -> ElementProfile:
    """Return the rows of a layer profile: without context and expert parallelism, and with messages
    of tensor-parallel ranks in them."""
    routed = routed_elements(decoder)
    rows = {}
    for key, seconds in profile.time.items():
        known = key in profile.measured and not profile.isolated
        origin = Origin(Provenance.MEASURED if known else _worst(profile, key))
        once = profile.forward.get(key)
        for layer, spent in enumerate(seconds.tolist()):
            shard = Shard(key.device, key.tp, key.samples, ep=1, etp=key.tp)
            forward = math.nan if once is None else float(once[layer])
            row = ElementRow(spent, forward, sent=key.tp > 1, origin=origin)
            rows[shard.of(routed=routed[layer]), layer] = row
    return ElementProfile(
        source=profile.source,
        layers=len(profile.layers),
        rows=rows,
        optimizer=profile.optimizer,
        links=profile.links,
        notes=profile.notes,
    )


def _worst(profile: LayerProfile, key: LayerKey) -> Provenance:
    """Return the least trustworthy source of a key's seconds; analytic if none is said."""
    sources = list(profile.origins.get(key, {}))
    trust = list(Provenance)
    return max(sources, key=trust.index) if sources else Provenance.ANALYTIC


def element_table(
    table: Measurements, decoder: Decoder, wanted: Wanted = ANY, cluster: ClusterSpec | None = None
) -> ElementProfile:
    """Return the rows of a native table of one model. cluster: for messages of Metis's tables.

    Raises
    ------
    ProfileError: no rows, rows of several models, two rows of the same, or one that cannot be of
        this model, with its line.
    """
    frame = rows_of_model(table, Record.LAYER, wanted)
    plain = None if plain_rows(frame).empty else layer_rows(table, wanted)
    if plain is not None and plain.complete and totals_only(plain.complete):
        return elements_of_layers(layer_profile(table, wanted, cluster), decoder)
    done = frame[frame["status"] == RowStatus.OK]
    routed = routed_elements(decoder)
    found: dict[tuple[Shard, int], dict[tuple[float, float], ElementRow]] = {}
    for number, line in zip(done.index, done.to_dict(orient="records"), strict=True):
        where = _place(table, int(number))
        row = _row(line, where)
        shard = _shard(line, decoder, where)
        said = (line["ep"], line["etp"])
        for layer in layer_range(str(line["layers"])):
            each = layer < len(routed) and routed[layer]
            rows = found.setdefault((shard.of(routed=each), layer), {})
            if any(_same(said, other) for other in rows):
                raise ProfileError(
                    f"{where}: 'layers': found layer {layer} of {shard.describe()} once more, "
                    "expected one row of each: a table of one model and one run"
                )
            rows[said] = row
    layers = 1 + max(int(layer_range(str(text))[-1]) for text in frame["layers"])
    return ElementProfile(
        source=table.source,
        layers=layers,
        rows={key: _mean(list(rows.values())) for key, rows in found.items()},
        optimizer={} if plain is None else optimizer_steps(table, plain, wanted),
        links=link_times(table),
        notes=table.notes,
    )


def _place(table: Measurements, number: int) -> str:
    """Return the file and line of a row, as far as known."""
    line = f"line {table.lines[number]}" if table.lines else f"row {number + 1}"
    return f"{table.source}: {line}"


def _row(line: Mapping[Hashable, Any], where: str) -> ElementRow:
    both, forward = float(line["time_s"]), float(line["forward_s"])
    if not both > 0:
        raise ProfileError(
            f"{where}: 'time_s': found {both:g}, expected more than 0: what takes no time was not "
            "measured (`ilp-plan profile check` finds such rows)"
        )
    if forward > both * (1 + SUM_AGREES):
        raise ProfileError(
            f"{where}: 'forward_s': found {forward:g}, expected at most time_s, {both:g}, which "
            "has both passes"
        )
    error = float(line["error"])
    left_out = float(line["messages"]) > 0
    source = Provenance(str(line["provenance"]))
    if source is Provenance.MEASURED and line["timing"] == ISOLATED:
        source = Provenance.EXTRAPOLATED  # what it takes among other layers
    origin = Origin(source, None if math.isnan(error) else error)
    several = int(line["tp"]) > 1
    return ElementRow(both, min(forward, both), sent=several and not left_out, origin=origin)


def _shard(line: Mapping[Hashable, Any], decoder: Decoder, where: str) -> Shard:
    """Return the subject of a row.

    Raises
    ------
    ProfileError: degrees that this model cannot have.
    """

    def degree(name: str, default: int) -> int:
        value = float(line[name])
        return default if math.isnan(value) else int(value)

    tp, cp, ep = degree("tp", 1), degree("cp", 1), degree("ep", 1)
    etp, experts = degree("etp", tp), decoder.experts
    if decoder.sequence % cp:
        raise ProfileError(
            f"{where}: 'cp': found {cp}, expected a divisor of the sequence of {decoder.sequence} "
            "tokens"
        )
    if experts is None and ep > 1:
        raise ProfileError(f"{where}: 'ep': found {ep}, expected nothing: the model has no experts")
    if experts is not None and experts.count % ep:
        raise ProfileError(
            f"{where}: 'ep': found {ep}, expected a divisor of {experts.count} experts"
        )
    if etp not in (1, tp):
        raise ProfileError(f"{where}: 'etp': found {etp}, expected 1 or tp, {tp}")
    return Shard(str(line["device"]), tp, degree("micro_batch", 1), cp, ep, etp)


def _same(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


def _mean(rows: list[ElementRow]) -> ElementRow:
    """Return the mean of rows that differ in degrees without effect on the element."""
    if len(rows) == 1:
        return rows[0]
    return rows[0]._replace(
        both=float(np.mean([row.both for row in rows])),
        forward=float(np.mean([row.forward for row in rows])),
    )
