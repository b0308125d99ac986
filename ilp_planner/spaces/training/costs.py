"""Time and memory of Megatron-LM's training jobs: the cost model of `solve --runtime megatron`.

Times are in `costs.training.ranks`; memory is from `job.memory`, as in `analyze`. An iteration's
seconds by name tell messages by purpose.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import FINE_ROUNDING
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.profiles.analytic_decoder import chain_names
from ilp_planner.costs.training.iteration import (
    AGAIN,
    COMPUTE,
    MESSAGES,
    SLOWEST,
    STEP,
    TIED,
    WAITING,
    iteration_terms,
    megatron_tally,
    stage_times,
    stages_of,
    started_at_once,
)
from ilp_planner.costs.training.job import job_of_groups, node_order
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.costs.training.times import NAMES, element_passes
from ilp_planner.job.memory import memory_parts, stage_of_rank
from ilp_planner.job.parts import activations_of, with_layout
from ilp_planner.job.traffic import FAMILIES, FAMILY
from ilp_planner.spaces.seconds import FILL
from ilp_planner.spaces.training.runtime import MEGATRON, Runtime
from ilp_planner.specs.data_sheets import gpu_architecture
from ilp_planner.specs.training import METHODS, ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.costs.training.measured import MeasuredTimes
    from ilp_planner.job.memory import MemoryParts, RankMemory
    from ilp_planner.job.parts import Activations
    from ilp_planner.plan import GroupPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.gpu_architectures import GpuArchitecture
    from ilp_planner.specs.training import Recompute, Settings, TrainingJob


# ---- the cost model ------------------------------------------------------------------------------


class Found:
    """Results on clusters, shared by cost models."""

    def __init__(self) -> None:
        self._known: list[tuple[ClusterSpec, dict[object, Any]]] = []

    def on(self, cluster: ClusterSpec) -> dict[object, Any]:
        """Return the results on a cluster."""
        for other, found in self._known:
            if other is cluster:
                return found
        self._known.append((cluster, {}))
        return self._known[-1][1]

    def __reduce__(self) -> tuple[type[Found], tuple[()]]:
        """Let copies, also in other processes, compute everything by themselves."""
        return Found, ()

    def bound(self, most: int) -> None:
        """Forget everything if there is more than so much of it."""
        if sum(len(found) for _, found in self._known) > most:
            self._known.clear()


class RanksMemory:
    """Peak memory of each pipeline rank of a job, computed on demand."""

    def __init__(self, parts: MemoryParts) -> None:
        self.parts = parts
        self.found: dict[int, RankMemory] = {}

    def __getitem__(self, rank: int) -> RankMemory:
        if rank not in self.found:
            self.found[rank] = stage_of_rank(self.parts, rank)
        return self.found[rank]


@dataclass(frozen=True, kw_only=True)
class MegatronCosts:
    """Megatron-LM's training jobs on a cluster (`GroupTables`).

    settings: of every plan, besides the degrees and the recomputation that plans choose.
    choices: possible settings of a plan, the plainest first. max_cp: context-parallel degree at
    most. profile: measured times of layers; None: of none. runtime: of the plans.
    found: results of jobs, for any choices; costs that are made of these with `replace` have it as
    well.
    """

    model: Decoder
    settings: Settings
    choices: tuple[Settings, ...]
    max_cp: int = 1
    profile: MeasuredTimes | None = field(default=None, compare=False)
    runtime: Runtime = field(default=MEGATRON, compare=False)
    found: Found = field(default_factory=Found, compare=False, repr=False)
    own: Found = field(init=False, default_factory=Found, compare=False, repr=False)

    name = "megatron"

    @property
    def chain(self) -> tuple[str, ...]:
        """Names of the layers, in order."""
        return chain_names(self.model)

    def known(self, cluster: ClusterSpec) -> dict[object, Any]:
        """Return the results of jobs on a cluster, for others to share."""
        return self.found.on(cluster)

    def of_cuts(self, cluster: ClusterSpec, jobs: object) -> dict[object, Any]:
        """Return the results of judged cuts of the same jobs; results of others are forgotten."""
        known = self.own.on(cluster)
        if "cuts" not in known or known["cuts"][0] != jobs:
            known["cuts"] = (jobs, {})
        found: dict[object, Any] = known["cuts"][1]
        return found

    def network(self, cluster: ClusterSpec, nodes: tuple[int, ...]) -> Network:
        """Return the links under ranks that fill nodes in this order, the same one every time."""
        known = self.known(cluster)
        if ("network", nodes) not in known:
            known["network", nodes] = Network(cluster, nodes)
        found: Network = known["network", nodes]
        return found

    def gpu_architecture(self, cluster: ClusterSpec) -> GpuArchitecture:
        """Return the architecture of a cluster's oldest devices, looked up once."""
        known = self.known(cluster)
        if "architecture" not in known:
            known["architecture"] = gpu_architecture(cluster)
        found: GpuArchitecture = known["architecture"]
        return found

    def memory(self, job: TrainingJob, cluster: ClusterSpec) -> MemoryParts:
        """Return the memory of a job's parts, shared by jobs with another layout, order of ranks or
        number of recomputed layers."""
        again = replace(job.settings.recompute, method=METHODS[0], layers=0)
        settings = replace(job.settings, recompute=again, order=ORDERS[0])
        key = ("memory", settings, job.tp, job.pp, job.dp, job.micro_batch)
        known = self.known(cluster)
        if key in known:
            return with_layout(known[key], job)
        found = known[key] = memory_parts(job, known)
        return found

    def activations(
        self, job: TrainingJob, cluster: ClusterSpec
    ) -> Callable[[Recompute, str], Activations]:
        """Return what parts of a job keep, by the recomputation and their kind."""
        return activations_of(job, self.known(cluster))

    def ranks_memory(self, job: TrainingJob, cluster: ClusterSpec) -> RanksMemory:
        """Return the memory of the pipeline ranks of a job, each counted once."""
        known, key = self.known(cluster), ("ranks", job)
        if key not in known:
            known[key] = RanksMemory(self.memory(job, cluster))
        found: RanksMemory = known[key]
        return found

    def degrees(self) -> Mapping[str, tuple[int, ...]]:
        """Return nothing: every tensor-parallel degree has a time."""
        return {}

    def job(self, plan: GroupPlan, cluster: ClusterSpec) -> TrainingJob:
        """Return the job that a plan describes; of the plan that was asked about last, the same
        one.

        Raises
        ------
        PlanError: it describes none.
        """
        known = self.own.on(cluster)
        last, found = known.get("job", (None, None))
        if last is not plan:
            found = job_of_groups(plan, self.model, cluster)
            known["job"] = plan, found
        job: TrainingJob = found
        return job

    def ranks(self, plan: GroupPlan, cluster: ClusterSpec) -> RankCosts:
        """Return the times of a plan's ranks on the devices that it names.

        Raises
        ------
        PlanError: it is no training job with ranks that fill nodes in order.
        """
        job = self.job(plan, cluster)
        order = node_order(plan, cluster)
        if order is None:
            raise PlanError(
                "plan: devices: expected whole nodes one after the other, in rank order"
            )
        return RankCosts(job, self.network(cluster, order), self.profile, self.known(cluster))

    def ranks_of_job(self, job: TrainingJob, cluster: ClusterSpec) -> RankCosts:
        """Return the times of the ranks of a job that fill the nodes of a cluster in order."""
        nodes = tuple(range(cluster.node_count))
        return RankCosts(job, self.network(cluster, nodes), self.profile, self.known(cluster))

    def shares(self, plan: GroupPlan, cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time by source of its figures."""
        cost = self.plan_cost(plan, cluster)
        return megatron_tally(self.ranks(plan, cluster), plan, cost).shares()

    def plan_cost(self, plan: GroupPlan, cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names.

        Raises
        ------
        PlanError: it is no training job with ranks that fill nodes in order.
        """
        ranks = self.ranks(plan, cluster)
        job, stages = ranks.job, stages_of(ranks, ranks.job)
        passes = stage_times(ranks, job, stages)
        terms = iteration_terms(ranks, job, passes)
        known, spent = self.ranks_memory(job, cluster), [stage.terms for stage in stages]
        memory = [known[rank] for rank in range(job.pp)]
        kept = [{**one.terms, **one.outside} for one in memory]
        return PlanCost(
            iteration_time=sum(terms.values()),
            stages=tuple(
                StageCost(
                    time=sum(own.values()),
                    memory=(memory[rank].needed,) * stage.dp,
                    time_terms=own,
                    memory_terms=kept[rank],
                )
                for rank, stage, own in zip(job.ranks_of_stages, plan.stages, spent, strict=True)
            ),
            terms=terms,
            passing=(SLOWEST, WAITING),
            passes=passes,
        )


# ---- seconds of an iteration by name -------------------------------------------------------------


SENDS = "pipeline communication"
DATA = "data communication"
OPTIMISER = "optimiser step"
HOST = "waits for the host"


def communication(family: str) -> str:
    """Return the name of the seconds that messages of a family take."""
    return f"{family} communication"


def job_seconds(ranks: RankCosts, plan: GroupPlan, whole: float) -> dict[str, float]:
    """Return seconds of an iteration by name, which add up to its time.

    The slowest rank counts with every micro-batch. Its messages to other stages count if both ends
    wait for them, in 1F1B; messages that virtual stages send while they compute show as waiting.
    Gradients and the optimiser's step are from the slowest rank in both. All are as if the host
    started everything at once; the seconds that it adds have a name of their own.

    Parameters
    ----------
    whole: seconds of the iteration.
    """
    found = _seconds_at_once(started_at_once(ranks), plan)
    late = whole - sum(found.values())
    found[HOST] = late if late > FINE_ROUNDING * whole else 0.0
    return {name: seconds for name, seconds in found.items() if seconds or name == COMPUTE}


def _seconds_at_once(ranks: RankCosts, plan: GroupPlan) -> dict[str, float]:
    job, stages = ranks.job, stages_of(ranks, ranks.job)
    cost = iteration_terms(ranks, job, stage_times(ranks, job, stages))
    loads = plan.per_rank([sum(stage.terms.values()) for stage in stages])
    slowest, count = loads.index(max(loads)), plan.micro_batches
    found = dict.fromkeys((COMPUTE, AGAIN, *map(communication, FAMILIES)), 0.0)
    for number in plan.schedule.stages_of(slowest, plan.ranks):
        stage = plan.stages[number]
        terms = stages[number].terms
        sent = _messages(ranks, slowest, stage.start, stage.stop, terms[MESSAGES])
        for name, seconds in ({**terms, **sent}).items():
            if name != MESSAGES:
                found[name] = found.get(name, 0.0) + count * seconds
    waiting = cost[WAITING]
    blocking = plan.virtual == 1 < plan.ranks
    sends = min(waiting, count * ranks.transfers[slowest]) if blocking else 0.0
    found[SENDS] += sends
    found[FILL] = waiting - sends
    step, rings = _synchronisation(ranks, plan)
    found[DATA] += rings
    found[OPTIMISER] = step
    found[SENDS] += cost[TIED]
    found[STEP] = cost[STEP]
    return found


def _messages(ranks: RankCosts, rank: int, start: int, stop: int, total: float) -> dict[str, float]:
    """Return the seconds of a micro-batch's messages within layers of the chain, by families.

    Each family counts the saving of leaving it out, after the families before it. The rest of the
    total are waits of layers for sharded gradients and parameters, counted as data parallelism. Of
    layers that were measured, the parts of the total are in proportion to estimates of them.
    """
    kind = ranks.kinds[rank]
    sent = defaultdict[str, float](float)
    for name, times in _kinds_between(ranks, start, stop).items():
        for family, seconds in _by_family(ranks, kind, name).items():
            sent[family] += times * seconds
    estimated = sum(sent.values())
    if ranks.profile is not None or estimated > total:
        share = total / estimated if estimated else 0.0
        found = {communication(family): share * s for family, s in sent.items()}
        rest = total - sum(found.values())
    else:
        found = {communication(family): s for family, s in sent.items()}
        rest = total - estimated
    found[DATA] = found.get(DATA, 0.0) + rest
    return found


def _kinds_between(ranks: RankCosts, start: int, stop: int) -> Counter[str]:
    """Return how many elements of each kind, as `JobPasses` names them, a range has."""
    names = [
        "embedding",
        *(NAMES[kind] for kind in ranks.job.layer_kinds),
        "output",
    ]
    return Counter(names[start:stop])


def _by_family(ranks: RankCosts, kind: int, element: str) -> dict[str, float]:
    """Return family -> seconds of an element's messages for a micro-batch, on the slowest device
    type."""
    job, network = ranks.job, ranks.network
    key = ("families", ranks.seen(kind), element)
    if key in ranks.known:
        known: dict[str, float] = ranks.known[key]
        return known
    types = [network.cluster.device_types[name] for name in network.stage_types(job, kind)]
    without: set[str] = set()
    left, found = None, {}
    for family in ("", *FAMILIES):
        without |= {group for group, own in FAMILY.items() if own == family}
        passes = (
            element_passes(job, network, device, kind, element, links=ranks.links, without=without)
            for device in types
        )
        seconds = max(0.0 if one is None else sum(one.sent) for one in passes)
        if left is not None:
            found[family] = left - seconds
        left = seconds
    ranks.known[key] = found
    return found


def _synchronisation(ranks: RankCosts, plan: GroupPlan) -> tuple[float, float]:
    """Return the seconds of the optimiser's step and of its messages, on the slowest rank in
    both."""
    slowest, whole = ranks.longest_sync(ranks.job)
    each = ranks.step(ranks.kinds[slowest])
    own = (plan.stages[k] for k in plan.schedule.stages_of(slowest, plan.ranks))
    step = sum(float(each[s.start : s.stop].sum()) for s in own)
    return step, whole - step
