"""The launch of Megatron-LM in a bash script, found without running it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ilp_planner.errors import SpecError
from ilp_planner.file_kinds import FileKind, refuse_other_kind
from ilp_planner.files import read_json
from ilp_planner.formats.megatron.arguments import MegatronArguments, read_arguments
from ilp_planner.formats.megatron.flags import flags
from ilp_planner.formats.megatron.launcher import ANALYSIS_TOOL, OTHER_MODELS
from ilp_planner.launch_scripts.evaluation import Command, evaluate_script
from ilp_planner.launch_scripts.values import first_mark, without_marks

# Values of these arguments may be unknown: paths and names that change nothing here.
HARMLESS_TOPICS = ("data", "checkpoints", "logging", "inference")
NEEDED = ("tokenizer-type",)
# Options of launchers that say where, not how many.
HARMLESS_OPTIONS = {
    "master-addr", "master-port", "node-rank", "rdzv-endpoint", "rdzv-id", "rdzv-backend",
    "log-dir", "machine-rank", "local-addr",
}  # fmt: skip
QUOTED = re.compile(r"(['\"])([^'\"\n]*\s[^'\"\n]*)\1")  # texts with blanks
SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)


def read_script(
    path: Path,
    world: int | None = None,
    *,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> MegatronArguments:
    """Return what a launch script trains.

    Parameters
    ----------
    world: ranks; None: what the script says.
    arguments: of the script ($1 ...).
    environment: what is set before the script starts; None: what is set now.

    Raises
    ------
    SpecError: not there, not bash, no launch in it, or a variable that is not set.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: must be a UTF-8 text, found other bytes") from None
    set_before = {**_sbatch_variables(text), **(os.environ if environment is None else environment)}
    commands = evaluate_script(text, str(path), arguments=arguments, environment=set_before)
    launch, *others = _find_launches(commands, path)
    words = [_known(word, k, launch.words, path) for k, word in enumerate(launch.words)]
    if "torchrun" not in " ".join(words) and not world:
        world = _tasks(words, set_before)
    try:
        args = read_arguments(
            words,
            world,
            environment={name: without_marks(value) for name, value in launch.environment.items()},
            source=f"{path}: line {launch.line}",
        )
    except SpecError as error:
        raise SpecError(f"{error}{_split_text(text, str(error))}") from None
    remarks = tuple(
        f"line {other.line}: another launch, not read; the one of line {launch.line} is"
        for other in others
    )
    return replace(args, remarks=remarks)


def read_launch(launch: str, *, environment: Mapping[str, str] | None = None) -> MegatronArguments:
    """Return what a launch trains: a script, an exported JSON file, or the arguments themselves.

    Raises
    ------
    SpecError: it is none of them.
    """
    if launch.lstrip().startswith("-") or " -" in launch:
        return read_arguments(launch)
    path = Path(launch)
    refuse_other_kind(path, FileKind.LAUNCH, SpecError)
    if path.suffix != ".json":
        return read_script(path, environment=environment)
    found = read_json(path, SpecError)
    argv = found.get("argv") if isinstance(found, dict) else None
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise SpecError(f"{path}: argv: expected the arguments as a list of texts")
    ranks, each, variables = (
        found.get(key) for key in ("world_size", "devices_per_node", "environment")
    )
    args = read_arguments(
        argv,
        ranks if isinstance(ranks, int) and ranks > 0 else None,
        environment=variables if isinstance(variables, dict) else None,
        source=str(path),
    )
    return replace(args, devices_per_node=each) if isinstance(each, int) and each > 0 else args


def _split_text(script: str, complaint: str) -> str:
    """Return which quoted text with blanks the word of a complaint comes from, where an array that
    holds the text is expanded without quotes; empty where none is."""
    for match in QUOTED.finditer(script):
        stray = any(f"{word!r}: expected an argument" in complaint for word in match[2].split())
        arrays = re.findall(r"([A-Za-z_]\w*)\+?=\(", script[: match.start()])
        bare = arrays and re.search(rf"(?<![\"\w])\$\{{{arrays[-1]}\[[@*]\]\}}", script)
        if stray and bare:
            at, use = (script.count("\n", 0, m.start()) + 1 for m in (match, bare))
            return (
                f": {match[0]} of line {at} falls apart as line {use} expands {bare[0]} without "
                f'quotes; "${{{arrays[-1]}[@]}}" keeps it whole'
            )
    return ""


