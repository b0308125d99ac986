"""Every plan of the planner's space on tiny clusters, without a line of its search."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np

from ilp_planner.costs.groups import GroupOption, option_of
from ilp_planner.costs.layers import LayerCosts, layer_costs
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.recomputed import with_ends_of
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.problem import Problem
from ilp_planner.plan import GroupPlan, GroupStage, Plan, Replica
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link
from ilp_planner.specs.training import Recompute

Counts = tuple[tuple[int, ...], ...]
"""Of each device type and each of its nodes: replicas."""


# ---- the space ----------------------------------------------------------------------------------


def cheapest(problem: Problem) -> tuple[float, GroupPlan | None]:
    """Return the least seconds of a legal plan of the space, and the plan; inf and None without."""
    best, chosen = np.inf, None
    costs = judging_once(problem.costs, problem.cluster)
    for plan in every_plan(problem):
        seconds = costs.plan_cost(plan, problem.cluster).iteration_time
        if seconds < best and evaluate(problem, plan).legal:
            best, chosen = seconds, plan
    return best, chosen


def judging_once(costs: Any, cluster: ClusterSpec) -> Any:
    """Return costs that judge a plan as these do on one cluster, but each stage once, however many
    plans have it before the same one; other costs than those of layers as they are."""
    if not isinstance(costs, LayerCosts):
        return costs
    found = copy(costs)
    of_stage = cache(lambda stage, after, held: costs._stage(stage, after, held, cluster))
    found._stage = lambda stage, after, held, _: of_stage(stage, after[:1], held)  # type: ignore[method-assign]
    of_peak = cache(lambda stage: costs.peak_parts(stage, cluster))
    found.peak_parts = lambda stage, _: of_peak(stage)  # type: ignore[method-assign]
    return found


def every_plan(problem: Problem) -> Iterator[GroupPlan]:
    """Yield every plan with packed placements, and those that are spread evenly where the costs
    have these, whatever memory says."""
    layers = len(problem.costs.chain)
    for batches in problem.micro_batches:
        ways = group_ways(problem, batches)
        for stages in range(1, min(problem.max_stages, layers) + 1):
            rows = list(seatings(problem.cluster, ways, stages))
            for cuts in itertools.combinations(range(1, layers), stages - 1):
                ends = (0, *cuts, layers)
                again = [recomputations(problem, *pair) for pair in itertools.pairwise(ends)]
                for row, ways_again in itertools.product(rows, itertools.product(*again)):
                    yield Plan(
                        model=problem.model,
                        global_batch=problem.global_batch,
                        micro_batches=batches,
                        stages=tuple(
                            GroupStage(
                                start=ends[s],
                                stop=ends[s + 1],
                                replicas=replicas,
                                recompute=ways_again[s],
                            )
                            for s, replicas in enumerate(row)
                        ),
                    )


def recomputations(problem: Problem, start: int, stop: int) -> list[Recompute]:
    """Return what a stage of these layers may compute again; where it has embedding or output
    alone, only one of those that are the same."""
    count = min(stop, len(problem.costs.chain) - 1) - max(start, 1)
    every = [
        Recompute(),
        Recompute(granularity="selective"),
        Recompute(granularity="full", method="uniform", layers=1),
        *(
            Recompute(granularity="full", method="block", layers=n)
            for n in range(1, max(count, 1) + 1)
        ),
    ]
    known = [each for each in every if each.kind in problem.costs.recomputations]
    return known if count > 0 else known[:1]


def group_ways(
    problem: Problem, batches: int
) -> list[tuple[GroupOption, tuple[int, ...], list[Counts]]]:
    """Return every (option, samples of its replicas, counts on an empty cluster, packed or, where
    the costs have these, spread evenly)."""
    cluster, costs = problem.cluster, problem.costs
    samples = -(-problem.global_batch // batches)
    known = costs.degrees()
    found = []
    most = [range(count + 1) for count in cluster.type_counts]
    for replicas in itertools.product(*most):
        names = [n for n, r in zip(cluster.type_names, replicas, strict=True) if r]
        if not names:
            continue
        each = [
            [tp for tp in known.get(name, ()) if tp <= problem.max_tp] if r else [0]
            for name, r in zip(cluster.type_names, replicas, strict=True)
        ]
        for degrees in itertools.product(*each):
            if len({*degrees} - {0}) > 1 and not costs.mixed_tp:
                continue
            total = sum(replicas)
            option = option_of(degrees, replicas)
            if len(names) == 1:
                largest = -(-samples // total)
                if samples % total and not costs.uneven:
                    continue
                if total != -(-samples // largest):
                    continue  # fewer replicas would have no more samples each
                left = samples - (largest - 1) * total
                shares = (largest,) * left + (largest - 1,) * (total - left)
            else:
                table = costs.option_tables(option, batches, problem.global_batch, cluster)
                shares = table.samples if table is not None else ()
            if not shares or min(shares) < 1:
                continue
            counts = list(packed_counts(cluster, option))
            if costs.spread:
                counts += [row for row in spread_counts(cluster, option) if row not in counts]
            if counts:
                found.append((option, shares, counts))
    return found


def packed_counts(cluster: ClusterSpec, option: GroupOption) -> Iterator[Counts]:
    """Yield the ways to put replicas on nodes: at most one node of each type that is used has room
    for another one, by its size."""
    per_type = []
    for kind, (name, count) in enumerate(zip(cluster.type_names, option.replicas, strict=True)):
        sizes, tp = cluster.node_sizes(name), option.degree(kind)
        seats = [range(min(count, size // tp) + 1) for size in sizes]
        per_type.append(
            [
                row
                for row in itertools.product(*seats)
                if sum(row) == count
                and sum(n > 0 and (n + 1) * tp <= size for n, size in zip(row, sizes, strict=True))
                <= 1
            ]
        )
    yield from itertools.product(*per_type)


def spread_counts(cluster: ClusterSpec, option: GroupOption, over: int = 0) -> Iterator[Counts]:
    """Yield the ways to put replicas of one type on several nodes, equally many on each. over: on
    so many nodes; 0: any."""
    if sum(map(bool, option.replicas)) > 1:
        return
    rows = []
    for name, count in zip(cluster.type_names, option.replicas, strict=True):
        seats = [range(min(count, size // option.tp) + 1) for size in cluster.node_sizes(name)]
        found = [row for row in itertools.product(*seats) if sum(row) == count]
        alike = [r for r in found if len({*r} - {0}) == 1 and max(r) < count]
        some = [r for r in alike if over in (0, sum(map(bool, r)))]
        rows.append(some if count else found)
    yield from itertools.product(*rows)


def per_type(shares: Sequence[int], option: GroupOption) -> list[tuple[int, ...]]:
    """Return the shares of the replicas of each type."""
    rest = iter(shares)
    return [tuple(itertools.islice(rest, count)) for count in option.replicas]


@lru_cache(maxsize=4096)
def shared(
    shares: tuple[int, ...], counts: tuple[int, ...], node: int = 0
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return every way to give replicas on nodes their shares, as (node, share) each."""
    if not counts:
        return ((),)
    found = []
    for here in set(itertools.combinations(sorted(shares), counts[0])):
        rest = tuple(sorted((Counter(shares) - Counter(here)).elements()))
        found += [
            (*((node, share) for share in here), *others)
            for others in shared(rest, counts[1:], node + 1)
        ]
    return tuple(found)


