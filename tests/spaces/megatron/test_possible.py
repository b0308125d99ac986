"""Parts that were found before are not looked for again, and none is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ilp_planner.spaces.megatron.possible import Remembered, megatron_parts, possible_parts
from tests.megatron_cases import small_problem

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_each_goes_through_all_of_it_though_it_is_made_once() -> None:
    made = []

    def begin() -> Iterator[int]:
        made.append(True)
        return iter(range(5))

    every = Remembered(begin)
    first, second = iter(every), iter(every)
    assert [next(first), next(first), next(second)] == [0, 1, 0]
    assert ([*second], [*first], [*every]) == ([1, 2, 3, 4], [2, 3, 4], [0, 1, 2, 3, 4])
    assert made == [True]


@pytest.mark.parametrize("place", range(5))
def test_whoever_is_interrupted_takes_nothing_from_others(place: int) -> None:
    """What a Ctrl-C ends goes on from its beginning, not from its end."""
    left = [place]

    def begin() -> Iterator[int]:
        for number in range(5):
            if number == place and left:
                left.pop()
                raise KeyboardInterrupt
            yield number

    every = Remembered(begin)
    waiting = iter(every)
    before = [next(waiting) for _ in range(place)]
    with pytest.raises(KeyboardInterrupt):
        list(every)
    assert [*before, *waiting] == [*every] == [0, 1, 2, 3, 4]


def test_an_interrupted_enumeration_leaves_no_part_out(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small_problem()
    names = [part.name for part in megatron_parts(problem, problem.costs)]
    problem = small_problem()
    asked = []

    def interrupted(part: object) -> bool:
        asked.append(part)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return True

    with monkeypatch.context() as patched:
        patched.setattr("ilp_planner.spaces.megatron.possible._is_refused", interrupted)
        patched.setattr(
            "ilp_planner.spaces.megatron.possible.MegatronPart.divided", (), raising=False
        )
        with pytest.raises(KeyboardInterrupt):
            [*possible_parts(problem, problem.costs)]
    assert [part.name for part in megatron_parts(problem, problem.costs)] == names
    assert len(names) > 3
