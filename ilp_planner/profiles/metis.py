"""Reader and writer of Metis's profile folders, and their conversion to a layer profile.

A folder has a file `DeviceType.<TYPE>_tp<t>_bs<b>.json` per device type, tensor-parallel degree and
micro-batch size of one replica. What is the same for the whole model (parameters, optimiser and
batch generator) Metis takes from whichever file the directory lists first; here it is the one with
the least (tp, bs) of the first type by name, unless another is named.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.errors import OutputError, ProfileError
from ilp_planner.files import read_json, to_json, write_text
from ilp_planner.profiles.layers import LayerKey, LayerProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

FILE_NAME = re.compile(r"DeviceType\.(\S+?)_tp([0-9]{1,6})_bs([0-9]{1,6})\.json", re.ASCII)
PATTERN = "DeviceType.TYPE_tpN_bsN.json"
MIB = 2**20
# Mixed-precision Adam, bytes per parameter: fp16 weight and gradient, fp32 weight and two moments,
# and the fp32 gradient that the optimiser step makes.
ADAM_BYTES = 18
GRADIENT_BYTES = 2  # fp16


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisRow:
    """One file, L layers; milliseconds, and MB of 2^20 bytes.

    compute: float64 [L], forward and backward of each layer. memory: float64 [L], of one device.
    forward_backward: of all layers together; None when the file does not say.
    optimizer, batch_generator: per step and per micro-batch; None when the file does not say.
    parameters: float64 [L], as the file has them (called bytes, often element counts); None
    likewise.
    """

    compute: NDArray[np.float64]
    memory: NDArray[np.float64]
    forward_backward: float | None = None
    optimizer: float | None = None
    batch_generator: float | None = None
    parameters: NDArray[np.float64] | None = None

    @property
    def sync(self) -> float:
        """Milliseconds per micro-batch beyond the layers, Metis's `fb_sync`; 0 when not
        measured."""
        return 0.0 if self.forward_backward is None else self.forward_backward - total(self.compute)


@dataclass(frozen=True, kw_only=True, eq=False)
class MetisProfile:
    """A whole folder.

    source: the folder. rows: in the order of (type, tp, samples). constants: the key of the row
    that holds for the whole model. notes: one-line remarks about what is missing or suspicious.
    """

    source: str
    rows: Mapping[LayerKey, MetisRow]
    constants: LayerKey
    model_name: str = ""
    notes: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """Number of layers, L."""
        return int(self.rows[self.constants].compute.size)

    @cached_property
    def device_types(self) -> tuple[str, ...]:
        """Types that have rows, by name."""
        return tuple(sorted({key.device for key in self.rows}))

    @property
    def optimizer(self) -> float:
        """Milliseconds of the optimiser step of the whole model, doubled as Metis does."""
        return (self.rows[self.constants].optimizer or 0.0) * 2

    @property
    def batch_generator(self) -> float:
        """Milliseconds per micro-batch."""
        return self.rows[self.constants].batch_generator or 0.0

    @property
    def parameters(self) -> NDArray[np.float64]:
        """Parameters per layer as the file has them, float64 [L]."""
        found = self.rows[self.constants].parameters
        return np.zeros(self.layers) if found is None else found

    def degrees(self, device: str) -> tuple[int, ...]:
        """Tensor-parallel degrees that a type has rows for, ascending."""
        return tuple(sorted({key.tp for key in self.rows if key.device == device}))

    def samples(self, device: str, tp: int) -> tuple[int, ...]:
        """Samples per replica that have rows, ascending."""
        return tuple(sorted(k.samples for k in self.rows if (k.device, k.tp) == (device, tp)))


def total(values: Iterable[float]) -> float:
    """Return the sum in plain floating point, first to last, whatever the Python version."""
    result = 0.0
    for value in values:
        result += float(value)
    return result


def file_name(key: LayerKey) -> str:
    """Return how Metis names the file of a row."""
    return f"DeviceType.{key.device}_tp{key.tp}_bs{key.samples}.json"


def check_layer_count(profile: MetisProfile, asked: int) -> None:
    """Refuse a model with another number of layers than was profiled.

    Raises
    ------
    ProfileError: with the number that would do.
    """
    if asked != profile.layers:
        raise ProfileError(
            f"{profile.source}: profiled with {profile.layers} layers, found {asked} asked: "
            f"use --num-layers {profile.layers}"
        )


def read_metis_profile(folder: Path, *, model_file: str | None = None) -> MetisProfile:
    """Read a folder; the order in which the system lists it does not matter.

    Parameters
    ----------
    model_file: the file that model-wide constants come from.

    Raises
    ------
    ProfileError: one line with the file, the key, what was found and what was expected.
    """
    if not folder.is_dir():
        raise ProfileError(f"{folder}: no such profile folder")
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
    return MetisProfile(
        source=profile.source,
        rows=rows,
        constants=constants,
        model_name=profile.model_name,
        notes=tuple(_remarks(profile, strays)),
    )


def write_metis_profile(profile: MetisProfile, folder: Path) -> None:
    """Write a folder that Metis reads, and that `read_metis_profile` reads back as the same
    numbers.

    What the profile does not know is left out of the files; Metis itself needs
    forward_backward_time_ms in each, and the model-wide figures in whichever it reads first.

    Raises
    ------
    OutputError: a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be made: {problem.strerror}") from None
    shared = profile.rows[profile.constants]
    for key, row in profile.rows.items():
        optimizer = row.optimizer if row.optimizer is not None else shared.optimizer
        generator = row.batch_generator
        if generator is None:
            generator = shared.batch_generator
        parameters = row.parameters if row.parameters is not None else shared.parameters
        model: dict[str, Any] = {"model_name": profile.model_name, "num_layers": profile.layers}
        if parameters is not None:
            model["parameters"] = {
                "total_parameters_bytes": _number(total(parameters)),
                "parameters_per_layer_bytes": [_number(p) for p in parameters],
            }
        times: dict[str, Any] = {}
        if row.forward_backward is not None:
            times["forward_backward_time_ms"] = row.forward_backward
        if generator is not None:
            times["batch_generator_time_ms"] = generator
        if optimizer is not None:
            times["optimizer_time_ms"] = optimizer
        times["layer_compute_total_ms"] = [float(t) for t in row.compute]
        memory = {
            "total_memory_mb": _number(total(row.memory)),
            "layer_memory_total_mb": [_number(m) for m in row.memory],
        }
        content = {"model": model, "execution_time": times, "execution_memory": memory}
        write_text(folder / file_name(key), to_json(content))


