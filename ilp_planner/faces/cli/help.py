"""The layout of `--help`: options in sections, examples, and no line that breaks inside a word.

Options name their section as Typer's `rich_help_panel`.
"""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from difflib import get_close_matches
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ilp_planner.base.errors import UsageError
from ilp_planner.base.library import known_names
from ilp_planner.inputs.table import PEERS
from ilp_planner.settings.domains import BOTH

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

HELP = ["-h", "--help"]
LONG = 400  # letters of a command's first sentence, which is shown whole
ALIKE = 0.75  # of a mistyped value and the right one, by difflib
PLACE = re.compile(r"[./]|^[0-9]+x")  # in a path, a name at Hugging Face, or a number of GPUs
COLUMN = 26  # where the texts of a section begin at most; a longer name has a line of its own
# The sections of options beside those of the table of inputs; the last ones come last.
CONSTRAINTS = "Constraints"
SWEEP = "Sweep"
SOLVER = "Solver"
OUTPUT = "Output"
REST = "Options"

# Command -> what to type, each with what it does.
EXAMPLES = {
    "": (
        ("ilp-plan solve --model gpt3-1.3b --cluster v100-32gb-1x4", "the fastest plan"),
        ("ilp-plan solve --help", "all that can be asked for"),
    ),
    "solve": (
        ("ilp-plan solve --model gpt3-1.3b --cluster v100-32gb-1x4 --output plan.json", ""),
        (
            "ilp-plan solve --runtime megatron --model llama3-8b --cluster a100-4x8 "
            "--global-batch-size 256",
            "what Megatron-LM can run",
        ),
        (
            "ilp-plan solve llama3-70b --cluster h100-8x8 --tp 4 --pp 2..8 "
            "--recompute none,selective --max-devices 48 --without node3",
            "within constraints",
        ),
        (
            "ilp-plan solve gpt3-1.3b mixed-v100-t4 --objective price --max-price-per-hour 30",
            "the least price per token",
        ),
        ("ilp-plan solve llama3-70b --without node3 --start plan.json", "from a saved plan"),
    ),
    "evaluate": (
        ("ilp-plan evaluate plan.json --check-certificate", "derives the proved bound again"),
    ),
    "simulate": (
        ("ilp-plan simulate plan.json --trace trace.json", "opens in ui.perfetto.dev"),
        ("ilp-plan simulate plan.json --schedule zb-h1", "the same stages in another order"),
    ),
    "show": (
        ("ilp-plan show plan.json --html plan.html --trace trace.json --png plan.png", ""),
        ("ilp-plan show plan.json --price 2.5", "writes plan.html, with what it costs"),
        ("ilp-plan show plan.json other.json --html both.html", "two plans beside each other"),
    ),
    "sweep": (
        ("ilp-plan sweep llama3-8b --gpus 8..64xH100 --global-batch-size 256", ""),
        (
            "ilp-plan sweep llama3-8b --gpus 8..64xH100 --vary global_batch=256,512 "
            "--objective time,price --price 2.5 --plot pareto.png --output sweep.csv",
            "the front of time and price",
        ),
        ("ilp-plan sweep llama3-8b --cluster h100-8x8 --vary tp=1,2,4,8 --vary layers=32..40", ""),
    ),
    "size": (
        (
            "ilp-plan size llama3-70b --tokens 2T --days 30 --gpus H100,H200,B200",
            "how many of which",
        ),
        (
            "ilp-plan size llama3-8b --tokens 1T --days 14 --gpus H100,B200 --price "
            "H100=2.5,B200=4.2",
            "at which price",
        ),
    ),
    "capture": (
        ("ilp-plan capture -- bash run.sh dsw 8", "records the launch; nothing is trained"),
        ("ilp-plan capture --print", "which programs run, and which do not"),
        ("ilp-plan capture --allow jq --output job.json -- sbatch run.sh", ""),
    ),
    "fit": (
        ("ilp-plan fit run.sh --cluster a100-4x8", "a launch script: read, never run"),
        ("ilp-plan fit run.sh --cluster a100-4x8 -- 7B 4", "with the script's own arguments"),
        ("ilp-plan fit nanotron.yaml --gpus 8xH100", "another system's configuration"),
        ("ilp-plan fit plan.json --memory-limit 64GiB", "what would make a saved plan fit"),
        ("ilp-plan fit llama3-8b --sharding optimizer --cluster a100-4x8", ""),
    ),
    "why": (
        ("ilp-plan why plan.json", "what limits it, and what would help"),
        ("ilp-plan why plan.json --not tp=8", "why not another one, term by term"),
        ("ilp-plan why plan.json --not run.sh", "nor a launch script: read, never run"),
    ),
    "replan": (
        ("ilp-plan replan plan.json --without node3", "a node is lost"),
        ("ilp-plan replan plan.json --cluster h100-16x8 --output-least next.json", "nodes added"),
        ("ilp-plan replan plan.json --global-batch-size 512 --slack 0.02", "another batch"),
    ),
    "doctor": (
        (
            "ilp-plan doctor train.log --job run.sh --cluster h100-8x8",
            "a log, and what was started",
        ),
        ("ilp-plan doctor train.log rank0.json --job plan.json", "with a trace of one rank"),
        ("ilp-plan doctor wandb.csv", "its steps alone"),
    ),
    "tune": (
        (
            "ilp-plan tune plan.json --run 'bash {script}' --steps 20 --budget 2h",
            "among the plans of a solve",
        ),
        (
            "ilp-plan tune run.sh --gpus 16xH100 --run 'srun bash {script}'",
            "with all settings free",
        ),
        ("ilp-plan tune plan.json --ask", "the next script; --log train.log takes its log"),
    ),
    "analyze": (
        ("ilp-plan analyze plan.json --stage 1", ""),
        ("ilp-plan analyze --model llama3-8b --tp 2 --pp 2 --dp 2 --cluster a100-4x8", ""),
        ("ilp-plan analyze --megatron-script run.sh", "a launch script: read, never run"),
    ),
    "export": (
        ("ilp-plan export plan.json --to megatron --output run.sh", ""),
        ("ilp-plan export plan.json --to torchtitan@0.2.2 --output run.toml", "another release"),
        ("ilp-plan export plan.json --to lp --output plan.lp", "for another solver"),
    ),
    "import": (
        ("ilp-plan import megatron run.sh --cluster a100-4x8 --output plan.json", ""),
        ("ilp-plan import aceso aceso.json --model gpt3-1.3b --output plan.json", ""),
    ),
    "compare": (
        ("ilp-plan compare plan.json other.json", ""),
        ("ilp-plan compare plan.json --solvers dp,gradient", "with what these find"),
    ),
    "models": (
        ("ilp-plan models", ""),
        ("ilp-plan models Qwen/Qwen3-32B", "its model file, to change and pass with --model"),
    ),
    "supports": (
        ("ilp-plan supports Qwen/Qwen3-32B", ""),
        ("ilp-plan supports deepseek-v3 --gpus H100,B200,MI300X", "expected errors of these"),
    ),
    "gpus": (("ilp-plan gpus", ""), ("ilp-plan gpus H100-80GB", "with what each number rests on")),
    "runtimes": (
        ("ilp-plan runtimes", ""),
        ("ilp-plan runtimes megatron", "what is searched, fixed and left out"),
    ),
    "calibrate": (
        ("ilp-plan calibrate runs.csv --cluster mine.toml --output mine-calibrated.toml", ""),
        (
            "ilp-plan calibrate runs.csv --cluster mine.toml --fit sustained,streaming",
            "these constants alone",
        ),
    ),
    "schema": (
        ("ilp-plan schema", "what there is"),
        ("ilp-plan schema solve", "what `solve --json` prints"),
    ),
    "mcp": (("ilp-plan mcp --time-limit 60", "what an agent starts"),),
    "profile": (("ilp-plan profile measure --model gpt3-350m --output table.csv", ""),),
    "profile measure": (
        ("ilp-plan profile measure --model gpt3-350m --tp 1 2 4 --output table.csv", ""),
        ("ilp-plan profile measure --model mixtral-8x7b --cp 1 2 --ep 4 8 --output table.csv", ""),
    ),
    "profile measure-links": (
        ("ilp-plan profile measure-links --output links.csv", ""),
        ("ilp-plan profile measure-links --backend gloo --sizes 1KiB 1MiB --output links.csv", ""),
    ),
    "profile import": (
        ("ilp-plan profile import alpa prof_database.json --output links.csv", ""),
        ("ilp-plan profile import metis profile/ --model gpt-10l-4096 --output table.csv", ""),
        (
            "ilp-plan profile import sailor sailor/ --model OPT-350 --output table.csv "
            "--quotas quotas.json --cluster-output cluster.toml",
            "",
        ),
    ),
    "profile export": (("ilp-plan profile export metis table.csv profile/", ""),),
    "profile predict": (
        ("ilp-plan profile predict table.csv --want 'tp=8 micro_batch=16' --output more.csv", ""),
        ("ilp-plan profile predict table.csv --report error.html", "how well it predicts itself"),
    ),
    "profile check": (("ilp-plan profile check table.csv", ""),),
}


