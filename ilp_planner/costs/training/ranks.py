"""Times of the pipeline ranks of a training job: per element of the chain, per cut, per iteration.

An iteration takes

    T = schedule + max_r sync_r + constant

where the schedule is that of the ranks' passes and sends, simulated operation by operation
(`iteration`). sync_r reduces the gradients of rank r over its replicas, steps the optimiser and
gathers the parameters, less what passes hide; the constant sums the gradient of a tied word
embedding over the first and the last rank, and has the seconds that are no rank's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.costs.training.iteration import divided_step
from ilp_planner.costs.training.job import ends_of
from ilp_planner.costs.training.muon import muon_steps
from ilp_planner.costs.training.sync import Held, Late, Ring, held_by_elements, ring, sum_of
from ilp_planner.costs.training.times import (
    ElementTime,
    JobPasses,
    JobTimes,
    counts_of,
    element_alone,
    element_time,
    elements_of,
    has_element,
    has_experts,
    least_alone,
    of_slowest,
)
from ilp_planner.job.decoder import (
    embedding_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.groups import ACROSS, INSTANCE, grid
from ilp_planner.job.messages import tokens_shape
from ilp_planner.job.quantised import quantised_counts, sent_width
from ilp_planner.job.states import gathers_frozen, moments_of, rhythm, sharing
from ilp_planner.job.work import step_traffic
from ilp_planner.schedule.formulas import USUAL
from ilp_planner.specs.training import ORDERS, Recompute
from ilp_planner.specs.tuning import trains_words

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.training.measured import MeasuredTimes, Timed
    from ilp_planner.costs.training.network import Network
    from ilp_planner.costs.training.times import Alone
    from ilp_planner.job.modules import Module
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import Settings, TrainingJob

LAYER_GROUPS = ("tp", "cp", "ep", "etp", "etp-ep")
SYNC_GROUPS = ("dp-cp", "edp")
BUCKET, BUCKET_OF_REPLICA = 40e6, 1e6  # parameters
MOST_ALONE = 50_000  # elements that are kept without their messages
MOST_LEAST = 500_000  # seconds that are kept of them


class Shared:
    """Results of jobs of one model that no link decides, for all clusters.

    alone: of `RankCosts.alone`. least: of `MegatronPart.least_alone`, by what it depends on.
    """

    def __init__(self) -> None:
        self.alone: dict[tuple[object, ...], Alone] = {}
        self.least: dict[tuple[object, ...], float] = {}
        self._numbers: dict[object, int] = {}
        self._devices: dict[int, tuple[Device, int]] = {}  # they keep their numbers while here

    def number(self, value: Hashable) -> int:
        """Return the same number for equal values."""
        return self._numbers.setdefault(value, len(self._numbers))

    def device(self, device: Device) -> int:
        """Return the same number for equal devices."""
        if id(device) not in self._devices:
            self._devices[id(device)] = device, self.number(device)
        return self._devices[id(device)][1]

    def known_least(self) -> dict[tuple[object, ...], float]:
        """Return `least`, empty if it has too many."""
        if len(self.least) >= MOST_LEAST:
            self.least.clear()
        return self.least

    def keep(self, key: tuple[object, ...], found: Alone) -> None:
        """Keep a result; old ones are forgotten if there are too many."""
        if len(self.alone) >= MOST_ALONE:
            self.alone.clear()
            self._devices.clear()
        self.alone[key] = found


@lru_cache(maxsize=8)
def shared_of(model: Decoder) -> Shared:
    """Return the results of a model's jobs."""
    return Shared()


def steps_that_count(settings: Settings, micro_batches: int) -> int:
    """Return how many micro-batches share the casts of weights to lower precision; 0: none are
    cast."""
    return micro_batches if settings.quantised else 0


def fewest_replicas(job: TrainingJob) -> int:
    """Return the least number of replicas that experts can be divided over as in this job."""
    experts = job.settings.ep * job.expert_tp
    return experts // gcd(experts, job.tp * job.settings.cp)


