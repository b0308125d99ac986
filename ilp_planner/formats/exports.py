"""The training systems that plans are written for; one is imported when it is asked for."""

import difflib
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from ilp_planner.base.errors import PlanError, PlannerError, UsageError
from ilp_planner.base.files import check_writable, write_text
from ilp_planner.base.library import hub_names
from ilp_planner.base.units import format_seconds
from ilp_planner.formats.exported import Expected, Exported, describe, file_name
from ilp_planner.formats.nearest_run import NearRun, nearest_run
from ilp_planner.formats.versions import CORES
from ilp_planner.inputs.request import Request
from ilp_planner.plan import AnyPlan
from ilp_planner.settings.table import FORMAT_FIELD, FP8_FIELD, LOSS_FIELD
from ilp_planner.settings.values import BY_TRAINER, MOMENTS
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.lengths import FULL, GROUPED, JOINED, LONGEST, PACKED
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import LIGER, TrainingJob

if TYPE_CHECKING:
    from ilp_planner.formats.megatron.plan import NoJobError


class Export(NamedTuple):
    """The export for a release of a training system. function: `module:function`, which takes a
    job, the name of the run and its expectations; empty if plans are written, not jobs.
    files: their kinds. checked: how they were checked against the system. release: for people, if
    the system is not asked for by one. tunes: it trains parts of a model alone. sees: it
    has models with encoders.
    batchings: how it can make samples of documents (`specs.lengths.BATCHINGS`). cores: releases of
    Megatron-Core that the same files may be asked for, held against its arguments. below: the
    systems whose code trains or divides what replicas share, if they are others. Functions of
    `SCHEDULERS` take a `NodeRun` in place of a job."""

    function: str
    files: str
    checked: str
    release: str = ""
    tunes: bool = False
    sees: bool = False
    batchings: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    below: tuple[str, ...] = ()


# System -> its releases, the newest first. Megatron-LM is usually not asked for by a release.
EXPORTS = {
    "megatron": {
        "": Export(
            "ilp_planner.formats.megatron.launch:export_megatron",
            "launch script (`torchrun`, environment, order of hosts) and the arguments as JSON; "
            "uneven pipelines as `--pipeline-model-parallel-layout`",
            "megatron-core 0.16.1 builds `TransformerConfig`, `PipelineParallelLayerLayout` and "
            "the model of every rank: layers, parameter shapes and rank groups are the plan's",
            "today's, core 0.16.1",
            batchings=(JOINED,),
            cores=CORES,
        )
    },
    "torchtitan": {
        "0.3.0": Export(
            "ilp_planner.formats.torchtitan_python:export_torchtitan_python",
            "Python for torchtitan 0.3.0, made of its own builders and literals: exact uneven "
            "splits, rotary base and scaling, epsilon and routing of the model",
            "its own reader, meshes, parameters, split and schedule, in a process of its own",
            batchings=(PACKED,),
        ),
        "0.2.2": Export(
            "ilp_planner.formats.torchtitan:export_torchtitan",
            "TOML, for the last release that is configured by it",
            "its own reader, split and schedule",
            batchings=(JOINED,),
        ),
    },
    "autoparallel": {
        "0.2.2": Export(
            "ilp_planner.formats.autoparallel:export_autoparallel",
            "TOML for torchtitan's experiment, which chooses the sharding of every tensor on the "
            "plan's mesh: Llama without pipelines",
            "the tables of `torchtitan@0.2.2`; the experiment's source, read",
            "torchtitan 0.2.2",
            below=("torchtitan",),
        )
    },
    "deepspeed": {
        "0.19.8": Export(
            "ilp_planner.formats.deepspeed:export_deepspeed",
            "JSON for DeepSpeed 0.19.8, and the boundaries of its `PipelineModule`",
            "its own reader, the pipeline built on every stage",
            batchings=(LONGEST, GROUPED, FULL),
        )
    },
    "nemo": {
        "0.3.1": Export(
            "ilp_planner.formats.nemo:export_nemo",
            "YAML overrides in the field names of Megatron-Bridge 0.3.1, Qwen2.5-VL and Qwen3-VL "
            "among its models",
            "megatron-core 0.16.1 builds what they inherit from it, as for `megatron`",
            tunes=True,
            sees=True,
            batchings=(PACKED, JOINED, LONGEST, FULL),
            below=("megatron",),
        )
    },
    "swift": {
        "4": Export(
            "ilp_planner.formats.swift:export_swift",
            "script of ms-swift's `megatron sft`, for a named model, its images and sounds",
            "its own arguments, read; read back as the same job",
            tunes=True,
            sees=True,
            batchings=(PACKED, LONGEST, GROUPED),
            below=("megatron",),
        )
    },
    "peft": {
        "0.21": Export(
            "ilp_planner.formats.peft:export_peft",
            "Python script of PEFT and Hugging Face's Trainer: adapters, a base in 4 bits, frozen "
            "parts; replicas by DDP, FSDP or ZeRO",
            "PEFT 0.21.2 makes the adapters, the Trainer of transformers 5.23 takes a step",
            tunes=True,
            batchings=(JOINED, LONGEST, GROUPED, FULL),
            below=("torchtitan", "deepspeed"),
        )
    },
}
ACESO = Export(
    "",
    "what Aceso's runtime reads",
    "an independent judge of such plans",
    "of its paper, EuroSys 2024",
)
SCHEDULERS = {
    "slurm": Export(
        "ilp_planner.formats.schedulers.slurm:around",
        "batch script around the files of a system: nodes, GPUs, rendezvous, one `srun` of a "
        "launcher on each node",
        "`bash` with stand-ins of Slurm's programs; read back as the same job",
        "any with `sbatch`",
    ),
    "kubernetes": Export(
        "ilp_planner.formats.schedulers.kubernetes:around",
        "JobSet with a pod for each node, and a ConfigMap with the files of a system",
        "the schema of jobset.x-k8s.io/v1alpha2; read back as the same job",
        "JobSet v1alpha2",
    ),
}
AROUND = {name: {"": row} for name, row in SCHEDULERS.items()}
RELEASES = {**EXPORTS, "aceso": {"": ACESO}, **AROUND}
PROGRAMS = ("lp", "mps")  # which `program.write_program` writes
TARGETS = ("aceso", *EXPORTS, *SCHEDULERS, *PROGRAMS)


