"""Instances that can be enumerated: synthetic profiles, every stage, every plan."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.models import COST_MODELS, costs_named
from ilp_planner.costs.operators import OperatorTables, StageTables
from ilp_planner.costs.profiles.table import MIB, OperatorRow, Profile, RowKey
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import OperatorStage, Plan, Strategy
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.operators.build import OperatorSpace, stage_devices
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.model import ModelSpec

GB = 1000 * MIB
# Chains in which every special case of the memory rules occurs, at every place of a stage.
CHAINS = {
    "gpt": (
        ("enc-1st-layernorm", "enc-attention-dropout", "enc-MLP-gelu"),
        ("enc-attention-softmax", "enc-attention-dropout", "enc-attention-context"),
        ("encoder-embedding", "enc-1st-layernorm", "enc-attention-qkv", "final-layernorm"),
        ("enc-MLP-GEMM-2", "enc-post-MLP-dropout", "enc-1st-layernorm", "enc-attention-qkv"),
        (
            "enc-attention-dropout",
            "enc-1st-layernorm",
            "enc-attention-softmax",
            "enc-1st-layernorm",
        ),
        (
            "enc-1st-layernorm",
            "enc-attention-softmax",
            "enc-attention-dropout",
            "enc-1st-layernorm",
            "enc-attention-softmax",
            "enc-attention-dropout",
        ),
        (
            "enc-1st-layernorm",
            "enc-MLP-GEMM-1",
            "enc-1st-layernorm",
            "enc-MLP-GEMM-1",
            "gpt-post-process",
        ),
        ("enc-MLP-gelu",) * 5,
        (
            "enc-attention-score",
            "enc-attention-softmax",
            "enc-attention-dropout",
            "enc-attention-context",
            "enc-attention-dense",
        ),
    ),
    "resnet": (
        ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3"),
        ("layer0-0-downsample", "layer0-1-conv1", "layer0-1-bn3", "layer0-1-conv1", "layer0-1-bn3"),
        ("layer1-0-bn3", "layer1-0-downsample", "layer1-1-conv1", "layer1-1-conv2"),
        ("layer0-0-conv1", "layer0-0-conv2", "layer0-0-conv3", "layer0-0-conv1", "layer0-0-conv2"),
        ("bn1", "relu", "layer0-0-conv1", "layer0-0-bn3", "layer0-0-relu3", "layer0-1-conv1"),
    ),
    "t5": (
        ("enc-embedding", "enc-1st-layernorm", "enc-attention-softmax", "dec-1st-layernorm"),
        ("enc-attention-dropout", "dec-attention-dropout", "dec-1st-layernorm", "dec-MLP-gelu"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class TinyArchitecture:
    """A chain of operators and nothing else."""

    operators: tuple[str, ...]
    family: str = "gpt"
    micro_batch_sizes: tuple[int, ...] = (1,)
    parameters: ClassVar[dict[str, object]] = {}
    flops: ClassVar[dict[str, int]] = {}
    tensor_parts: ClassVar[int] = 1


def make_model(operators: Sequence[str], family: str = "gpt") -> ModelSpec:
    """Return a model that is only a chain."""
    architecture = TinyArchitecture(operators=tuple(operators), family=family)
    return ModelSpec(name="tiny", precision="fp16", architecture=architecture)


def make_cluster(nodes: int = 1, devices: int = 2, memory: float = 2**30) -> ClusterSpec:
    """Return equal nodes."""
    device = Device(
        name="gpu", memory=int(memory), peak={"fp16": 1e14}, sustained=0.5, memory_bandwidth=9e11
    )
    return ClusterSpec(
        name="tiny",
        device_types={"gpu": device},
        nodes=(NodeGroup(device="gpu", devices=devices, count=nodes),),
        intra_node=Link(bandwidth=4e10, latency=1e-5),
        inter_node=Link(bandwidth=5e9, latency=1e-5),
    )


def make_row(
    forward: float = 1e-3,
    backward: float = 2e-3,
    *,
    message: float = 1.0,
    weights: float = 1.0,
    activations: float = 1.0,
    forward_reserved: float = 0.0,
    backward_reserved: float = 0.0,
) -> OperatorRow:
    """Return a row; seconds and MiB."""
    return OperatorRow(
        forward=forward,
        backward=backward,
        input=message * MIB,
        output=message * MIB,
        weights=weights * MIB,
        activations=activations * MIB,
        forward_reserved=forward_reserved * MIB,
        backward_reserved=backward_reserved * MIB,
    )


def make_profile(
    rows: dict[RowKey, OperatorRow],
    *,
    collectives: dict[tuple[str, int], dict[int, float]] | None = None,
    intra_node: tuple[float, ...] = (10.0 * GB,),
    inter_node: tuple[float, ...] = (2.0 * GB,),
) -> Profile:
    """Return a profile of these rows."""
    return Profile(
        source="tiny",
        micro_batch_sizes=tuple(sorted({key.micro_batch for key in rows})),
        tensor_degrees=tuple(sorted({key.tp for key in rows})),
        splits=tuple(sorted({key.split for key in rows})),
        rows=rows,
        collectives=collectives or {},
        intra_node=intra_node,
        inter_node=inter_node,
    )


def make_problem(
    operators: Sequence[str],
    family: str,
    profile: Profile,
    *,
    cost_model: str,
    limit: float,
    micro_batches: tuple[int, ...],
    global_batch: int,
    nodes: int = 1,
    devices: int = 2,
    max_stages: int | None = None,
    group_sizes: tuple[int, ...] | None = None,
) -> Problem:
    """Return a problem on equal nodes."""
    total, cluster = nodes * devices, make_cluster(nodes, devices)
    costs = costs_named(cost_model)(tuple(operators), family, profile, devices_per_node=devices)
    sizes = group_sizes or stage_devices(cluster, nodes if costs.spans_nodes else 1)
    return Problem(
        model=make_model(operators, family).name,
        cluster=cluster,
        space=OperatorSpace(group_sizes=sizes),
        costs=costs,
        global_batch=global_batch,
        micro_batches=tuple(sorted(global_batch // size for size in micro_batches)),
        memory_limits={cluster.type_names[0]: limit},
        max_stages=min(max_stages or total, total, len(operators)),
        max_tp=devices,
        profile_source=profile.source,
    )


def one_device(operators: Sequence[str], rows: dict[RowKey, OperatorRow]) -> OperatorTables:
    """Return the tables of a chain on one device with endless memory, of eight micro-batches."""
    problem = make_problem(
        operators,
        "resnet",
        make_profile(rows),
        cost_model="native",
        limit=math.inf,
        micro_batches=(1,),
        global_batch=8,
        devices=1,
    )
    tables: OperatorTables | None = problem.costs.tables(1, 1, 8)
    assert tables is not None
    return tables


def with_limit(problem: Problem, limit: float) -> Problem:
    """Return the problem with so many bytes on every device."""
    return replace(problem, memory_limits=dict.fromkeys(problem.memory_limits, limit))


# ---- every stage --------------------------------------------------------------------------------


def price_stages(
    tables: StageTables,
    start: int,
    stop: int,
    ways: NDArray[np.int64],
    flags: NDArray[np.bool_],
    *,
    in_flight: int,
    enters_node: bool,
    leaves_node: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return seconds and bytes of many ways to run operators [start, stop).

    The formulas are those at the head of costs/operators.py.

    ways, flags: [number, stop - start], an option and whether to recompute for each operator.
    """
    number, count = ways.shape
    kind = tables.kind[start:stop]
    first = ways[:, 0]

    def of(table: NDArray[np.float64], q: int) -> NDArray[np.float64]:
        return table[kind[q], ways[:, q]]

    time = of(tables.enter[int(enters_node)], 0).copy()
    time += tables.leave[int(leaves_node), kind[-1], ways[:, -1], tables.degree[first]]
    live = of(tables.input, 0).copy()
    weights, saved, run, peak = (np.zeros(number) for _ in range(4))
    forward, backward = np.zeros(number), np.zeros(number)
    for q in range(count):
        time += np.where(tables.allowed[kind[q], ways[:, q]], of(tables.compute, q), np.inf)
        time += np.where(flags[:, q], of(tables.recompute, q), 0.0)
        live += of(tables.activations, q)
        weights += of(tables.weights, q)
        if q > 0:
            time += tables.reshard[tables.pair[start + q], ways[:, q - 1], ways[:, q]]
        if q == count - 1:
            break
        forward = np.maximum(forward, of(tables.forward_reserved, q))
        backward = np.maximum(backward, of(tables.backward_reserved, q))
        paired = flags[:, q] & flags[:, q + 1]
        run = np.where(paired, run + of(tables.activations, q), run)
        if tables.saves[start + q]:
            saved += np.where(paired, of(tables.activations, q), 0.0)
        ends = not tables.shared[start + q] and q + 2 == count
        closed = np.full(number, bool(tables.closes[start + q]) or ends) | ~paired
        peak = np.where(closed, np.maximum(peak, run), peak)
        run = np.where(closed, 0.0, run)
    reserved = forward + backward
    if tables.weight_floor:
        reserved = np.maximum(reserved, weights)
    return time, tables.state_factor * weights + in_flight * (live - saved) + peak + reserved


