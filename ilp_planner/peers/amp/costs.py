"""AMP's cost model (NeurIPS 2022), as its program computes it.

One (tp, dp, micro-batch size m) for the whole pipeline; B = global batch / (dp m). In seconds:

    e_l = m 3 forward_l                         a layer; forward_l is mixed over the cluster's nodes
    c_j = mean over replicas of the numbers that leave the cut / slowest link of the tp peers
    r_i = max over tp ranks of 2 (dp - 1) / (dp link) parameters of the stage / tp
    T   = sum_l e_l + (B - 1) max_stage(sum e) + sum_j c_j + max_i r_i

Links count fp32 numbers per second, once, forward; nothing is shared. Tensor-parallel communication
is in the profile, wherever the ranks are. Every stage takes the mean time over the nodes, whatever
devices it is on. The all-reduce of the published program uses the last link of the ring (from the
last replica to the first) if the slowest was meant: `repaired` takes the slowest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import PlanError
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.profiles.shares import Share, term_shares
from ilp_planner.costs.profiles.table import Origin, Provenance
from ilp_planner.peers.amp.profile import PASSES, AmpProfile
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec

NUMBER_BYTES = 4  # AMP counts fp32 numbers


class AmpDegrees(NamedTuple):
    """Enumerated by AMP: degrees of parallelism, and samples per micro-batch of one replica."""

    tp: int
    dp: int
    pp: int
    micro_batch: int

    def micro_batches(self, global_batch: int) -> int:
        """Number of micro-batches per iteration, B."""
        return global_batch // (self.dp * self.micro_batch)


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpTables:
    """Every range of layers under one choice of degrees, for any placement; L layers.

    load: float64 [L, L + 1], seconds of layers [i, j), one micro-batch. sent: float64 [L + 1],
    numbers that every tensor-parallel rank sends over the cut before layer i. reduced: float64 [L,
    L + 1], numbers that cross each link of the ring to reduce the gradients of [i, j). total:
    seconds of all layers. weight: of the slowest stage beyond these.
    """

    load: NDArray[np.float64]
    sent: NDArray[np.float64]
    reduced: NDArray[np.float64]
    total: float
    weight: float


class AmpTerms(NamedTuple):
    """A priced plan. loads: seconds of the stages. sending: of the cuts together. reduction: of the
    slowest all-reduce. total: seconds per iteration."""

    loads: tuple[float, ...]
    sending: float
    reduction: float
    total: float


def mixed_forward(profile: AmpProfile, cluster: ClusterSpec, tp: int) -> NDArray[np.float64] | None:
    """Return forward seconds of one sample, float64 [L]: the mean of the device types, each
    weighted with its share of the nodes; None if a type is not profiled for tp."""
    names = [cluster.device_types[kind].profile for kind in cluster.type_names]
    rows = [profile.forward.get((name, tp)) for name in names]
    mean = np.zeros(len(profile.model.layers))
    for device, row in zip(cluster.type_names, rows, strict=True):
        if row is None:
            return None
        mean += cluster.node_types.count(device) / cluster.node_count * row
    return mean


def slowness(cluster: ClusterSpec) -> NDArray[np.float64]:
    """Return seconds per number from node to node, inside it on the diagonal: float64 [N, N]."""
    nodes = range(cluster.node_count)
    return np.array([[NUMBER_BYTES / cluster.link(a, b).bandwidth for b in nodes] for a in nodes])


def default_nodes(cluster: ClusterSpec, degrees: AmpDegrees) -> NDArray[np.int64]:
    """Return the node of each rank under AMP's placement, int64 [pp, dp, tp]: ranks count tp
    fastest, then dp, then pp, and fill one node after the other."""
    tp, dp, pp, _ = degrees
    return np.array(cluster.node_of[: tp * dp * pp], dtype=np.int64).reshape(pp, dp, tp)


def sending_slowness(slow: NDArray[np.float64], nodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return seconds per number over each cut, float64 [pp - 1]: the slowest tensor-parallel rank,
    the mean over the replicas."""
    return slow[nodes[:-1], nodes[1:]].max(axis=2).mean(axis=1)  # type: ignore[no-any-return]


def ring_slowness(
    slow: NDArray[np.float64], nodes: NDArray[np.int64], *, repaired: bool
) -> NDArray[np.float64]:
    """Return seconds per number over each stage's data-parallel ring, float64 [pp], of the slowest
    tensor-parallel rank; as published, that of the ring's last link."""
    links = slow[nodes, np.roll(nodes, -1, axis=1)]
    if not repaired:
        links = links[:, -1:]
    return links.max(axis=(1, 2))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True, eq=False)
