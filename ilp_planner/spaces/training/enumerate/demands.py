"""Demands that a runtime may refuse: no plan of it has the demanded values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import CHOICES, space_with
from ilp_planner.settings.beside import without
from ilp_planner.settings.table import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.spaces.training.runtime import Runtime


def check_demands(runtime: Runtime, asked: Constraints) -> None:
    """Refuse demands that no plan of a runtime meets, for any model and devices.

    Raises
    ------
    UsageError: the first value, the plans' values, and the reason.
    """
    for name, value in _said(runtime, asked):
        search, domain = runtime.search_of(name), BY_NAME[name].domain
        have = search.demandable
        if (domain.like(value) if name in CHOICES else value) in have:
            continue
        instead = f" or `space={space_with(name, value)}`"
        why = f"; {runtime.title}: {search.remark}" if search.remark else ""
        usual = [one for one in (*search.values, *search.on_request) if one in have]
        idle = not have or without(name, lambda one: getattr(asked, one))
        expected = "none" if idle else f"`{name}={domain.listed(usual or have)}`"
        raise UsageError(
            f"`{name}={value}`: found it for {runtime.title}, expected {expected}{instead}{why}"
        )


def _said(runtime: Runtime, asked: Constraints) -> Iterator[tuple[str, str]]:
    """Yield the demanded values with their names; numbers of virtual stages if ranks have one."""
    for name in CHOICES:
        for value in getattr(asked, name):
            yield name, value
    if not runtime.interleaves and not asked.allows("virtual_stages", 1):
        yield "virtual_stages", str(asked.virtual_stages)
