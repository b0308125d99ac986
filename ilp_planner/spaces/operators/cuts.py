"""Cutting a chain of operators into stages of one configuration each, up to a slowest stage.

From the end of the pipeline, each stage takes as many operators as fit into the time and into
memory, beside the micro-batches in flight that the stages after it ask for. A stage keeps to one
option for all of its operators, and recomputes all of them or none. That leaves out most plans, and
gives one in microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import kernel
from ilp_planner.optimize.bounds.arrays import INFINITE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.sweep import Chain


class Manners(NamedTuple):
    """Configurations that run all operators of a stage alike: C of them, n operators.

    devices, option: int64 [C], of the stage, and the number of the option in its tables. again:
    bool [C], whether everything is recomputed. seconds, change: float64 [C, n], of the operator,
    and of a change of layout before it. activations, weights, inputs, forward, backward: float64
    [C, n], bytes. enter, leave: float64 [C, 2, n], seconds. saves, closes: bool [n], as in
    `StageTables`. factor: bytes of state per byte of weights. floor: at least as much as the
    weights is reserved.
    """

    devices: NDArray[np.int64]
    option: NDArray[np.int64]
    again: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    change: NDArray[np.float64]
    activations: NDArray[np.float64]
    weights: NDArray[np.float64]
    inputs: NDArray[np.float64]
    forward: NDArray[np.float64]
    backward: NDArray[np.float64]
    enter: NDArray[np.float64]
    leave: NDArray[np.float64]
    saves: NDArray[np.bool_]
    closes: NDArray[np.bool_]
    factor: float
    floor: bool


def manners(chains: Mapping[int, Chain]) -> Manners:
    """List every option of every group size, without and with recomputation."""
    rows: dict[str, list[object]] = {name: [] for name in Manners._fields}
    for devices, chain in chains.items():
        own = chain.operators
        for option in range(own.compute.shape[1]):
            for again in (False, True):
                seconds = own.compute[:, option] + again * own.recompute[:, option]
                found = {
                    "devices": devices,
                    "option": option,
                    "again": again,
                    "seconds": seconds,
                    "change": own.reshard[own.pair, option, option],
                    "activations": own.activations[:, option],
                    "weights": own.weights[:, option],
                    "inputs": chain.input[:, option],
                    "forward": own.forward[:, option],
                    "backward": own.backward[:, option],
                    "enter": chain.enter[:, :, option],
                    "leave": chain.leave[:, :, option, chain.tables.degree[option]],
                }
                for name, value in found.items():
                    rows[name].append(value)
    any_chain = next(iter(chains.values()))
    arrays = {name: np.array(column) for name, column in rows.items() if column}
    return Manners(
        **arrays,
        saves=any_chain.operators.saves,
        closes=any_chain.operators.closes,
        factor=float(any_chain.tables.state_factor),
        floor=any_chain.tables.weight_floor,
    )


class Seats(NamedTuple):
    """Places of the stages of a pipeline, the last one first; K of them.

    devices, in_flight: int64 [K]. enters, leaves: int64 [K], whether the ends of a stage cross
    nodes.
    """

    devices: NDArray[np.int64]
    in_flight: NDArray[np.int64]
    enters: NDArray[np.int64]
    leaves: NDArray[np.int64]


class Cut(NamedTuple):
    """A pipeline, its first stage first; K stages.

    sizes: devices of each stage. starts: int64 [K], first operators. manner: int64 [K], numbers in
    `Manners`. times: float64 [K], seconds of a micro-batch.
    """

    sizes: tuple[int, ...]
    starts: NDArray[np.int64]
    manner: NDArray[np.int64]
    times: NDArray[np.float64]


def seats(sizes: Sequence[int], per_node: int, in_flight: Sequence[int]) -> Seats:
    """Return the places of stages on so many devices, in a row on nodes of `per_node` devices.

    in_flight: micro-batches that a stage with 0, 1 ... downstream stages holds.
    """
    devices = np.array(sizes, np.int64)
    stop = np.cumsum(devices)
    start = stop - devices
    enters = (start > 0) & (start % per_node == 0)
    return Seats(
        devices=devices[::-1].copy(),
        in_flight=np.array(in_flight[: devices.size], np.int64),
        enters=enters[::-1].astype(np.int64),
        leaves=(stop % per_node == 0)[::-1].astype(np.int64),
    )


def fastest_cut(ways: Manners, at: Seats, limit: float, weight: float) -> tuple[Cut, float] | None:
    """Return the best cut on the way to the least slowest stage, and its seconds.

    limit: bytes per device. weight: how often the slowest stage counts beyond the first time.
    """
    stages = at.devices.size
    starts, manner = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    times = np.zeros(stages)
    value = _bisect(ways, at, limit, weight, starts, manner, times)
    if value >= INFINITE:
        return None
    sizes = tuple(at.devices[::-1].tolist())
    return Cut(sizes, starts[::-1].copy(), manner[::-1].copy(), times[::-1].copy()), float(value)


ROUNDS = 24  # of the bisection


@kernel
def _bisect(ways, at, limit, weight, starts, manner, times):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the best cut, the last stage first; return its seconds, INFINITE if none is met."""
    stages = at.devices.size
    from_, how, spent = np.zeros(stages, np.int64), np.zeros(stages, np.int64), np.zeros(stages)
    best = INFINITE
    low, high = 0.0, INFINITE
    for _ in range(ROUNDS):
        slowest = INFINITE if high >= INFINITE else 0.5 * (low + high)
        if _cut(ways, at, limit, slowest, from_, how, spent):
            top = total = 0.0
            for s in range(stages):
                top = max(top, spent[s])
                total += spent[s]
            high = min(top, slowest)
            if weight * top + total < best:
                best = weight * top + total
                for s in range(stages):
                    starts[s], manner[s], times[s] = from_[s], how[s], spent[s]
        elif high >= INFINITE:
            return best
        else:
            low = slowest
    return best


