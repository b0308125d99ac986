"""Published runs with what was predicted of each by constants that saw none of its model.

Three rows may stand for a run. By constants of its own GPU: those of Hopper and Blackwell as
`machine_fit.models_left_out` has them, those of A100 for MosaicML's and Megatron's old runs as
`step_defaults.ampere` has them, for all other runs the shipped ones, which were fitted to none of
them (MosaicML's on H100 told the prior of its clock). By constants of the nearest other GPU of its
architecture (`NEAREST`), fitted without any run of the GPU. And by kernels and constants of another
architecture (`ELSEWHERE`), as a GPU has them on which nothing was measured.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import log
from typing import NamedTuple

from ilp_planner.specs.machine import USUAL
from ilp_planner.specs.time_errors import OTHER, OWN, SAME
from tests.benchmarks import machine_fit
from tests.benchmarks.machine_fit import BLACKWELL, HOPPER, model_of
from tests.benchmarks.published import INTERNEVO, MOSAIC, OLD, Run, gpu, newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_defaults import ampere
from tests.benchmarks.step_times import Judged, judge, judge_by, seconds, shipped

# GPU -> the one whose constants it has where no run of its own is seen.
NEAREST = {"H200": "H100", "B200": "GB200", "GB200": "B200", "B300": "B200", "GB300": "GB200"}
# GPUs by their constants -> the one of another architecture.
ELSEWHERE = {"A100": "H100", **dict.fromkeys(HOPPER, "A100"), **dict.fromkeys(BLACKWELL, "H100")}
WORKERS = 2


class Row(NamedTuple):
    """A run. level: of its constants, as `time_errors.level_of`. off: logarithm of measured over
    predicted."""

    run: Run
    level: str
    off: float


def every_run() -> list[Run]:
    """Return all published runs that times are judged by, one per group."""
    tables = (*b200_runs(), *sc21_runs(), *korthikanti_runs())
    return [*newest(list(runs())), *tables]


def own_rows() -> list[Row]:
    """Judge all runs by constants of their GPUs that saw none of their models."""
    judged = machine_fit.models_left_out().only({run.name for run in every_run()})
    seen = {run.name for run in judged.runs}
    rest = [run for run in every_run() if run.name not in seen]
    apart = [run for run in rest if run.family.startswith((OLD, INTERNEVO, "PyTorch"))]
    sharded = [run for run in rest if run.family.startswith(MOSAIC)]
    hopper = [run for run in sharded if gpu(run.gpu).machine in HOPPER]
    judged += judge_by([*apart, *hopper], shipped)
    others = [run for run in sharded if run not in hopper]
    for name in dict.fromkeys(map(model_of, others)):
        seen_runs = [run for run in others if model_of(run) != name]
        machine = ampere(seen_runs, [*sc21_runs(), *korthikanti_runs()])
        judged += judge([run for run in others if model_of(run) == name], machine)
    tables = sc21_runs(), korthikanti_runs()
    for selene, left in (tables, tables[::-1]):
        judged += judge(left, ampere(others, selene))
    return list(_rows(judged, OWN))


def nearest_rows() -> list[Row]:
    """Judge the runs of each GPU by constants of its nearest one that saw none of its runs."""
    with ProcessPoolExecutor(WORKERS) as pool:
        parts = pool.map(_nearest, NEAREST)
        return [row for part in parts for row in part]


def _nearest(name: str) -> list[Row]:
    of = machine_fit.fitted([run for run in machine_fit.runs() if run.gpu != name])
    rest = [run for run in machine_fit.runs() if run.gpu == name]
    return list(_rows(judge(rest, of[NEAREST[name]]), SAME))


def elsewhere_rows() -> list[Row]:
    """Judge all runs by kernels and constants of another architecture."""
    judged = Judged((), ())
    for run in every_run():
        own = gpu(run.gpu)
        other = ELSEWHERE[own.machine]
        kernels = replace(own, kernels=other).constants
        judged += Judged((run,), (seconds(run, USUAL[other], kernels),))
    return list(_rows(judged, OTHER))


def _rows(judged: Judged, level: str) -> Iterator[Row]:
    for run, predicted in zip(judged.runs, judged.predicted, strict=True):
        yield Row(run, level, log(run.seconds / predicted))
