"""What ranks hold at once, against a count of every operation, one by one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.schedule.engine import peak_memory
from ilp_planner.schedule.held import held_mixes
from ilp_planner.schedule.orders import Orders, placed
from ilp_planner.schedule.schedules import SCHEDULES, schedule_orders


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