def seatings(
    cluster: ClusterSpec,
    ways: Sequence[tuple[GroupOption, tuple[int, ...], list[Counts]]],
    stages: int,
) -> Iterator[tuple[tuple[Replica, ...], ...]]:
    """Yield the replicas of so many stages in a row, on devices that no other one uses."""
    nodes = [
        [v for v, kind in enumerate(cluster.node_types) if kind == name]
        for name in cluster.type_names
    ]
    devices: list[list[int]] = [[] for _ in cluster.node_types]
    for device, node in enumerate(cluster.node_of):
        devices[node].append(device)

    def grow(left: int, used: tuple[int, ...]) -> Iterator[tuple[tuple[Replica, ...], ...]]:
        if left == 0:
            yield ()
            return
        for option, shares, ways_to_sit in ways:
            for counts in ways_to_sit:
                for rows in itertools.product(
                    *(
                        shared(part, row)
                        for part, row in zip(per_type(shares, option), counts, strict=True)
                    )
                ):
                    taken, replicas = list(used), []
                    for kind, row in enumerate(rows):
                        tp = option.degree(kind)
                        for at, share in row:
                            node = nodes[kind][at]
                            own = devices[node][taken[node] : taken[node] + tp]
                            replicas.append((own, share))
                            taken[node] += tp
                    if all(n <= len(devices[v]) for v, n in enumerate(taken)):
                        stage = tuple(Replica(devices=tuple(d), samples=x) for d, x in replicas)
                        for rest in grow(left - 1, tuple(taken)):
                            yield (stage, *rest)

    yield from grow(stages, (0,) * len(devices))


