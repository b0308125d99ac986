"""The support of a model: training systems that plan it, exports that write it, and the errors of
predicted times.

A training system plans a model if its space accepts a job on one GPU with the plainest settings. An
export writes the model if it writes that job. Predicted times have the error that was measured on
published runs like the job. A GPU and a precision have one if some training system's problem can be
built with them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.exports import EXPORTS, Runtime, export_row, refusal_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.settings.base import LEFT_OUT, SEARCHED
from ilp_planner.spaces.registry import RUNTIMES, build_problem, runtime_named
from ilp_planner.specs.decoder import as_decoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.gpus import table as gpu_table
from ilp_planner.specs.layer_kinds import LAYER_KINDS
from ilp_planner.specs.time_errors import OWN, kind_of_job, level_of, published_error
from ilp_planner.specs.training import BITS, PRECISIONS, QUANTISED, TrainingJob
from ilp_planner.specs.tuning import PEFT_NAMES, Tuning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.gpus import Gpu
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.time_errors import ExpectedError

RANK = 16  # of the adapters that an export is tried with
# Export -> the training system whose jobs it writes, if the name is another.
SYSTEMS = {
    "nemo": "megatron", "swift": "megatron", "peft": "deepspeed",
    "autoparallel": "torchtitan@0.2.2",
}  # fmt: skip
TRIED_ON = 8  # GPUs of the problems that are built


class Planned(NamedTuple):
    """A training system.

    searched, fixed, left_out: how many of its settings the search tries values of, have one value,
        or have other values that the search leaves out.
    refused: why the system does not plan the model; empty if it does.
    """

    runtime: str
    title: str
    searched: int
    fixed: int
    left_out: int
    refused: str


class Exporting(NamedTuple):
    """An export.

    to: its name, as `export --to` takes it.
    refused: why it does not write the model; empty if it does.
    part: it writes only jobs that train a part of the model.
    """

    to: str
    refused: str
    part: bool = False


class Priced(NamedTuple):
    """The expected error of predicted times on a GPU. bits: of the operands of matrix products."""

    gpu: str
    bits: int
    error: ExpectedError


@dataclass(frozen=True, kw_only=True)
class Support:
    """The support of a model.

    layers: the name of each kind of layer, and how many there are.
    planned: one row per training system.
    exports: one row per release that an export writes for.
    priced: one row per GPU and precision that some training system plans the model with.
    unable: GPUs with which none does, and why.
    """

    model: ModelSpec
    layers: tuple[tuple[str, int], ...]
    planned: tuple[Planned, ...]
    exports: tuple[Exporting, ...]
    priced: tuple[Priced, ...]
    unable: tuple[tuple[str, str], ...] = ()


def support_of(model: ModelSpec, gpus: Sequence[str] = (), devices: int = 8) -> Support:
    """Return the support of a model.

    Parameters
    ----------
    gpus: names of the table of GPUs; none: all whose constants are fitted to runs on them.
    devices: GPUs of a job, on which the expected error depends.

    Raises
    ------
    SpecError: the table has no GPU of that name.
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
    able = [name for name, job in jobs.items() if isinstance(job, TrainingJob)]
    refused = {row.name: _refusals(model, able, row) for row in rows} if able else {}
    return Support(
        model=model,
        layers=tuple(kinds.items()),
        planned=tuple(
            _planned(name, job if isinstance(job, str) else "") for name, job in jobs.items()
        ),
        exports=tuple(_exporting(runtime, jobs[_space_of(runtime)]) for runtime in _exports()),
        priced=tuple(_priced(decoder, jobs, refused, devices)),
        unable=tuple(
            (name, next(iter(of.values()))) for name, of in refused.items() if all(of.values())
        ),
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
    """Return the training system whose jobs an export writes."""
    names = (str(runtime), runtime.system, SYSTEMS.get(runtime.system, ""))
    return next(name for name in names if name in RUNTIMES)


def _job(name: str, model: Decoder, precision: str, row: Gpu) -> TrainingJob | str:
    """Return the plainest job on one GPU, or why the training system refuses the model."""
    runtime, cluster = runtime_named(name), gpu_cluster(parse_gpus(f"1x{row.name}"))
    try:
        base = runtime.always(runtime.settings(model, precision, cluster, ""))
        runtime.check_model(model, base)
        settings = runtime.plainest(base)
        return TrainingJob(model=model, micro_batch=1, global_batch=1, settings=settings)
    except PlannerError as error:
        return str(error)


def _exporting(runtime: Runtime, job: TrainingJob | str) -> Exporting:
    """Return whether an export writes a job, or at least the same job with adapters."""
    if isinstance(job, str):
        return Exporting(str(runtime), job)
    refused, part = _refused(runtime, job), False
    if refused and export_row(runtime).tunes:
        tuning = Tuning(rank=RANK, targets=tuple(PEFT_NAMES))
        tuned = replace(job, settings=replace(job.settings, tuning=tuning))
        part = not _refused(runtime, tuned)
    return Exporting(str(runtime), "" if part else refused, part)


def _refused(runtime: Runtime, job: TrainingJob) -> str:
    try:
        return refusal_of(runtime, job)
    except PlannerError as error:
        return str(error)


def _refusals(model: ModelSpec, runtimes: Sequence[str], row: Gpu) -> dict[int, str]:
    """Return why no training system plans a model on a GPU, by the bits of the operands of its
    products, most first; empty if one does."""
    recipes: dict[int, list[str]] = {PRECISIONS[model.precision] * 8: [""]}
    for recipe, rate in QUANTISED.items():
        if recipe in row.architecture.recipes and rate in row.peak:
            recipes.setdefault(BITS[rate], []).append(recipe)
    return {bits: _refusal(model, runtimes, row, some) for bits, some in recipes.items()}


def _refusal(model: ModelSpec, runtimes: Sequence[str], row: Gpu, recipes: Sequence[str]) -> str:
    """Return the first reason why no training system's problem has one of some recipes; empty if
    one has."""
    reasons = []
    cluster = gpu_cluster(parse_gpus(f"{TRIED_ON}x{row.name}"))
    for recipe in recipes:
        for runtime in runtimes:
            request = Request(files={}, space=runtime, global_batch=TRIED_ON, precision=recipe)
            try:
                build_problem(InputFiles(request, objects={"model": model, "cluster": cluster}))
            except PlannerError as error:
                reasons.append(str(error))
            else:
                return ""
    return reasons[0]


def _priced(
    model: Decoder,
    jobs: dict[str, TrainingJob | str],
    refused: dict[str, dict[int, str]],
    devices: int,
) -> Iterator[Priced]:
    """Yield the expected error on each GPU, in each precision that a training system plans."""
    settings = next((job.settings for job in jobs.values() if isinstance(job, TrainingJob)), None)
    if settings is None:
        return
    kind = kind_of_job(model, settings, devices)
    for name, reasons in refused.items():
        for bits in (bits for bits, reason in reasons.items() if not reason):
            yield Priced(name, bits, published_error(replace(kind, gpu=name, bits=bits)))
