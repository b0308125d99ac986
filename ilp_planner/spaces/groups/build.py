"""The planner's own space, and the problem of a request in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import OutOfTimeError
from ilp_planner.base.errors import PlanError
from ilp_planner.costs.groups import GroupTables, option_of
from ilp_planner.costs.seat_patterns import spread_over
from ilp_planner.evaluate import Violation
from ilp_planner.optimize.search.group_search import GroupSearch
from ilp_planner.optimize.solvers.base import Task
from ilp_planner.schedule.batches import possible_counts
from ilp_planner.spaces.base import too_little_memory
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.groups.cost_models import COST_MODELS
from ilp_planner.spaces.groups.parts import GroupPart
from ilp_planner.spaces.groups.place import node_devices
from ilp_planner.spaces.layers import layer_problem
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.training import OptimizerSettings, Settings, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.optimize.result import Stop
    from ilp_planner.plan import GroupPlan, Plan


# ---- the planner's own space ---------------------------------------------------------------------
# Any groups of devices, idle devices allowed.


PLAINEST = 0.5  # of the time, where stages may be spread or have several degrees
SPREAD = ", or spread evenly: equally many replicas in each of several nodes of one type"


@dataclass(frozen=True, repr=False)
class GroupSpace(GraphSpace[GroupTables, GroupPart]):
    """A part for every number of micro-batches."""

    name = "groups"
    noun = "layer-level plan"
    idles = True

    def parts(self, problem: Problem[GroupTables]) -> list[GroupPart]:
        """Return the parts of the space."""
        return [GroupPart(problem, batches) for batches in problem.micro_batches]

    def tried(self, problem: Problem[GroupTables]) -> str:
        """Return the numbers of micro-batches: all, or the tried ones."""
        every = problem.micro_batches == possible_counts(problem.global_batch)
        if every and problem.costs.uneven:
            return "plans with any number of micro-batches"
        return super().tried(problem)

    def describe(self, problem: Problem[GroupTables]) -> str:
        """Return the plans of the proofs."""
        return (
            f"{self.tried(problem)} on at most {problem.max_stages} groups of devices, packed: of "
            "the nodes of a type that a stage is on, at most one has room for another replica"
            f"{SPREAD if problem.costs.spread else ''}"
            f"{_described(problem.costs.recomputations)}{_degrees(problem)}"
        )

    def exclusions(self, problem: Problem[GroupTables], plan: GroupPlan) -> Iterator[str]:
        """Untried groups, samples shared otherwise, and placements that are not packed, nor spread
        evenly if that is tried."""
        cluster, part = problem.cluster, GroupPart(problem, plan.micro_batches)
        sizes = node_devices(cluster)
        for s, stage in enumerate(plan.stages):
            seats: list[Counter[int]] = [Counter() for _ in cluster.type_names]
            samples: list[list[int]] = [[] for _ in cluster.type_names]
            degrees = [0] * len(cluster.type_names)
            for replica in stage.replicas:
                nodes = {cluster.node_of[device] for device in replica.devices}
                if len(nodes) > 1:
                    yield f"stage {s}: a replica on {len(nodes)} nodes, only replicas in one tried"
                    return
                node = nodes.pop()
                kind = cluster.type_names.index(cluster.node_types[node])
                if degrees[kind] not in (0, replica.tp):
                    yield (
                        f"stage {s}: replicas of {degrees[kind]} and of {replica.tp} "
                        f"{cluster.type_names[kind]}, one degree for each device type tried"
                    )
                    return
                degrees[kind] = replica.tp
                seats[kind][node] += 1
                samples[kind].append(replica.samples)
            option = option_of(degrees, list(map(len, samples)))
            for name, tp, found in zip(cluster.type_names, degrees, seats, strict=True):
                room = sum((count + 1) * tp <= sizes[v] for v, count in found.items())
                over = len(spread_over(stage, cluster)) if problem.costs.spread else 0
                if room > 1 and over:
                    option = option._replace(over=over)
                elif room > 1:
                    neither = " nor spread evenly" if problem.costs.spread else ""
                    yield (
                        f"stage {s}: not packed{neither}, {room} of its nodes of {name} have room "
                        "for another replica, at most one in the placements tried"
                    )
            shares = part.shares(option)
            if shares is None:
                yield f"stage {s}: this group of devices is not tried with so many micro-batches"
            elif shares != [sorted(own) for own in samples]:
                yield f"stage {s}: samples shared otherwise than the cost model does"

    def begin(self, problem: Problem[GroupTables], task: Task) -> GroupSearch[GroupPart]:
        """Return the state of a search that begins; it notes if the parts do not hold every group
        of devices."""
        parts = self.parts(problem)
        search = GroupSearch(problem, parts, task)
        thinned = [part for part in parts if not part.complete]
        few = [str(part.micro_batches) for part in thinned if not part.schedule.short]
        none = sum(part.schedule.short for part in thinned)
        if none:
            search.notes.append(
                f"stages of several device types: with {none} of {len(parts)} numbers of "
                "micro-batches, whose last one is short, there are too many to try and none was; "
                "the bound is for stages of one type there"
            )
        if few:
            search.notes.append(
                f"stages of several device types: with {', '.join(few)} micro-batches there are "
                "too many to try all, only some with powers of two of replicas were; the bound is "
                "for these and for all stages of one type"
            )
        unlike = sum(not part.complete_unlike for part in parts)
        if unlike:
            search.notes.append(
                "stages whose device types differ in their tensor-parallel degree: with "
                f"{unlike} of {len(parts)} numbers of micro-batches there are too many to try all, "
                "only some with powers of two of replicas were, and none where the last "
                "micro-batch is short; the bound is for these"
            )
        return search

    def mixed_tp(self, problem: Problem[GroupTables]) -> bool:
        """Tell whether each device type of a stage may have a tensor-parallel degree of its own."""
        return problem.costs.mixed_tp

    def recomputations(self, problem: Problem[GroupTables]) -> tuple[str, ...]:
        """Return the kinds of recomputation that a stage may have and the costs know."""
        return problem.costs.recomputations

    def short_batches(self, problem: Problem[GroupTables]) -> bool:
        """Tell whether the costs know partial micro-batches."""
        return problem.costs.uneven

    def check_samples(self, problem: Problem[GroupTables], plan: GroupPlan) -> Iterator[Violation]:
        """Equal devices take equally many samples, or some one more if the costs know such shares;
        and every replica takes some."""
        most, limit = 0, "equal shares on equal devices"
        if problem.costs.uneven:
            most, limit = 1, "shares that differ by at most one on equal devices"
        for s, stage in enumerate(plan.stages):
            types = {problem.cluster.type_of[d] for d in stage.devices}
            samples = {replica.samples for replica in stage.replicas}
            if len(types) == 1 and max(samples) - min(samples) > most:
                have = f"replicas with {', '.join(map(str, sorted(samples)))} samples"
                yield Violation("degrees", f"stage {s}", have, limit)
            if 0 in samples:
                yield Violation("degrees", f"stage {s}", "a replica without samples", "at least 1")

    def independent_proof(
        self, problem: Problem[GroupTables], bound: float, nodes: Sequence[int]
    ) -> dict[str, Any]:
        """Return the proof for the checker, with the rows and figures that it counts with."""
        from ilp_planner.spaces.groups.independent import layer_proof

        return layer_proof(problem, bound, self.parts(problem))

    def holdings(self, problem: Problem[GroupTables], plan: Plan[Any]) -> Holdings:
        """Return the placement of a decoder's parameters on devices: every replica has all states
        of its layers, as in the costs."""
        decoder = None if problem.spec is None else as_decoder(problem.spec.architecture)
        if (
            problem.spec is None
            or decoder is None
            or len(problem.costs.chain) != decoder.layers + 2
        ):
            return super().holdings(problem, plan)
        from ilp_planner.job.holdings import Span, chain_holdings

        for s, stage in enumerate(plan.stages):
            if len(stage.degrees) > 1:
                raise PlanError(
                    f"stages[{s}].tp: found {' and '.join(map(str, stage.degrees))}, expected one "
                    "degree for all replicas: what each device holds is not said otherwise"
                )
        spans = [Span(stage.start, stage.stop, stage.tp, stage.dp) for stage in plan.stages]
        precision = problem.spec.precision
        optimizer = OptimizerSettings(master=0 if precision == "fp32" else 4)
        settings = Settings(precision=precision, optimizer=optimizer)
        job = TrainingJob(model=decoder, micro_batch=1, global_batch=1, settings=settings)
        return chain_holdings(job, spans).on(plan.used, problem.cluster.device_count)

    def look_first(self, search: GroupSearch[GroupPart]) -> None:
        """Look for a plan at once, before any table of candidates."""
        from ilp_planner.spaces.groups.first_plans import look_first

        look_first(search)

    def look_longer(self, search: GroupSearch[GroupPart]) -> None:
        """Look for better plans in large parts."""
        from ilp_planner.spaces.groups.first_plans import look_longer

        look_longer(search)

    def search(self, search: GroupSearch[GroupPart]) -> Stop:
        """Work until proof, gap or time; if stages may be spread or have several degrees, among the
        others first: they are few beside these, and show the places for these."""
        costs = search.problem.costs
        if costs.spread or costs.mixed_tp:
            self._search_plainest(search)
        return super().search(search)

    def _search_plainest(self, search: GroupSearch[GroupPart]) -> None:
        """Search for the best plan of packed stages of one degree each, for a part of the time."""

        def progress(seconds: float, bound: float) -> None:
            if search.progress is not None and seconds < search.objective:
                search.progress(seconds, min(search.bound, seconds))

        problem = replace(search.problem, costs=search.problem.costs.plainest())
        moment = search.deadline.moment(PLAINEST * search.deadline.left)
        task = Task(search.limits, search.solver, progress, moment)
        others = GroupSearch(problem, self.parts(problem), task)
        others.objective = search.objective  # plans that take as long are of no interest
        try:
            super().search(others)
        except OutOfTimeError:
            search.check_time()
        finally:
            others.end()
            if others.plan is not None:
                search.accept(others.plan)

    def look(self, search: GroupSearch[GroupPart]) -> None:
        """Look among groups of one device type first: they are few, and their results show the
        places for mixed ones."""
        from ilp_planner.optimize.search.graph_hunt import GraphHunt
        from ilp_planner.optimize.search.group_search import PartState

        problem, hunt = search.problem, GraphHunt(search, search.states)
        if len(problem.cluster.type_names) > 1:
            parts = [GroupPart(problem, b, alone=True) for b in problem.micro_batches]
            for part in parts:
                part.check_time = search.check_time
            alone = GraphHunt(search, [PartState(part=part) for part in parts])
            alone.run()
            if alone.found:
                hunt.look_where(alone.found)
                return
        hunt.run()

    def explain(self, search: GroupSearch[GroupPart]) -> str:
        """Return one line for a problem that is proved infeasible."""
        from ilp_planner.spaces.infeasible import explain_layers

        return explain_layers(search.problem, too_little_memory(search.problem))


def _degrees(problem: Problem[GroupTables]) -> str:
    """Return how the tensor-parallel degrees of a stage may differ, for the end of a sentence;
    empty if there is one device type."""
    if len(problem.cluster.type_names) == 1:
        return ""
    if not problem.costs.mixed_tp:
        return "; all replicas of a stage with one tensor-parallel degree"
    return "; in a stage each device type with a tensor-parallel degree of its own"


def _described(kinds: tuple[str, ...]) -> str:
    """Return the possible recomputation of stages, for the end of a sentence; empty: nothing."""
    return "" if kinds == ("none",) else f"; each stage with recomputation {' or '.join(kinds)}"


# ---- from the request to the problem -------------------------------------------------------------


def build(files: InputFiles) -> Problem[Any]:
    """Read all inputs and build the problem.

    Raises
    ------
    SpecError, ProfileError, UsageError: the problem cannot be planned, with the reason.
    """
    model = COST_MODELS[files.request.cost_model]
    cluster = model.cluster(files)
    costing = model.costing(files, cluster)
    return layer_problem(files, GroupSpace(), cluster, costing, costing.costs.degrees())
