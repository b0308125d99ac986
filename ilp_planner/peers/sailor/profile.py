"""Sailor's profiles: time and memory of each layer on every GPU type, also as a native table.

Sailor (SOSP 2025, https://github.com/eth-easl/sailor) reads two files of its repository:

* `sailor/Planner/simulations/profiles_tmp.json`: model, GPU type, micro-batch, tensor-parallel
  degree, layer -> [forward, backward, update] in seconds, of one replica;
* `sailor/Planner/llm_info.json`: model, degree, layer -> numbers of parameters and activations of
  one tensor-parallel rank and one sample.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.files import missing_folder, read_json
from ilp_planner.base.limits import PARTS
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import Measurements, Record, measurements_of
from ilp_planner.costs.profiles.table_rows import describe_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ilp_planner.base.numerics import Floats


# ---- profiles ------------------------------------------------------------------------------------


# File -> where it is in Sailor's repository.
TIMES = "profiles_tmp.json"
SIZES = "llm_info.json"
PLACES = {
    TIMES: "sailor/Planner/simulations",
    SIZES: "sailor/Planner",
    "basic_cluster_config.json": "sailor/Planner/simulations/configs",
    "multizone_bandwidths_het.json": "sailor/providers",
    "intra_node_bandwidths.json": "sailor/providers",
}
PASSES = ("forward", "backward", "update")
FLOAT_BYTES = 4  # Sailor's profiles are of single precision
USED = ("params_floats", "act_mem_floats", "act_output_floats")
UNUSED = (
    "act_input_floats",
    "params_bytes",
    "act_output_bytes",
    "act_input_bytes",
    "act_mem_bytes",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class SailorSizes:
    """Sizes of the layers of one tensor-parallel rank, numbers, float64 [L].

    parameters: of the layer. activations: of one sample, kept for the backward pass. outputs: of
    one sample, sent to the next layer.
    """

    parameters: Floats
    activations: Floats
    outputs: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class SailorProfile:
    """Measured rows of one model, L layers.

    source: for the user. times: float64 [L, 3], seconds forward, backward and of the optimiser's
    step of a layer, 0 of all layers if that was not measured. sizes: tensor-parallel degree ->
    sizes. notes: one-line remarks.
    """

    source: str
    model: str
    times: Mapping[LayerKey, Floats]
    sizes: Mapping[int, SailorSizes]
    notes: tuple[str, ...] = ()


def sailor_file(folder: Path, name: str) -> Path | None:
    """Return a file of Sailor's: of a folder that holds it, or of a checkout; None: neither.

    Raises
    ------
    ProfileError: unknown folder.
    """
    if not folder.is_dir():
        raise ProfileError(missing_folder(folder, f"Sailor's {TIMES} and {SIZES}, or a checkout"))
    tries = (folder / name, folder / PLACES[name] / name)
    return next((path for path in tries if path.is_file()), None)


def needed_file(folder: Path, name: str) -> Path:
    """Return a file of Sailor's that there must be.

    Raises
    ------
    ProfileError: it is not there.
    """
    path = sailor_file(folder, name)
    if path is None:
        raise ProfileError(
            f"{folder}: found no {name}, expected it there or in {PLACES[name]}/, where Sailor's "
            "repository has it"
        )
    return path


def sailor_models(folder: Path) -> tuple[str, ...]:
    """Return the models that have times, in the order of the file."""
    path = needed_file(folder, TIMES)
    return tuple(object_of(path, read_json(path, ProfileError), ""))


def read_sailor_profile(folder: Path, model: str) -> SailorProfile:
    """Read the rows of one model.

    Raises
    ------
    ProfileError: one line with the file, the key, the found and the expected value.
    """
    paths = [needed_file(folder, name) for name in (TIMES, SIZES)]
    timed, sized = (
        _chosen(path, object_of(path, read_json(path, ProfileError), ""), model) for path in paths
    )
    times, empty = _times(paths[0], timed, model)
    count = _layer_count(paths[0], times, model)
    degrees = sorted({key.tp for key in times})
    sizes = {
        tp: _sizes(paths[1], sized, f"{model}.{tp}", count) for tp in degrees if str(tp) in sized
    }
    if not sizes:
        raise ProfileError(
            f"{paths[1]}: {model}: found degrees {', '.join(sized) or 'none'}, expected "
            f"{', '.join(map(str, degrees))}, which {paths[0].name} has times of"
        )
    return SailorProfile(
        source=f"sailor:{folder}",
        model=model,
        times={key: rows for key, rows in times.items() if key.tp in sizes},
        sizes=sizes,
        notes=(*empty, *_unstepped(paths[0], times), *_remarks(paths, degrees, sizes, sized)),
    )


def _layer_count(path: Path, times: Mapping[LayerKey, Floats], model: str) -> int:
    """Return the number of layers, equal in all configurations of the model."""
    (first, rows), *others = times.items()
    for key, other in others:
        if len(other) != len(rows):
            raise ProfileError(
                f"{path}: {model}: found {len(other)} layers of {describe_key(key)}, expected "
                f"{len(rows)} as of {describe_key(first)}"
            )
    return len(rows)


def _unstepped(path: Path, times: Mapping[LayerKey, Floats]) -> list[str]:
    """Say the types with zero time of the optimiser's step: it was not measured."""
    found = [describe_key(key) for key, rows in times.items() if not rows[:, 2].any()]
    if not found:
        return []
    return [
        f"{path.name}: update is 0 in {len(found)} of {len(times)} runs, beginning with "
        f"{found[0]}: taken as not measured"
    ]


