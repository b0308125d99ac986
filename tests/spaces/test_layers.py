"""Which numbers of micro-batches are tried of what was asked for."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.lines import plan_lines
from ilp_planner.optimize.solve import solve
from ilp_planner.schedule.batches import Batches, possible_counts
from ilp_planner.spaces.layers import micro_batch_counts
from tests.brute import random_problem
from tests.examples import examples


@given(batch=st.integers(1, 400), sizes=st.lists(st.integers(1, 500), max_size=5))
@examples(3, more=67)
def test_counts_of_sizes(batch: int, sizes: list[int]) -> None:
    counts, notes = micro_batch_counts(batch, sizes, short=True)
    assert set(counts) <= set(possible_counts(batch))
    if not sizes:
        assert counts == possible_counts(batch)
        assert not notes
    kept = {Batches(batch, count).size for count in counts}
    for size in sizes:
        assert size in kept or any(note.startswith(f"micro-batch {size}: ") for note in notes)
        assert any(x <= size for x in kept)


def test_a_size_that_is_smaller_so_that_the_last_is_less_short() -> None:
    counts, notes = micro_batch_counts(1024, [60, 64], short=True)
    assert counts == (16, 18)
    assert notes == ["micro-batch 60: 18 of 57 samples hold the 1024 too"]


def test_where_every_micro_batch_is_full_sizes_divide_the_batch() -> None:
    assert micro_batch_counts(12, [])[0] == (1, 2, 3, 4, 6, 12)
    assert micro_batch_counts(12, [4, 5])[0] == (3,)
    with pytest.raises(SpecError, match=r"12 is not divisible by micro-batch 5; 10 would be$"):
        micro_batch_counts(12, [5])


def test_a_result_says_how_short_the_last_micro_batch_is() -> None:
    problem = dataclasses.replace(random_problem(0), global_batch=5, micro_batches=(3,))
    plan = solve(problem).plan
    assert plan is not None
    evaluation = evaluate(problem, plan)
    assert evaluation.legal
    lines = dict(plan_lines(problem, plan, evaluation))
    assert lines["iteration time"].endswith("for 5 samples in 3 micro-batches of 2, the last of 1")
    assert "short micro-batch" in lines["of which"]
    empty = dataclasses.replace(plan, micro_batches=4)  # 3 of 2 samples are all
    (violation, *_) = evaluate(problem, empty).violations
    assert str(violation).endswith("found 4 micro-batches, expected samples in each")
