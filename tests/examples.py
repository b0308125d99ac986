"""How much a property test tries: little in `make test`, more in `make test-all`."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from hypothesis import settings

MORE = 4  # times as many in `make test-all`, which loads the profile "new"
USUAL = 30  # random examples of a property in `make test`, where its test says nothing of them
MOST = 60  # at most, whatever it says
ALL = 200  # in `make test-all`, where its test says nothing
T = TypeVar("T")


def everything() -> bool:
    """Tell whether this is `make test-all`."""
    return settings.get_current_profile_name() == "new"


def examples(count: int, more: int = MORE, **said: Any) -> settings:
    """Return settings of so many random examples in `make test`, but no more than `MOST`, `more`
    times as many in `make test-all`, and other settings as hypothesis has them."""
    return settings(max_examples=count * more if everything() else min(count, MOST), **said)


def thinned(values: Iterable[T], step: int) -> Iterator[T]:
    """Yield one of so many values in `make test`, all of them in `make test-all`."""
    return islice(values, 0, None, 1 if everything() else step)
