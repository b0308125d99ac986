"""Bounds on the times of all stages for one micro-batch size, made exact if it matters."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import StageOptimum, solve_stage
from ilp_planner.optimize.bounds.rows import Rows, share_rows
from ilp_planner.optimize.bounds.sweep import Chain, Extent, entry_of, extent, spread, stage_bounds
from ilp_planner.plan import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ilp_planner.costs.operators import OperatorTables
    from ilp_planner.optimize.bounds.pipelines import Place

EXACT = 64  # binary digits: of every number of micro-batches
PRICE_COUNT = 12
FIRST_ANSWERS = 16  # after which their prices are used for all stages; then twice as many each time
ALIKE_PRICES = 3e-3  # relative: a price so near to another one says little more
FORBIDDING_PRICE = 1e-6  # seconds per byte: a stage that lacks a MiB takes at least a second more


class StageKey(NamedTuple):
    """All that a stage's optimum depends on; `entry` stands for the range of operators."""

    devices: int
    in_flight: int
    enters_node: bool
    leaves_node: bool
    entry: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Way:
    """An answer for one stage, and the effort it took; the range may stand for copies of itself."""

    optimum: StageOptimum
    effort: int
    start: int
    stop: int


class StageBounds:
    """Lower bounds (seconds) on the time of every stage, for one micro-batch size.

    Tables are computed when first read. `refine` replaces a bound by the exact optimum. A bound
    only ever grows. exact: the answers for stages of tables that are in use; others are remembered.
    prices: seconds per byte that tables use besides the usual ones, by devices and micro-batches in
    flight.
    """

    def __init__(
        self,
        costs: OperatorTables,
        *,
        micro_batch: int,
        micro_batches: int,
        groups: tuple[int, ...],
        limit: float,
    ) -> None:
        self.costs = costs
        self.micro_batch = micro_batch
        self.micro_batches = micro_batches
        self.limit = limit
        self.chains: dict[int, Chain] = {}
        for g in groups:
            tables = costs.tables(micro_batch, g, micro_batches)
            if tables is not None:
                self.chains[g] = spread(tables)
        self.exact: dict[StageKey, Way] = {}
        self._answers: dict[tuple[int, int, bool], list[tuple[bool, Way]]] = {}
        self._tables: dict[tuple[int, int, bool], NDArray[np.float64]] = {}
        self.prices: dict[tuple[int, int], list[float]] = {}
        self._met: dict[tuple[int, int], list[float]] = {}
        self._left = FIRST_ANSWERS
        self.longest, self.digits = INFINITE, EXACT

    def set_longest(self, longest: float, *, digits: int = EXACT) -> None:
        """Forget bounds, and every stage whose operators alone take longer than this (seconds);
        answers for stages are remembered.

        digits: binary ones that are kept of the micro-batches in flight; bounds for fewer of them
        also serve for more, which need no less memory.
        """
        self.longest = longest
        self.digits = digits
        self.extents = self._extents()
        for key, way in self.exact.items():
            table = (key.devices, key.in_flight, key.enters_node)
            self._answers.setdefault(table, []).append((key.leaves_node, way))
        self._tables.clear()
        self.exact.clear()

    @cached_property
    def extents(self) -> dict[int, Extent]:
        """Stages of each device-group size whose operators take no longer than `longest`."""
        return self._extents()

    def _extents(self) -> dict[int, Extent]:
        return {g: extent(chain, self.rows, self.longest) for g, chain in self.chains.items()}

    @cached_property
    def rows(self) -> Rows:
        """Stages that are copies of each other."""
        return share_rows(next(iter(self.chains.values())).tables.kind)

    @property
    def groups(self) -> tuple[int, ...]:
        """Device-group sizes with at least one profiled option."""
        return tuple(self.chains)

    def in_flight(self, behind: int) -> int:
        """Micro-batches in flight with so many stages after, rounded down to `digits`."""
        exact = self.costs.in_flight(behind, self.micro_batches)
        dropped = max(0, exact.bit_length() - self.digits)
        return exact >> dropped << dropped

    def prepare(self, places: Iterable[Place], workers: int) -> None:
        """Compute the tables of these places, several at a time."""
        keys = {(p.devices, self.in_flight(p.behind), p.enters_node) for p in places}
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda key: self._table(*key), sorted(keys - self._tables.keys())))

    def times(self, place: Place) -> NDArray[np.float64]:
        """Return bounds on the times of stages at a place ([entries]); refined in place."""
        table = self._table(place.devices, self.in_flight(place.behind), place.enters_node)
        row: NDArray[np.float64] = table[int(place.leaves_node)]
        return row

    def both_times(self, place: Place) -> NDArray[np.float64]:
        """Return the bounds of stages at a place that stay in the node, then of ones that leave it
        ([2 entries])."""
        return self._table(place.devices, self.in_flight(place.behind), place.enters_node).ravel()

    def keep(self, place: Place, times: NDArray[np.float64]) -> None:
        """Keep these bounds in an array of others; refining them then changes it."""
        key = (place.devices, self.in_flight(place.behind), place.enters_node)
        self._tables[key] = times.reshape(2, -1)

    def _table(self, devices: int, in_flight: int, enters_node: bool) -> NDArray[np.float64]:
        key = (devices, in_flight, enters_node)
        if key not in self._tables:
            self._tables[key] = stage_bounds(
                self.chains[devices], self.rows, self.extents[devices],
                prices=np.append(
                    self._prices(devices, in_flight), self.prices.get((devices, in_flight), [])
                ),
                in_flight=in_flight, limit=self.limit,
                enters_node=enters_node,
            )  # fmt: skip
            self._remember(key)
        return self._tables[key]

    def sharpen(self, workers: int) -> bool:
        """Raise all bounds by the multipliers that stages were solved with, now and then; tell
        whether.

        The best multiplier of one stage is nearly the best for similar ones.
        """
        if sum(map(len, self._met.values())) < self._left:
            return False
        self._left *= 2
        new = {key: self._unlike(key, met) for key, met in self._met.items()}
        self._met.clear()
        for key, prices in new.items():
            self.prices.setdefault(key, []).extend(prices.tolist())

        def raised(key: tuple[int, int, bool]) -> None:
            devices, in_flight, enters_node = key
            bounds = stage_bounds(
                self.chains[devices], self.rows, self.extents[devices],
                prices=new[devices, in_flight], in_flight=in_flight, limit=self.limit,
                enters_node=enters_node,
            )  # fmt: skip
            np.maximum(self._tables[key], bounds, out=self._tables[key])

        keys = [key for key in self._tables if new.get(key[:2], np.zeros(0)).size]
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(raised, keys))
        return bool(keys)

    def _unlike(self, key: tuple[int, int], met: list[float]) -> NDArray[np.float64]:
        """Return a few of the multipliers found, far enough from the ones in use."""
        used = np.array(self.prices.get(key, []))
        new = np.array(sorted(
            price for price in met if not (np.abs(used / price - 1) < ALIKE_PRICES).any()
        ))  # fmt: skip
        if new.size > PRICE_COUNT:
            new = new[np.linspace(0, new.size - 1, PRICE_COUNT).astype(int)]
        return new[np.diff(new, prepend=0.0) > ALIKE_PRICES * np.append(0.0, new)[:-1]]

    def _remember(self, table: tuple[int, int, bool]) -> None:
        """Raise the bounds of a new table to the answers that are known of its stages.

        That nothing is faster than a cutoff was an answer up to there: now it is a bound.
        """
        answers, self._answers[table] = self._answers.get(table, []), []
        for leaves_node, way in answers:
            entry = self.entry(table[0], way.start, way.stop)
            if entry < 0:
                self._answers[table].append((leaves_node, way))
                continue
            times, found = self._tables[table][int(leaves_node)], way.optimum
            times[entry] = max(times[entry], found.bound)
            if found.bound < found.time:
                way = replace(way, optimum=replace(found, exact=False))
            self.exact[StageKey(*table, leaves_node, entry)] = way

    def memory(self, devices: int, in_flight: int, enters_node: bool) -> NDArray[np.float64]:
        """Return bytes that stages need at least, however slow ([2, entries])."""
        chain = self.chains[devices]
        idle = replace(
            chain,
            operators=chain.operators.untimed(),
            enter=np.zeros_like(chain.enter),
            least_leave=np.zeros_like(chain.least_leave),
        )
        return stage_bounds(
            idle, self.rows, self.extents[devices], prices=np.ones(1), in_flight=in_flight,
            limit=0.0, enters_node=enters_node,
        )  # fmt: skip

    def _prices(self, devices: int, in_flight: int) -> NDArray[np.float64]:
        """Return no multiplier, some around the cost of recomputation per freed byte, and a
        forbidding one."""
        tables = self.chains[devices].tables
        usable = tables.allowed & (tables.activations > 0) & (tables.recompute > 0)
        ratio = np.divide(
            tables.recompute, tables.activations, where=usable, out=np.ones_like(tables.compute)
        )
        low, high = np.quantile(ratio[usable], [0.02, 0.7]) if usable.any() else (1e-6, 1e-15)
        between = np.geomspace(low / 8, high * 2, PRICE_COUNT) / in_flight
        return np.concatenate([[0.0], between, [FORBIDDING_PRICE]])

    def key(self, place: Place, entry: int) -> StageKey:
        """Name a stage by the inputs of its optimum."""
        return StageKey(
            place.devices, self.in_flight(place.behind), place.enters_node, place.leaves_node, entry
        )

    def entry(self, devices: int, start: int, stop: int) -> int:
        """Return the position of this stage's times, -1 when it is too long to matter."""
        return entry_of(start, stop - start, self.rows, self.extents[devices])

    def refine(
        self,
        key: StageKey,
        start: int,
        stop: int,
        *,
        cutoff: float,
        effort: int,
        workers: int = 1,
    ) -> Way:
        """Solve one stage exactly below `cutoff` seconds and raise its bound to the answer."""
        known = self.exact.get(key)
        optimum = solve_stage(
            self.chains[key.devices], start, stop, in_flight=key.in_flight, limit=self.limit,
            enters_node=key.enters_node, leaves_node=key.leaves_node, cutoff=cutoff, effort=effort,
            known=None if known is None else known.optimum, workers=workers,
        )  # fmt: skip
        times = self._table(key.devices, key.in_flight, key.enters_node)[int(key.leaves_node)]
        times[key.entry] = max(times[key.entry], optimum.bound)
        if known is None and optimum.price > 0:
            self._met.setdefault((key.devices, key.in_flight), []).append(optimum.price)
        way = Way(optimum=optimum, effort=effort, start=start, stop=stop)
        self.exact[key] = way
        return way

    def strategies(self, devices: int, optimum: StageOptimum) -> tuple[Strategy, ...]:
        """Return the choice for each operator in an answer for a stage on so many devices."""
        options = self.chains[devices].tables.options
        return tuple(
            Strategy(
                tp=options[o].tp, dp=options[o].dp, split=options[o].split, recompute=bool(flag)
            )
            for o, flag in zip(optimum.choices, optimum.flags, strict=True)
        )  # fmt: skip

    def bound(self, key: StageKey) -> float:
        """Return the bound on one stage, in seconds."""
        table = self._table(key.devices, key.in_flight, key.enters_node)
        return float(table[int(key.leaves_node), key.entry])
