"""Differences of two requests, as far as a proof for one of them is also about the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.base.units import format_bytes
from ilp_planner.inputs.request import FILES, Request
from ilp_planner.inputs.table import COSTS as OF_COSTS
from ilp_planner.inputs.table import INPUTS, SET

if TYPE_CHECKING:
    from collections.abc import Iterator

# What times and memory of plans depend on, besides the files.
COSTS = tuple(row.attribute for row in INPUTS if row.changes == OF_COSTS)
DEVICES = ("max_devices", "without")  # constraints that say which ones there are
LIMITS = tuple(row.attribute for row in INPUTS if row.changes == SET)


def other_costs(old: Request, new: Request) -> Iterator[str]:
    """Yield inputs that may change the time or memory of the same plan."""
    for kind in FILES:
        one, other = (request.files.get(kind) for request in (old, new))
        digests = [file and (file.sha256 or file.name) for file in (one, other)]
        names = [file.name if file else "none" for file in (one, other)]
        if digests[0] != digests[1]:
            content = " with other content" if names[0] == names[1] else ""
            yield f"{kind}: {names[0]} there, {names[1]}{content} here"
    for name in COSTS:
        yield from _unlike(name, getattr(old, name), getattr(new, name))
    for name in DEVICES:
        yield from _unlike(name, *(r.constraints.texts.get(name) for r in (old, new)))


def other_memory(old: Request, new: Request, *, less: bool = False) -> Iterator[str]:
    """Yield devices with another memory limit; less: but for less of it."""
    if old.memory_limits is None or new.memory_limits is None:
        yield "memory: not said there"
        return
    for name, limit in new.memory_limits.items():
        before = old.memory_limits.get(name, 0.0)
        if limit > before or (limit < before and not less):
            yield f"memory: {format_bytes(before)} of {name} there, {format_bytes(limit)} here"


def other_limits(old: Request, new: Request) -> Iterator[str]:
    """Yield changed constraints on plans, memory aside."""
    for name in LIMITS:
        yield from _unlike(name, getattr(old, name), getattr(new, name))
    before, now = old.constraints.texts, new.constraints.texts
    for name in dict.fromkeys((*before, *now)):
        if name not in ("headroom", *DEVICES):
            yield from _unlike(name, before.get(name), now.get(name))


def _unlike(name: str, old: object, new: object) -> Iterator[str]:
    if old != new:
        texts = ["none" if value in (None, "", ()) else f"{value}" for value in (old, new)]
        yield f"{name.replace('_', ' ')}: {texts[0]} there, {texts[1]} here"
