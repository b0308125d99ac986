"""Plans of operators on equal devices: their space, and the problem of a request in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from ilp_planner.base.errors import ProfileError, SpecError, UsageError
from ilp_planner.base.numerics import NEVER
from ilp_planner.costs.models import COST_MODELS, costs_named
from ilp_planner.costs.operators import OperatorTables
from ilp_planner.evaluate import Violation
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.profiles import operator_source
from ilp_planner.optimize.coverage import check_tried
from ilp_planner.optimize.solvers import registry
from ilp_planner.plan import OperatorPlan, Plan, is_of_operators
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.base import Space
from ilp_planner.spaces.layers import micro_batch_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.costs.profiles.table import Profile
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.result import Ranked, Stop
    from ilp_planner.optimize.search.confirm import LastProblem
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.spaces.operators.search import OperatorSearch
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


# ---- bounds before any stage is examined ---------------------------------------------------------
# A stage on g devices computes its operators one after the other, so it keeps g devices busy for
# at least the sum of their least seconds. No pipeline is faster than all device-seconds spread
# over all devices.


KEPT = 4  # problems whose work is remembered


class Work(NamedTuple):
    """Of a micro-batch size. weight: of the slowest stage in an iteration (`Schedule.weight`).
    device_seconds: of a micro-batch, over all operators. alone: seconds of a micro-batch through
    all of them, each on the devices that take least."""

    weight: float
    device_seconds: float
    alone: float

    def seconds(self, devices: int) -> float:
        """Return a lower bound in seconds of plans on so many devices."""
        each = self.device_seconds / devices
        return self.weight * each + max(self.alone, each)


@lru_cache(maxsize=KEPT)
def works_of(problem: Problem[Any]) -> tuple[Work, ...]:
    """Return the work of every micro-batch size that some devices can run.

    Stages on fewer devices than there are have no options that are not counted here, so the work is
    also a bound for plans on some of the nodes.
    """
    groups = np.array(problem.space.stage_sizes(problem))
    found = []
    for size in problem.micro_batch_sizes:
        schedule = OneForwardOneBackward(problem.global_batch // size)
        least = np.array(
            [problem.costs.least_compute(size, int(g), schedule.micro_batches) for g in groups]
        )
        work = Work(
            schedule.weight,
            float((groups[:, None] * least).min(axis=0).sum()),
            float(least.min(axis=0).sum()),
        )
        if work.device_seconds < np.inf:
            found.append(work)
    return tuple(found)


# ---- the space -----------------------------------------------------------------------------------
# Every node alike, stages on devices in a row.


GROUP_SIZES = (1, 2, 4, 8)


def stage_devices(cluster: ClusterSpec, max_nodes: int) -> tuple[int, ...]:
    """Return the numbers of devices that one stage may have, ascending: 1, 2, 4 or 8 of a node, or
    2, 4, 8 ... whole nodes up to `max_nodes`."""
    per_node, nodes = cluster.devices_per_node, min(cluster.node_count, max_nodes)
    whole = [per_node << double for double in range(1, nodes.bit_length())]
    return (*(g for g in GROUP_SIZES if g <= per_node), *whole)


@dataclass(frozen=True, kw_only=True, repr=False)
class OperatorSpace(Space[OperatorTables, "OperatorSearch"]):
    """A part for every size of micro-batch over all replicas of a stage.

    group_sizes: devices that one stage may have: a part of one node, or whole nodes.
    """

    name = "operators"
    noun = "operator-level plan"
    unit = "operator"
    part_key = "micro_batch"
    proof_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "micro_batches": (),
        "counted": (),
        "digits": (),
        "slowest_s": (),
        "prices": ("devices", "in_flight", "seconds_per_byte"),
        "exact_stages": (
            "start", "stop", "devices", "in_flight", "enters_node", "leaves_node", "bound_s",
        ),
    }  # fmt: skip

    group_sizes: tuple[int, ...] = GROUP_SIZES

    def stage_sizes(self, problem: Problem[OperatorTables]) -> tuple[int, ...]:
        """Return the numbers of devices that one stage may have, ascending."""
        return self.group_sizes

    def why_unranked(self) -> str:
        """Return why the best plans cannot be listed in order, and the kinds that can."""
        return (
            "in space operators, whose plans are not ranked, expected 1, or plans of whole layers: "
            "`space=groups` has them"
        )

    @property
    def threaded(self) -> bool:
        """Stages are prepared and solved side by side."""
        return True

    def work_bound(self, problem: Problem[OperatorTables], nodes: Iterable[int]) -> float:
        """Return the time of the operators on all devices at once, at the best micro-batch size."""
        devices = sum(problem.cluster.devices_of_nodes[node] for node in nodes)
        return min((work.seconds(devices) for work in works_of(problem)), default=NEVER)

    def part_names(self, problem: Problem[OperatorTables]) -> list[int | str]:
        """Return the sizes of micro-batches that are tried."""
        return list(problem.micro_batch_sizes)

    # ---- which plans its proofs are about -------------------------------------------------------

    def describe(self, problem: Problem[OperatorTables]) -> str:
        """Return the plans of the proofs."""
        sizes = ", ".join(map(str, problem.micro_batch_sizes))
        per_node = problem.cluster.devices_per_node
        groups = ", ".join(str(g) for g in self.group_sizes if g <= per_node)
        nodes = ", ".join(str(g // per_node) for g in self.group_sizes if g > per_node)
        whole = f" or {nodes} whole nodes" if nodes else ""
        return (
            f"plans with micro-batch {sizes} over all replicas, on at most {problem.max_stages} "
            f"stages of {groups} devices inside a node{whole}, every device used in order"
        )

    def outside(self, problem: Problem[OperatorTables], plan: Plan[Any]) -> str | None:
        """Return why a legal plan is none that proofs are about: its micro-batch alone."""
        return check_tried("micro-batch", plan.micro_batch_size, problem.micro_batch_sizes)

    def exclusions(self, problem: Problem[OperatorTables], plan: Plan[Any]) -> Iterator[str]:
        """Every legal plan with a micro-batch that is tried is in a part."""
        return iter(())

    # ---- its rules ------------------------------------------------------------------------------

    def check_whole(self, problem: Problem[OperatorTables], plan: Plan[Any]) -> Iterator[Violation]:
        """Stages are of operators, on the devices in order; replicas of profiled samples make the
        micro-batch."""
        if not is_of_operators(plan) or plan.settings is not None or plan.virtual > 1:
            limit = "stages of operators, without settings of a runtime"
            yield Violation("stages", "plan", "others", limit)
            return
        profiled = problem.costs.micro_batch_sizes(self.group_sizes)
        if plan.micro_batch_size not in profiled:
            limit = f"one of {', '.join(map(str, profiled))}"
            yield Violation("micro-batch", "plan", str(plan.micro_batch_size), limit)
        position = 0
        for s, stage in enumerate(plan.stages):
            if stage.first_device != position:
                have = f"first device {stage.first_device}"
                yield Violation("devices in order", f"stage {s}", have, str(position))
            position = stage.first_device + stage.device_count

    def check(
        self, problem: Problem[OperatorTables], plan: Plan[Any], cost: PlanCost
    ) -> Iterator[Violation]:
        """Groups, degrees and memory."""
        yield from self.check_groups(problem, plan)
        yield from self.check_degrees(problem, plan)
        yield from self.check_memory(problem, plan, cost)

    def check_groups(
        self, problem: Problem[OperatorTables], plan: OperatorPlan
    ) -> Iterator[Violation]:
        """Device groups have an allowed size, and are a part of one node or whole nodes."""
        per_node = problem.cluster.devices_per_node
        for s, stage in enumerate(plan.stages):
            if stage.device_count not in self.group_sizes:
                limit = f"one of {', '.join(map(str, self.group_sizes))}"
                have = str(stage.device_count)
                yield Violation("devices of a stage", f"stage {s}", have, limit)
            last = stage.first_device + stage.device_count - 1
            whole = not (stage.first_device % per_node or stage.device_count % per_node)
            if stage.first_device // per_node != last // per_node and not whole:
                have = f"devices {stage.first_device} to {last}"
                yield Violation("node straddled", f"stage {s}", have, f"nodes of {per_node}")

    def check_degrees(
        self, problem: Problem[OperatorTables], plan: OperatorPlan
    ) -> Iterator[Violation]:
        """For every operator tp x dp is the stage's device count, tp fits into a node, and dp
        divides the micro-batch."""
        per_node = problem.cluster.devices_per_node
        for s, stage in enumerate(plan.stages):
            for tp, dp in sorted({(x.tp, x.dp) for x in stage.strategies}):
                if tp * dp != stage.device_count:
                    limit = f"{stage.device_count} devices"
                    yield Violation("degrees", f"stage {s}", f"tp {tp} x dp {dp}", limit)
                if tp > per_node:
                    limit = f"at most the {per_node} devices of a node"
                    yield Violation("degrees", f"stage {s}", f"tp {tp}", limit)
                if plan.micro_batch_size % dp:
                    limit = f"a divisor of the micro-batch {plan.micro_batch_size}"
                    yield Violation("degrees", f"stage {s}", f"dp {dp}", limit)

    # ---- where its seconds go -------------------------------------------------------------------

    def recomputed_flops(self, problem: Problem[OperatorTables], plan: Plan[Any]) -> float | None:
        """Return the forward FLOPs of a sample of the recomputed operators."""
        if problem.spec is None or not is_of_operators(plan):
            return None
        model, chain = problem.spec.architecture, problem.costs.chain
        flops, masked, again = model.flops, model.masked, 0.0
        for stage in plan.stages:
            for name, chosen in zip(chain[stage.start : stage.stop], stage.strategies, strict=True):
                if chosen.recompute:
                    again += flops.get(name, 0) - masked.get(name, 0.0)
        return again

    # ---- how it is searched ---------------------------------------------------------------------

    def begin(self, problem: Problem[OperatorTables], task: Task) -> OperatorSearch:
        """Return the state of a search that begins, a heuristic's if one is asked for."""
        if registry.is_heuristic(task.solver):
            from ilp_planner.spaces.operators.search import OperatorHunt

            return OperatorHunt(problem, task)
        from ilp_planner.spaces.operators.search import OperatorSearch

        return OperatorSearch(problem, task)

    def search(self, search: OperatorSearch) -> Stop:
        """Work until proof, gap or time."""
        return search.run()

    def hunt(self, search: OperatorSearch) -> Stop:
        """Look for a good plan by the heuristic that was asked for."""
        return search.run()

    def prove(
        self, search: OperatorSearch, records: Sequence[Mapping[str, Any]]
    ) -> Iterator[float]:
        """Yield a bound of every part, as high as its record claims if that is true."""
        from ilp_planner.spaces.operators.certificate import prove_part

        return (prove_part(search.problem, record) for record in records)

    def widened(self, old: Request, new: Request) -> Iterator[str]:
        """No bound is taken without the stages that it rests on."""
        yield from super().widened(old, new)
        yield "of operators they rest on stages that were solved exactly, which are not kept"

    def rank(self, search: OperatorSearch, top: int) -> tuple[Ranked, ...]:
        """Return nothing: plans of operators are not ranked."""
        return ()

    def last_problem(self, search: OperatorSearch, plan: Plan[Any]) -> LastProblem | None:
        """Return the residual problem of the plan's part."""
        from ilp_planner.spaces.operators.certificate import last_of_part

        return last_of_part(search, plan)

    def proved_problem(
        self, problem: Problem[OperatorTables], plan: Plan[Any], certificate: Mapping[str, Any]
    ) -> LastProblem | None:
        """Return the graph of the plan's part, with the stages that the certificate calls exact."""
        from ilp_planner.optimize.search.confirm import LastGraph
        from ilp_planner.spaces.operators.certificate import plan_graph

        return LastGraph(graph=plan_graph(problem, certificate, plan))

    def independent_proof(
        self, problem: Problem[OperatorTables], bound: float, nodes: Sequence[int]
    ) -> dict[str, Any]:
        """Return the proof for the checker, with the rows that it counts with."""
        from ilp_planner.spaces.operators.independent import independent_proof

        return independent_proof(problem, bound, nodes)

    def explain(self, search: OperatorSearch) -> str:
        """Return one line for a problem that is proved infeasible."""
        return search.explain()


