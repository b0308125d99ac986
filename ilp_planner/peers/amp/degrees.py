"""AMP's own space, searched jointly and exactly: degrees, micro-batch and partition.

tp divides the devices of a node, tp x dp x pp uses every device, the micro-batch divides the batch
of a replica; ranks fill the nodes in order. AMP takes the partition from a program that ignores the
gradient reduction, cuts uniformly for one micro-batch, and keeps its incumbents without their
messages; here every partition counts, under the whole cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.peers.amp.costs import (
    AmpDegrees,
    default_nodes,
    mixed_forward,
    ring_slowness,
    sending_slowness,
    slowness,
)
from ilp_planner.peers.amp.partition import Routes, best_cut, fixed_routes
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.peers.amp.costs import AmpCosts, AmpTables
    from ilp_planner.specs.cluster import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class AmpPlan:
    """The best plan of one choice of degrees.

    partition: layers of each stage. devices: of each rank, tp fastest, then dp, then pp.
    cost, bound: seconds per iteration; no plan with these degrees takes less than the bound.
    """

    degrees: AmpDegrees
    partition: tuple[int, ...]
    devices: tuple[int, ...]
    cost: float
    bound: float

    def group_plan(self, model: str, global_batch: int) -> GroupPlan:
        """Return it as every reader of plans takes it."""
        tp, dp, pp, samples = self.degrees
        ranks = np.array(self.devices).reshape(pp, dp, tp).tolist()
        ends = np.cumsum([0, *self.partition]).tolist()
        return Plan(
            model=model,
            global_batch=global_batch,
            micro_batches=self.degrees.micro_batches(global_batch),
            stages=tuple(
                GroupStage(
                    start=start,
                    stop=stop,
                    replicas=tuple(Replica(devices=tuple(r), samples=samples) for r in stage),
                )
                for start, stop, stage in zip(ends, ends[1:], ranks, strict=False)
            ),
        )


class Enumerated(NamedTuple):
    """The plans that AMP enumerates. notes: omissions with reasons, one line each."""

    degrees: tuple[AmpDegrees, ...]
    notes: tuple[str, ...]


def amp_space(
    costs: AmpCosts, cluster: ClusterSpec, global_batch: int, *, max_tp: int | None = None
) -> Enumerated:
    """Return every (tp, dp, pp, micro-batch) of AMP's space that has a profile, a whole batch per
    replica and a layer per stage.

    Raises
    ------
    InfeasibleError: there is none.
    """
    sizes = sorted({group.devices for group in cluster.nodes})
    layers = len(costs.chain)
    found: list[AmpDegrees] = []
    unprofiled, uneven, short = [], set(), set()
    for tp in divisors(math.gcd(*sizes)):
        if max_tp is not None and tp > max_tp:
            continue
        if mixed_forward(costs.profile, cluster, tp) is None:
            unprofiled.append(tp)
            continue
        for dp in divisors(cluster.device_count // tp):
            pp = cluster.device_count // (tp * dp)
            if global_batch % dp:
                uneven.add(dp)
            elif pp > layers:
                short.add(pp)
            else:
                found += [AmpDegrees(tp, dp, pp, m) for m in divisors(global_batch // dp)]
    notes = []
    if unprofiled:
        kinds = ", ".join(cluster.type_names)
        notes.append(f"tp {_listed(unprofiled)} left out: not profiled for all of {kinds}")
    if uneven:
        batch = f"global batch {global_batch}"
        notes.append(f"dp {_listed(uneven)} left out: {batch} is not a multiple")
    if short:
        notes.append(f"pp {_listed(short)} left out: the model has {layers} layers")
    if not found:
        raise InfeasibleError(
            f"cluster {cluster.name!r}: no (tp, dp, pp) of AMP's space uses all "
            f"{cluster.device_count} devices: {'; '.join(notes) or 'none was asked for'}"
        )
    return Enumerated(degrees=tuple(sorted(found)), notes=tuple(notes))


def _listed(numbers: Sequence[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def default_routes(costs: AmpCosts, cluster: ClusterSpec, degrees: AmpDegrees) -> Routes:
    """Return AMP's placement."""
    slow, nodes = slowness(cluster), default_nodes(cluster, degrees)
    rings = ring_slowness(slow, nodes, repaired=costs.repaired)
    return fixed_routes(sending_slowness(slow, nodes), rings)


def best_partition(
    costs: AmpCosts, cluster: ClusterSpec, degrees: AmpDegrees, global_batch: int
) -> AmpPlan | None:
    """Return the optimal partition under AMP's placement; None: there is none."""
    tables = costs.tables(cluster, degrees, global_batch)
    cut = best_cut(tables, default_routes(costs, cluster, degrees))
    if cut is None:
        return None
    cost = costs.terms(cluster, degrees, cut.partition, global_batch).total
    devices = tuple(range(degrees.tp * degrees.dp * degrees.pp))
    return AmpPlan(
        degrees=degrees,
        partition=cut.partition,
        devices=devices,
        cost=cost,
        bound=min(cost, cut.value),
    )


def rank_plans(
    costs: AmpCosts, cluster: ClusterSpec, global_batch: int, *, max_tp: int | None = None
) -> tuple[AmpPlan, ...]:
    """Return the optimal plan of every choice of degrees, the fastest first: the first is the
    optimum of AMP's whole space.

    Costs that agree to 12 digits tie; the smaller micro-batch goes first, as it holds fewer
    activations.

    Raises
    ------
    InfeasibleError: no choice of degrees is possible.
    """
    space = amp_space(costs, cluster, global_batch, max_tp=max_tp)
    plans = [best_partition(costs, cluster, degrees, global_batch) for degrees in space.degrees]
    return tuple(sorted((plan for plan in plans if plan), key=rank_key))


def rank_key(plan: AmpPlan) -> tuple[float, int, AmpDegrees]:
    """Return the sort key of plans."""
    return float(f"{plan.cost:.12g}"), plan.degrees.micro_batch, plan.degrees


def configuration_graph(tables: AmpTables, routes: Routes) -> StageGraph:
    """Return one choice of degrees as a stage graph that every backend solves; nodes are (layer,
    stages and placement so far), and all paths have as many stages as the routes.

    An arc carries the messages to it as extra, and its gradient reduction as a peak.
    """
    count = tables.load.shape[0]
    step, start, stop = _arcs(routes, count)
    sink = routes.states * (count + 1)
    numbers = np.arange(sink, dtype=np.int64).reshape(routes.states, count + 1)
    last = routes.stage[step] == routes.stages - 1
    return StageGraph(
        nodes=sink + 1,
        sources=(0,),
        sink=sink,
        operators=count,
        weight=tables.weight,
        tail=numbers[routes.tail[step], start],
        head=np.where(last, sink, numbers[routes.head[step], stop]),
        start=start,
        stop=stop,
        time=tables.load[start, stop],
        extra=tables.sent[start] * routes.sending[step],
        peaks=(tables.reduced[start, stop] * routes.ring[step])[None, :],
    )


def _arcs(
    routes: Routes, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return step, start and stop of every arc: the first stage starts at 0, the last ends at the
    end, and every other stage keeps a layer."""
    grid = np.arange(count + 1, dtype=np.int64)
    stage = routes.stage[:, None, None]
    start, stop = grid[None, :, None], grid[None, None, :]
    after = routes.stages - 1 - stage
    fits = (start < stop) & (start >= stage) & (stop <= count - after)
    fits &= ((stage > 0) | (start == 0)) & ((after > 0) | (stop == count))
    step, first, last = np.nonzero(fits)
    return step.astype(np.int64), first.astype(np.int64), last.astype(np.int64)
