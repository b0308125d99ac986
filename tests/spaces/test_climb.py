"""The climb among micro-batch sizes ends at the fastest plan that it has met."""

import math

from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.spaces.climb import climbed
from tests.tiny import fixed_problem

SIZES = st.sets(st.integers(1, 4096), max_size=12).map(sorted)
SECONDS = st.one_of(st.just(math.inf), st.floats(1.0, 2.0))


@given(SIZES.flatmap(lambda sizes: st.fixed_dictionaries(dict.fromkeys(sizes, SECONDS))))
def test_the_climb_ends_at_the_fastest_size_that_it_has_met(taken: dict[int, float]) -> None:
    """Whatever plans take, and wherever there is none; no size is asked for twice."""
    asked: list[int] = []

    def seconds(size: int) -> float:
        asked.append(size)
        return taken[size]

    found = climbed(fixed_problem(), sorted(taken), seconds)
    assert len(set(asked)) == len(asked)
    if found is None:
        assert set(taken.values()) <= {math.inf}
        assert len(asked) == len(taken)
    else:
        assert taken[found] == min(taken[size] for size in asked) < math.inf


@given(SIZES.filter(bool), st.integers(0, 11))
def test_of_a_valley_the_climb_finds_the_bottom(sizes: list[int], bottom: int) -> None:
    """If each step towards it is worth a tenth."""
    bottom = min(bottom, len(sizes) - 1)
    taken = {size: 1.1 ** abs(place - bottom) for place, size in enumerate(sizes)}
    assert climbed(fixed_problem(), sizes, taken.__getitem__) == sizes[bottom]
