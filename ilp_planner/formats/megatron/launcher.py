"""What stands before Megatron's own arguments: environment, torchrun, srun, mpirun, the program."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ilp_planner.errors import SpecError
from ilp_planner.formats.megatron.flags import flags
from ilp_planner.formats.megatron.values import CP, EP, ETP, PP, TP, MegatronArguments
from ilp_planner.limits import DIGITS, RANKS

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Options of torchrun that stand alone; all others take a value.
ALONE = {"standalone", "no-python", "run-path", "module", "m", "use-env", "no-use-env"}
TORCH = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
# The analysis tool takes torchrun's options after its own name.
ANALYSIS_TOOL = "get_training_info.py"
OTHER_MODELS = {
    "pretrain_bert.py": "BERT",
    "pretrain_t5.py": "T5",
    "pretrain_mamba.py": "Mamba",
    "pretrain_hybrid.py": "hybrids of attention and Mamba",
    "pretrain_retro.py": "Retro",
    "pretrain_ict.py": "bi-encoders",
    "pretrain_vlm.py": "vision-language models",
    "pretrain_vision_classify.py": "vision models",
    "pretrain_vision_dino.py": "vision models",
    "pretrain_vision_inpaint.py": "vision models",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line taken apart.

    environment: what stands before the command. world, devices_per_node: 0: the launcher does not
    say. words: Megatron's arguments.
    """

    words: tuple[str, ...]
    program: str = "pretrain_gpt.py"
    environment: Mapping[str, str] = field(default_factory=dict)
    world: int = 0
    devices_per_node: int = 0


def split_launch(words: Sequence[str]) -> Launch:
    """Take a command line apart; arguments alone are one as well.

    Raises
    ------
    SpecError: no program or arguments in it, a launcher's option without its value, or a program
    that trains another kind of model.
    """
    rest: list[str] = list(words)
    environment: dict[str, str] = {}
    while rest and (rest[0] in ("env", "exec", "export") or ASSIGNMENT.fullmatch(rest[0])):
        if match := ASSIGNMENT.fullmatch(rest.pop(0)):
            environment[match[1]] = match[2]
    if not rest:
        raise SpecError("expected Megatron's arguments, found an empty command line")
    if rest[0].removeprefix("--").partition("=")[0] in flags():
        return _launch([], "pretrain_gpt.py", rest, environment)
    at = next((i for i, word in enumerate(rest) if word.endswith(".py")), None)
    if at is None:
        if rest[0].startswith("--"):
            return _launch([], "pretrain_gpt.py", rest, environment)
        raise SpecError(f"expected pretrain_gpt.py and its arguments, found {rest[0]!r}")
    launcher, program, rest = rest[:at], rest[at], rest[at + 1 :]
    name = PurePosixPath(program).name
    if name in OTHER_MODELS:
        raise SpecError(
            f"{program}: found a program that trains {OTHER_MODELS[name]}, expected decoder-only "
            "transformers (pretrain_gpt.py)"
        )
    if name == ANALYSIS_TOOL:
        options, rest = _torch_options_after(rest)
        launcher = [*launcher, "torchrun", *options]
        program = "pretrain_gpt.py"
    return _launch(launcher, program, rest, environment)


def _launch(
    launcher: list[str], program: str, words: list[str], environment: dict[str, str]
) -> Launch:
    world, devices = _world(launcher, environment)
    return Launch(
        words=tuple(words),
        program=program,
        environment=environment,
        world=world,
        devices_per_node=devices,
    )


def smallest_world(args: MegatronArguments) -> int:
    """Return the fewest ranks that hold one replica of everything."""
    tp, pp, cp, ep, etp = map(args.whole, (TP, PP, CP, EP, ETP))
    return math.lcm(max(1, tp * pp * cp), max(1, (etp or tp) * ep * pp))


def _world(launcher: list[str], environment: Mapping[str, str]) -> tuple[int, int]:
    """Return ranks, and those of a node, as the launcher or the environment says; 0: unknown."""
    torch = next((i for i, word in enumerate(launcher) if _is_torch(word)), None)
    if torch is not None:
        options = _options(launcher[torch + 1 :], alone=ALONE)
        nodes = _count("--nnodes", options.get("nnodes", "1"))
        each = _count("--nproc_per_node", options.get("nproc-per-node", "1"))
        return nodes * each, each
    if launcher and PurePosixPath(launcher[0]).name in ("srun", "mpirun", "mpiexec"):
        return _tasks(launcher)
    if (text := environment.get("WORLD_SIZE", "")).isdecimal():
        return _count("WORLD_SIZE", text), 0
    return 0, 0


def _tasks(launcher: list[str]) -> tuple[int, int]:
    """Return the same of srun or mpirun, which start one process per rank."""
    options = _options(launcher[1:], alone=set())
    total = options.get("ntasks") or options.get("n") or options.get("np")
    each = options.get("ntasks-per-node") or options.get("npernode")
    nodes = options.get("nodes") or options.get("N")
    per_node = _count("--ntasks-per-node", each) if each else 0
    if total:
        return _count("--ntasks", total), per_node
    if per_node and nodes:
        return per_node * _count("--nodes", nodes), per_node
    return 0, per_node


def _is_torch(word: str) -> bool:
    return word in TORCH or PurePosixPath(word).name == "torchrun"


def _options(words: list[str], *, alone: set[str]) -> dict[str, str]:
    """Return options by name, with dashes; what is no option is passed over."""
    found, rest = {}, list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if equals:
            found[name] = value
        elif name not in alone and rest and not rest[0].startswith("-"):
            found[name] = rest.pop(0)
        else:
            found[name] = ""
    return found


def _torch_options_after(words: list[str]) -> tuple[list[str], list[str]]:
    """Return torchrun's options and the rest."""
    names = {"nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port"}
    options, rest, others = [], list(words), []
    while rest:
        word = rest.pop(0)
        name = word.lstrip("-").partition("=")[0].replace("_", "-")
        if word.startswith("--") and name in names:
            options.append(word)
            if "=" not in word and rest:
                options.append(rest.pop(0))
        else:
            others.append(word)
    return options, others


def _count(option: str, text: str) -> int:
    # Elastic torchrun takes MIN:MAX; the plan is for all that may come.
    last = text.rpartition(":")[2]
    if not last.isdecimal() or int(last[:DIGITS]) < 1:
        raise SpecError(f"{option}: found {text!r:.80}, expected a whole number of at least 1")
    if int(last[:DIGITS]) > RANKS:
        raise SpecError(f"{option}: found {text!r:.80}, expected at most {RANKS}")
    return int(last)
