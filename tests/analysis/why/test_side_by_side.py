"""Work in processes of its own."""

import os
import time
from collections.abc import Callable
from functools import partial

import pytest

from ilp_planner.analysis.why.side_by_side import side_by_side
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import SolverError

BOTH = pytest.mark.parametrize("workers", [1, 3])


def squared(number: int, deadline: Deadline) -> int:
    return number * number


@BOTH
def test_answers_come_in_the_order_of_the_work(workers: int) -> None:
    works = [partial(squared, number) for number in range(7)]
    assert side_by_side(works, workers, Deadline(60)) == [n * n for n in range(7)]


@BOTH
def test_every_piece_gets_its_share_of_the_time(workers: int) -> None:
    """Six pieces that end at once leave the time to those that follow."""
    works = [lambda deadline: deadline.left for _ in range(6)]
    left = side_by_side(works, workers, Deadline(60))
    rounds = 6 // workers
    assert all(share is not None and share > 0 for share in left)
    assert left[0] == pytest.approx(60 / rounds, rel=0.2)
    assert left[-1] == pytest.approx(60, rel=0.2)


@BOTH
def test_what_one_piece_raises_is_raised(workers: int) -> None:
    def fail(deadline: Deadline) -> int:
        raise SolverError("one of the two is wrong")

    with pytest.raises(SolverError, match="one of the two is wrong"):
        side_by_side([partial(squared, 2), fail, partial(squared, 3)], workers, Deadline(60))


def test_a_process_that_dies_has_no_answer() -> None:
    works: list[Callable[[Deadline], int]] = [
        partial(squared, 2),
        lambda deadline: os._exit(3),
        partial(squared, 3),
    ]
    assert side_by_side(works, 2, Deadline(60)) == [4, None, 9]


def test_a_piece_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ilp_planner.analysis.why.side_by_side.LATE", 0.2)
    works: list[Callable[[Deadline], int]] = [partial(squared, 2), lambda deadline: time.sleep(99)]
    assert side_by_side(works, 2, Deadline(0.1)) == [4, None]


def test_an_interrupt_reaches_the_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pieces know by then is their answer, and no others are begun."""

    def hold(deadline: Deadline) -> str:
        try:
            time.sleep(99)
        except KeyboardInterrupt:
            return "what is known"
        return "slept"

    real, asked = time.sleep, []

    def waited(connections: list[object], timeout: float) -> list[object]:
        if not asked:
            real(0.3)  # they have begun
            asked.append(True)
            raise KeyboardInterrupt
        return original(connections, timeout)

    from ilp_planner.analysis.why import side_by_side as module

    original = module.wait
    monkeypatch.setattr(module, "wait", waited)
    assert side_by_side([hold, hold, hold], 2, Deadline(60)) == ["what is known"] * 2 + [None]