class Target(NamedTuple):
    """The purpose of a plan. time: seconds per iteration, if they are known. asked: the request of
    the plan, if known."""

    model: ModelSpec
    cluster: ClusterSpec
    time: float | None = None
    asked: Request | None = None


class Written(NamedTuple):
    """Files that were written, the number of pipeline ranks, and remarks."""

    files: tuple[Path, ...]
    ranks: int
    notes: tuple[str, ...]


class Runtime(NamedTuple):
    """A training system in one release; empty: it has none of its own. scheduler: around it, if
    any."""

    system: str
    release: str = ""
    scheduler: str = ""

    def __str__(self) -> str:
        system = f"{self.system}@{self.release}" if self.release else self.system
        return f"{self.scheduler}:{system}" if self.scheduler else system


def runtime_of(to: str, option: str = "export", own: str = "megatron") -> Runtime:
    """Return the training system that `torchtitan`, `torchtitan@0.3` or `torchtitan@0.3.0` names,
    or `slurm:torchtitan` within a scheduler.

    Without a release it is the newest one; a release may be named by its first numbers.

    Parameters
    ----------
    to: one of `TARGETS`, perhaps with a release.
    option: the user's option, for the message.
    own: the plan's own space, which a scheduler alone is around.

    Raises
    ------
    UsageError: an unknown target or release; with the existing ones.
    """
    scheduler, colon, within = to.partition(":")
    if scheduler in SCHEDULERS:
        inner = within if colon else own
        if inner.partition("@")[0] not in EXPORTS:
            what = repr(to) if colon else f"{to!r} and a plan of {own}"
            raise UsageError(
                f"{option}: found {what}, expected {scheduler}: and the training system that is "
                f"started, {', '.join(EXPORTS)}, as {scheduler}:megatron"
            )
        return runtime_of(inner, option)._replace(scheduler=scheduler)
    system, at, asked = to.partition("@")
    if system not in TARGETS:
        near = difflib.get_close_matches(system, TARGETS, n=1)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise UsageError(f"{option}: found {to!r}, expected one of {', '.join(TARGETS)}{guess}")
    releases = releases_of(system)
    found = [release for release in releases if not at or f"{release}.".startswith(f"{asked}.")]
    if not found or (at and not asked.strip(".")):
        known = [str(Runtime(system, release)) for release in releases]
        newest = f", or {system}, the newest of them" if len(known) > 1 and all(releases) else ""
        raise UsageError(f"{option}: found {to!r}, expected {' or '.join(known)}{newest}")
    return Runtime(system, found[0])


