"""Piper's problem: the load of a stage by its formula, its optimum, and these costs to plan with.

Piper (NeurIPS 2021, https://github.com/msr-fiddle/piper, algo.cpp: `getAllTPSsForIdealPair`,
`getDataParallelResyncCost`) minimises the largest load of a stage. With d replicas of t devices
each, N samples per batch and one bandwidth W for all, a stage loads its devices for every sample by

    sum over its nodes of p / d + (2 * bytes that cross into it or out of it / d
                                   + 4 (d - 1) / d * bytes of weights / N) / W

p, weights and memory are of the node under degree t; bytes of an edge are its own and what its
tensor-parallel ranks synchronise at that end. An iteration takes N times the largest load. A
device holds a y + b, y: the replicas of this stage and of all behind it, over d.

BERT here is a chain: every node of an input is a part of the layer that first needs it. Nodes may
be computed again in Piper; in the plans of this module none are.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.costs.groups import OptionTables
from ilp_planner.costs.layers import LayerCosts
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.link import Link

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.base import StageCost
    from ilp_planner.costs.groups import GroupClass, GroupOption
    from ilp_planner.plan import GroupStage

DATA = Path(__file__).parents[3] / "shared" / "data" / "piper" / "bert32a100.json"
VANILLA = "vanilla"  # what Piper calls nodes that are not computed again
DEVICE = "a100"
NODE = 8  # devices of a node: the largest degree in the file; Piper knows no nodes


class Part(NamedTuple):
    """Layers [start, stop) on dp replicas of tp devices."""

    start: int
    stop: int
    tp: int
    dp: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """Piper's input as a chain of L layers.

    batch: samples. bandwidth: bytes/s. memory: bytes. compute: tp -> float64 [L], seconds of a
    sample. weights: tp -> float64 [L], bytes. held: tp -> float64 [L], a and b of `y a + b`.
    crossing: tp -> float64 [L, L + 1], bytes that cross into or out of layers [i, j).
    """

    batch: int
    bandwidth: float
    memory: float
    compute: Mapping[int, Floats]
    weights: Mapping[int, Floats]
    held: Mapping[int, tuple[Floats, Floats]]
    crossing: Mapping[int, Floats]

    @property
    def layers(self) -> int:
        """How many there are."""
        return int(next(iter(self.compute.values())).size)

    def loads(self, tp: int, dp: int) -> Floats:
        """Return seconds per sample, float64 [L, L + 1], by start and stop; 0 where empty."""
        compute, weights = (_ranges(values[tp]) for values in (self.compute, self.weights))
        sync = 4 * (dp - 1) / dp * weights / self.batch
        bytes_ = 2 * self.crossing[tp] / dp + sync
        return np.asarray(np.triu(compute / dp + bytes_ / self.bandwidth, 1))

    def seconds(self, parts: Sequence[Part]) -> float:
        """Return the seconds of an iteration of a plan."""
        return self.batch * max(float(self.loads(p.tp, p.dp)[p.start, p.stop]) for p in parts)

    def fits(self, parts: Sequence[Part]) -> bool:
        """Tell whether every stage has the memory that it needs, nothing computed again."""
        for place, part in enumerate(parts):
            behind = sum(other.dp for other in parts[place:])
            each, fixed = (values[part.start : part.stop].sum() for values in self.held[part.tp])
            if each * math.ceil(behind / part.dp) + fixed > self.memory:
                return False
        return True

    def timeline(self, parts: Sequence[Part]) -> float:
        """Return the seconds of an iteration with its fill: sample after sample goes through the
        stages, each to the replica that is free first, and none waits for anything else."""
        ready = [0.0] * self.batch
        for part in parts:
            busy = part.dp * float(self.loads(part.tp, part.dp)[part.start, part.stop])
            done = [0.0] * part.dp  # when each replica was free last, in turn
            for at in ready:
                done.append(max(at, done[-part.dp]) + busy)
            ready = done[part.dp :]
        return ready[-1]

    def best(self, devices: int) -> list[Part]:
        """Return a plan that no plan of Piper's undercuts by its formula, whatever its memory: the
        least largest load, by bisection over all loads, with the fewest devices for it. Stages have
        no more replicas together than there are samples.

        Its memory has to be looked at (`fits`): where it fits, it is Piper's optimum.
        """
        ways = [
            (tp, dp) for tp in self.compute for dp in divisors(self.batch) if tp * dp <= devices
        ]
        loads = {way: self.loads(*way) for way in ways}
        values = np.unique(np.concatenate([load[load > 0] for load in loads.values()]))
        low, high = 0, values.size - 1
        while low < high:
            middle = (low + high) // 2
            enough = _Fewest(loads, float(values[middle]), self.batch).devices <= devices
            low, high = (low, middle) if enough else (middle + 1, high)
        return _Fewest(loads, float(values[low]), self.batch).parts()


class _Fewest:
    """The fewest devices for all layers within a load. loads: (tp, dp) -> seconds, [L, L + 1].
    replicas: of all stages together, at most."""

    def __init__(
        self, loads: Mapping[tuple[int, int], Floats], limit: float, replicas: int
    ) -> None:
        self.replicas = replicas
        self.layers = next(iter(loads.values())).shape[0]
        self.ways: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for start in range(self.layers):
            for stop in range(start + 1, self.layers + 1):
                least: dict[int, int] = {}
                for (tp, dp), load in loads.items():
                    if load[start, stop] <= limit:
                        least[tp] = min(dp, least.get(tp, dp))
                self.ways[start, stop] = list(least.items())
        # [layer, replicas]: devices of all layers from that one on, with so many at most.
        self.table = np.full((self.layers + 1, replicas + 1), np.inf)
        self.table[self.layers] = 0
        for start in reversed(range(self.layers)):
            for stop in range(start + 1, self.layers + 1):
                for tp, dp in self.ways[start, stop]:
                    behind = self.table[stop, : replicas + 1 - dp] + tp * dp
                    np.minimum(self.table[start, dp:], behind, out=self.table[start, dp:])

    @property
    def devices(self) -> float:
        """How many there are; inf: the load cannot be kept."""
        return float(self.table[0, self.replicas])

    def parts(self) -> list[Part]:
        """Return a plan with so many."""
        found, at, left = [], 0, self.replicas
        while at < self.layers:
            part = next(
                Part(at, stop, tp, dp)
                for stop in range(at + 1, self.layers + 1)
                for tp, dp in self.ways[at, stop]
                if dp <= left and self.table[stop, left - dp] + tp * dp == self.table[at, left]
            )
            found.append(part)
            at, left = part.stop, left - part.dp
        return found


def _ranges(values: Floats) -> Floats:
    """Return sums over [i, j), float64 [L, L + 1]."""
    before = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(before[None, :] - before[:-1, None])


def read_chain(path: Path = DATA) -> Chain:
    """Read Piper's input."""
    root = json.loads(path.read_text())
    nodes = {node["id"]: node for node in root["nodes"]}
    edges = [(e["sourceId"], e["destId"], e["communicationCost"]) for e in root["edges"]]
    layer = _layers(nodes, edges)
    count = max(layer.values()) + 1
    degrees = sorted({int(tp) for node in nodes.values() for tp in node["TMPCs"]})
    plain = {
        tp: {
            number: next(way for way in node["TMPCs"][str(tp)] if way["id"] == VANILLA)
            for number, node in nodes.items()
        }
        for tp in degrees
    }

    def summed(tp: int, key: str) -> Floats:
        values = np.zeros(count)
        for number, way in plain[tp].items():
            values[layer[number]] += way[key]
        return values

    return Chain(
        batch=root["mbsInBatch"],
        bandwidth=root["bandwidth"],
        memory=root["maxMemoryPerDevice"],
        compute={tp: summed(tp, "timePerSample") for tp in degrees},
        weights={tp: summed(tp, "parameterSize") for tp in degrees},
        held={tp: (summed(tp, "memoryUsageA"), summed(tp, "memoryUsageB")) for tp in degrees},
        crossing={tp: _crossing(plain[tp], edges, layer, count) for tp in degrees},
    )


