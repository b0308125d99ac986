"""A lower bound on all chains of groups, by branching into boxes: ranges of the slowest stage and
of each peak.

In a box, every slower stage and every higher peak is left out, and the lower ends count in full:

    weight * low + sum of the peaks' low ends + (least sum of stages within the capacities)

The last term is bounded by multipliers on devices (`resource_prices`) on the states of
`group_chain`, or found by labels (`group_labels`). Boxes are split at the lowest sum, until the
ends are close together; then labels look a little further above the bound each time. Candidates
that no box can hold below the cutoff are left out for good, so the chain gets smaller as boxes do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.cutting_planes import Plane, always, best_prices
from ilp_planner.optimize.bounds.group_labels import ChainSearch, search_chain
from ilp_planner.optimize.bounds.group_potentials import Potentials, plain, prefixes, through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.optimize.bounds.group_chain import GroupChain

WIDE = 2e-3  # relative to the bound: what a box may leave between its ends before labels look in it
STEP = 2e-3  # relative: how far above its bound labels look into a box
ROUGH = 0.2  # of what a box leaves between its ends: by which its prices may be less than the best
FIRST_EFFORT = 2e7  # comparisons of labels
GROWTH = 4.0  # of the effort
SMALL, SMALL_EFFORT = 2000, 1e6  # candidates and comparisons: labels may settle a box as a whole
FAR = 0.7  # where to split first, of the upper end: little is cheaper with much less


class Each(Protocol):
    """Calls a function with each of some arguments, and returns the values in their order."""

    def __call__(
        self, function: Callable[[Box], Box | None], arguments: Iterable[Box], /
    ) -> Iterable[Box | None]:
        """Call it."""


class Choice:
    """Some of so many candidates, a bit each: there may be thousands of boxes."""

    def __init__(self, numbers: NDArray[np.int64], total: int) -> None:
        chosen = np.zeros(total, np.bool_)
        chosen[numbers] = True
        self.size, self.total, self.bits = int(numbers.size), total, np.packbits(chosen)

    def numbers(self) -> NDArray[np.int64]:
        """Return the candidates, ascending."""
        return np.flatnonzero(np.unpackbits(self.bits, count=self.total))


class Met(NamedTuple):
    """A path: its candidates, and what multipliers make of it."""

    arcs: NDArray[np.int64]
    plane: Plane


@dataclass(eq=False)
class Box:
    """A branching node: paths of the candidates `arcs` with the slowest stage from low to high and
    peaks from peak_low to peak_high seconds. They cost at least `bound` seconds.

    price: multipliers that prove it. met: paths that were the shortest ones under some multipliers.
    effort: comparisons that labels may make next.
    """

    low: float
    high: float
    peak_low: NDArray[np.float64]
    peak_high: NDArray[np.float64]
    arcs: Choice
    price: NDArray[np.float64]
    bound: float
    met: Sequence[Met] = ()
    effort: float = FIRST_EFFORT
    step: float = STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A path through the chain: candidate numbers from the first layer on, and its seconds on the
    best links that it can have."""

    choices: tuple[int, ...]
    value: float