def releases_of(system: str) -> tuple[str, ...]:
    """Return the releases that a system may be asked for by, the usual one first."""
    rows = EXPORTS.get(system, {})
    return (*rows, *(core for row in rows.values() for core in row.cores)) or ("",)


def export_row(runtime: Runtime) -> Export:
    """Return the export for a release."""
    rows = EXPORTS[runtime.system]
    return rows.get(runtime.release) or next(iter(rows.values()))


def export_job(runtime: Runtime, job: TrainingJob, name: str, expected: Expected) -> Exported:
    """Return the files of a run in the words of a training system.

    Raises
    ------
    PlanError: what the system cannot run, with its limit and the nearest that it can.
    """
    row = export_row(runtime)
    if limit := _limit(runtime, job):
        raise PlanError(f"{limit}; {_takers(job)}")
    exported = cast("Exported", _function(row.function)(job, name, expected))
    if runtime.release in row.cores:
        from ilp_planner.formats.megatron.launch import NEWER, check_release

        check_release(job, runtime.release)  # which has all of it then
        notes = (note for note in exported.notes if not note.startswith(NEWER))
        exported = Exported(exported.files, tuple(notes))
    if not runtime.scheduler:
        return exported
    from ilp_planner.formats.megatron.launch import nodes_of
    from ilp_planner.formats.schedulers.node import STARTS, NodeRun, with_script

    within = runtime._replace(scheduler="")
    nodes, devices = nodes_of(job), min(job.devices_per_node, job.world)
    started = with_script(exported, STARTS.get(str(within), ""), name, nodes, devices)
    run = NodeRun(
        name=name,
        nodes=nodes,
        devices=devices,
        whole=devices == job.devices_per_node,
        hosts=tuple(" ".join(host.split()) for host in expected.hosts * expected.ordered),
        vendor=expected.vendor,
        files=started.files,
        about=(f"{name}: {runtime}", *describe(job)),
    )
    around = cast("Exported", _function(SCHEDULERS[runtime.scheduler].function)(run))
    return Exported(around.files, (*around.notes, *exported.notes))


def _limit(runtime: Runtime, job: TrainingJob) -> str:
    """Return the limit of a row of `EXPORTS` that a job is beyond; empty if there is none."""
    row, tuning, kernels = export_row(runtime), job.settings.tuning, job.settings.kernels
    kind, model = MOMENTS.read(job.settings), job.model
    text = f"the export for {runtime} is written for text alone"
    many = " or ".join(row.batchings) or "equal"
    limits = (
        (model.encoder and not row.sees, "model.encoder", "images before the decoder", text),
        (model.sounds and not row.sees, "model.sounds", "sounds before the decoder", text),
        (model.outputs, "model.outputs", "another head", text),
        (
            kind in BY_TRAINER and runtime.system != "peft",
            FORMAT_FIELD,
            kind,
            f"{runtime} keeps moments as plain numbers on the device",
        ),
        (
            kernels.chunked_loss and runtime.system != "peft",
            LOSS_FIELD,
            LIGER,
            f"{runtime} has its own loss",
        ),
        (
            kernels.fp8_attention and runtime.system != "nemo",
            FP8_FIELD,
            "true",
            f"{runtime} has no setting for it",
        ),
        (
            tuning and not row.tunes,
            f"settings.tuning.{'rank' if tuning.rank else 'frozen'}",
            tuning.rank or ", ".join(tuning.frozen),
            f"{runtime} trains all of a model",
        ),
        (
            job.batching and job.batching not in row.batchings,
            "batching",
            job.batching,
            f"{runtime} is written with {many} samples alone",
        ),
    )
    return next((f"{key}: found {has}, but {limit}" for on, key, has, limit in limits if on), "")