def _remarks(
    paths: list[Path], degrees: list[int], sizes: Mapping[int, SailorSizes], sized: dict[str, Any]
) -> list[str]:
    """Say the unused parts."""
    times, figures = (path.name for path in paths)
    notes = []
    unsized = [str(tp) for tp in degrees if tp not in sizes]
    if unsized:
        notes.append(f"{times}: tp {', '.join(unsized)}: left out, {figures} has no sizes of it")
    untimed = [f"{tp:.20}" for tp in sized if tp not in map(str, sizes)]
    if untimed:
        notes.append(f"{figures}: tp {', '.join(untimed)}: left out, {times} has no times of it")
    notes.append(
        f"{figures}: {', '.join(UNUSED)} are not read: Sailor's planner counts floats of "
        "parameters, kept activations and outputs, and so does the table"
    )
    return notes


def _chosen(path: Path, models: dict[str, Any], model: str) -> dict[str, Any]:
    if model not in models:
        raise ProfileError(f"{path}: found no {model!r}, expected one of {', '.join(models)}")
    return object_of(path, models[model], model)


def _times(
    path: Path, devices: dict[str, Any], model: str
) -> tuple[dict[LayerKey, Floats], list[str]]:
    """Return the seconds of every configuration of the layers, at least one, and remarks on ones
    without."""
    found, notes = {}, []
    for device, by_size in devices.items():
        where = f"{model}.{device}"
        for size, by_degree in object_of(path, by_size, where).items():
            samples = count_of(path, f"{where}: micro-batch", size)
            for degree, rows in object_of(path, by_degree, f"{where}.{size}").items():
                place = f"{where}.{size}.{degree}"
                key = LayerKey(device, count_of(path, f"{where}.{size}: degree", degree), samples)
                if rows == {}:
                    notes.append(f"{path.name}: {place}: no layers, left out")
                    continue
                found[key] = np.array(
                    _by_layer(path, rows, place, lambda value, at: _row(path, value, at))
                )
    if not found:
        raise ProfileError(f"{path}: {model}: found no times, expected a GPU type at least")
    return found, notes


def _row(path: Path, value: Any, place: str) -> list[float]:
    if not isinstance(value, list) or len(value) != len(PASSES):
        raise ProfileError(
            f"{path}: {place}: found {value!r:.60}, expected [{', '.join(PASSES)}] in seconds"
        )
    row = [number_of(path, f"{place}[{i}]", seconds) for i, seconds in enumerate(value)]
    if sum(row[:2]) <= 0:
        raise ProfileError(
            f"{path}: {place}: found no time forward and backward, expected more than 0"
        )
    return row


def _sizes(path: Path, sized: dict[str, Any], where: str, layers: int) -> SailorSizes:
    def figures(value: Any, place: str) -> list[float]:
        layer = object_of(path, value, place)
        return [number_of(path, f"{place}.{name}", layer.get(name)) for name in USED]

    rows = _by_layer(path, sized[where.rpartition(".")[2]], where, figures)
    if len(rows) != layers:
        raise ProfileError(
            f"{path}: {where}: found {len(rows)} layers, expected {layers} as in {TIMES}"
        )
    parameters, activations, outputs = np.array(rows, dtype=np.float64).T
    return SailorSizes(parameters=parameters, activations=activations, outputs=outputs)


# ---- values of the files ------------------------------------------------------------------------


