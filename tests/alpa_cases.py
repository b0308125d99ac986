"""Alpa's profile database: a small one as its profiler writes it, and the published one."""

import pickle
import sys
import types
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

DATA = Path(__file__).parents[2] / "shared" / "data" / "alpa"
DATABASE = DATA / "prof_database.json"
needs_data = pytest.mark.skipif(
    not DATABASE.exists(), reason="Alpa's database is not in ../shared/data/alpa"
)
EMPTY_LOOP = 17e-6
MESHES = ((1, 2), (2, 2))


class MeshProfilingResult:
    """The attributes that Alpa's class of this name has."""

    def __init__(self) -> None:
        self.all_gather_cost_dict: dict[Any, Any] = defaultdict(list)
        self.all_reduce_cost_dict: dict[Any, Any] = defaultdict(list)
        self.all_to_all_cost_dict: dict[Any, Any] = defaultdict(list)
        self.reduce_scatter_cost_dict: dict[Any, Any] = defaultdict(list)
        self.available_memory_per_device = 14_957_700_710
        self.dot_cost_dict: dict[Any, Any] = defaultdict(list)
        self.conv_cost_dict: list[Any] = []
        self.op_cost_dict: list[Any] = []


MeshProfilingResult.__module__ = "alpa.mesh_profiling"
MeshProfilingResult.__qualname__ = "MeshProfilingResult"


def monotonic(pairs: list[tuple[int, float]]) -> list[tuple[int, Any]]:
    """Return the pairs with the bandwidth never falling, in numpy's numbers."""
    sizes = np.array([float(size) for size, _ in pairs])
    times = np.array([time for _, time in pairs])
    bandwidth = np.maximum.accumulate(sizes / times)
    held = np.divide(sizes, bandwidth, out=times.copy(), where=bandwidth > 0)
    return [(size, time) for (size, _), time in zip(pairs, held, strict=True)]


def database() -> dict[Any, MeshProfilingResult]:
    """Return a small database with every kind of row."""
    found = {}
    products = monotonic([(2 * n**3, 2e-5 + n**3 * 1e-13) for n in (0, 128, 256, 512)])
    for hosts, devices in MESHES:
        result = MeshProfilingResult()
        total = hosts * devices
        groups = [(tuple(range(total)),), tuple((rank,) for rank in range(total))]
        for name in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter"):
            costs = getattr(result, f"{name}_cost_dict")
            for ranks in groups:
                for dtype, width in (("f16", 2), ("f32", 4)):
                    g = len(ranks[0])
                    unit = {"all_reduce": 1, "all_to_all": g * g}.get(name, g)
                    pairs = [
                        (size, EMPTY_LOOP if size < unit else 6e-5 * g + size * width / 3e9)
                        for size in (0, *(2**k for k in range(0, 25, 2)))
                    ]
                    costs[ranks, dtype] = monotonic(pairs)
        result.dot_cost_dict[(), "f16"] = products
        found["default", (hosts, devices)] = result
    failed = found["default", (2, 2)].all_reduce_cost_dict
    failed[((0, 2), (1, 3)), "f32"] = [(2**k, np.inf) for k in range(3)]
    return found


def pickled(value: Any, protocol: int = 4) -> bytes:
    """Return a pickle that names Alpa's module, which need not be there."""
    module = types.ModuleType("alpa.mesh_profiling")
    module.__dict__["MeshProfilingResult"] = MeshProfilingResult
    with mock.patch.dict(
        sys.modules, {"alpa": types.ModuleType("alpa"), "alpa.mesh_profiling": module}
    ):
        return pickle.dumps(value, protocol)


def as_json(value: Mapping[Any, MeshProfilingResult]) -> dict[str, Any]:
    """Return the database in the layout of the JSON file."""
    collectives, dots = [], []
    for (cluster, mesh), result in value.items():
        common = {"cluster_key": cluster, "mesh_shape": list(mesh)}
        for name in ("all_gather", "all_reduce", "all_to_all", "reduce_scatter"):
            for (groups, dtype), pairs in getattr(result, f"{name}_cost_dict").items():
                collectives.append(
                    common
                    | {
                        "kind": name,
                        "dtype": dtype,
                        "groups": [list(group) for group in groups],
                        "elements": [size for size, _ in pairs],
                        "seconds": [float(t) if np.isfinite(t) else None for _, t in pairs],
                    }
                )
        for (_, dtype), pairs in result.dot_cost_dict.items():
            dots.append(
                common
                | {
                    "dtype": dtype,
                    "flops": [size for size, _ in pairs],
                    "seconds": [float(t) for _, t in pairs],
                }
            )
    return {"collectives": collectives, "dots": dots}
