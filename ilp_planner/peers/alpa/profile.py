"""Alpa's profile database (`prof_database.pkl`, or the same as JSON) as a native table.

The file maps (cluster key, mesh shape) to the times of collectives, by the groups of devices and
the type of numbers, and of square matrix products (alpa/mesh_profiling.py of alpa-projects/alpa).

The genuine rows of Alpa's profile database, told from the numbers alone.

Its profiler runs an empty loop if a tensor is too small to be shared among a group, and its
`make_monotonic` overwrites every time that would mean a lower bandwidth than at the size before
(alpa/mesh_profiling.py); neither leaves a mark in the file.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import document_of, read_content, read_json
from ilp_planner.base.limits import ENTRIES, PICKLE_BYTES
from ilp_planner.costs.profiles.measurements import Measurements, Record, measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.peers.alpa.pickles import Result, read_alpa_pickle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


# ---- rows ----------------------------------------------------------------------------------------


SAME = 1e-9  # relative: bandwidths that were computed from each other, not measured alike


class RowKind(StrEnum):
    """The kind of a row.

    measured: genuine. carried: size / bandwidth of the size before, a mild underestimate. noop: an
    empty loop, the size is less than the group can share. carried_noop: the bandwidth of an empty
    loop. empty: an all-reduce of nothing. launch: a product of nothing. local: a group of one.
    failed: not measured.
    """

    MEASURED = "measured"
    CARRIED = "carried"
    NOOP = "noop"
    CARRIED_NOOP = "carried_noop"
    EMPTY = "empty"
    LAUNCH = "launch"
    LOCAL = "local"
    FAILED = "failed"


GENUINE = (RowKind.MEASURED, RowKind.CARRIED)


def collective_kinds(
    name: str, group_size: int, sizes: Sequence[float], seconds: Sequence[float]
) -> list[RowKind]:
    """Return the kind of each row of one series.
    sizes: elements of the whole tensor, ascending. seconds: inf if it failed."""
    # The profiler rounds the size down to a multiple of these elements; 0 is an empty loop.
    unit = {"all_reduce": 1, "all_to_all": group_size**2}.get(name, group_size)
    first = RowKind.EMPTY if name == "all_reduce" else RowKind.NOOP
    made = [RowKind.LOCAL if group_size == 1 else first if n < unit else None for n in sizes]
    return _kinds(sizes, seconds, made)


def product_kinds(flops: Sequence[float], seconds: Sequence[float]) -> list[RowKind]:
    """Return the kind of each row of one series of matrix products."""
    return _kinds(flops, seconds, [RowKind.LAUNCH if flop <= 0 else None for flop in flops])


def _kinds(
    sizes: Sequence[float], seconds: Sequence[float], made: Sequence[RowKind | None]
) -> list[RowKind]:
    """Return the kind of each row. made: from its size alone."""
    kinds: list[RowKind] = []
    for place, (time, kind) in enumerate(zip(seconds, made, strict=True)):
        found = kind if math.isfinite(time) else RowKind.FAILED
        kinds.append(found or _carried(place, sizes, seconds, kinds))
    return kinds


def _carried(
    place: int, sizes: Sequence[float], seconds: Sequence[float], kinds: Sequence[RowKind]
) -> RowKind:
    """Return whether a row has the bandwidth of the one before, and its origin."""
    if place == 0 or sizes[place - 1] <= 0 or not math.isfinite(seconds[place - 1]):
        return RowKind.MEASURED
    expected = sizes[place] * seconds[place - 1] / sizes[place - 1]
    if not math.isclose(seconds[place], expected, rel_tol=SAME):
        return RowKind.MEASURED
    fabricated = kinds[place - 1] in (RowKind.NOOP, RowKind.CARRIED_NOOP)
    return RowKind.CARRIED_NOOP if fabricated else RowKind.CARRIED


# ---- profile -------------------------------------------------------------------------------------


COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
DTYPES = {"f16": ("fp16", 2), "bf16": ("bf16", 2), "f32": ("fp32", 4), "f64": ("fp64", 8)}
DROPPED = {
    RowKind.NOOP: "of empty loops (the tensor was too small for the group)",
    RowKind.CARRIED_NOOP: "with the bandwidth of an empty loop",
    RowKind.EMPTY: "of all-reduces of nothing",
    RowKind.LAUNCH: "of products of nothing",
    RowKind.LOCAL: "of groups of one device",
    RowKind.FAILED: "that failed",
}
STAGES = (
    "holds stage costs of Alpa, which are from its cost model, not measured, and say no "
    "micro-batch: expected prof_database.pkl, which they come from"
)
# Above every time and size that a machine can have, and below what a float can hold.
LARGEST = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class AlpaSeries:
    """One operation in one setting, at ascending sizes.

    name: a collective, or `matmul`. mesh: hosts, devices of each. groups: ranks of each group.
    dtype: as Alpa writes it. sizes: elements of the whole tensor; flop of a product. seconds: inf
    if it failed.
    """

    cluster: str
    mesh: tuple[int, int]
    name: str
    dtype: str
    groups: tuple[tuple[int, ...], ...]
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    @property
    def group_size(self) -> int:
        """Ranks of a group."""
        return len(self.groups[0])

    @property
    def hosts(self) -> int:
        """Hosts that a group is on."""
        return len({rank // self.mesh[1] for rank in self.groups[0]})

    @property
    def stride(self) -> int:
        """Distance of a group's ranks; 0 for a group of one."""
        return self.groups[0][1] - self.groups[0][0] if self.group_size > 1 else 0

    @property
    def kinds(self) -> list[RowKind]:
        """The kind of each row."""
        if self.name == "matmul":
            return product_kinds(self.sizes, self.seconds)
        return collective_kinds(self.name, self.group_size, self.sizes, self.seconds)


