"""Numbers and arrays give the same, and numbers alone need no numpy."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.job.counts import larger, largest_row, smaller, where

NUMBERS = st.integers(-50, 50)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=6)


@given(NUMBERS, NUMBERS)
def test_numbers_and_arrays_agree(first: int, second: int):
    arrays = np.array([first, second]), np.array([second, second])
    assert larger(*arrays).tolist() == [larger(first, second), second]
    assert smaller(*arrays).tolist() == [smaller(first, second), second]
    assert where(np.array([first > 0]), second).tolist() == [where(first > 0, second)]


@given(ROWS)
def test_the_largest_row_is_the_same_by_numbers_and_arrays(rows: list[tuple[int, int, int]]):
    number, entries = largest_row(rows)
    arrays = [[np.array([entry, 0]) for entry in row] for row in rows]
    numbers, found = largest_row(arrays)
    assert numbers.tolist() == [number, 0]
    assert [entry.tolist() for entry in found] == [[entry, 0] for entry in entries]
    assert sum(entries) == max(map(sum, rows))


def test_numbers_stay_plain():
    """An array of one would be equal, and need numpy."""
    number, entries = largest_row([(1, 2), (2, 2), (3, 1)])
    for found, expected in (
        (larger(1, 2), 2),
        (smaller(1, 2), 1),
        (where(True, 3), 3),
        (where(False, 3), 0.0),
        (number, 1),
        *zip(entries, (2.0, 2.0), strict=True),
    ):
        assert found == expected
        assert type(found) is type(expected)


def test_the_memory_of_a_rank_needs_no_numpy():
    code = (
        "import sys; from ilp_planner.job.memory import rank_memory; "
        "from ilp_planner.specs.decoder import Decoder; "
        "from ilp_planner.specs.training import TrainingJob; "
        "model = Decoder(layers=4, hidden=64, heads=4, sequence=32, vocab=100); "
        "job = TrainingJob(model=model, micro_batch=1, global_batch=4, pp=2); "
        "assert rank_memory(job, 1).peak > 0; assert 'numpy' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
