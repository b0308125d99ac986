"""Seconds of an iteration of a training job: its virtual stages, its schedule, its gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.costs.profiles.message_times import worst
from ilp_planner.costs.profiles.shares import LINKS, Tally
from ilp_planner.costs.training.job import ends_of
from ilp_planner.costs.training.starts import without_host
from ilp_planner.costs.training.times import element_messages
from ilp_planner.job.parts import memory_parts
from ilp_planner.job.recompute import recomputed_layers
from ilp_planner.job.work import host_step
from ilp_planner.schedule.engine import StageTimes, simulate
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.specs.layer_kinds import LAYER_KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.training.measured import Timed
    from ilp_planner.costs.training.network import Network
    from ilp_planner.costs.training.ranks import RankCosts
    from ilp_planner.costs.training.times import ElementTime
    from ilp_planner.plan import GroupPlan
    from ilp_planner.schedule.engine import Timeline
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.training import Offload, Recompute, Settings, TrainingJob


# ---- seconds of a rank's data in the host's memory -----------------------------------------------
# Transfers of activations, and the optimiser's step there.
# Activations go to the host while the forward pass goes on, and come back while the backward pass
# does, on streams of their own in both directions; a pass waits for the excess.
# Megatron's `HybridDeviceOptimizer` (`optimizer/cpu_offloading/hybrid_optimizer.py`) gives a share
# of the parameters to PyTorch's optimiser on the host. Their gradients go there, the host steps,
# and parameters come back; the device steps the others meanwhile.


class Waits(NamedTuple):
    """Seconds that the passes of a (virtual) stage wait for the host, per micro-batch."""

    forward: float = 0.0
    backward: float = 0.0


NO_WAITS = Waits()


class Turn(NamedTuple):
    """Seconds of a layer: of its passes, recomputation included, and of its activations' way."""

    forward: float
    backward: float
    sent: float


def moved_seconds(job: TrainingJob, network: Network, pp_rank: int) -> tuple[float, ...]:
    """Return the seconds that activations of a micro-batch take to the host, of every element of
    the chain on a pipeline rank, on its slowest device; nothing if none go there."""
    if not (job.settings.offload.layers or job.settings.offload.modules):
        return ()
    types = network.cluster.device_types
    rate = min(types[name].to_host for name in network.stage_types(job, pp_rank))
    parts = memory_parts(job).parts
    layers = (LAYER_KINDS[kind].name for kind in job.layer_kinds)
    predicted = job.model.prediction_layers * parts["prediction layer"].moved
    return (0.0, *(parts[kind].moved / rate for kind in layers), predicted / rate)


def lone_waits(
    job: TrainingJob, elements: Sequence[ElementTime], sent: Sequence[float]
) -> NDArray[np.float64]:
    """Return the waits of passes through each element of the chain for the host, seconds [2, n],
    forward and backward; 0 if it depends on the other elements of its stage.

    Activations of modules move layer by layer, so that a stage waits for the sum of its elements;
    of a stage with some recomputed layers, no less.
    """
    found = np.zeros((2, len(elements)))
    if job.settings.offload.modules and job.settings.recompute.granularity != "full":
        last = len(elements) - 1
        for number, pair in enumerate(zip(elements, sent, strict=True)):
            element, seconds = pair
            edges = {"embedding": number == 0, "output": number == last}
            found[:, number] = waits(job, (element,), (seconds,), **edges)
    return found


def waits(
    job: TrainingJob,
    elements: Sequence[ElementTime],
    sent: Sequence[float],
    *,
    embedding: bool,
    output: bool,
) -> Waits:
    """Return the wait of a (virtual) stage of these elements for the host.

    Parameters
    ----------
    sent: seconds of their activations' way there. embedding, output: these are among them.
    """
    recompute, offload = job.settings.recompute, job.settings.offload
    first, last = int(embedding), len(elements) - int(output)
    forgotten = recomputed_layers(job, last - first)
    turns = [
        Turn(
            element.forward,
            element.total - element.forward + _again(recompute, element),
            0.0 if first <= number < first + forgotten else seconds,
        )
        for number, (element, seconds) in enumerate(zip(elements, sent, strict=True))
    ]
    if offload.layers:
        return layer_waits(offload, turns[first:last])
    return Waits(
        sum(max(0.0, turn.sent - turn.forward) for turn in turns),
        sum(max(0.0, turn.sent - turn.backward) for turn in turns),
    )


def _again(recompute: Recompute, element: ElementTime) -> float:
    """Return the seconds of a layer's selective recomputation."""
    if recompute.granularity != "selective":
        return 0.0
    return sum(element.parts.get(name, 0.0) for name in recompute.modules)


