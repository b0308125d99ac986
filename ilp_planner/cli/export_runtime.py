"""`ilp-plan export` to training systems that run one training job: a plan becomes their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ilp_planner.cli.inputs import check_unchanged, choose, find_model, plan_folders
from ilp_planner.errors import PlanError, UsageError
from ilp_planner.files import check_writable, write_text
from ilp_planner.formats.exported import Expected, file_name
from ilp_planner.formats.exports import export_job
from ilp_planner.formats.groups_json import read_saved
from ilp_planner.formats.saved_groups import SavedGroups
from ilp_planner.formats.saved_plan import Reference
from ilp_planner.library import find_specs

if TYPE_CHECKING:
    from ilp_planner.formats.exported import Exported
    from ilp_planner.formats.saved_plan import SavedPlan
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec


def export_runtime(plan_file: Path, to: str, output: Path, *, accept_changed: bool) -> None:
    """Write the files that run a saved plan.

    Parameters
    ----------
    output: the name that the files share, with the end of one of them or without.

    Raises
    ------
    PlanError: the system cannot run the plan; with the plan's field and the system's limit.
    """
    from ilp_planner.formats.megatron.plan import job_of_plan

    saved = read_saved(plan_file)
    model, cluster = _inputs(saved, plan_file, accept_changed=accept_changed)
    time = saved.verdict.iteration_time if saved.verdict else None
    try:
        written, notes = write_runtime(saved.plan, time, model, cluster, to, output, plan_file)
    except PlanError as error:
        raise PlanError(f"{plan_file}: {error}") from None
    if saved.verdict is not None and not saved.verdict.legal:
        typer.echo(f"ilp-plan: note: {plan_file} breaks {saved.verdict.violations[0]}", err=True)
    for note in notes:
        typer.echo(f"ilp-plan: note: {note}", err=True)
    pp = job_of_plan(saved.plan, model, cluster).pp
    names = ", ".join(map(str, written))
    typer.echo(f"{names}: {pp} pipeline ranks of {model.name} for {to}", err=True)


def write_runtime(
    plan: AnyPlan,
    time: float | None,
    model: ModelSpec,
    cluster: ClusterSpec,
    to: str,
    output: Path,
    plan_file: Path | None = None,
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write the files that run a plan; return them, and remarks.

    Parameters
    ----------
    time: seconds per iteration, where they are known.
    plan_file: what must not be overwritten.

    Raises
    ------
    PlanError: the system cannot run the plan.
    """
    from ilp_planner.anatomy.memory import rank_memory
    from ilp_planner.formats.megatron.plan import hosts_of, job_of_plan

    job = job_of_plan(plan, model, cluster)
    expected = Expected(
        iteration=time,
        memory=tuple(rank_memory(job, rank).peak for rank in range(job.pp)),
        hosts=hosts_of(plan, job, cluster),
    )
    exported = export_job(to, job, output.stem, expected)
    name, asked = _stem(output, exported)
    if name != output.stem:  # files that name each other need their own name
        exported = export_job(to, job, name, expected)
    files = {
        output if suffix == asked else output.with_name(file_name(name, suffix)): text
        for suffix, text in exported.files.items()
    }
    for file in files:
        if plan_file is not None and file.resolve() == plan_file.resolve():
            raise UsageError(f"--output: found {output}, which would write {file} over the plan")
        check_writable(file)
    for file, text in files.items():
        write_text(file, text)
    return tuple(files), tuple(exported.notes)


def _inputs(
    saved: SavedPlan | SavedGroups, file: Path, *, accept_changed: bool
) -> tuple[ModelSpec, ClusterSpec]:
    """Return the model and the cluster that a plan is for.

    Raises
    ------
    PlanError: it names none, or they have changed since.
    """
    from ilp_planner.specs.cluster_reader import read_cluster

    if isinstance(saved, SavedGroups):
        references = dict(saved.inputs.files)
    else:
        references = {"model": saved.inputs.model, "cluster": saved.inputs.cluster}
    for kind in ("model", "cluster"):
        if kind not in references:
            raise PlanError(
                f"{file}: inputs.{kind}: found none, expected the {kind} file of the plan, which "
                "says the dimensions that a training system needs"
            )
    folders = plan_folders(file)
    then = references["model"]
    model, digest = find_model(then.name, then, folders)
    place = references["cluster"]
    path, cluster_digest = choose(find_specs(place.name, "clusters", folders), place)
    if not accept_changed:
        check_unchanged(file, "model", then, Reference(name=then.name, sha256=digest))
        now = Reference(name=place.name, sha256=cluster_digest)
        check_unchanged(file, "cluster", place, now)
    return model, read_cluster(path)


def _stem(output: Path, exported: Exported) -> tuple[str, str]:
    """Return the name that the files share, and the end of the one that was asked for, if any.

    Raises
    ------
    UsageError: the file's end is none of theirs.
    """
    for suffix in exported.files:
        if output.name.endswith(suffix) and output.name != suffix:
            return output.name.removesuffix(suffix), suffix
    if not output.suffix:
        return output.name, ""
    for suffix in exported.files:
        if Path(f"x{suffix}").suffix == output.suffix:
            return output.stem, suffix
    raise UsageError(
        f"--output: found {output.name}, expected a name that ends in "
        f"{', '.join(exported.files)}, or in nothing: the others are written beside it"
    )
