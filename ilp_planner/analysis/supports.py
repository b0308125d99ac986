"""The support of a model: who plans, prices and writes it, and why something is refused.

A training system plans a model if its space takes it, and writes it if its export takes the
plainest job of one GPU. Times of its jobs have the expected error of published runs that are like
them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.exports import EXPORTS, Runtime, refusal_of
from ilp_planner.settings.base import LEFT_OUT, SEARCHED
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.gpus import table as gpu_table
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.time_errors import OWN, kind_of_job, level_of, published_error
from ilp_planner.specs.training import QUANTISED, TrainingJob
from ilp_planner.specs.tuning import PEFT_NAMES, Tuning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.gpus import Gpu
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.time_errors import ExpectedError
    from ilp_planner.specs.training import Settings

RANK = 16  # of adapters of jobs whose export is tried
OF = {
    "nemo": "megatron",
    "peft": "deepspeed",
    "autoparallel": "torchtitan@0.2.2",
}  # whose jobs others write
BITS = {"fp8": 8, "fp4": 4}  # of rates in the table of GPUs, which recipes of products have


class Planned(NamedTuple):
    """A training system. searched: number of its settings that the search tries values of; fixed:
    of those with one value; left_out: of those that could be otherwise. refused: why it does not
    plan the model; empty if it does."""

    runtime: str
    title: str
    searched: int
    fixed: int
    left_out: int
    refused: str


class Exporting(NamedTuple):
    """An export. to: as `export --to` has it. refused: why it does not write the model. part: it
    writes jobs that train a part of the model alone."""

    to: str
    refused: str
    part: bool = False


class Priced(NamedTuple):
    """The expected error of times on a GPU. bits: of the operands of products."""

    gpu: str
    bits: int
    error: ExpectedError


@dataclass(frozen=True, kw_only=True)
class Support:
    """What is done with a model.

    layers: how many of each kind, by its name. planned: a row per training system; exports: per
    release of one; priced: per GPU and precision, empty where no time is by a model of GPUs.
    """

    model: ModelSpec
    layers: tuple[tuple[str, int], ...]
    planned: tuple[Planned, ...]
    exports: tuple[Exporting, ...]
    priced: tuple[Priced, ...]


def support_of(model: ModelSpec, gpus: Sequence[str] = (), devices: int = 8) -> Support:
    """Return what is planned, priced and exported of a model.

    Parameters
    ----------
    gpus: names of the table; none: those that published runs are of. devices: GPUs of a job.

    Raises
    ------
    SpecError: a GPU that the table has not.
    """
    rows = list({(row := gpu(name.strip())).name: row for name in gpus}.values()) or _measured()
    decoder = as_decoder(model.architecture)
    if decoder is None:
        reason = f"a model of {model.family}: found no decoder-only transformer"
        return Support(
            model=model,
            layers=(),
            planned=tuple(_planned(name, reason) for name in RUNTIMES),
            exports=tuple(Exporting(str(runtime), reason) for runtime in _exports()),
            priced=(),
        )
    kinds = Counter(LAYER_KINDS[kind].name for kind in decoder.layer_kinds)
    jobs = {name: _job(name, decoder, model.precision, rows[0]) for name in RUNTIMES}
    return Support(
        model=model,
        layers=tuple(kinds.items()),
        planned=tuple(
            _planned(name, job if isinstance(job, str) else "") for name, job in jobs.items()
        ),
        exports=tuple(_exporting(runtime, jobs[_space_of(runtime)]) for runtime in _exports()),
        priced=tuple(_priced(decoder, jobs, rows, devices)),
    )


def _measured() -> list[Gpu]:
    """Return the GPUs whose constants are fitted to runs on them."""
    rows = {row.name: row for row in gpu_table().values()}
    return [row for name, row in rows.items() if level_of(name) == OWN]


def _planned(name: str, refused: str) -> Planned:
    runtime = runtime_named(name)
    how = Counter(row.how for row in runtime.treatments())
    others = sum(how.values()) - how[SEARCHED] - how[LEFT_OUT]
    return Planned(name, runtime.title, how[SEARCHED], others, how[LEFT_OUT], refused)


def _exports() -> list[Runtime]:
    return [Runtime(system, each) for system, releases in EXPORTS.items() for each in releases]


def _space_of(runtime: Runtime) -> str:
    """Return the runtime whose jobs an export is tried with."""
    names = (str(runtime), runtime.system, OF.get(runtime.system, ""))
    return next(name for name in names if name in RUNTIMES)


def _job(name: str, model: Decoder, precision: str, row: Gpu) -> TrainingJob | str:
    """Return the plainest job of one GPU, or why a runtime does not train the model."""
    runtime, cluster = runtime_named(name), gpu_cluster(parse_gpus(f"1x{row.name}"))
    try:
        base = runtime.always(runtime.settings(model, precision, cluster, ""))
        runtime.check_model(model, base)
        return TrainingJob(
            model=model,
            micro_batch=1,
            global_batch=1,
            tp=1,
            pp=1,
            dp=1,
            settings=runtime.plainest(base),
        )
    except PlannerError as error:
        return str(error)


def _exporting(runtime: Runtime, job: TrainingJob | str) -> Exporting:
    """Return whether an export writes the plainest job, or at least one with adapters."""
    if isinstance(job, str):
        return Exporting(str(runtime), job)
    refused, part = _refused(runtime, job), False
    if refused and EXPORTS[runtime.system][runtime.release].tunes:
        tuning = Tuning(rank=RANK, targets=tuple(PEFT_NAMES))
        tuned = replace(job, settings=replace(job.settings, tuning=tuning))
        part = not _refused(runtime, tuned)
    return Exporting(str(runtime), "" if part else refused, part)


def _refused(runtime: Runtime, job: TrainingJob) -> str:
    try:
        return refusal_of(runtime, job)
    except PlannerError as error:
        return str(error)


def _priced(
    model: Decoder, jobs: dict[str, TrainingJob | str], rows: Sequence[Gpu], devices: int
) -> Iterator[Priced]:
    """Yield the expected errors by GPU and by the precisions that it has."""
    settings = next((job.settings for job in jobs.values() if isinstance(job, TrainingJob)), None)
    if settings is None:
        return
    kind = kind_of_job(model, settings, devices)
    for row in rows:
        for bits in _bits(row, settings):
            yield Priced(row.name, bits, published_error(replace(kind, gpu=row.name, bits=bits)))


def _bits(row: Gpu, settings: Settings) -> Iterator[int]:
    yield settings.bits
    able = {QUANTISED[recipe] for recipe in row.architecture.recipes}
    for rate, bits in BITS.items():
        if rate in able and rate in row.peak:
            yield bits
