"""Micro-batches in flight, against a replay of Megatron's two schedules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.anatomy.schedule import held, in_flight
from ilp_planner.specs.pipeline_layout import even_layout
from ilp_planner.specs.training import TrainingJob
from tests.training_jobs import llama


def pipeline(pp, virtual, micro_batches, dp=1):
    model = llama(layers=pp * virtual)
    return TrainingJob(
        model=model,
        micro_batch=1,
        global_batch=micro_batches * dp,
        pp=pp,
        dp=dp,
        layout=even_layout(model.layers, pp, virtual),
    )


@given(st.integers(1, 12), st.integers(1, 40))
def test_one_forward_one_backward(pp, micro_batches):
    job = pipeline(pp, 1, micro_batches)
    flights = [in_flight(job, rank) for rank in range(pp)]
    assert flights == [min(pp - rank, micro_batches) for rank in range(pp)]
    assert flights == sorted(flights, reverse=True)
    assert all(held(job, rank) == ((flights[rank],),) for rank in range(pp))


@given(st.integers(2, 6), st.integers(2, 4), st.integers(1, 4))
def test_interleaved(pp, virtual, groups):
    job = pipeline(pp, virtual, groups * pp)
    flights = [in_flight(job, rank) for rank in range(pp)]
    assert flights == sorted(flights, reverse=True)
    for rank in range(pp):
        for counts in held(job, rank):
            assert sum(counts) == flights[rank]
            assert min(counts) >= 0
            # The last virtual stage of the last rank goes back at once.
            if rank == pp - 1:
                assert counts[-1] <= 1


@pytest.mark.parametrize(("pp", "virtual"), [(2, 2), (4, 2), (8, 3), (4, 8)])
def test_penalty_of_interleaving(pp, virtual):
    """Narayanan et al. 2021 (arXiv 2104.04473): 1 + (p - 1) / (p v) of 1F1B on the first rank."""
    job = pipeline(pp, virtual, 8 * pp)
    assert in_flight(job, 0) / virtual / pp == pytest.approx(1 + (pp - 1) / (pp * virtual))
    assert max(in_flight(job, 0), 0) == sum(held(job, 0)[0])


def test_few_micro_batches():
    """With as many micro-batches as ranks, no more than there are can be in flight."""
    job = pipeline(4, 2, 4)
    assert in_flight(job, 0) == 8
    assert in_flight(replace(job, global_batch=2), 0) == 4
    assert held(job, 0) == ((4, 4),)
