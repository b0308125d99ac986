"""Common code of cost models for chains of profiled operators: one judge and one table builder.

A subclass states the rules (the abstract methods of `ChainCosts`); `stage_cost` applies them
operator by operator, `tables` once per kind of operator. The two are held against each other by the
tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.operators import Change, Option, StageTables, Surroundings, change, layout
from ilp_planner.costs.profiles.shares import Share, Tally
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Origin, Profile, Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.plan import OperatorPlan, OperatorStage
    from ilp_planner.specs.cluster import ClusterSpec


def missing_row(size: float) -> OperatorRow:
    """Return the charge of a missing row: a second each way, so many bytes of all."""
    return OperatorRow(
        forward=1.0, backward=1.0, input=size, output=size, weights=size, activations=size,
        forward_reserved=size, backward_reserved=size,
    )  # fmt: skip


def _surroundings(plan: OperatorPlan, cluster: ClusterSpec) -> Iterator[Surroundings]:
    """Yield the place of each stage of a plan."""
    per_node, last = cluster.devices_per_node, len(plan.stages) - 1
    for s, stage in enumerate(plan.stages):
        first = stage.first_device
        yield Surroundings(
            micro_batch=plan.micro_batch_size,
            micro_batches=plan.micro_batches,
            behind=last - s,
            enters_node=first > 0 and first % per_node == 0,
            leaves_node=(first + stage.device_count) % per_node == 0,
        )


class ChainCosts(ABC):
    """Costs of stages of one model, from one profile.

    missing: the charge of an unprofiled operator in a judged plan.
    exact_sizes: rows are used as they were measured, none is predicted.
    spans_nodes: a stage may have replicas on several whole nodes.
    """

    name: str
    weight_floor: bool
    missing: OperatorRow
    exact_sizes: bool = False
    spans_nodes: bool = False

    def __init__(
        self,
        operators: tuple[str, ...],
        family: str,
        profile: Profile,
        *,
        devices_per_node: int | None = None,
    ) -> None:
        """Keep the inputs of stage costs. devices_per_node: None if no stage is larger than a
        node."""
        self.chain = operators
        self.family = family
        self.profile = profile
        self.devices_per_node = devices_per_node
        # bytes of parameters, gradients and optimiser states per byte of weights: 16 per parameter
        # in mixed precision (2 + 2 + 4 + 4 + 4), 16 with 4-byte weights (4 + 4 + 4 + 4)
        self.state_factor = 4.0 if family == "resnet" else 8.0

    # ---- the rules ------------------------------------------------------------------------------

    @abstractmethod
    def activation(self, operator: str, row: OperatorRow) -> float:
        """Bytes that the operator keeps for its backward pass."""

    @abstractmethod
    def transfer(self, size: float, between_nodes: bool) -> float:
        """Seconds that a stage spends on moving `size` bytes over one of its ends, per
        micro-batch."""

    @abstractmethod
    def collective(self, primitive: str, devices: int, size: float) -> float:
        """Seconds of one collective on a tensor of `size` bytes."""

    @abstractmethod
    def iteration_work(self, row: OperatorRow, option: Option) -> float:
        """Seconds of work per iteration, not per micro-batch (gradient reduction, optimiser
        step)."""

    def stage_work(self, devices: int) -> float:
        """Seconds of work per iteration that a stage on so many devices has once, for any
        operators."""
        return 0.0

    @abstractmethod
    def in_flight(self, behind: int, micro_batches: int) -> int:
        """Micro-batches in flight at the peak."""

    @abstractmethod
    def is_shared(self, operator: str) -> bool:
        """Tell whether the operator keeps nothing of its own."""

    @abstractmethod
    def starts_checkpoint(self, operator: str) -> bool:
        """Tell whether the input of this operator is always kept."""

    @abstractmethod
    def reshards(self, have: str, want: str) -> bool:
        """Tell whether a change of layout between these neighbours costs anything in this model."""

    # ---- where figures come from ----------------------------------------------------------------

    def transfer_origin(self, size: float, between_nodes: bool) -> Origin:
        """Return the source of the seconds of `transfer`."""
        return self.profile.link_origins[int(between_nodes)]

    def collective_origin(self, primitive: str, devices: int, size: float) -> Origin:
        """Return the source of the seconds of `collective`."""
        key = (primitive, devices)
        if key not in self.profile.collectives:
            return Origin(Provenance.ANALYTIC)
        return self.profile.collective_origins.get(key, {}).get(round(size / MIB), Origin())

    def time_origins(
        self, stage: OperatorStage, around: Surroundings
    ) -> Iterator[tuple[Origin, float]]:
        """Yield the seconds of a profiled stage with their sources; they add up to its time."""
        names, options, known, last = self._rows(stage, around.micro_batch)
        rows = [row or self.missing for row in known]
        for i, (row, strategy) in enumerate(zip(rows, stage.strategies, strict=True)):
            again = row.forward if strategy.recompute else 0.0
            yield Origin(row.provenance, row.error), row.forward + row.backward + again
            work = self.iteration_work(row, options[i])
            yield Origin(Provenance.ANALYTIC), work / around.micro_batches
            if i:
                pair = (names[i - 1], options[i - 1], names[i], options[i])
                yield from self._reshard_origins(*pair, row.input)
        once = self.stage_work(stage.device_count) / around.micro_batches
        yield Origin(Provenance.ANALYTIC), once
        for size, between in (
            (rows[0].input, around.enters_node),
            (last.output, around.leaves_node),
        ):
            yield self.transfer_origin(size, between), self.transfer(size, between)

    def _reshard_origins(
        self, have: str, a: Option, want: str, b: Option, size: float
    ) -> Iterator[tuple[Origin, float]]:
        move = self._change(have, a, want, b)
        if move is None:
            return
        for primitive in (move.forward, move.backward):
            if primitive != "split":
                spent = self.collective(primitive, move.devices, size)
                yield self.collective_origin(primitive, move.devices, size), spent

    # ---- the space ------------------------------------------------------------------------------

    def nodes_of(self, devices: int) -> int:
        """Return the nodes that a stage on so many devices is on."""
        return 1 if self.devices_per_node is None else -(-devices // self.devices_per_node)

    def micro_batch_sizes(self, groups: Sequence[int]) -> tuple[int, ...]:
        """Samples of a micro-batch over all replicas, ascending: the profiled samples of a replica,
        times the possible replicas of a stage on these numbers of devices."""
        degrees = self.profile.tensor_degrees
        replicas = {1, *(g // tp for g in groups for tp in degrees if g % tp == 0)}
        each = self.profile.micro_batch_sizes
        return tuple(sorted({samples * dp for samples in each for dp in replicas}))

    def options(self, micro_batch: int, devices: int) -> tuple[Option, ...]:
        """Return the ways to use all `devices` on an operator that the profile could know."""
        found = []
        for tp in self.profile.tensor_degrees:
            dp = devices // tp
            if tp * dp != devices or micro_batch % dp or tp * self.nodes_of(devices) > devices:
                continue  # tensor parallelism stays inside a node
            if micro_batch // dp in self.profile.micro_batch_sizes:
                found += [Option(tp, dp, split) for split in self.profile.splits]
        return tuple(found)

    def _row(self, operator: str, option: Option, micro_batch: int) -> OperatorRow | None:
        return self.profile.row(operator, micro_batch // option.dp, option.tp, option.split)

    def _rows(
        self, stage: OperatorStage, micro_batch: int
    ) -> tuple[tuple[str, ...], list[Option], list[OperatorRow | None], OperatorRow]:
        """Return the operators of a stage, their options and rows, and the row of the messages: the
        last operator's, at the tensor degree of the *first* one."""
        names = self.chain[stage.start : stage.stop]
        options = [Option(s.tp, s.dp, s.split) for s in stage.strategies]
        pairs = list(zip(names, options, strict=True))
        known = {pair: self._row(*pair, micro_batch) for pair in dict.fromkeys(pairs)}
        last = self._row(names[-1], options[-1]._replace(tp=options[0].tp), micro_batch)
        return names, options, [known[pair] for pair in pairs], last or self.missing

    @cache  # noqa: B019 - one instance per problem, and few pairs
    def _change(self, have: str, a: Option, want: str, b: Option) -> Change | None:
        if not self.reshards(have, want):
            return None
        return change(layout(have, a, of_input=False), layout(want, b, of_input=True))

    def _reshard(self, have: str, a: Option, want: str, b: Option, size: float) -> float:
        """Seconds, forward and backward; inf if there is no path, or one between replicas on
        several nodes: the same change exists without tensor parallelism."""
        try:
            if self.nodes_of(a.tp * a.dp) > 1:
                alone = a._replace(tp=1), b._replace(tp=1, dp=a.dp)
                if self._change(have, alone[0], want, alone[1]) is not None:
                    return float("inf")
            move = self._change(have, a, want, b)
        except ValueError:
            return float("inf")
        if move is None:
            return 0.0
        return sum(
            0.0 if primitive == "split" else self.collective(primitive, move.devices, size)
            for primitive in (move.forward, move.backward)
        )

    # ---- the judge ------------------------------------------------------------------------------

    def plan_cost(self, plan: OperatorPlan, cluster: ClusterSpec) -> PlanCost:
        """Judge a plan on the devices that it names, in plain floating point."""
        around = _surroundings(plan, cluster)
        stages = tuple(map(self.stage_cost, plan.stages, around))
        times = [cost.time for cost in stages]
        terms = {
            "stages": plan.schedule.fill(times),
            "slowest stage, repeated": plan.schedule.steady(times),
        }
        return PlanCost(
            iteration_time=plan.schedule.iteration_time(times),
            stages=stages,
            terms=terms,
            passing=tuple(terms),
        )

    def shares(self, plan: OperatorPlan, cluster: ClusterSpec) -> dict[Provenance, Share]:
        """Return the shares of the iteration time of a profiled plan by where its figures come
        from. The slowest stage counts with every micro-batch and each other one once."""
        times, tally = [cost.time for cost in self.plan_cost(plan, cluster).stages], Tally()
        counts, around = plan.schedule.counts(times), _surroundings(plan, cluster)
        for stage, where, count in zip(plan.stages, around, counts, strict=True):
            for origin, seconds in self.time_origins(stage, where):
                tally.add(origin, count * seconds)
        return tally.shares()

    def stage_cost(self, stage: OperatorStage, around: Surroundings) -> StageCost:
        """Judge one stage operator by operator, in plain floating point."""
        names, options, known, last = self._rows(stage, around.micro_batch)
        rows = [row or self.missing for row in known]
        flags = [s.recompute for s in stage.strategies]
        work = sum(self.iteration_work(r, o) for r, o in zip(rows, options, strict=True))
        work += self.stage_work(stage.device_count)
        time = {
            "compute": sum(r.forward + r.backward for r in rows),
            "recompute": sum(r.forward for r, flag in zip(rows, flags, strict=True) if flag),
            "receive": self.transfer(rows[0].input, around.enters_node),
            "send": self.transfer(last.output, around.leaves_node),
            "reshard": sum(
                self._reshard(names[i - 1], options[i - 1], names[i], options[i], rows[i].input)
                for i in range(1, len(names))
            ),
            "per iteration / B": work / around.micro_batches,
        }
        moving = time["receive"] + time["send"] + time["reshard"]  # there and back
        kept = [self.activation(n, r) for n, r in zip(names, rows, strict=True)]
        saved, peak = self._recomputed(names, flags, kept)
        weights = sum(r.weights for r in rows)
        live = rows[0].input + sum(kept) - saved
        reserved = max((r.forward_reserved for r in rows[:-1]), default=0.0) + max(
            (r.backward_reserved for r in rows[:-1]), default=0.0
        )
        memory = {
            "states": self.state_factor * weights,
            "in flight": live * self.in_flight(around.behind, around.micro_batches),
            "recompute peak": peak,
            "reserved": max(reserved, weights) if self.weight_floor else reserved,
        }
        return StageCost(
            time=sum(time.values()),
            memory=(sum(memory.values()),),
            forward=sum(r.forward for r in rows) + moving / 2,
            time_terms=time,
            memory_terms=memory,
            unprofiled=self._unprofiled(
                stage, [i for i, row in enumerate(known) if row is None], around.micro_batch
            ),
        )

    def _unprofiled(
        self, stage: OperatorStage, missing: list[int], micro_batch: int
    ) -> tuple[str, ...]:
        """Return one text for all operators of a stage that have no row. missing: their places."""
        if not missing:
            return ()
        x = stage.strategies[missing[0]]
        return (
            f"operator {stage.start + missing[0]} with tp {x.tp}, {micro_batch // x.dp} samples "
            f"per replica, split {x.split} ({len(missing)} such operators)",
        )

    def _recomputed(
        self, names: tuple[str, ...], flags: list[bool], kept: list[float]
    ) -> tuple[float, float]:
        """Return bytes saved per micro-batch in flight, and the largest recompute run."""
        saved = peak = run = 0.0
        for i in range(len(names) - 1):
            if not (flags[i] and flags[i + 1]):
                peak, run = max(peak, run), 0.0
                continue
            shared = self.is_shared(names[i])
            closes = not shared and self.starts_checkpoint(names[i + 1])
            run += kept[i]
            if not closes:
                saved += kept[i]
            if closes or (not shared and i + 2 == len(names)):
                peak, run = max(peak, run), 0.0
        return saved, peak

    # ---- the tables -----------------------------------------------------------------------------

    @cached_property
    def _kinds(self) -> tuple[list[str], np.ndarray]:
        """Return distinct operators (by their rows) and the kind of each operator of the chain."""
        representative: dict[object, int] = {}
        by_name: dict[str, int] = {}
        names: list[str] = []
        for name in dict.fromkeys(self.chain):
            signature = (
                self.is_shared(name),
                self.starts_checkpoint(name),
                tuple(
                    (m, t, s, row, self.activation(name, row) if row else None)
                    for m in self.profile.micro_batch_sizes
                    for t in self.profile.tensor_degrees
                    for s in self.profile.splits
                    for row in [self.profile.row(name, m, t, s)]
                ),
                name if self.family != "resnet" else "",  # on which its layouts do not depend
            )
            by_name[name] = representative.setdefault(signature, len(names))
            if by_name[name] == len(names):
                names.append(name)
        return names, np.array([by_name[name] for name in self.chain], dtype=np.int64)

    def least_compute(self, micro_batch: int, devices: int, micro_batches: int) -> np.ndarray:
        """Return the seconds [n] that each operator takes at least on so many devices, without its
        messages; inf for one that is not profiled."""
        names, kind = self._kinds
        options = self.options(micro_batch, devices)
        least = np.full(len(names), np.inf)
        for number, name in enumerate(names):
            for option in options:
                row = self._row(name, option, micro_batch)
                if row is not None:
                    work = self.iteration_work(row, option) / micro_batches
                    least[number] = min(least[number], row.forward + row.backward + work)
        found: np.ndarray = least[kind]
        return found

    def tables(self, micro_batch: int, devices: int, micro_batches: int) -> StageTables | None:
        """Return the optimiser's tables, or None when no option is profiled."""
        options = self.options(micro_batch, devices)
        names, kind = self._kinds
        rows = [[self._row(name, option, micro_batch) for option in options] for name in names]
        used = [o for o in range(len(options)) if any(row[o] for row in rows)]
        options = tuple(options[o] for o in used)
        if not options:
            return None
        rows = [[row[o] for o in used] for row in rows]
        degrees = sorted({option.tp for option in options})
        shape = (len(names), len(options))
        allowed = np.array([[row is not None for row in line] for line in rows])

        def column(value: object) -> np.ndarray:
            table = np.zeros(shape)
            for u, line in enumerate(rows):
                for o, row in enumerate(line):
                    if row is not None:
                        table[u, o] = value(names[u], options[o], row)  # type: ignore[operator]
            return table

        once, transfer = self.stage_work(devices) / micro_batches, cache(self.transfer)
        enter = np.zeros((2, *shape))
        leave = np.zeros((2, *shape, len(degrees)))
        for cross in (0, 1):
            enter[cross] = column(lambda n, o, r, c=cross: transfer(r.input, bool(c)) + once)
            for t, tp in enumerate(degrees):
                for u, name in enumerate(names):
                    for o, option in enumerate(options):
                        row = self._row(name, option._replace(tp=tp), micro_batch)
                        size = (row or self.missing).output
                        leave[cross, u, o, t] = transfer(size, bool(cross))
        pairs: dict[tuple[int, int], int] = {}
        pair = np.zeros(kind.size, dtype=np.int64)
        for i, key in enumerate(zip(kind[:-1].tolist(), kind[1:].tolist(), strict=True), start=1):
            pair[i] = pairs.setdefault(key, len(pairs))
        reshard = np.zeros((max(1, len(pairs)), len(options), len(options)))
        for (a, b), p in pairs.items():
            for x, have in enumerate(options):
                for y, want in enumerate(options):
                    row = rows[b][y]
                    if row is not None:
                        reshard[p, x, y] = self._reshard(names[a], have, names[b], want, row.input)
        shared = np.array([self.is_shared(name) for name in names])[kind]
        starts = np.array([self.starts_checkpoint(name) for name in names])[kind]
        closes = np.zeros(kind.size, dtype=np.bool_)
        closes[:-1] = starts[1:] & ~shared[:-1]
        return StageTables(
            devices=devices,
            micro_batch=micro_batch,
            options=options,
            degree=np.array([degrees.index(o.tp) for o in options], dtype=np.int64),
            kind=kind,
            pair=pair,
            allowed=allowed,
            compute=column(
                lambda n, o, r: r.forward + r.backward + self.iteration_work(r, o) / micro_batches
            ),
            recompute=column(lambda n, o, r: r.forward),
            activations=column(lambda n, o, r: self.activation(n, r)),
            weights=column(lambda n, o, r: r.weights),
            input=column(lambda n, o, r: r.input),
            forward_reserved=column(lambda n, o, r: r.forward_reserved),
            backward_reserved=column(lambda n, o, r: r.backward_reserved),
            enter=enter,
            leave=leave,
            reshard=reshard,
            saves=~closes,
            closes=closes,
            shared=shared,
            state_factor=self.state_factor,
            weight_floor=self.weight_floor,
        )