# ---- instances ----------------------------------------------------------------------------------


def spread_problem(seed: int, *, devices: int = 9) -> Problem:
    """Draw a tiny problem of equal nodes of one type, at times with a node of another one, whose
    stages may be spread: where activations are large and gradients small, the best plan may be.

    Parameters
    ----------
    devices: at most that many.
    """
    random = np.random.default_rng((seed, 1))
    size = int(random.choice([2, 2, 3]))
    nodes = [("fast", size)] * min(int(random.integers(2, 4)), devices // size)
    if random.random() < 0.4 and len(nodes) * size < devices:
        nodes.append(("slow", int(random.integers(1, 3))))
    cluster = random_cluster(random, nodes, str(random.choice(["one", "pairs", "matrix"])))
    cluster = replace(cluster, intra_node=Link(bandwidth=2e11, latency=1e-6))
    layers, batch = int(random.integers(2, 4)), int(random.choice([2, 3, 4, 6]))
    profile = random_profile(random, cluster.type_names, layers, batch)
    profile = replace(
        profile,
        boundary=profile.boundary * float(random.choice([1, 10, 30])),
        gradients=profile.gradients * float(random.choice([1e-3, 1e-1, 1])),
    )
    problem = random_problem(0, spread=True)
    limits = {
        name: float(random.choice([0.5, 0.7, 1.0, 4.0]))
        * max(
            float((profile.state[pair] + profile.activation[pair]).sum())
            for pair in profile.state
            if pair[0] == name
        )
        for name in cluster.type_names
    }
    return replace(
        problem,
        cluster=cluster,
        costs=layer_costs(profile, cluster, limits, spread=True),
        global_batch=batch,
        micro_batches=tuple(b for b in range(1, batch + 1) if (b - 1) * -(-batch // b) < batch),
        memory_limits=limits,
        max_stages=3,
        max_tp=2,
    )


def random_problem(
    seed: int,
    *,
    links: str = "",
    sizes: Sequence[int] = (1, 2, 3, 4),
    devices: int = 5,
    recomputed: bool = False,
    asked: Sequence[str] = (),
    mixed_tp: bool = False,
    spread: bool = False,
) -> Problem:
    """Draw a tiny problem: unequal nodes, missing rows, tight memory.

    Parameters
    ----------
    links: `flat` (all alike, also inside nodes), `one`, `pairs` or `matrix`; any when empty.
    devices: at most that many. recomputed: layers may be computed again, and keep more.
    asked: kinds of recomputation that plans may have; all where none are named. mixed_tp: there are
        two device types or more, and each one of a stage may have a degree of its own. spread:
        stages may be spread evenly over nodes.
    """
    random = np.random.default_rng(seed)
    fewest = 2 if mixed_tp else 1  # types
    names = ("fast", "mid", "slow")[: random.integers(fewest, 4)]
    nodes = [(name, int(random.choice(sizes))) for name in names]
    nodes += [(str(random.choice(names)), int(random.choice(sizes))) for _ in range(3)]
    while sum(size for _, size in nodes) > devices and len(nodes) > fewest:
        at = int(random.integers(len(nodes)))
        if len({name for name, _ in [*nodes[:at], *nodes[at + 1 :]]}) >= fewest:
            nodes.pop(at)
    layers = int(random.integers(2, 5))
    global_batch = int(random.choice([2, 3, 4, 5, 6]))
    cluster = random_cluster(random, nodes, links or str(random.choice(KINDS)))
    profile = random_profile(random, cluster.type_names, layers, global_batch)
    whole = {
        name: max(
            float((profile.state[pair] + profile.activation[pair]).sum())
            for pair in profile.state
            if pair[0] == name
        )
        for name in cluster.type_names
    }
    limits = {name: whole[name] * float(random.choice([0.3, 0.5, 1.0, 4.0])) for name in whole}
    if recomputed:
        more = np.random.default_rng((seed, 1))
        profile = with_rows_again(more, profile)
        limits = {name: limit * more.uniform(1, 3) for name, limit in limits.items()}
    return Problem(
        model="tiny",
        cluster=cluster,
        space=GroupSpace(),
        costs=layer_costs(
            profile, cluster, limits, recomputations=asked, mixed_tp=mixed_tp, spread=spread
        ),
        global_batch=global_batch,
        micro_batches=tuple(
            b for b in range(1, global_batch + 1) if (b - 1) * -(-global_batch // b) < global_batch
        ),
        memory_limits=limits,
        max_stages=int(random.integers(2, 5)),
        max_tp=4,
    )


def with_rows_again(random: np.random.Generator, profile: LayerProfile) -> LayerProfile:
    """Draw what layers take and hold that are computed again, and more bytes for those that are
    not."""
    profile = replace(
        profile,
        activation={pair: row * random.uniform(1, 6) for pair, row in profile.activation.items()},
    )
    found = {}
    for way, least in (("selective", 0.4), ("full", 0.05)):
        kept = {
            pair: row * random.uniform(least, least + 0.3, row.size)
            for pair, row in profile.activation.items()
        }
        again = replace(
            profile,
            time={key: row * random.uniform(1, 1.4, row.size) for key, row in profile.time.items()},
            activation=kept,
            workspace={
                pair: row * random.uniform(1, 3, row.size)
                for pair, row in profile.workspace.items()
            },
            workspace_per_sample={
                pair: random.uniform(0, 1) * (row - kept[pair])
                for pair, row in profile.activation.items()
            },
        )
        found[way] = with_ends_of(profile, again)
    return replace(profile, recomputed=found)


KINDS = ("flat", "one", "pairs", "matrix")


def random_cluster(
    random: np.random.Generator, nodes: Sequence[tuple[str, int]], links: str
) -> ClusterSpec:
    """Draw the links between nodes (type, devices)."""
    names = sorted({name for name, _ in nodes})

    def link() -> Link:
        rate = float(random.choice([1e9, 3e9, 1e10, 5e10, 2e11]))
        return Link(bandwidth=rate, latency=float(random.choice([1e-6, 1e-4])))

    across = link()
    return ClusterSpec(
        name="tiny",
        device_types={
            name: Device(name=name, memory=2**34, memory_bandwidth=1e12) for name in names
        },
        nodes=tuple(NodeGroup(device=name, devices=size) for name, size in nodes),
        intra_node=across if links == "flat" else link(),
        inter_node=across,
        between={(a, b): link() for a, b in itertools.combinations_with_replacement(names, 2)}
        if links == "pairs"
        else {},
        matrix=tuple(tuple(link() for _ in nodes) for _ in nodes) if links == "matrix" else (),
    )


def random_profile(
    random: np.random.Generator, names: Sequence[str], layers: int, samples: int
) -> LayerProfile:
    """Draw rows for some tensor-parallel degrees and numbers of samples of every device type."""
    base = random.uniform(1e-3, 3e-3, layers)
    weights = random.uniform(1e8, 3e8, layers)
    time, pairs = {}, []
    for name in names:
        slow = random.uniform(1, 4)
        degrees = [tp for tp in (1, 2, 3, 4) if random.random() < (0.7, 0.6, 0.2, 0.4)[tp - 1]]
        for tp in degrees or [1]:
            pairs.append((name, tp))
            rows = [x for x in range(1, samples + 1) if random.random() < 0.5]
            for x in rows or [1]:
                noise = random.uniform(0.8, 1.2, layers)
                time[LayerKey(name, tp, x)] = slow * base * (0.3 + 0.7 * x / tp**0.8) * noise
    size = float(random.choice([1e5, 3e6, 1e7]))
    boundary = np.concatenate(([0.0], random.uniform(1, 4, layers - 1) * size, [0.0]))
    return LayerProfile(
        source="tiny",
        layers=tuple(f"layer{i}" for i in range(layers)),
        time=time,
        state={(name, tp): 8 * weights / tp for name, tp in pairs},
        activation={(name, tp): random.uniform(0.2, 4) * weights / tp for name, tp in pairs},
        workspace={(name, tp): weights / 8 / tp for name, tp in pairs},
        gradients=float(random.choice([1e-3, 2e-2, 1.0])) * weights,
        boundary=boundary,
        optimizer=dict.fromkeys(pairs, 1e-12 * weights),
        measured=frozenset(time),
    )