def _find_launches(commands: Sequence[Command], path: Path) -> list[Command]:
    """Return the commands that look as if they train, in order; at least one."""
    found = []
    for command in commands:
        programs = [w for w in command.words if PurePosixPath(without_marks(w)).suffix == ".py"]
        names = {PurePosixPath(program).name for program in programs}
        known = names & {ANALYSIS_TOOL, *OTHER_MODELS} or any(
            name.startswith("pretrain") for name in names
        )
        if known or (programs and "--micro-batch-size" in command.words):
            found.append(command)
    if found:
        return found
    raise SpecError(
        f"{path}: found no launch of pretrain_gpt.py, expected one by torchrun, srun, mpirun or "
        "python that can be read without running the script"
    )


def _known(word: str, at: int, words: Sequence[str], path: Path) -> str:
    """Return a word of the launch, where what is unknown in it does not matter."""
    found = first_mark(word)
    if found is None:
        return word
    text, line = found
    # The flag that it is a value of: the last one before it.
    before = next((w for w in reversed(words[:at]) if w.startswith("-")), "")
    inside = word.partition("=")[0] if word.startswith("--") else before
    name = inside.lstrip("-").replace("_", "-")
    flag = flags().get(inside.lstrip("-"))
    if name in HARMLESS_OPTIONS:
        return without_marks(word)
    use = f" (in the value of {inside})" if flag else ""
    if re.fullmatch(r"\$[A-Za-z_]\w*", text):
        variable = text[1:]
        raise SpecError(
            f"{path}: line {line}: variable {variable} is not set{use}: expected "
            f"{variable}=VALUE in the script or before the command"
        )
    # Paths that come from the script's own arguments or from commands change nothing here.
    harmless = flag and flag.kind == "str" and flag.topic in HARMLESS_TOPICS
    program = PurePosixPath(without_marks(word)).name.startswith(("pretrain", "torchrun", "python"))
    if program or (harmless and name not in NEEDED):
        return without_marks(word)
    if text[1:].isdecimal():
        raise SpecError(
            f"{path}: line {line}: {text} is not set{use}: expected argument {text[1:]} of the "
            "script"
        )
    if text.startswith("<"):
        raise SpecError(f"{path}: line {line}: found {text}{use}, expected a value in its place")
    raise SpecError(
        f"{path}: line {line}: found {text}{use}, which only running the script would tell, "
        "expected a value"
    )


def _sbatch_variables(text: str) -> dict[str, str]:
    """Return the variables that Slurm sets from the script's own directives."""
    options = " ".join(SBATCH.findall(text))
    found = {}
    patterns = {
        "SLURM_NNODES": r"(?:--nodes[= ]|-N\s*)(\d+)",
        "SLURM_NTASKS_PER_NODE": r"--n?tasks-per-node[= ](\d+)",
        "SLURM_NTASKS": r"(?:--ntasks[= ]|-n\s*)(\d+)",
        "SLURM_GPUS_PER_NODE": r"--gpus-per-node[= ](?:\w+:)?(\d+)",
    }
    for name, pattern in patterns.items():
        if match := re.search(pattern, options):
            found[name] = match[1]
    if "SLURM_NNODES" in found:
        found["SLURM_JOB_NUM_NODES"] = found["SLURM_NNODES"]
        if "SLURM_NTASKS_PER_NODE" in found and "SLURM_NTASKS" not in found:
            each = int(found["SLURM_NTASKS_PER_NODE"])
            found["SLURM_NTASKS"] = str(int(found["SLURM_NNODES"]) * each)
    return found


def _tasks(words: Sequence[str], variables: Mapping[str, str]) -> int | None:
    """Return the ranks of srun without numbers of its own, as Slurm counts them."""
    if not words or PurePosixPath(words[0]).name != "srun":
        return None
    if any(re.match(r"(-n|--ntasks)", word) for word in words):
        return None
    text = variables.get("SLURM_NTASKS", "")
    return int(text) if text.isdecimal() and int(text) else None
