"""The training systems whose files and launches are read; one is imported when it is asked for.

`recognise_file` and `recognise_words` say whose a file or a launch is, `read` what it trains, as
arguments of Megatron-LM, in which jobs are said (`formats.megatron.arguments.job_of_arguments`).
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import FileKind, file_kind, kind_of_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ilp_planner.formats.imported.table import System
    from ilp_planner.formats.megatron.launchers import FindOpen, Open, ReadHosts, Said
    from ilp_planner.formats.megatron.ranks import Gpus
    from ilp_planner.formats.megatron.values import MegatronArguments


def no_open(option: str, value: str) -> Open | None:
    """Return nothing: all words are known."""
    return None


def no_hosts(name: str) -> None:
    """Return the devices of the nodes of a hostfile, if none is looked for."""


def as_it_is(word: str) -> list[str]:
    """Return one word as it is."""
    return [word]


class Import(NamedTuple):
    """The import of a training system's files or launches.

    module: with its table, which is called `table` there. name: as commands take it. kind: of its
    files. program: patterns of the words that start it, in order. having: a pattern; one option or
    word of a launch must match it. Empty: none must.
    syntax: of the words behind these: `options`, `overrides`, or names of `files` with others.
    section: that the keys of its files stand in, in the table. says: the key that the last word of
    the program says as well; empty: none.
    """

    module: str
    name: str
    kind: FileKind | None = None
    program: tuple[str, ...] = ()
    having: str = ""
    syntax: str = "options"
    section: str = ""
    says: str = ""
    table: str = "SYSTEM"


FACTORY = "LLAMA_FACTORY"
SWIFT = ("pt", "sft", "rlhf")
IMPORTS: tuple[Import, ...] = (
    Import(
        "nanotron",
        "nanotron",
        FileKind.NANOTRON,
        (r"(.*/)?run_train\.py",),
        "config_file",
        "files",
    ),
    Import(
        "gpt_neox",
        "gpt-neox",
        FileKind.NEOX,
        (r"(.*/)?deepy\.py", r"(.*/)?train\.py"),
        syntax="files",
    ),
    Import("swift", "ms-swift", program=(r"(.*/)?megatron", "|".join(SWIFT))),
    Import(
        "verl",
        "verl",
        program=(r"(verl|recipe)\.[\w.]*(main|_main)\w*|(.*/)?(main_ppo|verl_entrypoint)\w*\.py",),
        syntax="overrides",
    ),
    Import(
        "slime",
        "slime",
        program=(r"(.*/)?train(_async)?\.py",),
        having="rollout_batch_size",
    ),
    Import(
        "chatlearn",
        "chatlearn",
        program=(r"(.*/)?chatlearn_entrypoint\.py",),
        syntax="overrides",
    ),
    Import(
        "primus",
        "primus",
        FileKind.PRIMUS,
        ("train", "pretrain|posttrain"),
        "config",
        "files",
    ),
    Import("nemo", "nemo", FileKind.NEMO, (r"(.*/)?[\w-]*\.py",), "recipe", "overrides"),
    Import(
        "trainer",
        "llama-factory",
        FileKind.TRAINER,
        (r"(.*/)?(llamafactory|lmf)-cli", "train"),
        syntax="files",
        table=FACTORY,
    ),
    # Its version 1 has a command for each kind of training.
    Import(
        "trainer",
        "llama-factory",
        program=(r"(.*/)?(llamafactory|lmf)-cli", "sft|dpo|rm"),
        syntax="files",
        says="stage",
        table=FACTORY,
    ),
    Import(
        "trainer",
        "llama-factory",
        program=(r"(.*/)?src/train\.py",),
        having=r".*\.ya?ml",
        syntax="files",
        table=FACTORY,
    ),
    Import("trainer", "deepspeed", FileKind.DEEPSPEED, section="deepspeed."),
    Import(
        "torchtitan_python",
        "torchtitan in Python",
        FileKind.TITAN_PYTHON,
        (r"torchtitan\.train",),
        "module",
        "module",
    ),
    Import("torchtitan", "torchtitan", FileKind.TITAN, (r"torchtitan\.train",), syntax="files"),
    # Any program of Python with one of the Trainer's own options.
    Import(
        "trainer",
        "trainer",
        program=(r"(.*/)?[\w-]*\.py|sft",),
        having="per_device_train_batch_size",
    ),
)
NAMES = tuple(row.name for row in IMPORTS)


class Recognised(NamedTuple):
    """A file or launch of a system.

    pairs: its keys and values. source: for messages. launch: launchers around it. environment:
    variables that are set; None: unknown. program: that is started; empty: of a file.
    """

    row: Import
    pairs: tuple[tuple[str, Any], ...]
    source: str
    program: str = ""
    launch: tuple[Said, ...] = ()
    environment: Mapping[str, str] | None = None

    @property
    def system(self) -> System:
        """Return the table of the system."""
        return system_of(self.row)


def system_of(row: Import) -> System:
    """Return the table of a system."""
    module = importlib.import_module(f"ilp_planner.formats.imported.{row.module}")
    found: System = getattr(module, row.table)
    return found


def import_of(words: Sequence[str]) -> tuple[Import, int] | None:
    """Return whose launch the words of a command are, and the place of its arguments; None: of no
    system that is known here."""
    for row in IMPORTS:
        count = len(row.program)
        for at in range(len(words) - count + 1 if count else 0):
            if all(map(re.fullmatch, row.program, words[at : at + count])):
                rest = {word.lstrip("-").partition("=")[0] for word in words[at + count :]}
                names = [name.replace("-", "_") for name in rest]
                if not row.having or any(re.fullmatch(row.having, name) for name in names):
                    return row, at + count
    return None


def recognise_words(
    words: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    source: str = "launch",
    find_open: FindOpen = no_open,
    more: Callable[[str], list[str]] = as_it_is,
    read_hosts: ReadHosts = no_hosts,
    folder: Path | None = None,
    texts: Mapping[str, str] | None = None,
) -> Recognised | None:
    """Return whose launch the words of a command are; None: of no system that is known here.

    Parameters
    ----------
    environment: variables that are set; None: unknown. find_open: tells what is not known in the
        value of an option. more: what a word is that may be further ones. read_hosts: as of
        `launchers.numbers_of`. folder: of files that are named; None: the current one.
        texts: of these by their whole paths, where they are not what lies there.

    Raises
    ------
    SpecError: words that the system would not take, or a file that cannot be read.
    """
    from ilp_planner.formats.imported.words import Files, launcher_files, pairs_of, with_files
    from ilp_planner.formats.megatron.launchers import numbers_of

    opened = [find_open("", word) for word in words]
    found = import_of(
        [word if one is None else one.shown for word, one in zip(words, opened, strict=True)]
    )
    if found is None:
        return None
    row, at = found
    variables = environment or {}
    system = system_of(row)
    named = [(n, find_open(n, v) or v) for n, v in variables.items() if n in system.variables]
    rest: list[str] = []
    for before, word in pairwise(words[at - 1 :]):
        value = before.startswith("--") and "=" not in before
        rest += [word] if value else more(word)
    modules = [Path(one) for one in variables.get("PYTHONPATH", "").split(":") if one]
    here = Files(folder or Path(), texts or {}, tuple(modules))
    pairs = [
        *([(row.says, words[at - 1])] if row.says else []),
        *launcher_files(words[: at - len(row.program)], here),
        *with_files(pairs_of(row.syntax, rest, find_open, here), here),
    ]
    try:
        launch = numbers_of(words[: at - len(row.program)], variables, find_open, read_hosts)
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from None
    program = words[at - len(row.program)] if row.program else ""
    return Recognised(row, (*named, *pairs), source, program, tuple(launch), environment)


def recognise_file(
    path: Path, texts: Mapping[str, str] | None = None, config: str = ""
) -> Recognised | None:
    """Return whose configuration a file is; None: of no system that is known here.

    texts: as of `recognise_words`. config: the name of one of several in a file of Python.

    Raises
    ------
    SpecError: it cannot be read.
    """
    text = (texts or {}).get(str(path))
    kind = file_kind(path) if text is None else kind_of_text(text)
    row = next((row for row in IMPORTS if kind is not None and row.kind is kind), None)
    if row is None:
        return None
    from ilp_planner.formats.imported.words import Files, keys_of, with_files

    here = Files(path.parent, texts or {})
    pairs = list(with_files(keys_of(path, row.section, here, config), here))
    written: dict[str, str] = {}
    for key, _ in pairs:
        other = written.setdefault(system_of(row).normal(key), key)
        if other != key:
            raise SpecError(f"{path}: {key}: found {other} too, the same key, expected one")
    return Recognised(row, tuple(pairs), str(path))


def read(
    found: Recognised,
    world: int | None = None,
    *,
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = False,
) -> MegatronArguments:
    """Return what a file or launch of another system trains.

    Parameters
    ----------
    world: ranks; None: what it says, else those of `gpus`. supplied: values of keys, which count.
    strict: refuse keys that are not known.

    Raises
    ------
    SpecError: a value that cannot be, a model that is not supported, or something is missing.
    """
    from ilp_planner.base.yaml_files import scalar
    from ilp_planner.formats.imported.table import knows, nearest_key, read_pairs

    for name in supplied or {}:
        if not knows(found.system, name):
            near = nearest_key(found.system, name)
            meant = f"did you mean {near}?" if near else "none that is read is like it"
            raise SpecError(
                f"--set {name}: found no such key, expected one of {found.system.name}: {meant}"
            )
    more = [(name, scalar(value)) for name, value in (supplied or {}).items()]
    instead = {found.system.normal(name) for name, _ in more}
    args = read_pairs(
        found.system,
        (*(one for one in found.pairs if found.system.normal(one[0]) not in instead), *more),
        source=found.source,
        world=world,
        gpus=gpus,
        strict=strict,
        environment=found.environment,
        launch=found.launch,
    )
    return replace(args, program=found.program or args.program)
