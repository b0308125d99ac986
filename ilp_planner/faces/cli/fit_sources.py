"""The input of `ilp-plan fit`: a judge of its job, and a writer of changes in the user's words."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.devices import devices_of
from ilp_planner.analysis.fit.needs import Needs, Site, needs_of
from ilp_planner.analysis.fit.system import Chosen, system_of
from ilp_planner.base.errors import PlanError, PlannerError, SpecError, UsageError
from ilp_planner.faces.cli.analyze_sources import (
    cluster_asked,
    limit_and_remark,
    limited,
    one_source,
    said_job,
)
from ilp_planner.faces.cli.wording import as_typed, option_of
from ilp_planner.formats.megatron.changes import LineChange, as_said, job_change, line_change
from ilp_planner.formats.megatron.values import SHARDS
from ilp_planner.formats.nearest_run import differences
from ilp_planner.formats.peft import trainer_arguments
from ilp_planner.formats.torchtitan import TOML_RUNTIME, tables_of
from ilp_planner.inputs.devices import beyond_memory, memory_within, with_memory
from ilp_planner.job.attention import uses_package
from ilp_planner.job.shard import eager
from ilp_planner.specs.data_sheets import flash_notes, gpu_architecture
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.pipeline_layout import is_even, write_layout
from ilp_planner.specs.prices import with_prices
from ilp_planner.specs.training import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import typer

    from ilp_planner.analysis.devices import Devices
    from ilp_planner.analysis.fit.fit import Writer
    from ilp_planner.analysis.fit.judge import Judge
    from ilp_planner.faces.cli.analyze_sources import SaidJob
    from ilp_planner.formats.megatron.values import MegatronArguments
    from ilp_planner.spaces.base import Space
    from ilp_planner.spaces.training.space import MegatronSpace
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob

# Options that are completed where they are not given, before the open ones: first those that need
# no word beside others.
COMPLETED = (
    "recompute_layers", "recompute_method", "global_batch", "dp", "pp", "layout", "recompute"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A job to judge.

    model: what it trains. site: its GPUs. writer: says changes. words: what these are said of, for
    people. notes: on assumptions. space: with the rules of its changes; None: Megatron-LM's. timed:
    whether a training system runs it, so that its times are known.
    """

    job: TrainingJob
    model: ModelSpec
    site: Site
    writer: Writer
    words: str
    notes: tuple[str, ...]
    space: Space[Any, Any] | None = None
    timed: bool = True

    def needs(self) -> Needs:
        """Return the memory that the job needs.

        Raises
        ------
        PlanError: unknown GPUs.
        """
        return needs_of(self.job, self.site.of(self.job.world))

    def judge(self) -> Judge:
        """Return the judge of the job's changes."""
        from ilp_planner.analysis.fit.judge import Judge, space_of

        return Judge(self.site, self.model, self.job, space_of(self.space))


def read_job(ctx: typer.Context, asked: dict[str, Any]) -> Asked:
    """Return the job that was asked about.

    Raises
    ------
    PlannerError: an unreadable or impossible value, with a repair.
    """
    source = one_source(ctx, asked)
    spec = cluster_asked(asked)
    limit, notes = limit_and_remark(asked["memory_limit"])
    if source == "plan_file":
        return _of_plan(asked, spec, limit, notes)
    if spec is None:
        raise UsageError(
            "--cluster: found none, expected the GPUs whose memory and speed decide, as "
            "--cluster a100-4x8 or --gpus 32xA100-80GB"
        )
    notes += (*beyond_memory(spec, limit),)
    site = Site(cluster=priced(with_memory(spec, memory_within(spec, limit)), asked))
    devices = devices_of(site.cluster)
    said = said_job(asked, source, spec, devices)
    space: MegatronSpace | None = None
    timed = True
    more: tuple[str, ...] = ()
    check_precision(said, site.cluster)
    job = replace(said.job, devices_per_node=site.each)
    own = said.arguments.runtime if said.arguments else ""
    chosen = system_of(job, site.cluster, own, line=said.arguments is not None)
    if chosen.note:
        more = (as_typed(chosen.note),)
        if said.arguments is None:
            words = "options"
            writer: Writer = partial(own_option_change, asked, devices, site.cluster, chosen)
        else:
            words = f"keys of {asked[source]}" if own else "settings of the job"
            writer = partial(_fields, said.arguments, chosen.job)
        job, space, timed = chosen.job, chosen.space, chosen.space is not None
    elif said.arguments is None:
        check_options(job)
        writer = partial(option_change, asked, devices, job)
        words = "options"
    else:
        # Where a line says it without tensor parallelism, it counts as soon as there is some.
        divided = said.arguments.on("sequence_parallel")
        job = replace(job, settings=replace(job.settings, sequence_parallel=divided))
        writer = partial(line_change, said.arguments, job)
        spelling = said.arguments.spelling
        kind = "arguments" if spelling is None or spelling.launched else "keys"
        words = f"{kind} of {asked[source]}" if source == "megatron_script" else kind
    precision = job.settings.precision
    installed = flash_notes(spec) if uses_package(job) else ()
    return Asked(
        job=job,
        model=ModelSpec(name=said.name, precision=precision, architecture=job.model),
        site=site,
        writer=writer,
        words=words,
        notes=(*notes, *more, *said.notes, *beyond(job, spec), *spec.notes, *installed),
        space=space,
        timed=timed,
    )


