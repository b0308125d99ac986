"""How many public launches and configurations of training systems become jobs.

`python -m tests.public_launches FOLDER` reads checkouts, or parts of them, in folders that are
called OWNER+NAME, and prints the table of docs/benchmarks/launches.md. Nothing of them is run.
What their documentation has the user pass is passed: arguments out of the README beside a script
and what its block of code exports, variables that a script asks for, and files that belong
together. Where nothing says how many GPUs there are, numbers of nodes of eight are tried, and the
first that does is shown.
"""

import contextlib
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.imports import read as read_recognised
from ilp_planner.formats.imports import recognise_words
from ilp_planner.formats.megatron.arguments import job_of_arguments
from ilp_planner.formats.megatron.ranks import Gpus
from ilp_planner.formats.megatron.script import read_script
from ilp_planner.formats.megatron.values import MegatronArguments

NODES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256)


class Source(NamedTuple):
    """Files of a repository.

    paths: patterns. but: parts of names of files that train nothing by themselves. supplied:
    variables that its scripts ask the user for. beside: patterns of files that its documentation
    has the user give, and what they are given with. filled: parts of the names of files with a
    placeholder for the user to fill in, its key and a value. choices: words of the documented
    arguments, and the other word that a page has the user choose."""

    repository: str
    paths: tuple[str, ...]
    but: str = "(?!)"
    supplied: Mapping[str, str] = {}
    beside: tuple[tuple[str, str], ...] = ()
    nodes: tuple[str, ...] = ()
    filled: tuple[tuple[str, str, str], ...] = ()
    choices: Mapping[str, str] = {}


SOURCES = (
    Source(
        "alibaba/Pai-Megatron-Patch",
        ("examples/*/run_mcore_*.sh", "examples/*/run_pretrain_*.sh"),
        nodes=("WORLD_SIZE",),
        choices={"dsw": "dlc"},  # one node, several
    ),
    Source(
        "THUDM/slime",
        ("scripts/run-*.sh",),
        supplied={"BASE_FOLDER": "/models", "BASE_DIR": "/models", "MASTER_ADDR": "10.0.0.1"},
    ),
    Source("modelscope/ms-swift", ("examples/megatron/**/*.sh",), r"/export/|infer\.sh|quant\.sh"),
    Source(
        "volcengine/verl",
        ("**/*megatron*.sh",),
        filled=(
            ("deepseek671b_math_megatron", "actor_rollout_ref.model.path", "deepseek-v3"),
            ("run_qwen30_a3b_megatron", "actor_rollout_ref.model.path", "qwen3-30b-a3b"),
            ("run_moonlight16b_a3b", "LLM", "moonlight-16b-a3b"),
        ),
    ),
    Source(
        "NVIDIA/Megatron-LM",
        ("examples/*/*train*.sh", "examples/academic_paper_scripts/*/*.sh"),
        r"inference|generat|preprocess|eval_|prompt|data_processing|CONFIG|SBATCH|SRUN|prep_",
        supplied={"WORKSPACE": "/workspace"},
        nodes=("SLURM_NNODES", "NUM_NODES"),
        # of tokenizers that their users give
        filled=(
            ("train_mixtral_8x7b", "vocab-size", "32000"),
            ("examples/mamba/train", "vocab-size", "256000"),
        ),
    ),
    Source(
        "EleutherAI/gpt-neox",
        ("configs/**/*.yml",),
        r"local_setup|cluster|paths|slurm_local|text_generation|prof\.|sparse|train_config|mock",
        beside=(
            (r"/llama2?/|/mistral/", "configs/llama/train_config.yml"),
            (r"/pythia/|/finetuning", "configs/docker/pythia-paths.yml"),
        ),
        # files of tokenizers that a comment names and leaves to the user
        filled=(("mistral/7B", "vocab_size", "32000"), ("llemma/34B", "vocab_size", "32016")),
    ),
    Source("huggingface/nanotron", ("examples/**/*.yaml",)),
)

# Why files are none, in the words of their verdicts; the first that is found.
REASONS = (
    ("adapters (LoRA)", r"adapters"),
    (
        "another model than a decoder of text: pictures, sounds, hybrids, Mamba, RWKV, BERT, T5",
        r"VL|Omni|InternVL|hybrid|mamba|Mamba|rwkv|gmlp|T5|BERT|encoder-decoder|multimodal|gated",
    ),
    ("another head, as of a reward model or an embedding", r"task_type"),
    ("a layer of its own (`--spec`)", r"--spec|spec: found"),
    ("a model that is not in the catalogue, or none named", r"not here|expected the model|<path"),
    ("no page says the arguments of the script", r"\$\d+ is not set"),
    ("what Megatron-LM refuses, or a mistake in the file", ""),
)


class Verdict(NamedTuple):
    """A file, and what it becomes. gpus: of a job; 0: it is none."""

    path: str
    gpus: int
    text: str