class BoxSearch:
    """All paths of a chain below a cutoff, in boxes.

    Parameters
    ----------
    cutoff: seconds; equally long paths are pruned.
    levels: stages after a stage, told apart in potentials (labels count them exactly).
    small: most candidates of a box that labels try to settle before it is split.
    goon: tells whether there is time left; multipliers are final if there is none.
    each: calls a function with each of some arguments, perhaps in several threads; returns the
        values in their order.
    """

    def __init__(
        self,
        chain: GroupChain,
        cutoff: float,
        levels: int,
        *,
        small: int = SMALL,
        goon: Callable[[], bool] = always,
        each: Each = map,
    ) -> None:
        self.small, self.goon, self.each = small, goon, each
        self.chain = chain
        self.cutoff = min(cutoff, INFINITE)
        self.levels = max(levels, 2)
        self.weight = chain.weight
        # whether network cards limit the first peak: boxes of it must end somewhere
        self.shared = self.cutoff < INFINITE and bool(chain.cards.use.any())
        self.heap: list[tuple[float, int, Box]] = []
        self.number = count()
        self.closed = np.inf  # seconds: the least bound of boxes that are not looked at again
        stages, sending = chain.stages, chain.sending
        if chain.arcs:
            most = sending.time.max(axis=1, initial=0.0)  # that sending adds to a row's time
            highest = stages.peaks.max(axis=0)
            if self.shared:  # the first peak is of all that share a card
                highest[0] = self.cutoff
            whole = Box(
                low=0.0,
                high=float((stages.time + most[stages.row]).max()),
                peak_low=np.zeros(stages.peaks.shape[1]),
                peak_high=highest,
                arcs=Choice(np.arange(chain.arcs), chain.arcs),
                price=np.zeros(len(chain.capacity)),
                bound=0.0,
            )
            self._open([whole])

    @property
    def bound(self) -> float:
        """Seconds: no path below the cutoff takes less; the cutoff if there is none."""
        least = self.heap[0][0] if self.heap else np.inf
        return min(least, self.closed, self.cutoff)

    @property
    def finished(self) -> bool:
        """There is nothing left to look at."""
        return not self.heap or self.heap[0][0] >= min(self.closed, self.cutoff)

    def lower(self, cutoff: float) -> None:
        """Look for paths below a lower cutoff only."""
        self.cutoff = min(self.cutoff, cutoff)

    def advance(self, effort: float = np.inf) -> Found | None:
        """Split the box with the lowest bound, or look into it; return a path if one was found.

        Labels settle a small box as a whole. In others few of them look for a path before these are
        split: it is a good one long before boxes are small. While network cards are shared, a wide
        box counts them too roughly to be settled.

        Parameters
        ----------
        effort: the most comparisons that labels may make.
        """
        bound, _, box = heapq.heappop(self.heap)
        spreads = np.append(box.peak_high - box.peak_low, self.weight * (box.high - box.low))
        wide = spreads.sum() > WIDE * max(bound, 1e-12)
        way, small = None, box.arcs.size <= self.small
        if small or wide:
            way, settled = self._settle(box, small)
            if settled:
                return way
        if wide:
            self._split(box, int(np.argmax(spreads)))
            return way
        return self._look(box, effort) or way

    # ---- prices ---------------------------------------------------------------------------------

    def _open(self, boxes: Sequence[Box]) -> None:
        """Bound boxes by multipliers; keep boxes that may hold anything below the cutoff."""
        for box in self.each(self._bounded, boxes):
            if box is not None:
                self._push(box)

    def _bounded(self, box: Box) -> Box | None:
        """Return a box with its remaining candidates, multipliers and bound; None if it holds
        nothing below the cutoff."""
        stages, high, arcs = self.chain.stages, box.high, box.arcs.numbers()
        least = float(box.peak_low.sum())
        if self.weight > 0 and self.cutoff < INFINITE:
            high = min(high, (self.cutoff - least) / self.weight)
        if self.shared:
            most = box.peak_high.copy()
            most[0] = min(most[0], self.cutoff - self.weight * box.low - least + box.peak_low[0])
            if most[0] < box.peak_low[0]:
                return None
            box = replace(box, peak_high=most)
        usable = (stages.time[arcs] <= high) & (stages.peaks[arcs] <= box.peak_high).all(axis=1)
        arcs = arcs[usable]
        own = self._limited(box, arcs)
        ends = self.weight * box.low + least
        spread = self.weight * (high - box.low) + float((box.peak_high - box.peak_low).sum())
        inside = np.zeros(self.chain.arcs, np.bool_)
        inside[arcs] = True
        met = [one for one in box.met if inside[one.arcs].all()]

        def meet(path: NDArray[np.int64], plane: Plane) -> None:
            met.append(Met(arcs[path], plane))

        planes = [one.plane for one in met]
        close = ROUGH * spread
        known = self._prices(own, high, box.price, self.cutoff - ends, close, planes, meet)
        if known is None:
            return None
        bound = max(ends + known.least, box.bound)
        if bound >= min(self.cutoff, INFINITE):
            return None
        cost = through(own, known) + self.weight * np.maximum(own.stages.time, box.low)
        cost += np.maximum(own.stages.peaks, box.peak_low).sum(axis=1)
        choice = Choice(arcs[cost < self.cutoff], self.chain.arcs)
        return replace(box, high=high, arcs=choice, price=known.price, bound=bound, met=met)

    def _limited(self, box: Box, arcs: NDArray[np.int64]) -> GroupChain:
        """Return the chain of some candidates with a box's limits."""
        own = self.chain.only(arcs)
        return own.below(float(box.peak_high[0])) if self.shared else own

    def _push(self, box: Box) -> None:
        heapq.heappush(self.heap, (box.bound, next(self.number), box))

    def _prices(
        self,
        own: GroupChain,
        high: float,
        start: NDArray[np.float64],
        enough: float,
        close: float,
        planes: Sequence[Plane],
        meet: Callable[[NDArray[np.int64], Plane], None],
    ) -> Potentials | None:
        """Return potentials at good multipliers, first without the costs of sending and seats; None
        if these prove enough.

        From paths that are known one begins with the multipliers that were good for these: half as
        many tables of potentials are made as from the ones without sending.

        Parameters
        ----------
        close: seconds by which multipliers may miss the best. planes: of paths of the candidates
            that are known. Stages that are too slow with their messages make the model too low, and
            multipliers less good; the bound is that of the potentials. meet: called with each path
            that is met.
        """

        alike = own.alike

        def together(amounts: NDArray[np.int64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = np.bincount(alike, amounts).astype(np.float64)
            return found

        def used(path: NDArray[np.int64]) -> NDArray[np.float64]:
            return together(own.stages.use[path].sum(axis=0))

        def roughly(price: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64] | None]:
            least, path = plain(own, price[alike], high)
            total = float(own.stages.total[path].sum())
            return least, total, used(path) if path.size else None

        capacity = together(np.array(own.capacity, np.int64))
        first = start[np.unique(alike, return_index=True)[1]]
        rough, least = best_prices(roughly, capacity, enough, first, close, self.goon)
        if least >= enough:
            return None
        best: list[Potentials] = []

        def priced(price: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64] | None]:
            known, use = prefixes(own, price[alike], high, self.levels), None
            if known.path.size:
                use = used(known.path)
                meet(known.path, Plane(known.total, use))
            if not best or known.least > best[0].least:
                best[:] = [known]
            return known.least, known.total, use

        begin = first if planes else rough
        best_prices(priced, capacity, enough, begin, close, self.goon, planes)
        return best[0]

    # ---- boxes ----------------------------------------------------------------------------------

    def _split(self, box: Box, axis: int) -> None:
        fresh = replace(box, effort=FIRST_EFFORT, step=STEP)
        if axis == box.peak_low.size:
            middle = self._middle(box.low, box.high)
            self._open([replace(fresh, high=middle), replace(fresh, low=middle)])
            return
        middle = self._middle(float(box.peak_low[axis]), float(box.peak_high[axis]))
        below, above = box.peak_high.copy(), box.peak_low.copy()
        below[axis], above[axis] = middle, middle
        self._open([replace(fresh, peak_high=below), replace(fresh, peak_low=above)])

    @staticmethod
    def _middle(low: float, high: float) -> float:
        return FAR * high if low < high / 4 else float((low * high) ** 0.5)

    def _settle(self, box: Box, small: bool) -> tuple[Found | None, bool]:
        """Let labels search a box as a whole, few of them if it is not small; tell whether it is
        settled."""
        found, way = self._labels(box, self.cutoff, SMALL_EFFORT if small else 0.0)
        box.bound = max(box.bound, min(found.bound, self.cutoff))
        settled = found.exact and (small or not self.shared)
        if settled and found.path:  # nothing in the box is cheaper
            self.closed = min(self.closed, found.value)
        return way, settled

    def _labels(self, box: Box, cutoff: float, effort: float) -> tuple[ChainSearch, Found | None]:
        """Search a box; return the result, and its path."""
        own = self._limited(box, box.arcs.numbers())
        known = prefixes(own, box.price, box.high, self.levels)
        found = search_chain(
            own, known, low=box.low, peak_low=box.peak_low, cutoff=cutoff, effort=effort
        )
        if not found.path:
            return found, None
        choices = tuple(own.choice[list(found.path)].tolist())
        return found, Found(choices=choices, value=found.value)

    def _look(self, box: Box, most: float) -> Found | None:
        """Let labels look for paths a little above the bound of a box."""
        others = self.heap[0][0] if self.heap else np.inf
        cutoff = min(self.cutoff, max(others, box.bound * (1 + box.step)))
        found, way = self._labels(box, cutoff, min(box.effort, most))
        box.bound = max(box.bound, min(found.bound, cutoff))
        if found.exact and found.path:  # nothing in the box is cheaper
            self.closed = min(self.closed, found.value)
            return way
        if found.exact:
            box.step *= 2
        else:
            box.effort *= GROWTH
        if box.bound < self.cutoff:
            self._push(box)
        return way
