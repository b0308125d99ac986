"""A tuner ends within the gap of the best plan of a set, and runs nothing twice."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.tune.tune import LAST, Ranking, Run, Tuner
from ilp_planner.specs.machine import Machine
from tests.analysis.calibration.machines import h100
from tests.analysis.tune.test_allowed import hidden, plans
from tests.examples import examples

GAP = 0.02


@dataclass
class Listed:
    """Plans by their numbers. lacking: those that need more memory than there is, which the others
    do not; a plan that lacks it says so of all."""

    predict: Sequence[Callable[[Machine], float]]
    most: int
    out: set[int] = field(default_factory=set)
    searched: bool = True

    def seconds(self, plan: int, machine: Machine) -> float:
        return self.predict[plan](machine)

    def ranking(self, machine: Machine, known: Sequence[int]) -> Ranking[int] | None:
        left = [plan for plan in range(len(self.predict)) if plan not in self.out]
        times = sorted((self.seconds(plan, machine), plan) for plan in left)[: len(known) + 1]
        if not self.searched:
            return None
        rest = math.inf if len(times) < len(known) + 1 else times[-1][0]
        return Ranking(tuple((plan, seconds) for seconds, plan in times), rest)

    def fits(self, plan: int) -> None:
        assert plan < self.most

    def fail(self, plan: int, *, memory: bool) -> None:
        self.out |= {*range(self.most, len(self.predict))} if memory else {plan}


def ended(seed: int, count: int, most: int, factor: float, refused: set[int]) -> float:
    """Return how much longer the best run takes than the fastest plan, where a machine's constants
    explain all runs. refused: plans below `most`, the number of those that have the memory."""
    truth = hidden(seed)
    tuner = Tuner(Listed(plans(seed, count), most), h100(), GAP)
    fine = [plan for plan in range(most) if plan not in refused]
    tried: list[int] = []
    while (answer := tuner.answer()).gap > GAP or answer.best is None:
        plan = answer.next
        assert plan is not None
        assert plan not in tried
        tried.append(plan)
        if plan >= most or plan in refused:
            tuner.fail(plan, memory=plan >= most)
        else:
            seconds = factor * tuner.plans.seconds(plan, truth)
            tuner.take(Run(plan, seconds, 0.005, answer.expected))
    if not math.isfinite(answer.bound):
        assert {*fine} <= {*tried}
    assert sum(plan >= most for plan in tried) <= 1  # the others need as much
    least = min(factor * tuner.plans.seconds(plan, truth) for plan in fine)
    return answer.best.seconds / least - 1


@given(st.integers(0, 10_000), st.integers(2, 12), st.floats(0.95, 1.05), st.data())
@examples(15)
def test_it_ends_and_tries_nothing_twice(
    seed: int, count: int, factor: float, data: st.DataObject
) -> None:
    most = data.draw(st.integers(1, count))
    refused = data.draw(st.sets(st.integers(0, most - 1), max_size=most - 1))
    assert ended(seed, count, most, factor, refused) >= 0


@pytest.mark.slow
def test_it_ends_at_the_best() -> None:
    """The machines that bounds are asked of are a sample of those that the runs allow, so that a
    proof may miss some: seldom, of problems that differ in all."""
    late = [ended(seed, 2 + seed % 11, 2 + seed % 11, 1.0, set()) for seed in range(60)]
    assert sum(one <= 3 * GAP for one in late) >= 57


def test_runs_that_are_faster_than_expected_put_a_proof_off() -> None:
    """As long as one of the last was: then others may be as well."""
    tuner = Tuner(Listed(plans(5, 9), 9), h100(), GAP)
    tuner.take(Run(0, 1.0, 0.0, 1.1))
    assert tuner.surprise == 0.0  # which all plans may share
    tuner.take(Run(1, 1.0, 0.0, 1.5))
    bounds = [tuner.answer().bound]
    for plan in range(2, 2 + LAST):
        assert tuner.surprise > 0
        tuner.take(Run(plan, 1.0, 0.0, 0.9))
    assert tuner.surprise == 0.0
    tuner.runs[1] = tuner.runs[1]._replace(expected=1.0)
    usual = Tuner(tuner.plans, h100(), GAP, runs=tuner.runs[:2]).answer().bound
    assert bounds[0] < usual


def test_what_was_not_searched_is_not_proved() -> None:
    tuner = Tuner(Listed(plans(5, 9), 9), h100(), GAP)
    tuner.take(Run(0, 1.0, 0.0, 1.0))
    tuner.plans.searched = False
    answer = tuner.answer()
    assert (answer.bound, answer.gap, answer.next) == (0.0, 1.0, None)
    assert answer.open == answer.machines
