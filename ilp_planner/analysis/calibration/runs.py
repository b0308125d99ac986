"""Measured iterations: a table of runs, and the training job of each."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError, PlannerError, ProfileError
from ilp_planner.base.file_kinds import FileKind, file_kind, refuse_other_kind
from ilp_planner.base.files import existing, lines_of, places, read_text
from ilp_planner.base.limits import check_lines
from ilp_planner.specs.data_sheets import gpu_architecture, known_gpu
from ilp_planner.specs.toml_reader import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob

# Columns that say how long an iteration took.
SECONDS, MILLISECONDS, TOKENS = "seconds", "milliseconds", "tokens_per_second"
TIMES = (SECONDS, MILLISECONDS, TOKENS)
OPTIONAL = ("name", "weight", "gpus", "device")
COLUMNS = ("run", *TIMES, *OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured iteration. seconds: of the iteration. weight: how much it counts in a fit.
    column: that said its time. place: file and line, for messages."""

    name: str
    job: TrainingJob
    seconds: float
    weight: float = 1.0
    column: str = SECONDS
    place: str = ""


def read_runs(path: Path, cluster: ClusterSpec) -> tuple[Run, ...]:
    """Read a table of runs on nodes of a cluster: CSV, a row per run.

    The column `run` has a launch line of Megatron-LM or a path (of a launch script, of exported
    arguments or of a saved plan, from here or from the table on), one of `seconds`, `milliseconds`
    and `tokens_per_second` (of all GPUs) the time. A launch without GPUs has the column `gpus`,
    else all of the cluster.

    Raises
    ------
    ProfileError: the file, or a row, cannot be used. Other errors of files that it names.
    """
    column, rows = _read_table(path)
    runs = tuple(_run(row, f"{path}: line {line}", column, path, cluster) for line, row in rows)
    if not runs:
        raise _nothing(path, "a header and no rows")
    return runs


def _read_table(path: Path) -> tuple[str, Iterator[tuple[int, dict[str, str]]]]:
    """Return the column with times, and of each row its line and its cells, without empty ones."""
    refuse_other_kind(path, FileKind.RUNS, ProfileError)
    text = read_text(path, ProfileError, "utf-8-sig")  # spreadsheets mark their UTF-8
    check_lines(text, path, ProfileError)
    rows = _rows(text, path)
    _, names = next(rows, (0, ()))
    if not names:
        raise _nothing(path, "nothing")
    for name in names:
        if name not in COLUMNS:
            raise ProfileError(f"{path}: column {name!r}: {nearest(name, COLUMNS)}")
    times = [name for name in TIMES if name in names]
    if len(times) != 1 or "run" not in names or len(set(names)) < len(names):
        raise ProfileError(
            f"{path}: found the columns {', '.join(names)}, expected run, one of "
            f"{', '.join(TIMES)}, and at will {', '.join(OPTIONAL)}"
        )
    return times[0], _named(rows, names, path)


def _nothing(path: Path, found: str) -> ProfileError:
    return ProfileError(
        f"{path}: found {found}, expected the columns run,seconds and a row per run"
    )


