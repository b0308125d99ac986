"""The verb `sweep`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import UsageError, described
from ilp_planner.faces.api.words import in_python, positive, python_words
from ilp_planner.optimize.solvers.base import PREFER_PLAIN, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ilp_planner.faces.sweeps.axes import Axis
    from ilp_planner.inputs.request import Request

    File = str | os.PathLike[str]


def sweep(
    model: File | None = None,
    cluster: File | None = None,
    *,
    gpus: str | None = None,
    vary: Mapping[str, object] | str | Sequence[str] | None = None,
    objective: str | Sequence[str] = "time",
    tokens: float | str | None = None,
    price: float | str | None = None,
    output: File | None = None,
    plot: File | None = None,
    yes: bool = False,
    progress: Callable[[int, str], None] | bool | None = None,
    **said: Any,
) -> pd.DataFrame:
    """Plan every combination of values, by the rules of `ilp-plan sweep`; return a row for each.

    A point without a plan is a row whose `reason` says why. A Ctrl-C ends the sweep with the rows
    that there are.

    Parameters
    ----------
    model, cluster: a name or a path, as in `ilp_planner.problem`.
    gpus: instead of a cluster, counts of GPUs of the table: `8..256xH100`, the powers of two, or
        `8,16,24xH100`.
    vary: field -> its values: a list, a range, or a text as `"256,512"` or `"2..8"`; or texts as
        `"pp=2..8"`. Fields are keywords of `ilp_planner.problem` and keys of model and cluster
        files.
    objective: `time`, `price` or both, as `"time,price"`; the column `pareto` marks the best or the
        front.
    tokens: of a training run; its days and price are then columns. price: of a device per hour, a
        number or as `"A100=2.5,T4=0.4"`.
    output: a table, .csv or .parquet, that the same call goes on with; plot: .png or .svg.
    executor: `local`, `slurm`, `dask` or `ray`. scheduler: its address. fallback: solve on this
        machine if it cannot be reached. workers: points at once.
    seconds, gap, prefer_plain, all_devices: limits for each point, as `ilp_planner.solve` has them.
    yes: more points than `limits.POINTS`, 100,000, are meant.
    progress: called with the number of finished points and their outcomes; True: a bar on the
        terminal.
    said: further keywords of `ilp_planner.problem`, which all points have.

    Raises
    ------
    UsageError: a field that does not exist, values that cannot be any, or a table of another sweep
        under `output`. SchedulerError: the scheduler cannot be reached. OutputError: a file cannot
        be written.
    """
    from ilp_planner.faces.cli.sweep_request import asked_sweep, asked_wish
    from ilp_planner.faces.sweeps.executors.registry import EXECUTORS
    from ilp_planner.faces.sweeps.sweep import Files, Place, check_size, run_sweep
    from ilp_planner.faces.sweeps.table import frame_of

    place = Place(**_taken(said, "executor", "scheduler", "fallback", "workers"))
    limits = Limits(
        workers=1,
        prefer_plain=said.pop("prefer_plain", PREFER_PLAIN),
        **_taken(said, "seconds", "gap"),
    )
    all_devices = bool(said.pop("all_devices", False))
    if place.executor not in EXECUTORS:
        known = ", ".join(EXECUTORS)
        raise UsageError(f"executor: found {place.executor!r}, expected one of {known}")
    if place.workers is not None:
        place = replace(place, workers=positive("workers", place.workers))
    files = Files(output=_path(output), plot=_path(plot))
    names = objective if isinstance(objective, str) else ",".join(objective)
    with python_words():
        base = common_request({"model": model, "cluster": cluster, **said})
        asked = asked_sweep(base, gpus, _axes(vary), limits, all_devices=all_devices)
        check_size(asked, yes=yes)
        wish = asked_wish(asked, names, tokens, None if price is None else str(price))
        with _told(progress, asked.size) as tell:
            ended = run_sweep(asked, wish, place, files, tell, _note)
        return frame_of(asked, ended.rows)


def _taken(said: dict[str, Any], *names: str) -> dict[str, Any]:
    """Take these keywords, as far as they are given."""
    return {name: said.pop(name) for name in names if name in said}


def common_request(said: Mapping[str, Any]) -> Request:
    """Return the common request of all points of a sweep: the values of fields of requests by their
    names.

    Raises
    ------
    UsageError: an unknown field, or an impossible value.
    """
    from ilp_planner.faces.sweeps.axes import axis_of
    from ilp_planner.faces.sweeps.fields import find_field
    from ilp_planner.inputs.request import ANALYTIC, Reference, Request

    request = Request(files={"profile": Reference(name=ANALYTIC)})
    axes = [axis_of(name, [value]) for name, value in said.items() if value is not None]
    fields = [(find_field(axis.field, tuple(axes), request), axis) for axis in axes]
    for field, axis in sorted(fields, key=lambda pair: pair[0].order):
        request = field.put(request, axis[0])
    return request


def _axes(vary: Mapping[str, object] | str | Sequence[str] | None) -> list[Axis]:
    from ilp_planner.faces.sweeps.axes import axis_of, parse_axis

    if isinstance(vary, Mapping):
        return [axis_of(name, values) for name, values in vary.items()]
    texts = [vary] if isinstance(vary, str) else vary or ()
    return [parse_axis(text) for text in texts]


def _path(file: File | None) -> Path | None:
    if file is None or isinstance(file, str | os.PathLike):
        return None if file is None else Path(file)
    raise UsageError(f"output: found {described(file)}, expected a path")


def _told(progress: Callable[[int, str], None] | bool | None, points: int) -> Any:
    """Return a context with the callback while points are solved."""
    if progress is True:
        from ilp_planner.faces.cli.terminal import measuring_bar

        return measuring_bar(points)
    if progress not in (None, False) and not callable(progress):
        raise UsageError(f"progress: found {progress!r}, expected True or a function")
    return nullcontext(progress or (lambda done, what: None))


def _note(text: str) -> None:
    import warnings

    warnings.warn(in_python(text), stacklevel=4)
