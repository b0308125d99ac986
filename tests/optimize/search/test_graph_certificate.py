"""A certificate holds when every part can be derived again, and only then."""

import copy
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.search import graph_certificate
from ilp_planner.optimize.search.graph_certificate import at_most, graph_bounds
from ilp_planner.optimize.search.graph_search import WIDTHS
from ilp_planner.optimize.solve import solve
from tests.brute import cheapest, random_problem
from tests.examples import examples


@examples(12)
@given(seed=st.integers(0, 10**6))
def test_what_was_proved_is_proved_again(seed):
    problem = random_problem(seed, devices=4)
    result = solve(problem)
    check = check_certificate(problem, result.certificate)
    assert check.holds
    assert check.bound == pytest.approx(result.bound, rel=1e-9)


@examples(6, more=8)
@given(seed=st.integers(0, 10**6))
def test_a_bound_above_the_optimum_does_not_hold(seed):
    problem = random_problem(seed, devices=4)
    optimum, plan = cheapest(problem)
    assume(plan is not None)
    certificate = copy.deepcopy(solve(problem).certificate)
    for part in certificate["parts"]:
        part["bound_s"] = optimum * 1.01
    check = check_certificate(problem, certificate)
    assert not check.holds
    assert check.bound <= optimum * (1 + 1e-9)


@pytest.mark.parametrize(
    ("claimed", "derived", "bound"),
    [
        (2.0, 1.5, 1.5),
        (2.0, 2.5, 2.0),
        (2.0, NEVER, NEVER),
        (NEVER, NEVER, NEVER),
        (-1.0, 1.5, 0.0),
        (0.5, 1.5, 0.5),
    ],
)
def test_no_more_is_said_than_was_claimed_but_that_there_is_no_plan(claimed, derived, bound):
    assert at_most(claimed, derived) == bound


class Derived:
    """A part whose bound rises with every look at it; what was done to it, in order."""

    def __init__(self, monkeypatch, *looks, begins=0.0, boxed=None, done=False):
        self.did, self.looks, self.boxed = [], list(looks), boxed
        self.state = SimpleNamespace(bound=begins, done=done)
        self.search = SimpleNamespace(states=[self.state], objective=0.1)
        for name in ("look_below", "boxable", "search_boxes", "place_exactly"):
            monkeypatch.setattr(graph_certificate, name, getattr(self, name))

    def look_below(self, search, state, guess, width):
        self.did.append(width)
        state.bound, self.search.objective, exact = self.looks.pop(0)
        return exact

    def boxable(self, search, state):
        return self.boxed is not None

    def search_boxes(self, search, state, guess):
        self.did.append("boxes")
        state.bound, self.search.objective = self.boxed

    def place_exactly(self, search, state):
        self.did.append("places")

    def bound(self):
        """Return the bound that is derived again of a part of which 1 s is claimed."""
        (found,) = graph_bounds(self.search, [{"bound_s": 1.0}])
        return found


def test_what_is_as_high_as_claimed_is_not_looked_at(monkeypatch):
    part = Derived(monkeypatch, begins=1 - ROUNDING)
    assert part.bound() == 1 - ROUNDING
    assert part.did == []


def test_a_part_is_looked_at_ever_wider_until_a_look_is_exact(monkeypatch):
    looks = (0.5, 1.0, False), (0.7, 1.0, False), (0.8, 1.0, True)
    part = Derived(monkeypatch, *looks)
    assert part.bound() == 0.8
    assert part.did == list(WIDTHS[:3])


def test_it_is_looked_at_until_the_claim_is_reached(monkeypatch):
    part = Derived(monkeypatch, (0.5, 1.0, False), (1 - ROUNDING, 1.0, False))
    assert part.bound() == 1 - ROUNDING
    assert part.did == list(WIDTHS[:2])


def test_what_labels_leave_open_is_searched_in_boxes(monkeypatch):
    part = Derived(monkeypatch, (0.5, 1.0, False), boxed=(0.9, 1.0))
    assert part.bound() == 0.9
    assert part.did == [WIDTHS[0], "boxes", "places"]


@pytest.mark.parametrize(("reached", "done"), [(1 - ROUNDING, False), (0.5, True)])
def test_there_are_no_boxes_of_what_is_reached_or_done(monkeypatch, reached, done):
    part = Derived(monkeypatch, (reached, 1.0, True), boxed=(0.9, 1.0), done=done)
    assert part.bound() == reached
    assert part.did == [WIDTHS[0]]


@pytest.mark.parametrize(
    ("reached", "plan", "bound"),
    [(0.5, 0.6, 0.5), (0.9, 0.6, 0.6), (NEVER, 0.6, 0.6), (NEVER, 1.0, NEVER), (1.2, 1.0, 1.0)],
)
def test_a_plan_below_the_claim_is_above_every_bound(monkeypatch, reached, plan, bound):
    """plan: seconds of the best one that looking finds; one that takes as long has no interest."""
    assert Derived(monkeypatch, (reached, plan, True)).bound() == bound
