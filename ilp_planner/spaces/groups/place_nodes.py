"""Packed placements on nodes with different links, by CP-SAT.

Variables: replicas of each stage on each node. The time that links add to a plan is minimised:

    (B - 1) * max_s (compute_s + transfer_s) + sum_s transfer_s + max_s (ring_s + step_s)

A transfer takes as long as the slowest pair of nodes used between consecutive stages, a ring as the
slowest pair of nodes that the stage uses. That is near to the cost model, not the same: the true
cost decides between the placements returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.group_network import best_ring
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.costs.groups import GroupTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.groups.place import GroupChoice, Seats

UNITS = 1_000_000  # of the objective, in the compute time of a micro-batch
MOST_PAIRS = 100_000  # of nodes, over all stages: beyond, links are left aside


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """The effect of links on the time of a stage. Seconds and bytes.

    compute, step: seconds per micro-batch and per iteration. sent: bytes of one sample to the next
    stage. gradients: bytes. share: samples of a replica, the mean.
    """

    compute: float
    step: float
    sent: float
    gradients: float
    share: float


def place_nodes(
    problem: Problem[GroupTables],
    micro_batches: int,
    choices: Sequence[GroupChoice],
    *,
    seconds: float,
) -> list[Seats]:
    """Return packed placements, each better than the one before in the terms above; [] if none was
    found.

    Parameters
    ----------
    seconds: of CP-SAT on one thread.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    seating = _Seating(problem, choices, model)
    stages = _stages(problem, micro_batches, choices)
    if stages is not None and seating.pairs <= MOST_PAIRS:
        _minimise_links(seating, stages, micro_batches)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.max_deterministic_time = seconds

    class Collect(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
        """Keep every solution."""

        def __init__(self) -> None:
            super().__init__()
            self.found: list[Seats] = []

        def on_solution_callback(self) -> None:
            """Read the nodes off."""
            self.found.append(seating.seats(self.value))

    collect = Collect()
    solver.solve(model, collect)
    return collect.found


def _stages(
    problem: Problem[GroupTables], micro_batches: int, choices: Sequence[GroupChoice]
) -> list[_Stage] | None:
    """Return the link costs of the stages; None if the cost model does not tell nodes apart."""
    costs, stages = problem.costs, []
    for choice in choices:
        table = costs.option_tables(
            choice.option, micro_batches, problem.global_batch, problem.cluster
        )
        crossing = costs.crossing(choice.start, choice.stop)
        if table is None or crossing is None:
            return None
        gradients, sent = crossing
        ring = best_ring(choice.option, problem.cluster).seconds(gradients)
        stages.append(
            _Stage(
                compute=table.seconds(choice.start, choice.stop, choice.way),
                step=max(0.0, float(table.peaks[:, choice.start, choice.stop].sum()) - ring),
                sent=sent,
                gradients=gradients,
                share=sum(choice.samples) / len(choice.samples),
            )
        )
    return stages


class _Seating:
    """Replicas of every stage on every node of its types."""

    def __init__(
        self, problem: Problem[GroupTables], choices: Sequence[GroupChoice], model: Any
    ) -> None:
        self.cluster, self.choices, self.model = problem.cluster, choices, model
        cluster = problem.cluster
        size = [0] * cluster.node_count
        for node in cluster.node_of:
            size[node] += 1
        self.kind_of = [cluster.type_names.index(name) for name in cluster.node_types]
        nodes_of = [
            [v for v, found in enumerate(cluster.node_types) if found == name]
            for name in cluster.type_names
        ]
        self.count: list[dict[int, Any]] = []  # of each stage: node -> replicas
        self.used: list[dict[int, Any]] = []  # of each stage: node -> at least one
        load: dict[int, list[Any]] = {v: [] for v in range(cluster.node_count)}
        for choice in choices:
            count, used = {}, {}
            for kind, replicas in enumerate(choice.option.replicas):
                if not replicas:
                    continue
                tp, partial, over = choice.option.degree(kind), [], choice.option.over
                least = choice.option.each if over else 1
                for v in nodes_of[kind]:
                    full = size[v] // tp
                    if full < least:
                        continue
                    count[v] = model.new_int_var(0, min(full, replicas), "")
                    used[v] = model.new_bool_var("")
                    load[v].append(tp * count[v])
                    if over:
                        model.add(count[v] == least * used[v])
                        continue
                    model.add(count[v] >= used[v])
                    model.add(count[v] <= full * used[v])
                    open_node = model.new_bool_var("")
                    model.add(count[v] >= full * used[v] - full * open_node)
                    partial.append(open_node)
                model.add(sum(count[v] for v in nodes_of[kind] if v in count) == replicas)
                model.add_at_most_one(partial)
            self.count.append(count)
            self.used.append(used)
        for v, taken in load.items():
            model.add(sum(taken) <= size[v])

    @property
    def pairs(self) -> int:
        """Count pairs of nodes that may send to each other."""
        rings = sum(len(used) ** 2 for used in self.used)
        following = zip(self.used, self.used[1:], strict=False)
        return rings + sum(len(a) * len(b) for a, b in following)

    def seats(self, value: Any) -> Seats:
        """Return the node of every replica of a solution."""
        found = []
        for choice, count in zip(self.choices, self.count, strict=True):
            row = []
            for kind in range(len(choice.option.replicas)):
                name = self.cluster.type_names[kind]
                for v in sorted(count):
                    if self.cluster.node_types[v] == name:
                        row += [v] * int(value(count[v]))
            if choice.option.over:
                row = choice.option.in_turn(sorted({*row}))
            found.append(row)
        return found

    def pairs_of(self, s: int) -> Any:
        """Return a variable that is 1 only if a stage and the next one are spread over the same
        nodes; None if they cannot be."""
        own, other = (self.choices[n].option for n in (s, s + 1))
        if not own.over or own.over != other.over or {*self.used[s]} != {*self.used[s + 1]}:
            return None
        same = self.model.new_bool_var("")
        for v, used in self.used[s].items():
            self.model.add(used == self.used[s + 1][v]).only_enforce_if(same)
        return same

    def both(self, a: Any, b: Any) -> Any:
        """Return a variable that is 1 if both are."""
        found = self.model.new_bool_var("")
        self.model.add_bool_or(a.negated(), b.negated(), found)
        return found


def _minimise_links(seating: _Seating, stages: Sequence[_Stage], micro_batches: int) -> None:
    """Add the objective."""
    model, cluster = seating.model, seating.cluster
    unit = max(max(stage.compute for stage in stages), 1e-12) / UNITS
    longest = 10**12

    def units(time: float) -> int:
        return min(round(time / unit), longest // 10**3)

    slowest = model.new_int_var(0, longest, "")
    peak = model.new_int_var(0, longest, "")
    transfers = []
    for s, (stage, choice) in enumerate(zip(stages, seating.choices, strict=True)):
        transfer = model.new_int_var(0, longest, "")
        transfers.append(transfer)
        model.add(slowest >= units(stage.compute) + transfer)
        ring = model.new_int_var(0, longest, "")
        model.add(peak >= units(stage.step) + ring)
        dp, used = sum(choice.option.replicas), seating.used[s]
        tp_on = {v: choice.option.degree(seating.kind_of[v]) for v in used}
        for v in used:
            for w in used:
                if v == w or dp == 1:
                    continue
                link = cluster.link(v, w)
                step = link.latency + stage.gradients / dp / link.bandwidth
                model.add(ring >= units(2 * (dp - 1) * step)).only_enforce_if(
                    seating.both(used[v], used[w])
                )
            if dp > 1:
                link = cluster.link(v, v)
                each = stage.gradients / tp_on[v] / dp
                step = link.latency + each / link.collective_bandwidth(dp)
                shared = model.new_bool_var("")
                model.add(seating.count[s][v] <= 1).only_enforce_if(shared.negated())
                model.add(ring >= units(2 * (dp - 1) * step)).only_enforce_if(shared)
        if s + 1 == len(stages):
            continue
        following, pairs = seating.used[s + 1], seating.pairs_of(s)
        for v in used:
            for w in following:
                link = cluster.link(v, w)
                # Inside a node every device has a link of its own.
                rate = 2 * stage.sent * stage.share / link.bandwidth
                fixed = units(2 * link.latency + (rate / tp_on[v] if v == w else 0.0))
                carried = 0 if v == w else units(rate) * seating.count[s][v]
                where = [seating.both(used[v], following[w])]
                if pairs is not None and v != w:
                    where.append(pairs.negated())
                model.add(transfer >= fixed + carried).only_enforce_if(where)
    weight = round(OneForwardOneBackward(micro_batches).weight)
    model.minimize(weight * slowest + sum(transfers) + peak)
