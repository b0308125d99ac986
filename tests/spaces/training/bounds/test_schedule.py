"""What no cut undercuts, against simulations of all cuts."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.training.job import virtual_sizes
from ilp_planner.schedule.engine import StageTimes, simulate
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.enumerate.partition import INFINITE, CutTables, Spread
from ilp_planner.specs.pipeline_layout import FIRST, REMAINDERS
from tests.examples import examples
from tests.spaces.training.enumerate.test_partition import tables


def every_cut(found):
    """Yield the ends of every cut that memory allows, and its seconds by the event engine."""
    ranks, length = found.kind.size, found.work.shape[1] - 1
    for inner in itertools.combinations(range(1, length), ranks - 1):
        ends = (0, *inner, length)
        pairs = list(itertools.pairwise(ends))
        if all(found.fits[found.row[r], a, b] for r, (a, b) in enumerate(pairs)):
            yield ends, simulated(found, pairs)


def simulated(found, pairs):
    """Return the seconds of a 1F1B iteration, both ends waiting for messages."""
    both, forward = (
        np.array([table[found.kind[r], a, b] for r, (a, b) in enumerate(pairs)])
        for table in (found.work, found.forward)
    )
    sends = found.sends[:-1] / 2
    times = StageTimes(forward, both - forward, both - forward, 0 * both, sends, sends)
    orders = schedule_orders("1f1b", len(pairs), found.micro_batches)
    return simulate(orders, times, blocking=True).seconds


@examples(150)
@given(found=tables())
def test_no_cut_is_faster_than_the_bound(found):
    cuts, every = LeastCuts(found), dict(every_cut(found))
    if not every:
        assert cuts.seconds >= INFINITE
        return
    assert cuts.ends in every
    assert cuts.seconds <= min(every.values()) * (1 + 1e-12)
    near, _ = cuts.nearest(INFINITE, 10_000)
    assert {ends for _, ends in near} == set(every)
    for bound, ends in near:
        assert cuts.seconds <= bound <= every[ends] * (1 + 1e-12)


@examples(100)
@given(found=tables(), most=st.integers(1, 5))
def test_the_nearest_cuts_are_those_of_the_least_bounds(found, most):
    cuts, every = LeastCuts(found), dict(every_cut(found))
    bounds = sorted(cuts.least(ends) for ends in every)
    limit = bounds[len(bounds) // 2] * 1.01 if bounds else 1.0
    near, rest = cuts.nearest(limit, most)
    below = [bound for bound in bounds if bound < limit]
    assert [bound for bound, _ in near] == pytest.approx(below[:most])
    assert len({ends for _, ends in near}) == len(near)
    assert rest == pytest.approx(min([*below[most:], limit]))


@st.composite
def interleaved_tables(draw):
    """Random layers, spread over virtual stages; with messages, and passes that repeat some."""
    ranks, virtual = draw(st.integers(2, 4)), draw(st.integers(2, 4))
    remainder = draw(st.sampled_from(REMAINDERS))
    layers = ranks * virtual + draw(st.integers(-1 if remainder == FIRST else -2, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds, count = draw(st.integers(1, 2)), layers + 3
    number = np.arange(layers + 1)
    again = np.minimum(number, draw(st.integers(0, 3))) * draw(st.sampled_from((0.0, 1.0)))
    each = random.random((2, kinds, 1)) * 2
    wide = draw(st.sampled_from((0.0, 0.5, 6.0)))
    batches = draw(st.integers(ranks, 5 * ranks))
    turns = [n for n in range(ranks, batches + 1) if not 0 < batches % n < ranks]
    return CutTables(
        kind=random.integers(0, kinds, ranks),
        load=np.ones((kinds, count, count)),
        peak=np.triu(random.random((kinds, 1, 1)) + np.arange(count) - np.arange(count)[:, None]),
        row=np.arange(ranks),
        fits=random.random((ranks, count, count)) < draw(st.sampled_from((0.6, 1.0))),
        least=np.array([virtual + (remainder == FIRST)] + [virtual] * (ranks - 1)),
        weight=0.0,
        work=np.zeros((kinds, count, count)),
        forward=np.zeros((kinds, count, count)),
        sends=np.append(random.random(ranks - 1) * draw(st.sampled_from((0.0, 0.5, 4.0))), 0.0),
        micro_batches=batches,
        virtual=virtual,
        spread=Spread(
            forward=number * each[0],
            backward=number * each[1] + again * each[0],
            edge=random.random((kinds, 2, 2)) * wide,
            around=random.random() * draw(st.sampled_from((0.0, 0.5, 4.0))),
            remainder=remainder,
            turn=draw(st.sampled_from(turns)),
        ),
    )


def every_spread(found):
    """Yield the ends of every cut that memory allows, and its seconds by the event engine."""
    ranks, last = found.kind.size, found.work.shape[1] - 1
    for inner in itertools.combinations(range(1, last), ranks - 1):
        ends = (0, *inner, last)
        pairs = list(itertools.pairwise(ends))
        if all(b - a >= n for (a, b), n in zip(pairs, found.least, strict=True)) and all(
            found.fits[found.row[r], a, b] for r, (a, b) in enumerate(pairs)
        ):
            yield ends, simulated_spread(found, ends)


def simulated_spread(found, ends):
    """Return the seconds of an interleaved iteration, messages on their way while ranks compute."""
    ranks, virtual, spread = found.kind.size, found.virtual, found.spread
    sizes = virtual_sizes(ends, virtual, found.work.shape[1] - 3, spread.remainder)
    layers = np.array(sizes) - (np.arange(len(sizes)) == 0)
    layers[-1] -= 1
    kinds = np.tile(found.kind, virtual)
    forward, backward = spread.forward[kinds, layers], spread.backward[kinds, layers]
    for place, edge in ((0, 0), (-1, 1)):
        forward[place] += spread.edge[kinds[place], edge, 0]
        backward[place] += spread.edge[kinds[place], edge, 1]
    sends = np.tile(np.append(found.sends[:-1], spread.around), virtual)[:-1] / 2
    times = StageTimes(forward, backward, backward, 0 * backward, sends, sends)
    orders = schedule_orders("interleaved", ranks, found.micro_batches, virtual, spread.turn)
    return simulate(orders, times).seconds


@examples(150)
@given(found=interleaved_tables())
def test_no_spread_of_layers_is_faster_than_the_bound(found):
    cuts, every = LeastCuts(found), dict(every_spread(found))
    if not every:
        assert cuts.seconds >= INFINITE
        return
    assert cuts.ends in every
    near, _ = cuts.nearest(INFINITE, 100_000)
    assert {ends for _, ends in near} == set(every)
    for bound, ends in near:
        assert bound == pytest.approx(cuts.least(ends))
        assert cuts.seconds <= bound * (1 + 1e-12)
        assert bound <= every[ends] * (1 + 1e-12)


def test_equal_virtual_stages_take_the_published_time():
    """(B v + p - 1) of both passes, of which the bound misses nothing (arXiv 2104.04473, 2.2.2)."""
    ranks, virtual, count = 4, 3, 15
    found = dataclasses.replace(
        plain_tables(np.zeros((1, count, count)), ranks, micro_batches=8),
        least=np.array([virtual + 1] + [virtual] * (ranks - 1)),
        virtual=virtual,
        spread=Spread(
            np.arange(13.0)[None], 2 * np.arange(13.0)[None], np.zeros((1, 2, 2)), 0.0, FIRST, ranks
        ),
    )
    assert LeastCuts(found).seconds == pytest.approx((8 * 3 + 3) * 3)


@examples(50)
@given(found=st.one_of(tables(), interleaved_tables()))
def test_what_is_open_below_a_limit_is_all_that_near_cuts_have(found):
    cuts = LeastCuts(found)
    near, _ = cuts.nearest(INFINITE, 100_000)
    limit = sorted(bound for bound, _ in near)[len(near) // 2] if near else 1.0
    held = {
        (rank, *pair)
        for bound, ends in near
        if bound < limit
        for rank, pair in enumerate(itertools.pairwise(ends))
    }
    everything = {(r, *pair) for _, ends in near for r, pair in enumerate(itertools.pairwise(ends))}
    opened = set(zip(*(column.tolist() for column in cuts.open(limit)), strict=True))
    assert held <= opened <= everything


def test_equal_ranks_take_the_published_time():
    """(B + p - 1) (f + b), of which the bound misses nothing (arXiv 2104.04473, section 2.2)."""
    ranks, count = 4, 9
    sums = np.arange(count, dtype=float)
    work = np.triu(sums[None, :] - sums[:, None])[None]
    found = plain_tables(work, ranks, micro_batches=6)
    assert LeastCuts(found).seconds == pytest.approx((6 + 3) * 2)


def plain_tables(work, ranks, micro_batches):
    return CutTables(
        kind=np.zeros(ranks, np.int64),
        load=work,
        peak=0 * work,
        row=np.zeros(ranks, np.int64),
        fits=np.ones_like(work, np.bool_),
        least=np.ones(ranks, np.int64),
        weight=micro_batches - 1.0,
        work=work,
        forward=work / 3,
        sends=np.zeros(ranks),
        micro_batches=micro_batches,
        virtual=1,
    )
