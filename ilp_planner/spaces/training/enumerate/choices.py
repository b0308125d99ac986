"""The choices of whole jobs besides degrees and schedule, and their values tried by searches."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from ilp_planner.settings.beside import taken_beside
from ilp_planner.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.specs.training import Settings

CHOICES = {row.name: row.choice for row in SETTINGS if row.choice is not None}


def choices(
    base: Settings, tried: Mapping[str, tuple[str, ...]], asked: Constraints
) -> tuple[Settings, ...]:
    """Return the settings of whole jobs that are tried, the plainest first.

    Parameters
    ----------
    tried: values by names of `CHOICES`, if others than the base's own are tried without being asked
        for.
    """
    asked = with_beside(asked)
    values = (
        getattr(asked, name) or tried.get(name) or (choice.read(base),)
        for name, choice in CHOICES.items()
    )
    return _every(base, tuple(values))


def with_beside(asked: Constraints) -> Constraints:
    """Return a request with the values that others need beside them, if it says nothing of them."""
    taken = {name: (value,) for _, name, value in taken_beside(partial(getattr, asked))}
    return asked.with_(**taken) if taken else asked


@lru_cache(maxsize=256)
def _every(base: Settings, values: tuple[tuple[str, ...], ...]) -> tuple[Settings, ...]:
    """Return settings with every combination of values, in the order of `CHOICES`."""
    found = [base]
    for choice, each in zip(CHOICES.values(), values, strict=True):
        every = (choice.write(one, value) for value in each for one in found)
        found = [one for one in every if one is not None]
    return tuple(found)


def values_of(settings: Settings) -> dict[str, str]:
    """Return the values of settings, by the names of `CHOICES`."""
    return {name: choice.read(settings) for name, choice in CHOICES.items()}


def settled(settings: Settings, plainest: Settings, *, replicated: bool) -> Settings:
    """Return settings of a job with idle choices at rest.

    replicated: several ranks have the same parameters. plainest: settings with the rest values of
    choices that have none of their own.
    """
    for choice in CHOICES.values():
        if choice.idle(settings, replicated):
            rest = choice.rest or choice.read(plainest)
            if choice.read(settings) != rest:
                settings = choice.write(settings, rest) or settings
    return settings


def decided(settings: Settings, *, replicated: bool) -> dict[str, str]:
    """Return the values of `values_of` that decide something: not the attention of a single
    context-parallel rank, nor the sharding of parameters that no two ranks have."""
    return {
        name: choice.read(settings)
        for name, choice in CHOICES.items()
        if not choice.idle(settings, replicated)
    }


@lru_cache(maxsize=4096)
def different(settings: Settings, plainest: Settings) -> tuple[str, ...]:
    """Return the differences of settings from the plainest ones, as in `parameters sharded`:
    thousands of parts have the same ones."""
    values = ((choice, choice.read(settings)) for choice in CHOICES.values())
    found = tuple(
        choice.text.format(value) for choice, value in values if value != choice.read(plainest)
    )
    if settings.cp_inner == plainest.cp_inner:
        return found
    return (*found, f"heads exchanged by {settings.cp_inner}")


def uncounted(asked: Constraints, names: Collection[str]) -> Iterator[str]:
    """Yield a note on every value of some choices that was asked for and is not counted whole."""
    for name in names:
        for value in getattr(asked, name):
            if what := CHOICES[name].uncounted.get(value):
                yield f"{name.replace('_', ' ')} {value}: not counted: {what}"
