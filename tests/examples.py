"""How many random examples a property test draws: few in `make test`, more in `make test-all`."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

MORE = 4  # times as many in `make test-all`, which loads the profile "new"


def examples(count: int, **more: Any) -> settings:
    """Return settings of so many examples in `make test`, other settings as hypothesis has them."""
    times = MORE if settings.get_current_profile_name() == "new" else 1
    return settings(max_examples=count * times, **more)