def beyond(job: TrainingJob, spec: ClusterSpec) -> tuple[str, ...]:
    """Return a note if a job has more ranks than a cluster has devices."""
    if job.world <= spec.device_count:
        return ()
    return (
        f"the job needs {job.world} GPUs, the cluster has {spec.device_count}: more nodes like its "
        "own are assumed",
    )


def check_precision(said: SaidJob, spec: ClusterSpec) -> None:
    """Refuse a type of numbers that the GPUs do not have.

    Raises
    ------
    SpecError: with one that they have.
    """
    wanted = said.job.settings.precision
    for name in spec.type_names:
        device = spec.device_types[name]
        if device.peak is not None and wanted not in device.peak:
            other = next((name for name in PRECISIONS if name in device.peak), "")
            option = (
                f"--{other} instead of --{wanted}" if said.arguments else f"--precision {other}"
            )
            raise SpecError(
                f"cluster {spec.name!r}: {device.type} has no {wanted}, which the job trains in, "
                f"expected one of {', '.join(device.peak)}" + (f"; {option} would do" * bool(other))
            )


def priced(spec: ClusterSpec, asked: dict[str, Any]) -> ClusterSpec:
    """Return a cluster with the prices that are asked for, if any."""
    price = asked.get("price")
    return spec if price is None else with_prices(spec, price)


def _of_plan(
    asked: dict[str, Any],
    spec: ClusterSpec | None,
    limit: float | None,
    notes: tuple[str, ...],
) -> Asked:
    """Return the job of a saved plan, on its own cluster or on another one."""
    from ilp_planner.analysis.fit.judge import has_launch_lines
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.formats.saved_json import read_saved
    from ilp_planner.formats.saved_problem import differing_today, model_and_cluster, problem_of

    file, changed = asked["plan_file"], asked["accept_changed"]
    saved = read_saved(file)
    model, cluster = model_and_cluster(saved, file, accept_changed=changed)
    notes += () if changed else differing_today(saved, file)
    if model is None:
        raise PlanError(f"{file}: the plan names no model, expected one of a training job")
    try:
        job = job_of_plan(saved.plan, model, cluster)
    except PlanError as error:
        raise PlanError(
            f"{file}: no training job says this plan, expected one that does: {error}"
        ) from None
    space = problem_of(saved, file, accept_changed=changed).space
    within, more = limited(spec or cluster, saved.inputs, limit, changed=changed)
    site = Site(cluster=priced(within, asked))
    notes += more
    job = replace(job, devices_per_node=site.each, gpu_architecture=gpu_architecture(site.cluster))
    if has_launch_lines(space):
        try:
            check_options(job)
        except PlanError as error:
            raise PlanError(f"{file}: {error}") from None
        writer: Writer = partial(_job_change, job)
        words = "arguments that `ilp-plan export --to megatron` writes"
    else:
        writer, words = partial(_fields, None, job), "settings of the plan"
    return Asked(
        job=job,
        model=model,
        site=site,
        writer=writer,
        words=words,
        notes=(*notes, *beyond(job, site.cluster), *site.cluster.notes),
        space=space,
    )


def _fields(args: MegatronArguments | None, before: TrainingJob, after: TrainingJob) -> LineChange:
    """Return the changed keys of the Trainer or of torchtitan if these run the job, else its
    changed fields, by name.

    args: of a file of another system; None: there is none.
    """
    gpus = after.world if after.world != before.world else 0
    words: list[str] = []
    try:
        old, new = (dict(_flat(_keys(args, job))) for job in (before, after))
    except PlanError:
        pass
    else:
        follows = args and "global_batch_size" not in args.values
        if follows and after.dp * after.micro_batch != before.dp * before.micro_batch:
            old.pop("training.global_batch_size", None)
        words += (
            f"{key} {json.dumps(new.get(key))} instead of {json.dumps(old.get(key))}"
            for key in dict.fromkeys((*old, *new))
            if old.get(key) != new.get(key)
        )
    return LineChange(fields=tuple(words or differences(before, after)), gpus=gpus)


def _keys(args: MegatronArguments | None, job: TrainingJob) -> dict[str, Any]:
    """Return the keys of a job's own system, with their values.

    Raises
    ------
    PlanError: there are none, or they do not say the job.
    """
    if job.settings.by_trainer or eager(job):
        return trainer_arguments(job)
    if args and args.runtime == TOML_RUNTIME:
        tables = tables_of(job, "")[0]
        said = args.spelling and SHARDS in args.spelling.keys
        if not said and job.settings.optimizer.sharding != "none":
            tables["parallelism"] |= {"data_parallel_shard_degree": -1}
        return {**tables}
    raise PlanError("no keys are written")


