"""What no cut undercuts, against simulations of all cuts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from ilp_planner.simulation.engine import StageTimes, simulate
from ilp_planner.simulation.schedules import schedule_orders
from ilp_planner.spaces.megatron.partition import INFINITE
from ilp_planner.spaces.megatron.schedule_bound import LeastCuts
from tests.spaces.megatron.test_partition import tables


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


@settings(max_examples=300)
@given(found=tables())
def test_no_cut_is_faster_than_the_bound(found):
    cuts, every = LeastCuts(found), dict(every_cut(found))
    if not every:
        assert cuts.seconds >= INFINITE
        return
    assert cuts.ends in every
    assert cuts.seconds <= min(every.values()) * (1 + 1e-12)
    near = cuts.below(INFINITE, 10_000)
    assert {ends for _, ends in near} == set(every)
    for bound, ends in near:
        assert cuts.seconds <= bound <= every[ends] * (1 + 1e-12)


@settings(max_examples=100)
@given(found=tables())
def test_cuts_below_a_limit_are_all_that_can_be(found):
    every = dict(every_cut(found))
    limit = sorted(every.values())[len(every) // 2] if every else 1.0
    near = {ends for _, ends in LeastCuts(found).below(limit, 10_000)}
    assert near >= {ends for ends, seconds in every.items() if seconds < limit * (1 - 1e-12)}
    if len(near) > 1:
        assert LeastCuts(found).below(limit, len(near) - 1) is None


def test_equal_ranks_take_the_published_time():
    """(B + p - 1) (f + b), of which the bound misses nothing (arXiv 2104.04473, section 2.2)."""
    ranks, count = 4, 9
    sums = np.arange(count, dtype=float)
    work = np.triu(sums[None, :] - sums[:, None])[None]
    found = plain_tables(work, ranks, micro_batches=6)
    assert LeastCuts(found).seconds == pytest.approx((6 + 3) * 2)


def plain_tables(work, ranks, micro_batches):
    from ilp_planner.spaces.megatron.partition import CutTables

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
