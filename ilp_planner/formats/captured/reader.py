"""From a recorded launch to a training job, by the program that it starts."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import INSTEAD, FileKind, file_kind
from ilp_planner.base.files import Document
from ilp_planner.formats.captured.job_file import (
    Launch,
    chosen_launch,
    placed,
    read_job,
)
from ilp_planner.formats.captured.programs import name_of
from ilp_planner.formats.imports import read, recognise_words
from ilp_planner.formats.megatron.arguments import read_arguments
from ilp_planner.formats.megatron.launcher import program_place
from ilp_planner.formats.megatron.script import (
    SHOWN,
    is_argument,
    is_training,
    other_system,
    read_launch,
    read_script,
)
from ilp_planner.specs.hostfile import read_hostfile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.formats.megatron.ranks import Gpus
    from ilp_planner.formats.megatron.values import MegatronArguments


def read_any_launch(
    launch: str | Path,
    world: int | None = None,
    *,
    arguments: Sequence[str] = (),
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = True,
) -> MegatronArguments:
    """Return what a launch trains: a job file, a script, an exported JSON file or arguments.

    Parameters
    ----------
    launch: a path, or a text that is one or the arguments. arguments: of a script ($1 ...).
    world, supplied, gpus, strict: as `read_script` has them.

    Raises
    ------
    PlannerError: it is none of them, or of a system that is not read.
    """
    path = Path(launch)
    if file_kind(path) is not FileKind.JOB:
        script = isinstance(launch, Path) and path.suffix != ".json"
        read = partial(read_script, path) if script else partial(read_launch, str(launch))
        return read(world, arguments=arguments, supplied=supplied, gpus=gpus, strict=strict)
    if arguments:
        raise SpecError(
            f"{path}: found arguments after --, expected none: the script of a captured job has "
            "had its own; `ilp-plan capture` records it with others"
        )
    job = read_job(path)
    chosen = chosen_launch(job, str(path))
    where = f"{path}: launch {job.launch}"
    return read_recorded(
        chosen, job.files, where, world, supplied=supplied, gpus=gpus, strict=strict
    )


def read_recorded(
    launch: Launch,
    files: Mapping[str, str],
    source: str,
    world: int | None = None,
    *,
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = True,
) -> MegatronArguments:
    """Return what a recorded launch trains, by the reader of the program that it starts.

    Parameters
    ----------
    files: texts that the launch names. source: for messages. The others: as `read_any_launch`.

    Raises
    ------
    SpecError: no reader knows the program, or its reader refuses the words.
    """
    words, given = _words(launch), supplied or {}
    environment = {**launch.environment, **_given(launch)}
    hosts = partial(_devices_of_hosts, launch, files)
    other = recognise_words(
        words, environment, source=source, read_hosts=hosts, folder=Path(launch.folder)
    )
    if other is not None:
        ranks = world or launch.world
        return read(other, ranks, supplied=given, gpus=gpus, strict=strict)
    if not is_training(words):
        system = other_system(" ".join(words)) or name_of(program_of(words))
        raise SpecError(f"{source}: found a launch of {system}, {INSTEAD}")
    for name, value in given.items():
        if not is_argument(name):
            raise SpecError(
                f"{source}: --set {name}: found a variable, which the script has had already, "
                f"expected an argument, as --set vocab-size=32000; or capture again: "
                f"{name}={value} ilp-plan capture ..."
            )
        words += [f"--{name.lstrip('-')}", *([value] if value else [])]
    args = read_arguments(
        words,
        world or launch.world,
        environment=environment,
        source=source,
        strict=strict,
        gpus=gpus,
        read_hosts=hosts,
    )
    around = [words for words in launch.outer if not placed(words)]
    started = [f"started inside `{' '.join(words)[:SHOWN]}`" for words in around]
    return replace(args, remarks=(*started, *args.remarks))


def program_of(words: Sequence[str]) -> str:
    """Return the program that a launch starts, as far as it can be told: for messages."""
    at = program_place(list(words))
    if at is not None:
        return words[at]
    return next((w for w in words if w.endswith(".py")), words[0])


def _words(launch: Launch) -> list[str]:
    """Return the words of a launch as its reader takes them: a program that is submitted stands
    behind `--`."""
    words = list(launch.line)
    if name_of(words[0]) == "ray" and "--" in words:
        words = words[words.index("--") + 1 :]
    return words


def _given(launch: Launch) -> dict[str, str]:
    """Return the variables that the words of a launcher give to what it starts: `-x NAME=VALUE` of
    MPI, and Ray's `--runtime-env-json`."""
    found: dict[str, str] = {}
    for before, word in pairwise(launch.line):
        name, equals, value = word.partition("=")
        if before in ("-x", "-genv") and equals:
            found[name] = value
        elif before == "--runtime-env-json" or name == "--runtime-env-json":
            found |= _variables_in(value if name == "--runtime-env-json" else word)
    return found


def _variables_in(text: str) -> dict[str, str]:
    """Return the variables that a runtime environment of Ray's sets; what is no JSON sets none."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    given = read.get("env_vars") if isinstance(read, dict) else None
    pairs = given.items() if isinstance(given, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def _devices_of_hosts(launch: Launch, files: Mapping[str, str], name: str) -> list[int] | None:
    """Return the devices of each node of a hostfile as it was recorded; None: it was not."""
    path = os.path.normpath(Path(launch.folder) / name)
    if path not in files:
        return None
    return [host.devices for host in read_hostfile(Document(path, files[path]))]
