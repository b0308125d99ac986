"""What the pipeline ranks of a training job take: per element of the chain, per cut, per iteration.

One micro-batch through rank r takes U_r: its elements forward and backward, what it computes again,
and what it sends to the next rank there and back, once per virtual stage. Nothing overlaps. With v
virtual stages an iteration of B micro-batches takes

    T = (B - 1/v) max_r U_r + 1/v sum_r U_r + max_r sync_r + constant

which is 1F1B for v = 1, and for equal ranks the bubble of (pp - 1) / v micro-batches of the
interleaved schedule (Narayanan et al. 2021, arXiv 2104.04473, section 2.2). sync_r reduces the
gradients of rank r over its replicas, steps the optimiser and gathers the parameters; the constant
sums the gradient of a tied word embedding over the first and the last rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.anatomy.decoder import (
    embedding_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.anatomy.groups import grid, group_size
from ilp_planner.anatomy.messages import tokens_shape, unsplit_parameters
from ilp_planner.anatomy.work import step_traffic
from ilp_planner.costs.launch_floor import predict_times
from ilp_planner.costs.megatron.times import ElementTime, JobTimes, job_times
from ilp_planner.profiles.layers import LayerKey
from ilp_planner.specs.data_sheets import memory_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ilp_planner.anatomy.modules import Module
    from ilp_planner.costs.megatron.network import Network, Route
    from ilp_planner.profiles.layers import LayerProfile
    from ilp_planner.specs.training import TrainingJob

FORWARD_SHARE = 3  # a backward pass has twice the arithmetic of the forward pass
LAYER_GROUPS = ("tp", "cp", "ep", "etp", "etp-ep")
SYNC_GROUPS = ("dp-cp", "edp")


@dataclass(frozen=True, slots=True)
class Held:
    """Parameters on a rank: with replicas over data and context parallelism, and over experts'."""

    dense: float = 0.0
    expert: float = 0.0
    unsplit: float = 0.0  # of the dense ones: their gradients are summed over tp as well


