"""The cost of a random path through a stage graph, and its gradient.

Every node chooses among the arcs that leave it with probabilities softmax(logits); the flow x of an
arc is the probability that a path uses it. In place of what one path costs stands

    sum(x * cost) + sum over maxima k of weight_k * M_k + sum over devices d of price_d * (u_d - 1)
    N_ko = (sum over the arcs that cover segment o of x * value_k ** q) ** (1 / q)
    M_k = (mean over segments o of N_ko ** p) ** (1 / p)        u_d = sum(x * use_d) / capacity_d.

Exactly one arc of a path covers a segment, so for flows of 0 and 1 N_ko is the value of that arc
for any q, and M_k tends to the maximum as p grows. With q = 1 all this is convex in the flow, and
its gradient shows the places along the chain where time has to go; but the best flow then mixes
long stages with short ones. The larger q, the more N_ko is the worst of what may come, and the less
a mixture pays. So q and p grow as the search goes on, while the choices harden.

(Taking the p-norm over all arcs at once instead is concave in the flow; its gradient understates
the gain of a smaller maximum by a factor p, and descent stays at a poor path.)

One sweep along the nodes gives the flow, one back (the adjoint) the gradient: with the marginal
cost m_a of an arc's flow, the cost to go is Q_a = m_a + V_head and V_node = sum(probability * Q),
and the derivative by a logit is x_a * (Q_a - V_tail).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.optimize.solvers.soft_graph import SoftGraph

FARTHEST = 60.0
"""Logits stay within this of the node's best: exp(-60) is never chosen, but can come back."""
NO_LIMIT = 1e300
FLOOR = 1e-12
"""Share of the largest sum below which the sum over a segment counts as that: it has a root."""


