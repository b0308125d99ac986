"""Reader and writer of Metis's profile folders.

A folder has a file `DeviceType.<TYPE>_tp<t>_bs<b>.json` per device type, tensor-parallel degree and
micro-batch size of one replica.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import make_folder, missing_folder, read_json, to_json, write_text
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.peers.metis.profile import MetisProfile, MetisRow, file_name, total

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from ilp_planner.base.numerics import Floats

FILE_NAME = re.compile(r"DeviceType\.(\S+?)_tp([0-9]{1,6})_bs([0-9]{1,6})\.json", re.ASCII)
PATTERN = "DeviceType.TYPE_tpN_bsN.json"
MODEL_WIDE = ("optimizer", "batch_generator", "parameters")  # of `MetisRow`


def read_metis_profile(folder: Path, *, model_file: str | None = None) -> MetisProfile:
    """Read a folder; the system's order of it does not matter.
    model_file: the file that model-wide constants come from.

    Raises
    ------
    ProfileError: one line with the file, the key, the found and the expected value.
    """
    if not folder.is_dir():
        raise ProfileError(missing_folder(folder, f"files {PATTERN}"))
    files: dict[LayerKey, str] = {}
    strays = []
    for name in sorted(path.name for path in folder.iterdir() if path.suffix == ".json"):
        match = FILE_NAME.fullmatch(name)
        if match is None or not int(match[2]) or not int(match[3]):
            strays.append(name)
            continue
        key = LayerKey(match[1].upper(), int(match[2]), int(match[3]))
        if key in files:
            raise ProfileError(f"{folder}: expected one file for {key}, found {files[key]}, {name}")
        files[key] = name
    if not files:
        raise ProfileError(f"{folder}: must have files {PATTERN}, found none")
    constants = _constants(folder, files, model_file)
    contents = {key: _open(folder / files[key]) for key in sorted(files)}
    rows = {
        key: _read_row(folder / files[key], contents[key], whole_model=key == constants)
        for key in sorted(files)
    }
    for key, row in rows.items():
        if row.compute.size != rows[constants].compute.size:
            raise ProfileError(
                f"{folder / files[key]}: execution_time.layer_compute_total_ms must have "
                f"{rows[constants].compute.size} entries as in {files[constants]}, "
                f"found {row.compute.size}"
            )
    profile = MetisProfile(
        source=str(folder),
        rows=rows,
        constants=constants,
        model_name=_model_name(contents[constants]),
    )
    return replace(profile, notes=tuple(_remarks(profile, strays)))


def write_metis_profile(profile: MetisProfile, folder: Path) -> None:
    """Write a folder that Metis reads, and that `read_metis_profile` reads back as the same
    numbers.

    Unknown values are left out of the files; Metis itself needs forward_backward_time_ms in each,
    and the model-wide figures in the file that it reads first.

    Raises
    ------
    OutputError: a file cannot be written.
    """
    make_folder(folder)
    shared = profile.rows[profile.constants]
    for key, row in profile.rows.items():
        unsaid = [name for name in MODEL_WIDE if getattr(row, name) is None]
        row = replace(row, **{name: getattr(shared, name) for name in unsaid})
        model: dict[str, Any] = {"model_name": profile.model_name, "num_layers": profile.layers}
        if row.parameters is not None:
            model["parameters"] = {
                "total_parameters_bytes": _number(total(row.parameters)),
                "parameters_per_layer_bytes": [_number(p) for p in row.parameters],
            }
        steps = {
            "forward_backward_time_ms": row.forward_backward,
            "batch_generator_time_ms": row.batch_generator,
            "optimizer_time_ms": row.optimizer,
        }
        times: dict[str, Any] = {name: time for name, time in steps.items() if time is not None}
        times["layer_compute_total_ms"] = [float(t) for t in row.compute]
        memory = {
            "total_memory_mb": _number(total(row.memory)),
            "layer_memory_total_mb": [_number(m) for m in row.memory],
        }
        content = {"model": model, "execution_time": times, "execution_memory": memory}
        write_text(folder / file_name(key), to_json(content))


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def _constants(folder: Path, files: Mapping[LayerKey, str], model_file: str | None) -> LayerKey:
    if model_file is None:
        return min(files)
    for key, name in files.items():
        if name == model_file:
            return key
    raise ProfileError(
        f"{folder}: model file {model_file!r} must be one of its files {PATTERN}, "
        f"found {', '.join(sorted(files.values())[:3])}, ..."
    )


def _open(path: Path) -> dict[str, Any]:
    refuse_other_kind(path, FileKind.METIS, ProfileError)
    content = read_json(path, ProfileError)
    if not isinstance(content, dict):
        raise ProfileError(f"{path}: must be an object, found {_shown(content)}")
    return content


def _read_row(path: Path, content: dict[str, Any], *, whole_model: bool) -> MetisRow:
    times = _table(path, content, "execution_time")
    compute = _numbers(path, times, "execution_time.layer_compute_total_ms")
    if not (compute > 0).all():
        layer = int(np.argmin(compute > 0))
        raise ProfileError(
            f"{path}: execution_time.layer_compute_total_ms[{layer}] must be positive, "
            f"found {compute[layer]:.6g}"
        )
    table = _table(path, content, "execution_memory")
    memory = _numbers(path, table, "execution_memory.layer_memory_total_mb", compute.size)
    _refuse_negative(path, "execution_memory.layer_memory_total_mb", memory)
    parameters = None
    if whole_model:
        inner = _table(path, _table(path, content, "model"), "parameters", "model.")
        name = "model.parameters.parameters_per_layer_bytes"
        parameters = _numbers(path, inner, name, compute.size)
        _refuse_negative(path, name, parameters)
    return MetisRow(
        compute=compute,
        memory=memory,
        forward_backward=_number_of(path, times, "forward_backward_time_ms", optional=True),
        optimizer=_number_of(path, times, "optimizer_time_ms", optional=not whole_model),
        batch_generator=_number_of(
            path, times, "batch_generator_time_ms", optional=not whole_model
        ),
        parameters=parameters,
    )


def _table(path: Path, content: dict[str, Any], key: str, where: str = "") -> dict[str, Any]:
    if key not in content:
        found = ", ".join(map(str, content)) or "nothing"
        raise ProfileError(f"{path}: {where}{key} is missing, found {found}")
    if not isinstance(content[key], dict):
        raise ProfileError(f"{path}: {where}{key} must be an object, found {_shown(content[key])}")
    return dict(content[key])


def _numbers(path: Path, table: dict[str, Any], name: str, entries: int | None = None) -> Floats:
    key = name.rpartition(".")[2]
    if key not in table:
        raise ProfileError(f"{path}: {name} is missing, found {', '.join(table) or 'nothing'}")
    values = table[key]
    if not isinstance(values, list) or not values:
        raise ProfileError(f"{path}: {name} must be a list of numbers, found {_shown(values)}")
    for index, value in enumerate(values):
        if not _is_number(value):
            raise ProfileError(
                f"{path}: {name}[{index}] must be a finite number, found {_shown(value)}"
            )
    if entries is not None and len(values) != entries:
        raise ProfileError(
            f"{path}: {name} must have {entries} entries as execution_time.layer_compute_total_ms, "
            f"found {len(values)}"
        )
    return np.array(values, dtype=np.float64)


def _refuse_negative(path: Path, name: str, values: Floats) -> None:
    if (values < 0).any():
        layer = int(np.argmax(values < 0))
        raise ProfileError(f"{path}: {name}[{layer}] must not be negative, found {values[layer]:g}")


def _number_of(path: Path, table: dict[str, Any], key: str, *, optional: bool) -> float | None:
    if key not in table:
        if optional:
            return None
        raise ProfileError(f"{path}: execution_time.{key} is missing, found {', '.join(table)}")
    value = table[key]
    if not _is_number(value) or value < 0:
        raise ProfileError(
            f"{path}: execution_time.{key} must be a finite number of at least 0, "
            f"found {_shown(value)}"
        )
    return float(value)


def _shown(value: Any) -> str:
    return json.dumps(value)[:40]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _model_name(content: dict[str, Any]) -> str:
    model = content.get("model")
    name = model.get("model_name", "") if isinstance(model, dict) else ""
    return name if isinstance(name, str) else ""


def _remarks(profile: MetisProfile, strays: Sequence[str]) -> Iterable[str]:
    source = profile.source
    if strays:
        yield f"{source}: ignored, not named {PATTERN}: {_some(strays)}"
    missing = [file_name(k) for k, row in profile.rows.items() if row.forward_backward is None]
    if missing:
        yield (
            f"{source}: forward_backward_time_ms is missing in {_some(missing)}: "
            "nothing is counted beyond the layers' own time"
        )
    negative = [file_name(k) for k, row in profile.rows.items() if row.sync < 0]
    if negative:
        yield f"{source}: forward_backward_time_ms is less than its layers in {_some(negative)}"
    degrees = sorted({key.tp for key in profile.rows})
    sizes = sorted({key.samples for key in profile.rows})
    holes = [
        file_name(LayerKey(device, tp, size))
        for device in profile.device_types
        for tp in degrees
        for size in sizes
        if LayerKey(device, tp, size) not in profile.rows
    ]
    if holes:
        yield f"{source}: not profiled, and left out of every plan: {_some(holes)}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
