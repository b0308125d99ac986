"""How the samples of an iteration are parted."""

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.batches import Batches, possible_counts
from tests.examples import examples

SAMPLES = st.integers(1, 3000)


@given(samples=SAMPLES, data=st.data())
def test_every_sample_is_in_one_micro_batch(samples: int, data: st.DataObject) -> None:
    batches = Batches(samples, data.draw(st.sampled_from(possible_counts(samples))))
    assert batches.possible
    assert 1 <= batches.last <= batches.size
    assert (batches.count - 1) * batches.size + batches.last == samples
    assert batches.short == (samples % batches.count != 0)


@examples(30)
@given(samples=st.integers(1, 300))
def test_counts_are_those_that_leave_no_micro_batch_empty(samples: int) -> None:
    every = range(1, samples + 2)
    assert possible_counts(samples) == tuple(b for b in every if Batches(samples, b).possible)
    assert {b for b in every if samples % b == 0} <= set(possible_counts(samples))


def test_a_count_that_cannot_be() -> None:
    assert not Batches(16, 9).possible  # 8 micro-batches of 2 are all
    assert not Batches(16, 0).possible
    assert not Batches(16, -1).possible
    assert all(not Batches(16, n).short and Batches(16, n).part == 1 for n in (-1, 0, 9, 17))
    assert Batches(16, 8) == Batches(samples=16, count=8)
    assert Batches(10, 3) == Batches(samples=10, count=3)
    assert (Batches(10, 3).size, Batches(10, 3).last) == (4, 2)


@given(samples=SAMPLES, shares=st.lists(st.integers(1, 9), min_size=1, max_size=9))
def test_replicas_have_room_for_the_last_micro_batch(samples: int, shares: list[int]) -> None:
    """Whoever shares a micro-batch can take the last one, and nobody gets more of it."""
    size = sum(shares)
    count = -(-samples // size)
    batches = Batches(samples, count)
    if batches.size != size:
        return
    last = [batches.share_of_last(share) for share in shares]
    assert sum(last) >= batches.last
    assert all(1 <= of_last <= share for of_last, share in zip(last, shares, strict=True))
    if not batches.short:
        assert last == shares
