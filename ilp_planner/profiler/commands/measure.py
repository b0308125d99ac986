"""`ilp-plan profile measure`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ilp_planner.base.files import check_writable
from ilp_planner.base.library import find_spec
from ilp_planner.costs.profiles.measurements import Record, read_measurements
from ilp_planner.faces.cli import options as o
from ilp_planner.faces.cli.options import taking
from ilp_planner.faces.cli.terminal import echo
from ilp_planner.faces.cli.values import whole_numbers
from ilp_planner.faces.report.console import print_report
from ilp_planner.profiler.measure.machine import need_torch
from ilp_planner.profiler.report.measuring import share_bar, sweep_summary
from ilp_planner.specs.model_reader import read_model

COMMAND = "profile measure"
Numbers = list[str] | None
RECORDS = {
    None: (Record.LAYER, Record.OPERATOR),
    "layers": (Record.LAYER,),
    "operators": (Record.OPERATOR,),
}  # by --only


@dataclass(frozen=True, kw_only=True)
class Degrees:
    """Of groups of ranks, one of which is measured."""

    tp: Annotated[
        Numbers,
        o.plain(
            "--tp",
            "Tensor-parallel degrees: of each, the share of one rank is measured.",
            "N...",
            default="1",
        ),
    ] = None
    cp: Annotated[
        Numbers,
        o.plain(
            "--cp",
            "Context-parallel degrees: of each, one rank's part of a sample, which sees all of it.",
            "N...",
            default="1",
        ),
    ] = None
    ep: Annotated[
        Numbers,
        o.plain(
            "--ep",
            "Expert-parallel degrees besides 1: of each, the experts and rows of one rank.",
            "N...",
            default="1",
        ),
    ] = None
    etp: Annotated[
        Numbers,
        o.plain("--etp", "Tensor-parallel degrees of experts: 1 or tp.", "N...", default="tp"),
    ] = None


@taking(degrees=Degrees)
def measure(
    output: o.TableOutput,
    model: o.Model = o.DEFAULT_MODEL,
    *,
    degrees: Degrees,
    micro_batch: Annotated[
        Numbers, o.plain(o.MANY, "Samples of one replica.", "N...", default="the model's")
    ] = None,
    sequence: Annotated[
        Numbers, o.plain("--sequence-length", "Tokens of a sample.", "N...", default="the model's")
    ] = None,
    device: Annotated[
        Literal["cuda", "cpu"] | None,
        o.plain("--device", "What to measure on.", default="a GPU if there is one"),
    ] = None,
    device_name: Annotated[
        str | None,
        o.plain(
            "--device-name",
            "What the table calls the device, as the cluster file does.",
            "NAME",
            default="its own name",
        ),
    ] = None,
    dtype: Annotated[
        Literal["bf16", "fp16", "fp32"] | None,
        o.plain("--dtype", "Of parameters and activations.", default="the model's; fp32 on a CPU"),
    ] = None,
    links: Annotated[
        Path | None,
        o.plain(
            "--links",
            "Table of `profile measure-links`: its all-reduces are added to the times.",
            "FILE",
        ),
    ] = None,
    repeats: Annotated[
        int | None, o.count("--repeats", "Passes that count.", "3 to 20, as time allows")
    ] = None,
    copies: Annotated[
        int, o.count("--layers", "Copies of each kind of layer that run.", True, least=2)
    ] = 2,
    only: Annotated[
        Literal["layers", "operators"] | None,
        o.plain("--only", "Rows of this kind.", default="both, where there are"),
    ] = None,
    text_only: Annotated[bool, o.plain("--text-only", o.TEXT_ONLY)] = False,
    resume: Annotated[
        bool, o.plain("--resume", "Go on with the rows that FILE has.", default=True)
    ] = False,
) -> None:
    """Measure layers and operators of a model: time, memory, optimiser's step.

    What one rank of a group would hold runs on one device, so no second one is needed; what
    context- and expert-parallel ranks send each other is left to the planner, and tensor-parallel
    messages are told apart (columns messages, message_bytes) or added from --links. A row is in
    FILE as soon as it is measured.
    """
    need_torch(COMMAND)
    from ilp_planner.profiler.measure.run import measure_model
    from ilp_planner.profiler.measure.wish import Spread

    file = find_spec(model, "models")
    spec = read_model(file, text_only=text_only)
    collectives = read_measurements(links) if links is not None else None
    check_writable(output, [file, *([links] if links is not None else [])])
    try:
        with share_bar() as show:
            summary = measure_model(
                spec,
                output=output,
                degrees=_numbers("--tp", degrees.tp) or (1,),
                spread=Spread(
                    context=_numbers("--cp", degrees.cp) or (1,),
                    experts=_numbers("--ep", degrees.ep),
                    tensor=_numbers("--etp", degrees.etp),
                ),
                micro_batch_sizes=_numbers(o.MANY, micro_batch) or spec.micro_batch_sizes,
                sequences=_numbers("--sequence-length", sequence),
                device=device,
                device_name=device_name,
                dtype=dtype,
                links=collectives,
                repeats=repeats,
                copies=copies,
                records=RECORDS[only],
                resume=resume,
                progress=show,
            )
    except KeyboardInterrupt:
        if output.is_file():
            echo(f"interrupted: --resume goes on after the rows in {output}", err=True)
        raise
    print_report(sweep_summary(summary, str(output)))


def _numbers(option: str, values: Numbers) -> tuple[int, ...]:
    """Return `--tp 1 2,4` ascending and once."""
    return tuple(sorted(whole_numbers(option, values)))
