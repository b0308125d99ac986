"""A run of the user's own script in which every launch is recorded and none starts."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlannerError, SpecError
from ilp_planner.formats.captured.guard import ABSENT, Guard, Started
from ilp_planner.formats.captured.programs import LAUNCHES, PLACING, name_of
from ilp_planner.formats.megatron.arguments import no_hosts, open_text
from ilp_planner.formats.megatron.launchers import BY_NAME, numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


SLURM = ("srun", "sbatch")
# Of Slurm and of MPI: variables of the first task, and of numbers.
RANKS = {
    True: ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"),
    False: ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"),
}
NUMBERS = {
    True: {
        "nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"),
        "each": ("SLURM_NTASKS_PER_NODE",),
        "all": ("SLURM_NTASKS", "SLURM_NPROCS"),
        "devices": ("SLURM_GPUS_ON_NODE",),
    },
    False: {"all": ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), "each": ("OMPI_COMM_WORLD_LOCAL_SIZE",)},
}


def variables_of_task(
    words: Sequence[str], file: Path | None, environment: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the variables of the first task that a launcher starts.

    words: of the launcher alone. file: that it starts, if it is one. environment: around it, which
    holds for numbers that nothing else says.
    """
    name = name_of(words[0])
    if name not in BY_NAME and name not in SLURM:
        return {}
    slurm = name in SLURM
    found: dict[str, str] = {}
    if name == "sbatch":
        from ilp_planner.formats.megatron.script import sbatch_variables

        text = file.read_text(errors="replace") if file else ""
        # What the line says comes first, and counts.
        found = sbatch_variables(f"#SBATCH {' '.join(words[1:])}\n{text}")
        found["SLURM_JOB_ID"] = "1"
    else:
        found = dict.fromkeys(RANKS[slurm], "0")
        try:
            (said, *_) = numbers_of(words, environment, open_text, no_hosts)
        except SpecError:
            return found
        numbers = {number: getattr(said, number) for number in NUMBERS[slurm]}
        nodes, each = said.nodes, said.each
        if numbers["all"] is None and isinstance(nodes, int) and isinstance(each, int):
            numbers["all"] = nodes * each
        for number, value in numbers.items():
            if isinstance(value, int):
                found |= dict.fromkeys(NUMBERS[slurm][number], str(value))
    return {name: shlex.quote(v) for name, v in found.items() if re.fullmatch(r"\w+", name)}