def _layers(nodes: Mapping[int, Any], edges: Sequence[tuple[int, int, float]]) -> dict[int, int]:
    """Return node -> layer: nodes that compute, in their order; others with the first that needs
    them, or behind the last that they need."""
    working = [n for n, node in nodes.items() if node["TMPCs"]["1"][0]["timePerSample"] > 0]
    follows = {(a, b) for a, b, _ in edges}
    if any(pair not in follows for pair in pairwise(working)):
        raise ValueError("the nodes that compute are no chain")
    layer = {number: place for place, number in enumerate(working)}
    for number in nodes:
        if number not in layer:
            needing = [layer[b] for a, b, _ in edges if a == number and b in layer]
            before = [layer[a] for a, b, _ in edges if b == number and a in layer]
            layer[number] = min(needing, default=max(before, default=0))
    return layer


def _crossing(
    ways: Mapping[int, Any],
    edges: Sequence[tuple[int, int, float]],
    layer: Mapping[int, int],
    count: int,
) -> Floats:
    """Return the bytes of edges into or out of layers [i, j)."""
    start, stop = np.arange(count)[:, None], np.arange(count + 1)[None, :]
    found = np.zeros((count, count + 1))
    for source, target, size in edges:
        inside = [(start <= layer[node]) & (layer[node] < stop) for node in (source, target)]
        out = size + ways[source]["syncTimeBw"][str(target)]
        into = size + ways[target]["syncTimeFw"][str(source)]
        found += np.where(inside[0] & ~inside[1], out, 0.0)
        found += np.where(inside[1] & ~inside[0], into, 0.0)
    return found


