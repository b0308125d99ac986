"""What is said of memory over time, and a short run of it."""

import random
from pathlib import Path

import pytest

from tests.faults.soak import MEBIBYTE, Sample, exports, grows, held, reads, solves


def line(begin: float, end: float, count: int = 200) -> list[Sample]:
    """Return samples that go from so many MiB to so many."""
    return [
        Sample(n / count, int((begin + (end - begin) * n / count) * MEBIBYTE)) for n in range(count)
    ]


def test_what_is_held_is_the_most_of_the_last_tenth() -> None:
    samples = [Sample(0.01, 9), Sample(0.2, 7), Sample(0.45, 3), Sample(0.48, 5), Sample(0.97, 4)]
    assert [held(samples, share) for share in (0.1, 0.5, 1.0)] == [9, 5, 4]
    assert held(samples, 0.4) == 7  # nothing ended in that tenth


def test_memory_that_grows_is_seen() -> None:
    assert grows(line(400, 500))
    assert not grows(line(500, 400))
    assert not grows(line(400, 405))
    assert not grows(
        [*line(100, 500)[:90], *(Sample(0.46 + n / 1000, 500 * MEBIBYTE) for n in range(540))]
    )


@pytest.mark.slow
@pytest.mark.parametrize("work", [solves, reads, exports])
def test_every_kind_of_work_ends_as_it_should(
    work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        work(random.Random(seed))
