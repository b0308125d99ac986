"""Small models and clusters for planning with Megatron, and every plan of theirs, one by one."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ilp_planner.costs.profiles.elements import Shard
from ilp_planner.costs.training.job import layout_of
from ilp_planner.costs.training.measured import MeasuredTimes
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.spaces.training.costs import Found
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.link import Link
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import ORDERS, Recompute, Settings
from tests.problems import build_megatron_problem
from tests.random_layouts import REMAINDERS, dealt

GIB = 2**30
SMALL = {"layers": 4, "hidden": 256, "heads": 4, "sequence": 512, "vocab": 2000, "ffn": 768}
MIXTURE = Experts(count=4, top_k=2, ffn=256, shared_ffn=128, dense_first=1)


def small_model(**changes: Any) -> ModelSpec:
    """Return a decoder of 4 layers."""
    return ModelSpec(name="small", precision="bf16", architecture=Decoder(**{**SMALL, **changes}))


def device(name: str = "a100", *, peak: float = 300e12, memory: float = 80 * GIB) -> Device:
    """Return a device type."""
    return Device(
        name=name,
        memory=int(memory),
        peak={"bf16": peak, "fp16": peak},
        sustained=0.6,
        memory_bandwidth=2e12,
        launch=2e-6,
    )


def small_cluster(
    nodes: int = 2, devices: int = 2, *, between: float = 20e9, slow: int = 0
) -> ClusterSpec:
    """Return equal nodes, and `slow` more of a slower type."""
    groups = [NodeGroup(device="a100", devices=devices, count=nodes)]
    types = {"a100": device()}
    if slow:
        groups.append(NodeGroup(device="l4", devices=devices, count=slow))
        types["l4"] = device("l4", peak=100e12)
    return ClusterSpec(
        name="small",
        device_types=types,
        nodes=tuple(groups),
        intra_node=Link(bandwidth=200e9, latency=5e-6),
        inter_node=Link(bandwidth=between, latency=15e-6),
    )


# What keeps the number of plans small that tests try one by one.
FEW = {"recompute": "none,core_attn,full,block", "sharding": "optimizer", "cp_comm": "p2p"}


def small_problem(cluster: ClusterSpec | None = None, *, batch: int = 8, **options: Any) -> Problem:
    """Return a problem; options of the model beside those of the problem. Where no constraints are
    given, those of `FEW`."""
    options.setdefault("constraints", constraints_of(FEW))
    names = {"memory_limit", "max_tp", "max_cp", "max_stages", "micro_batch_sizes", "constraints"}
    own = {name: options.pop(name) for name in list(options) if name in names}
    return build_megatron_problem(
        cluster or small_cluster(), small_model(**options), global_batch=batch, **own
    )


def alone(problem: Problem) -> Problem:
    """Return the problem with costs that know of no plan."""
    return replace(problem, costs=replace(problem.costs, found=Found()))  # type: ignore[call-arg]


def every_plan(
    problem: Problem, layouts: Callable[..., Iterable[tuple[int, ...]]] | None = None
) -> Iterator[GroupPlan]:
    """Yield all plans that could be of the problem's space, legal or not; with the layouts that a
    function of model, pp and virtual stages has, where there is one."""
    cluster, costs = problem.cluster, problem.costs
    model, count = costs.model, cluster.device_count  # type: ignore[attr-defined]
    same = len(set(model.layer_kinds)) == 1
    each = cluster.nodes[0].devices
    orders = {
        tuple(n for t in types for n, kind in enumerate(cluster.node_types) if kind == t)
        for types in itertools.permutations(cluster.type_names)
    }
    experts = model.experts
    whole = costs.runtime.recomputations(  # type: ignore[attr-defined]
        model,
        costs.settings.kernels,  # type: ignore[attr-defined]
        problem.constraints,
    )
    for tp, cp, pp in itertools.product(divisors(count), repeat=3):
        if count % (tp * cp * pp):
            continue
        dp = count // (tp * cp * pp)
        if problem.global_batch % dp:
            continue
        expert_choices = [(1, 0)]
        if experts is not None:
            expert_choices = [
                (ep, etp) for ep in divisors(experts.count) for etp in sorted({1, tp})
            ]
        for choice, size, (ep, etp), order, nodes, virtual in itertools.product(
            costs.choices,  # type: ignore[attr-defined]
            divisors(problem.global_batch // dp), expert_choices, ORDERS, sorted(orders),
            range(1, model.layers + 1),
        ):  # fmt: skip
            ranks = [node * each + i for node in nodes for i in range(each)]
            settings = replace(
                choice, cp_comm=choice.cp_comm if cp > 1 else "p2p",
                cp_inner=choice.cp_inner if cp > 1 else 0,
                cp=cp, ep=ep, etp=etp, sequence_parallel=tp > 1, order=order,
                overlap_tensor=choice.overlap_tensor and tp > 1,
                overlap_experts=choice.overlap_experts and ep > 1,
                kernels=replace(
                    choice.kernels,
                    dispatcher=choice.kernels.dispatcher if ep * etp > 1 or not experts
                    else "alltoall",
                ),
            )  # fmt: skip
            groups = rank_groups(ranks, tp * cp, dp, pp, size, order)
            degrees = (tp, size, cp, ep, etp) if experts else (tp, size, cp, 0, 0)
            alike = same and not differ(costs.profile, degrees, model.layers)  # type: ignore[attr-defined]
            own = every_layout(model, pp, virtual, alike=alike)
            batches = problem.global_batch // (size * dp)
            every_turn = turns(problem, pp, batches) if virtual > 1 else [0]
            made: dict[tuple[Recompute, int], Settings] = {}  # of all layouts
            for stops in own if layouts is None else layouts(model, pp, virtual):
                longest = max(stage.layers for stage in layout_of(stops, model).stages)
                stages = tuple(
                    GroupStage(start=a, stop=b, replicas=groups[k % pp])
                    for k, (a, b) in enumerate(itertools.pairwise(stops))
                )
                for again, turn in itertools.product((*whole, *blocks(longest)), every_turn):
                    if (again, turn) not in made:
                        made[again, turn] = replace(settings, recompute=again, turn=turn)
                    yield Plan(
                        model=problem.model,
                        global_batch=problem.global_batch,
                        micro_batches=batches,
                        stages=stages,
                        settings=made[again, turn],
                        virtual=virtual,
                    )


def differ(times: MeasuredTimes | None, degrees: tuple[int, ...], layers: int) -> bool:
    """Tell whether some layers have another row than others under these degrees (tp, samples, cp,
    ep, etp), or other rows to draw lines through, or another step of the optimiser."""
    if times is None:
        return False
    rows = times.profile.rows
    names = {shard.device for shard, _ in rows}

    def known(shard: Shard, layer: int) -> object:
        own = rows.get((shard, layer))
        if own is not None:
            return own
        sizes = sorted({other.samples for other, _ in rows})
        every = [rows.get((shard._replace(samples=size), layer)) for size in sizes]
        return tuple(every) if sum(row is not None for row in every) > 1 else None

    found = [{known(Shard(name, *degrees), i) for i in range(1, layers + 1)} for name in names]
    steps = [set(times.profile.optimizer.get((n, degrees[0]), [0] * 3)[1:-1]) for n in names]
    return any(len(each) > 1 for each in (*found, *steps))


def every_layout(
    model: Decoder, pp: int, virtual: int, *, alike: bool
) -> Iterator[tuple[int, ...]]:
    """Yield where virtual stages end, in all layouts of the space."""
    length = model.layers + 2
    if virtual > 1 and not alike:
        for ends in every_cut(length, pp * virtual):
            sizes = [stop - start for start, stop in itertools.pairwise(ends)]
            if len(set(sizes[1:-1])) == 1:
                yield ends
        return
    found = {}
    for ends in every_cut(length, pp):
        sizes = [stop - start for start, stop in itertools.pairwise(ends)]
        sizes[0] -= 1
        sizes[-1] -= 1
        for remainder in REMAINDERS if pp > 1 < virtual else REMAINDERS[:1]:
            stages = dealt(sizes, virtual, remainder)
            if min(stages) >= 1:
                found[0, *itertools.accumulate(stages)] = True
    yield from found


def turns(problem: Problem, pp: int, batches: int) -> list[int]:
    """Return the turns of micro-batches that are asked for, in words of a job; the usual ones where
    none are."""
    asked = problem.constraints.micro_batch_group_size
    every = [pp] if asked is None else [n for n in range(1, batches + 1) if n in asked]
    return [n if n != pp else 0 for n in every]


def blocks(longest: int) -> Iterator[Recompute]:
    """Yield the recomputations of the first layers of virtual stages of so many layers."""
    for count in range(1, longest + 1):
        yield Recompute(granularity="full", method="block", layers=count)


def every_cut(length: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to cut a chain into so many ranges that are not empty."""
    for inner in itertools.combinations(range(1, length), parts - 1):
        yield (0, *inner, length)


def rank_groups(
    ranks: list[int], width: int, dp: int, pp: int, size: int, order: str
) -> list[tuple[Replica, ...]]:
    """Return the replicas of every pipeline rank."""
    found = []
    for stage in range(pp):
        replicas = []
        for replica in range(dp):
            place = stage * dp + replica if order == ORDERS[0] else replica * pp + stage
            seats = ranks[place * width : (place + 1) * width]
            replicas.append(Replica(devices=tuple(seats), samples=size))
        found.append(tuple(replicas))
    return found
