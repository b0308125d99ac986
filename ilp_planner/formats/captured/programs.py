"""Programs that a launch script starts: which are launches, which run, and which are only noted.

A program runs only if a table names it, or the user does. All else is noted and not run, so that
nobody has to think of all that could do harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ilp_planner.formats.megatron.launcher import OF_MODELS
from ilp_planner.formats.megatron.launchers import BY_NAME, OWN

Words = Sequence[str]
Test = Callable[[Words], bool]


class Kind(Enum):
    """What becomes of a program: it is recorded as a launch, it runs, its inner command runs in its
    place, or it is noted and not run."""

    LAUNCH = "launch"
    RUN = "run"
    INNER = "inner"
    NOTED = "noted"


class Ruling(NamedTuple):
    """What becomes of the words of a program.

    inner: the place of the command in them that runs instead. shell: arguments of a shell that runs
    instead of it. sure: whether a launch surely is one.
    """

    kind: Kind
    inner: int = 0
    shell: tuple[str, ...] = ()
    sure: bool = True


SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
PYTHON = re.compile(r"(python|pypy)[\d.]*")
# Programs whose words start a training run, by the words behind them; () of any.
LAUNCHES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    **{name: () for name in BY_NAME if name != OWN},
    "accelerate": (("launch",),),
    "ray": (("job", "submit"),),
    "megatron": (("sft",), ("pt",), ("rlhf",)),
    "swift": (("sft",), ("pt",), ("rlhf",)),
    "llamafactory-cli": (("train",),),
    "primus-cli": (),
    "axolotl": (("train",),),
    "trl": (("sft",), ("dpo",), ("grpo",)),
    "tune": (("run",),),
    "nemo": (("llm",),),
    "nemorun": (("llm",),),
    "composer": (),
    "colossalai": (("run",),),
    "horovodrun": (),
    "xtuner": (("train",),),
}
# Programs that place tasks: what they start runs here once if it is a shell, as the first task.
PLACING = ("srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun")
# Programs that run a text on other hosts, with their options that have a value.
REMOTE = {"ssh": "bcDEeFIiJLlmOopQRSWw", "rsh": "l", "pdsh": "wxlutRS", "clush": "wxlutg"}
# Code of Python that trains, or starts a file.
CODE = re.compile(
    r"run_module|run_path|init_process_group|notebook_launcher|\bpretrain\(|\.train\("
)
# Names of programs in Python that train.
TRAINS = re.compile(r"pretrain|train|finetune|fine_tune|sft|rlhf|ppo|grpo|dpo")
# Modules that start others, in place of a launcher.
MODULES = tuple(name for name in BY_NAME if "." in name and name != "mpiexec.hydra")
# Words that stand before a command and only say how it is started.
BEFORE = (
    "sudo", "doas", "env", "nohup", "timeout", "nice", "ionice", "numactl", "taskset", "stdbuf",
    "setsid", "time", "chrt", "unbuffer", "script", "nsys", "ncu", "rocprof", "rocprofv3", "strace",
    "gdb", "py-spy", "singularity", "apptainer", "docker", "podman", "enroot", "uv", "poetry",
    "conda", "micromamba", "pixi",
)  # fmt: skip


def _none(*wrong: str) -> Test:
    """Return a test that no word begins with one of these."""
    return lambda words: not any(word.startswith(wrong) for word in words)


def _first(*right: str) -> Test:
    """Return a test that the first word is one of these."""
    return lambda words: bool(words) and words[0] in right


def _all(*right: str) -> Test:
    """Return a test that all words that are options begin with one of these."""
    return lambda words: all(word.startswith(right) for word in words if word.startswith("-"))


def _reads_git(words: Words) -> bool:
    """Tell whether words of git only look."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in ("-C", "-c") else 1]
    looks = ("rev-parse", "log", "status", "describe", "show", "diff", "ls-files", "version")
    return bool(rest) and rest[0] in looks


