"""Aceso's profile database, and the operators of a request from it."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import ProfileError, SpecError
from ilp_planner.base.files import lines_of, missing_folder, read_text
from ilp_planner.base.limits import FIGURE, LEAST_RATE, RATE, TABLE_BYTES, check_lines
from ilp_planner.costs.profiles.table import FIELDS, MIB, OperatorRow, Profile, RowKey

if TYPE_CHECKING:
    from pathlib import Path

    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


# ---- reader of Aceso's profile database (microsoft/SuperScaler, branch EuroSys24AE) --------------
# Three kinds of CSV files.
# * `MODEL_mbs{m}_tp{t}_algo{a}.csv`: operators; microseconds and MiB per device,
# * `prim_MODEL_{primitive}_{n}gpus.csv`: collectives; whole MiB and milliseconds,
# * `p2p_{intra,inter}_node.csv`: message sizes in MiB, then bandwidths in GiB/s that Aceso divides
#   MiB by to get milliseconds, that is 1 GB/s moves 1000 MiB in a second.


OPERATOR_COLUMNS = (
    "op_name",
    "forward-compute",
    "backward-compute",
    "input_size",
    "output_size",
    "weights",
    "activations",
    "fwd_reserved",
    "bwd_reserved",
)
TENSOR_DEGREES = (1, 2, 4, 8)
MICRO_BATCHES = {"gpt": (1, 2, 4, 8), "t5": (1, 2, 4, 8), "resnet": (16, 32, 48, 64)}
SPLITS = {"gpt": (0, 1), "t5": (0,), "resnet": (0, 1)}
PRIMITIVES = {
    "gpt": ("all_gather", "all_reduce", "reduce_scatter", "all_to_all"),
    "t5": (),
    "resnet": ("all_gather", "all_to_all"),
}
# Aceso profiles but never uses tensor parallelism over 8 devices for its smallest models.
LARGEST_TENSOR_DEGREE = {"gpt_350M": 4, "t5_220M": 4}
# Aceso reads the files of T5 11B for T5 22B, which repeats the same layers.
SAME_FILES = {"t5_22B": "t5_11B"}
# Every field of an operator that failed to run; a real time can be just above 1e6 us.
FAILED_ROW = 1e7
BANDWIDTH_UNIT = 1000 * MIB  # "GB/s" in the p2p files: MiB per millisecond


def read_aceso_profile(
    folder: Path, key: str, *, devices_per_node: int, unused: bool = False
) -> Profile:
    """Read the database's content for one model.

    folder: the database. key: the model's name in it (`gpt_1_3B`).
    devices_per_node: caps the tensor-parallel degree, as Aceso does.
    unused: read also rows that Aceso profiled and does not use.

    Raises
    ------
    ProfileError: the folder or the model is not there, or a file is malformed.
    """
    if not folder.is_dir():
        raise ProfileError(missing_folder(folder, "files MODEL_mbs*_tp*_algo*.csv"))
    family = key.split("_")[0]
    if family not in MICRO_BATCHES:
        raise ProfileError(
            f"{folder}: profile key {key!r} must begin with one of {', '.join(MICRO_BATCHES)}"
        )
    files = SAME_FILES.get(key, key)
    cap = devices_per_node if unused else min(devices_per_node, LARGEST_TENSOR_DEGREE.get(key, 8))
    degrees = [t for t in TENSOR_DEGREES if t <= cap]
    rows: dict[RowKey, OperatorRow] = {}
    missing: list[str] = []
    failed: list[RowKey] = []
    for m in MICRO_BATCHES[family]:
        for t in degrees:
            for a in SPLITS[family]:
                path = folder / f"{files}_mbs{m}_tp{t}_algo{a}.csv"
                if not path.exists():
                    missing.append(path.name)
                    continue
                _read_operators(path, m, t, a, rows, failed)
    if not rows:
        known = known_models(folder)
        raise ProfileError(
            f"{folder}: no operator profile for {key!r}, expected {files}_mbs*_tp*_algo*.csv"
            + (f"; it has {', '.join(known)}" if known else "")
        )
    collectives = {}
    for primitive in PRIMITIVES[family]:
        for n in degrees[1:]:
            path = folder / f"prim_{key}_{primitive}_{n}gpus.csv"
            if path.exists():
                collectives[primitive, n] = _read_collective(path)
            else:
                missing.append(path.name)
    intra = _read_bandwidths(folder / "p2p_intra_node.csv")
    inter_path = folder / "p2p_inter_node.csv"
    inter = _read_bandwidths(inter_path) if inter_path.exists() else intra
    notes = []
    if missing:
        notes.append(
            f"{folder.name}: {len(missing)} files not there, planning without them: "
            + ", ".join(missing[:4])
            + (" ..." if len(missing) > 4 else "")
        )
    if failed:
        notes.append(f"{folder.name}: {len(failed)} operator rows failed when profiled, left out")
    if not inter_path.exists():
        notes.append(f"{folder.name}: no p2p_inter_node.csv, links inside the node used throughout")
    return Profile(
        source=f"aceso:{folder.name}",
        micro_batch_sizes=tuple(sorted({k.micro_batch for k in rows})),
        tensor_degrees=tuple(sorted({k.tp for k in rows})),
        splits=tuple(sorted({k.split for k in rows})),
        rows=rows,
        collectives=collectives,
        intra_node=intra,
        inter_node=inter,
        failed=frozenset(failed),
        notes=tuple(notes),
    )


def known_models(folder: Path) -> list[str]:
    """Return the models that a database has operators of, by their keys."""
    return sorted({p.name.split("_mbs")[0] for p in folder.glob("*_mbs*_tp*_algo*.csv")})


def _read_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows that are not blank, each with its line number."""
    text = read_text(path, ProfileError, most=TABLE_BYTES)
    check_lines(text, path, ProfileError)
    reader = csv.reader(lines_of(text))
    try:
        return [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise ProfileError(f"{path}: cannot be read as CSV: {error}") from None


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= FIGURE:
        raise ProfileError(
            f"{path}: line {line}: {column!r} must be a number >= 0, found {text.strip()!r}"
        )
    return value


def _read_operators(
    path: Path, m: int, t: int, a: int, rows: dict[RowKey, OperatorRow], failed: list[RowKey]
) -> None:
    """Add the rows of one file, and the keys of failed ones."""
    table = _read_rows(path)
    header = [name.strip() for name in table[0][1]] if table else []
    for column in OPERATOR_COLUMNS:
        if column not in header:
            found = ", ".join(header) or "an empty file"
            raise ProfileError(f"{path}: column {column!r} is missing, found {found}")
    place = [header.index(column) for column in OPERATOR_COLUMNS]
    for line, row in table[1:]:
        if len(row) != len(header):
            raise ProfileError(
                f"{path}: line {line}: {len(header)} fields expected, found {len(row)}"
            )
        fields = [
            _number(path, line, column, row[p])
            for column, p in zip(OPERATOR_COLUMNS[1:], place[1:], strict=True)
        ]
        key = RowKey(operator=row[place[0]].strip(), micro_batch=m, tp=t, split=a)
        if max(fields) >= FAILED_ROW:
            failed.append(key)
            continue
        if key in rows:
            raise ProfileError(f"{path}: line {line}: operator {key.operator!r} is there twice")
        values: list[Any] = [f * 1e-6 for f in fields[:2]] + [f * MIB for f in fields[2:]]
        rows[key] = OperatorRow(**dict(zip(FIELDS, values, strict=True)))


def _read_collective(path: Path) -> dict[int, float]:
    table = _read_rows(path)
    if not table or not table[0][1][0].strip().startswith("data_size"):
        found = ",".join(table[0][1]) if table else "an empty file"
        raise ProfileError(f"{path}: expected the header data_size(MB),time(ms), found {found!r}")
    times = {}
    for line, row in table[1:]:
        if len(row) < 2:
            raise ProfileError(
                f"{path}: line {line}: expected data_size(MB),time(ms), found {','.join(row)!r}"
            )
        size = _number(path, line, "data_size(MB)", row[0])
        times[round(size)] = _number(path, line, "time(ms)", row[1]) * 1e-3
    return times


def _read_bandwidths(path: Path) -> tuple[float, ...]:
    if not path.exists():
        raise ProfileError(f"{path}: no such file; it holds the point-to-point bandwidths")
    table = _read_rows(path)
    if len(table) < 2:
        lines = f"{len(table)} line" + ("s" if len(table) != 1 else "")
        raise ProfileError(
            f"{path}: expected a line of sizes and a line of bandwidths, found {lines}"
        )
    (line, sizes), (second, bandwidths) = table[:2]
    for place, text in enumerate(sizes):
        if _number(path, line, "size", text) != 2**place:
            raise ProfileError(
                f"{path}: line {line}: expected sizes 1, 2, 4 ... MB, found {text.strip()!r}"
            )
    if len(bandwidths) != len(sizes):
        raise ProfileError(
            f"{path}: line {second}: expected {len(sizes)} bandwidths, found {len(bandwidths)}"
        )
    values = [_number(path, second, "bandwidth", text) for text in bandwidths]
    if 0.0 in values:
        raise ProfileError(f"{path}: line {second}: every bandwidth must be > 0, found '0'")
    rates = tuple(value * BANDWIDTH_UNIT for value in values)
    for text, rate in zip(bandwidths, rates, strict=True):
        if not LEAST_RATE <= rate <= RATE:
            raise ProfileError(
                f"{path}: line {second}: every bandwidth must be from {LEAST_RATE:g} to {RATE:g} "
                f"bytes/s, found {text.strip()!r}"
            )
    return rates


# ---- operators of a request ----------------------------------------------------------------------


def operators(files: InputFiles, model: ModelSpec, cluster: ClusterSpec) -> Profile:
    """Return the profile of a model's operators.

    Raises
    ------
    SpecError: the model does not say its name in the database. ProfileError: not there, malformed.
    """
    if "aceso" not in model.profile:
        named = files.request.name("model") or model.name
        raise SpecError(
            f"{named}: profile.aceso: found nothing, expected the model's name in {files.path}"
        )
    key = model.profile["aceso"]
    prefixes = tuple(f"{k}_" for k in {key, SAME_FILES.get(key, key)})
    folder = files.find(
        "profile",
        files.path,
        lambda name: name.startswith("p2p_") or name.removeprefix("prim_").startswith(prefixes),
    )
    return read_aceso_profile(folder, key, devices_per_node=cluster.devices_per_node)
