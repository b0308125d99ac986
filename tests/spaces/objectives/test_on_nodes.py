"""A set of nodes is searched in turns, and what one turn knows the next one has."""

import math
from typing import Any

import pytest

import ilp_planner
from ilp_planner.base.deadline import Deadline, OutOfTimeError
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import EVERY_PART
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.objectives.node_sets import node_sets
from ilp_planner.spaces.objectives.on_nodes import SetSearch
from ilp_planner.spaces.training import space as megatron_space

UNTIL_PROVED = Task(Limits(), "auto", None, None)


@pytest.fixture
def whole() -> Problem[Any]:
    """Return a job of many choices of degrees, on nodes that cost the same."""
    return ilp_planner.problem(
        model="llama3-8b", gpus="64xH100", global_batch=64, space="megatron", price="H100-80GB=2"
    )


@pytest.fixture
def searched(whole: Problem[Any]) -> SetSearch:
    """Return the search of all nodes."""
    every = node_sets(whole.cluster)
    return SetSearch(whole, max(every, key=lambda one: len(one.nodes)))


def names(search: SetSearch) -> list[str]:
    return [record["part"] for record in search.records]


def early(monkeypatch: pytest.MonkeyPatch, search: SetSearch) -> None:
    """Give a set a turn that ends before its parts are listed."""

    def no_time(*arguments: object) -> None:
        raise OutOfTimeError

    with monkeypatch.context() as patched:
        patched.setattr(megatron_space, "megatron_parts", no_time)
        search.work(UNTIL_PROVED, math.inf)


@pytest.mark.slow
def test_a_turn_that_ends_before_the_parts_are_listed_is_followed_by_others(
    monkeypatch: pytest.MonkeyPatch, searched: SetSearch
) -> None:
    """It has a plan and one bound, and takes nothing from what comes later."""
    assert not searched.looked
    early(monkeypatch, searched)
    assert searched.looked
    assert names(searched) == [EVERY_PART]
    first, bound = searched.seconds, searched.bound
    assert bound < first < math.inf
    searched.work(UNTIL_PROVED, first)
    assert EVERY_PART not in names(searched)
    assert len(names(searched)) > 1
    assert searched.seconds < first
    assert searched.bound == pytest.approx(searched.seconds)
    listed, least = searched.records, searched.bound
    early(monkeypatch, searched)
    assert (searched.records, searched.bound) == (listed, least)


def test_a_turn_without_time_for_the_bounds_of_the_one_before_ends(searched: SetSearch) -> None:
    """They are taken by part, so that the parts are listed first."""
    searched.work(UNTIL_PROVED, math.inf)
    seconds, records = searched.seconds, searched.records
    searched.work(Task(Limits(), "auto", None, Deadline(0.0)), math.inf)
    assert (searched.seconds, searched.records) == (seconds, records)