# A stand-in does nothing, should it ever run: the guard ends what starts one before it does.
STAND_IN = "#!/bin/sh\nexit 97\n"
FIRST = tuple(name for name in (*LAUNCHES, *PLACING, "sbatch") if "." not in name)
LAST = ("python", "python3")  # if nothing else has the name
# Read by every bash that runs a script: programs that are not there are looked at too.
ABSENT_HANDLE = """\
command_not_found_handle() {{
  {absent} "$@"
  local status=$?
  [ $status != 127 ] || echo "${{0##*/}}: $1: command not found" >&2
  return $status
}}
{theirs}
"""
PROBE = "{mark} probe; torchrun probe; {mark} again"
PROBE_SECONDS = 20.0
ERRORS = 2  # descriptor of stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a command was about to start.

    launches: each once, in order. noted: programs that were not run. kept: files that were put back
    as they were. status: of the command; below 0 by a signal. asked: whether it read its standard
    input, which is closed. counted: whether it counted this machine's GPUs. late: whether it was
    ended after the time limit. left: background jobs that were ended.
    """

    launches: tuple[Started, ...]
    noted: tuple[Started, ...]
    kept: tuple[str, ...]
    status: int
    asked: bool
    counted: bool
    late: bool
    left: int


def record(
    command: Sequence[str],
    *,
    allowed: Sequence[str] = (),
    seconds: float = 60.0,
    gpus: int | None = None,
    environment: Mapping[str, str] | None = None,
    output: int = ERRORS,
) -> Recording:
    """Run a command, and record the launches that it comes to.

    Parameters
    ----------
    allowed: names of programs that run though no table names them. seconds: after which the command
    is ended. gpus: of a node, for commands that count them; None: those of this machine.
    environment: None: that of this process. output: descriptor that it prints to.

    Raises
    ------
    PlannerError: nothing can be guarded here, or the command is not there; nothing was run.
    """
    check_command(command)
    before = dict(os.environ if environment is None else environment)
    with tempfile.TemporaryDirectory(prefix="ilp-plan-capture-") as name:
        folder = Path(os.path.realpath(name))
        around = make_stand_ins(folder, before)
        _probe(folder, around)
        guard = Guard(folder, tuple(allowed), variables_of_task, gpus)
        guard.run(command, around, output, seconds)
    sure = [one for one in guard.launches if one.sure] or guard.launches
    unsure = [one for one in guard.launches if one not in sure]
    return Recording(
        launches=tuple(_distinct(sure)),
        noted=(*guard.noted, *unsure),
        kept=tuple(guard.kept),
        status=guard.status,
        asked=guard.asked,
        counted=guard.counted,
        late=guard.late,
        left=guard.left,
    )


def check_command(command: Sequence[str]) -> None:
    """Refuse a command that cannot be started, before anything is.

    Raises
    ------
    SpecError: with one that can.
    """
    import shutil

    first = command[0]
    path = Path(first)
    if path.suffix == ".sh" and path.is_file() and not os.access(path, os.X_OK):
        raise SpecError(
            f"{first}: found a file that is no program, expected a command: "
            f"`ilp-plan capture -- bash {shlex.join(command)}`"
        )
    if not shutil.which(first) and name_of(first) not in (*FIRST, *LAST):
        raise SpecError(f"{first}: no such program, expected a command, as bash run.sh")
    if name_of(first) in ("bash", "sh") and len(command) > 1 and not command[1].startswith("-"):
        script = Path(command[1])
        if not script.is_file():
            raise SpecError(f"{script}: no such file, expected the script to run")


def make_stand_ins(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Write the stand-ins into a folder, and return the environment in which they are found."""
    for part, names in (("first", FIRST), ("last", LAST), (".", (ABSENT,))):
        (folder / part).mkdir(exist_ok=True)
        for name in names:
            file = folder / part / name
            file.write_text(STAND_IN)
            file.chmod(0o700)
    theirs = environment.get("BASH_ENV", "")
    handle = folder / "handle.sh"
    handle.write_text(
        ABSENT_HANDLE.format(
            absent=shlex.quote(str(folder / ABSENT)),
            theirs=f". {shlex.quote(theirs)}" if theirs else "",
        )
    )
    path = environment.get("PATH", os.defpath)
    return {
        **environment,
        "PATH": f"{folder / 'first'}:{path}:{folder / 'last'}",
        "BASH_ENV": str(handle),
    }


def _probe(folder: Path, environment: Mapping[str, str]) -> None:
    """Find out that a launch is kept from starting here, before the user's script runs.

    Raises
    ------
    PlannerError: it is not.
    """
    tried = folder / "probe"
    tried.mkdir()
    mark = tried / "unlisted"
    mark.write_text("#!/usr/bin/env python3\nopen('mark', 'w')\n")
    mark.chmod(0o700)
    guard = Guard(folder)
    text = f"cd {shlex.quote(str(tried))}; " + PROBE.format(mark=shlex.quote(str(mark)))
    with Path(os.devnull).open("w") as nowhere:
        guard.run(["sh", "-c", text], environment, nowhere.fileno(), PROBE_SECONDS)
    seen = len(guard.launches) == 1 and len(guard.noted) == 2
    if not seen or (tried / "mark").exists():
        raise PlannerError(
            "capture: found a system on which a trial program was not kept from starting, so the "
            "script was not run; `ilp-plan fit run.sh` reads a script and runs nothing"
        )


def _distinct(launches: Sequence[Started]) -> list[Started]:
    """Return launches that differ in more than the rank of their node and its name, the first of
    each."""
    found: dict[tuple[str, ...], Started] = {}
    for one in launches:
        placing = (words for words in one.outer if name_of(words[0]) in PLACING)
        key = (*sum(placing, ()), "--", *without_rank(one.words))
        found.setdefault(key, one)
    return list(found.values())


def without_rank(words: Sequence[str]) -> list[str]:
    """Return words without the rank of a node, by which launches of one job differ."""
    kept: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if name.lstrip("-").replace("_", "-") in ("node-rank", "machine-rank"):
            if not equals and rest:
                rest.pop(0)
            continue
        kept.append(word)
    return kept
