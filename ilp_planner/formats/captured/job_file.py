"""The job file: launches that a script came to, with all that reading them needs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, SpecError, UsageError
from ilp_planner.base.file_kinds import FileKind, refuse_other_kind
from ilp_planner.base.files import read_json, to_json, write_text
from ilp_planner.base.limits import JSON_BYTES, RANKS, TEXT_BYTES
from ilp_planner.formats.json_fields import Fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.formats.captured.guard import Started

SCHEMA = "ilp-planner job"
VERSION = 1
KEYS = ("schema", "version", "command", "folder", "launch", "launches", "not_run", "files")
LAUNCH_KEYS = ("words", "outer", "folder", "environment", "world_size")
# Variables that say something of a job, by how they begin; keys and passwords are none of them.
VARIABLES = (
    "WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "NODE_RANK", "NNODES", "NPROC", "GPUS_PER_NODE",
    "PET_", "SLURM_", "OMPI_COMM_WORLD", "CUDA_", "HIP_", "ROCR_", "HSA_", "NCCL_", "RCCL_", "UCX_",
    "NVTE_", "NVSHMEM_", "CUBLAS", "CUDNN_", "TORCH", "PYTORCH_", "OMP_NUM_THREADS", "TE_", "UB_",
    "MEGATRON_", "DEEPSPEED_", "DS_", "ACCELERATE_", "FSDP_",
)  # fmt: skip
# Options whose value nobody else should read.
SECRET = re.compile(
    r"--?[\w.-]*(api[-_]?key|wandb[-_]key|password|passwd|secret|(hf|hub|auth|access)[-_]token)"
)
ASSIGNED = re.compile(r"\w*(API_?KEY|PASSWORD|PASSWD|SECRET|(HF|HUB|AUTH|ACCESS)_TOKEN)\w*=")
HIDDEN = "..."
# Files that a launch names, and that say what it trains.
READ = (".json", ".yaml", ".yml", ".toml")
HOSTFILES = ("hostfile", "machinefile", "H", "f")
MOST_BYTES = JSON_BYTES // 4  # of them all: in JSON a character may be six


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch that was recorded.

    words: of the launcher, its program and their arguments. outer: of launchers around it, the
    outermost first. folder: that it starts in. environment: variables that say something of a job.
    world: ranks that they say; None: they leave them open.
    """

    words: tuple[str, ...]
    outer: tuple[tuple[str, ...], ...] = ()
    folder: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    world: int | None = None

    @property
    def line(self) -> tuple[str, ...]:
        """All words, those of the outermost launcher first."""
        return (*(word for words in self.outer if placed(words) for word in words), *self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedJob:
    """The content of a job file.

    command: that was run, in `folder`. launch: number of the one that is meant, from 1 on; None:
    nobody has said. not_run: words of programs that were noted and not run. files: path -> text of
    those that launches name.
    """

    command: tuple[str, ...]
    folder: str
    launches: tuple[Launch, ...]
    launch: int | None
    not_run: tuple[tuple[str, ...], ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def placed(words: Sequence[str]) -> bool:
    """Tell whether a launcher places tasks, so that its numbers count."""
    from ilp_planner.formats.captured.programs import PLACING, name_of

    return name_of(words[0]) in PLACING


def launch_of(started: Started) -> Launch:
    """Return what is kept of a launch: no keys or passwords, and no variables of other things."""
    kept = {
        name: value
        for name, value in sorted(started.environment.items())
        if name.startswith(VARIABLES) and not ASSIGNED.match(f"{name}=")
    }
    launch = Launch(
        words=without_secrets(started.words),
        outer=tuple(without_secrets(words) for words in started.outer),
        folder=started.folder,
        environment=kept,
    )
    return replace(launch, world=world_of(launch))


def world_of(launch: Launch) -> int | None:
    """Return the ranks that the launchers of a launch say; None: they leave them open."""
    from ilp_planner.formats.megatron.arguments import launch_ranks, open_text
    from ilp_planner.formats.megatron.launcher import split_launch
    from ilp_planner.specs.hostfile import read_hostfile

    def hosts(name: str) -> list[int] | None:
        file = Path(launch.folder) / name
        return [host.devices for host in read_hostfile(file)] if file.is_file() else None

    try:
        line = split_launch(launch.line)
        return launch_ranks(line, launch.environment, None, None, open_text, hosts).world or None
    except SpecError:
        return None  # its reader says what is wrong


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """Return words with `...` in place of keys and passwords."""
    found: list[str] = []
    for word in words:
        name, equals, _ = word.partition("=")
        if found and SECRET.fullmatch(found[-1]) and not word.startswith("-"):
            found.append(HIDDEN)
        elif equals and (SECRET.fullmatch(name) or ASSIGNED.fullmatch(name + "=")):
            found.append(f"{name}={HIDDEN}")
        else:
            found.append(word)
    return tuple(found)


def files_of(launches: Sequence[Launch]) -> tuple[dict[str, str], list[str]]:
    """Return the texts of files that launches name, by their whole paths; and the paths of those
    that are too long to keep."""
    found: dict[str, str] = {}
    long: dict[str, None] = {}
    for launch in launches:
        before = ""
        for word in launch.line:
            value = word.partition("=")[2] if word.startswith("-") else word
            hosts = before.lstrip("-").replace("_", "-") in HOSTFILES
            before = word
            path = Path(launch.folder) / value
            if not value or not (path.suffix in READ or hosts):
                continue
            try:
                if not path.is_file():
                    continue
                name, size = os.path.normpath(path), path.stat().st_size
                if size > TEXT_BYTES or size + sum(map(len, found.values())) > MOST_BYTES:
                    long[name] = None
                else:
                    found[name] = path.read_text()
            except (OSError, ValueError):
                continue  # what is no text says nothing of a job
    return found, list(long)


def write_job(path: Path, job: CapturedJob) -> None:
    """Write a job file.

    Raises
    ------
    OutputError: it cannot be written.
    """
    write_text(path, to_json(job_object(job)))


def job_object(job: CapturedJob) -> dict[str, Any]:
    """Return a job as JSON-ready values."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "command": list(job.command),
        "folder": job.folder,
        "launch": job.launch,
        "launches": [
            {
                "words": list(one.words),
                "outer": [list(words) for words in one.outer],
                "folder": one.folder,
                "environment": dict(one.environment),
                "world_size": one.world,
            }
            for one in job.launches
        ],
        "not_run": [list(words) for words in job.not_run],
        "files": dict(job.files),
    }


def read_job(path: Path) -> CapturedJob:
    """Return the content of a job file.

    Raises
    ------
    PlanError: it cannot be read: the file, the key, the found and the expected value.
    """
    refuse_other_kind(path, FileKind.JOB, PlanError)
    top = Fields(read_json(path, PlanError), file=str(path))
    if top.values.get("schema") != SCHEMA:
        raise top.error("schema", repr(SCHEMA))
    if top.values.get("version") != VERSION:
        raise top.error("version", f"{VERSION}; a newer ilp-plan may have written it")
    top.only(KEYS)
    launches = tuple(map(_launch, top.each("launches")))
    if not launches:
        raise top.error("launches", "at least one")
    chosen = top.whole("launch", least=1, most=len(launches)) if top.optional("launch") else None
    return CapturedJob(
        command=top.texts("command"),
        folder=top.text("folder"),
        launches=launches,
        launch=chosen,
        not_run=_lists(top, "not_run"),
        files=_texts(top.inside("files")),
    )


def chosen_launch(job: CapturedJob, file: str) -> Launch:
    """Return the launch that is meant.

    Raises
    ------
    UsageError: there are several, and nobody has said.
    """
    if job.launch is None:
        raise UsageError(
            f"{file}: launch: found {len(job.launches)} launches, expected the number of one: "
            f"`ilp-plan capture --launch 1 --output {file} -- ...`, or its number in the file"
        )
    return job.launches[job.launch - 1]


def _launch(found: Fields) -> Launch:
    found.only(LAUNCH_KEYS)
    words = found.texts("words")
    if not words:
        raise found.error("words", "at least one")
    return Launch(
        words=words,
        outer=_lists(found, "outer"),
        folder=found.text("folder"),
        environment=_texts(found.inside("environment")),
        world=found.whole("world_size", least=1, most=RANKS)
        if found.optional("world_size")
        else None,
    )


def _lists(found: Fields, key: str) -> tuple[tuple[str, ...], ...]:
    """Return a list of lists of texts, none of them empty."""
    rows = []
    for k, row in enumerate(found.listed(key)):
        one = Fields({"words": row}, file=found.file, where=f"{found.place(key)}[{k}]")
        rows.append(one.texts("words"))
        if not row:
            raise found.error(f"{key}[{k}]", "at least one word", "none")
    return tuple(rows)


def _texts(found: Fields) -> dict[str, str]:
    return {name: found.text(name) for name in found.values}
