"""Published runs with what was predicted of each by constants that saw none of its model.

Three rows may stand for a run. By constants of its own GPU: those of Hopper and Blackwell as
`machine_fit.models_left_out` has them; of A100 and MosaicML's H100 as `step_defaults.propose` would
ship them without the model. By constants of the nearest other GPU of its architecture (`SIBLINGS`),
fitted without any run of the GPU. And by kernels and constants of another architecture
(`STRANGERS`), as a GPU has them on which nothing was measured.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from math import log
from typing import NamedTuple

from ilp_planner.specs.machine import USUAL, Machine
from tests.benchmarks import machine_fit
from tests.benchmarks.machine_fit import BLACKWELL, HOPPER, model_of
from tests.benchmarks.published import INTERNEVO, MOSAIC, OLD, Run, gpu, newest, runs
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_defaults import ASSUMED, HIDDEN, MEGATRON, SHARDED
from tests.benchmarks.step_fit import fitted
from tests.benchmarks.step_times import Judged, seconds

OWN, SIBLING, STRANGER = "measured", "of the same architecture", "of another architecture"
# GPU -> that whose constants it has where no run of its own is seen.
SIBLINGS = {"H200": "H100", "B200": "GB200", "GB200": "B200", "B300": "B200", "GB300": "GB200"}
# GPUs by their constants -> those whose kernels and constants they have besides.
STRANGERS = {"A100": "H100", **dict.fromkeys(HOPPER, "A100"), **dict.fromkeys(BLACKWELL, "H100")}
WORKERS = 2


class Row(NamedTuple):
    """A run, by which constants it was predicted, and the logarithm of measured over predicted."""

    run: Run
    gpu: str
    off: float


def every_run() -> list[Run]:
    """Return all published runs that times are judged by, one per group."""
    tables = (*b200_runs(), *sc21_runs(), *korthikanti_runs())
    return [*newest(list(runs())), *tables]


def own_rows() -> list[Row]:
    """Judge all runs by constants of their GPUs that saw none of their models."""
    judged = machine_fit.models_left_out()
    seen = {run.name for run in judged.runs}
    rest = [run for run in every_run() if run.name not in seen]
    shipped = [run for run in rest if run.family.startswith((OLD, INTERNEVO, "PyTorch"))]
    judged += _by(shipped, lambda run: USUAL[gpu(run.gpu).machine])
    sharded = [run for run in rest if run.family.startswith(MOSAIC)]
    hopper = [run for run in sharded if gpu(run.gpu).machine in HOPPER]
    judged += _by(hopper, lambda run: USUAL[gpu(run.gpu).machine])
    ampere = [run for run in sharded if run not in hopper]
    for name in dict.fromkeys(map(model_of, ampere)):
        machine = _ampere(ampere, [*sc21_runs(), *korthikanti_runs()], name)
        judged += _by([run for run in ampere if model_of(run) == name], lambda _, m=machine: m)
    for seen_runs, others in ((sc21_runs(), korthikanti_runs()), (korthikanti_runs(), sc21_runs())):
        machine = _ampere(ampere, seen_runs, "")
        judged += _by(others, lambda _, m=machine: m)
    return list(_rows(judged, OWN))


def _ampere(sharded: Sequence[Run], selene: Sequence[Run], model: str) -> Machine:
    """Return the constants of A100 that would be shipped without the runs of a model."""
    seen = [run for run in sharded if model_of(run) != model and run.gpu == "A100-80GB"]
    links = fitted(ASSUMED, selene, MEGATRON)
    share = (fitted(HIDDEN, seen, SHARDED).sustained + links.sustained) / 2
    shipped = USUAL["A100"]
    return replace(shipped, sustained=share, links=links.links, network=links.network)


def sibling_rows() -> list[Row]:
    """Judge the runs of each GPU by constants of its nearest one that saw none of its runs."""
    with ProcessPoolExecutor(WORKERS) as pool:
        parts = pool.map(_sibling, SIBLINGS)
        return [row for part in parts for row in part]


def _sibling(name: str) -> list[Row]:
    of = machine_fit.fitted([run for run in machine_fit.runs() if run.gpu != name])
    rest = [run for run in machine_fit.runs() if run.gpu == name]
    return list(_rows(_by(rest, lambda _: of[SIBLINGS[name]]), SIBLING))


def stranger_rows() -> list[Row]:
    """Judge all runs by kernels and constants of another architecture."""
    judged = Judged((), ())
    for run in every_run():
        own = gpu(run.gpu)
        other = STRANGERS[own.machine]
        kernels = replace(own, kernels=other).constants
        judged += Judged((run,), (seconds(run, USUAL[other], kernels),))
    return list(_rows(judged, STRANGER))


def _by(some: Sequence[Run], machine: Callable[[Run], Machine]) -> Judged:
    return Judged(tuple(some), tuple(seconds(run, machine(run)) for run in some))


def _rows(judged: Judged, level: str) -> Iterator[Row]:
    for run, predicted in zip(judged.runs, judged.predicted, strict=True):
        yield Row(run, level, log(run.seconds / predicted))
