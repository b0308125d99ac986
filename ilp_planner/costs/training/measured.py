"""Elements of a job from a profile's rows, and from kernels if it has none.

A row counts as it is. If two rows or more are of other micro-batches under the same degrees, a
straight line through them counts. Everything else takes the time of its kernels times a ratio that
the rows of the same kind of element on the same device type have to their own kernels: the
geometric mean, for the forward and the backward pass. Rows leave out messages of context- and
expert-parallel ranks, and mostly of tensor-parallel ones; that comes from the network in any case.

Measured over modelled times of rows: a ratio, and its spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import SpecError
from ilp_planner.base.units import counted
from ilp_planner.costs.launch_floor import straight_lines
from ilp_planner.costs.profiles.elements import ElementRow, Shard, routed_elements
from ilp_planner.costs.profiles.shares import LINKS
from ilp_planner.costs.profiles.table import Origin, Provenance
from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.sync import held_by_elements
from ilp_planner.costs.training.times import NAMES, JobPasses, job_passes
from ilp_planner.job.work import step_traffic
from ilp_planner.specs.training import TrainingJob
from ilp_planner.specs.tuning import Tuning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.elements import ElementProfile
    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.training.times import ElementTime, Passes
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Settings


# ---- scales --------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """Measured over kernel times of rows.

    ratios: forward and backward. rows: that say it. error: of each row from the others', the mean
    of the relative ones; None of fewer than two.
    """

    ratios: tuple[float, float]
    rows: int
    error: float | None = None


def scale_of(ratios: Iterable[tuple[float, float]]) -> Scale:
    """Return the geometric mean of ratios, and how far each is from that of the others."""
    rows = np.log(np.maximum(np.array(list(ratios), np.float64), 1e-12))
    count = len(rows)
    error = None
    if count > 1:
        others = (rows.sum(axis=0) - rows) / (count - 1)
        error = float(np.abs(np.expm1(others - rows)).mean())
    there, back = np.exp(rows.mean(axis=0)).tolist()
    return Scale((there, back), count, error)


# ---- measured ------------------------------------------------------------------------------------


EMBEDDING, DENSE, EXPERT, OUTPUT = JobPasses._fields
WORDS = {
    EMBEDDING: "the embedding", DENSE: "layers", EXPERT: "layers with experts", OUTPUT: "the head",
}  # fmt: skip
# Groups whose messages rows of whole tensor-parallel groups have in them; experts are divided over
# these groups only without expert parallelism.
TENSOR, DIVIDED = ("tp",), ("tp", "etp", "etp-ep")
EXCHANGING = ("cp", "ep", "etp", "etp-ep")


class Timed(NamedTuple):
    """An element on a device type, of a kind. origin: of its kernels' seconds; again: of its
    forward pass."""

    kind: str
    time: ElementTime
    origin: Origin
    again: Origin


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredTimes:
    """A profile under a cluster's names of device types, and its ratios for kernels there.
    scales: (device type, kind of element) -> their ratio; kinds that have rows. steps: device type
    -> ratio of the optimiser's measured steps to their memory traffic; types that have some."""

    profile: ElementProfile
    decoder: Decoder
    scales: Mapping[tuple[str, str], Scale]
    steps: Mapping[str, Scale]

    @property
    def links(self) -> LinkTimes | None:
        """The links that the profile has measured."""
        return self.profile.links

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """Kind of every element of the chain."""
        return element_kinds(self.decoder)

    @cached_property
    def routed(self) -> tuple[bool, ...]:
        """For every element, whether it has routed experts."""
        return routed_elements(self.decoder)

    @cached_property
    def pooled(self) -> Mapping[str, Scale]:
        """Device type -> the ratio of all its rows, for kinds without any."""
        names = dict.fromkeys(name for name, _ in self.scales)
        return {
            name: scale_of([s.ratios for (own, _), s in self.scales.items() if own == name])
            for name in names
        }

    def scale(self, device: str, kind: str) -> Scale:
        """Return the ratio for a kind of element: its rows', else those of all kinds."""
        return self.scales.get((device, kind)) or self.pooled[device]

    def row(self, job: TrainingJob, device: str, place: int) -> ElementRow | None:
        """Return the row of an element in a job, or a value between rows of other micro-batches;
        None if there are none."""
        shard = Shard(
            device, job.tp, job.micro_batch, job.settings.cp, job.settings.ep, job.expert_tp
        )
        routed, kernels = self.routed[place], job.settings.kernels
        if routed and kernels.pad_to_capacity and kernels.capacity not in (0, 1):
            return None  # experts of rows have as many tokens as there are
        shard = shard.of(routed=routed)
        found = self.profile.rows.get((shard, place))
        return found or _between(self.others.get((shard._replace(samples=0), place), {}), shard)

    @cached_property
    def others(self) -> dict[tuple[Shard, int], dict[int, ElementRow]]:
        """Shards of no samples -> rows of the same degrees by samples, by element."""
        found: dict[tuple[Shard, int], dict[int, ElementRow]] = {}
        for (shard, place), row in sorted(self.profile.rows.items(), key=lambda item: item[0]):
            found.setdefault((shard._replace(samples=0), place), {})[shard.samples] = row
        return found

    def chain(
        self, job: TrainingJob, network: Network, device: str, pp_rank: int
    ) -> tuple[Timed, ...]:
        """Return all elements of a job on a device type of a pipeline rank. Rows are of training
        all of the model; where a part is trained, kernels take their ratio to those of all."""
        rows = [self.row(job, device, place) for place in range(len(self.kinds))]
        figures = network.cluster.device_types[device]

        divided = DIVIDED if job.settings.ep == 1 and job.expert_tp == job.tp else TENSOR

        def passes(of: TrainingJob) -> dict[bool, JobPasses]:
            """Return all passes, and those without the messages that rows have in them."""
            return {
                sent: job_passes(
                    of, network, figures, pp_rank, links=self.links, without=divided * sent
                )
                for sent in {False, *(row.sent for row in rows if row is not None)}
            }

        own = passes(job)
        whole = passes(_all_trained(job)) if job.settings.tuning else own
        names = (EMBEDDING, *(NAMES[number] for number in job.layer_kinds), OUTPUT)
        found = []
        for kind, name, row in zip(self.kinds, names, rows, strict=True):
            if row is None:
                found.append(self._scaled(device, kind, getattr(own[False], name)))
            else:
                kernels = getattr(whole[row.sent], kind).kernels
                found.append(_as_measured(kind, row, getattr(own[row.sent], name), kernels))
        return tuple(found)

    def step(
        self, device: str, job: TrainingJob, held: NDArray[np.float64], traffic: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the seconds of the optimiser's step of every element, of all that a rank holds.

        Measured ones are of a rank with all experts, and in proportion to its parameters; at other
        degrees, memory traffic is scaled like theirs.

        Parameters
        ----------
        held: parameters of a rank, by element. traffic: seconds of their memory traffic.
        """
        whole = self.profile.optimizer.get((device, job.tp))
        if whole is None:
            scale = self.steps.get(device)
            return traffic if scale is None else traffic * scale.ratios[0]
        trained = _all_trained(job)
        every = _held(replace(trained, settings=replace(trained.settings, ep=1, etp=0)))
        return whole * np.divide(held, every, out=np.ones_like(held), where=every > 0)

    def step_origin(self, device: str, tp: int) -> Origin:
        """Return the source of the optimiser's seconds on a device type."""
        if (device, tp) not in self.profile.optimizer:
            scale = self.steps.get(device)
            return LINKS if scale is None else Origin(Provenance.SCALED, scale.error)
        sure = any(
            (shard.device, shard.tp) == (device, tp) and _is_measured(row)
            for (shard, _), row in self.profile.rows.items()
        )
        return Origin(Provenance.MEASURED) if sure else LINKS

    def _scaled(self, device: str, kind: str, passes: Passes) -> Timed:
        scale = self.scale(device, kind)
        origin = Origin(Provenance.SCALED, scale.error)
        return Timed(kind, passes.element(scale.ratios), origin, origin)


def element_kinds(decoder: Decoder) -> tuple[str, ...]:
    """Return the kind of every element of the chain."""
    layers = (EXPERT if experts else DENSE for experts in decoder.expert_layers)
    return (EMBEDDING, *layers, OUTPUT)


def _all_trained(job: TrainingJob) -> TrainingJob:
    """Return the job that trains all of the model."""
    return replace(job, settings=replace(job.settings, tuning=Tuning()))


def _as_measured(kind: str, row: ElementRow, passes: Passes, trained: tuple[float, float]) -> Timed:
    """Return an element with a row's seconds. Without times of its forward pass, this has its share
    of the kernels. trained: seconds of these, forward and backward, where all is trained."""
    there, back = trained
    known = not math.isnan(row.forward)
    forward = row.forward if known else row.both * there / (there + back)
    ratios = forward / there, (row.both - forward) / back
    again = row.origin if known else Origin(Provenance.EXTRAPOLATED)
    return Timed(kind, passes.element(ratios), row.origin, again)


def _between(rows: Mapping[int, ElementRow], shard: Shard) -> ElementRow | None:
    """Return the values of straight lines through rows of other micro-batches; None of fewer than
    two.

    rows: by samples, ascending. All have the same messages in them, or the most.
    """
    most = sum(row.sent for row in rows.values()) * 2 > len(rows)
    rows = {samples: row for samples, row in rows.items() if row.sent is most}
    if len(rows) < 2:
        return None
    known, every = np.array(list(rows), np.float64), list(rows.values())

    def at(samples: float, left: NDArray[np.bool_]) -> ElementRow:
        figures = np.array([(row.both, row.forward, row.both - row.forward) for row in every])
        line = straight_lines(known[left], figures[left], np.array([[samples]]))[0].tolist()
        both, forward, backward = line
        share = forward / (forward + backward)  # NaN where some row does not know it
        return ElementRow(both, both * share, sent=most)

    inside = known[0] < shard.samples < known[-1]
    judged = [
        abs(at(size, known != size).both / rows[int(size)].both - 1)
        for size in known.tolist()
        if known.size > 2 and (known[0] < size < known[-1]) is inside
    ]
    kind = Provenance.INTERPOLATED if inside else Provenance.EXTRAPOLATED
    error = sum(judged) / len(judged) if judged else None
    found = at(shard.samples, np.ones(known.size, bool))
    return found._replace(origin=Origin(kind, error))


def measured_times(
    profile: ElementProfile, decoder: Decoder, settings: Settings, cluster: ClusterSpec
) -> MeasuredTimes:
    """Return a profile's times, with their ratios for kernels.

    Parameters
    ----------
    profile: under the cluster's names of device types. settings: of all jobs.

    Raises
    ------
    SpecError: a device type has no figures of kernels, or layers are of other kinds than with and
        without experts.
    """
    if decoder.encoders:
        raise SpecError(
            "profile: found rows of layers and a model with an encoder of images, expected a model "
            "of text; leave them out"
        )
    if decoder.shares_keys:
        raise SpecError(
            f"{profile.source}: found times of layers, but a model of layers with and without an "
            "indexer, expected attention alike in all; leave them out"
        )
    if decoder.pattern:
        raise SpecError(
            f"{profile.source}: found times of layers, but a model of layers "
            f"{decoder.pattern!r:.40}, expected attention in all; leave them out"
        )
    kinds, known = element_kinds(decoder), dict[Shard, JobPasses]()
    ratios: dict[tuple[str, str], dict[object, tuple[bool, tuple[float, float]]]] = {}
    sure = any(_is_measured(row) for row in profile.rows.values())
    for (shard, place), row in profile.rows.items():
        if sure and not _is_measured(row):
            continue
        if shard not in known:
            known[shard] = _predicted(shard, row.sent, decoder, settings, cluster)
        kind = kinds[place]
        own = getattr(known[shard], kind)
        # Rows of a range of layers are one row.
        ratios.setdefault((shard.device, kind), {})[shard, row] = row.sent, _ratios(row, own)
    scales = {}
    for key, found in ratios.items():
        # Rows without messages say what kernels take; others only where there are none of them.
        alone = [pair for sent, pair in found.values() if not sent]
        scales[key] = scale_of(alone or [pair for _, pair in found.values()])
    ways: dict[str, list[tuple[float, float]]] = {}
    for (name, tp), spent in profile.optimizer.items():
        job = _job(Shard(name, tp, 1, ep=1), decoder, settings, cluster)
        moved = _held(job).sum() * step_traffic(job.settings)
        said = moved / rates_of(cluster.device_types[name]).streaming
        if spent.sum() > 0:
            ways.setdefault(name, []).append((float(spent.sum() / said),) * 2)
    steps = {name: scale_of(ratios) for name, ratios in ways.items()}
    return MeasuredTimes(profile=profile, decoder=decoder, scales=scales, steps=steps)


def _held(job: TrainingJob) -> NDArray[np.float64]:
    return np.array([one.dense + one.expert for one in held_by_elements(job)], np.float64)


def _is_measured(row: ElementRow) -> bool:
    return row.origin.provenance is Provenance.MEASURED


def _predicted(
    shard: Shard, sent: bool, decoder: Decoder, settings: Settings, cluster: ClusterSpec
) -> JobPasses:
    """Return the passes of a shard by its kernels, and by its tensor-parallel messages if they are
    `sent` in its row."""
    job = _job(shard, decoder, settings, cluster)
    device = cluster.device_types[shard.device]
    network = None
    if sent and job.world <= cluster.device_count:
        types = cluster.node_types
        order = sorted(range(len(types)), key=lambda node: types[node] != shard.device)
        network = Network(cluster, tuple(order))
    return job_passes(job, network, device, 0, without=EXCHANGING)


def _job(shard: Shard, decoder: Decoder, settings: Settings, cluster: ClusterSpec) -> TrainingJob:
    """Return the smallest job that has a shard."""
    ep, etp = max(shard.ep, 1), shard.etp
    return TrainingJob(
        model=decoder,
        micro_batch=shard.samples,
        global_batch=shard.samples * ep * max(etp, 1),
        tp=shard.tp,
        dp=ep * max(etp, 1),
        settings=replace(settings, cp=shard.cp, ep=ep, etp=etp, sequence_parallel=shard.tp > 1),
        devices_per_node=cluster.nodes[0].devices,
    )


def _ratios(row: ElementRow, passes: Passes) -> tuple[float, float]:
    there, back = (sum(pair) for pair in zip(passes.kernels, passes.sent, strict=True))
    if math.isnan(row.forward):
        both = row.both / (there + back)
        return both, both
    return row.forward / there, (row.both - row.forward) / back


def scale_notes(times: MeasuredTimes) -> Iterator[str]:
    """Yield a line for each device type: the number of rows, and the stand-ins for others."""
    profile = times.profile
    for name in dict.fromkeys(name for name, _ in times.scales):
        texts = [
            f"{WORDS[kind]} {scale.ratios[0]:.3g} forward and {scale.ratios[1]:.3g} backward "
            f"({counted(scale.rows, 'row')})"
            for (own, kind), scale in times.scales.items()
            if own == name
        ]
        lacking = [kind for kind in dict.fromkeys(times.kinds) if (name, kind) not in times.scales]
        if lacking:
            there, back = times.pooled[name].ratios
            which = ", ".join(WORDS[kind] for kind in lacking)
            texts.append(f"{which} {there:.3g} and {back:.3g}, as all rows together")
        yield (
            f"{profile.source}: {name}: what has no row is what its kernels are said to take, "
            f"times {'; '.join(texts)}"
        )
