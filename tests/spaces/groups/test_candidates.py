"""The candidates that are left out: only those that another one beats in everything."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from ilp_planner.spaces.groups.candidates import drop_dominated
from ilp_planner.spaces.groups.parts import GroupPart
from tests.brute import random_problem
from tests.examples import examples


@examples(25)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 30))
def test_what_is_dropped_is_beaten_by_one_that_is_kept(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)

    def few(*shape: int) -> np.ndarray:
        return random.integers(0, 3, shape)  # ties

    extra, in_flight, kind = few(size).astype(float), few(size), random.integers(0, 2, size)
    use, seconds = few(size, 2), few(size, 2).astype(float)
    better = np.array([[True, False], [random.random() < 0.5, True]])
    keep = np.ones(size, np.bool_)
    drop_dominated(extra, in_flight, kind, use, seconds, better, keep)

    def beats(a: int, b: int) -> bool:
        """Tell whether a is as good as b, which comes after it: it is not faster."""
        as_good = extra[a] <= extra[b] and in_flight[a] >= in_flight[b] and a < b
        as_good &= (use[a] <= use[b]).all() and (seconds[a] <= seconds[b]).all()
        return bool(as_good and better[kind[a], kind[b]])

    for b in range(size):
        assert keep[b] != any(keep[a] and beats(a, b) for a in range(size))


@examples(40)
@example(seed=159)
@example(seed=347)
@given(seed=st.integers(0, 2**32 - 1))
def test_other_stages_take_no_less_than_what_is_outside(seed: int) -> None:
    """Whatever groups they have: in these examples, groups of two types are faster on a range than
    the fastest groups on its layers one by one."""
    problem = random_problem(seed)
    for batches in problem.micro_batches:
        found = GroupPart(problem, batches).catalogue
        c, layers = found.stages, found.layers
        fastest = np.full((layers, layers + 1), np.inf)
        np.minimum.at(fastest, (c.start, c.stop), c.time)
        for stages in range(1, layers + 1):
            for cuts in combinations(range(1, layers), stages - 1):
                rows = list(pairwise((0, *cuts, layers)))
                seconds = [fastest[row] for row in rows]
                for row, own in zip(rows, seconds, strict=True):
                    if np.isfinite(sum(seconds)):
                        assert found.outside[row] <= (sum(seconds) - own) * (1 + 1e-9)
