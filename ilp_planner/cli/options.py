"""The options that commands share, each described once."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

DEFAULT_MODEL = "gpt3-1.3b"
DEFAULT_CLUSTER = "v100-32gb-1x4"
DEFAULT_PROFILE = "analytic"
DEFAULT_GLOBAL_BATCH = 1024
MANY = "--micro-batch-size"

Model = Annotated[
    str, typer.Option("--model", metavar="FILE", help="Model, TOML, or the name of a known one.")
]
Cluster = Annotated[
    str,
    typer.Option("--cluster", metavar="FILE", help="Cluster, TOML, or the name of a known one."),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile", metavar="FORMAT:PATH", help="aceso:FOLDER, or analytic for an estimate."
    ),
]
CostModel = Annotated[
    Literal["native", "aceso"],
    typer.Option("--cost-model", help="Whose formulas say what a plan takes."),
]
GlobalBatch = Annotated[
    int, typer.Option("--global-batch-size", min=1, metavar="N", help="Samples per iteration.")
]
MaybeGlobalBatch = Annotated[
    int | None,
    typer.Option(
        "--global-batch-size", min=1, metavar="N", help="Samples per iteration; the plan's own."
    ),
]
MicroBatches = Annotated[
    list[str] | None,
    typer.Option(
        MANY,
        metavar="N...",
        help="Micro-batch sizes to try, over all replicas; all that are profiled.",
        show_default=False,
    ),
]
MemoryLimit = Annotated[
    str | None,
    typer.Option(
        "--memory-limit",
        metavar="SIZE",
        help="Memory of a device to use, as 28000MiB or 30GB; all of it.",
        show_default=False,
    ),
]
MaxStages = Annotated[
    int | None,
    typer.Option(
        "--max-stages", min=1, metavar="N", help="Pipeline stages at most.", show_default=False
    ),
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", min=0.0, metavar="S", help="Seconds to search at most.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, metavar="N", help="Threads of a solver.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of a solver.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Where to save the plan.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
AcceptChanged = Annotated[
    bool,
    typer.Option("--accept-changed", help="Judge by the inputs as they are, changed or not."),
]
PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A saved plan.")]


class ManyNumbers(TyperCommand):
    """A command whose `--micro-batch-size` takes all the numbers that follow it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join `--micro-batch-size 1 2 4` into one value."""
        joined: list[str] = []
        for arg in args:
            if arg.isdecimal() and len(joined) > 1 and joined[-2] == MANY:
                joined[-1] += f",{arg}"
            else:
                joined.append(arg)
        return list(super().parse_args(ctx, joined))