def every_way(options: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return every choice of an option and of recomputation for so many operators."""
    labels = np.indices((2 * options,) * count).reshape(count, -1).T
    return labels // 2, labels % 2 == 1


def stands(begin: int, devices: int, per_node: int) -> bool:
    """Tell whether devices from one on are a part of one node, or whole nodes."""
    nodes = {device // per_node for device in range(begin, begin + devices)}
    return len(nodes) == 1 or (begin % per_node == 0 and devices % per_node == 0)


class StageCatalogue:
    """The best way to run every stage, found by enumeration."""

    def __init__(self, problem: Problem, micro_batch: int) -> None:
        self.problem = problem
        self.micro_batch = micro_batch
        self.tables = {
            g: tables
            for g in problem.space.stage_sizes(problem)
            if (tables := self.costs.tables(micro_batch, g, self.micro_batches)) is not None
        }
        self._ways: dict[tuple[int, int], tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}
        self._priced: dict[tuple[int, ...], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}

    @property
    def costs(self) -> OperatorTables:
        return self.problem.costs

    @property
    def micro_batches(self) -> int:
        return self.problem.global_batch // self.micro_batch

    def priced(
        self, g: int, start: int, stop: int, behind: int, enters: bool, leaves: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return seconds and bytes of every way to run a stage."""
        tables = self.tables[g]
        in_flight = self.costs.in_flight(behind, self.micro_batches)
        key = (g, start, stop, in_flight, enters, leaves)
        if key not in self._priced:
            self._priced[key] = price_stages(
                tables,
                start,
                stop,
                *self.ways(g, stop - start),
                in_flight=in_flight,
                enters_node=enters,
                leaves_node=leaves,
            )
        return self._priced[key]

    def ways(self, g: int, count: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return every way to run so many operators on g devices."""
        if (g, count) not in self._ways:
            self._ways[g, count] = every_way(len(self.tables[g].options), count)
        return self._ways[g, count]

    def pipelines(self) -> Iterator[list[tuple[int, int, int, int, bool, bool]]]:
        """List every pipeline as (devices, start, stop, behind, enters, leaves) per stage."""
        n = len(self.costs.chain)
        total, per_node = self.problem.cluster.device_count, self.problem.cluster.devices_per_node
        for count in range(1, self.problem.max_stages + 1):
            for groups in itertools.product(self.tables, repeat=count):
                ends = list(itertools.accumulate(groups))
                begins = [0, *ends[:-1]]
                if ends[-1] != total or not all(map(stands, begins, groups, repeat(per_node))):
                    continue
                for cuts in itertools.combinations(range(1, n), count - 1):
                    edges = [0, *cuts, n]
                    yield [
                        (
                            groups[s],
                            edges[s],
                            edges[s + 1],
                            count - 1 - s,
                            begins[s] > 0 and begins[s] % per_node == 0,
                            ends[s] % per_node == 0,
                        )
                        for s in range(count)
                    ]


def least_time(problem: Problem, limit: float | None = None) -> float:
    """Return the iteration time of the fastest plan, by enumeration; inf when there is none."""
    room = (problem.memory_limit if limit is None else limit) * (1 + ROUNDING)
    best = math.inf
    for micro_batch in problem.micro_batch_sizes:
        catalogue = StageCatalogue(problem, micro_batch)
        known: dict[tuple[object, ...], float] = {}
        for pipeline in catalogue.pipelines():
            times = []
            for stage in pipeline:
                if stage not in known:
                    time, memory = catalogue.priced(*stage)
                    known[stage] = float(time[memory <= room].min(initial=math.inf))
                times.append(known[stage])
            best = min(best, OneForwardOneBackward(catalogue.micro_batches).iteration_time(times))
    return best


def least_memory(problem: Problem) -> float:
    """Return the bytes per device below which no plan fits; inf when there is no plan at all."""
    best = math.inf
    for micro_batch in problem.micro_batch_sizes:
        catalogue = StageCatalogue(problem, micro_batch)
        for pipeline in catalogue.pipelines():
            need = 0.0
            for stage in pipeline:
                time, memory = catalogue.priced(*stage)
                need = max(need, float(memory[np.isfinite(time)].min(initial=math.inf)))
            best = min(best, need)
    return best


def fastest_memory(problem: Problem) -> float:
    """Return the bytes per device of the leanest of the fastest plans, were memory not limited."""
    best = (math.inf, math.inf)
    for micro_batch in problem.micro_batch_sizes:
        catalogue = StageCatalogue(problem, micro_batch)
        for pipeline in catalogue.pipelines():
            times, need = [], 0.0
            for stage in pipeline:
                time, memory = catalogue.priced(*stage)
                times.append(float(time.min()))
                need = max(need, float(memory[time == times[-1]].min()))
            best = min(
                best, (OneForwardOneBackward(catalogue.micro_batches).iteration_time(times), need)
            )
    return best[1]


def every_plan(problem: Problem) -> Iterator[Plan]:
    """List every plan that could be legal; evaluate() is the judge."""
    n = len(problem.costs.chain)
    for micro_batch in problem.micro_batch_sizes:
        labels = {
            g: [
                Strategy(tp=tp, dp=g // tp, split=split, recompute=flag)
                for tp in problem.costs.profile.tensor_degrees
                if g % tp == 0
                for split in problem.costs.profile.splits
                for flag in (False, True)
            ]
            for g in problem.space.stage_sizes(problem)
        }
        for count in range(1, problem.max_stages + 1):
            for groups in itertools.product(problem.space.stage_sizes(problem), repeat=count):
                if sum(groups) != problem.cluster.device_count:
                    continue
                for cuts in itertools.combinations(range(1, n), count - 1):
                    edges = [0, *cuts, n]
                    choices = [
                        itertools.product(labels[g], repeat=stop - start)
                        for g, start, stop in zip(groups, edges[:-1], edges[1:], strict=True)
                    ]
                    for strategies in itertools.product(*choices):
                        yield Plan(
                            model=problem.model,
                            global_batch=problem.global_batch,
                            micro_batches=problem.global_batch // micro_batch,
                            stages=tuple(
                                OperatorStage(
                                    start=edges[s],
                                    stop=edges[s + 1],
                                    first_device=sum(groups[:s]),
                                    device_count=groups[s],
                                    strategies=strategies[s],
                                )
                                for s in range(count)
                            ),
                        )


def judged_least_time(problem: Problem) -> float:
    """Return the least iteration time that evaluate() gives to a legal plan."""
    verdicts = (evaluate(problem, plan) for plan in every_plan(problem))
    return min((v.iteration_time for v in verdicts if v.legal), default=math.inf)


# ---- random instances ---------------------------------------------------------------------------


class Table(dict[object, object]):
    """A table that is printed in a line when a test fails."""

    def __repr__(self) -> str:
        return f"<{len(self)} entries>"


def random_profile(
    seed: int,
    operators: Sequence[str],
    *,
    micro_batches: tuple[int, ...],
    degrees: tuple[int, ...],
    splits: tuple[int, ...] = (0,),
    holes: float = 0.0,
    ties: float = 0.2,
) -> Profile:
    """Return a profile of random rows; the same seed and arguments give the same ones.

    holes: share of the rows that is missing. ties: share of the numbers that is one of very few.
    """

    rng = np.random.default_rng(seed)

    def seconds() -> float:
        return float(rng.choice([1e-3, 2e-3]) if rng.random() < ties else rng.uniform(1e-5, 1e-2))

    def size(unit: float) -> float:
        few = rng.random() < ties
        return float(rng.choice([0.0, 1.0, 8.0]) if few else 10 ** rng.uniform(-1, 2)) * unit

    rows = {
        RowKey(operator=name, micro_batch=m, tp=t, split=s): OperatorRow(
            forward=seconds(),
            backward=seconds(),
            input=size(MIB),
            output=size(MIB),
            weights=size(64 * MIB),
            activations=size(64 * MIB),
            forward_reserved=size(64 * MIB),
            backward_reserved=size(64 * MIB),
        )
        for name in dict.fromkeys(operators)
        for m, t, s in itertools.product(micro_batches, degrees, splits)
        if rng.random() >= holes
    }
    collectives = {
        (primitive, n): {x: seconds() for x in range(0, 100, 3)}
        for primitive in ("all_gather", "all_reduce", "reduce_scatter", "all_to_all")
        for n in (2, 4)
        if rng.random() < 0.7
    }
    return Profile(
        source=f"random, seed {seed}, holes {holes}, ties {ties}",
        micro_batch_sizes=micro_batches,
        tensor_degrees=degrees,
        splits=splits,
        rows=Table(rows),
        collectives=Table(collectives),
        intra_node=tuple((GB * rng.uniform(1.0, 50.0, rng.integers(1, 8))).tolist()),
        inter_node=tuple((GB * rng.uniform(0.1, 5.0, rng.integers(1, 8))).tolist()),
    )


@st.composite
def problems(draw: st.DrawFn, most_ways: int = 70_000, most_operators: int = 6) -> Problem:
    """Draw a problem in which no stage can be run in more than `most_ways` ways."""

    def pick(values: Sequence[Any]) -> Any:
        return draw(st.sampled_from(values))

    return drawn_problem(pick, most_ways, most_operators)


def drawn_problem(
    pick: Callable[[Sequence[Any]], Any], most_ways: int, most_operators: int = 6
) -> Problem:
    """Return such a problem, of values that `pick` chooses."""
    family = pick(sorted(CHAINS))
    operators = pick(CHAINS[family])[:most_operators]
    nodes, devices = pick([(1, 1), (1, 2), (2, 1), (2, 2), (1, 4)])
    some = [(1,), (1, 2), (1, 2, 4)] if devices == 1 else [(1, 2), (2,), (1, 2, 4)]
    degrees = pick(some)
    micro_batches = pick([(1,), (2,), (1, 2), (2, 4)])
    splits = pick([(0,), (0, 1)])
    cost_model = pick(sorted(COST_MODELS))
    costs = costs_named(cost_model)
    groups = stage_devices(make_cluster(nodes, devices), nodes if costs.spans_nodes else 1)
    options = max(sum(g % t == 0 for t in degrees) for g in groups) * len(splits)
    while (2 * options) ** len(operators) > most_ways:
        operators = operators[:-1]
    profile = random_profile(
        pick(range(2**32)),
        operators,
        micro_batches=micro_batches,
        degrees=degrees,
        splits=splits,
        holes=pick([0.0, 0.0, 0.1]),
        ties=pick([0.0, 0.2, 0.8]),
    )
    global_batch = micro_batches[-1] * pick(range(1, 6))
    known = costs(operators, family, profile).micro_batch_sizes(groups)
    every = tuple(size for size in known if global_batch % size == 0)
    problem = make_problem(
        operators,
        family,
        profile,
        cost_model=cost_model,
        limit=math.inf,
        micro_batches=pick([every, micro_batches, micro_batches[-1:]]),
        global_batch=global_batch,
        nodes=nodes,
        devices=devices,
        max_stages=pick([None, 1, nodes, nodes + 1]),
    )
    least = least_memory(problem)
    if not math.isfinite(least):
        return with_limit(problem, 2.0**30)
    most = max(least, fastest_memory(problem))
    share = pick([-0.05, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0])
    limit = least + share * (most - least) if share >= 0 else least * 0.95
    return with_limit(problem, limit)


# ---- two that are always the same ---------------------------------------------------------------


def fixed_problem(seed: int = 3, limit: float = 2.0**33) -> Problem:
    """Return a problem whose best plan has several stages."""
    operators = ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3", "layer0-1-conv1")
    profile = random_profile(seed, operators, micro_batches=(1,), degrees=(1,), ties=0.0)
    return make_problem(
        operators,
        "resnet",
        profile,
        cost_model="native",
        limit=limit,
        micro_batches=(1,),
        global_batch=16,
        devices=4,
        group_sizes=(1,),
    )


def tight_problem() -> Problem:
    """Return a problem whose memory lies between the leanest plan and the fastest one."""
    operators = ("conv1", "bn1", "layer0-0-conv1", "layer0-0-bn3", "layer0-1-conv1")
    profile = random_profile(0, operators, micro_batches=(1, 2), degrees=(1, 2), ties=0.0)
    problem = make_problem(
        operators,
        "resnet",
        profile,
        cost_model="native",
        limit=math.inf,
        micro_batches=(1, 2),
        global_batch=16,
    )
    least, most = least_memory(problem), fastest_memory(problem)
    return with_limit(problem, least + 0.3 * (most - least))