def _by_layer(
    path: Path, value: Any, where: str, read: Callable[[Any, str], list[float]]
) -> list[list[float]]:
    """Return the values read of every layer, in order; layers are numbered from 0."""
    layers = object_of(path, value, where)
    if not layers:
        raise ProfileError(f"{path}: {where}: found no layers, expected one at least")
    for layer in range(len(layers)):
        if str(layer) not in layers:
            raise ProfileError(
                f"{path}: {where}: found {len(layers)} layers without {layer}, expected all of "
                f"0 to {len(layers) - 1}"
            )
    return [read(layers[str(layer)], f"{where}.{layer}") for layer in range(len(layers))]


def object_of(path: Path, value: Any, where: str) -> dict[str, Any]:
    """Return an object of a file of Sailor's. where: its key; empty: the whole file.

    Raises
    ------
    ProfileError: it is none.
    """
    if not isinstance(value, dict):
        found = "nothing" if value is None else f"{value!r:.60}"
        place = f"{where}: " if where else ""
        raise ProfileError(f"{path}: {place}found {found}, expected an object")
    return value


def count_of(path: Path, where: str, value: Any, most: int | None = None) -> int:
    """Return a whole number, of at least 1, of a file of Sailor's: a number or a key.
    most: that it may be; None: of layers, samples or GPUs.

    Raises
    ------
    ProfileError: it is none.
    """
    text, limit = str(value), PARTS if most is None else most
    digits = text.isascii() and text.isdigit() and not isinstance(value, bool)
    if not digits or len(text) > len(str(limit)) or not 1 <= int(text) <= limit:
        found = "nothing" if value is None else f"{value!r:.60}"
        raise ProfileError(
            f"{path}: {where}: found {found}, expected a whole number from 1 to {limit}"
        )
    return int(text)


def number_of(path: Path, where: str, value: Any) -> float:
    """Return a number of at least 0 of a file of Sailor's.

    Raises
    ------
    ProfileError: it is none.
    """
    if type(value) not in (int, float) or not (math.isfinite(value) and value >= 0):
        found = "nothing" if value is None else f"{value!r:.60}"
        raise ProfileError(f"{path}: {where}: found {found}, expected a number of at least 0")
    return float(value)


# ---- as a native table ---------------------------------------------------------------------------
# Times are the file's: of whole replicas, tensor-parallel messages included. Bytes follow Sailor's
# planner's count of the numbers in its files (`check_stage_fits` of
# https://github.com/eth-easl/sailor, sailor/Planner/sailor_planner/cpp_src/planner_utils.cpp):
# single precision; 24 bytes per parameter (Adam's two moments 8; weights, gradients, a buffer to
# reduce them and DeepSpeed's copy 4 each), every kept activation 4 per sample in flight, and memory
# outside of the tensors, 2 GB without tensor parallelism and 3 GB with it.


STATE_BYTES = 24  # per parameter
OUTSIDE, OUTSIDE_PARALLEL = 2e9, 3e9  # bytes on a device, alone and among tensor-parallel ranks
PRECISION = "fp32"


def sailor_table(
    profile: SailorProfile, *, hidden: int | None = None, sequence: int | None = None
) -> Measurements:
    """Return the rows of one model as a native table, a row per layer.
    hidden, sequence: sizes of the model, as the files lack them."""
    said = {"hidden": hidden, "sequence": sequence}
    sizes = {name: size for name, size in said.items() if size is not None}
    rows: list[dict[str, Any]] = []
    for key, times in profile.times.items():
        held = profile.sizes[key.tp]
        outside = OUTSIDE if key.tp == 1 else OUTSIDE_PARALLEL
        stepped = times[:, 2].any()
        for layer, (forward, backward, update) in enumerate(times.tolist()):
            parameters = float(held.parameters[layer])
            rows.append(
                {
                    "record": Record.LAYER,
                    "device": key.device,
                    "layers": str(layer),
                    "dtype": PRECISION,
                    "tp": key.tp,
                    "micro_batch": key.samples,
                    **sizes,
                    "time_s": forward + backward,
                    "forward_s": forward,
                    "backward_s": backward,
                    "optimizer_s": update if stepped else None,
                    "weight_bytes": FLOAT_BYTES * parameters,
                    "gradient_bytes": FLOAT_BYTES * parameters,
                    "state_bytes": STATE_BYTES * parameters,
                    "activation_bytes": FLOAT_BYTES * float(held.activations[layer]) * key.samples,
                    "forward_workspace_bytes": outside,
                    "output_bytes": FLOAT_BYTES * float(held.outputs[layer]) * key.samples,
                }
            )
    return measurements_of(
        rows,
        profile.source,
        machine={"format": "sailor", "model": profile.model},
        notes=profile.notes,
    )
