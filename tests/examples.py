"""How much a test tries: little in `make test`, more in `make test-all`."""

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings

MORE = 4  # times as many in `make test-all`, which loads the profile "new"
USUAL = 15  # random examples of a property in `make test`, at most
ALL = 200  # in `make test-all`, where its test says nothing
SHARED = Path(__file__).parents[2] / "shared"
T = TypeVar("T")
Test = Callable[..., None]


def everything() -> bool:
    """Tell whether this is `make test-all`."""
    return settings.get_current_profile_name() == "new"


def examples(count: int, more: int = MORE, **said: Any) -> settings:
    """Return settings of so many random examples in `make test`, but no more than `USUAL`, `more`
    times as many in `make test-all`, and other settings as hypothesis has them."""
    return settings(max_examples=count * more if everything() else min(count, USUAL), **said)


def thinned(values: Iterable[T], step: int) -> Iterator[T]:
    """Yield one of so many values in `make test`, all of them in `make test-all`."""
    return islice(values, 0, None, 1 if everything() else step)


def often(values: Iterable[T], *names: T, several: bool = False) -> list[Any]:
    """Return values for `pytest.mark.parametrize`, slow but for those that are named.

    several: they are tuples, of several parameters.
    """
    known = list(values)
    assert names
    assert all(name in known for name in names), [name for name in names if name not in known]
    return [
        pytest.param(*(one if several else (one,)), marks=[pytest.mark.slow] * (one not in names))
        for one in known
    ]


def for_each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of these values, as `pytest.mark.parametrize` does, but as one case.

    An error names the values that it is of. Values that a test skips leave the others: the case is
    skipped where it skips all of them.
    """
    several = not isinstance(names, str)
    known = list(values)
    if not known and not SHARED.is_dir():
        return pytest.mark.skip(reason="no ../shared, which these are read from")
    assert known, f"no {names}"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def every(*args: Any, **fixtures: Any) -> None:
            skipped: list[BaseException] = []
            for value in known:
                said = dict(zip(names, value, strict=True)) if several else {names: value}
                try:
                    test(*args, **said, **fixtures)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except Exception as error:
                    error.add_note(f"with {said}")
                    raise
            if len(skipped) == len(known):
                raise skipped[0]

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items()
                if name not in (names if several else (names,))]  # fmt: skip
        every.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return every

    return decorate