def read_alpa(path: Path) -> Measurements:
    """Read Alpa's profile database, genuine rows only.

    `device` is the cluster key: the file does not name the devices. Rows with a time replaced by
    Alpa's make_monotonic are kept, with provenance `extrapolated`. Matrix products, copied by Alpa
    to every mesh, are there once.

    Raises
    ------
    ProfileError: another kind of file; a pickle with anything else in it is refused, nothing run.
    """
    memory: dict[str, float] = {}
    series = sorted(alpa_series(path, memory), key=lambda one: one.name == "matmul")
    rows: list[dict[str, Any]] = []
    count: Counter[RowKind] = Counter()
    seen = set()
    for one in series:
        content = (one.cluster, one.dtype, one.sizes, one.seconds)
        if one.name == "matmul":
            if content in seen:
                continue
            seen.add(content)
        kinds = one.kinds
        count.update(kinds)
        rows += _rows(one, kinds)
    if not rows:
        raise ProfileError(f"{path}: no genuine rows, expected times of collectives or products")
    notes = [f"{count[kind]} rows {what} left out" for kind, what in DROPPED.items() if count[kind]]
    if count[RowKind.CARRIED]:
        notes.append(
            f"{count[RowKind.CARRIED]} rows have the bandwidth of the size before instead of their "
            "own (Alpa's make_monotonic): provenance extrapolated"
        )
    clusters = list(dict.fromkeys(one.cluster for one in series))
    meshes = sorted({one.mesh for one in series})
    machine = {
        "profiled by": "Alpa",
        "cluster key": ", ".join(clusters),
        "meshes": ", ".join(f"{hosts}x{devices}" for hosts, devices in meshes),
    }
    if memory:
        machine["memory per device"] = f"{min(memory.values()):.0f} bytes"
    return measurements_of(rows, path.name, machine=machine, notes=notes)


def alpa_series(path: Path, memory: dict[str, float] | None = None) -> Iterator[AlpaSeries]:
    """Yield every series of a database, fabricated rows included.
    memory: filled with the bytes available per device, by mesh.

    Raises
    ------
    ProfileError: another kind of file.
    """
    found: dict[str, float] = {} if memory is None else memory
    content = read_content(path, ProfileError, PICKLE_BYTES)
    if content.startswith(b"\x93NUMPY"):
        raise ProfileError(f"{path}: {STAGES}")
    read = (
        _of_json(read_json(document_of(path, content, ProfileError), ProfileError), path, found)
        if content.lstrip()[:1] in (b"{", b"[")
        else _of_pickle(read_alpa_pickle(content, str(path)), path, found)
    )
    total = 0
    for one in read:
        total += len(one.sizes) + len(one.groups)
        if total > ENTRIES:  # a pickle can name one list a million times
            raise ProfileError(f"{path}: more than {ENTRIES} rows, expected some thousands")
        yield one