def layer_waits(offload: Offload, turns: Sequence[Turn]) -> Waits:
    """Return the waits of passes through layers if the first n of L go to the host one after the
    other.

    Layer i has to be there before layer L - n + i begins, and starts to come back when the backward
    pass of layer L - 1 - n + i does (Transformer Engine's `_default_offload_sync_init`).
    """
    count, moved = len(turns), min(offload.layers, len(turns) - 1)
    ahead = count - moved
    ends: list[float] = []  # of the ways there, by layer
    clock = waited = 0.0
    for number, turn in enumerate(turns):
        if number >= ahead:
            late = max(0.0, ends[number - ahead] - clock)
            waited, clock = waited + late, clock + late
        clock += turn.forward
        if number < moved:
            ends.append(max(clock, ends[-1] if ends else 0.0) + turn.sent)
    forward, clock, free, waited = waited, 0.0, 0.0, 0.0
    back: dict[int, float] = {}  # layer -> when it is there again
    for number in reversed(range(count)):
        coming = number - ahead + 1
        if 0 <= coming < moved:
            free = back[coming] = max(clock, free) + turns[coming].sent
        late = max(0.0, back.get(number, 0.0) - clock)
        waited, clock = waited + late, clock + late
        clock += turns[number].backward
    return Waits(forward, waited)