def decisive(settings: Settings, *, experts: bool = True) -> Settings:
    """Return settings without all that the times of elements do not depend on."""
    optimizer = replace(
        settings.optimizer,
        sharding="parameters",
        instances=1,
        offload=0.0,
        overlap_offload=False,
    )
    found = replace(settings, optimizer=optimizer, recompute=Recompute(), order=ORDERS[0])
    return found if experts else replace(found, ep=1, etp=0)


@dataclass(frozen=True, eq=False)
class RankCosts:
    """Times of a job's ranks on the nodes of a network, for any layout and recomputation.

    profile: measured times of layers instead of kernel times. If it has steps of the optimiser, or
    links, these count as well. known: cached results of other jobs of the same problem.
    """

    job: TrainingJob
    network: Network
    profile: MeasuredTimes | None = None
    known: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each pipeline rank, the first one with the same devices and links."""
        job, net = self.job, self.network
        whole_nodes = grid(job)["pp"].stride % net.per_node == 0
        if whole_nodes and len(net.cluster.type_names) == 1:
            return (0,) * job.pp
        return net.kinds(job, (*LAYER_GROUPS, *SYNC_GROUPS))

    @property
    def distinct(self) -> tuple[int, ...]:
        """Return the first rank of each kind."""
        return tuple(dict.fromkeys(self.kinds))

    @cached_property
    def times(self) -> Mapping[int, JobTimes]:
        """Times of each kind of rank by kernels and messages, by its first one."""
        found: dict[int, JobTimes] = {}
        for kind in self.distinct:
            key = "times", self.seen(kind)
            if key not in self.known:
                self.known[key] = self._times_of(kind)
            found[kind] = self.known[key]
        return found

    def _times_of(self, kind: int) -> JobTimes:
        types = self.network.cluster.device_types
        devices = [types[name] for name in self.network.stage_types(self.job, kind)]
        each, plain = {}, JobPasses._fields
        for name in (*plain, *(n for n in elements_of(self.job) if n not in plain)):
            if not has_element(self.job, name):
                each[name] = ElementTime()
                continue
            key = name, self.seen(kind, experts=has_experts(self.job, name))
            if key not in self.known:
                alone = [self.alone(one, name) for one in devices]
                self.known[key] = element_time(self.job, self.network, devices, kind, name, alone)
            each[name] = self.known[key]
        others = {name: each.pop(name) for name in [*each] if name not in plain}
        return JobTimes(**each, others=others)

    @property
    def least_work(self) -> float:
        """Seconds that a micro-batch takes at least through the chain, on the fastest kind of rank,
        without waits for sharded states."""
        if self.profile is not None or any(self.stays_exact):
            chains = [self.elements(kind) for kind in self.distinct]
            return float(sum(min(e.total for e in one) for one in zip(*chains, strict=True)))
        key = "least work", tuple(self.seen(kind) for kind in self.distinct)
        if key not in self.known:
            self.known[key] = self._least_work()
        return float(self.known[key])

    def _least_work(self) -> float:
        kinds = self.job.layer_kinds
        counts = (1, 1, *(kinds.count(kind) for kind in sorted({0, 1, *kinds})))
        rows = (
            (
                t.embedding.total,
                t.output.total,
                *(t.layer(kind).total for kind in sorted({0, 1, *kinds})),
            )
            for t in self.times.values()
        )
        least = (min(column) for column in zip(*rows, strict=True))
        return float(sum(n * each for n, each in zip(counts, least, strict=True)))

    @cached_property
    def shared(self) -> Shared:
        """Results that no link decides, of all jobs of the model."""
        if "shared" not in self.known:
            self.known["shared"] = shared_of(self.job.model)
        found: Shared = self.known["shared"]
        return found

    def alone(self, device: Device, name: str) -> Alone:
        """Return an element of `JobTimes` on a device type without the seconds of its messages."""
        key = (name, self.shared.device(device), *self.own(experts=has_experts(self.job, name)))
        if key not in self.shared.alone:
            found = element_alone(self.job, device, name)
            self.shared.keep(key, found)
        return self.shared.alone[key]

    @property
    def least_alone(self) -> float:
        """Seconds that a micro-batch takes at least through the chain on any of the cluster's
        devices, whatever the number of replicas and micro-batches: messages left out, and weights
        cast as seldom as with the fewest replicas; 0.0 for measured layers, and where some are not
        quantised."""
        if self.profile is not None or any(self.stays_exact):
            return 0.0
        cluster = self.network.cluster
        devices = [cluster.device_types[name] for name in cluster.type_names]  # that nodes have
        few = self
        if self.job.settings.quantised:
            few = replace(self, job=replace(self.job, dp=fewest_replicas(self.job)))
        if lengths := self.job.model.lengths:  # one replica waits for no other one
            model = replace(self.job.model, lengths=replace(lengths, alike=True))
            few = replace(self, job=replace(self.job, dp=1, model=model))
        return sum(
            count * min(least_alone(few.alone(device, name)) for device in devices)
            for name, count in counts_of(self.job).items()
        )

    def own(self, *, experts: bool = True) -> tuple[object, ...]:
        """Return all that the work and the messages of elements depend on, with experts or without:
        not the sharding or place of states, nor recomputation, nor the place of ranks."""
        job = self.job
        steps = steps_that_count(job.settings, job.micro_batches)
        key = id(job.settings), experts
        settings, number = self.known.get(key, (None, 0))
        if settings is not job.settings:
            number = self.shared.number(decisive(job.settings, experts=experts))
            self.known[key] = job.settings, number
        return (
            number, job.tp, job.micro_batch, steps, job.devices_per_node, job.gpu_architecture.name,
            job.sample, job.loads,
        )  # fmt: skip

    def seen(self, kind: int, *, experts: bool = True) -> object:
        """Return all that the times of elements on a kind of rank depend on, with experts or
        without: what `own` returns, and the routes between ranks."""
        job, net = self.job, self.network
        groups = LAYER_GROUPS if experts else LAYER_GROUPS[:2]
        routes = net.routes_of(job, groups, kind)
        return self.own(experts=experts), net.stage_types(job, kind), routes

    @cached_property
    def exact(self) -> RankCosts:
        """Return the same with products that are not quantised."""
        settings = self.job.settings
        settings = replace(settings, kernels=settings.kernels.exact)
        return replace(self, job=replace(self.job, settings=settings))

    @cached_property
    def stays_exact(self) -> tuple[bool, ...]:
        """For each layer, whether its products stay in the training precision."""
        kernels, count = self.job.settings.kernels, self.job.model.layers
        last = count - kernels.exact_last
        return tuple(i < kernels.exact_first or i >= last for i in range(count))

    def elements(self, kind: int) -> tuple[ElementTime, ...]:
        """Return the times of the whole chain on a kind of rank."""
        if kind not in self._elements:
            self._elements[kind] = self._sharded(self._bare(kind), kind)
        return self._elements[kind]

    @cached_property
    def _elements(self) -> dict[int, tuple[ElementTime, ...]]:
        """Results of `elements`."""
        return {}

    def _bare(self, kind: int) -> tuple[ElementTime, ...]:
        """Return the chain of `elements` without waits for sharded states."""
        if self.profile is not None:
            each = zip(*self.timed(kind).values(), strict=True)
            return tuple(of_slowest([one.time for one in types]) for types in each)
        times = self.times[kind]
        other = self.exact.times[kind] if any(self.stays_exact) else times
        layers = (
            (other if exact else times).layer(number)
            for number, exact in zip(self.job.layer_kinds, self.stays_exact, strict=True)
        )
        return (times.embedding, *layers, times.output)

    def _sharded(self, chain: tuple[ElementTime, ...], kind: int) -> tuple[ElementTime, ...]:
        """Return the chain with every micro-batch's messages of sharded gradients (ZeRO-2) and
        parameters (ZeRO-3): gathered for passes and reduced in the backward one, and hidden by the
        next layer but for a share; sums over tensor-parallel ranks wait for nothing else."""
        often = rhythm(self.job)
        if not often.in_passes:
            return chain
        sent = _seconds(self.replica_rings(kind), len(self.held))
        gather, reduce = sent["all_gather"], sent["reduce_scatter"]
        if often.sums:
            reduce = reduce + sent["all_reduce"]
        there, back = often.forward * gather, often.backward * gather + often.reduces * reduce
        summed = often.sums * _seconds(self.undivided_rings(kind), len(self.held))["all_reduce"]
        exposed = max(machine.sharded_exposed for machine in self._machines(kind))
        seen: dict[tuple[object, ...], ElementTime] = {}  # mostly of equal layers
        found = []
        rows = zip(chain, there.tolist(), back.tolist(), summed.tolist(), strict=True)
        for element, a, b, c in rows:
            key = id(element), a, b, c
            if key not in seen:
                seen[key] = element.waiting(a, b, exposed).sending(c)
            found.append(seen[key])
        return tuple(found)

    def timed(self, kind: int) -> dict[str, tuple[Timed, ...]]:
        """Return device type -> the chain with the profile's times, of a kind of rank."""
        assert self.profile is not None
        if kind not in self._timed:
            key = ("timed", self.seen(kind))
            if key not in self.known:
                names = self.network.stage_types(self.job, kind)
                self.known[key] = {
                    name: self.profile.chain(self.job, self.network, name, kind) for name in names
                }
            self._timed[kind] = self.known[key]
        return self._timed[kind]

    def slowest(self, kind: int) -> tuple[Timed, ...]:
        """Return the chain of the device type of a kind of rank that takes longest for it."""
        return max(self.timed(kind).values(), key=lambda chain: sum(e.time.total for e in chain))

    @cached_property
    def _timed(self) -> dict[int, dict[str, tuple[Timed, ...]]]:
        """Results of `timed`."""
        return {}

    @property
    def links(self) -> LinkTimes | None:
        """The links that the profile has measured."""
        return None if self.profile is None else self.profile.links

    @cached_property
    def boundary(self) -> float:
        """Bytes that each device sends to the next rank, per micro-batch."""
        job = self.job
        tokens, samples, hidden = tokens_shape(job, job.model.hidden)
        parts = job.tp if job.settings.sequence_parallel or job.settings.scatter_sends else 1
        return tokens * samples * hidden * job.model.streams * job.settings.width / parts

    @cached_property
    def transfers(self) -> tuple[float, ...]:
        """Seconds that each rank sends to the next and back, the last one to the first, per
        micro-batch and virtual stage."""
        job, net = self.job, self.network
        scattered = job.settings.scatter_sends and not job.settings.sequence_parallel
        whole = job.tp * self.boundary if scattered and job.pp > 1 else 0.0
        found = []
        for rank in range(job.pp):
            gathered = net.route(job, "tp", (rank + 1) % job.pp).seconds("all_gather", whole)
            sent = net.transfer(job, rank).seconds(self.boundary, self.links)
            found.append(2 * (sent + gathered))
        return tuple(found)

    def transfer_origin(self, rank: int) -> Origin:
        """Return the source of these seconds of a rank."""
        return self.network.transfer(self.job, rank).origin(self.boundary, self.links)

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Parameters of every element of the chain."""
        key = "held", self._divided
        if key not in self.known:
            self.known[key] = held_by_elements(self.job)
        found: tuple[Held, ...] = self.known[key]
        return found

    @property
    def _divided(self) -> object:
        """All that the parameters of elements on a rank depend on."""
        job, s = self.job, self.job.settings
        divided = (job.tp, s.ep, s.etp, s.sequence_parallel, job.pp == 1)
        return divided, s.vocab_multiple, s.kernels.implementation, s.tuning

    @property
    def held_in_all(self) -> Held:
        """Parameters of all elements of the chain."""
        key = "held in all", self._divided
        if key not in self.known:
            self.known[key] = sum_of(self.held)
        found: Held = self.known[key]
        return found

    def sync(self, kind: int) -> tuple[float, NDArray[np.float64]]:
        """Return (seconds, seconds of each element) of a kind of rank's synchronisation."""
        late = self.exposed_rings(kind)
        fixed = sum(one.fixed for one in late)
        return fixed, np.sum([self.step(kind), *(one.each for one in late)], axis=0)

    @cached_property
    def syncs(self) -> Mapping[int, tuple[float, NDArray[np.float64]]]:
        """Results of `sync` for every kind of rank; they do not depend on recomputation."""
        job = self.job
        settings = replace(job.settings, recompute=Recompute(), turn=0, schedule=USUAL)
        steps = steps_that_count(settings, job.micro_batches)
        degrees = job.tp, job.pp, job.dp, job.micro_batch, steps
        key = ("syncs", settings, *degrees, self.network.order, self.profile is None)
        if key not in self.known:
            self.known[key] = {kind: self.sync(kind) for kind in self.distinct}
        found: Mapping[int, tuple[float, NDArray[np.float64]]] = self.known[key]
        return found

    def longest_sync(
        self, job: TrainingJob, known: dict[object, Any] | None = None
    ) -> tuple[int, float]:
        """Return the rank with the longest synchronisation, and its seconds.

        job: this one, with any layout and schedule. known: of other layouts.
        """
        spans, known = list(pairwise(ends_of(job.pipeline))), {} if known is None else known
        seconds = []
        for kind, stages in zip(self.kinds, job.stages_of_ranks, strict=True):
            fixed, each = self.syncs[kind]
            held = 0.0
            for span in (spans[k] for k in stages):
                if (kind, *span) not in known:
                    known[kind, *span] = float(each[slice(*span)].sum())
                held += known[kind, *span]
            seconds.append(fixed + held)
        longest = max(seconds)
        return seconds.index(longest), longest

    def exposed_rings(self, kind: int) -> list[Late]:
        """Return the rings that an iteration has once, and what passes do not hide of them.

        Gradients are reduced while those of the layers before them are computed, and parameters
        gathered while the layers before them run. What a layer sends is hidden no longer than a
        pass of a micro-batch through a layer takes: messages follow each other as passes do, so
        that a layer's own stands for the one beside it. Nothing hides the latency of the last
        bucket.
        """
        often = rhythm(self.job)  # what `elements` has not
        once = {
            "all_gather": often.once,
            "reduce_scatter": not often.reduces,
            "all_reduce": not often.sums,
        }
        rings = [one for one in self.rings(kind) if once[one.collective]]
        found = []
        for one in rings:
            late = one.seconds
            if self._overlapped(one):
                beside = [other for other in rings if other.gathers == one.gathers]
                late = late * self._exposed(beside, kind)
            found.append(Late(one, one.latency, late))
        return found

    def _exposed(self, rings: Sequence[Ring], kind: int) -> NDArray[np.float64]:
        """Return the share of every element's messages that passes do not hide.

        rings: those that gather parameters, during forward passes, or those that sum gradients,
        during backward ones.
        """
        chain, gathers = self._bare(kind), rings[0].gathers
        beside = np.array([one.forward if gathers else one.total - one.forward for one in chain])
        sent = np.sum([one.seconds for one in rings], axis=0)
        least = max(machine.data_exposed for machine in self._machines(kind))
        late = np.divide(sent - beside, sent, out=np.zeros_like(sent), where=sent > 0)
        return np.asarray(np.maximum(late, least), np.float64)

    def _overlapped(self, one: Ring) -> bool:
        optimizer = self.job.settings.optimizer
        return optimizer.overlap_parameters if one.gathers else optimizer.overlap_gradients

    def _machines(self, kind: int) -> list[Machine]:
        """Return the constants of the device types of a kind of rank."""
        names = self.network.stage_types(self.job, kind)
        return [self.network.cluster.device_types[name].machine for name in names]

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """Trained parameters [n, 3] of every element of the chain: dense, expert, unsplit."""
        return np.array([(h.dense, h.expert, h.unsplit) for h in self.held])

    @cached_property
    def still(self) -> NDArray[np.float64]:
        """Parameters [n, 2] of every element that are gathered without being trained: dense,
        expert."""
        if not gathers_frozen(self.job):
            return np.zeros((len(self.held), 2))
        return np.array([(h.still, h.still_experts) for h in self.held])

    @cached_property
    def quantised(self) -> NDArray[np.float64]:
        """Parameters [n, 2] of every element's quantised products: dense, expert."""
        job = self.job
        if not job.settings.quantised:
            return np.zeros((len(self.held), 2))
        output = [output_module(job)]
        if job.model.prediction_layers:
            output += [prediction_module(job)] * job.model.prediction_layers
        kinds = {
            number: quantised_counts([layer_module(job, *job.kind(number))])
            for number in set(job.layer_kinds)
        }
        layers = (
            (0, 0) if exact else kinds[number]
            for number, exact in zip(job.layer_kinds, self.stays_exact, strict=True)
        )
        counts = [quantised_counts([embedding_module(job)]), *layers, quantised_counts(output)]
        return np.array([(total - routed, routed) for total, routed in counts], np.float64)

    @cached_property
    def moments(self) -> NDArray[np.float64]:
        """Bytes [n, 2] of every element's moments beyond those of plain numbers, and in pages: of
        a whole replica."""
        job = self.job
        if not job.settings.optimizer.mixes_moments:
            return np.zeros((len(self.held), 2))
        kinds = {
            number: self._moments(layer_module(job, *job.kind(number)))
            for number in set(job.layer_kinds)
        }
        ends = self._moments(embedding_module(job)), self._moments(output_module(job))
        return np.array([ends[0], *(kinds[number] for number in job.layer_kinds), ends[1]])

    def _moments(self, module: Module) -> tuple[float, float]:
        found = [moments_of(self.job, module, expert=expert) for expert in (False, True)]
        paged = sum(one.paged for one in found)
        plain = module.trained * self.job.settings.optimizer.moments
        return sum(one.stays for one in found) + paged - plain, paged

    @property
    def _saving(self) -> NDArray[np.float64]:
        """Parameters [n, 2] that are gathered quantised: of adapters none, beside a base that is
        not gathered."""
        if self.job.settings.tuning.rank and not gathers_frozen(self.job):
            return np.zeros_like(self.quantised)
        gathered = self.counts[:, :2] + self.still
        return np.minimum(self.quantised, gathered)

    def rings(self, kind: int) -> list[Ring]:
        """Return the rings for gradients and parameters on a kind of rank."""
        return [*self.replica_rings(kind), *self.undivided_rings(kind)]

    def replica_rings(self, kind: int) -> list[Ring]:
        """Return the rings over replicas."""
        job, net, links = self.job, self.network, self.links
        gradient, width = job.settings.optimizer.gradient, job.settings.width
        dense, expert, _ = self.counts.T
        saved = (width - sent_width(job)) * self._saving.T
        several = job.settings.optimizer.sharding != "none" and job.settings.optimizer.instances > 1
        found: list[Ring] = []
        each = zip(SYNC_GROUPS, (dense, expert), self.still.T, saved, strict=True)
        for group, count, still, less in each:
            if not (count.any() or still.any()):
                continue
            shard = net.route(job, group, kind, INSTANCE if several else "")
            sent = {"all_reduce": gradient * count}
            if job.settings.optimizer.sharding != "none":
                gathered = width * (count + still) - less
                whole = "reduce_scatter" if job.settings.optimizer.scatters else "all_reduce"
                sent = {whole: gradient * count, "all_gather": gathered}
            found += [
                self._in_buckets(ring(name, shard, size, links), count)
                for name, size in sent.items()
                if size.any()
            ]
            if several and count.any():
                peers = net.route(job, group, kind, ACROSS)
                found.append(ring("all_reduce", peers, gradient * count / shard.size, links))
        return found

    def _in_buckets(self, one: Ring, count: NDArray[np.float64]) -> Ring:
        """Return a ring that is passed once for each bucket of parameters, if passes overlap it:
        of 40 million, or of as many as there are replicas, in millions, whichever is more
        (`distributed_data_parallel.py` of `megatron.core`).

        count: parameters of every element.
        """
        if not self._overlapped(one) or rhythm(self.job).in_passes:
            return one
        bucket = max(BUCKET, BUCKET_OF_REPLICA * sharing(self.job, expert=False))
        later = one.latency * count.sum() / bucket / one.sizes.sum()
        return one._replace(per_byte=one.per_byte + later)

    def undivided_rings(self, kind: int) -> list[Ring]:
        """Return the rings for gradients of parameters that tensor-parallel ranks hold whole: a
        DTensor does so in its own precision (`_fsdp_param.py: _get_grad_inner_tensor`)."""
        job, unsplit = self.job, self.counts[:, 2]
        if not unsplit.any():
            return []
        optimizer = job.settings.optimizer
        width = job.settings.width if optimizer.from_master else optimizer.gradient
        route = self.network.route(job, "tp", kind)
        return [ring("all_reduce", route, width * unsplit, self.links)]

    def step(self, kind: int) -> NDArray[np.float64]:
        """Return the seconds of the optimiser's step of each element, of a rank's slowest device.

        A profile's if it has them: of a device that steps all of a shard's parameters itself.
        Otherwise the memory traffic of Adam's states. Both are in proportion to the parameters of a
        replica's share, less the part that is stepped on the host. Moments in pages come from the
        host for the step and go back there, as they do if the device has no room for them.
        """
        job, net = self.job, self.network
        sharded = job.settings.optimizer.sharding != "none"
        shards = [sharing(job, expert=expert) if sharded else 1 for expert in (False, True)]
        if job.settings.optimizer.of_matrices:
            devices = [net.cluster.device_types[name] for name in net.stage_types(job, kind)]
            return np.asarray(muon_steps(job, net, devices, kind) @ (1 / np.array(shards)))
        dense, expert, _ = self.counts.T
        # Element by element: equal layers must not differ in the last digit.
        own, every = dense / shards[0] + expert / shards[1], dense + expert
        found = []
        for name in net.stage_types(job, kind):
            device = net.cluster.device_types[name]
            rate = rates_of(device).streaming * device.machine.stepping
            more, paged = self.moments.T
            whole = every * (step_traffic(job.settings) / rate) + 2 * more / rate
            if self.profile is not None:
                whole = self.profile.step(name, job, every, whole)
            stepped = divided_step(job.settings, device, whole, every)
            found.append(stepped + 2 * paged / device.to_host)
        share = np.divide(own, every, out=np.zeros_like(own), where=every > 0)
        return np.asarray(share * np.max(found, axis=0), np.float64)

    @cached_property
    def tied(self) -> float:
        """Bytes of the gradient of a tied word embedding that two ranks sum; 0 for none."""
        job = self.job
        if not job.model.tied or job.pp == 1:
            return 0.0
        if not trains_words(job.model, job.settings.tuning):
            return 0.0
        return job.padded_vocab * job.model.hidden / job.tp * job.settings.optimizer.gradient

    @cached_property
    def constant(self) -> float:
        """Seconds per iteration of every layout."""
        return self.tied_seconds + self.step_seconds

    @property
    def step_seconds(self) -> float:
        """Seconds of an iteration that are no rank's work, on the slowest device type."""
        types = self.network.cluster.device_types
        return max(types[name].machine.step for name in self.network.cluster.type_names)

    @cached_property
    def tied_seconds(self) -> float:
        """Seconds of the sum of a tied word embedding's gradient."""
        if not self.tied:
            return 0.0
        # Two ranks reduce as one sends half to the other and back, from the last to the first.
        way = self.network.transfer(self.job, self.job.pp - 1)
        return 2 * way.seconds(self.tied / 2, self.links)

    def constant_origin(self) -> Origin:
        """Return the source of these seconds."""
        way = self.network.transfer(self.job, self.job.pp - 1)
        return way.origin(self.tied / 2, self.links)


def _seconds(rings: Sequence[Ring], elements: int) -> dict[str, NDArray[np.float64]]:
    """Return collective -> seconds of every element's own messages of these rings."""
    found = {name: np.zeros(elements) for name in ("reduce_scatter", "all_gather", "all_reduce")}
    for one in rings:
        found[one.collective] += np.where(
            one.sizes > 0, one.latency + one.per_byte * one.sizes, 0.0
        )
    return found