# Programs that run: they tell something, write nothing but their output, or start others.
TELLING = (
    "[ arch awk gawk mawk base64 basename cat cksum cmp column comm cut date df diff dirname du "
    "echo egrep env expand expr factor false fgrep file fmt fold free getconf getent getopt grep "
    "groups head id join jq ldd locale logname ls lscpu lsmod lspci lsb_release md5sum mkdir "
    "mktemp nice nl nohup nproc numfmt od paste pathchk pgrep pidof printenv printf ps pwd "
    "readlink realpath rev seq setsid sha1sum sha256sum shuf sleep sort split stat stdbuf stty "
    "sum tac tail tee test timeout touch tput tr true tsort tty uname uniq uptime wc whereis which "
    "who whoami xargs yes zcat time numactl taskset ionice uuidgen mountpoint findmnt sinfo squeue "
    "ibstat ibv_devinfo make pyenv-exec pyenv-hooks pyenv-latest pyenv-prefix pyenv-root "
    "pyenv-version pyenv-version-file pyenv-version-file-read pyenv-version-name pyenv-versions "
    "pyenv-which"
)
HARMLESS: Mapping[str, Test] = {
    **dict.fromkeys(TELLING.split(), _none()),
    **dict.fromkeys(SHELLS, _none()),
    "date": _none("-s", "--set"),
    "sed": _none("-i", "--in-place", "-ni", "-Ei", "-ri"),
    "find": _none("-delete", "-fprint", "-fls"),
    "hostname": _all("-I", "-i", "-s", "-f", "-d", "-A", "--"),
    "ip": lambda words: not {"set", "add", "del", "flush", "replace", "change", "netns"} & {*words},
    "git": _reads_git,
    "perl": _none("-i", "-pi", "-ni"),
    "pyenv": _first("exec", "which", "version", "versions", "root", "prefix"),
    "scontrol": _first("show"),
    "nvidia-smi": lambda words: _first("topo")(words) or (
        _all("-L", "-q", "-i", "-h", "--list", "--query", "--format", "--id")(words)
    ),
    **dict.fromkeys(("pip", "pip3"), _first("list", "show", "freeze", "--version")),
    "rocm-smi": _all("--show", "-i", "--json", "--csv", "--alldevices"),
    "nvcc": _all("--version", "-V"),
}  # fmt: skip
SLEEPS = ("sleep",)  # which end at once: nothing is waited for that a launch would do


# Commands that count the GPUs of a node: code of Python, and options of nvidia-smi.
COUNTS = re.compile(r"import torch;? *print\(torch\.cuda\.device_count\(\)\);?")
LISTS = re.compile(r"-L|--list-gpus|--query-gpu=(index|name|gpu_name|uuid|gpu_uuid)")


def counts_gpus(words: Words) -> str:
    """Return how a command counts the GPUs of a node: by their `number`, or a `line` for each;
    empty: it does not."""
    if PYTHON.fullmatch(name_of(words[0])) and len(words) == 3 and words[1] == "-c":
        return "number" if COUNTS.fullmatch(" ".join(words[2].split())) else ""
    lists = any(map(LISTS.fullmatch, words[1:]))
    return "line" if name_of(words[0]) == "nvidia-smi" and lists else ""


def ruling_on(
    words: Words,
    allowed: Sequence[str] = (),
    *,
    script: bool = False,
    folder: str = "",
    listed: bool = True,
) -> Ruling:
    """Return what becomes of a program.

    Parameters
    ----------
    words: its name, as a path or not, and its arguments. allowed: names that the user lets run.
    script: its file is a text that a shell reads, and none of the programs that go by their name
    alone. folder: that the words are typed in. listed: its file is where programs are installed, so
    that it does what others of its name do.
    """
    name = name_of(words[0])
    if PYTHON.fullmatch(name):
        return _of_python(words, allowed)
    if name.endswith(".py"):
        return _of_python(["python", *words], allowed)
    if name in PLACING:
        inner = _inner_shell(words, Path(folder))
        return Ruling(Kind.INNER, inner) if inner else Ruling(Kind.LAUNCH)
    if name == "sbatch":
        there = (k for k, word in enumerate(words[1:], 1) if (Path(folder) / word).is_file())
        return Ruling(Kind.INNER, next(there, len(words)), _wrapped(words))
    if _is_launch(words):
        return Ruling(Kind.LAUNCH)
    if name in allowed:
        return Ruling(Kind.RUN)
    if name in HARMLESS and (listed or name in SHELLS):
        return Ruling(Kind.RUN if HARMLESS[name](words[1:]) else Kind.NOTED)
    if name in REMOTE and (text := _remote_text(words)):
        return Ruling(Kind.INNER, len(words), ("-c", text))
    if name in BEFORE and (inner := inner_command(words)):
        return Ruling(Kind.INNER, inner)
    return Ruling(Kind.RUN if script else Kind.NOTED)