def divided_step(
    settings: Settings, device: Device, alone: NDArray[np.float64], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the seconds of the optimiser's step of each element, some of it on the host.

    With overlap every parameter has an optimiser of its own, so that gradients and parameters
    travel while others are stepped. Without, gradients wait for none of them and come first,
    parameters last.

    Parameters
    ----------
    alone: the device's seconds to step all of an element. counts: parameters of the elements.
    """
    share = settings.optimizer.offload
    if not share:
        return alone
    each = host_step(settings)
    there, back = (share * counts * size / device.to_host for size in (each.sent, each.returned))
    stepped = np.maximum(share * counts * each.traffic / device.on_host, (1 - share) * alone)
    if settings.optimizer.overlap_offload:
        return np.asarray(np.maximum(stepped, np.maximum(there, back)), np.float64)
    return np.asarray(there + stepped + back, np.float64)


# ---- sources of the seconds of a plan ------------------------------------------------------------


COMPUTE, AGAIN = "compute", "recomputation"
MESSAGES = "messages within layers"
WAITING = "pipeline fill, sends and waiting"


def megatron_tally(ranks: RankCosts, plan: GroupPlan, cost: PlanCost) -> Tally:
    """Return the seconds of an iteration.

    The slowest rank counts with every micro-batch; its waits are sends, if both ends wait for them,
    and the other ranks' work while the pipeline fills. Without a profile everything is an estimate;
    with one, layers with a row are its own, and recomputation if the row has a forward pass
    (otherwise it is an extrapolation); all other layers are scaled kernels. Its own are optimiser
    steps that it has, and the messages of links that it has measured.
    """
    tally = Tally()
    loads = plan.per_rank([stage.time for stage in cost.stages])
    slowest, waiting = loads.index(max(loads)), cost.terms[WAITING]
    sent = plan.micro_batches * ranks.transfers[slowest] if plan.virtual == 1 < plan.ranks else 0.0
    sent = min(sent, waiting)
    tally.add(ranks.transfer_origin(slowest), sent)
    others = sum(loads) - loads[slowest]
    if not others:
        tally.add(LINKS, waiting - sent)
    for number, (stage, found) in enumerate(zip(plan.stages, cost.stages, strict=True)):
        rank = plan.rank_of(number)
        weight = plan.micro_batches if rank == slowest else (waiting - sent) / others
        terms = dict(found.time_terms)
        if ranks.profile is not None:
            chain = ranks.slowest(ranks.kinds[rank])[stage.start : stage.stop]
            parts = {
                COMPUTE: [(e.origin, e.time.compute) for e in chain],
                AGAIN: [(e.again, e.time.forward) for e in chain],
                MESSAGES: [part for e in chain for part in _sent(ranks, e, rank)],
            }
            for name, seconds in parts.items():
                _divide(tally, weight * terms[name], seconds)
            terms = {}
        tally.add(LINKS, weight * sum(terms.values()))
    tally.add(ranks.constant_origin(), ranks.tied_seconds)
    tally.add(LINKS, ranks.step_seconds)
    _add_sync(tally, ranks, plan)
    return tally


def _add_sync(tally: Tally, ranks: RankCosts, plan: GroupPlan) -> None:
    """Count the rings and the optimiser's step of the rank that takes longest for both."""
    slowest, _ = ranks.longest_sync(ranks.job)
    kind = ranks.kinds[slowest]
    for ring, fixed, each in ranks.exposed_rings(kind):
        size = _held(ring.sizes, plan, slowest)
        tally.add(ring.origin(size), fixed + _held(each, plan, slowest))
    names = ranks.network.stage_types(ranks.job, kind)
    origin = LINKS
    if ranks.profile is not None:
        origin = worst([ranks.profile.step_origin(name, ranks.job.tp) for name in names])
    tally.add(origin, _held(ranks.step(kind), plan, slowest))


def _divide(tally: Tally, total: float, parts: list[tuple[Origin, float]]) -> None:
    """Count seconds, divided like the parts are among their origins; of no parts, by estimate."""
    whole = sum(seconds for _, seconds in parts)
    for origin, seconds in parts if whole > 0 else [(LINKS, 1.0)]:
        tally.add(origin, total * seconds / (whole or 1.0))


def _sent(ranks: RankCosts, element: Timed, rank: int) -> list[tuple[Origin, float]]:
    """Return the sources of the seconds of an element's messages."""
    if ranks.links is None:
        return [(LINKS, element.time.messages)]
    job, net, links = ranks.job, ranks.network, ranks.links
    parts = [
        (
            net.message_origin(job, message, rank, links),
            net.message_seconds(job, [message], rank, links),
        )
        for message in element_messages(job, element.kind)
    ]
    whole = sum(seconds for _, seconds in parts)
    return [
        (origin, element.time.messages * seconds / whole) for origin, seconds in parts if whole > 0
    ]


def _held(each: NDArray[np.float64], plan: GroupPlan, rank: int) -> float:
    """Return the sum over the elements of a pipeline rank."""
    own = (plan.stages[k] for k in plan.schedule.stages_of(rank, plan.ranks))
    return sum(float(each[s.start : s.stop].sum()) for s in own)


# ---- iteration -----------------------------------------------------------------------------------


HOST = "activations from and to the host"
SLOWEST = "slowest stage"
SYNC = "gradient reduction, optimiser step and parameter gathering"
TIED = "gradient of the tied embedding"
STEP = "what no rank does"


@dataclass(frozen=True)
class Stage:
    """The time of a micro-batch in a (virtual) stage. again: seconds that are recomputed. host:
    waits of its passes for activations there; None if all are on the device."""

    elements: tuple[ElementTime, ...]
    again: float
    host: Waits | None

    @cached_property
    def own(self) -> tuple[float, float, float]:
        """Seconds of forward passes, of both, and of the gradients of weights."""
        each = self.elements
        return sum(e.forward for e in each), sum(e.total for e in each), sum(e.weight for e in each)

    @property
    def late(self) -> Waits:
        """Seconds."""
        return self.host or NO_WAITS

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of both passes, by terms."""
        own = {
            COMPUTE: sum(element.compute for element in self.elements),
            MESSAGES: sum(element.messages for element in self.elements),
            AGAIN: self.again,
        }
        return own if self.host is None else {**own, HOST: sum(self.host)}


def stage_times(ranks: RankCosts, job: TrainingJob, stages: Sequence[Stage]) -> StageTimes:
    """Return the passes of a micro-batch through virtual stages, and the sends between them.

    job: as in `stages_of`. Recomputation and waits for activations from the host are part of the
    backward pass, and of its first part if a schedule divides it. PyTorch runs none of that of the
    first stage, as its input needs no gradient, but all of it as the second part
    (`backward_one_chunk` of `torch.distributed.pipelining.stage`).
    """
    alone, own, weight = np.array([stage.own for stage in stages]).T
    own = own - alone
    forward = alone + np.array([stage.late.forward for stage in stages])
    again = np.array([stage.again + stage.late.backward for stage in stages])
    whole, weight = own + again, weight.copy()
    if job.schedule.divides:
        weight[0] = whole[0]
    sends = np.array(sends_of(ranks, job)) / 2
    return StageTimes(forward, whole, whole - weight, weight, sends, sends)


def sends_of(ranks: RankCosts, job: TrainingJob) -> list[float]:
    """Return the seconds of a micro-batch's messages between every (virtual) stage and the next
    one, both ways; between those of one rank there are none."""
    transfers, pp = ranks.transfers, job.pp
    places = job.ranks_of_stages
    return [
        0.0 if here == there else transfers[here if there == (here + 1) % pp else there]
        for here, there in pairwise(places)
    ]


def stages_of(
    ranks: RankCosts, job: TrainingJob, known: dict[object, Any] | None = None
) -> list[Stage]:
    """Return the time of every virtual stage.

    Parameters
    ----------
    job: that of `ranks`, with any layout and recomputation. known: cached results of jobs that
        differ in layouts, and in the number of recomputed layers of a block.
    """
    ends, found, known = ends_of(job.pipeline), [], {} if known is None else known
    chains = {kind: ranks.elements(kind) for kind in set(ranks.kinds)}
    moved = {kind: moved_seconds(job, ranks.network, kind) for kind in chains}
    for rank, (start, stop) in zip(job.ranks_of_stages, pairwise(ends), strict=True):
        kind = ranks.kinds[rank]
        key = (kind, start, stop, job.settings.recompute.layers)
        if key in known:
            found.append(known[key])
            continue
        elements, edges = chains[kind][start:stop], (start == 0, stop == ends[-1])
        again = recomputed(job.settings.recompute, elements, embedding=edges[0], output=edges[1])
        host = None
        if sent := moved[kind][start:stop]:
            host = waits(job, elements, sent, embedding=edges[0], output=edges[1])
        known[key] = Stage(elements, again, host)
        found.append(known[key])
    return found


def timeline(job: TrainingJob, times: StageTimes) -> Timeline:
    """Run the micro-batches of an iteration, operation by operation.

    Messages between stages travel while ranks compute with several virtual stages, as is Megatron's
    default for them; otherwise both ends wait. In groups of more micro-batches than ranks, early
    arrivals lie ready, and messages count as overlapped anyway.
    """
    turn = job.settings.turn if job.virtual > 1 else 0
    shape = (job.pp, job.micro_batches, job.virtual, turn or None)
    return simulate(schedule_orders(job.schedule.name, *shape), times, blocking=not travels(job))


def travels(job: TrainingJob) -> bool:
    """Tell whether messages travel while ranks compute (`timeline`)."""
    own = job.settings
    return job.virtual > 1 and (own.overlap_sends or own.turn not in (0, job.pp))


def slowest_seconds(job: TrainingJob, times: StageTimes) -> float:
    """Return how long the rank with most work is busy; no iteration takes less."""
    return job.micro_batches * max(rank_seconds(job, times))


def rank_seconds(job: TrainingJob, times: StageTimes) -> list[float]:
    """Return the seconds of a micro-batch on every pipeline rank."""
    passes = (times.forward + times.backward).tolist()
    return [float(sum(map(passes.__getitem__, own))) for own in job.stages_of_ranks]


def iteration_terms(
    ranks: RankCosts,
    job: TrainingJob,
    times: StageTimes | None = None,
    known: dict[object, Any] | None = None,
) -> dict[str, float]:
    """Return the seconds of an iteration, by term.

    Parameters
    ----------
    job, known: as in `stages_of`. times: of its stages.
    """
    times = times or stage_times(ranks, job, stages_of(ranks, job, known))
    slowest = slowest_seconds(job, times)
    _, longest = ranks.longest_sync(job, known)
    return {
        SLOWEST: slowest,
        WAITING: max(0.0, timeline(job, times).seconds - slowest),
        SYNC: longest,
        TIED: ranks.tied_seconds,
        STEP: ranks.step_seconds,
    }


def host_share(ranks: RankCosts, seconds: float) -> float | None:
    """Return the share of an iteration's seconds by which it would be shorter if the host started
    everything at once; None where layers were measured, with their host."""
    if ranks.profile is not None:
        return None
    least = sum(iteration_terms(started_at_once(ranks), ranks.job).values())
    return max(0.0, 1 - least / seconds)


def started_at_once(ranks: RankCosts) -> RankCosts:
    """Return the times of ranks whose hosts start everything at once; of layers that were measured
    with their host, the same ones."""
    if ranks.profile is not None:
        return ranks
    network = replace(ranks.network, cluster=without_host(ranks.network.cluster))
    return replace(ranks, network=network, known={})


def recomputed(
    recompute: Recompute, elements: Sequence[ElementTime], *, embedding: bool, output: bool
) -> float:
    """Return the recomputation seconds of a (virtual) stage of these elements."""
    layers = elements[int(embedding) : len(elements) - int(output)]
    if recompute.granularity == "none":
        return 0.0
    if recompute.granularity == "selective":
        return sum(layer.parts.get(name, 0.0) for layer in layers for name in recompute.modules)
    count = recompute.layers if recompute.method == "block" else len(layers)
    return sum(layer.again for layer in layers[:count])
