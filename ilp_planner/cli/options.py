"""The options that commands share, each described once."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

DEFAULT_MODEL = "gpt3-1.3b"
DEFAULT_CLUSTER = "v100-32gb-1x4"
DEFAULT_PROFILE = "analytic"
DEFAULT_GLOBAL_BATCH = 1024
MANY = "--micro-batch-size"
LAUNCH_LINE = re.compile(r"--?[\w-]+(\s|=\S*\s+-)")  # options of another program, as one text
VALUE = re.compile(r"[0-9]+|[0-9.]+ ?[kKMGT]?i?B")  # a number, or one of bytes


def number(option: str, text: str, default: str | bool = False, *, least: int = 1) -> Any:
    """Return an option of one whole number, with its help and what that calls the default."""
    return typer.Option(option, min=least, metavar="N", help=text, show_default=default)


Model = Annotated[
    str, typer.Option("--model", metavar="FILE", help="Model, TOML, or the name of a known one.")
]
Cluster = Annotated[
    str,
    typer.Option("--cluster", metavar="FILE", help="Cluster, TOML, or the name of a known one."),
]
MaybeModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE",
        help="Model, TOML, or the name of a known one. A measured profile of layers does without.",
        show_default=DEFAULT_MODEL,
    ),
]
MaybeCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Cluster, TOML, or the name of a known one.",
        show_default=DEFAULT_CLUSTER,
    ),
]
ModelName = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="The same as --model.", show_default=False)
]
ClusterName = Annotated[
    str | None,
    typer.Argument(metavar="CLUSTER", help="The same as --cluster.", show_default=False),
]
Hostfile = Annotated[
    str | None,
    typer.Option(
        "--hostfile",
        metavar="FILE",
        help="Nodes, a line `NAME slots=N` each, with --clusterfile instead of --cluster; or those "
        "of an amp:FILE.",
        show_default=False,
    ),
]
Clusterfile = Annotated[
    str | None,
    typer.Option(
        "--clusterfile",
        metavar="FILE",
        help="Metis's clusterfile.json, which says what the nodes of --hostfile are.",
        show_default=False,
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="FORMAT:PATH",
        help="FILE.csv of `ilp-plan profile`, aceso:FOLDER, or analytic for an estimate.",
    ),
]
AnyProfile = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="FORMAT:PATH",
        help="Of operators: aceso:FOLDER; of layers: metis:FOLDER, amp:FILE; of either: FILE.csv "
        "of `ilp-plan profile`, or several joined with commas; analytic for an estimate.",
    ),
]
AnyCostModel = Annotated[
    Literal["native", "aceso", "metis", "amp"],
    typer.Option("--cost-model", help="Whose formulas say what a plan takes."),
]
AnyGlobalBatch = Annotated[
    int | None,
    number(
        "--global-batch-size",
        "Samples per iteration; an experiment of AMP's has its own.",
        str(DEFAULT_GLOBAL_BATCH),
    ),
]
Space = Annotated[
    Literal["planner", "metis", "amp", "megatron"] | None,
    typer.Option(
        "--space",
        help="Which plans of whole layers: any groups of devices, exactly those that Metis or AMP "
        "can choose from, or those that Megatron-LM can run.",
        show_default="planner; amp for --cost-model amp",
    ),
]
Runtime = Annotated[
    Literal["megatron"] | None,
    typer.Option(
        "--runtime",
        help="Only plans that this system can run; the same as --space megatron.",
        show_default=False,
    ),
]
MaxCp = Annotated[
    int | None,
    number(
        "--max-cp",
        "Context-parallel degree at most, for --runtime megatron; 1, or 8 for samples of more "
        "than 8192 tokens.",
    ),
]
MemoryRule = Annotated[
    Literal["device", "metis"] | None,
    typer.Option(
        "--memory-rule",
        help="What must fit: every device by itself, or Metis's sum over the devices of a stage.",
        show_default="device",
    ),
]
Placement = Annotated[
    Literal["default", "free"] | None,
    typer.Option(
        "--placement",
        help="For --cost-model amp: AMP's own order of ranks, or any, with its all-reduce formula "
        "repaired.",
        show_default="default",
    ),
]
Experiment = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        metavar="NAME",
        help="Which cluster and model of an amp:FILE.",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        min=1,
        metavar="K",
        help="Show the K best plans that differ in more than a cut.",
        show_default=False,
    ),
]
MaxTp = Annotated[
    int | None, number("--max-tp", "Tensor-parallel degree at most; all that are profiled.")
]
HiddenSize = Annotated[
    int | None, number("--hidden-size", "Width of the layers of a metis:FOLDER; the model's.")
]
SequenceLength = Annotated[
    int | None, number("--sequence-length", "Tokens of its samples; the model's.")
]
VocabSize = Annotated[
    int | None,
    number(
        "--vocab-size",
        "Entries of its word embedding, for --cost-model metis; the model's.",
        least=0,
    ),
]
NumLayers = Annotated[
    int | None, number("--num-layers", "Layers that it must have, embedding and head included.")
]
CostModel = Annotated[
    Literal["native", "aceso"],
    typer.Option("--cost-model", help="Whose formulas say what a plan takes."),
]
GlobalBatch = Annotated[
    int, typer.Option("--global-batch-size", min=1, metavar="N", help="Samples per iteration.")
]
MaybeGlobalBatch = Annotated[
    int | None, number("--global-batch-size", "Samples per iteration; the plan's own.", True)
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
        help="Memory of a device to use, as 28000MiB or 30GB; all of it. Of several types: at most "
        "this much of each.",
        show_default=False,
    ),
]
MaxStages = Annotated[int | None, number("--max-stages", "Pipeline stages at most.")]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", min=0.0, metavar="S", help="Seconds to search at most.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, metavar="N", help="Threads of a solver.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of a solver.")]
Starts = Annotated[
    int | None,
    number(
        "--starts",
        "Random points that gradient and anneal begin from; the poor ones are dropped early.",
        "64",
    ),
]
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
Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A native table, CSV.")]
TableOutput = Annotated[
    Path, typer.Option("--output", metavar="FILE", help="Where to save the table, CSV.")
]


class ManyNumbers(TyperCommand):
    """A command whose options of several numbers take all the numbers that follow them."""

    many: tuple[str, ...] = (MANY,)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join `--micro-batch-size 1 2 4` into one value."""
        joined: list[str] = []
        for arg in args:
            if VALUE.fullmatch(arg) and len(joined) > 1 and joined[-2] in self.many:
                joined[-1] += f",{arg}"
            else:
                joined.append(arg)
        if "--" not in joined:
            # A text of several options is a value, though it begins as an option does.
            texts = [arg for arg in joined if LAUNCH_LINE.match(arg)]
            others = [arg for arg in joined if not LAUNCH_LINE.match(arg)]
            joined = [*others, "--", *texts] if texts else joined
        return list(super().parse_args(ctx, joined))
