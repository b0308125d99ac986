"""The input of `ilp-plan analyze`: options, a launch line or a plan."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import PlanError, SpecError, UsageError
from ilp_planner.base.file_kinds import LAUNCHES, FileKind, file_kind
from ilp_planner.base.files import read_document
from ilp_planner.base.units import format_bytes
from ilp_planner.faces.cli.job_options import Job
from ilp_planner.faces.cli.values import option_size, settings_given, was_typed
from ilp_planner.faces.cli.wording import as_typed, option_of
from ilp_planner.inputs.devices import beyond_memory, memory_within, with_memory
from ilp_planner.inputs.files import cluster_or_gpus, find_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    import typer

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.analysis.devices import Devices
    from ilp_planner.faces.report.analysis_judged import Judged
    from ilp_planner.formats.megatron.values import MegatronArguments
    from ilp_planner.inputs.request import Request
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob

OF_ANY = (
    "model", "megatron_args", "megatron_script", "set_values", "strict", "cluster", "gpus",
    "memory_limit", "world_size", "precision", "lengths", "batching",
)  # fmt: skip
# Parameters that say something of a job, and so go with --model only.
OF_JOBS = tuple(field.name for field in fields(Job) if field.name not in OF_ANY)
OF_LAUNCHES = ("world_size", "devices_per_node")  # what a launch line may leave open
# What goes with launch lines only, and with which.
OF_LINES = {
    "set_values": ("megatron_script",),
    "strict": ("megatron_args", "megatron_script"),
}
SOURCES = {
    "plan_file": "PLAN",
    "model": "--model",
    "megatron_args": "--megatron-args",
    "megatron_script": "--megatron-script",
}


class SaidJob(NamedTuple):
    """A job as options or a launch line say it. name: of its model, for people. notes: on
    assumptions. arguments: of the launch line; None: options say it."""

    job: TrainingJob
    name: str
    notes: tuple[str, ...]
    arguments: MegatronArguments | None = None


def read_analysis(ctx: typer.Context, asked: dict[str, Any]) -> Analysis | Judged:
    """Analyse the given input; of a plan that is no training job, judge it.

    Raises
    ------
    PlannerError: an unreadable or impossible value, with a repair.
    """
    from ilp_planner.analysis.devices import ASSUMED, devices_of
    from ilp_planner.analysis.fit.system import system_of

    source = one_source(ctx, asked)
    spec = cluster_asked(asked)
    limit, notes = limit_and_remark(asked["memory_limit"])
    if source == "plan_file":
        return of_plan(asked["plan_file"], spec, limit, notes, changed=asked["accept_changed"])
    if spec is not None:
        notes += (*beyond_memory(spec, limit),)
        spec = with_memory(spec, memory_within(spec, limit))
    devices = devices_of(spec, limit)
    devices = replace(devices, notes=(*notes, *devices.notes))
    said = said_job(asked, source, spec, devices)
    own = said.arguments.runtime if said.arguments else ""
    known = spec or find_cluster(ASSUMED)
    chosen = system_of(said.job, known, own, line=said.arguments is not None)
    more = (as_typed(chosen.note),) if chosen.note else ()
    return _analysis(chosen.job, said.name, (*more, *said.notes), devices)


def cluster_asked(asked: dict[str, Any]) -> ClusterSpec | None:
    """Return the cluster that `--cluster` or `--gpus` names; None if neither is given."""
    named = cluster_or_gpus(asked["cluster"], asked["gpus"])
    return None if named is None else find_cluster(named)


def said_job(
    asked: dict[str, Any], source: str, spec: ClusterSpec | None, devices: Devices
) -> SaidJob:
    """Return the job that options or a launch line say.

    Parameters
    ----------
    source: as `one_source` returns it, but for a plan. devices: of the cluster `spec`.

    Raises
    ------
    PlannerError: an unreadable or impossible value, with a repair.
    """
    if source == "model":
        from ilp_planner.faces.cli.analyze_job import job_of_options

        job, name, notes = job_of_options(asked, devices)
        return SaidJob(job, name, notes)
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.formats.megatron.notes import unmodelled
    from ilp_planner.formats.megatron.ranks import gpus_of
    from ilp_planner.formats.megatron.script import read_line

    world, gpus = asked["world_size"], gpus_of(spec) if spec else None
    strict = asked["strict"]
    if source == "megatron_args":
        arguments = read_line(
            asked["megatron_args"], world, source="--megatron-args", strict=strict, gpus=gpus
        )
        name = "--megatron-args"
    else:
        from ilp_planner.formats.captured.reader import read_any_launch

        file = asked["megatron_script"]
        arguments = read_any_launch(
            file,
            world,
            arguments=asked["script_arguments"],
            supplied=settings_given(asked["set_values"]),
            gpus=gpus,
            strict=strict,
        )
        name = file.name
    arguments = _with_lengths(arguments, asked)
    job = job_of_arguments(arguments)
    per_node = asked["devices_per_node"] or (devices.per_node if spec else job.devices_per_node)
    job = replace(job, devices_per_node=per_node, gpu_architecture=devices.gpu_architecture)
    return SaidJob(job, f"the model of {name}", unmodelled(arguments), arguments)


def _with_lengths(arguments: MegatronArguments, asked: dict[str, Any]) -> MegatronArguments:
    """Return a launch line whose samples are made of documents, as it makes them, if a file says
    their lengths.

    Raises
    ------
    PlannerError: it makes them otherwise, or they are longer than its samples.
    """
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.specs.lengths import JOINED, SPLIT
    from ilp_planner.specs.lengths_reader import of_samples, read_lengths, shortened
    from ilp_planner.specs.model import ModelSpec

    named, batching, said = asked["lengths"], asked["batching"], arguments.makes_samples
    if named is None:
        if batching:
            raise UsageError(f"--batching: found {batching} without --lengths, expected none")
        return arguments
    if said and batching not in (None, said):
        raise UsageError(f"--batching: found {batching}, expected {said}: the launch line says it")
    if not said and batching is None:
        raise UsageError(
            "--lengths: found no --batching, expected one beside a launch line that does not say "
            "how samples are made"
        )
    lengths = read_lengths(read_document(Path(named), SpecError), said or batching)
    job = job_of_arguments(arguments)
    longer = arguments.longer or (SPLIT if lengths.batching == JOINED else "")
    lengths, remark = shortened(lengths, job.model.sequence, longer, named)
    spec = ModelSpec(name="the model", precision=job.settings.precision, architecture=job.model)
    model = of_samples(spec, lengths, named, option=f"`{arguments.spelled('--seq-length')} {{}}`")
    own = {"lengths": lengths, "sequence": model.sequence}
    remarks = (*arguments.remarks, *filter(None, [remark]))
    return replace(arguments, features={**arguments.features, **own}, remarks=remarks)


def one_source(ctx: typer.Context, asked: dict[str, Any]) -> str:
    """Return the parameter with the input to analyse; exactly one may be given, with its
    companions."""
    given = [name for name in SOURCES if asked[name] is not None]
    if not given:
        raise UsageError(f"expected one of {', '.join(SOURCES.values())}, found none")
    if len(given) > 1:
        raise UsageError(
            f"{SOURCES[given[1]]}: found {SOURCES[given[0]]} too, expected one of them"
        )
    source = given[0]
    if asked["script_arguments"] and source != "megatron_script":
        raise UsageError(
            f"-- {asked['script_arguments'][0]}: found arguments of a script, expected a launch "
            f"script before them, found {SOURCES[source]}"
        )
    if source != "plan_file" and was_typed(ctx, "accept_changed"):
        raise UsageError(
            f"--accept-changed: expected a PLAN, whose inputs it is about, found {SOURCES[source]}"
        )
    for name, goes_with in OF_LINES.items():
        if was_typed(ctx, name) and source not in goes_with:
            beside = " or ".join(SOURCES[other] for other in goes_with)
            raise UsageError(
                f"{option_of(name)}: expected {beside} beside it, found {SOURCES[source]}"
            )
    wrong: tuple[str, ...] = () if source == "model" else OF_JOBS
    if source == "plan_file":
        wrong += (*OF_LAUNCHES, "lengths", "batching")
    for name in wrong:
        if was_typed(ctx, name):
            said = {"plan_file": "the plan says it"}.get(source, "the launch line says it")
            if name == "imbalance" and source != "plan_file":
                said = "tokens of a launch line are taken as even"
            raise UsageError(
                f"{option_of(name)}: expected --model beside it, found {SOURCES[source]}: {said}"
            )
    return source


def source_by_kind(file: Path | None, asked: Mapping[str, object]) -> dict[str, object]:
    """Return the first argument by its kind: a saved plan, a launch or a model.

    Raises
    ------
    UsageError: a file of another kind, or one beside the option that says the same.
    """
    if file is None:
        return {"plan_file": None}
    kind = file_kind(file)
    if kind in LAUNCHES:
        name: str = "megatron_script"
    elif names_model(file):
        name = "model"
    else:
        refuse_kind(file)
        return {"plan_file": file}
    if asked[name] is not None:
        raise UsageError(f"{file}: found --{name.replace('_', '-')} too, expected one of them")
    return {name: str(file) if name == "model" else file, "plan_file": None}


def names_model(file: Path) -> bool:
    """Tell whether the argument for a plan is a model: a file of that kind, or no file and not
    named like one."""
    if file.is_file():
        return file_kind(file) in (FileKind.SPEC, FileKind.HUGGING_FACE)
    return file.suffix != ".json"


def refuse_kind(file: Path) -> None:
    """Refuse an argument for a plan, a model or a launch that is of another kind.

    Raises
    ------
    UsageError: with its kind.
    """
    kind = file_kind(file)
    plans = (FileKind.PLAN, FileKind.JSON)  # whose keys may be in any order
    if kind not in (None, *plans, *LAUNCHES, FileKind.SPEC, FileKind.HUGGING_FACE):
        assert kind is not None
        raise UsageError(
            f"{file}: found {kind.value}, expected a saved plan, a model or a launch script"
        )


def limit_and_remark(said: str | None) -> tuple[float | None, tuple[str, ...]]:
    """Return the bytes in `--memory-limit`, None if it is not given, and a remark on them: a card
    of binary units is sold by the name of decimal ones."""
    if said is None:
        return None, ()
    memory = float(option_size("--memory-limit", said))
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgtp])b\s*", said, re.IGNORECASE)
    if match is None:
        return memory, ()
    number, prefix = match[1], match[2].upper()
    note = (
        f"--memory-limit {said} is {format_bytes(memory)}; a card sold as {number} {prefix}B has "
        f"{number} {prefix}iB: --memory-limit {number}{prefix}iB"
    )
    return memory, (note,)


def limited(
    cluster: ClusterSpec, asked: Request, limit: float | None, *, changed: bool
) -> tuple[ClusterSpec, tuple[str, ...]]:
    """Return a cluster with the memory that a saved plan may use there, and remarks on it.

    Parameters
    ----------
    asked: the plan's request. limit: bytes of a device in its stead; None: as the plan has it.
    changed: take the memory of the devices as it is now.
    """
    from ilp_planner.spaces.layers import memory_limits

    if limit is not None:
        limits, notes = memory_within(cluster, limit), [*beyond_memory(cluster, limit)]
    else:
        now = replace(asked, memory_limits=None) if changed else asked
        limits, types = memory_limits(cluster, now), cluster.device_types
        notes = [
            f"the plan's limit is {format_bytes(each)} of {types[name].type}, which has "
            f"{format_bytes(types[name].memory)}; --memory-limit says another"
            for name, each in limits.items()
            if each < types[name].memory
        ]
    return with_memory(cluster, limits), tuple(notes)


def of_plan(
    file: Path,
    spec: ClusterSpec | None,
    limit: float | None,
    notes: tuple[str, ...],
    *,
    changed: bool,
) -> Analysis | Judged:
    """Analyse a saved plan, or return the figures of its own cost model if it is no training job.

    spec: the cluster; None: the plan's own. limit: bytes of a device that may be used; None: as the
    plan has it.
    changed: take all inputs as they are now.
    """
    from ilp_planner.analysis.plans import analyze_plan
    from ilp_planner.evaluate import evaluate
    from ilp_planner.faces.report.analysis_judged import Judged
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import differing_today, model_and_cluster, problem_of
    from ilp_planner.plan import is_of_groups
    from ilp_planner.specs.decoder import as_decoder

    saved = read_saved(file)
    model, cluster = model_and_cluster(saved, file, accept_changed=changed)
    notes += () if changed else differing_today(saved, file)
    cluster, more = limited(spec or cluster, saved.inputs, limit, changed=changed)
    notes += more
    if model is None:
        reason = "the plan names no model"
    elif as_decoder(model.architecture) is None:
        reason = f"the model is of the family {model.family}"
    else:
        try:
            return analyze_plan(saved.plan, model, cluster, source=str(file), notes=notes)
        except PlanError as error:
            if is_of_groups(saved.plan):
                raise PlanError(f"{file}: {str(error).removeprefix(f'{file}: ')}") from None
            reason = str(error)
    problem = problem_of(saved, file, accept_changed=changed)
    found = evaluate(problem, saved.plan)
    if not found.stages:
        why = found.violations[0] if found.violations else "it cannot be priced"
        raise PlanError(f"{file}: plan: {why}")
    return Judged(problem=problem, plan=saved.plan, evaluation=found, reason=reason)


def _analysis(job: TrainingJob, name: str, notes: tuple[str, ...], devices: Devices) -> Analysis:
    """Analyse a job. notes: on assumptions."""
    from ilp_planner.analysis.analyze import analyze

    notes += devices.notes
    if devices.count and job.world > devices.count:
        notes += (f"the job needs {job.world} GPUs, the cluster has {devices.count}",)
    return analyze(job, name=name, limit=devices.memory, device=devices.name, notes=notes)
