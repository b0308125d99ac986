"""The launch of Megatron-LM in a bash script, found without running it."""

import os
import re
import shlex
import textwrap
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.file_kinds import INSTEAD, FileKind, file_kind, refuse_other_kind
from ilp_planner.base.files import Document, read_json, read_text
from ilp_planner.base.limits import as_whole
from ilp_planner.formats.imported.words import FILES
from ilp_planner.formats.imports import (
    Recognised,
    import_of,
    read,
    recognise_file,
    recognise_words,
)
from ilp_planner.formats.launch_scripts.evaluation import Reading, evaluate_script
from ilp_planner.formats.launch_scripts.flow import Command
from ilp_planner.formats.megatron.arguments import MegatronArguments, open_text, read_arguments
from ilp_planner.formats.megatron.flags import flag_of, flags
from ilp_planner.formats.megatron.launcher import ANALYSIS_TOOL, OF_MODELS
from ilp_planner.formats.megatron.launchers import BY_NAME, is_launcher, numbers_of
from ilp_planner.formats.megatron.ranks import Gpus
from ilp_planner.formats.megatron.script_words import LaunchWords
from ilp_planner.formats.schedulers.kubernetes import Pod, read_pod
from ilp_planner.specs.hostfile import read_hostfile

QUOTED = re.compile(r"(['\"])([^'\"\n]*)\1")
ARRAY = re.compile(r"([A-Za-z_]\w*)\+?=\(")  # where one begins
BARE_ARRAY = re.compile(r"(?<![\"\w])\$\{([A-Za-z_]\w*)\[[@*]\]\}")  # expanded without quotes
SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
REQUIRED = ("num_layers", "hidden_size", "num_attention_heads", "micro_batch_size")
STARTERS = {*BY_NAME, "sbatch", "ray", "python", "python3", "megatron", "swift", "trl"}
# Variables that Slurm sets of what a script asks it for.
SBATCH_VARIABLES = (
    (("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), r"--nodes[= ](\d+)(?![-\d])|-N\s*(\d+)(?![-\d])"),
    (("SLURM_NTASKS_PER_NODE",), r"--n?tasks-per-node[= ](\d+)"),
    (("SLURM_NTASKS", "SLURM_NPROCS"), r"--ntasks[= ](\d+)|-n\s*(\d+)"),
    (("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), r"--gpus-per-node[= ](?:[\w.-]+:)?(\d+)"),
    (("SLURM_GPUS_ON_NODE",), r"--gres[= ](?:\S*,)?gpu:(?:[\w.-]+:)?(\d+)"),
    (("SLURM_GPUS",), r"(?:--gpus[= ]|-G\s*)(?:[\w.-]+:)?(\d+)"),
)
# Launches of other systems, by what stands in them.
SYSTEMS = (
    (r"\bverl\b", "verl"),
    (r"(?i)\bopenrlhf\b", "OpenRLHF"),
    (r"(?i)nemo[-_]?(run|rl|aligner)?\b|megatron_gpt_(pretraining|config)", "NeMo"),
    (r"(?i)\btorchtitan\b", "torchtitan"),
    (r"(?i)\bnanotron\b|\brun_train\.py\b", "Nanotron"),
    (r"(?i)\bllama-?factory", "LLaMA-Factory"),
    (r"(?i)\baxolotl\b", "Axolotl"),
    (r"(?i)\b(megatron|swift) (sft|pt|rlhf)\b", "ms-swift"),
    (r"(?i)\btrl\b", "TRL"),
    (r"(?i)\bmaxtext\b", "MaxText"),
)
SHOWN = 80  # characters of a command in a message


class Configured(NamedTuple):
    """A command of a program that is not known here, and what a file of it configures."""

    command: Command
    configuration: Recognised


def read_script(
    path: Path,
    world: int | None = None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = True,
) -> MegatronArguments:
    """Return what a launch script, or a configuration of another system, trains.

    Parameters
    ----------
    world: ranks; None: what the script says.
    gpus: of the cluster, taken where neither says, or the script counts them by running.
    arguments: of the script ($1 ...).
    environment: what is set before the script starts; None: what is set now.
    supplied: values of what only running would tell, by the name of the variable, the number of the
        argument or the text of the command; and of arguments of Megatron, by theirs.
    strict: refuse arguments that today's Megatron does not have; otherwise say so in remarks.

    Raises
    ------
    SpecError: not there, not bash, no launch in it, or a number depends on what is not known.
    """
    if configured := recognise_file(path, config=(supplied or {}).get("config", "")):
        return read(configured, world, supplied=supplied, gpus=gpus, strict=strict)
    text = read_text(path, SpecError)
    refuse_other_kind(Document(str(path), text), FileKind.LAUNCH, SpecError)
    pod = Pod(text, {}, {})
    if file_kind(path) is FileKind.KUBERNETES:
        pod = read_pod(Document(str(path), text))
    # What the script asks Slurm for counts, also where this shell is in another job of Slurm's.
    set_before = {
        **(os.environ if environment is None else environment),
        **sbatch_variables(text),
        **pod.environment,
    }
    given = {name: value for name, value in (supplied or {}).items() if not is_argument(name)}
    reading = evaluate_script(
        pod.script,
        str(path),
        arguments=arguments,
        environment=set_before,
        supplied=given,
        read_file=lambda name: pod.files.get(name) or _read_beside(path, name),
    )
    named = next(_configured(reading, path, pod.files), None)
    launch, *others = [named.command] if named else _find_launches(reading, path)
    found = LaunchWords(reading, launch, f"{path}: ")
    shown = [reading.unknowns.shown(word) for word in launch.words]
    if named or import_of(shown) is not None:
        asked = (world, supplied or {}, gpus, strict)
        by = named.configuration if named else None
        return _read_other(path, found, others, *asked, texts=pod.files, configured=by)
    words = found.words()
    for name, value in (supplied or {}).items():
        if is_argument(name):
            words += [f"--{name.lstrip('-')}", *([value] if value else [])]
    before = {name: reading.unknowns.shown(v) for name, v in launch.environment.items()}
    source = f"{path}: line {launch.line}"
    try:
        args = read_arguments(
            words,
            world,
            environment=before,
            source=source,
            strict=strict,
            gpus=gpus,
            find_open=found.find_open,
            read_hosts=lambda name: _devices_of_hosts(path, name),
        )
    except SpecError as error:
        raise SpecError(f"{error}{_split_text(text, str(error))}{_left_out(found)}") from None
    missing = [key for key in REQUIRED if not args.given(key)]
    if missing and found.dropped:
        raise SpecError(
            f"{path}: line {launch.line}: {flag_of(missing[0])}: found none{_left_out(found)}"
        )
    return replace(
        args,
        remarks=(*_remarks(found, others, given), *args.remarks),
        unread=(*args.unread, *found.left_open),
    )


def _read_other(
    path: Path,
    found: LaunchWords,
    others: Sequence[Command],
    world: int | None,
    supplied: Mapping[str, str],
    gpus: Gpus | None,
    strict: bool,
    *,
    texts: Mapping[str, str],
    configured: Recognised | None,
) -> MegatronArguments:
    """Return what a launch of another system trains. configured: a file that it names says it."""
    reading, launch = found.reading, found.command
    source = f"{path}: line {launch.line}"
    try:
        if configured:
            numbers = numbers_of(
                launch.words,
                launch.environment,
                found.find_open,
                lambda name: _devices_of_hosts(path, name),
            )
            configured = configured._replace(launch=tuple(numbers))
        other = configured or recognise_words(
            launch.words,
            launch.environment,
            source=source,
            find_open=found.find_open,
            more=found.more,
            read_hosts=lambda name: _devices_of_hosts(path, name),
            folder=path.parent,
            texts=texts,
        )
    except SpecError as error:
        where = "" if str(error).startswith(str(path)) else f"{source}: "
        raise SpecError(f"{where}{error}") from None
    assert other is not None
    from ilp_planner.formats.imported.table import knows

    unused = {name: value for name, value in supplied.items() if name not in reading.used}
    keys = {name: value for name, value in unused.items() if knows(other.system, name)}
    variables = {name: value for name, value in supplied.items() if name not in keys}
    args = read(other, world, supplied=keys, gpus=gpus, strict=strict)
    before = {name: reading.unknowns.shown(v) for name, v in launch.environment.items()}
    remarks = (*_remarks(found, others, variables), *args.remarks)
    return replace(args, remarks=remarks, environment=before)


def _remarks(
    found: LaunchWords, others: Sequence[Command], supplied: Mapping[str, str]
) -> list[str]:
    """Return what was left open or taken as it is, one line each."""
    reading, launch = found.reading, found.command
    remarks = []
    if launch.doubt:
        remarks.append(
            f"line {launch.line}: launched only as {launch.doubt[0]} of line {launch.doubt[1]} "
            "decides"
        )
    lines = sorted({other.line for other in others} - {launch.line})
    remarks += [
        f"line {line}: another launch, not read; the one of line {launch.line} is" for line in lines
    ]
    if any(other.line == launch.line for other in others):
        remarks.append(f"line {launch.line}: launches more than once, the first is read")
    empty = {**reading.empty, **{u.key: u.line for u in found.dropped}}
    names = [name for name in empty if name not in supplied]
    if names:
        remarks.append(f"not set, taken as empty: {', '.join(names)} (--set NAME=VALUE)")
    for name in supplied:
        if name in reading.overruled:
            remarks.append(
                f"--set {name}: line {reading.overruled[name]} sets it itself, and that counts"
            )
        elif name not in reading.used:
            remarks.append(f"--set {name}: nothing in the script reads it")
    if found.left_open:
        flags_open = dict.fromkeys(word for word in found.left_open if word.startswith("--"))
        remarks.append(f"{', '.join(flags_open)}: left open: no number depends on them")
    return [*remarks, *found.remarks, *dict.fromkeys(reading.remarks)]


def _left_out(found: LaunchWords) -> str:
    """Return which variables among the arguments were not set, where something is missing."""
    if not found.dropped:
        return ""
    names = ", ".join(dict.fromkeys(u.text for u in found.dropped))
    return f"; not set, and so read as nothing: {names}: --set {found.dropped[0].key}=VALUE"


def is_argument(name: str) -> bool:
    """Whether a name is that of an argument of Megatron."""
    return name.startswith("--") or ("-" in name and name in flags())


def _read_beside(path: Path, name: str) -> str | None:
    """Return the text of a file that a script reads in: from beside the script, or from here."""
    for folder in (path.parent, Path()):
        file = folder / name
        try:
            if file.is_file():
                return read_text(file, SpecError)
        except (OSError, ValueError):
            continue
    return None


def read_launch(
    launch: str,
    world: int | None = None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    supplied: Mapping[str, str] | None = None,
    gpus: Gpus | None = None,
    strict: bool = True,
) -> MegatronArguments:
    """Return what a launch trains: a script, an exported JSON file, or the arguments themselves.

    Parameters
    ----------
    world, arguments, environment, supplied, gpus, strict: as `read_script` has them.

    Raises
    ------
    SpecError: it is none of them.
    """
    if launch.lstrip().startswith("-") or " -" in launch:
        return read_line(launch, world, gpus=gpus, strict=strict)
    path = Path(launch)
    refuse_other_kind(path, FileKind.LAUNCH, SpecError)
    if path.suffix != ".json" or file_kind(path) is FileKind.DEEPSPEED:
        return read_script(
            path,
            world,
            arguments=arguments,
            environment=environment,
            supplied=supplied,
            gpus=gpus,
            strict=strict,
        )
    found = read_json(path, SpecError)
    argv = found.get("argv") if isinstance(found, dict) else None
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise SpecError(f"{path}: argv: expected the arguments as a list of texts")
    ranks, each, variables = (
        found.get(key) for key in ("world_size", "devices_per_node", "environment")
    )
    args = read_arguments(
        argv,
        world or (ranks if isinstance(ranks, int) and ranks > 0 else None),
        environment=variables if isinstance(variables, dict) else None,
        source=str(path),
        strict=strict,
    )
    return replace(args, devices_per_node=each) if isinstance(each, int) and each > 0 else args


def read_line(
    line: str,
    world: int | None = None,
    *,
    source: str = "",
    gpus: Gpus | None = None,
    strict: bool = True,
) -> MegatronArguments:
    """Return what a launch line trains: of Megatron-LM, or of another system.

    Parameters
    ----------
    world, gpus, strict: as `read_script` has them. source: of the line, for messages.

    Raises
    ------
    SpecError: it is no line of a launch, or a value in it cannot be.
    """
    try:
        other = recognise_words(shlex.split(line), source=source or "launch", find_open=open_text)
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        other = None  # `read_arguments` says what is wrong with it
    if other is not None:
        return read(other, world, gpus=gpus, strict=strict)
    return read_arguments(line, world, source=source, gpus=gpus, strict=strict)


def _split_text(script: str, complaint: str) -> str:
    """Return which quoted text with blanks the word of a complaint comes from, where an array that
    holds the text is expanded without quotes; empty where none is."""
    arrays = list(ARRAY.finditer(script))
    ends = [array.end() for array in arrays]
    uses = {match[1]: match for match in reversed(list(BARE_ARRAY.finditer(script)))}
    for match in QUOTED.finditer(script):
        words = match[2].split()
        if words == [match[2]]:  # without blanks, nothing falls apart
            continue
        if not any(f"{word!r}: expected an argument" in complaint for word in words):
            continue
        before = bisect_right(ends, match.start())
        name = arrays[before - 1][1] if before else ""
        if bare := uses.get(name):
            at, use = (script.count("\n", 0, m.start()) + 1 for m in (match, bare))
            return (
                f": {match[0]} of line {at} falls apart as line {use} expands {bare[0]} without "
                f'quotes; "${{{name}[@]}}" keeps it whole'
            )
    return ""


def is_training(words: Sequence[str]) -> bool:
    """Tell whether words look as if they train in Megatron's: by their program or arguments."""
    programs = [word for word in words if PurePosixPath(word).suffix == ".py"]
    names = {PurePosixPath(program).name for program in programs}
    known = ANALYSIS_TOOL in names or any(name.startswith("pretrain") for name in names)
    named = {word.removeprefix("--").partition("=")[0] for word in words}
    several = len(named.intersection(OF_MODELS)) > 1
    return bool(known or several or (programs and "micro-batch-size" in named))


def other_system(text: str) -> str:
    """Return the system that a launch is of, in words; empty if none is known."""
    return next((name for mark, name in SYSTEMS if re.search(mark, text)), "")


def _find_launches(reading: Reading, path: Path) -> list[Command]:
    """Return the commands that look as if they train, in order; at least one."""
    found = []
    for command in reading.commands:
        if import_of([reading.unknowns.shown(word) for word in command.words]) is not None:
            found.append(command)
    if found:
        return found
    for command in reading.commands:
        if is_training([reading.unknowns.shown(word) for word in command.words]):
            found.append(command)
    if found:
        return found
    if reading.ended is not None:
        what, line = reading.ended
        raise SpecError(
            f"{path}: line {line}: the script ends itself here, before any launch: {what}"
            f"{_set_it(reading)}"
        )
    started = [command for command in reading.commands if _starts_a_program(command, reading)]
    for command in reversed(started):
        text = " ".join(map(reading.unknowns.shown, command.words))
        if system := other_system(text):
            raise SpecError(
                f"{path}: line {command.line}: found a launch of {system}, {INSTEAD}; expected one "
                "of Megatron-LM's arguments"
            )
    raise SpecError(
        f"{path}: found no launch of pretrain_gpt.py"
        f"{_instead(started or reading.commands, reading)}, expected one by torchrun, srun, mpirun "
        "or python that can be read without running the script; `--megatron-args` takes the "
        "arguments of one that is started elsewhere"
    )


def _configured(reading: Reading, path: Path, texts: Mapping[str, str]) -> Iterator[Configured]:
    """Yield the commands of programs that are not known here, and what a file that they are given
    configures; nothing if there is a launch that is known."""
    shown = [[reading.unknowns.shown(word) for word in one.words] for one in reading.commands]
    if any(import_of(words) or is_training(words) for words in shown):
        return
    for command, words in zip(reading.commands, shown, strict=True):
        if not any(map(is_launcher, words)):
            continue
        for word in words:
            named = path.parent / word.rpartition("=")[2]
            if named.suffix in FILES and (found := recognise_file(named, texts)):
                yield Configured(command, found)


def _set_it(reading: Reading) -> str:
    """Return what would let a script go on: values of variables that nobody set."""
    names = list(reading.empty)
    if not names:
        return "; expected a script that launches as it is called here"
    values = " ".join(f"--set {shlex.quote(name)}=VALUE" for name in names)
    return f"; not set, and so empty: {', '.join(names)}: {values} would go on if that is why"


def _starts_a_program(command: Command, reading: Reading) -> bool:
    """Tell whether a command seems to be what a script is for: it runs a program of Python."""
    shown = [PurePosixPath(reading.unknowns.shown(word)) for word in command.words]
    names = {word.name for word in shown}
    return bool(names & STARTERS) or any(word.suffix == ".py" for word in shown)


def _instead(commands: Sequence[Command], reading: Reading) -> str:
    """Return what a script starts instead of a training run, the last of it."""
    if not commands:
        return " and no other program"
    text = " ".join(reading.unknowns.shown(word) for word in commands[-1].words)
    return f" but `{textwrap.shorten(text, SHOWN, placeholder=' ...')}` in line {commands[-1].line}"


def _devices_of_hosts(path: Path, name: str) -> list[int] | None:
    """Return the devices of each node of a hostfile beside a script; None: it is not there."""
    file = path.parent / name
    if not file.is_file():
        return None
    return [host.devices for host in read_hostfile(file)]


def sbatch_variables(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets from the script's own directives."""
    options = " ".join(SBATCH.findall(text))
    found: dict[str, str] = {}
    for names, pattern in SBATCH_VARIABLES:
        if match := re.search(rf"(?:^|\s)(?:{pattern})", options):
            found |= dict.fromkeys(names, match[match.lastindex or 0])
    if "SLURM_NNODES" in found and "SLURM_NTASKS_PER_NODE" in found:
        each = as_whole(found["SLURM_NTASKS_PER_NODE"])
        tasks = str(as_whole(found["SLURM_NNODES"]) * each)
        found = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS"), tasks) | found
    return found