@kernel
def _cut(ways, at, limit, slowest, starts, manner, times):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Cut from the end, no stage slower than `slowest` seconds; tell whether all operators fit."""
    n, stages = ways.saves.size, at.devices.size
    stop = n
    for s in range(stages):
        least = stages - 1 - s  # an operator for every stage before
        first, chosen, fastest = stop, -1, INFINITE
        for c in range(ways.devices.size):
            if ways.devices[c] != at.devices[s]:
                continue
            send = ways.leave[c, at.leaves[s], stop - 1]
            base = weights = live = run = peak = forward = backward = 0.0
            for i in range(stop - 1, least - 1, -1):
                base += ways.seconds[c, i]
                weights += ways.weights[c, i]
                live += ways.activations[c, i]
                if i < stop - 1:
                    base += ways.change[c, i + 1]
                    forward = max(forward, ways.forward[c, i])
                    backward = max(backward, ways.backward[c, i])
                    if ways.again[c]:
                        if ways.saves[i]:
                            live -= ways.activations[c, i]
                        run = ways.activations[c, i] + (0.0 if ways.closes[i] else run)
                        peak = max(peak, run)
                reserved = forward + backward
                if ways.floor:
                    reserved = max(reserved, weights)
                used = ways.factor * weights + at.in_flight[s] * live + peak + reserved
                if base + send > slowest or base + send >= INFINITE or used > limit:
                    break
                if used + at.in_flight[s] * ways.inputs[c, i] > limit:
                    continue
                time = base + send + ways.enter[c, at.enters[s], i]
                if time > slowest:
                    continue
                if i < first or (i == first and time < fastest):
                    first, chosen, fastest = i, c, time
        if chosen < 0 or (s == stages - 1 and first > 0):
            return False
        starts[s], manner[s], times[s] = first, chosen, fastest
        stop = first
    return stop == 0