# ---- to plan with -------------------------------------------------------------------------------


def cluster_of(chain: Chain, devices: int) -> ClusterSpec:
    """Return so many devices; links are not read, as loads have them."""
    link = Link(bandwidth=chain.bandwidth, latency=1e-6)
    return ClusterSpec(
        name=f"piper-{devices}",
        device_types={DEVICE: Device(name=DEVICE, memory=int(chain.memory))},
        nodes=(NodeGroup(device=DEVICE, devices=NODE, count=devices // NODE),),
        intra_node=link,
        inter_node=link,
    )


def profile_of(chain: Chain) -> LayerProfile:
    """Return the layers of the chain."""
    pairs = {(DEVICE, tp): tp for tp in chain.compute}
    nothing = np.zeros(chain.layers)
    return LayerProfile(
        source="piper",
        layers=tuple(f"layer {n}" for n in range(chain.layers)),
        time={LayerKey(DEVICE, tp, 1): chain.compute[tp] for tp in chain.compute},
        state={pair: chain.held[tp][1] for pair, tp in pairs.items()},
        activation={pair: chain.held[tp][0] for pair, tp in pairs.items()},
        workspace=dict.fromkeys(pairs, nothing),
        gradients=nothing,
        boundary=np.zeros(chain.layers + 1),
        optimizer=dict.fromkeys(pairs, nothing),
        measured=frozenset(LayerKey(DEVICE, tp, 1) for tp in chain.compute),
    )


class PiperCosts(LayerCosts):
    """Piper's loads as the times of stages; the pipeline's fill is added, which Piper leaves out,
    and every stage holds as many micro-batches as there are stages behind it, and itself: no fewer
    samples than Piper's y."""

    def __init__(self, chain: Chain, limits: Mapping[str, float]) -> None:
        super().__init__(profile_of(chain), limits, uneven=False)
        self.piper = chain
        self._loads: dict[tuple[int, int], Floats] = {}

    def with_limits(self, limits: Mapping[str, float]) -> PiperCosts:
        """Return the same costs with other limits."""
        return PiperCosts(self.piper, limits)

    def crossing(self, start: int, stop: int) -> None:
        """Piper knows no nodes."""
        del start, stop

    def loads(self, tp: int, dp: int) -> Floats:
        """Return seconds per sample, by start and stop."""
        if (tp, dp) not in self._loads:
            self._loads[tp, dp] = self.piper.loads(tp, dp)
        return self._loads[tp, dp]

    def option_tables(
        self, option: GroupOption, micro_batches: int, global_batch: int, cluster: ClusterSpec
    ) -> OptionTables | None:
        """Return the loads of every range of layers."""
        if global_batch % micro_batches or not self.can_have(option, cluster):
            return None
        samples = self.split(option, global_batch // micro_batches, cluster)
        if samples is None:
            return None
        time = sum(samples) * self.loads(option.tp, len(samples))
        nothing = np.zeros_like(time)
        held = self.in_flight(LayerKey(DEVICE, option.tp, samples[0]))
        return OptionTables(
            time=time, extra=nothing, peaks=nothing[None], in_flight=held, samples=samples
        )

    def send(
        self,
        option: GroupOption,
        samples: tuple[int, ...],
        micro_batches: int,
        to: GroupClass,
        cluster: ClusterSpec,
    ) -> tuple[Floats, Floats]:
        """Return nothing: loads have what is sent."""
        del option, samples, micro_batches, to, cluster
        nothing = np.zeros(self.piper.layers + 1)
        return nothing, nothing

    def peak_parts(self, stage: GroupStage, cluster: ClusterSpec) -> tuple[float, float]:
        """Return nothing: loads have the reduction of gradients."""
        del stage, cluster
        return 0.0, 0.0

    def _stage(
        self, stage: GroupStage, after: tuple[GroupStage, ...], in_flight: int, cluster: ClusterSpec
    ) -> StageCost:
        cost = super()._stage(stage, after, in_flight, cluster)
        samples = sum(replica.samples for replica in stage.replicas)
        load = samples * float(self.loads(stage.tp, stage.dp)[stage.start, stage.stop])
        return replace(cost, time=load, time_terms={"load": load})
