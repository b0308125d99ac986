"""The words before Megatron's own arguments: environment, launchers, the program."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ilp_planner.base.errors import SpecError
from ilp_planner.formats.megatron.flags import flags
from ilp_planner.formats.megatron.launchers import OWN, is_launcher, own_options_first
from ilp_planner.formats.megatron.values import CP, EP, ETP, PP, PROGRAM, TP, MegatronArguments

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Programs of Megatron-LM have no options of a launcher; its analysis tool, and those that train on
# Ray, have some.
OF_MEGATRON = "pretrain_"
ANALYSIS_TOOL = "get_training_info.py"
OF_PYTHON = ("-u", "-O", "-B", "--")  # options without a value, behind which a program stands
# Arguments that say a model: what has several of them is told one in Megatron's words.
OF_MODELS = ("num-layers", "hidden-size", "num-attention-heads", "micro-batch-size")
# What other programs do, by patterns of the ends of their paths.
OTHERS = (
    (r"pretrain_bert\.py", "trains BERT"),
    (r"pretrain_t5\.py", "trains T5"),
    (r"pretrain_retro\.py", "trains Retro"),
    (r"pretrain_ict\.py", "trains bi-encoders"),
    (r"pretrain_vlm\.py", "trains vision-language models"),
    (r"pretrain_vision_\w+\.py", "trains vision models"),
    (r"tasks/main\.py", "evaluates, or trains classifiers"),
    (r"tasks/(.*/)?main\.py", "prompts and evaluates"),
    (r"(evaluate|eval)(_\w+)?\.py", "evaluates"),
    (r"(generate|run_text_generation|gpt_(static|dynamic)_inference)(_\w+)?\.py", "answers"),
    (r"(preprocess|analyze|prepare)(_\w+)?\.py|preprocessing\.py", "prepares data"),
    (r"(convert|merge)(_\w+)?\.py|\w+_converter\.py", "rewrites checkpoints"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A command line taken apart.

    environment: words before the command. launcher: words before the program, and options of the
    program about its start. words: Megatron's arguments.
    """

    words: tuple[str, ...]
    program: str = PROGRAM
    environment: Mapping[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()


def split_launch(words: Sequence[str]) -> Launch:
    """Take a command line apart; arguments alone are one as well.

    Raises
    ------
    SpecError: no program or arguments in it, or a program that trains another kind of model.
    """
    rest: list[str] = list(words)
    environment: dict[str, str] = {}
    while rest and (rest[0] in ("env", "exec", "export") or ASSIGNMENT.fullmatch(rest[0])):
        if match := ASSIGNMENT.fullmatch(rest.pop(0)):
            environment[match[1]] = match[2]
    if not rest:
        raise SpecError("expected Megatron's arguments, found an empty command line")
    at = program_place(rest)
    if at is None:
        if rest[0].startswith("--"):
            return Launch(words=tuple(rest), environment=environment)
        raise SpecError(f"expected pretrain_gpt.py and its arguments, found {rest[0]!r}")
    launcher, program, rest = rest[:at], rest[at], rest[at + 1 :]
    if does := other_program(program):
        raise SpecError(
            f"{program}: found a program that {does}, expected one that trains decoder-only "
            "transformers (pretrain_gpt.py)"
        )
    own, rest = own_options(program, rest)
    if PurePosixPath(program).name == ANALYSIS_TOOL:
        program = PROGRAM
    return Launch(
        words=tuple(rest),
        program=program,
        environment=environment,
        launcher=(*launcher, *own),
    )


def other_program(path: str) -> str:
    """Return what a program does that trains no decoder; empty if nothing else is known."""
    return next((does for mark, does in OTHERS if re.search(f"(^|/)({mark})$", path)), "")


def own_options(program: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of a program about its start, as those of a launcher, and the rest of its
    words."""
    if PurePosixPath(program).name.startswith(OF_MEGATRON):
        return [], list(words)
    options, rest = own_options_first(words)
    return [OWN, *options] if options else [], rest


def program_place(words: Sequence[str]) -> int | None:
    """Return the place of the program among the words of a launch: a file of Python, a module, or
    the word before Megatron's first argument; None: there is none."""
    first = next((k for k, word in enumerate(words) if _is_flag(word)), len(words))
    for k, word in enumerate(words[:first]):
        if PurePosixPath(word).suffix == ".py":
            return k
    for k, word in enumerate(words[: first - 1]):
        if word in ("-m", "--module") and not is_launcher(words[k + 1]):
            return k + 1
    if not 0 < first < len(words):
        return None
    behind = words[first - 2] if first > 1 else ""
    return first - 1 if behind[:1] != "-" or behind in OF_PYTHON else None


def _is_flag(word: str) -> bool:
    name = word.removeprefix("--").partition("=")[0]
    return word.startswith("--") and name in flags()


def smallest_world(args: MegatronArguments) -> int:
    """Return the fewest ranks that hold one replica of everything."""
    tp, pp, cp, ep, etp = map(args.whole, (TP, PP, CP, EP, ETP))
    return math.lcm(max(1, tp * pp * cp), max(1, (etp or tp) * ep * pp))
