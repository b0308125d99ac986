"""Launchers of distributed jobs: the table of their options, and the numbers that a line says.

Nodes, processes and devices of a node are different numbers. torchrun's `--nnodes` counts agents,
srun's `-N` nodes; `--ntasks-per-node` counts tasks, and each may start an agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import DIGITS, RANKS

NODES, EACH, ALL, DEVICES, ALL_DEVICES, TASK_DEVICES = (
    "nodes", "each", "all", "devices", "all devices", "devices of a task"
)  # fmt: skip
OWN = "<program>"  # stands before options of the program itself that say how it is started


class LeftOpenError(SpecError):
    """A number that a launch line leaves open, and that nothing else says.

    where: place in a script, of the unknown value; empty: that of the launch.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class Open(NamedTuple):
    """A number that a launch line leaves open.

    shown: the option and its value, as they are written. message: the found and the expected value.
    fix: an option that would say it; empty: `--world-size` alone. where: as of `LeftOpenError`.
    least, most: of its possible values.
    """

    shown: str
    message: str
    fix: str = ""
    where: str = ""
    least: int = 1
    most: int = RANKS


Count = int | Open | None  # None: nothing says
# From an option and its value to what is open in it; None: nothing is.
FindOpen = Callable[[str, str], Open | None]
# From the name of a hostfile to the devices of its nodes; None: it is not there.
ReadHosts = Callable[[str], Sequence[int] | None]


class Launcher(NamedTuple):
    """One row of the table.

    names: words that start it. options: number -> names of its options, without dashes. alone:
    options without a value, if a word behind them may look like one. variables: number -> its
    variable if no option says it. defaults: if nothing does. hosts, files: options that list hosts,
    or name a file of them. unsaid: why a number is open if nothing says it.
    """

    names: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    variables: Mapping[str, str] = {}
    defaults: Mapping[str, int] = {}
    alone: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    unsaid: str = ""


