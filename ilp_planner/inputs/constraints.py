"""Constraints on plans and their devices: `tp` 4, `pp` from 2 to 8, without node 3.

The names and their values are those of the table of settings. Missing ones allow everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.settings.domains import Degree
from ilp_planner.settings.table import BY_NAME, DEMANDS
from ilp_planner.specs.training import PARTS, Recompute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ilp_planner.settings.asked_layout import AskedLayout
    from ilp_planner.specs.pipeline_layout import PipelineLayout

NAMES = tuple(setting.name for setting in DEMANDS)
DEGREES = tuple(one.name for one in DEMANDS if isinstance(one.domain, Degree))
LAYOUT, KEEP = "layout", "keep"
CHOICES = {one.name: one.domain.values for one in DEMANDS if one.domain.values}
OF_PLANS = tuple(one.name for one in DEMANDS if not one.of_devices and one.name != KEEP)
OF_DEVICES = tuple(one.name for one in DEMANDS if one.of_devices)
AS_SAID = (LAYOUT, KEEP)  # whose commas do not part what may be instead


class Constraints:
    """What a user demands of plans and of the devices that they use: an attribute for each row of
    the table of settings, `blank` of its domain if nothing is said. Instances are equal and hash
    alike if they say the same.

    said: values by name, as their domains read them.
    """

    _said: Mapping[str, Any]
    _hash: int

    def __init__(self, **said: Any) -> None:
        if unknown := said.keys() - BY_NAME.keys():
            raise TypeError(f"unknown settings: {', '.join(sorted(unknown))}")
        values = {one.name: said.get(one.name, one.domain.blank) for one in DEMANDS}
        found = {n: value for n, value in values.items() if value != BY_NAME[n].domain.blank}
        self.__dict__.update(values, _said=found, _hash=hash(tuple(found.items())))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} cannot be set: `with_` returns other constraints")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constraints) and self._said == other._said

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._said.items())
        return f"Constraints({said})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self._said,)

    def with_(self, **values: Any) -> Constraints:
        """Return the same with other values of some names."""
        return Constraints(**{**self._said, **values})

    @property
    def texts(self) -> dict[str, str]:
        """What was said, by name, as `constraints_of` reads it."""
        return {name: _text(name, value) for name, value in self._said.items()}

    def allows(self, name: str, value: int | str | PipelineLayout) -> bool:
        """Tell whether a plan may have a value of one of `OF_PLANS`."""
        allowed = self._said.get(name)
        return not allowed or value in allowed

    @property
    def one_layout(self) -> AskedLayout | None:
        """The layout that all plans have; None: several may be."""
        return None if self.layout is None or self.layout.free else self.layout

    @property
    def modules(self) -> tuple[str, ...]:
        """The parts of layers that may be recomputed, if some are named."""
        return tuple(name for name in self.recompute if name in PARTS)

    def recomputes(self, recompute: Recompute) -> bool:
        """Tell whether a plan may have a recomputation."""
        asked = self.recompute
        if not asked or recompute.kind in asked:
            return True
        return recompute.kind == "selective" and set(recompute.modules) <= set(asked)

    def broken(self, found: Mapping[str, int | str | PipelineLayout]) -> Iterator[str]:
        """Yield the broken constraints of a plan. found: its values by name."""
        for name, value in found.items():
            if not self.allows(name, value):
                asked = _text(name, getattr(self, name))
                yield f"{name}: found {value}, only {asked} asked for"

    def but(self, names: Iterable[str]) -> Constraints:
        """Return what is left without those of some names."""
        left = {*names}
        return Constraints(**{n: value for n, value in self._said.items() if n not in left})

    def describe(self) -> str:
        """Return the constraints in words, as in `tp 4, pp 2..8`; empty: nothing."""
        return ", ".join(
            f"{name.replace('_', ' ')} {text if name in AS_SAID else text.replace(',', ' or ')}"
            for name, text in self.texts.items()
            if name not in OF_DEVICES
        )


ANY = Constraints()


def _made(said: Mapping[str, Any]) -> Constraints:
    return Constraints(**said)


def constraints_of(said: Mapping[str, object]) -> Constraints:
    """Return the constraints that numbers, texts and lists say; None says nothing.

    Raises
    ------
    UsageError: one line with the name, the found and the expected value.
    """
    return Constraints(
        **{
            name: BY_NAME[name].domain.read(name, value)
            for name, value in said.items()
            if value is not None and value not in ((), [])
        }
    )


def space_with(name: str, text: str) -> str:
    """Return the space whose plans may have what is asked for by a name."""
    only, domain = BY_NAME[name].only, BY_NAME[name].domain
    like = (domain.like(value) if domain.values else value for value in text.split(","))
    return next((only[value] for value in like if value in only), "megatron")


def names_of(recompute: Recompute) -> tuple[str, ...]:
    """Return the names that allow a recomputation."""
    return recompute.modules if recompute.kind == "selective" else (recompute.kind,)


def _text(name: str, value: Any) -> str:
    return BY_NAME[name].domain.text(value)
