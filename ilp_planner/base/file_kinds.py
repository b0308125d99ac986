"""Kinds of files, told from how they begin: for messages about files given in the wrong place."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.base.errors import PlannerError
    from ilp_planner.base.files import Document

HEAD = 1 << 16  # characters
# What to do with a job of a system whose files are not read.
INSTEAD = (
    "which no command reads: `ilp-plan fit MODEL --tp N --pp N --gpus 8xH100` takes its model and "
    "degrees as options"
)

TAKEN = "which `ilp-plan fit`, `analyze` and `import` take"


class FileKind(Enum):
    """Kinds of files: their name in messages, with their reader."""

    PLAN = "a saved plan, which `ilp-plan evaluate` judges"
    JOB = "a captured job, which `ilp-plan fit` judges"
    OUTPUT = "what a command printed as JSON, which no command reads"
    PROFILE = "a profile, a table in CSV"
    RUNS = "a table of runs, which `ilp-plan calibrate` reads"
    SPEC = "a model or a cluster in TOML"
    CONSTRAINTS = "constraints in TOML, which `constraints` takes"
    LAUNCH = "a launch of Megatron-LM, which `ilp-plan import megatron` makes a plan of"
    ACESO = "a plan of Aceso's, which `ilp-plan import aceso` reads"
    HUGGING_FACE = "a Hugging Face configuration, which `model` takes"
    METIS = "a profile of Metis's, whose folder `profile=metis:FOLDER` takes"
    AMP = "profiles of AMP's, which `profile=amp:FILE` takes"
    HOSTFILE = "a hostfile, which `hostfile` takes"
    CLUSTERFILE = "a clusterfile of Metis's, which `clusterfile` takes"
    PROGRAM = "an integer program, which other solvers read"
    PAGE = "a page of HTML, which a browser shows"
    NANOTRON = f"a configuration of Nanotron, {TAKEN}"
    NEOX = f"a configuration of GPT-NeoX, {TAKEN}"
    NEMO = f"a configuration of NeMo, {TAKEN}"
    PRIMUS = f"a configuration of Primus, {TAKEN}"
    TRAINER = f"a configuration of LLaMA-Factory, {TAKEN}"
    TITAN = f"a configuration of torchtitan, {TAKEN}"
    TITAN_PYTHON = f"a configuration of torchtitan in Python, {TAKEN}"
    DEEPSPEED = f"a configuration of DeepSpeed, {TAKEN}"
    KUBERNETES = f"a job of Kubernetes, {TAKEN}"
    PYTHON = f"a program in Python, {INSTEAD}"
    YAML = f"YAML of no training system that is known here, {INSTEAD}"
    JSON = "JSON of no kind that is known here, which no command reads"
    PICKLE = "a pickle, which `ilp-plan profile import alpa` reads if it is of Alpa"
    ZIP = "a zip archive (PyTorch's checkpoints are some), which no command reads"
    GZIP = "a compressed file, which no command reads: gunzip unpacks it"
    PARQUET = "a table in Parquet, which no command reads"
    PICTURE = "a picture, which no command reads"


# What messages call one that was expected, with what makes it.
EXPECTED = {
    FileKind.PLAN: "a saved plan, the .json of `ilp-plan solve --output`",
    FileKind.PROFILE: "a table of measurements, the .csv of `ilp-plan profile`",
    FileKind.RUNS: "a table of runs, in CSV with the columns run,seconds",
    FileKind.SPEC: "a model or a cluster in TOML",
    FileKind.CONSTRAINTS: "constraints in TOML, below [constraints]",
    FileKind.JOB: "a captured job, the .json of `ilp-plan capture --output`",
    FileKind.LAUNCH: "a launch script, an exported .args.json or the arguments as one text",
    FileKind.ACESO: "a plan of Aceso's, in JSON",
    FileKind.METIS: "a profile of Metis's, in JSON",
    FileKind.AMP: "profiles of AMP's, in JSON",
    FileKind.HOSTFILE: "a hostfile with a line 'NAME slots=N' per node",
    FileKind.CLUSTERFILE: "a clusterfile of Metis's, in JSON",
}

COMMENTS = r"(#.*\n|\s)*"
# How the text begins, and what lines in it begin with, all of them; the first row that is there.
MARKS: tuple[tuple[FileKind, str, *tuple[str, ...]], ...] = (
    (FileKind.PLAN, r'\s*\{\s*"schema"\s*:\s*"ilp-planner plan"'),
    (FileKind.JOB, r'\s*\{\s*"schema"\s*:\s*"ilp-planner job"'),
    (FileKind.OUTPUT, r'\s*\{\s*"schema"\s*:\s*"ilp-planner/'),
    (FileKind.TITAN_PYTHON, "", r"def \w+\(\) -> [\"']?Trainer\.Config[\"']?:"),
    (FileKind.PYTHON, r"#!.*python"),
    (FileKind.LAUNCH, r'\s*\{(?s:.*)"argv"\s*:|#!.*sh\b|(?s:.*)\n#SBATCH '),
    (FileKind.ACESO, r'\s*\{(?s:.*)"num_ops_in_each_stage"\s*:'),
    (FileKind.HUGGING_FACE, r'\s*\{(?s:.*)"(model_type|architectures)"\s*:'),
    (FileKind.METIS, r'\s*\{(?s:.*)"execution_time"\s*:'),
    (FileKind.CLUSTERFILE, r'\s*\{(?s:.*)"inter_bandwidth"\s*:'),
    (FileKind.AMP, r"\s*\{", r'.*"clusters"\s*:', r'.*"profiles"\s*:'),
    (FileKind.NEOX, "", r'[ \t]*"?(pipe|model)[_-]parallel[_-]size"?[ \t]*:'),
    (
        FileKind.DEEPSPEED,
        r'\s*\{(?s:.*)"(train_batch_size|train_micro_batch_size_per_gpu|zero_optimization)"\s*:',
    ),
    (FileKind.PAGE, r"(?i:\s*<(!doctype html|html))"),
    (FileKind.CONSTRAINTS, rf"{COMMENTS}\[constraints\]"),
    (FileKind.TITAN, COMMENTS, r"\[(job|activation_checkpoint|training)\]\s*$"),
    (FileKind.SPEC, rf"{COMMENTS}((name|family|precision|description) +=|\[\[?[\w.]+\]\]?\s*\n)"),
    (FileKind.JSON, r'\s*\{\s*("[^"\n]*"\s*:|\}\s*$)|\s*\[\s*(\[|\{|"|-?\d+,|\]\s*$)'),
    (FileKind.HOSTFILE, rf"{COMMENTS}\S+[ \t]+slots[ \t]*=[ \t]*\d"),
    (
        FileKind.PYTHON,
        COMMENTS + r'("""(?s:.*?)"""\s*)?'
        r"(import [\w., ]+\n|from [\w.]+ import .*\n|(async def|def|class) \w+.*:\s*\n)",
    ),
    (FileKind.KUBERNETES, rf"{COMMENTS}(---\s*\n)?\w+:", r"apiVersion:", r"kind:"),
    (FileKind.PRIMUS, "", r"modules:[ \t]*$", r"[ \t]+(pre|post|sft)_trainer:[ \t]*$"),
    (FileKind.NANOTRON, "", r"parallelism:", r"(tokens|optimizer):"),
    (FileKind.NEMO, "", r"trainer:", r"(model|exp_manager):"),
    (FileKind.NEMO, "", r"model:[ \t]*$", r"(train|ddp|dist):[ \t]*$"),
    (
        FileKind.TRAINER,
        "",
        r"(model_name_or_path|model):[ \t]*\S",
        r"(finetuning_type|cutoff_len|per_device_train_batch_size):",
    ),
    (FileKind.YAML, rf"{COMMENTS}(---[ \t]*\n|[A-Za-z_][\w-]*:([ \t]*\n|[ \t]+\S))"),
    (
        FileKind.PROGRAM,
        r"(\\.*\n|\s)*(?i:minimi[sz]e|maximi[sz]e)\b|(\*.*\n)*NAME\b.*\n(.*\n)?ROWS",
    ),
    (
        FileKind.RUNS,
        r"(?=[^\n]*\brun\b)(?=[^\n]*\b(seconds|milliseconds|tokens_per_second)\b)[\w, ]+(\n|$)",
    ),
    (FileKind.PROFILE, rf"{COMMENTS}([\w .()/-]+,){{2,}}[\w .()/-]+(\n|$)"),
    (
        FileKind.LAUNCH,
        "",
        r"[ \t]*(torchrun|srun|mpirun|deepspeed|accelerate launch|ray job submit|python3? \S+) ",
    ),
)
# The same of bytes that are no text.
BYTES = (
    (FileKind.PICKLE, rb"\x80[\x02-\x05]"),
    (FileKind.ZIP, rb"PK\x03\x04"),
    (FileKind.GZIP, rb"\x1f\x8b"),
    (FileKind.PARQUET, rb"PAR1"),
    (FileKind.PICTURE, rb"\x89PNG|\xff\xd8\xff|%PDF"),
)
# Kinds of texts without a mark of their own: there the end of the name says more.
UNMARKED = (None, FileKind.JSON, FileKind.YAML)
BY_SUFFIX = {".sh": FileKind.LAUNCH, **dict.fromkeys((".yaml", ".yml"), FileKind.YAML)}
OF_JSON = (
    FileKind.PLAN, FileKind.JOB, FileKind.OUTPUT, FileKind.ACESO, FileKind.HUGGING_FACE,
    FileKind.METIS, FileKind.AMP, FileKind.CLUSTERFILE, FileKind.DEEPSPEED, FileKind.JSON,
    FileKind.LAUNCH,
)  # fmt: skip
# Kinds that may also be meant where another one is expected: their marks are weak.
# Whose jobs are read, with or without a launch of Megatron-LM.
LAUNCHES = (
    FileKind.LAUNCH, FileKind.NANOTRON, FileKind.NEOX, FileKind.NEMO, FileKind.TRAINER,
    FileKind.PRIMUS, FileKind.DEEPSPEED, FileKind.TITAN, FileKind.TITAN_PYTHON,
    FileKind.KUBERNETES, FileKind.JOB,
)  # fmt: skip
ALIKE: Mapping[FileKind, tuple[FileKind, ...]] = {
    FileKind.RUNS: (FileKind.PROFILE,),
    FileKind.PROFILE: (FileKind.RUNS,),
    **dict.fromkeys(OF_JSON, (FileKind.JSON,)),
    FileKind.LAUNCH: (*LAUNCHES, FileKind.JSON),
}


def file_kind(path: Path) -> FileKind | None:
    """Return the apparent kind of a file; None if it is unknown or can be read only once, like a
    pipe."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(4 * HEAD)
    except OSError:
        return None
    try:
        found = kind_of_text(content.decode("utf-8-sig", errors="strict"))
    except UnicodeDecodeError as error:
        if error.start > len(content) - 4 and error.start > HEAD:  # in the middle of a character
            return kind_of_text(content[: error.start].decode("utf-8-sig"))
        return kind_of_bytes(content)
    return BY_SUFFIX.get(path.suffix, found) if found in UNMARKED else found


def kind_of_text(text: str) -> FileKind | None:
    """Return the apparent kind of a text; None if it is unknown."""
    head = text[:HEAD].replace("\r\n", "\n")
    for kind, begin, *lines in MARKS:
        inside = (re.search(f"^{line}", head, re.MULTILINE) for line in lines)
        if re.match(begin, head) and all(inside):
            return kind
    return None


def kind_of_bytes(content: bytes) -> FileKind | None:
    """Return the apparent kind of bytes that are no text; None if they are unknown."""
    return next((kind for kind, mark in BYTES if re.match(mark, content)), None)


def refuse_other_kind(source: Path | Document, wanted: FileKind, error: type[PlannerError]) -> None:
    """Refuse files of clearly another kind; unknown ones pass.

    Raises
    ------
    error: the found and the expected kind.
    """
    if isinstance(source, Path):
        name, found = str(source), file_kind(source)
    else:
        name, found = source.name, kind_of_text(source.text)
    if found not in (None, wanted, *ALIKE.get(wanted, ())):
        assert found is not None
        raise error(f"{name}: found {found.value}, expected {EXPECTED[wanted]}")