def metis_layer_profile(profile: MetisProfile, *, hidden: int, sequence: int) -> LayerProfile:
    """Return the profile in the planner's own terms.

    * time: the layers' own; `fb_sync`, which is the loss and the turn from forward to backward,
      goes to the last layer, so that one stage of all layers takes the measured
      forward_backward_time_ms.
    * state and activation: the measured memory is a line over the micro-batch sizes; its slope
      (never negative) is the activation per sample, and state is the least that covers every row.
      With one size only, state is 18 bytes (mixed-precision Adam) per parameter, at most what was
      measured.
    * gradients: 2 bytes (fp16) per parameter, 4 where the profile evidently counts fp32 bytes. The
      figures of the file are compared with the 12 hidden^2 parameters of a transformer layer: as
      elements, as fp16 or as fp32 bytes, of the whole layer or of one of tp devices; what comes
      within 40 % is what they are. Models of another shape: the memory of a layer at no sample, of
      all tp devices together, is about 18 bytes per parameter, so 18 units of an element count, 9
      of fp16 and 4 of fp32 bytes (fp32 trains with 16 bytes per parameter).
    * boundary: fp16 activations, 2 sequence hidden bytes per sample.
    * optimizer: that of the file with the least micro-batch, over the layers by their parameters.

    Parameters
    ----------
    hidden, sequence: sizes of the model that was profiled.
    """
    meaning = _parameter_meaning(profile, hidden)
    parameters = profile.parameters * meaning.elements
    layers = profile.layers
    time: dict[LayerKey, NDArray[np.float64]] = {}
    state: dict[tuple[str, int], NDArray[np.float64]] = {}
    activation: dict[tuple[str, int], NDArray[np.float64]] = {}
    optimizer: dict[tuple[str, int], NDArray[np.float64]] = {}
    weight = parameters / parameters.sum() if parameters.sum() > 0 else np.full(layers, 1 / layers)
    for key, row in profile.rows.items():
        seconds = row.compute / 1e3
        seconds[-1] += max(row.sync, 0.0) / 1e3
        time[key] = seconds
    for device in profile.device_types:
        for tp in profile.degrees(device):
            sizes = profile.samples(device, tp)
            rows = [profile.rows[LayerKey(device, tp, size)] for size in sizes]
            memory = np.array([row.memory for row in rows]) * MIB
            known = ADAM_BYTES * parameters / tp
            state[device, tp], activation[device, tp] = _split_memory(sizes, memory, known)
            steps = [row.optimizer for row in rows if row.optimizer is not None]
            if steps:
                optimizer[device, tp] = steps[0] / 1e3 * weight
    boundary = np.full(layers + 1, 2.0 * sequence * hidden)
    boundary[[0, -1]] = 0.0
    return LayerProfile(
        source=f"metis:{profile.source}",
        layers=layer_names(layers),
        time=time,
        state=state,
        activation=activation,
        workspace={key: np.zeros(layers) for key in state},
        gradients=parameters * meaning.gradient_bytes,
        boundary=boundary,
        optimizer=optimizer,
        measured=frozenset(time),
        notes=(*profile.notes, *meaning.notes),
    )


