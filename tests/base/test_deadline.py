"""The clock that every search asks, itself put forward by hand."""

import math

import pytest

from ilp_planner.base import deadline as module
from ilp_planner.base.deadline import Deadline, OutOfTimeError


@pytest.fixture
def clock(monkeypatch):
    """Return a list whose last entry is the time."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[-1])
    return now


def test_time_runs_out(clock):
    deadline = Deadline(10.0)
    assert (deadline.elapsed, deadline.left, deadline.effort(3.0)) == (0.0, 10.0, 30.0)
    clock.append(109.0)
    assert (deadline.elapsed, deadline.left, deadline.goon()) == (9.0, 1.0, True)
    deadline.check()
    clock.append(111.0)
    assert (deadline.elapsed, deadline.left, deadline.effort(3.0)) == (11.0, 0.0, 0.0)
    assert not deadline.goon()
    with pytest.raises(OutOfTimeError):
        deadline.check()


def test_a_part_of_the_time_ends_with_the_whole(clock):
    whole = Deadline(10.0)
    clock.append(106.0)
    assert whole.within(3.0).left == 3.0
    assert whole.within(30.0).left == 4.0
    assert Deadline(math.inf).within(2.0).left == 2.0


def test_without_a_limit_there_is_time_for_anything(clock):
    clock.append(1e9)
    assert Deadline(math.inf).effort(1.0) == math.inf


def test_whoever_has_enough_ends_it_early(clock):
    enough = []
    deadline = Deadline(10.0, wanted=lambda: not enough)
    part = deadline.within(5.0)
    assert deadline.goon()
    assert part.goon()
    enough.append(True)
    assert not deadline.goon()
    assert not part.goon()
    assert deadline.left == 10.0


def test_time_may_have_begun_before(clock):
    deadline = Deadline(10.0, started=96.0)
    assert (deadline.elapsed, deadline.left) == (4.0, 6.0)


def test_nothing_has_a_moment_of_its_own_where_it_may_not_depend_on_the_machine(clock):
    assert Deadline(10.0).moment(3.0).left == 3.0
    assert Deadline(10.0, steady=True).moment(3.0).left == 10.0