LAUNCHERS = (
    Launcher(
        ("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        {NODES: ("nnodes",), EACH: ("nproc-per-node",)},
        variables={NODES: "PET_NNODES", EACH: "PET_NPROC_PER_NODE"},
        defaults={NODES: 1, EACH: 1},
        alone=("standalone", "no-python", "run-path", "module", "m", "use-env", "no-use-env"),
    ),
    Launcher(
        ("srun",),
        {
            NODES: ("nodes", "N"),
            EACH: ("ntasks-per-node", "tasks-per-node"),
            ALL: ("ntasks", "n"),
            DEVICES: ("gpus-per-node", "gres"),
            ALL_DEVICES: ("gpus", "G"),
            TASK_DEVICES: ("gpus-per-task",),
        },
        variables={
            NODES: "SLURM_NNODES",
            EACH: "SLURM_NTASKS_PER_NODE",
            ALL: "SLURM_NTASKS",
            DEVICES: "SLURM_GPUS_ON_NODE",
        },
        alone=("l", "label", "u", "unbuffered", "exclusive", "overlap", "K", "no-kill", "v", "Q"),
        unsaid="no --ntasks-per-node or --ntasks",
    ),
    Launcher(
        ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"),
        {
            ALL: ("np", "n", "c"),
            EACH: ("npernode", "N", "ppn", "perhost", "map-by", "ntasks-per-node"),
        },
        hosts=("host", "H", "hosts"),
        files=("hostfile", "machinefile", "f"),
        alone=("allow-run-as-root", "oversubscribe", "display-map", "tag-output", "v"),
        unsaid="no -np",
    ),
    Launcher(
        ("deepspeed", "deepspeed.launcher.runner"),
        {NODES: ("num-nodes",), EACH: ("num-gpus",)},
        hosts=("include", "i"),
        files=("hostfile", "H"),
        defaults={NODES: 1},
        alone=("no-python", "module", "force-multi", "no-ssh", "no-ssh-check", "no-local-rank"),
        unsaid="no --num_gpus, which takes all GPUs of a node",
    ),
    Launcher(
        ("accelerate", "accelerate.commands.launch"),
        {NODES: ("num-machines",), ALL: ("num-processes",)},
        alone=("multi-gpu", "use-deepspeed", "use-fsdp", "use-megatron-lm", "m", "module", "debug"),
        unsaid="no --num_processes, which a configuration file of Accelerate says",
    ),
    Launcher(
        (OWN,),
        {
            NODES: ("nnodes", "actor-num-nodes", "num-nodes"),
            EACH: ("nproc-per-node", "actor-num-gpus-per-node", "num-gpus-per-node"),
        },
    ),
)  # fmt: skip
BY_NAME = {name: row for row in LAUNCHERS for name in row.names}
# What else a program takes of a launcher's options, besides numbers.
OWN_OTHERS = ("node-rank", "master-addr", "master-port")
# Values that mean the devices of a node, wherever a launcher runs.
ALL_OF_NODE = ("gpu", "auto")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The numbers of a launcher. name: as it was started; devices: of a node; files: hostfiles that
    are not there."""

    name: str = ""
    nodes: Count = None
    each: Count = None
    all: Count = None
    devices: Count = None
    files: tuple[str, ...] = field(default=())


def own_options_first(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a program about its start, and the rest of its words."""
    own = {*sum(BY_NAME[OWN].options.values(), ()), *OWN_OTHERS}
    options: list[str] = []
    rest: list[str] = []
    todo = list(words)
    while todo:
        word = todo.pop(0)
        if not word.startswith("--") or _name(word)[0] not in own:
            rest.append(word)
            continue
        options.append(word)
        if "=" not in word and todo and not todo[0].startswith("--"):
            options.append(todo.pop(0))
    return options, rest


def numbers_of(
    words: Sequence[str],
    environment: Mapping[str, str],
    find_open: FindOpen,
    read_hosts: ReadHosts = lambda name: None,
) -> list[Said]:
    """Return the numbers of each launcher of a line, the outermost first.

    Parameters
    ----------
    words: before the program. find_open: tells the open part in the value of an option, or in a
        word that may be any options (the option is then empty).

    Raises
    ------
    SpecError: an option without its number, or two that contradict each other.
    """
    places = [k for k, word in enumerate(words) if _row(word) is not None]
    found = []
    for place, end in pairwise([*places, len(words)]):
        row = BY_NAME.get(words[place]) or BY_NAME[PurePosixPath(words[place]).name]
        found.append(_told(row, words[place:end], environment, find_open, read_hosts))
    return [said for said in found if said.name != OWN] or found


def is_launcher(word: str) -> bool:
    """Tell whether a word starts a known launcher."""
    return word != OWN and _row(word) is not None


def _row(word: str) -> Launcher | None:
    return BY_NAME.get(word) or BY_NAME.get(PurePosixPath(word).name)


def _told(
    row: Launcher,
    words: Sequence[str],
    environment: Mapping[str, str],
    find_open: FindOpen,
    read_hosts: ReadHosts,
) -> Said:
    options, loose = _options(words[1:], row, find_open)
    name = PurePosixPath(words[0]).name
    told: dict[str, Count] = {}
    for number, names in row.options.items():
        for option in names:
            if option in options and number not in told:
                typed, value = options[option]
                count = _count(option, typed, value, find_open)
                if count is not None:
                    told[number] = count
    files: list[str] = []
    for typed, value in (options[option] for option in row.files if option in options):
        hosts = None if find_open(typed, value) else read_hosts(value)
        if hosts is None:
            files.append(value)
            message = f"{typed}: {value} is not there, which has a line for every node"
            told.setdefault(NODES, Open(f"{typed} {value}", message))
        else:
            _take_hosts(told, hosts)
    for _, value in (options[option] for option in row.hosts if option in options):
        _take_hosts(told, _hosts(value))
    _take_variables(told, row, environment)
    if isinstance(devices := told.get(ALL_DEVICES), int) and isinstance(told.get(NODES), int):
        told.setdefault(DEVICES, max(1, devices // _int(told[NODES])))
    if isinstance(devices := told.get(TASK_DEVICES), int) and isinstance(told.get(EACH), int):
        told.setdefault(DEVICES, devices * _int(told[EACH]))
    for number, default in row.defaults.items():
        told.setdefault(number, loose or default)
    if told.get(EACH) is None and told.get(ALL) is None and row.names != (OWN,):
        message = f"{name}: found {row.unsaid}, expected how many processes it starts"
        told[EACH] = loose or Open(name, message)
    return Said(
        name=name,
        nodes=told.get(NODES),
        each=told.get(EACH),
        all=told.get(ALL),
        devices=told.get(DEVICES),
        files=tuple(files),
    )


def _take_variables(told: dict[str, Count], row: Launcher, environment: Mapping[str, str]) -> None:
    """Add the numbers of the environment; of the processes only if no option says any."""
    said = EACH in told or ALL in told
    for number, variable in row.variables.items():
        text = environment.get(variable, "")
        if number in told or (said and number in (EACH, ALL)) or not text:
            continue
        if text.isdecimal() and 0 < int(text[:DIGITS]) <= RANKS:
            told[number] = int(text)


def _take_hosts(told: dict[str, Count], hosts: Sequence[int]) -> None:
    """Add the nodes of a list of hosts, by the devices or slots of each; 0: not said."""
    alike = hosts[0] if len(set(hosts)) == 1 else 0
    if ALL not in told:  # otherwise there may be more hosts than are needed
        told.setdefault(NODES, len(hosts))
    if alike:
        told.setdefault(EACH, alike)
    elif all(hosts) and EACH not in told:
        told.setdefault(ALL, sum(hosts))


def _hosts(text: str) -> list[int]:
    """Return the slots of `a:8,b:8`, or of DeepSpeed's `a:0,1@b:0,1`; 0: not said."""
    if "@" in text or re.search(r":\d+,\d+(,|$)", text):
        parts = text.split("@")
        return [len(p.partition(":")[2].split(",")) if ":" in p else 0 for p in parts]
    counts = [host.partition(":")[2] for host in text.split(",") if host]
    return [int(count[:DIGITS]) if count.isdecimal() else 0 for count in counts]


def _int(count: Count) -> int:
    assert isinstance(count, int)
    return count


def _name(word: str) -> tuple[str, str, str]:
    """Return the name of an option without dashes, "=" if one is there, and the text after it."""
    name, equals, value = word.lstrip("-").partition("=")
    return name.replace("_", "-"), equals, value


def _options(
    words: Sequence[str], row: Launcher, find_open: FindOpen
) -> tuple[dict[str, tuple[str, str]], Open | None]:
    """Return options by name, as typed and with their values; and a word that may be further ones.
    Other words are passed over."""
    found: dict[str, tuple[str, str]] = {}
    loose: Open | None = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            loose = loose or find_open("", word)
            continue
        short = re.fullmatch(r"-([A-Za-z])(\d.*)", word)
        name, equals, value = _name(word)
        if short and short[1] in sum(row.options.values(), ()):
            found[short[1]] = (f"-{short[1]}", short[2])
        elif equals:
            found[name] = (word.partition("=")[0], value)
        elif name not in row.alone and rest and not rest[0].startswith("-"):
            found[name] = (word, rest.pop(0))
        else:
            found[name] = (word, "")
    return found, loose


def _count(option: str, typed: str, value: str, find_open: FindOpen) -> Count:
    """Return the number that an option says; None: it says something else.

    Raises
    ------
    SpecError: it should say one, and does not.
    """
    if unknown := find_open(typed, value):
        return unknown
    text = value
    if option == "map-by":  # of MPI: ppr:8:node, or an order of processes
        match = re.match(r"ppr:(\d+):(\w+)", value)
        if match is None:
            return None
        if match[2] != "node":
            message = f"{typed}: found {value}, expected ppr:N:node"
            return Open(f"{typed} {value}", message)
        text = match[1]
    elif option == "gres":  # of Slurm: gpu:8, gpu:h100:8, and others
        match = re.search(r"\bgpu:(?:[\w.-]+:)?(\d+)", value)
        if match is None:
            return None
        text = match[1]
    elif ":" in value and not re.fullmatch(r"\d+:\d+", value):
        text = value.rpartition(":")[2]  # --gpus-per-node h100:8
    if value in ALL_OF_NODE:
        message = f"{typed}: found {value}, which is as many processes as a node has GPUs"
        return Open(f"{typed} {value}", message)
    span = re.fullmatch(r"(\d+)[-:](\d+)", text)
    ends = [_whole(typed, end) for end in (span[1], span[2])] if span else [_whole(typed, text)]
    if ends[0] == ends[-1]:
        return ends[0]
    message = f"{typed}: found {value}, expected one number of nodes"
    return Open(f"{typed} {value}", message, least=ends[0], most=max(ends))


def _whole(typed: str, text: str) -> int:
    if not text.isdecimal() or int(text[:DIGITS]) < 1:
        raise SpecError(f"{typed}: found {text!r:.80}, expected a whole number of at least 1")
    if int(text[:DIGITS]) > RANKS:
        raise SpecError(f"{typed}: found {text!r:.80}, expected at most {RANKS}")
    return int(text)
