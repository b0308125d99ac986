"""The options that commands share, each described once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ilp_planner.base.limits import DIMENSION, MOST
from ilp_planner.faces.cli.completion import clusters, gpus, models, plans, profiles
from ilp_planner.faces.cli.help import OUTPUT, SOLVER, Command
from ilp_planner.inputs.files import DEFAULT_CLUSTER as DEFAULT_CLUSTER
from ilp_planner.inputs.files import DEFAULT_MODEL as DEFAULT_MODEL
from ilp_planner.inputs.table import BY_NAME, LIMITS, PEERS, PROBLEM, RUNTIME
from ilp_planner.optimize.solvers.base import PREFER_PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


DEFAULT_PROFILE = "analytic"
MANY = "--micro-batch-size"
LAUNCH_LINE = re.compile(r"--?[\w-]+(\s|=\S*\s+-)")  # options of another program, as one text
VALUE = re.compile(r"[0-9]+|[0-9.]+ ?[kKMGT]?i?B")  # a number, or one of bytes


def option(
    section: str | None,
    name: str,
    text: str,
    metavar: str | None = None,
    *,
    default: str | bool = False,
    **others: Any,
) -> Any:
    """Return an option, with its help, its section and its name for the default; a number has its
    limit of `limits.MOST`."""
    others.setdefault("max", MOST.get(name.strip("-").replace("-", "_")))
    return typer.Option(
        name, metavar=metavar, help=text, show_default=default, rich_help_panel=section, **others
    )


def number(
    section: str | None, name: str, text: str, default: str | bool = False, *, least: int = 1
) -> Any:
    """Return an option of one whole number."""
    most = int(MOST.get(name.strip("-").replace("-", "_"), DIMENSION))
    return option(section, name, text, "N", default=default, min=least, max=most)


plain, count = partial(option, None), partial(number, None)  # of no section
problem, runtime = partial(option, PROBLEM), partial(option, RUNTIME)
limited, solving = partial(option, LIMITS), partial(option, SOLVER)
shown, peers = partial(option, OUTPUT), partial(option, PEERS)


def model_option(text: str = "", default: str | bool = True, section: str = PROBLEM) -> Any:
    """Return `--model`. text: a further text of its help."""
    help_text = (
        "Model: TOML, config.json of Hugging Face or its folder, or a name of `ilp-plan models`."
        f"{text}"
    )
    return option(section, "--model", help_text, "FILE", default=default, autocompletion=models)


def cluster_option(default: str | bool = True, section: str = PROBLEM) -> Any:
    """Return `--cluster`."""
    text = "Cluster, TOML, or the name of a known one."
    return option(section, "--cluster", text, "FILE", default=default, autocompletion=clusters)


def gpus_option(section: str = PROBLEM) -> Any:
    """Return `--gpus`."""
    text = (
        "GPUs instead of a cluster, as 16xA100-80GB; nodes and links of their generation are "
        "assumed. `ilp-plan gpus` lists them."
    )
    return option(section, "--gpus", text, "NxGPU", autocompletion=gpus)


def profile_option(text: str) -> Any:
    """Return `--profile`."""
    name, metavar = "--profile", "FORMAT:PATH"
    return option(PROBLEM, name, text, metavar, default=True, autocompletion=profiles)


def by_position(name: str, completion: Callable[[str], list[str]]) -> Any:
    """Return the argument that says the same as the option of its name."""
    return typer.Argument(
        metavar=name,
        help=f"The same as --{name.lower()}.",
        show_default=False,
        rich_help_panel=PROBLEM,
        autocompletion=completion,
    )


TEXT_ONLY = BY_NAME["text_only"].help
COST_MODEL = problem("--cost-model", "Whose formulas say what a plan takes.", default=True)
Model = Annotated[str, model_option()]
MaybeModel = Annotated[
    str | None, model_option(" A measured profile of layers does without.", DEFAULT_MODEL)
]
MaybeCluster = Annotated[str | None, cluster_option(DEFAULT_CLUSTER)]
Gpus = Annotated[str | None, gpus_option()]
ModelName = Annotated[str | None, by_position("MODEL", models)]
ClusterName = Annotated[str | None, by_position("CLUSTER", clusters)]
LengthsFile = Annotated[
    str | None,
    option(
        RUNTIME,
        "--lengths",
        "Lengths of the documents that samples are made of, in tokens: lines `LENGTH,COUNT`, or "
        "one length a line, or lines of JSON with a key length.",
        "FILE",
    ),
]
Hostfile = Annotated[
    str | None,
    peers(
        "--hostfile",
        "Nodes, a line `NAME slots=N` each, with --clusterfile instead of --cluster; or those of "
        "an amp:FILE.",
        "FILE",
    ),
]
Clusterfile = Annotated[
    str | None,
    peers(
        "--clusterfile",
        "Metis's clusterfile.json, which says what the nodes of --hostfile are.",
        "FILE",
    ),
]
Profile = Annotated[
    str,
    profile_option("FILE.csv of `ilp-plan profile`, aceso:FOLDER, or analytic for an estimate."),
]
AnyProfile = Annotated[
    str,
    profile_option(
        "Of operators: aceso:FOLDER; of layers: metis:FOLDER, amp:FILE; of either: FILE.csv of "
        "`ilp-plan profile`, or several joined with commas; analytic for an estimate."
    ),
]
OperatorCosts = Annotated[Literal["native", "aceso"], COST_MODEL]
if TYPE_CHECKING:
    PrecisionName = str
else:
    PrecisionName = Literal[BY_NAME["precision"].values]
Top = Annotated[
    int | None, shown("--top", "Show the K best plans that differ in more than a cut.", "K", min=1)
]
Shortlist = Annotated[
    int,
    shown(
        "--shortlist",
        "Show N plans to try, chosen together: the best of them loses least, whatever constants of "
        "the machine are true (docs/howto/shortlist.md).",
        "N",
        default=True,
        min=1,
        max=MOST["shortlist"],
    ),
]
NumLayers = Annotated[
    int | None,
    number(PEERS, "--num-layers", "Layers that it must have, embedding and head included."),
]
MaybeGlobalBatch = Annotated[
    int | None,
    number(PROBLEM, "--global-batch-size", "Samples per iteration; the plan's own.", True),
]
MaxMemory = Annotated[
    str | None,
    solving(
        "--max-memory",
        "Memory that this command may hold, such as 8GiB, solvers' processes counted: it ends with "
        "the best plan, as at the time limit.",
        "SIZE",
    ),
]
TimeLimit = Annotated[
    float,
    solving(
        "--time-limit",
        "Seconds from the start of the command on, at most.",
        "S",
        default=True,
        min=0.0,
    ),
]
GapLimit = Annotated[
    float, solving("--gap", "Stop once the gap is this small.", "FRACTION", default=True)
]
PreferPlain = Annotated[
    float | None,
    solving(
        "--prefer-plain",
        "Of plans for a training runtime that take up to this share longer than the fastest, take "
        "the plainest: with the fewest virtual stages, then the fewest degrees above 1, and so on "
        f"(docs/explain/plain.md); {PREFER_PLAIN:g}, 0 takes the fastest.",
        "FRACTION",
    ),
]
Workers = Annotated[int | None, number(SOLVER, "--workers", "Cores that a search uses.", "all")]
Seed = Annotated[int | None, number(SOLVER, "--seed", "Seed of a solver.", "0", least=0)]
Starts = Annotated[
    int | None,
    number(
        SOLVER,
        "--starts",
        "Random points that gradient and anneal begin from; the poor ones are dropped early.",
        "64",
    ),
]
Start = Annotated[
    Path | None,
    option(
        SOLVER,
        "--start",
        "A saved plan to start from, with those of its bounds that still hold; the inputs may "
        "differ from its own.",
        "PLAN",
        autocompletion=plans,
    ),
]
Output = Annotated[Path | None, shown("--output", "Where to save the plan.", "FILE")]
Reproducible = Annotated[
    bool, shown("--reproducible", "Leave times and versions out of the saved file.")
]
Check = Annotated[
    bool,
    shown(
        "--check",
        "Let a checker that shares nothing with the planner judge the saved plan and prove its "
        "bound, where it knows the space.",
    ),
]
Tokens = Annotated[
    str | None,
    shown(
        "--tokens",
        "Say how long training on so many tokens takes, as 15e12 or 15T, and what it costs.",
        "TOKENS",
    ),
]
Json = Annotated[bool, shown("--json", "Print one JSON object instead of a table.")]
Verbose = Annotated[
    bool, shown("--verbose", "Print all that is known: stages, bounds, which plans were searched.")
]
AcceptChanged = Annotated[
    bool, plain("--accept-changed", "Judge by the inputs as they are, changed or not.")
]
PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="A saved plan.", autocompletion=plans)
]
Table = Annotated[Path, typer.Argument(metavar="TABLE", help="A native table, CSV.")]
TableOutput = Annotated[Path, shown("--output", "Where to save the table, CSV.", "FILE")]


SCRIPT_ARGUMENTS = "ilp_planner.script_arguments"


class WithScript(Command):
    """A command whose words after `--` are the arguments of a launch script."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the arguments of the script aside."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[SCRIPT_ARGUMENTS] = tuple(args[at + 1 :])
            args = args[:at]
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the parts of the line of usage."""
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


def script_arguments(ctx: typer.Context) -> tuple[str, ...]:
    """Return the words after `--`, arguments of a launch script."""
    found: tuple[str, ...] = ctx.meta.get(SCRIPT_ARGUMENTS, ())
    return found


class BeforeCommand(Command):
    """A command whose options stand before the words of another command."""

    allow_interspersed_args = False


class ManyNumbers(Command):
    """A command with options of several numbers that take all following numbers."""

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


def options(said: Mapping[str, tuple[Any, object]], make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with these options as its keywords.

    Parameters
    ----------
    said: name -> annotation and default. make: returns the value of the keywords.
    """

    def made(**values: Any) -> Any:
        return make(**values)

    made.__dict__["__signature__"] = inspect.Signature(
        [_keyword(name, *one) for name, one in said.items()]
    )
    return made


def taking(**makers: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a command take options in place of some of its parameters.

    makers: parameter -> a class or a function, whose keywords are the options, and whose result is
    the value of the parameter.
    """
    parts = {name: inspect.signature(make, eval_str=True) for name, make in makers.items()}

    def take(command: Callable[..., None]) -> Callable[..., None]:
        def run(**said: Any) -> None:
            for name, part in parts.items():
                own = {option: said.pop(option) for option in part.parameters}
                said[name] = makers[name](**own)
            command(**said)

        kept = list[inspect.Parameter]()
        for one in inspect.signature(command, eval_str=True).parameters.values():
            each = parts[one.name].parameters.values() if one.name in parts else (one,)
            kept += [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in each]
        run.__dict__["__signature__"] = inspect.Signature(kept)
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return take


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
