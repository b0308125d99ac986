"""The cheapest chain of groups by labels, against all ways one by one."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.group_chain import (
    Cards,
    ChainStages,
    GroupChain,
    Sending,
    first_stops,
)
from ilp_planner.optimize.bounds.group_labels import FEW, ChainSearch, search_chain
from ilp_planner.optimize.bounds.group_potentials import prefixes
from ilp_planner.optimize.bounds.group_states import states
from tests.examples import for_each
from tests.optimize.bounds.random_chain import every_way, random_chain
from tests.optimize.bounds.small_chains import no_regions

SEEDS = range(60)


def peaks_of(chain: GroupChain, least: float) -> NDArray[np.float64]:
    return np.full(chain.stages.peaks.shape[1], least)


def every_value(
    chain: GroupChain, low: float, peak: float, slowest: float = np.inf
) -> dict[tuple[int, ...], float]:
    """Return the least seconds of each way within the capacities, where the slowest counts at least
    `low` and each peak at least `peak` seconds."""
    found: dict[tuple[int, ...], float] = {}
    for way in every_way(chain, slowest):
        arcs = list(way.arcs)
        if (chain.stages.use[arcs].sum(axis=0) > chain.capacity).any():
            continue
        peaks = np.maximum(chain.stages.peaks[arcs].max(axis=0), peaks_of(chain, peak)).sum()
        value = chain.weight * max(*way.times, low) + sum(way.totals) + float(peaks)
        found[way.arcs] = min(value, found.get(way.arcs, INFINITE))
    return found


def searched(
    chain: GroupChain, seed: int, low: float, peak: float, slowest: float = np.inf, **options: Any
) -> ChainSearch:
    """Search with prices at random, and few levels of stages after."""
    price = np.random.default_rng(seed).integers(0, 4, len(chain.capacity)).astype(np.float64)
    known = prefixes(chain, price, slowest, 2 + seed % 4)
    return search_chain(
        chain, known, low=low, peak_low=peaks_of(chain, peak), cutoff=options.pop("cutoff", np.inf),
        **options,
    )  # fmt: skip


@for_each(("low", "peak"), [(0.0, 0.0), (6.0, 3.0)])
@for_each("slowest", [8.0, np.inf])
def test_the_cheapest_way_of_all_is_found(low: float, peak: float, slowest: float) -> None:
    """Of those below a cutoff, at which it is not any more."""
    some = 0
    for seed in SEEDS:
        chain = random_chain(seed)
        every = every_value(chain, low, peak, slowest)
        best = min(every.values(), default=INFINITE)
        found = searched(chain, seed, low, peak, slowest)
        assert found.exact
        assert found.bound == best
        if not every:
            assert (found.path, found.value) == ((), np.inf)
            continue
        some += 1
        assert found.value == best == every[found.path]
        assert searched(chain, seed, low, peak, slowest, cutoff=best + 0.5).path
        ended = searched(chain, seed, low, peak, slowest, cutoff=best)
        assert (ended.path, ended.value, ended.bound, ended.exact) == ((), np.inf, best, True)
    assert some > 20


@for_each("options", [{"width": 1}, {"width": 2}, {"effort": 0.0}])
def test_few_labels_keep_a_bound(options: dict[str, float]) -> None:
    for seed in SEEDS:
        chain = random_chain(seed)
        every = every_value(chain, 0.0, 0.0)
        best = min(every.values(), default=INFINITE)
        found = searched(chain, seed, 0.0, 0.0, **options)
        assert found.bound <= best <= min(found.value, INFINITE)
        if found.path:
            assert every[found.path] <= found.value
        if found.exact:
            assert found.bound == best


# ---- by hand ------------------------------------------------------------------------------------


def row(*layers: list[tuple[float, float, float, int]]) -> GroupChain:
    """Return a chain whose stages hold one layer each: seconds, those of an iteration, the peak and
    devices, of three. Nothing is sent, the slowest counts twice, and all groups are of the second
    of two classes."""
    stop = np.repeat(np.arange(1, len(layers) + 1), [len(some) for some in layers])
    time, total, peak, use = np.array([stage for some in layers for stage in some]).T
    none, zero = np.zeros(stop.size, np.int64), np.zeros((1, 1))
    stages = ChainStages(
        first=first_stops(stop, len(layers)), start=stop - 1, time=time.copy(), total=total.copy(),
        peaks=peak[:, None].copy(), use=use[:, None].astype(np.int64), behind=none + 9, row=none,
        group=none + 1, state=none + 1, seats=none[:, None], number=none,
    )  # fmt: skip
    both, nothing = np.zeros(2, np.int64), np.zeros(0, np.int64)
    return GroupChain(
        layers=len(layers), weight=1.0, types=1, capacity=(3,), choice=np.arange(stop.size),
        cards=Cards(1.0, np.zeros((stop.size, 0), np.int64)), stop=stop, stages=stages,
        sending=Sending(zero, zero, np.zeros((1, 1), np.int64)),
        states=states(zero, zero, both - 1, both, both, nothing),
        alike=np.zeros(1, np.int64), regions=no_regions(2, 1),
    )  # fmt: skip


FIRST = (1000.0, 10.0, 0.0, 1)  # slow, as no bound knows before it is reached


@for_each(
    ("one", "other", "low", "peak", "beaten"),
    [
        ((1, 1, 1, 1), (1, 2, 1, 1), 0.0, 0.0, True),  # cheaper
        ((1, 1, 1, 1), (1, 1, 1, 1), 0.0, 0.0, True),  # as good
        ((3, 1, 1, 1), (2, 4, 1, 1), 0.0, 0.0, False),  # slower
        ((3, 1, 1, 1), (2, 4, 1, 1), 5.0, 0.0, True),  # but not than what counts at least
        ((1, 1, 3, 1), (1, 4, 2, 1), 0.0, 0.0, False),  # of a higher peak
        ((1, 1, 3, 1), (1, 4, 2, 1), 0.0, 5.0, True),
        ((1, 1, 1, 2), (1, 2, 1, 1), 0.0, 0.0, False),  # on more devices
        ((1, 1, 1, 1), (1, 2, 1, 2), 0.0, 0.0, True),
    ],
)
def test_a_label_no_better_in_anything_is_not_followed(
    one: tuple[float, float, float, int],
    other: tuple[float, float, float, int],
    low: float,
    peak: float,
    *,
    beaten: bool,
) -> None:
    """Effort: two stages of the last layer, made into two labels; one stage before the first of
    them, and its label; one comparison, and that label again unless it is beaten."""
    found = searched(row([FIRST], [one, other]), 0, low, peak)
    assert found.effort == (2 + 2) + (1 + 1) + 1 + (not beaten)


MANY = [(k + 2.0, 60.0 - 3 * k + k * k % 7 / 8, 3.0, 1) for k in range(15)]
"""Stages none of which is better than another one."""


@for_each(
    ("kept", "options"),
    [
        (1, {"width": 1}),
        (6, {"width": 6}),
        (FEW, {"effort": 0.0}),
        # The last layer takes 2 and the second one 15 stages and as many labels, the first one a
        # stage; each of ten labels is compared with those before, and made one more.
        (FEW, {"effort": 2 + 30 + 1 + 45 + 10 - 1.0}),
        (FEW + 1, {"effort": 2 + 30 + 1 + 45 + 10.0}),
    ],
)
def test_what_is_dropped_is_bounded_by_the_first_of_it(
    kept: int, options: dict[str, float]
) -> None:
    """Labels of least bounds are kept: what they take with the cheapest stages before."""
    chain = row([FIRST], MANY, [(1.0, 20.0, 5.0, 1)])
    bounds = sorted(time + total + 5.0 + 20.0 + 10.0 for time, total, _, _ in MANY)
    found = searched(chain, 0, 0.0, 0.0, **options)
    assert found.bound == pytest.approx(bounds[kept], rel=1e-12)
    assert (bool(found.path), found.exact) == (True, False)
    assert searched(chain, 0, 0.0, 0.0, width=15).exact


def test_stages_after_one_are_counted_beyond_what_potentials_tell_apart() -> None:
    """Two are behind the first layer, and potentials count one and more alike; one more is allowed
    behind the cheap stage."""
    chain = row([(1.0, 1.0, 0.0, 1), (1.0, 50.0, 0.0, 1)], [(1.0, 1.0, 0.0, 1)], [FIRST])
    chain = replace(chain, stages=chain.stages._replace(behind=np.array([1, 2, 1, 0])))
    assert searched(chain, 0, 0.0, 0.0).path == (1, 2, 3)


def test_there_may_be_more_stages_than_room_for_them_at_first() -> None:
    """The room for 16384 is doubled twice."""
    count = 33_000
    chain = row([(1.0, 1.0 + count - k, 0.0, 1) for k in range(count)])
    found = searched(chain, 0, 0.0, 0.0)
    assert (found.path, found.value) == ((count - 1,), 3.0)
