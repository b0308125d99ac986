"""The program of what a proof leaves open, against simulations of all cuts."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.deadline import Deadline
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.enumerate.partition import least_peak
from ilp_planner.spaces.training.search.last_cuts import LastCuts, cut_program
from tests.examples import examples
from tests.spaces.training.bounds.test_schedule import every_cut, every_spread, interleaved_tables
from tests.spaces.training.enumerate.test_partition import tables


def peak_of(found, ends):
    """Return the largest synchronisation of a cut."""
    return float(found.peak[found.kind, list(ends[:-1]), list(ends[1:])].max())


def solved(model):
    solution = LastCuts(model=model, names=()).solver(math.inf)(Limits(), Deadline(60))
    assert solution.status is Status.OPTIMAL
    assert solution.objective == pytest.approx(solution.bound)
    return solution.objective


@examples(30)
@given(found=st.one_of(tables(), interleaved_tables()))
def test_its_optimum_is_the_bound_and_with_simulated_cuts_the_plan(found):
    cuts = LeastCuts(found)
    every = dict(every_spread(found) if found.virtual > 1 else every_cut(found))
    assume(every)
    values = {ends: seconds + peak_of(found, ends) for ends, seconds in every.items()}
    best = min(values.values())
    bounds = {ends: cuts.least(ends) + peak_of(found, ends) for ends in every}
    least = solved(cut_program(cuts, best * 1.001, {})[0])
    assert least == pytest.approx(min(bounds.values()))
    assert cuts.seconds + least_peak(found) <= least * (1 + 1e-9)
    near = {ends: seconds for ends, seconds in values.items() if bounds[ends] < best}
    model, names = cut_program(cuts, best * 1.001, near)
    assert solved(model) == pytest.approx(best)
    assert len(names) == model.arcs
