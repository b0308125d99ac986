"""Schedules, against a replay of Megatron's two: seconds, and micro-batches in flight."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.formulas import (
    Interleaved,
    OneForwardOneBackward,
    rank_of_stage,
    schedule_of,
)
from ilp_planner.schedule.orders import held_mixes, placed
from ilp_planner.schedule.schedules import schedule_orders

LOADS = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=8)


def replay(micro_batches, ranks):
    """Return when a pipeline of equal ranks ends that runs 1F1B, a pass taking one second."""
    orders = []
    for rank in range(ranks):
        warm = min(ranks - rank - 1, micro_batches)
        order = [("forward", n) for n in range(warm)]
        for n in range(micro_batches):
            if warm + n < micro_batches:
                order.append(("forward", warm + n))
            order.append(("backward", n))
        orders.append(order)
    ended, clock, place = {}, [0] * ranks, [0] * ranks
    while any(place[r] < len(orders[r]) for r in range(ranks)):
        for r in range(ranks):
            if place[r] == len(orders[r]):
                continue
            way, n = orders[r][place[r]]
            needs = []
            if way == "forward" and r > 0:
                needs.append((r - 1, "forward", n))
            if way == "backward":
                needs.append((r + 1, "backward", n) if r < ranks - 1 else (r, "forward", n))
            if all(need in ended for need in needs):
                clock[r] = max([clock[r], *(ended[need] for need in needs)]) + 1
                ended[r, way, n] = clock[r]
                place[r] += 1
    return max(clock)


@given(st.integers(1, 12), st.integers(1, 6))
def test_seconds_are_those_of_a_replay(micro_batches, ranks):
    """A forward and a backward pass of a second each: a rank's load is two."""
    schedule = OneForwardOneBackward(micro_batches)
    assert schedule.iteration_time([2.0] * ranks) == replay(micro_batches, ranks)


def test_seconds_of_ranks_that_differ():
    schedule = OneForwardOneBackward(5)
    assert schedule.steady([1.0, 3.0, 2.0]) == 4 * 3.0
    assert schedule.fill([1.0, 3.0, 2.0]) == 6.0
    assert schedule.iteration_time([1.0, 3.0, 2.0]) == 4 * 3.0 + 6.0
    assert schedule.bubble([1.0, 3.0, 2.0]) == 3.0
    assert schedule.counts([1.0, 3.0, 3.0]) == (1.0, 5.0, 1.0)
    assert OneForwardOneBackward(1).iteration_time([float("inf")]) == float("inf")


@given(LOADS, st.integers(1, 20), st.integers(1, 5))
def test_all_say_the_same(loads, micro_batches, virtual):
    schedule = schedule_of(micro_batches, ranks=len(loads), virtual=virtual)
    seconds = schedule.iteration_time(loads)
    assert virtual * seconds == pytest.approx(schedule.weight * max(loads) + sum(loads))
    assert seconds == pytest.approx(micro_batches * max(loads) + schedule.bubble(loads))
    counted = zip(schedule.counts(loads), loads, strict=True)
    assert seconds == pytest.approx(sum(count * load for count, load in counted))


@pytest.mark.parametrize(("ranks", "virtual"), [(2, 1), (4, 2), (8, 3)])
def test_bubble(ranks, virtual):
    """Narayanan et al. 2021 (arXiv 2104.04473): (p - 1) / v micro-batches of equal ranks."""
    schedule = schedule_of(8 * ranks, ranks=ranks, virtual=virtual)
    assert schedule.bubble([1.0] * ranks) == pytest.approx((ranks - 1) / virtual)


@pytest.mark.parametrize("virtual", [1, 2, 5])
def test_every_cut_between_stages_is_crossed(virtual):
    schedule = schedule_of(12, ranks=4, virtual=virtual)
    cuts = 4 * virtual - 1
    assert sum(schedule.sends(behind) for behind in range(4)) == cuts
    assert schedule.sends(0) == virtual - 1


@given(st.integers(1, 12), st.integers(1, 40))
def test_one_forward_one_backward(pp, micro_batches):
    schedule = schedule_of(micro_batches, ranks=pp)
    flights = [schedule.in_flight(pp - 1 - rank) for rank in range(pp)]
    assert flights == [min(pp - rank, micro_batches) for rank in range(pp)]
    assert all(schedule.held(behind) == ((flights[-1 - behind],),) for behind in range(pp))


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_interleaved(pp, virtual, groups):
    schedule = schedule_of(groups * pp, ranks=pp, virtual=virtual)
    flights = [schedule.in_flight(behind) for behind in range(pp)]
    assert flights == sorted(flights)
    for behind in range(pp):
        for counts in schedule.held(behind):
            assert sum(counts) == flights[behind]
            assert min(counts) >= 0
            # The last virtual stage of the last rank goes back at once.
            if behind == 0:
                assert counts[-1] <= 1