def takers(job: TrainingJob, expected: Expected, own: str = "") -> Iterator[str]:
    """Yield the exports that take a job as it is: its own system first, then those that have the
    code of that one below them, then the others; both in the order of `EXPORTS`.

    own: one of `RUNTIMES`; empty: of no system.
    """
    system = own.partition("@")[0]
    rows = {
        str(Runtime(name, release)) if len(releases) > 1 else name: row
        for name, releases in EXPORTS.items()
        for release, row in releases.items()
    }
    order = (own, *sorted(rows, key=lambda name: system not in rows[name].below)) if own else rows
    for name in dict.fromkeys(order):
        runtime = runtime_of(name)
        try:
            if not _limit(runtime, job):
                _function(export_row(runtime).function)(job, "run", expected)
                yield name
        except PlannerError:
            continue


def _takers(job: TrainingJob) -> str:
    """Return the exports that take a job as it is, in words."""
    if found := " or ".join(f"`{name}`" for name in takers(job, Expected())):
        return f"{found} writes it"
    return "no other export takes this plan; `ilp-plan evaluate` and `ilp-plan show` take it"


def _function(name: str) -> Callable[..., object]:
    module, _, function = name.partition(":")
    return cast("Callable[..., object]", getattr(importlib.import_module(module), function))


def refusal_of(runtime: Runtime, job: TrainingJob, *, others: bool = True) -> str:
    """Return why a training system cannot run a job; nothing if it can. others: name the exports
    that take it."""
    if not others and (limit := _limit(runtime, job)):
        return limit
    try:
        export_job(runtime, job, "run", Expected())
    except PlanError as refusal:
        return str(refusal)
    return ""


def write_runtime(
    plan: AnyPlan,
    target: Target,
    to: str,
    output: Path,
    plan_file: Path | None = None,
    *,
    nearest: bool = False,
) -> Written:
    """Write the files that run a plan.

    Parameters
    ----------
    output: the name that the files share, with the end of one of them or without.
    plan_file: must not be overwritten.
    nearest: write the nearest plan if the system cannot run this one.

    Raises
    ------
    PlanError: the system cannot run the plan; with the plan's field, the system's limit, and the
    nearest plan that it runs.
    """
    from ilp_planner.formats.megatron.plan import NoJobError, describe_job, job_of_plan

    runtime = runtime_of(to, own=target.asked.space if target.asked else "megatron")
    remarks, near = [], None
    try:
        job = job_of_plan(plan, target.model, target.cluster, target.asked)
        if refusal := refusal_of(runtime, job):
            near = _near_run(runtime, job, target, refusal, nearest=nearest)
            remarks = [f"not the plan, but the nearest that {runtime} runs: {near}"]
    except NoJobError as refused:
        near = _near_job(runtime, refused, target, nearest=nearest)
        shown = f"{describe_job(near.job)}, {_seconds(near, target)}"
        remarks = [f"not the plan, but the nearest that {runtime} runs: {shown}"]
    if near:
        plan, job, target = near.plan, near.job, target._replace(time=near.seconds)
    expected = expected_of(plan, job, target)
    exported = export_job(runtime, job, output.stem, expected)
    name, asked = _stem(output, exported)
    if name != output.stem:  # files that name each other need their own name
        exported = export_job(runtime, job, name, expected)
    files = {
        output if suffix == asked else output.with_name(file_name(name, suffix)): text
        for suffix, text in exported.files.items()
    }
    for file in files:
        if plan_file is not None and file.resolve() == plan_file.resolve():
            raise UsageError(f"output: found {output}, which would write {file} over the plan")
        check_writable(file)
    for file, text in files.items():
        write_text(file, text)
    system = runtime.system
    notes = (*exported.notes, *unread_settings(target.model, system), *not_carried(job, system))
    return Written(tuple(files), job.pp, (*remarks, *notes))