def _rows(one: AlpaSeries, kinds: list[RowKind]) -> Iterator[dict[str, Any]]:
    """Yield the genuine rows of a series."""
    dtype, width = DTYPES[one.dtype]
    common: dict[str, Any] = {"device": one.cluster, "dtype": dtype}
    if one.name == "matmul":
        common |= {"record": Record.MATMUL.value}
    else:
        common |= {
            "record": Record.COLLECTIVE.value,
            "name": one.name,
            "group_size": one.group_size,
            "hosts": one.hosts,
            "stride": one.stride,
            "groups": len(one.groups),
        }
    for size, seconds, kind in zip(one.sizes, one.seconds, kinds, strict=True):
        if kind not in GENUINE:
            continue
        what = {"flop": size} if one.name == "matmul" else {"bytes": size * width}
        carried = kind is RowKind.CARRIED
        yield (
            common
            | what
            | {
                "time_s": seconds,
                "provenance": (Provenance.EXTRAPOLATED if carried else Provenance.MEASURED).value,
                "source": f"alpa {one.mesh[0]}x{one.mesh[1]}, {kind.value}",
            }
        )


def _of_pickle(data: Any, path: Path, memory: dict[str, float]) -> Iterator[AlpaSeries]:
    if not isinstance(data, dict) or not data:
        raise ProfileError(
            f"{path}: found a pickled {type(data).__name__}, expected the dict of a profile "
            "database: (cluster key, mesh shape) to MeshProfilingResult"
        )
    for key, result in data.items():
        if not (
            isinstance(key, tuple)
            and len(key) == 2
            and isinstance(key[0], str)
            and isinstance(result, Result)
        ):
            raise ProfileError(
                f"{path}: key {_shown(key)}: expected (cluster key, mesh shape) and a "
                "MeshProfilingResult"
            )
        cluster, mesh = key[0], _mesh(key[1], f"{path}: {_shown(key[0])}")
        where = f"{path}: {_shown(cluster)}, {mesh[0]}x{mesh[1]}"
        available = result.attributes.get("available_memory_per_device")
        if isinstance(available, int | float):
            memory[f"{mesh[0]}x{mesh[1]}"] = available
        for name in (*COLLECTIVES, "matmul"):
            attribute = "dot_cost_dict" if name == "matmul" else f"{name}_cost_dict"
            costs = result.attributes.get(attribute, {})
            place = f"{where}: {attribute}"
            if not isinstance(costs, dict):
                raise ProfileError(f"{place}: found a {type(costs).__name__}, expected a dict")
            for group, pairs in costs.items():
                if not (isinstance(group, tuple) and len(group) == 2):
                    raise ProfileError(
                        f"{place}: key {_shown(group)}: expected (groups of ranks, dtype)"
                    )
                if not isinstance(pairs, list) or any(
                    not (isinstance(pair, tuple | list) and len(pair) == 2) for pair in pairs
                ):
                    raise ProfileError(f"{place}: expected a list of (size, seconds)")
                yield _series(
                    place, cluster, mesh, name, group[1], group[0],
                    [pair[0] for pair in pairs], [pair[1] for pair in pairs],
                )  # fmt: skip