def layer_names(layers: int) -> tuple[str, ...]:
    """Return what Metis takes the layers for: an embedding, transformer layers and a head."""
    if layers < 3:
        return tuple(f"layer {i + 1}" for i in range(layers))
    return ("embedding", *(f"layer {i}" for i in range(1, layers - 1)), "head")


def _split_memory(
    sizes: Sequence[int], memory: NDArray[np.float64], known: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (state, activation per sample) in bytes, float64 [L], that cover every row.

    memory: float64 [sizes, L], bytes. known: float64 [L], state in bytes where one size must do.
    """
    at = np.asarray(sizes, dtype=np.float64)
    if at.size == 1:
        state = np.minimum(known, memory[0])
        return state, (memory[0] - state) / at[0]
    spread = at - at.mean()
    slope = np.maximum(spread @ (memory - memory.mean(axis=0)) / (spread @ spread), 0.0)
    # A steep line through few rows would start below nothing.
    slope = np.minimum(slope, (memory / at[:, None]).max(axis=0))
    state = np.maximum((memory - at[:, None] * slope).max(axis=0), 0.0)
    return state, slope


@dataclass(frozen=True, kw_only=True)
class _Meaning:
    """elements: parameters per unit of the file's figures. gradient_bytes: per parameter."""

    elements: float
    gradient_bytes: int
    notes: tuple[str, ...] = ()


def _parameter_meaning(profile: MetisProfile, hidden: int) -> _Meaning:
    figures = profile.parameters
    inner = figures[1:-1] if figures.size > 2 else figures
    figure = float(np.median(inner))
    if figure <= 0:
        return _Meaning(elements=1.0, gradient_bytes=GRADIENT_BYTES)
    counted = f"{profile.source}: parameters_per_layer_bytes ({figure:.12g} in a layer)"
    tp = profile.constants.tp
    best = min(
        ((unit, shards) for shards in dict.fromkeys((1, tp)) for unit in (1, 2, 4)),
        key=lambda m: abs(math.log(figure / m[0] * m[1] / (12.0 * hidden**2))),
    )
    unit, shards = best
    if abs(math.log(figure / unit * shards / (12.0 * hidden**2))) > math.log(1.4):
        unit, shards = _unit_by_memory(profile, figure), 1
    notes = []
    if unit == 1:
        notes.append(
            f"{counted} are element counts, not bytes: gradients are planned with "
            f"{GRADIENT_BYTES} bytes each; cost model metis keeps them as bytes"
        )
    if shards > 1:
        notes.append(f"{counted} are those of one of {shards} tensor-parallel devices")
    gradient = 4 if unit == 4 else GRADIENT_BYTES
    return _Meaning(elements=shards / unit, gradient_bytes=gradient, notes=tuple(notes))


def _unit_by_memory(profile: MetisProfile, figure: float) -> int:
    """Return bytes per parameter that the figures must be counted in, by the memory of a layer."""
    device, tp, _ = profile.constants
    sizes = profile.samples(device, tp)
    memory = np.array([profile.rows[LayerKey(device, tp, b)].memory for b in sizes]) * MIB * tp
    inner = memory[:, 1:-1] if memory.shape[1] > 2 else memory
    per_layer = np.median(inner, axis=1)
    state = per_layer[0]
    if len(sizes) > 1:
        state -= sizes[0] * max(0.0, (per_layer[-1] - per_layer[0]) / (sizes[-1] - sizes[0]))
    ratio = max(float(state), 1.0) / figure
    expected = {1: 18.0, 2: 9.0, 4: 4.0}
    return min(expected, key=lambda unit: abs(math.log(ratio / expected[unit])))


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
    content = read_json(path, ProfileError)
    if not isinstance(content, dict):
        raise ProfileError(f"{path}: must be an object, found {json.dumps(content)[:40]}")
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
        raise ProfileError(
            f"{path}: {where}{key} must be an object, found {json.dumps(content[key])[:40]}"
        )
    return dict(content[key])


def _numbers(
    path: Path, table: dict[str, Any], name: str, entries: int | None = None
) -> NDArray[np.float64]:
    key = name.rpartition(".")[2]
    if key not in table:
        raise ProfileError(f"{path}: {name} is missing, found {', '.join(table) or 'nothing'}")
    values = table[key]
    if not isinstance(values, list) or not values:
        raise ProfileError(
            f"{path}: {name} must be a list of numbers, found {json.dumps(values)[:40]}"
        )
    for index, value in enumerate(values):
        if not _is_number(value):
            raise ProfileError(
                f"{path}: {name}[{index}] must be a finite number, found {json.dumps(value)[:40]}"
            )
    if entries is not None and len(values) != entries:
        raise ProfileError(
            f"{path}: {name} must have {entries} entries as execution_time.layer_compute_total_ms, "
            f"found {len(values)}"
        )
    return np.array(values, dtype=np.float64)


def _refuse_negative(path: Path, name: str, values: NDArray[np.float64]) -> None:
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
            f"found {json.dumps(value)[:40]}"
        )
    return float(value)


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


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


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