def _rows(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with its first line."""
    reader, begin = csv.reader(lines_of(text), strict=True), 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield begin, [cell.strip() for cell in cells]
            begin = reader.line_num + 1
    except csv.Error as error:
        raise ProfileError(f"{path}: line {begin}: cannot be read as CSV: {error}") from None


def _named(
    rows: Iterable[tuple[int, list[str]]], names: Sequence[str], path: Path
) -> Iterator[tuple[int, dict[str, str]]]:
    for line, cells in rows:
        if len(cells) != len(names):
            raise ProfileError(
                f"{path}: line {line}: found {len(cells)} fields, expected {len(names)} "
                "(a launch line with commas needs quotes)"
            )
        yield line, {name: cell for name, cell in zip(names, cells, strict=True) if cell}


def _run(row: dict[str, str], place: str, column: str, path: Path, cluster: ClusterSpec) -> Run:
    if "run" not in row:
        raise ProfileError(
            f"{place}: run: found nothing, expected a launch line, or the path of a launch script "
            "or of a plan"
        )
    _check_device(row.get("device", ""), place, cluster)
    measured = _number(row, column, place)
    gpus = int(_number(row, "gpus", place, whole=True)) if "gpus" in row else None
    try:
        job = _job(row["run"], gpus, (path.parent,), cluster)
    except PlannerError as error:
        raise type(error)(f"{place}: {error}") from None
    if job.world > cluster.device_count:
        nodes = -(-job.world // cluster.nodes[0].devices)
        raise ProfileError(
            f"{place}: found a job of {job.world} GPUs, but cluster {cluster.name!r} has "
            f"{cluster.device_count}: expected count = {nodes} of its nodes at least"
        )
    tokens = job.global_batch * job.model.sequence
    return Run(
        name=row.get("name") or _short(row["run"], place),
        job=job,
        seconds={SECONDS: measured, MILLISECONDS: measured / 1e3, TOKENS: tokens / measured}[
            column
        ],
        weight=_number(row, "weight", place) if "weight" in row else 1.0,
        column=column,
        place=place,
    )


def _short(run: str, place: str) -> str:
    """Return a name for a run without one: its file, or its line of the table."""
    return place.rpartition(": ")[2] if " -" in run or run[0] == "-" else Path(run).name


def _number(row: dict[str, str], column: str, place: str, *, whole: bool = False) -> float:
    """Return a positive number."""
    try:
        value = float(row.get(column, ""))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf or (whole and value != int(value)):
        raise ProfileError(
            f"{place}: {column}: found {row.get(column, '')!r}, expected a positive "
            f"{'whole ' if whole else ''}number, without a unit"
        )
    return value


def _check_device(device: str, place: str, cluster: ClusterSpec) -> None:
    """Refuse a run that says that it ran on another GPU than the cluster has."""
    known = cluster.device_types[cluster.type_names[0]]
    names = (known.name, known.profile, known.gpu)
    there = [re.sub(r"[^a-z0-9]", "", name.casefold()) for name in names if name]
    said = re.sub(r"[^a-z0-9]", "", device.casefold())
    if not any(name.startswith(said) or said.startswith(name) for name in there):
        raise ProfileError(
            f"{place}: device: found {device!r}, but cluster {cluster.name!r} has {known.name!r}: "
            "expected runs on it alone; leave the row out, or calibrate another cluster file by it"
        )


def _job(
    run: str, gpus: int | None, folders: tuple[Path, ...], cluster: ClusterSpec
) -> TrainingJob:
    """Return the job of a run, on nodes of a cluster."""
    from ilp_planner.formats.captured.reader import read_any_launch
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.formats.megatron.ranks import gpus_of

    if not (run.startswith("-") or " -" in run):
        here, *beside = places(run, folders)
        file = next(iter(existing([*beside, here])), None)
        if file is None:
            raise ProfileError(
                f"run: found {run!r}, which is no file here or beside the table, nor a launch line"
            )
        run = str(file)
        if file_kind(file) is FileKind.PLAN:
            return _on(_job_of_plan(file, cluster), cluster)
    there = gpus_of(cluster)
    args = read_any_launch(run, gpus=there._replace(devices=gpus or there.devices))
    if gpus not in (None, args.world):
        raise ProfileError(f"gpus: found {gpus}, expected {args.world} as the launch says")
    return _on(job_of_arguments(args), cluster)


def _on(job: TrainingJob, cluster: ClusterSpec) -> TrainingJob:
    return replace(
        job, devices_per_node=cluster.nodes[0].devices, gpu_architecture=gpu_architecture(cluster)
    )


def _job_of_plan(file: Path, wanted: ClusterSpec) -> TrainingJob:
    """Return the job of a saved plan.

    Raises
    ------
    PlanError: it is none of Megatron-LM's; constants are fitted to these. ProfileError: it is for
    other GPUs than `wanted` has.
    """
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import model_and_cluster

    saved = read_saved(file)
    spec, cluster = model_and_cluster(saved, file)
    if spec is None or saved.plan.settings is None:
        raise PlanError(f"{file}: found a plan without settings, expected one of `space=megatron`")
    theirs, ours = (known_gpu(some.device_types[some.type_names[0]]) for some in (cluster, wanted))
    if theirs is not None and ours is not None and theirs.name != ours.name:
        raise ProfileError(
            f"{file}: found a plan for {theirs.name}, but cluster {wanted.name!r} has {ours.name}: "
            "expected runs on it alone; leave the row out, or calibrate another cluster file by it"
        )
    return job_of_plan(saved.plan, spec, cluster)
