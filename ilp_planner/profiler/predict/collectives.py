"""Times of unmeasured collectives, from the rows of measured ones."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.device_names import rows_of_device
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.costs.profiles.table import Prediction, Provenance
from ilp_planner.profiler.predict.curve import (
    STEP,
    Curve,
    curve_of,
    end_error,
    left_out_error,
)
from ilp_planner.profiler.predict.unseen_groups import Setting, Stretched, held_out, stretched

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas
    from numpy.typing import ArrayLike, NDArray

    from ilp_planner.base.numerics import Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Series:
    """Rows of one collective in one setting. sizes: bytes. times: seconds. own: whether each is
    measured, not itself predicted."""

    sizes: Floats
    times: Floats
    own: NDArray[np.bool_]


class CollectivePredictor:
    """Predicts the time of any collective from a table.

    Within the sizes of a group that was measured: linear in bytes between its cleaned rows. Beyond
    them: the last slope, or down to the latency. In a group that was not: the nearest curve,
    stretched by hops and by the bytes through each host's network. Always positive, and never
    falling with the size.

    Rows that are predictions themselves (they have an `error`) are left out.
    """

    def __init__(self, table: Measurements) -> None:
        """Read the rows of collectives.

        Raises
        ------
        ProfileError: the table has none.
        """
        rows = collective_rows(table)
        if rows.empty:
            raise ProfileError(
                f"{table.source}: has no measured collectives among two or more devices, expected "
                "rows such as `ilp-plan profile measure-links` writes"
            )
        self._rows = rows.fillna({"hosts": 1.0, "stride": 1.0, "groups": 1.0})
        self._readers: dict[str, _OfDevice] = {}

    def predict(
        self,
        name: str,
        size: float,
        *,
        group_size: int,
        hosts: int = 1,
        stride: int = 1,
        groups: int | None = None,
        sharing: int | None = None,
        device: str = "",
        dtype: str = "",
    ) -> Prediction:
        """Return the time of one collective, seconds.

        name: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, ...
        size: bytes of the whole tensor.
        group_size, hosts, stride: as in the table.
        groups: that do the same at once; None: as many as the hosts have room for, as in training.
        sharing: of several hosts, the groups that share a host's network, instead: the hosts of the
            table may have room for fewer.
        device, dtype: rows of these only, if there are any; '': of all. Rows of another device
            type, or of several together, are no measurements of the one that is asked for.
        """
        if group_size <= 1:
            return Prediction(
                value=0.0,
                provenance=Provenance.ANALYTIC,
                error=0.0,
                basis="a device by itself sends nothing",
            )
        source = self._of(device)
        setting = source.setting(group_size, hosts, stride, groups, sharing)
        found = source.predict(name, setting, dtype, _checked(size))
        whose = self._foreign(device)
        if whose:
            found = replace(
                found,
                provenance=Provenance.EXTRAPOLATED,
                error=None,
                basis=f"{found.basis}, of {whose}",
            )
        return found

    def seconds(
        self,
        name: str,
        sizes: ArrayLike,
        *,
        group_size: int,
        hosts: int = 1,
        stride: int = 1,
        groups: int | None = None,
        sharing: int | None = None,
        device: str = "",
        dtype: str = "",
    ) -> Floats:
        """Return the times of many sizes at once: float64, seconds, of the shape of sizes (bytes).

        Otherwise as `predict`.
        """
        wanted = np.asarray(sizes, np.float64)
        if not (np.isfinite(wanted) & (wanted >= 0)).all():
            raise ValueError("sizes must be finite and at least 0 bytes")
        if group_size <= 1:
            return np.zeros(wanted.shape)
        source = self._of(device)
        setting = source.setting(group_size, hosts, stride, groups, sharing)
        return source.curve(name, setting, dtype)(wanted)

    def _of(self, device: str) -> _OfDevice:
        rows = self._rows
        if device not in self._readers:
            self._readers[device] = _OfDevice(rows_of_device(rows, device))
        return self._readers[device]

    def _foreign(self, device: str) -> str:
        """Return the device type with rows that stand in for another one; '' for its own."""
        named = [name for name in dict.fromkeys(self._rows["device"]) if name]
        if device and "" not in set(self._rows["device"]):
            own = device.casefold() in {name.casefold() for name in named}
            return "" if own else f"another device: {', '.join(named)}"
        return f"several devices: {', '.join(named)}" if not device and len(named) > 1 else ""


def collective_rows(table: Measurements) -> pandas.DataFrame:
    """Return the rows of collectives among several devices that are no predictions."""
    rows = table.of(Record.COLLECTIVE)
    rows = rows[(rows["group_size"] > 1) & (rows["bytes"] > 0) & (rows["time_s"] > 0)]
    return rows[(rows["provenance"] == Provenance.MEASURED) | rows["error"].isna()]


def _checked(size: float) -> float:
    if not (math.isfinite(size) and size >= 0):
        raise ValueError(f"size must be finite and at least 0 bytes, got {size}")
    return float(size)


class _OfDevice:
    """The rows of one device type, or of all."""

    def __init__(self, rows: pandas.DataFrame) -> None:
        self._per_host = _devices_per_host(rows)
        self._series: dict[tuple[str, Setting, str], _Series] = {}
        self._dtypes: dict[tuple[str, Setting], list[str]] = defaultdict(list)
        key = ["name", "group_size", "hosts", "stride", "groups"]
        merged: dict[tuple[str, Setting, str], list[pandas.DataFrame]] = defaultdict(list)
        for _, part in rows.groupby(key, sort=True):
            name = str(part["name"].iloc[0])
            g, h, stride, groups = (int(part[column].iloc[0]) for column in key[1:])
            setting = self.setting(g, h, stride, groups)
            merged[name, setting, ""].append(part)
            for dtype, typed in part.groupby("dtype", sort=True):
                if dtype:
                    merged[name, setting, str(dtype)].append(typed)
        for place, parts in merged.items():
            self._series[place] = _series(parts)
            self._dtypes[place[:2]].append(place[2])
        self._curves: dict[tuple[str, Setting, str], Callable[[ArrayLike], Floats]] = {}
        self._group_errors: dict[tuple[str, bool], float | None] = {}
        self._size_errors: dict[tuple[tuple[str, Setting, str], int], float | None] = {}

    def setting(
        self,
        group_size: int,
        hosts: int,
        stride: int,
        groups: int | None,
        sharing: int | None = None,
    ) -> Setting:
        """Return the relevant properties of a group."""
        if hosts < 1 or stride < 1 or (groups is not None and groups < 1) or group_size < hosts:
            raise ValueError(
                f"a group of {group_size} on {hosts} hosts, stride {stride}, {groups} at once: "
                "expected numbers of at least 1, and a device on each host"
            )
        if hosts == 1:
            if groups is None:
                # As busy as it was measured: the most groups at once.
                family = (group_size, hosts, stride)
                found = [s.sharing for _, s in self._dtypes if s.family == family]
                groups = max(found, default=max(self._per_host // group_size, 1))
            return Setting(group_size=group_size, hosts=1, stride=stride, sharing=groups)
        room = max(self._per_host // max(group_size // hosts, 1), 1)
        if sharing is None:
            sharing = room if groups is None else min(groups, room)
        return Setting(group_size=group_size, hosts=hosts, stride=0, sharing=sharing)

    def place(self, name: str, setting: Setting, dtype: str) -> tuple[str, Setting, str] | None:
        """Return the key of the rows of a setting, of a number type if there are any."""
        if (name, setting, dtype) in self._series:
            return name, setting, dtype
        return (name, setting, "") if (name, setting, "") in self._series else None

    def curve(self, name: str, setting: Setting, dtype: str) -> Callable[[ArrayLike], Floats]:
        """Return seconds by bytes."""
        wanted = (name, setting, dtype)
        if wanted not in self._curves:
            found = self.place(*wanted)
            if found is None:
                made = stretched(self._known, name, setting)
                assert made is not None  # there are rows of some collective
                self._curves[wanted] = made
            else:
                rows = self._series[found]
                self._curves[wanted] = curve_of(
                    rows.sizes, rows.times, self._siblings(found), self._alike(found)
                )
        return self._curves[wanted]

    def _siblings(self, place: tuple[str, Setting, str]) -> list[Curve]:
        """Return the curves of the same group beside others or with other numbers."""
        name, setting, dtype = place
        return [
            curve_of(rows.sizes, rows.times)
            for (n, s, d), rows in self._series.items()
            if n == name and s.family == setting.family and bool(d) == bool(dtype)
            if (n, s, d) != place
        ]

    def _alike(self, place: tuple[str, Setting, str]) -> list[Curve]:
        """Return the curves of the same setting with other numbers."""
        others = [d for d in self._dtypes[place[:2]] if d and place[2] and d != place[2]]
        return [
            curve_of(rows.sizes, rows.times)
            for rows in (self._series[*place[:2], dtype] for dtype in others)
        ]

    @functools.cached_property
    def _known(self) -> dict[str, dict[Setting, Curve]]:
        known: dict[str, dict[Setting, Curve]] = defaultdict(dict)
        for (name, setting, dtype), rows in self._series.items():
            if not dtype:
                known[name][setting] = curve_of(rows.sizes, rows.times)
        return dict(known)

    def predict(self, name: str, setting: Setting, dtype: str, size: float) -> Prediction:
        """Return the time of one size, with provenance and error."""
        curve = self.curve(name, setting, dtype)
        value = float(curve(size))
        place = self.place(name, setting, dtype)
        if place is None:
            assert isinstance(curve, Stretched)
            error = self._group_error(name, hosts=setting.hosts > 1)
            source, basis = Provenance.EXTRAPOLATED, f"stretched: {curve.basis}"
        else:
            source, error, basis = self._trust(place, size, value)
        return Prediction(value=value, provenance=source, error=error, basis=basis)

    def _trust(
        self, place: tuple[str, Setting, str], size: float, value: float
    ) -> tuple[Provenance, float | None, str]:
        """Return provenance, error and basis of a value in a group that was measured."""
        rows = self._series[place]
        there = rows.sizes == size
        if there.any():
            row = float(np.median(rows.times[there]))
            monotone = "" if math.isclose(value, row) else ", made monotone"
            if rows.own[there].all():
                return Provenance.MEASURED, abs(value / row - 1), f"its own row{monotone}"
            basis = f"a row that was not measured itself{monotone}"
            return Provenance.INTERPOLATED, self._size_error(place, 0), basis
        least, most = float(rows.sizes.min()), float(rows.sizes.max())
        if least < size < most:
            return Provenance.INTERPOLATED, self._size_error(place, 0), "between two sizes"
        # A message of no bytes is as far as it goes.
        steps = math.log(max(size, 1.0) / (most if size > most else least), STEP)
        reach = math.ceil(steps) if steps > 0 else math.floor(steps)
        basis = f"{'above' if size > most else 'below'} the sizes that were measured"
        return Provenance.EXTRAPOLATED, self._size_error(place, reach or -1), basis

    def _size_error(self, place: tuple[str, Setting, str], reach: int) -> float | None:
        """Return the error of sizes within the rows (0), or so many steps beyond them."""
        if (place, reach) not in self._size_errors:
            rows = self._series[place]
            self._size_errors[place, reach] = (
                end_error(rows.sizes, rows.times, reach)
                if reach
                else left_out_error(rows.sizes, rows.times, self._alike(place))
            )
        return self._size_errors[place, reach]

    def _group_error(self, name: str, *, hosts: bool) -> float | None:
        """Return the error of groups that are predicted from the others."""
        if (name, hosts) not in self._group_errors:
            errors = [
                float(np.mean(np.abs(made(rows.sizes) / rows.times - 1)))
                for setting, made in held_out(self._known, name, hosts=hosts)
                for rows in (self._series[name, setting, ""],)
            ]
            self._group_errors[name, hosts] = float(np.mean(errors)) if errors else None
        return self._group_errors[name, hosts]


def _series(parts: list[pandas.DataFrame]) -> _Series:
    sizes, times = (
        np.concatenate([part[name].to_numpy(np.float64) for part in parts])
        for name in ("bytes", "time_s")
    )
    own = np.concatenate([(part["provenance"] == Provenance.MEASURED).to_numpy() for part in parts])
    return _Series(sizes, times, own)


def _devices_per_host(rows: pandas.DataFrame) -> int:
    """Return how many devices a host has, as far as the groups tell."""
    size, hosts, stride = (rows[name].to_numpy() for name in ("group_size", "hosts", "stride"))
    one = hosts == 1
    inside = (size[one] - 1) * stride[one] + 1
    # A group that goes on to the next host fills its own, at its stride.
    several = size > hosts
    across = (size * stride / hosts)[~one & several]
    found = np.concatenate([inside, across])
    if not len(found):
        found = stride  # one device on each host: at most that many in between
    return max(int(found.max()), 1)
