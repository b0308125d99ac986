"""What stages were solved with raises the bounds of others, to no more than they take."""

import json

import numpy as np
import pytest
from hypothesis import assume, given

from ilp_planner.base.errors import PlanError
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.stages import StageBounds
from tests.examples import examples, for_each
from tests.optimize.bounds.test_pipeline import Listed, listed
from tests.tiny import fixed_problem

SAME = 1e-9  # relative


def sharpened(stages: StageBounds) -> bool:
    """Use the prices that were met, however few."""
    stages._left = 1
    return stages.sharpen(1)


@examples(15)
@given(listed())
def test_prices_that_were_met_raise_no_bound_above_the_time(part: Listed) -> None:
    assume(part.pipelines)
    own = part.part
    own.bound_by_work()
    cutoff = part.best()[0] * 1.5
    own.bound_by_stages(cutoff)
    opened = own.expand(cutoff)
    assume(opened.graph.arcs)
    own.refine(tuple(range(min(8, opened.graph.arcs))), 10.0)
    before = {place: own.stages.times(place).copy() for place in opened.places}
    sharpened(own.stages)
    for place, bounds in before.items():
        now, exact = own.stages.times(place), part.exact(place)
        assert (now >= bounds).all()
        known = exact < INFINITE
        assert (now[known] <= exact[known] * (1 + SAME)).all()
    again = OperatorPart(own.problem, own.micro_batch)
    own.raise_bound(own.bound * (1 + 1e-12), "anything")
    again.repeat(json.loads(json.dumps(own.record())))
    assert again.stages.prices == own.stages.prices
    again.bound_by_work()
    again.bound_by_stages(cutoff)
    for place in opened.places:  # but for stages that were solved, nothing is lost
        solved = np.zeros(again.stages.times(place).size, np.bool_)
        for key in own.stages.exact:
            if own.stages.key(place, key.entry) == key:
                solved[key.entry] = True
        now = own.stages.times(place)
        assert (again.stages.times(place) >= now * (1 - SAME))[~solved].all()


@for_each("price", [-1e-12, 1.0, float("nan")])
def test_a_price_that_proves_nothing_is_an_error_in_one_line(price: float) -> None:
    problem = fixed_problem()
    part = OperatorPart(problem, problem.micro_batch_sizes[0])
    row = {"devices": 1, "in_flight": 1, "seconds_per_byte": price}
    with pytest.raises(PlanError, match=r"^certificate: found a price of [^\n]+$"):
        part.repeat({"prices": [row]})