@kernel
def sweep_forward(soft, logits, q, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the expected cost; fill in flows (nodes), probabilities, value ** q, sums over
    segments and the use of devices."""
    first, head, low, high = soft.first, soft.head, soft.low, soft.high
    cost, logs, use, share = soft.cost, soft.logs, soft.use, soft.share
    flow, chance, raised, cover, used = room.flow, room.chance, room.raised, room.cover, room.used
    nodes, maxima, kinds = first.size - 1, logs.shape[0], use.shape[1]
    flow[:] = 0.0
    flow[0] = 1.0
    used[:] = 0.0
    cover[:] = 0.0
    expected = 0.0
    for v in range(nodes):
        begin, end = first[v], first[v + 1]
        if begin == end:
            continue
        most = logits[begin]
        for a in range(begin + 1, end):
            most = max(most, logits[a])
        total = 0.0
        for a in range(begin, end):
            chance[a] = np.exp(logits[a] - most)
            total += chance[a]
        for a in range(begin, end):
            chance[a] /= total
            x = flow[v] * chance[a]
            flow[head[a]] += x
            expected += x * cost[a]
            for k in range(maxima):
                raised[k, a] = np.exp(q * logs[k, a])
                cover[k, low[a]] += x * raised[k, a]
                cover[k, high[a]] -= x * raised[k, a]
            for d in range(kinds):
                used[d] += x * use[a, d] * share[d]
    for k in range(maxima):
        for o in range(1, cover.shape[1]):
            cover[k, o] += cover[k, o - 1]
    return expected


@kernel
def soften(cover, weights, q, p):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return sum(weight * M); replace the sums over segments by the slopes before each segment.

    The derivative of weight * M by an arc's flow is value ** q * (cover[high] - cover[low]).
    """
    total = 0.0
    segments = cover.shape[1] - 1
    for k in range(cover.shape[0]):
        least = 1e-200
        for o in range(segments):
            least = max(least, cover[k, o])
        least *= FLOOR
        largest = -np.inf
        for o in range(segments):
            cover[k, o] = np.log(max(cover[k, o], least)) / q
            largest = max(largest, cover[k, o])
        mean = 0.0
        for o in range(segments):
            mean += np.exp(p * (cover[k, o] - largest)) / segments
        level = largest + np.log(mean) / p
        total += weights[k] * np.exp(level)
        slope = 0.0
        for o in range(segments):
            here = np.exp((p - 1.0) * (cover[k, o] - level) + (1.0 - q) * cover[k, o])
            cover[k, o] = slope
            slope += weights[k] * here / (segments * q)
        cover[k, segments] = slope
    return total


@kernel
def sweep_back(soft, steepest, prices, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Fill in the cost to go of each arc (`togo`) and node (`ahead`), from the slopes of `soften`.

    steepest: where a maximum's marginal cost exceeds so many times what the arc's own value would
    cost as that maximum, it is cut to that: the root makes it infinite if nothing is used yet.
    """
    first, head, low, high, cost = soft.first, soft.head, soft.low, soft.high, soft.cost
    values, weights, use, share = soft.values, soft.weights, soft.use, soft.share
    _, ahead, chance, togo, raised, cover, _ = room
    maxima, kinds = raised.shape[0], use.shape[1]
    for v in range(first.size - 2, -1, -1):
        mean = 0.0
        for a in range(first[v], first[v + 1]):
            value = cost[a] + ahead[head[a]]
            for k in range(maxima):
                slope = raised[k, a] * (cover[k, high[a]] - cover[k, low[a]])
                value += min(slope, steepest * weights[k] * values[k, a])
            for d in range(kinds):
                value += prices[d] * share[d] * use[a, d]
            togo[a] = value
            mean += chance[a] * value
        ahead[v] = mean


def relaxed(
    soft: SoftGraph, logits: NDArray[np.float64], *, q: float, p: float, prices: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the relaxed objective, in units of the scale, and its derivative by each logit.

    The multipliers themselves are dual variables; their derivative is the excess use.
    """
    room = scratch(soft)
    value = sweep_forward(soft, logits, q, room)
    value += soften(room.cover, soft.weights, q, p) + float(prices @ (room.used - 1.0))
    sweep_back(soft, NO_LIMIT, prices, room)
    tail = np.repeat(np.arange(soft.nodes), np.diff(soft.first))
    return float(value), room.flow[tail] * room.chance * (room.togo - room.ahead[tail])


class Scratch(NamedTuple):
    """Work arrays of one thread.

    flow, ahead: float64 [n], of nodes; chance, togo: float64 [m], of arcs; raised: float64 [K, m];
    cover: float64 [K, segments + 1]; used: float64 [D].
    """

    flow: NDArray[np.float64]
    ahead: NDArray[np.float64]
    chance: NDArray[np.float64]
    togo: NDArray[np.float64]
    raised: NDArray[np.float64]
    cover: NDArray[np.float64]
    used: NDArray[np.float64]


def scratch(soft: SoftGraph) -> Scratch:
    """Return arrays to sweep along a graph with."""
    maxima, nodes, arcs = len(soft.weights), soft.nodes, soft.size
    shapes = (nodes, nodes, arcs, arcs, (maxima, arcs), (maxima, soft.segments + 1))
    return Scratch(*(np.zeros(shape) for shape in (*shapes, soft.share.size)))


class Steps(NamedTuple):
    """How descent steps.

    rows: float64 [steps, 3], q, p and heat of each. rate: how far logits move. price_rates: of the
    multiplier of a device and of its slope, per heat, so that a change of it moves the choices
    alike for any heat. steepest: as in `sweep_back`.
    """

    rows: NDArray[np.float64]
    rate: float
    price_rates: tuple[float, float]
    steepest: float


@kernel
def descend(soft, logits, prices, steps, visits, room):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Take one step for each row (q, p, heat): logits move towards -(cost to go) / heat.

    That is mirror descent on the probabilities with their entropy, times the heat, as regulariser.
    It leaves the factor x_a of the gradient out (a natural gradient), which would starve nodes that
    are rarely reached. visits: float32 [m] to add the flows to, or empty.

    Device limits are relaxed by an augmented Lagrangian: multiplier + slope * (share used - 1); the
    multiplier itself follows the excess use. The slope keeps all choices from flipping from one
    type of device to another at once.
    """
    rows, rate, price_rates, steepest = steps
    first = soft.first
    flow, ahead, chance, togo, _, _, used = room
    charged = np.empty(prices.size)
    for step in range(rows.shape[0]):
        q, p, heat = rows[step, 0], rows[step, 1], rows[step, 2]
        sweep_forward(soft, logits, q, room)
        soften(room.cover, soft.weights, q, p)
        for d in range(prices.size):
            over = max(used[d] - 1.0, -1.0)
            charged[d] = max(0.0, prices[d] + price_rates[1] * heat * over)
            prices[d] = max(0.0, prices[d] + price_rates[0] * heat * over)
        sweep_back(soft, steepest, charged, room)
        for v in range(first.size - 1):
            begin, end = first[v], first[v + 1]
            if visits.size:
                for a in range(begin, end):
                    visits[a] += flow[v] * chance[a]
            most = -np.inf
            for a in range(begin, end):
                togo[a] = (1.0 - rate) * logits[a] - rate * (togo[a] - ahead[v]) / heat
                most = max(most, togo[a])
            for a in range(begin, end):
                logits[a] = max(togo[a] - most, -FARTHEST)


@inner
def _uniform(seed, number):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return a number above 0 and below 1 (the mixing steps of SplitMix64, Steele et al. 2014)."""
    z = np.uint64(seed) + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (float(z >> np.uint64(11)) + 0.5) * 2.0**-53


@kernel
def decode(soft, logits, noise, seed):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the path of the likeliest choices (arc numbers), empty if it ran out of devices.

    A choice is ruled out when its remaining devices are fewer than any path to the sink needs.
    noise: 0 takes the likeliest, 1 samples by the probabilities (Gumbel), anything between leans to
    the likeliest. seed: of the samples, int64.
    """
    first, head, use, spare, sink = soft.first, soft.head, soft.use, soft.spare, soft.sink
    kinds = use.shape[1]
    path = np.empty(spare.shape[0], np.int64)
    taken = np.zeros(kinds, np.int64)
    length, v = 0, 0
    while v != sink:
        chosen, most = -1, -np.inf
        for a in range(first[v], first[v + 1]):
            fits = True
            for d in range(kinds):
                if taken[d] + use[a, d] > spare[head[a], d]:
                    fits = False
            if not fits:
                continue
            score = float(logits[a])
            if noise > 0.0:
                score -= noise * np.log(-np.log(_uniform(seed, a)))
            if score > most:
                chosen, most = a, score
        if chosen < 0:
            return path[:0]
        for d in range(kinds):
            taken[d] += use[chosen, d]
        path[length] = chosen
        length += 1
        v = head[chosen]
    return path[:length]


@kernel
def path_cost(soft, path):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the cost of a path, in units of the scale."""
    cost, values, weights = soft.cost, soft.values, soft.weights
    total = 0.0
    for a in path:
        total += cost[a]
    for k in range(weights.size):
        most = 0.0
        for a in path:
            most = max(most, values[k, a])
        total += weights[k] * most
    return total
