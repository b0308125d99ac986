"""The points of a sweep: every combination of the values that are varied."""

from __future__ import annotations

import hashlib
import json
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError, SpecError, UsageError
from ilp_planner.base.files import Document, existing, places, sha256_of
from ilp_planner.faces.sweeps.fields import (
    HELD,
    Field,
    find_field,
    held,
    with_cluster,
    with_constraints,
)
from ilp_planner.formats.inputs_json import encode_inputs
from ilp_planner.inputs.constraints import NAMES
from ilp_planner.inputs.files import split_profile
from ilp_planner.specs.cluster_reader import read_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.faces.sweeps.axes import Axis
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.solvers.base import Limits


class Point(NamedTuple):
    """One problem of a sweep. number: its place in the order of all points. values: by the fields
    that are varied, as texts."""

    number: int
    values: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The points of a sweep.

    base: common to all points. axes: varied fields; the last one is varied first.
    limits: of the search of one point. all_devices: plans leave no node out.
    """

    base: Request
    axes: tuple[Axis, ...]
    limits: Limits
    all_devices: bool = False

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        for n, name in enumerate(names):
            if name in names[:n]:
                raise UsageError(f"vary: found {name!r} twice, expected every field once")
        if {"gpus", "cluster"} <= {*names}:
            raise UsageError("vary: found cluster beside gpus, expected one of the two")
        for field, axis in zip(self.fields, self.axes, strict=True):
            for part in axis.parts:
                if isinstance(part, str):
                    field.check(part)

    @cached_property
    def size(self) -> int:
        """How many points there are."""
        return math.prod(len(axis) for axis in self.axes)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """The fields that are varied, in the order of the axes.

        Raises
        ------
        UsageError: an unknown field.
        """
        return tuple(find_field(axis.field, self.axes, self.base) for axis in self.axes)

    def point(self, number: int) -> Point:
        """Return a point by its number."""
        found = {
            field.name: axis[place]
            for field, axis, place in zip(self.fields, self.axes, self.places(number), strict=True)
        }
        return Point(number, found)

    def points(self) -> Iterator[Point]:
        """Yield all points in order."""
        return (self.point(number) for number in range(self.size))

    def places(self, number: int) -> tuple[int, ...]:
        """Return the place of a point's value on every axis."""
        found = []
        for axis in reversed(self.axes):
            number, place = divmod(number, len(axis))
            found.append(place)
        return tuple(reversed(found))

    def number(self, places: tuple[int, ...]) -> int:
        """Return the number of the point that has these places."""
        number = 0
        for axis, place in zip(self.axes, places, strict=True):
            number = number * len(axis) + place
        return number

    def number_of(self, values: Mapping[str, str]) -> int | None:
        """Return the number of the point that has these values; None if none has."""
        places = []
        for field, axis in zip(self.fields, self.axes, strict=True):
            place = axis.index(values[field.name]) if field.name in values else None
            if place is None:
                return None
            places.append(place)
        return self.number(tuple(places))

    def request(self, point: Point) -> Request:
        """Return the request of a point, with its model and its cluster as they are now.

        Raises
        ------
        PlannerError: an impossible problem, and why.
        """
        request = self.base
        for field in self._one_by_one:
            request = field.put(request, point.values[field.name])
        if self._constraints:
            said = {name: point.values[name] for name in self._constraints}
            request = with_constraints(request, said)
        return pinned(request)

    @cached_property
    def _one_by_one(self) -> list[Field]:
        """The fields that are set one after the other; fields that decide others are first."""
        others = (field for field in self.fields if field.name not in NAMES)
        return sorted(others, key=lambda field: field.order)

    @cached_property
    def _constraints(self) -> list[str]:
        """The fields that are constraints, set together."""
        return [field.name for field in self.fields if field.name in NAMES]

    def key(self, request: Request) -> str:
        """Return the hash of all that the result of a point depends on."""
        named = {n: file.name for n, file in request.files.items() if file.text is None}
        contents = {name: _content(text) for name, text in named.items()}
        inputs = {"inputs": encode_inputs(request), "contents": contents}
        return digest(inputs | self.limits_record)

    def content(self, name: str) -> str:
        """Return the hash of the content of an input common to all points; empty if it is no file,
        or is not there."""
        try:
            known = held(self.base, name).sha256 if name in HELD else ""
        except PlannerError:
            return ""
        return known or _content(self.base.files[name].name)

    def key_of_refused(self, point: Point) -> str:
        """Return the hash of a point with an impossible request."""
        return digest({"base": encode_inputs(self.base), "values": dict(point.values)})

    @cached_property
    def limits_record(self) -> dict[str, float]:
        """The limits of one search that decide its result. A journal without `all_devices` is of
        plans that may leave nodes out."""
        limits = self.limits
        return {
            "seconds": limits.seconds,
            "gap": limits.gap,
            "prefer_plain": limits.prefer_plain,
            "seed": limits.seed,
            **({"all_devices": 1} if self.all_devices else {}),
        }


def device_types(sweep: Sweep) -> list[str]:
    """Return the types of device of all clusters of a sweep, as people call them."""
    axis = next((axis for axis in sweep.axes if axis.field in ("gpus", "cluster")), None)
    names = [None] if axis is None else list(axis)
    found: dict[str, None] = {}
    for name in names:
        request = sweep.base if name is None else with_cluster(sweep.base, name)
        with suppress(SpecError, UsageError):  # such points are rows without a plan
            known = held(request, "cluster")
            cluster = read_cluster(Document(known.name, known.text or ""))
            found |= dict.fromkeys(device.type for device in cluster.device_types.values())
    return list(found)


def pinned(request: Request) -> Request:
    """Return a request with the content of its model and its cluster.

    Raises
    ------
    SpecError, UsageError: one is not there, or malformed.
    """
    kind, _ = split_profile(request.profile)
    names = [name for name in HELD if name in request.files or kind == "analytic"]
    return replace(request, files={**request.files, **{n: held(request, n) for n in names}})


@lru_cache(maxsize=256)
def _content(text: str) -> str:
    """Return the hash of the content of the files that a text names; empty if none is there."""
    path = text.partition(":")[2] or text
    found = [each for part in path.split(",") for each in existing(places(part))]
    return digest([sha256_of(each) for each in found if each.exists()]) if found else ""


def digest(value: object) -> str:
    """Return the SHA-256 of a JSON-ready value, for any order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