class Command(TyperCommand):
    """A command with sections and examples in its help; options of settings that may be said alone
    have the value of their row then."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Write the values out that options said alone have: `--qlora` is `--qlora on`."""
        has = {option for one in self.params for option in one.opts}
        return list(super().parse_args(ctx, [*with_values(args, has)]))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        formatter.write(help_text(self, ctx, formatter.width))


class Group(TyperGroup):
    """A group of commands, likewise."""

    format_help = Command.format_help


def with_values(args: Sequence[str], has: Collection[str]) -> Iterator[str]:
    """Yield words, and behind an option of a setting that no value follows the row's own.

    has: the options of the command.

    Raises
    ------
    UsageError: a word behind such an option is none of its values, and names nothing else.
    """
    from ilp_planner.settings.table import SETTINGS

    rows = {f"--{row.name.replace('_', '-')}": row for row in SETTINGS if row.alone}
    after = args.index("--") if "--" in args else len(args)
    for word, following in zip_longest(args[:after], args[1:after], fillvalue=""):
        yield word
        row = rows.get(word) if word in has else None
        if row is None or any(
            get_close_matches(one, (*row.domain.values, BOTH), 1, ALIKE)
            for one in following.split(",")
        ):
            continue
        if following and not following.startswith("-") and not _names_something(following):
            raise UsageError(
                f"{word}: found {following!r}, expected {' or '.join(row.domain.values)}, or no "
                f"value, which is {row.alone}"
            )
        yield row.alone
    yield from args[after:]


