"""The least time of a slowest stage, by which layers groups of devices reach from the end.

For stages that take at most so many seconds, the first layer that n devices of each type reach:

    F(n + use, class of the group) = min over groups and classes behind of
                                     the first layer of its longest stage that ends at F(n, class)

where sending costs what the class behind says at best. A stage may end later than it has to, so
that two may share layers; how much memory the stages behind leave is left aside. Both only let in
more: where no devices reach the first layer, no way has all stages as fast. What a number of
devices reaches is not followed where fewer reach as far.

Prices on devices (`resource_prices`) count devices on average over ways. Where zones are alike,
ways that stay in one zone each take the devices of all on average, and cross no border; a way that
has to cross one costs more. Here devices are counted one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.kernels import kernel
from ilp_planner.numerics import ROUNDING

if TYPE_CHECKING:
    from ilp_planner.bounds.group_chain import GroupChain

CLOSE = 2e-3  # relative: how near to the least time is near enough
MOST_ENTRIES = 20_000_000  # numbers of devices times classes: beyond, nothing is said
MOST_STEPS = 300_000_000  # groups before a number of devices, half a second: likewise
MOST_LAYERS = 254


class Reach:
    """How far the devices of a chain reach with stages that are fast enough.

    use: int64 [groups, types], devices of each group of the candidates; column: int64 [groups], of
    what sending to it costs; of: int64 [arcs], the group of each candidate. send: float64 [rows,
    columns], seconds at best.
    """

    def __init__(self, chain: GroupChain) -> None:
        self.chain = chain
        stages, states = chain.stages, chain.states
        types = chain.types
        self.counts = np.array(chain.capacity[:types], np.int64)
        self.send = chain.sending.time.copy()
        for near, apart in zip(states.direct.tolist(), states.parted.tolist(), strict=True):
            self.send[:, near] = np.minimum(self.send[:, near], chain.sending.time[:, apart])
        groups = np.column_stack((stages.use[:, :types], states.direct[stages.group]))
        rows, of = np.unique(groups, axis=0, return_inverse=True)
        self.use = np.ascontiguousarray(rows[:, :types])
        self.column = np.ascontiguousarray(rows[:, types])
        self.of = np.asarray(of).reshape(-1)
        entries = float(np.prod(self.counts + 1.0)) * self.send.shape[1]
        self.countable = chain.layers <= MOST_LAYERS and entries <= MOST_ENTRIES

    @property
    def turns(self) -> float:
        """How often the slowest stage counts at least in the seconds of a way: once more than its
        weight where no stage adds less than its time."""
        stages, sending = self.chain.stages, self.chain.sending
        whole = (stages.total >= stages.time).all() and (sending.total >= sending.time).all()
        return self.chain.weight + float(whole)

    def may_take(self, seconds: float) -> bool:
        """Tell whether there may be a way that takes at most so many seconds."""
        return self.reaches(seconds / max(self.turns, ROUNDING) * (1 + ROUNDING))

    def least(self, seconds: float) -> float:
        """Return the seconds that the slowest stage takes at least of every way that takes at most
        `seconds`; inf where there is none, 0 where nothing can be said."""
        if not self.countable:
            return 0.0
        stages = self.chain.stages
        slowest = (stages.time + self.send.max(axis=1, initial=0.0)[stages.row]).max(initial=0.0)
        high = min(seconds / max(self.turns, ROUNDING) * (1 + ROUNDING), float(slowest))
        if not self.reaches(high):
            return np.inf
        low = 0.0
        while high - low > CLOSE * high:
            middle = (low + high) / 2
            if self.reaches(middle):
                high = middle
            else:
                low = middle
        return low

    def reaches(self, slowest: float) -> bool:
        """Tell whether there may be a way whose stages take at most so many seconds each."""
        if not self.countable:
            return True
        chain, stages, layers = self.chain, self.chain.stages, self.chain.layers
        first = np.full((self.column.size, layers, self.send.shape[1]), layers, np.uint8)
        last = np.full(self.column.size, layers, np.uint8)
        start = stages.start.astype(np.uint8)
        ends = (chain.stop == layers) & (stages.time <= slowest)
        np.minimum.at(last, self.of[ends], start[ends])
        inner = np.flatnonzero((chain.stop < layers) & (stages.behind > 0))
        for column in np.unique(self.column).tolist():
            fast = stages.time[inner] + self.send[stages.row[inner], column] <= slowest
            own = inner[fast]
            np.minimum.at(first[:, :, column], (self.of[own], chain.stop[own]), start[own])
        # where it ends later than it has to, a stage may begin as early
        first = np.ascontiguousarray(np.minimum.accumulate(first[:, ::-1], axis=1)[:, ::-1])
        groups = (self.counts, self.use, self.column)
        return bool(_reach(layers, *groups, first, last, MOST_STEPS))


@kernel
def _reach(layers, counts, use, column, first, last, most):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Tell whether devices reach the first layer, or whether it takes too many steps to tell.

    counts: int64 [types], of all devices. use, column: of groups. first: uint8 [groups, layers,
    columns], the first layer of a stage that ends at a layer or later, before a group of a column;
    last: uint8 [groups], of a stage that ends at the last layer.
    """
    types, columns, groups = counts.size, first.shape[2], column.size
    stride = np.empty(types, np.int64)
    total = 1
    for d in range(types):
        stride[d] = total
        total *= counts[d] + 1
    # the first layer that exactly so many devices reach, and no more of each
    exact = np.full((total, columns), layers, np.uint8)
    least = np.full((total, columns), layers, np.uint8)
    ahead = np.zeros(groups, np.int64)
    for g in range(groups):
        fits = True
        for d in range(types):
            ahead[g] += use[g, d] * stride[d]
            fits = fits and use[g, d] <= counts[d]
        if fits and last[g] < exact[ahead[g], column[g]]:
            exact[ahead[g], column[g]] = last[g]
    taken = np.zeros(types, np.int64)
    steps = 0
    for n in range(total):
        if n > 0:
            d = 0
            while taken[d] == counts[d]:
                taken[d] = 0
                d += 1
            taken[d] += 1
        for k in range(columns):
            fewer = layers
            for d in range(types):
                if taken[d] > 0:
                    fewer = min(fewer, least[n - stride[d], k])
            v = exact[n, k]
            least[n, k] = min(v, fewer)
            if v >= fewer:
                continue
            steps += groups
            if v == 0 or steps > most:
                return True
            for g in range(groups):
                start = first[g, v, k]
                if start >= layers:  # none; one that begins no sooner may still be sent to faster
                    continue
                fits = True
                for d in range(types):
                    if taken[d] + use[g, d] > counts[d]:
                        fits = False
                        break
                if fits and start < exact[n + ahead[g], column[g]]:
                    exact[n + ahead[g], column[g]] = start
    return False
