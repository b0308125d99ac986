"""`ilp-plan import`: somebody else's plan, or a launch line, becomes a plan of this planner."""

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.files import check_writable, read_document, write_text
from ilp_planner.base.library import library_files
from ilp_planner.base.parts import part
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.options import taking
from ilp_planner.faces.cli.request_options import request_options
from ilp_planner.faces.cli.solve import build
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import references, settings_given, was_typed
from ilp_planner.faces.cli.wording import as_typed, option_of
from ilp_planner.faces.report.console import print_report
from ilp_planner.faces.report.evaluation import print_judgement
from ilp_planner.faces.report.lines import evaluation_lines
from ilp_planner.faces.report.stages import stage_table
from ilp_planner.formats.saved_json import write_saved
from ilp_planner.formats.saved_plan import saved_import
from ilp_planner.inputs.files import InputFiles, cluster_or_gpus, find_cluster, find_model
from ilp_planner.inputs.request import Reference, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import TrainingJob

# Options that a launch line says itself.
SAID = ("profile", "cost_model", "global_batch", "micro_batch_sizes", "max_stages")


@taking(limits=request_options("micro_batch_sizes", "memory_limit", "max_stages"))
def import_plan(
    ctx: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FORMAT",
            help="aceso | megatron, or megatron@RELEASE of Megatron-Core, whose arguments and "
            "defaults are read then.",
        ),
    ],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Somebody else's plan; of megatron, a launch script, a job of `ilp-plan "
            "capture`, an exported JSON, another system's configuration or the arguments as one "
            "text.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to save it.")],
    model: o.Model = o.DEFAULT_MODEL,
    cluster: o.MaybeCluster = None,
    gpus: o.Gpus = None,
    profile: o.Profile = o.DEFAULT_PROFILE,
    cost_model: o.OperatorCosts = "native",
    global_batch: o.MaybeGlobalBatch = None,
    limits: Any = None,
    set_values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Of megatron: what only running the script would tell; repeatable.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Of megatron: refuse arguments that Megatron-LM does not have."
        ),
    ] = False,
) -> None:
    """Save somebody else's plan as one of ours, judged, to be evaluated and compared."""
    from ilp_planner.evaluate import evaluate

    cluster = cluster_or_gpus(cluster, gpus) or o.DEFAULT_CLUSTER
    check_writable(output, [Path(file), Path(model), Path(cluster)])
    system = source.partition("@")[0]
    if system not in ("aceso", "megatron") or (system == "aceso" and system != source):
        raise UsageError(f"FORMAT: found {source!r}, expected aceso, megatron or megatron@RELEASE")
    if system == "megatron":
        import_megatron(
            ctx,
            file,
            output,
            cluster=cluster,
            memory=limits.memory_limit,
            supplied=set_values,
            strict=strict,
            release=source,
        )
        return
    if set_values or strict:
        given = "--set" if set_values else "--strict"
        raise UsageError(f"{given}: expected none with {source}, whose plans are no launch lines")
    plan = part("peers.aceso.formats:read_aceso")(
        Path(file), find_model(model), global_batch=global_batch
    )
    request = replace(
        limits,
        files=references(model=model, cluster=cluster, profile=profile),
        space="operators",
        cost_model=cost_model,
        global_batch=plan.global_batch,
    )
    problem = build(request)
    evaluation = evaluate(problem, plan)
    write_saved(output, saved_import(problem, plan, evaluation))
    tables = [stage_table(problem, plan, evaluation)] if evaluation.stages else []
    print_report(evaluation_lines(problem, plan, evaluation), *tables)