def _flat(said: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield keys with those that they stand in, and their values."""
    for key, value in said.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


# ---- changes of options --------------------------------------------------------------------------


def check_options(job: TrainingJob) -> None:
    """Refuse a job of options that Megatron-LM cannot run.

    Raises
    ------
    PlanError: the field of the job, the rule that it breaks, and a repair.
    """
    from ilp_planner.formats.megatron.launch import runnable_arguments

    runnable_arguments(job)


def _job_change(before: TrainingJob, after: TrainingJob) -> LineChange | None:
    try:
        return job_change(before, after)
    except SpecError:
        return None


def option_change(
    asked: dict[str, Any], devices: Devices, before: TrainingJob, after: TrainingJob
) -> LineChange | None:
    """Return the changes of options from one job to another one.

    The changed options are read again, and say that job. If no option does, the arguments of
    Megatron-LM's launch line are returned; None if none has it either.

    Parameters
    ----------
    asked: the parameters of the command. before: the job that they say.
    """
    launch = _job_change(before, after)
    if launch is None:
        return None
    from ilp_planner.faces.cli.analyze_job import unsaid

    said = {name: asked[name] for name in _values(after)}
    now = {n: unsaid(n, before.model) if value is None else value for n, value in said.items()}
    found = _options_from(asked, now, devices, (before, after), lambda job: job)
    return found or replace(launch, language="Megatron-LM")


def own_option_change(
    asked: dict[str, Any],
    devices: Devices,
    cluster: ClusterSpec,
    chosen: Chosen,
    after: TrainingJob,
) -> LineChange:
    """Return the changes of options from one job to another one of the system that they imply; if
    no option does, its changed keys.

    Parameters
    ----------
    asked: the parameters of the command. chosen: the job that they say, as that system runs it.
    """

    def as_it_runs(job: TrainingJob) -> TrainingJob:
        placed = replace(job, devices_per_node=after.devices_per_node)
        found = system_of(placed, cluster, line=False)
        if found.space != chosen.space:
            raise PlanError("another system runs it")
        return found.job

    jobs = chosen.job, after
    found = _options_from(asked, _values(chosen.job), devices, jobs, as_it_runs)
    return found or _fields(None, *jobs)


def _options_from(
    asked: dict[str, Any],
    now: dict[str, Any],
    devices: Devices,
    jobs: tuple[TrainingJob, TrainingJob],
    runs: Callable[[TrainingJob], TrainingJob],
) -> LineChange | None:
    """Return the fewest changes of options between two jobs; None if no options do.

    Parameters
    ----------
    now: values of options before the change. runs: a job of options, as its system runs it.
    """
    from ilp_planner.faces.cli.analyze_job import OPEN, UNSAID, job_of_options
    from ilp_planner.settings.job_options import JOB_OPTIONS

    before, after = jobs
    wanted = _values(after)
    if after.pipeline == before.pipeline:  # said in other words, perhaps
        wanted |= {name: asked[name] for name in ("layout", "virtual")}
        now = now | {name: asked[name] for name in ("layout", "virtual")}
    said = {n: wanted[n] for n in UNSAID if n in wanted and wanted[n] != now[n]}
    if asked["world_size"] is not None and after.world != before.world:
        said["world_size"] = after.world

    def says_it(options: dict[str, Any]) -> bool:
        try:
            again, _, _ = job_of_options(asked | options, devices)
            return as_said(runs(again)) == as_said(after)
        except PlannerError:
            return False

    if not says_it(said):  # what followed from options that change is said, perhaps
        said |= {n: wanted[n] for n in COMPLETED if asked[n] is None and n in wanted}
        if not says_it(said):
            return None
    for name in (*COMPLETED, *reversed(OPEN)):  # what follows from the others needs no word
        others = {other: value for other, value in said.items() if other != name}
        if name in said and says_it(others):
            said = others
    add: list[str] = []
    drop = []
    for name, value in said.items():
        if value is True:
            add.append(option_of(name))
        elif value is False and now[name] and name in JOB_OPTIONS and JOB_OPTIONS[name].unsaid:
            add.append(f"--no-{option_of(name).removeprefix('--')}")
        elif value in (False, None):
            drop.append(option_of(name))
        else:
            add += [option_of(name), str(value)]
    return LineChange(
        add=tuple(add),
        drop=tuple(drop),
        gpus=after.world if after.world != before.world else 0,
    )


def _values(job: TrainingJob) -> dict[str, Any]:
    """Return the values of options that say a job, as far as there are such options."""
    from ilp_planner.settings.job_options import changed_options

    again = job.settings.recompute
    even = is_even(job.pipeline, job.stages[-1].prediction_layers)
    full = again.granularity == "full"
    return {
        "tp": job.tp,
        "pp": job.pp,
        "dp": job.dp,
        "virtual": job.virtual if even else 1,
        "layout": None if even else write_layout(job.pipeline),
        "micro_batch": job.micro_batch,
        "global_batch": job.global_batch,
        "recompute": again.granularity,
        "recompute_modules": ",".join(again.modules) or None,
        "recompute_method": again.method if full else None,
        "recompute_layers": again.layers if full else None,
        "distributed_optimizer": False,
        **changed_options(job.settings),
    }