def _of_json(data: Any, path: Path, memory: dict[str, float]) -> Iterator[AlpaSeries]:
    if isinstance(data, dict) and "runs" in data and "collectives" not in data:
        raise ProfileError(f"{path}: {STAGES}")
    if not isinstance(data, dict) or not isinstance(data.get("collectives"), list):
        raise ProfileError(f"{path}: 'collectives' is missing, expected Alpa's profile database")
    for mesh in _mappings(data.get("meshes", []), f"{path}: meshes"):
        available = mesh.get("available_memory_per_device")
        if isinstance(available, int | float):
            memory[str(mesh.get("mesh_shape"))] = available
    for key, size in (("collectives", "elements"), ("dots", "flops")):
        for number, entry in enumerate(_mappings(data.get(key, []), f"{path}: {key}"), start=1):
            place = f"{path}: {key}, entry {number}"
            name = entry.get("kind") if key == "collectives" else "matmul"
            if name not in (*COLLECTIVES, "matmul"):
                known = ", ".join(COLLECTIVES)
                raise ProfileError(
                    f"{place}: 'kind': found {_shown(name)}, expected one of {known}"
                )
            seconds = entry.get("seconds")
            if isinstance(seconds, list):  # JSON has no infinity
                seconds = [math.inf if value is None else value for value in seconds]
            yield _series(
                place, str(entry.get("cluster_key", "default")),
                _mesh(entry.get("mesh_shape"), place), name, entry.get("dtype"),
                entry.get("groups", []), entry.get(size), seconds,
            )  # fmt: skip


def _mappings(values: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise ProfileError(f"{where}: expected a list of objects")
    return values


def _mesh(value: Any, where: str) -> tuple[int, int]:
    if (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(v, int) and 0 < v < 2**20 for v in value)
    ):
        return value[0], value[1]
    raise ProfileError(
        f"{where}: mesh shape: found {_shown(value)}, expected (hosts, devices of each)"
    )


def _series(
    where: str,
    cluster: str,
    mesh: tuple[int, int],
    name: str,
    dtype: Any,
    groups: Any,
    sizes: Any,
    seconds: Any,
) -> AlpaSeries:
    """Return a series of checked values, ascending in size."""
    if not isinstance(dtype, str) or dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise ProfileError(f"{where}: dtype: found {_shown(dtype)}, expected one of {known}")
    ranks: tuple[tuple[int, ...], ...] = ()
    if name != "matmul":
        ranks = _groups(groups, mesh, where)
    columns: list[list[float]] = []
    for what, values, open_end in (("sizes", sizes, False), ("seconds", seconds, True)):
        if not isinstance(values, list) or (columns and len(values) != len(columns[0])):
            raise ProfileError(f"{where}: {what}: expected a list, as long as that of the sizes")
        for value in values:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            least = 0 if not open_end else 1e-12
            if not number or not (least <= value <= LARGEST or (open_end and value == math.inf)):
                expected = "a positive number" if open_end else "a number of at least 0"
                raise ProfileError(f"{where}: {what}: found {_shown(value)}, expected {expected}")
        columns.append([float(value) for value in values])
    pairs = sorted(zip(*columns, strict=True), key=lambda pair: pair[0])
    return AlpaSeries(
        cluster=cluster,
        mesh=mesh,
        name=name,
        dtype=dtype,
        groups=ranks,
        sizes=tuple(size for size, _ in pairs),
        seconds=tuple(time for _, time in pairs),
    )


def _groups(groups: Any, mesh: tuple[int, int], where: str) -> tuple[tuple[int, ...], ...]:
    """Return groups of ranks of equal size."""
    if isinstance(groups, tuple | list) and groups:
        found = tuple(tuple(g) if isinstance(g, tuple | list) else () for g in groups)
        devices = mesh[0] * mesh[1]
        if all(
            len(group) == len(found[0]) > 0
            and all(isinstance(rank, int) and 0 <= rank < devices for rank in group)
            and all(a < b for a, b in itertools.pairwise(group))
            for group in found
        ):
            return found
    raise ProfileError(
        f"{where}: groups: expected groups of ascending ranks below {mesh[0] * mesh[1]}, of equal "
        "size"
    )


def _shown(value: Any) -> str:
    """Return a value for an error message; possibly endless ones only by type."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < LARGEST):
        return repr(value)
    if isinstance(value, int):
        return "a whole number beyond 1e18"
    if isinstance(value, tuple | list) and len(value) < 4:
        inner = ", ".join(
            _shown(v) if not isinstance(v, tuple | list) else type(v).__name__ for v in value
        )
        return f"({inner})"
    return f"a {type(value).__name__}"
