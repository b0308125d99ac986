"""Chains of stages on groups at random, in whole seconds, and every way through them."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ilp_planner.optimize.bounds.group_chain import (
    Cards,
    ChainStages,
    GroupChain,
    Sending,
    first_stops,
)
from ilp_planner.optimize.bounds.group_states import Regions, regions, states


@dataclass(frozen=True)
class Way:
    """Stages from the first layer to the last one. times, totals: seconds of each, with sending."""

    arcs: tuple[int, ...]
    times: tuple[float, ...]
    totals: tuple[float, ...]


def random_chain(seed: int) -> GroupChain:
    """Return a chain of up to five layers on up to two types of nodes, in regions or not.

    Sending to a group that shares no node costs no less than to one as near as can be; the least
    that it costs is a part of the stages, or not.
    """
    random = np.random.default_rng(seed)
    layers, types = int(random.integers(1, 6)), int(random.integers(1, 3))
    size = random.integers(1, 4, types)
    classes = int(random.integers(1, 4))
    counted = random.integers(-1, types, classes)
    columns = classes + 1
    direct = np.arange(classes)
    parted = np.where(counted >= 0, classes, direct)
    # options: the class of their group, and devices of each type in one node where others may be
    options = int(random.integers(1, 4))
    group = random.integers(0, classes, options)
    seats = np.where(random.random((options, types)) < 0.7, random.integers(1, size + 1), 0)
    rows = options * (layers + 1)
    time, total = (random.integers(0, 5, (rows, columns)).astype(np.float64) for _ in range(2))
    for costs in (time, total):
        costs[:, classes] = costs.max(axis=1)
        costs -= costs.min(axis=1, keepdims=True) * (seed % 2)
    sending = Sending(time, total, np.argsort(time, axis=1, kind="stable"))
    told = states(time, total, counted, direct, parted, size)
    ranges = [
        (j, o, i)
        for i in range(layers)
        for j in range(i + 1, layers + 1)
        for o in range(options)
        for _ in range(int(random.integers(0, 3)))
    ] or [(layers, 0, 0)]
    stop, option, start = np.array(sorted(ranges)).T
    own, count = group[option], stop.size
    held = np.where(counted[own] >= 0, seats[option, counted[own]], 0)
    seconds = (random.integers(1, 5, count) * (stop - start)).astype(np.float64)
    capacity = random.integers(1, 7, types)
    use = np.minimum(random.integers(0, 3, (options, types)), capacity)[option]
    counted_in = random_regions(seed, classes, capacity)
    stages = ChainStages(
        first=first_stops(stop, layers),
        start=np.ascontiguousarray(start),
        time=seconds,
        total=seconds + random.integers(0, 5, count),
        peaks=random.integers(0, 6, (count, int(random.integers(0, 3)))).astype(np.float64),
        use=use,
        behind=random.integers(0, 4, count),
        row=option * (layers + 1) + stop,
        group=own,
        state=told.offset[own] + held,
        seats=np.ascontiguousarray(seats[option]),
        number=counted_in.numbers(use, own),
    )
    return GroupChain(
        layers=layers,
        weight=float(random.integers(0, 4)),
        types=types,
        capacity=tuple(capacity.tolist()),
        alike=np.zeros(types, np.int64) if seed % 3 == 0 else np.arange(types),
        cards=Cards(1.0, np.zeros((count, 0), np.int64)),
        choice=np.arange(count),
        stop=np.ascontiguousarray(stop),
        stages=stages,
        sending=sending,
        states=told,
        regions=counted_in,
    )


def random_regions(seed: int, classes: int, capacity: NDArray[np.int64]) -> Regions:
    """Return regions of some types or of none, with classes in them and not."""
    random, types = np.random.default_rng((seed, 1)), capacity.size
    together = [[], [[0]], [[x] for x in range(types)], [list(range(types))]][random.integers(4)]
    types_of = [np.flatnonzero(random.random(types) < 0.7).tolist() for _ in range(classes)]
    return regions(types_of, capacity.tolist(), together, random.integers(1, 3, types).tolist())


def before(
    chain: GroupChain, a: int, state: int | None, number: int = 0
) -> Iterator[tuple[int, int, float, float]]:
    """Yield how a stage may stand before a group in some state with a number of its region, or
    last: its own state and number then, and its seconds, of a micro-batch and of all, with
    sending."""
    s, told, counted = chain.stages, chain.states, chain.regions
    own, time, total = int(s.state[a]), float(s.time[a]), float(s.total[a])
    now = int(s.number[a])
    if state is None:
        yield own, now, time, total
        return
    region = int(counted.of[s.group[a]])
    if region >= 0 and region == counted.of[told.group[state]]:
        shape = [
            int(chain.capacity[x] // counted.unit[x]) + 1
            for x in np.flatnonzero(counted.home == region)
        ]
        both = [np.unravel_index(x, shape, order="F") for x in (now, number)]
        if (np.sum(both, axis=0) >= shape).any():
            return
        now += number
    group, taken = int(told.group[state]), int(told.taken[state])
    kind = int(told.counted[group])
    seats = int(s.seats[a, kind]) if kind >= 0 else 0
    beside = taken > 0 and seats > 0
    apart = int(told.parted[group] if beside else told.direct[group])
    ways = [(own, apart)]
    if beside and taken + seats <= told.size[kind]:
        joined = own
        if told.counted[s.group[a]] == kind:
            joined = int(told.offset[s.group[a]]) + taken + seats
        ways.append((joined, int(told.direct[group])))
    for then, column in ways:
        sent = chain.sending.time[s.row[a], column], chain.sending.total[s.row[a], column]
        yield then, now, time + float(sent[0]), total + float(sent[1])


def every_way(chain: GroupChain, slowest: float = np.inf, levels: int = 99) -> Iterator[Way]:
    """Yield all ways whose stages take at most `slowest` seconds; no more than `levels` - 1 stages
    after one are counted."""

    def grow(v: int, state: int | None, number: int, behind: Way) -> Iterator[Way]:
        if v == 0:
            yield behind
            return
        for a in np.flatnonzero(chain.stop == v).tolist():
            if chain.stages.behind[a] >= min(len(behind.arcs), levels - 1):
                for then, now, time, total in before(chain, a, state, number):
                    if time <= slowest:
                        way = Way((a, *behind.arcs), (time, *behind.times), (total, *behind.totals))
                        yield from grow(int(chain.stages.start[a]), then, now, way)

    yield from grow(chain.layers, None, 0, Way((), (), ()))