@dataclass(frozen=True, eq=False)
class RankCosts:
    """Times of a job's ranks on the nodes of a network, whatever its layout and recomputation.

    profile: measured times of whole layers, tensor-parallel messages included, instead of kernels'
    and messages'; a forward pass is then the profile's own, or a third of both, as its arithmetic
    is, and attention's core the share of it that the estimate has.
    """

    job: TrainingJob
    network: Network
    profile: LayerProfile | None = None

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """For each pipeline rank, the first one with the same devices and links."""
        job, net = self.job, self.network
        whole_nodes = grid(job)["pp"].stride % net.per_node == 0
        if whole_nodes and len(net.cluster.type_names) == 1:
            return (0,) * job.pp
        known: dict[object, int] = {}
        found = []
        for rank in range(job.pp):
            key = (
                net.stage_types(job, rank),
                tuple(net.route(job, kind, rank) for kind in (*LAYER_GROUPS, *SYNC_GROUPS)),
            )
            found.append(known.setdefault(key, rank))
        return tuple(found)

    @cached_property
    def times(self) -> Mapping[int, JobTimes]:
        """Times of each kind of rank, by its first one."""
        types = self.network.cluster.device_types
        return {
            kind: job_times(
                self.job,
                self.network,
                [types[name] for name in self.network.stage_types(self.job, kind)],
                kind,
            )
            for kind in dict.fromkeys(self.kinds)
        }

    def elements(self, kind: int) -> tuple[ElementTime, ...]:
        """Return the times of the whole chain on a kind of rank."""
        times = self.times[kind]
        layers = (times.expert if e else times.dense for e in self.job.model.expert_layers)
        chain = (times.embedding, *layers, times.output)
        if self.profile is None:
            return chain
        return self._measured(self.profile, chain, kind)

    def _measured(
        self, profile: LayerProfile, chain: tuple[ElementTime, ...], kind: int
    ) -> tuple[ElementTime, ...]:
        """Return the chain with the profile's times, of the slowest device type of a rank."""
        job = self.job
        keys = [LayerKey(n, job.tp, job.micro_batch) for n in self.network.stage_types(job, kind)]
        rows = [self.row(profile, key) for key in keys]
        again = [
            profile.forward.get(key, row / FORWARD_SHARE)
            for key, row in zip(keys, rows, strict=True)
        ]
        seconds = np.max(rows, axis=0).tolist()
        return tuple(
            ElementTime(
                compute=spent,
                again=once,
                core=spent * element.core / element.total,
            )
            for spent, once, element in zip(
                seconds, np.max(again, axis=0).tolist(), chain, strict=True
            )
        )

    def slowest(self, kind: int) -> LayerKey:
        """Return what of the profile takes longest on a kind of rank."""
        assert self.profile is not None
        job, profile = self.job, self.profile
        keys = [LayerKey(n, job.tp, job.micro_batch) for n in self.network.stage_types(job, kind)]
        return max(keys, key=lambda key: float(self.row(profile, key).sum()))

    def row(self, profile: LayerProfile, key: LayerKey) -> NDArray[np.float64]:
        """Return the profile's seconds of every layer."""
        rates = memory_rates(self.network.cluster)
        samples = np.array([key.samples])
        found: NDArray[np.float64] = predict_times(
            profile, key.device, key.tp, samples, rates=rates
        )[0]
        return found

    @cached_property
    def transfers(self) -> tuple[float, ...]:
        """Seconds that each rank sends to the next and back, the last one to the first, per
        micro-batch and virtual stage."""
        job = self.job
        tokens, samples, hidden = tokens_shape(job, job.model.hidden)
        parts = job.tp if job.settings.sequence_parallel else 1
        size = tokens * samples * hidden * job.settings.width / parts
        return tuple(2 * self.network.transfer_seconds(job, rank, size) for rank in range(job.pp))

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """Parameters of every element of the chain."""
        job = self.job
        output = _held(output_module(job))
        if job.model.prediction_layers:
            more = _held(prediction_module(job))
            count = job.model.prediction_layers
            output = Held(output.dense + count * more.dense, output.expert + count * more.expert)
        kinds = {
            experts: _held(layer_module(job, experts), unsplit_parameters(job, experts))
            for experts in set(job.model.expert_layers)
        }
        layers = (kinds[experts] for experts in job.model.expert_layers)
        return (_held(embedding_module(job)), *layers, output)

    def sync(self, kind: int) -> tuple[float, NDArray[np.float64]]:
        """Return (seconds, seconds of each element) of a kind of rank's synchronisation."""
        job, net = self.job, self.network
        settings = job.settings.optimizer
        sharded = settings.sharding != "none"
        rate = min(net.cluster.device_types[name].streaming for name in net.stage_types(job, kind))
        step = step_traffic(job.settings)
        fixed, per_dense, per_expert = 0.0, 0.0, 0.0
        for group in SYNC_GROUPS:
            if group == "edp" and not any(job.model.expert_layers):
                continue
            route = net.route(job, group, kind)
            latency, per_parameter = _reduction(route, job, sharded=sharded)
            shards = group_size(job, group) if sharded else 1
            per_parameter += step / shards / rate
            fixed += latency
            if group == "edp":
                per_expert = per_parameter
            else:
                per_dense = per_parameter
        latency, per_byte = net.route(job, "tp", kind).line("all_reduce")
        counts = np.array([(h.dense, h.expert, h.unsplit) for h in self.held])
        if counts[:, 2].any():
            fixed += latency
        weights = np.array([per_dense, per_expert, settings.gradient * per_byte])
        return fixed, counts @ weights

    @cached_property
    def constant(self) -> float:
        """Seconds per iteration of every layout."""
        job = self.job
        if not job.model.tied or job.pp == 1:
            return 0.0
        rows = job.padded_vocab * job.model.hidden / job.tp
        size = rows * job.settings.optimizer.gradient
        # Two ranks reduce as one sends half to the other and back, from the last to the first.
        return 2 * self.network.transfer_seconds(job, job.pp - 1, size / 2)


def _held(module: Module, unsplit: int = 0) -> Held:
    experts = module.expert_parameters
    return Held(float(module.parameters - experts), float(experts), float(unsplit))


def _reduction(route: Route, job: TrainingJob, *, sharded: bool) -> tuple[float, float]:
    """Return (seconds, seconds per parameter) of reducing gradients and gathering parameters."""
    gradient, width = job.settings.optimizer.gradient, job.settings.width
    if not sharded:
        latency, per_byte = route.line("all_reduce")
        return latency, gradient * per_byte
    scatter, gather = route.line("reduce_scatter"), route.line("all_gather")
    return scatter[0] + gather[0], gradient * scatter[1] + width * gather[1]