def import_megatron(
    ctx: typer.Context,
    launch: str,
    output: Path,
    *,
    cluster: str,
    memory: float | None,
    supplied: "Sequence[str] | None",
    strict: bool,
    release: str,
) -> None:
    """Save the plan of a launch line, judged, and its model beside it if it is a new one.

    memory: bytes of a device that may be used; None: all. supplied: `NAME=VALUE` of values that
    only a run would tell. strict: refuse arguments that Megatron-LM does not have. release:
    `megatron`, or `megatron@RELEASE`.
    """
    from ilp_planner.analysis.fit.system import system_of
    from ilp_planner.evaluate import evaluate
    from ilp_planner.formats.captured.reader import read_any_launch
    from ilp_planner.formats.megatron.arguments import job_of_arguments
    from ilp_planner.formats.megatron.notes import carried_of, unmodelled
    from ilp_planner.formats.megatron.plan import plan_of_job
    from ilp_planner.formats.megatron.ranks import gpus_of
    from ilp_planner.formats.megatron.releases import core_named, read_for
    from ilp_planner.formats.saved_check import judge_saved
    from ilp_planner.spaces.registry import build_problem
    from ilp_planner.specs.data_sheets import gpu_architecture

    core = core_named(release)
    for name in SAID:
        if was_typed(ctx, name):
            raise UsageError(
                f"{option_of(name)}: expected none with megatron: the launch line says it"
            )
    spec = find_cluster(cluster)
    given = settings_given(supplied)
    args = read_any_launch(launch, supplied=given, gpus=gpus_of(spec), strict=strict)
    if core:
        args = replace(args, values=read_for(args.values, core, args.source or "arguments"))
    job = replace(
        job_of_arguments(args),
        devices_per_node=spec.nodes[0].devices,
        gpu_architecture=gpu_architecture(spec),
    )
    carried = carried_of(args)
    job = replace(job, settings=replace(job.settings, carried=carried.words))
    chosen = system_of(job, spec, line=True)
    job = chosen.job
    plan = plan_of_job(job, spec)
    named = ctx.params["model"] if was_typed(ctx, "model") else None
    model, name = _model(job, named, output, source=args.source or "arguments")
    plan = replace(plan, model=name)
    request = Request(
        files={"model": model, **references(cluster=cluster, profile="analytic")},
        space=chosen.space.name if chosen.space else "megatron",
        global_batch=job.global_batch,
        memory_limit=memory,
        max_cp=job.settings.cp if job.settings.cp > 1 else None,
        precision=job.settings.kernels.quantised,
    )
    problem = build_problem(InputFiles(request, possible=False))
    saved = saved_import(problem, plan, evaluate(problem, plan))
    write_saved(output, saved)
    said = ", ".join(carried.otherwise)
    notes = [f"{said}: said by the plan in other words"] if said else []
    if chosen.note:
        notes.append(as_typed(chosen.note))
    for note in (*unmodelled(args), *notes):
        echo(f"ilp-plan: note: {note}", err=True)
    print_judgement(judge_saved(problem, saved, certificate=False), as_json=False)


def _model(
    job: "TrainingJob", named: str | None, output: Path, *, source: str
) -> tuple[Reference, str]:
    """Return the file of a job's model and its name, written beside the plan if there is none; a
    model that was named must be the same."""
    from ilp_planner.specs.decoder import as_decoder
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.model_reader import library_spec
    from ilp_planner.specs.model_writer import model_text

    precision = job.settings.precision
    if named is not None:
        spec = find_model(named)
        _same(as_decoder(spec.architecture), job.model, named)
        if spec.precision != precision:
            raise SpecError(
                f"{named}: precision: found {spec.precision}, expected {precision} as the launch "
                "line says"
            )
        return Reference(name=named), spec.name
    for file in library_files("models"):
        spec = library_spec(file)
        if as_decoder(spec.architecture) == job.model and spec.precision == precision:
            return _held(file.stem, file), spec.name
    name = f"{output.stem}-model"
    beside = output.with_name(f"{name}.toml")
    check_writable(beside)
    spec = ModelSpec(name=name, precision=precision, architecture=job.model)
    write_text(beside, model_text(spec, source=f"From {source}."))
    echo(f"ilp-plan: note: {beside}: the model of the launch line", err=True)
    return _held(str(beside), beside), name


def _held(name: str, file: Path) -> Reference:
    """Return a file with its content, so that no other one of that name is read."""
    document = read_document(file, SpecError)
    return Reference(name=name, sha256=document.sha256, text=document.text)


def _same(found: "Decoder | None", wanted: "Decoder", name: str) -> None:
    """Refuse another model than that of the launch line, naming the first difference."""
    if found is None:
        raise SpecError(f"{name}: family: expected gpt or decoder, which Megatron's arguments say")
    for field in fields(wanted):
        have, want = getattr(found, field.name), getattr(wanted, field.name)
        if have != want:
            repair = f"--hidden-dropout {have} --attention-dropout {have}"
            raise SpecError(
                f"{name}: {field.name}: found {have}, expected {want} as the launch line says"
                + (f": add {repair} to it" if field.name == "dropout" else "")
            )