def expected_of(plan: AnyPlan, job: TrainingJob, target: Target) -> Expected:
    """Return the expectations of a run before it starts."""
    from ilp_planner.formats.megatron.plan import hosts_of
    from ilp_planner.job.memory import rank_memory

    cluster = target.cluster
    types = {group.device for group in cluster.nodes}
    gpus = {cluster.device_types[name].gpu for name in types}
    vendors = {gpu(name).architecture.vendor if name else "" for name in gpus}
    told_apart = len(types) > 1 or cluster.matrix or cluster.zones or cluster.fabric.leaves
    hosts = hosts_of(plan, job, cluster)
    return Expected(
        iteration=target.time,
        memory=tuple(rank_memory(job, rank).peak for rank in range(job.pp)),
        hosts=hosts,
        ordered=bool(told_apart) and len(hosts) > 1,
        vendor=vendors.pop() if len(vendors) == 1 else "",
        model=next((hub for hub, own in hub_names().items() if own.stem == target.model.name), ""),
    )


def _near_run(
    runtime: Runtime, job: TrainingJob, target: Target, refusal: str, *, nearest: bool
) -> NearRun:
    """Return the nearest plan that a system runs, if it is asked for.

    Raises
    ------
    PlanError: the refusal, with the release that runs the plan, or the nearest plan and its time.
    """
    for release in sorted(releases_of(runtime.system), key=bool, reverse=True):  # named ones first
        other = runtime._replace(release=release)
        if not nearest and not refusal_of(other, job, others=False):
            raise PlanError(f"{refusal}; `{other}` runs it as it is")
    near = _nearest(runtime, job, target)
    if near is None:
        raise PlanError(refusal)
    if not nearest:
        raise PlanError(f"{refusal}; nearest plan that it runs: {near}; `nearest` writes it")
    return near


def _near_job(runtime: Runtime, refused: "NoJobError", target: Target, *, nearest: bool) -> NearRun:
    """Return the nearest plan that a system runs to a plan beyond training jobs, if it is asked
    for.

    Raises
    ------
    PlanError: the refusal, with that plan and its time, or with why there is none.
    """
    from ilp_planner.formats.megatron.plan import describe_job, job_of_plan

    if refused.near is None:
        raise refused
    job = job_of_plan(refused.near.plan, target.model, target.cluster)
    near = _nearest(runtime, job, target)
    if near is None:
        raise PlanError(f"{refused}; of the nearest {refusal_of(runtime, job)}")
    if not nearest:
        shown = f"{describe_job(near.job)}, {_seconds(near, target)}"
        raise PlanError(f"{refused}; `nearest` writes what {runtime} runs: {shown}")
    return near


def _nearest(runtime: Runtime, job: TrainingJob, target: Target) -> NearRun | None:
    refusal = partial(refusal_of, runtime, others=False)
    return nearest_run(job, target.model, target.cluster, refusal, target.asked)


def _seconds(near: NearRun, target: Target) -> str:
    """Return the time of a plan beside that of one with costs of its own."""
    text = f"{format_seconds(near.seconds)} per iteration"
    if target.time is None:
        return text
    return f"{text}, against {format_seconds(target.time)} of the plan itself by its own costs"


def not_carried(job: TrainingJob, to: str) -> Iterator[str]:
    """Yield a note on arguments of Megatron for a training system that has others."""
    flags = [word for word in job.settings.carried if word.startswith("--")]
    if flags and to != "megatron":
        yield f"settings.carried: {', '.join(flags)}: of Megatron's launch line, not written"


def unread_settings(model: ModelSpec, to: str) -> Iterator[str]:
    """Yield a note on settings of a model file for a training system that takes none from it."""
    if model.export.get(to):
        yield f"[export.{to}] of {model.name}: without effect, only Aceso's files take settings"


def _stem(output: Path, exported: Exported) -> tuple[str, str]:
    """Return the name that the files share, and the end of the one that was asked for, if any."""
    for suffix in exported.files:
        if suffix == output.suffix == ".py" and output.name != file_name(output.stem, suffix):
            raise UsageError(
                f"output: found {output.name}, expected a name that Python imports, as "
                f"{file_name(output.stem, suffix)}"
            )
        if output.name.endswith(suffix) and output.name != suffix:
            return output.name.removesuffix(suffix), suffix
    if not output.suffix:
        return output.name, ""
    for suffix in exported.files:
        if Path(f"x{suffix}").suffix == output.suffix:
            return output.stem, suffix
    raise UsageError(
        f"output: found {output.name}, expected a name that ends in "
        f"{', '.join(exported.files)}, or in nothing: the others are written beside it"
    )
