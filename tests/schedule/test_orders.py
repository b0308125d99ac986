"""What all schedules promise, and ZB-H1 by the rules of its paper."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.engine import peak_memory, peak_micro_batches, simulate
from ilp_planner.schedule.orders import (
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Operations,
    Orders,
    Shape,
    held_mixes,
    orders_of,
    placed,
    places,
)
from ilp_planner.schedule.schedules import SCHEDULES, schedule_orders
from tests.schedule.pipelines import equal_times, pipelines


@given(pipelines())
def test_every_stage_runs_every_micro_batch_once(case: tuple) -> None:
    orders, _ = case
    ops = [op for rank in range(orders.shape.ranks) for op in orders.of_rank(rank)]
    for stage in range(orders.shape.stages):
        of_stage = {kind: [m for k, s, m in ops if (k, s) == (kind, stage)] for kind in "FBIW"}
        every = list(range(orders.shape.micro_batches))
        assert of_stage["F"] == every
        assert sorted(of_stage["B"] + of_stage["I"]) == every
        assert of_stage["I"] == of_stage["W"]


def zb_h1(ranks: int, micro_batches: int) -> list[list[tuple[str, int, int]]]:
    """Return ZB-H1 by the rules of Qi et al. 2023, section 2.1, a unit of time after the other.

    Workers follow 1F1B, and none may hold more micro-batches, from their forward pass to their
    weight gradient, than 1F1B's first worker: as many as there are workers. F, B and W take the
    same time. Whenever a worker cannot go on with 1F1B, it computes the weight gradient that waits
    longest.
    """
    made: list[list[tuple[str, int, int]]] = [[] for _ in range(ranks)]
    done: set[tuple[str, int, int]] = set()
    while any(len(row) < 3 * micro_batches for row in made):
        now = [
            step
            for rank in range(ranks)
            if (step := next_step(made[rank], done, rank, ranks, micro_batches))
        ]
        for step in now:
            made[step[1]].append(step)
        done.update(now)
    return made


def next_step(
    made: list[tuple[str, int, int]],
    done: set[tuple[str, int, int]],
    rank: int,
    ranks: int,
    micro_batches: int,
) -> tuple[str, int, int] | None:
    """Return what a worker does next, None: it waits."""
    forwards, inputs, weights = (sum(kind == k for kind, *_ in made) for k in "FIW")
    warm_up = min(ranks - rank - 1, micro_batches)
    if forwards < micro_batches and forwards - inputs <= warm_up:
        wanted = ("F", rank, forwards)
        comes = rank == 0 or ("F", rank - 1, forwards) in done
        may = comes and forwards - weights < ranks
    else:
        wanted = ("I", rank, inputs)
        last = rank == ranks - 1
        may = inputs < forwards and (last or ("I", rank + 1, inputs) in done)
    if may:
        return wanted
    return ("W", rank, weights) if weights < inputs else None


@given(st.integers(1, 8), st.integers(0, 20))
def test_zb_h1_is_that_of_its_paper(ranks: int, more: int) -> None:
    """Of fewer micro-batches than workers the paper says nothing."""
    micro_batches = ranks + more
    orders = schedule_orders("zb-h1", ranks, micro_batches)
    ours = [orders.of_rank(rank) for rank in range(ranks)]
    assert ours == zb_h1(ranks, micro_batches)


@given(st.integers(1, 8), st.integers(0, 20))
def test_zb_h1_has_a_third_of_the_bubble_in_the_same_memory(ranks: int, more: int) -> None:
    orders = schedule_orders("zb-h1", ranks, ranks + more)
    assert simulate(orders, equal_times(ranks)).seconds == 3 * (ranks + more) + ranks - 1
    assert peak_micro_batches(orders).tolist() == [ranks] * ranks


@given(st.integers(1, 8), st.integers(0, 20))
def test_zb_v_of_equal_parts_has_no_bubble_but_its_filling(ranks: int, more: int) -> None:
    """Its memory is that of 1F1B: so many micro-batches of whole ranks."""
    micro_batches = 2 * ranks + more
    orders = schedule_orders("zb-v", ranks, micro_batches, 2)
    assert simulate(orders, equal_times(2 * ranks)).seconds == 6 * micro_batches + ranks - 1
    halves = np.ones(2 * ranks, np.int64)
    assert peak_memory(orders, halves).tolist() == [2 * ranks] * ranks


@pytest.mark.parametrize(
    ("name", "virtual", "micro_batches", "says"),
    [
        ("2f2b", 1, 4, "no schedule '2f2b', expected one of gpipe"),
        ("zb-v", 1, 4, "zb-v takes 2 stages per rank, found 1"),
        ("1f1b", 2, 4, "1f1b takes 1 stage per rank, found 2"),
        ("dualpipe-v", 2, 3, "takes at least 4 micro-batches, found 3"),
        ("gpipe", 1, 0, "at least one"),
    ],
)
def test_what_a_schedule_does_not_take_is_refused(
    name: str, virtual: int, micro_batches: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        schedule_orders(name, 2, micro_batches, virtual)


def test_orders_are_made_once() -> None:
    assert schedule_orders("1f1b", 4, 8) is schedule_orders("1f1b", 4, 8)


def test_groups_are_of_as_many_micro_batches_as_ranks_or_all_where_these_are_fewer() -> None:
    assert schedule_orders("interleaved", 4, 8, 2) is schedule_orders("interleaved", 4, 8, 2, 4)
    assert schedule_orders("interleaved", 4, 2, 2) is schedule_orders("interleaved", 4, 2, 2, 2)


def test_every_schedule_makes_orders_for_one_rank() -> None:
    for name, row in SCHEDULES.items():
        orders = schedule_orders(name, 1, 4, row.virtual or 2)
        assert set(orders.rank_of.tolist()) == {0}


def made_of(*kinds: int) -> Orders:
    """Return the order of one stage and one micro-batch that runs operations so."""
    count = len(kinds)
    nothing = np.zeros(count, np.int32)
    operations = Operations(np.array(kinds, np.int8), nothing, nothing, np.array([0, count]))
    return Orders(Shape(1, 1, 1, 1), np.zeros(1, np.int32), operations, np.zeros(count, np.bool_))


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        ((FORWARD,), "every stage must run every micro-batch forward and backward"),
        ((FORWARD, FORWARD, BACKWARD), "no stage may run a micro-batch twice in one direction"),
        ((BACKWARD, FORWARD), "a micro-batch must run forward, then backward, weights at the end"),
        ((WEIGHT, FORWARD, INPUT), "then backward, weights at the end"),
        ((FORWARD, WEIGHT, INPUT), "then backward, weights at the end"),
    ],
)
def test_an_order_that_is_none_is_refused(kinds: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        made_of(*kinds)
    assert made_of(FORWARD, INPUT, WEIGHT).split
    assert not made_of(FORWARD, BACKWARD).split


def test_operations_wait_for_the_stage_before_or_behind_and_else_for_none() -> None:
    """The first forward pass, and what follows another one on its own stage."""
    orders = schedule_orders("1f1b", 2, 1)
    assert orders.of_rank(0) == [("F", 0, 0), ("B", 0, 0)]
    assert orders.needs.tolist() == [-1, 3, 0, -1]


def test_stages_are_looped_unless_they_lie_in_a_v() -> None:
    assert places(2, 3).tolist() == [[0, 2, 4], [1, 3, 5]]
    assert places(2, 3, v_shaped=True).tolist() == [[0, 3, 4], [1, 2, 5]]


def test_too_few_or_too_many_turns_are_refused() -> None:
    """One stage of two micro-batches."""
    turns = [FORWARD, FORWARD, BACKWARD, BACKWARD]
    assert orders_of(Shape(1, 2, 1, 1), [np.array(turns)], places(1, 1)).of_rank(0)
    for wrong in (turns[1:], [*turns, BACKWARD]):
        with pytest.raises(ValueError, match=r"\d turns for 2 passes in one direction"):
            orders_of(Shape(1, 2, 1, 1), [np.array(wrong)], places(1, 1))


@st.composite
def orders(draw: st.DrawFn) -> Orders:
    name = draw(st.sampled_from(sorted(SCHEDULES)))
    row, ranks = SCHEDULES[name], draw(st.integers(1, 5))
    virtual = row.virtual or draw(st.integers(1, 3))
    least = max(1, row.per_stage * ranks * virtual)
    rounds = draw(st.integers(1, 4)) * ranks
    return schedule_orders(name, ranks, max(least, rounds), virtual)


def counted(made: Orders, rank: int) -> set[tuple[int, ...]]:
    """Return what a rank holds during each of its operations."""
    own = placed(made)[rank].tolist()
    kept, waiting, found = Counter[int](), Counter[int](), set()
    for kind, stage, _ in made.of_rank(rank):
        kept[stage] += kind == "F"
        waiting[stage] += kind == "I"
        found.add((*(kept[k] for k in own), *(waiting[k] for k in own)))
        kept[stage] -= kind in "BW"
        waiting[stage] -= kind == "W"
    return found


@given(orders())
def test_mixes_are_the_largest_of_what_is_held(made: Orders) -> None:
    for rank, mixes in enumerate(held_mixes(made)):
        every = counted(made, rank)
        assert {*mixes} <= every
        assert len({*mixes}) == len(mixes)
        for one in every:
            larger = [all(a <= b for a, b in zip(one, mix, strict=True)) for mix in mixes]
            assert sum(larger) >= 1
            assert sum(larger) == 1 or one not in mixes


@given(orders(), st.data())
def test_the_most_bytes_are_those_of_a_mix(made: Orders, data: st.DataObject) -> None:
    """The engine counts bytes operation by operation, here without gradients that wait."""
    sizes = data.draw(st.lists(st.integers(0, 99), min_size=made.shape.stages))
    import numpy as np

    peaks = peak_memory(made, np.array(sizes[: made.shape.stages]))
    for rank, mixes in enumerate(held_mixes(made)):
        own = [sizes[k] for k in placed(made)[rank]]
        most = max(sum(n * size for n, size in zip(mix, own, strict=False)) for mix in mixes)
        assert most == peaks[rank]