def _names_something(word: str) -> bool:
    """Tell whether a word can be an argument of a command: a file, GPUs, a model or a cluster."""
    if PLACE.search(word) or Path(word).exists():
        return True
    known = (*known_names("models"), *known_names("clusters"))
    return bool(get_close_matches(word.lower(), known, 1))


def help_text(command: Any, ctx: Any, width: int) -> str:
    """Return the help of a command in lines of at most `width`, as long as words allow it."""
    parts = [command.get_usage(ctx)]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        parts.append("\n".join(_wrapped(paragraph, width, "  ")))
    sections = sections_of(command, ctx)
    names = [name for records in sections.values() for name, _ in records]
    column = min(COLUMN, 4 + max(map(len, names)))
    for title, records in sections.items():
        parts.append("\n".join([_title(title), *_section(records, column, width)]))
    examples = EXAMPLES.get(ctx.command_path.partition(" ")[2], ())
    if examples:
        parts.append("\n".join([_title("Examples"), *_examples(examples, width)]))
    return "\n\n".join(parts) + "\n"


def sections_of(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the sections of a command's help that are not empty: the names and texts of its
    arguments, commands and options."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        record = parameter.get_help_record(ctx)
        if record is not None:
            name = "Arguments" if parameter.param_type_name == "argument" else REST
            section = getattr(parameter, "rich_help_panel", None) or name
            sections.setdefault(section, []).append((record[0], _plain(record[1])))
    commands = [
        (name, command.get_command(ctx, name).get_short_help_str(LONG))
        for name in getattr(command, "commands", ())
    ]
    arguments = sections.pop("Arguments", [])
    last = {name: sections.pop(name, []) for name in (OUTPUT, PEERS, REST)}
    every = {"Arguments": arguments, "Commands": commands} | sections | last
    return {title: records for title, records in every.items() if records}


def _plain(text: str) -> str:
    """Return the text of an option as all versions of Typer would write it."""
    text = text.replace("\\[", "[")
    return re.sub(r"\[default: \((.*?)\)(;|\])", r"[default: \1\2", text)


def _title(text: str) -> str:
    return f"{text}:" if os.environ.get("NO_COLOR") else typer.style(f"{text}:", bold=True)


def _section(records: Sequence[tuple[str, str]], column: int, width: int) -> Iterator[str]:
    """Yield the lines of names and, from a column on, their texts."""
    for name, text in records:
        lines = _wrapped(text, width, " " * column)
        if lines and len(name) + 4 <= column:
            lines[0] = f"  {name:{column - 2}}{lines[0].lstrip()}"
        else:
            yield f"  {name}"
        yield from lines


def _examples(examples: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """Yield commands that a shell takes as they stand, each after its purpose."""
    for command, what in examples:
        if what:
            yield f"  # {what}"
        lines = _wrapped(command, width - 2, "    ")
        lines[0] = f"  {lines[0].lstrip()}"
        yield " \\\n".join(lines)


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
