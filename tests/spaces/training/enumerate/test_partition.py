"""The best cut against all cuts, and against the other solvers."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solvers import registry
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.training.enumerate.partition import INFINITE, CutTables, best_cut
from ilp_planner.spaces.training.search.cut_graph import cut_graph
from tests.examples import examples


@st.composite
def tables(draw):
    """Random chains: times and peaks that grow with the range, any memory."""
    length, ranks = draw(st.integers(2, 7)), draw(st.integers(1, 3))
    ranks = min(ranks, length)
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    kinds = draw(st.integers(1, 2))

    def ranges(low):
        sums = np.concatenate(
            (np.zeros((kinds, 1)), random.integers(low, 6, (kinds, length)).cumsum(axis=1)), axis=1
        )
        fixed = random.integers(0, 4, (kinds, 1, 1))
        return np.triu(sums[:, None, :] - sums[:, :, None]) + fixed

    work = ranges(1).astype(float)
    return CutTables(
        kind=random.integers(0, kinds, ranks),
        load=work,
        peak=ranges(0).astype(float),
        row=np.arange(ranks),
        fits=random.random((ranks, length + 1, length + 1)) < draw(st.sampled_from((0.6, 1.0))),
        least=np.array([1] * ranks),
        weight=float(draw(st.sampled_from((0, 1, 3, 20)))),
        work=work,
        forward=work * draw(st.sampled_from((0.2, 1 / 3, 0.5))),
        sends=np.append(random.random(ranks - 1) * draw(st.sampled_from((0.0, 0.5, 4.0))), 0.0),
        micro_batches=draw(st.integers(1, 9)),
        virtual=1,
    )


def every_value(found):
    """Yield the value of every cut that memory allows."""
    ranks, length = found.kind.size, found.load.shape[1] - 1
    for inner in itertools.combinations(range(1, length), ranks - 1):
        ends = (0, *inner, length)
        pairs = list(itertools.pairwise(ends))
        if all(found.fits[found.row[r], a, b] for r, (a, b) in enumerate(pairs)):
            loads = [found.load[found.kind[r], a, b] for r, (a, b) in enumerate(pairs)]
            peaks = [found.peak[found.kind[r], a, b] for r, (a, b) in enumerate(pairs)]
            yield found.weight * max(loads) + sum(loads) + max(peaks), ends


@examples(150)
@given(found=tables(), cutoff=st.sampled_from((INFINITE, 60.0, 25.0)))
def test_no_cut_is_better(found, cutoff):
    best = min(every_value(found), default=(math.inf, ()))
    searched = best_cut(found, cutoff)
    if best[0] >= cutoff or not best[1]:
        assert searched.cut is None
        assert searched.bound >= min(cutoff, INFINITE)
    else:
        assert searched.cut is not None
        assert searched.cut.value == pytest.approx(best[0])
        assert searched.cut.ends in {ends for value, ends in every_value(found)}
        assert searched.bound == pytest.approx(best[0])


@examples(7)
@given(found=tables())
def test_other_solvers_agree(found):
    graph = cut_graph(found)
    mine = best_cut(found).cut
    solution = registry.get("cp-sat").solve(graph, Limits(seconds=20))
    if mine is None:
        assert solution.status is Status.INFEASIBLE
    else:
        assert graph.path_time(solution.path) == pytest.approx(mine.value)


@given(found=tables())
@examples(25)
def test_a_stop_keeps_a_valid_bound(found):
    best = min((value for value, _ in every_value(found)), default=math.inf)
    stopped = best_cut(found, goon=lambda: False)
    assert stopped.bound <= best * (1 + 1e-12) or math.isinf(best)