@pytest.mark.parametrize(("pp", "virtual"), [(2, 2), (4, 2), (8, 3), (4, 8)])
def test_penalty_of_interleaving(pp, virtual):
    """Narayanan et al. 2021 (arXiv 2104.04473): 1 + (p - 1) / (p v) of 1F1B on the first rank."""
    schedule = schedule_of(8 * pp, ranks=pp, virtual=virtual)
    assert schedule.in_flight(pp - 1) / virtual / pp == pytest.approx(1 + (pp - 1) / (pp * virtual))
    assert schedule.in_flight(pp - 1) == sum(schedule.held(pp - 1)[0])


def test_few_micro_batches():
    """With as many micro-batches as ranks, no more than there are can be in flight."""
    schedule = Interleaved(4, virtual=2, group=4)
    assert schedule.in_flight(3) == 8
    assert Interleaved(2, virtual=2, group=4).in_flight(3) == 4
    assert schedule.held(3) == ((4, 4),)


@pytest.mark.parametrize(
    ("name", "virtual"), [("interleaved-zb", 3), ("zb-v", 2), ("dualpipe-v", 2)]
)
def test_divided_backward_passes(name, virtual):
    """Where stages are and what waits is that of the order of operations with the same name."""
    pp, micro_batches = 4, 16
    schedule = schedule_of(micro_batches, ranks=pp, virtual=virtual, name=name)
    assert (schedule.name, schedule.divides) == (name, True)
    place = placed(schedule_orders(name, pp, micro_batches, virtual)).tolist()
    assert [list(schedule.stages_of(rank, pp)) for rank in range(pp)] == place
    for rank, own in enumerate(place):
        assert {rank_of_stage(stage, pp, v_shaped=schedule.v_shaped) for stage in own} == {rank}
        for mix in schedule.held(pp - 1 - rank):
            kept, waiting = mix[:virtual], mix[virtual:]
            assert all(0 <= less <= more for less, more in zip(waiting, kept, strict=True))
            assert sum(kept) <= schedule.in_flight(pp - 1 - rank)


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_zero_bubble_v_holds_no_more_than_1f1b(ranks):
    """Qi et al. 2024 (arXiv 2405.15362): of stages half as large, twice as many as there are ranks,
    on every rank alike."""
    schedule = schedule_of(4 * ranks, ranks=ranks, virtual=2, name="zb-v")
    assert {schedule.in_flight(behind) for behind in range(ranks)} == {2 * ranks}


def test_stages_of_ranks_are_those_whose_rank_it_is() -> None:
    """Also with more virtual stages than a V has."""
    for name, virtual in (("1f1b", 3), ("interleaved-zb", 3), ("zb-v", 2), ("zb-v", 4)):
        schedule = schedule_of(8, ranks=4, virtual=virtual, name=name)
        found = [schedule.stages_of(rank, 4) for rank in range(4)]
        v_shaped = name == "zb-v"
        assert found == [
            tuple(s for s in range(4 * virtual) if rank_of_stage(s, 4, v_shaped=v_shaped) == rank)
            for rank in range(4)
        ]
    assert [rank_of_stage(stage, 2) for stage in range(5)] == [0, 1, 0, 1, 0]
    assert [rank_of_stage(stage, 2, v_shaped=True) for stage in range(5)] == [0, 1, 1, 0, 0]


def test_full_micro_batches_are_all_but_a_short_one() -> None:
    whole = schedule_of(5, ranks=2, part=0.5).whole
    assert (whole.micro_batches, whole.part) == (4, 1.0)
    assert schedule_of(5, ranks=2).whole.micro_batches == 5


@pytest.mark.parametrize("name", ["interleaved-zb", "zb-v", "dualpipe-v"])
def test_a_divided_schedule_holds_what_the_order_of_its_rank_does(name: str) -> None:
    schedule = schedule_of(8, ranks=3, virtual=2, name=name)
    by_rank = held_mixes(schedule_orders(name, 3, 8, 2))
    assert [schedule.held(behind) for behind in (2, 1, 0)] == list(by_rank)
    assert schedule.divides


def test_messages_that_a_rank_holds_besides_what_it_keeps() -> None:
    """The gradient that it sent last; where virtual stages take turns, also what comes early."""
    plain, turns = schedule_of(8, ranks=2), schedule_of(8, ranks=2, virtual=2)
    assert (plain.buffers, turns.buffers) == (1, 3)
    assert not plain.divides
    assert not turns.divides