# ---- from a model, a cluster and a profile to a problem ------------------------------------------


def build(files: InputFiles) -> Problem[OperatorTables]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    asked = files.request
    model, cluster = files.model_or_default(), files.cluster_file()
    exact = costs_named(asked.cost_model).exact_sizes
    recorded = (asked.memory_limits or {}).get(cluster.type_names[0])
    most = cluster.device.memory if recorded is None else recorded
    return build_problem(
        model,
        cluster,
        operator_source(files, model, cluster, exact=exact),
        cost_model=asked.cost_model,
        global_batch=files.global_batch,
        micro_batch_sizes=asked.micro_batch_sizes,
        memory_limit=most if asked.memory_limit is None else min(most, asked.memory_limit),
        max_stages=asked.max_stages,
        max_stage_nodes=asked.max_stage_nodes,
    )


def build_problem(
    model: ModelSpec,
    cluster: ClusterSpec,
    profile: Profile,
    *,
    cost_model: str = "native",
    global_batch: int,
    micro_batch_sizes: Sequence[int] = (),
    memory_limit: float | None = None,
    max_stages: int | None = None,
    max_stage_nodes: int | None = None,
) -> Problem[OperatorTables]:
    """Check the inputs against each other and freeze them.

    Parameters
    ----------
    micro_batch_sizes: to try, over all replicas; empty: all that replicas of profiled samples make
        up to the batch.
    memory_limit: bytes per device; None: all of the device's memory.
    max_stage_nodes: nodes that one stage is on, at most; None: any, if its costs have them.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    if cost_model not in COST_MODELS:
        raise UsageError(
            f"cost_model: expected one of {', '.join(COST_MODELS)}, found {cost_model!r}"
        )
    limit = float(cluster.device.memory if memory_limit is None else memory_limit)
    if not limit > 0:
        raise SpecError(f"memory limit: must be positive, found {limit:.0f} bytes")
    stages = cluster.device_count if max_stages is None else max_stages
    if stages < 1:
        raise UsageError(f"max_stages: must be at least 1, found {stages}")
    missing = [op for op in dict.fromkeys(model.operators) if op not in _profiled(profile)]
    if missing:
        raise ProfileError(
            f"{profile.source}: operator {missing[0]!r} of {model.name} has no row "
            f"({len(missing)} operators without any)"
        )
    per_node = cluster.devices_per_node
    costs = costs_named(cost_model)(
        model.operators, model.family, profile, devices_per_node=per_node
    )
    notes = list(profile.notes)
    most = max_stage_nodes or cluster.node_count
    groups = stage_devices(cluster, most if costs.spans_nodes else 1)
    known = costs.micro_batch_sizes(groups)
    wanted = tuple(dict.fromkeys(micro_batch_sizes)) or _up_to(global_batch, known)
    if any(m < 1 for m in wanted):
        raise SpecError(f"micro-batch size: must be at least 1, found {min(wanted)}")
    unknown = [m for m in wanted if m not in known]
    if unknown:
        notes.append(
            f"micro-batch {', '.join(map(str, unknown))}: not of profiled samples "
            f"({', '.join(map(str, known))} are), left out"
        )
    profiled = [m for m in wanted if m in known]
    if not profiled:
        raise ProfileError(
            f"{profile.source}: no rows for micro-batch {', '.join(map(str, wanted))}, "
            f"expected one of {', '.join(map(str, known))}"
        )
    micro_batches, left_out = micro_batch_counts(global_batch, profiled)
    return Problem(
        model=model.name,
        cluster=cluster,
        space=OperatorSpace(group_sizes=groups),
        costs=costs,
        global_batch=global_batch,
        micro_batches=micro_batches,
        memory_limits={cluster.type_names[0]: limit},
        max_stages=min(stages, cluster.device_count, len(model.operators)),
        max_tp=max(g for g in groups if g <= per_node),
        profile_source=profile.source,
        notes=(*notes, *left_out),
    )


def _up_to(global_batch: int, sizes: Sequence[int]) -> Sequence[int]:
    """Return the sizes of micro-batches that are no larger than the batch; all, if none is."""
    return [size for size in sizes if size <= global_batch] or sizes


def _profiled(profile: Profile) -> set[str]:
    return {key.operator for key in profile.rows}