def name_of(word: str) -> str:
    """Return the name of a program without its folder."""
    return PurePosixPath(word).name


def _is_launch(words: Words) -> bool:
    name = name_of(words[0])
    if name not in LAUNCHES:
        return False
    behind = LAUNCHES[name]
    rest = tuple(word for word in words[1:] if not word.startswith("-"))
    return not behind or any(rest[: len(these)] == these for these in behind)


def _of_python(words: Words, allowed: Sequence[str]) -> Ruling:
    """Return what becomes of a program in Python: code in its words runs, files and modules do not
    unless the user names them."""
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] not in ("-c", "-m", "-"):
        if rest[0] in ("-V", "--version", "-VV", "--help", "-h"):
            return Ruling(Kind.RUN)
        if rest[0].startswith("-m") or rest[0].startswith("-c"):  # joined with their value
            rest[:1] = [rest[0][:2], rest[0][2:]]
            break
        del rest[: 2 if rest[0] in ("-W", "-X") else 1]
    if rest[:1] == ["-c"] and CODE.search(" ".join(rest)) and name_of(words[0]) not in allowed:
        return Ruling(Kind.NOTED)
    if not rest or rest[0] in ("-c", "-"):
        return Ruling(Kind.RUN)
    program = rest[1] if rest[0] == "-m" and len(rest) > 1 else rest[0]
    if program in MODULES:
        return Ruling(Kind.LAUNCH)
    if _is_launch([program, *rest[1:]]):  # a launcher that is itself a file of Python
        return Ruling(Kind.LAUNCH)
    name = name_of(program)
    said = {word.removeprefix("--").partition("=")[0].replace("_", "-") for word in rest}
    if TRAINS.search(program.rpartition("/")[2].lower()) or len(said.intersection(OF_MODELS)) > 1:
        return Ruling(Kind.LAUNCH)
    if name in allowed or name_of(words[0]) in allowed:
        return Ruling(Kind.RUN)
    return Ruling(Kind.LAUNCH, sure=False)


def inner_command(words: Words) -> int:
    """Return the place of a launch, a shell or a program of Python behind words that only say how
    it is started; 0 if there is none."""
    for k, word in enumerate(words[1:], 1):
        name = name_of(word)
        if name in SHELLS or PYTHON.fullmatch(name) or name in PLACING or _is_launch(words[k:]):
            return k
    return 0


def _wrapped(words: Words) -> tuple[str, ...]:
    """Return the arguments of a shell that runs what sbatch is given without a file: the text of an
    option, or its input."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.startswith("--wrap"):
            return ("-c", word.partition("=")[2] or following)
    return ("-s",)


def _remote_text(words: Words) -> str:
    """Return the text that a program runs on another host; empty: none."""
    values, rest = REMOTE[name_of(words[0])], list(words[1:])
    hosts = "w" in values and "-w" in rest and name_of(words[0]) != "ssh"
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option[1:] and option[-1] in values and len(option) == 2 and rest:
            rest.pop(0)
    return " ".join(rest if hosts else rest[1:])


def _inner_shell(words: Words, folder: Path) -> int:
    """Return the place of the shell, or of the script, that a launcher starts; 0 if it starts
    something else."""
    for k, word in enumerate(words[1:], 1):
        name = name_of(word)
        if name in SHELLS or (name.endswith(".sh") and (folder / word).is_file()):
            return k
        if PYTHON.fullmatch(name) or _is_launch(words[k:]):
            return 0
    return 0