def files_of(source: Source, folder: Path) -> list[Path]:
    """Return the files of a repository that train something."""
    found = {path for pattern in source.paths for path in folder.glob(pattern)}
    return sorted(path for path in found if not re.search(source.but, f"/{path}"))


class Call(NamedTuple):
    """A call of a script in a page. variables: that the block of code before it exports."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = {}


def documented(path: Path) -> Iterator[Call]:
    """Yield how READMEs beside a script, or a comment in it, call it."""
    call = re.compile(rf"(?:sh|bash)\s+(?:[\w./-]*/)?{re.escape(path.name)}((?:[^\n]*\\\n)*[^\n]*)")
    for page in (path, *sorted(path.parent.glob("README*"))):
        text = page.read_text(encoding="utf-8", errors="replace")
        for match in call.finditer(text):
            block = text[: match.start()].rpartition("\n```")[2] if page != path else ""
            exported = re.findall(r"(?m)^export (\w+)=([\w.-]+)$", block)
            words = re.sub(r"(?m)#.*$", "", match[1].replace("\\\n", " "))
            try:
                yield Call(shlex.split(words), dict(exported))
            except ValueError:
                continue


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Stay in a folder, as scripts are called from theirs."""
    before = os.environ.get("PWD", "")
    with contextlib.chdir(folder):
        os.environ["PWD"] = str(folder.resolve())
        try:
            yield
        finally:
            os.environ["PWD"] = before


def read(source: Source, folder: Path, path: Path, gpus: Gpus) -> Iterator[MegatronArguments]:
    """Yield what a file trains, once for each way that its documentation calls it."""
    filled = {key: value for name, key, value in source.filled if name in str(path)}
    if path.suffix == ".sh":
        nodes = str(gpus.devices // gpus.each)
        launcher = dict.fromkeys(source.nodes, nodes)
        called = [*documented(path)]
        other = [
            Call([source.choices.get(w, w) for w in one.arguments], one.variables)
            for one in called
            if source.choices
        ]
        for arguments, variables in (*called, *other, Call(())):
            yield read_script(
                path,
                arguments=arguments,
                environment={**os.environ, **source.supplied, **launcher, **variables},
                supplied=filled,
                gpus=gpus,
                strict=False,
            )
        return
    relative = str(path.relative_to(folder))
    others = [with_ for pattern, with_ in source.beside if re.search(pattern, f"/{relative}")]
    if not others:
        yield read_script(path, supplied=filled, gpus=gpus, strict=False)
        return
    words = ["deepy.py", "train.py", relative, *others]
    found = recognise_words(words, source=relative, folder=folder)
    assert found is not None
    yield read_recognised(found, supplied=filled, gpus=gpus)


def verdict(source: Source, folder: Path, path: Path) -> Verdict:
    """Return what a file becomes: a job on the fewest nodes that do, or why it is none."""
    name, first = str(path.relative_to(folder)), ""
    for nodes in NODES:
        gpus = Gpus(8 * nodes, 8, "cluster")
        ways = read(source, folder, path, gpus)
        while True:
            try:
                with inside(path.parent):
                    job = job_of_arguments(next(ways))
            except StopIteration:
                break
            except PlannerError as error:
                first = first or str(error).replace(f"{path}: ", "").replace(str(folder), ".")
                ways = iter(()) if path.suffix != ".sh" else ways
                continue
            degrees = f"tp {job.tp}, pp {job.pp}, dp {job.dp}"
            return Verdict(name, job.world, f"a job on {job.world} GPUs: {degrees}")
    return Verdict(name, 0, first.partition(" (and ")[0])


def reason_of(row: Verdict) -> str:
    """Return why a file is no job."""
    named = f"{row.path} {row.text}"
    return next(text for text, mark in REASONS if re.search(mark, named))


def main(root: Path) -> None:
    """Print a table for each repository, and one of all."""
    rows = ["| repository | files | become jobs |", "|---|---:|---:|"]
    tables, counts, why = [], [0, 0], Counter[str]()
    for source in SOURCES:
        folder: Path = root / source.repository.replace("/", "+")
        found = [verdict(source, folder, path) for path in files_of(source, folder)]
        jobs = sum(row.gpus > 0 for row in found)
        counts = [counts[0] + len(found), counts[1] + jobs]
        why.update(reason_of(row) for row in found if not row.gpus)
        rows.append(f"| {source.repository} | {len(found)} | {jobs} |")
        tables += ["", f"## {source.repository}", "", "| file | verdict |", "|---|---|"]
        for row in found:
            text = row.text.replace("|", "\\|").replace("<", "&lt;")
            tables.append(f"| {row.path} | {text} |")
    rows.append(f"| all | {counts[0]} | {counts[1]} ({counts[1] / max(1, counts[0]):.0%}) |")
    rows += ["", "| why others are none | files |", "|---|---:|"]
    rows += [f"| {text} | {why[text]} |" for text, _ in REASONS]
    print("\n".join([*rows, *tables]))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
