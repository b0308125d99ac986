"""Bytes that move from one plan to another: counted as boxes, and parameter by parameter."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.analysis.replan.machines import lacking, moves
from ilp_planner.job.holdings import KINDS, NOBODY, Holdings, job_holdings
from ilp_planner.specs.training import TrainingJob
from tests.analysis.replan.listing import LAYERS, SHAPE, jobs, listed
from tests.examples import examples

WIDTHS = {"weights": 2, "states": 12}  # bytes per number


def small(job: TrainingJob) -> Holdings:
    """Return what the ranks hold where every unit has one small tensor of each kind."""
    sizes = np.outer([float(np.prod(SHAPE[kind.expert])) for kind in KINDS], list(WIDTHS.values()))
    held = job_holdings(job)
    return replace(held, sizes=np.tile(sizes, (LAYERS + 2, 1, 1)))


@st.composite
def changes(draw: st.DrawFn) -> tuple[TrainingJob, TrainingJob, list[int], list[bool]]:
    """Draw two jobs, the number that each new rank had, and which old ranks still have theirs."""
    old, new = draw(jobs()), draw(jobs())
    numbers = [*range(old.world), *([NOBODY] * new.world)]
    before = draw(st.permutations(numbers))[: new.world]
    alive = draw(st.lists(st.booleans(), min_size=old.world, max_size=old.world))
    return old, new, before, alive


@given(case=changes())
@examples(15)
def test_as_many_bytes_as_parameters_that_are_listed(
    case: tuple[TrainingJob, TrainingJob, list[int], list[bool]],
) -> None:
    old, new, before, alive = case
    olds, news = listed(old), listed(new)
    held = small(new)
    found = moves(small(old), held, np.array(before), np.array(alive))
    living = set().union(*(own for own, there in zip(olds, alive, strict=True) if there))

    def size(parameters: set[tuple[object, ...]]) -> float:
        return sum(WIDTHS[str(one[2])] for one in parameters)

    for rank, (wanted, was) in enumerate(zip(news, before, strict=True)):
        own = olds[was] if was != NOBODY and alive[was] else set()
        assert np.isclose(found.needed[rank], size(wanted))
        assert np.isclose(found.kept[rank], size(wanted & own))
        assert np.isclose(found.read[rank], size(wanted - living))
        assert np.isclose(found.moved[rank], size((wanted & living) - own))


@given(job=jobs())
@examples(20)
def test_from_a_plan_to_itself_nothing_moves(job: TrainingJob) -> None:
    held = job_holdings(job)
    found = moves(held, held, np.arange(job.world), np.ones(job.world, dtype=bool))
    assert found.total == 0.0
    assert found.from_checkpoint == 0.0


@given(case=changes())
@examples(20)
def test_a_device_that_was_not_there_takes_up_all_that_it_needs(
    case: tuple[TrainingJob, TrainingJob, list[int], list[bool]],
) -> None:
    old, new, before, alive = case
    found = moves(job_holdings(old), job_holdings(new), np.array(before), np.array(alive))
    added = np.array(before) == NOBODY
    np.testing.assert_allclose((found.moved + found.read)[added], found.needed[added])
    assert found.total >= found.needed[added].sum() - found.read[added].sum() - 1e-6
    assert found.most <= found.total


@given(case=changes())
@examples(20)
def test_the_more_devices_are_lost_the_more_is_read(
    case: tuple[TrainingJob, TrainingJob, list[int], list[bool]],
) -> None:
    old, new, _, alive = case
    olds, news = job_holdings(old), job_holdings(new)
    some = np.array(alive)
    fewer = some & (np.arange(old.world) % 2 == 0)
    assert (lacking(olds, news, fewer) >= lacking(olds, news, some) - 1e-6).all()
    assert lacking(olds, news, np.ones_like(some)).max() == 0.0
    nobody = lacking(olds, news, np.zeros_like(some))
    np.testing.assert_allclose(nobody, news.bytes)