class AmpCosts:
    """Prices plans on AMP's profile.

    repaired: the all-reduce takes the slowest link of the ring, as AMP meant it to.
    """

    profile: AmpProfile
    repaired: bool = False
    name: str = "amp"

    @property
    def chain(self) -> tuple[str, ...]:
        """Names of the layers that can be cut between."""
        return self.profile.model.layers

    def degrees(self) -> Mapping[str, tuple[int, ...]]:
        """Return the tensor-parallel degrees that each device type is profiled for."""
        kinds = dict.fromkeys(kind for kind, _ in self.profile.forward)
        return {kind: self.profile.degrees(kind) for kind in kinds}

    def tables(self, cluster: ClusterSpec, degrees: AmpDegrees, global_batch: int) -> AmpTables:
        """Return the costs of every partition under these degrees.

        Raises
        ------
        PlanError: tp is not profiled, or the degrees do not divide the batch.
        """
        forward = mixed_forward(self.profile, cluster, degrees.tp)
        if forward is None:
            raise PlanError(
                f"{self.profile.source}: tp {degrees.tp} is not profiled for every device type of "
                f"{cluster.name!r}"
            )
        together = degrees.dp * degrees.micro_batch
        if global_batch % together:
            raise PlanError(
                f"global batch {global_batch} must be a multiple of dp {degrees.dp} x micro-batch "
                f"{degrees.micro_batch}"
            )
        model, count = self.profile.model, len(self.chain)
        time = PASSES * degrees.micro_batch * forward
        ends = np.concatenate([[0.0], np.cumsum(time)])
        sent = degrees.micro_batch * model.sent * np.where(model.split, 1 / degrees.tp, 1.0)
        parameters = np.concatenate([[0.0], np.cumsum(model.parameters)])
        tied = np.concatenate([[0], np.cumsum(model.tied)])
        held = parameters[None, :] - parameters[:-1, None]
        held = held + model.tied_parameters * (tied[None, :] > tied[:-1, None])
        ring = 2 * (degrees.dp - 1) / degrees.dp / degrees.tp
        below = np.tri(count, count + 1, 0, dtype=bool)  # empty ranges: j <= i
        return AmpTables(
            load=np.where(below, 0.0, ends[None, :] - ends[:-1, None]),
            sent=np.concatenate([[0.0], sent[:-1], [0.0]]),
            reduced=np.where(below, 0.0, ring * held),
            total=float(time.sum()),
            weight=OneForwardOneBackward(global_batch // together).weight,
        )

    def terms(
        self,
        cluster: ClusterSpec,
        degrees: AmpDegrees,
        partition: Sequence[int],
        global_batch: int,
        nodes: NDArray[np.int64] | None = None,
    ) -> AmpTerms:
        """Price a partition (layers of each stage) on the nodes of its ranks, int64 [pp, dp, tp];
        AMP's placement when left out.

        Raises
        ------
        PlanError: the partition does not fit the degrees or the model.
        """
        if len(partition) != degrees.pp or sum(partition) != len(self.chain) or min(partition) < 1:
            raise PlanError(
                f"a partition must give {len(self.chain)} layers to {degrees.pp} stages, at least "
                f"one each, found {list(partition)}"
            )
        tables = self.tables(cluster, degrees, global_batch)
        nodes = default_nodes(cluster, degrees) if nodes is None else nodes
        slow = slowness(cluster)
        ends = np.cumsum([0, *partition])
        loads = tables.load[ends[:-1], ends[1:]]
        sending = tables.sent[ends[1:-1]] @ sending_slowness(slow, nodes)
        rings = ring_slowness(slow, nodes, repaired=self.repaired)
        reduction = float((tables.reduced[ends[:-1], ends[1:]] * rings).max())
        return AmpTerms(
            loads=tuple(loads.tolist()),
            sending=float(sending),
            reduction=reduction,
            total=float(tables.total + tables.weight * loads.max() + sending + reduction),
        )

    def plan_cost(self, plan: GroupPlan, cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names. AMP has no model of memory: 0 bytes.

        Raises
        ------
        PlanError: stages differ in tp, dp or samples; AMP has no cost for them.
        """
        stages = plan.stages
        shapes = {(stage.tp, stage.dp) for stage in stages}
        samples = {replica.samples for stage in stages for replica in stage.replicas}
        if len(shapes) != 1 or len(samples) != 1:
            raise PlanError(
                "cost model 'amp' needs one tp, one dp and one micro-batch size in all stages, "
                f"found (tp, dp) {sorted(shapes)} and {sorted(samples)} samples"
            )
        (tp, dp), share = shapes.pop(), samples.pop()
        if dp * share * plan.micro_batches != plan.global_batch:
            raise PlanError(
                f"cost model 'amp' needs a global batch of dp {dp} x {share} samples x "
                f"{plan.micro_batches} micro-batches, found {plan.global_batch}"
            )
        degrees = AmpDegrees(tp, dp, len(stages), share)
        node_of = np.array(cluster.node_of, dtype=np.int64)
        devices = np.array([[r.devices for r in stage.replicas] for stage in stages])
        if devices.max() >= node_of.size:
            raise PlanError(f"device {devices.max()}: {cluster.name!r} has {node_of.size} devices")
        partition = [stage.stop - stage.start for stage in stages]
        terms = self.terms(cluster, degrees, partition, plan.global_batch, node_of[devices])
        return PlanCost(
            iteration_time=terms.total,
            stages=tuple(
                StageCost(
                    time=load, memory=(0.0,) * dp, time_terms={"layers": load}, memory_terms={}
                )
                for load in terms.loads
            ),
            terms={
                "stages": sum(terms.loads),
                "slowest stage, repeated": plan.schedule.steady(terms.loads),
                "sending": terms.sending,
                "gradient all-reduce": terms.reduction,
            },
            passing=("stages", "slowest stage, repeated"),
        )

    def shares(self, plan: GroupPlan, cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time: AMP measured one sample, and multiplies it for
        several."""
        terms = self.plan_cost(plan, cluster).terms
        single = {replica.samples for stage in plan.stages for replica in stage.replicas} == {1}
        source = Provenance.MEASURED if single else Provenance.EXTRAPOLATED
        return term_shares(terms, ("sending", "gradient all-reduce"), Origin(source))
