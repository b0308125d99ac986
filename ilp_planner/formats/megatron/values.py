"""The values of Megatron-LM's arguments: from words to values, and back."""

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import DIGITS, DIMENSION, FIGURE, LAYERS, STAGES, WHOLE, beyond
from ilp_planner.formats.megatron.flags import Flag, Value, find_flag, flags, flags_by_key
from ilp_planner.specs.lengths import JOINED, PACKED

PROGRAM = "pretrain_gpt.py"  # Megatron-LM's own
TP, PP, CP = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
# Numbers that other systems say instead of what follows from them.
REPLICAS, SHARDS, STEPS = "@replicas", "@shards", "@micro-batches"
VIRTUAL = "num_virtual_stages_per_pipeline_rank"
EP, ETP = "expert_model_parallel_size", "expert_tensor_parallel_size"
LONGEST_PATTERN = 4 * LAYERS  # characters: an entry for every layer has no more
FLAG = re.compile(r"--[a-z][\w-]*")
COUNTED_FULL = "counted as full ones"  # the end of notes on samples of unknown documents
SHOWN = 80  # characters of a word in a message
PATTERN_CHARACTERS = set("0123456789,[]()+* ")


Form = Callable[[str, tuple[str, ...]], tuple[str, ...]]  # words of a key and its values


def assigned(key: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return a key and its values as a file has them."""
    return (f"{key} = {','.join(values)}",)


class Spelling(NamedTuple):
    """Another system's words for arguments of Megatron-LM.

    keys: by flag, and by what no argument says. plain: keys with just the value of an argument.
    pairs: by argument and value, the key and its words where they differ. form: writes a key and
    its values. launched: as words of a launch line. leaves: arguments whose keys may be left out of
    it, with their values then; None: keys of a file, or overrides of one, which have null instead.
    """

    keys: Mapping[str, str]
    plain: Mapping[str, str]
    pairs: Mapping[tuple[str, Value], tuple[str, tuple[str, ...]]]
    form: Form
    launched: bool = False
    leaves: Mapping[str, Value] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MegatronArguments:
    """One launch of Megatron-LM.

    values: the given ones, by key. world: ranks; the fewest that can run these arguments if nothing
    says (world_said). devices_per_node: ranks that a launcher starts on each node.
    launch: how many ranks there are beside a cluster, in words, if that is not as many as it has or
    was taken from it. environment: variables that are set, as far as known; None: unknown.
    source: for messages. remarks: on unread arguments. unread: arguments that Megatron-LM does not
    have, word for word. spelling: of a job of another system, its words for arguments of Megatron.
    beyond: fields of settings that no argument says, by name. runtime: the training system that
    judges the job; empty: Megatron-LM. features: fields of the model that no argument says.
    batching: how another system makes samples of documents (`specs.lengths`); empty: unknown.
    longer: what it does with longer ones, one of `LONGER` there; empty: unknown.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    world: int = 1
    world_said: bool = True
    devices_per_node: int = 8
    environment: Mapping[str, str] | None = None
    program: str = PROGRAM
    source: str = ""
    remarks: tuple[str, ...] = field(default=(), compare=False)
    unread: tuple[str, ...] = field(default=(), compare=False)
    launch: str = field(default="", compare=False)
    beyond: Mapping[str, Value] = field(default_factory=dict)
    runtime: str = ""
    features: Mapping[str, Any] = field(default_factory=dict)
    batching: str = ""
    longer: str = ""
    spelling: "Spelling | None" = field(default=None, compare=False)

    def __getitem__(self, key: str) -> Value:
        """Return a value, or Megatron's default."""
        if key in self.values:
            return self.values[key]
        return flags_by_key()[key][0].default

    @property
    def is_megatrons(self) -> bool:
        """Whether Megatron-LM's own program runs it, in its newest release, or what says to be."""
        return self.spelling is not None or PurePosixPath(self.program).name == PROGRAM

    @property
    def makes_samples(self) -> str:
        """How samples are made of documents, one of `BATCHINGS`; empty: it does not say. The GPT
        data set joins documents; others of Megatron-LM have packs."""
        if self.spelling is not None:
            return self.batching
        packs = self.on("sft") or self.on("use_varlen_dataset")
        return PACKED if packs else JOINED

    def given(self, key: str) -> bool:
        """Whether a value was given."""
        return self[key] is not None if key in self.values else False

    def on(self, key: str) -> bool:
        """Return a switch."""
        return bool(self[key])

    def whole(self, key: str) -> int:
        """Return a whole number, 0 if there is none."""
        value = self[key]
        return value if isinstance(value, int) else 0

    def number(self, key: str) -> float:
        """Return a number, 0 if there is none."""
        value = self[key]
        return float(value) if isinstance(value, int | float) else 0.0

    def text(self, key: str) -> str:
        """Return a word, empty if there is none."""
        value = self[key]
        return value if isinstance(value, str) else ""

    def words(self, key: str) -> tuple[str, ...]:
        """Return several words."""
        value = self[key]
        return tuple(str(v) for v in value) if isinstance(value, tuple) else ()

    def spelled(self, text: str) -> str:
        """Return a text about arguments in the words of the system that the job is of."""
        if self.spelling is None:
            return text
        keys = self.spelling.keys
        return FLAG.sub(lambda match: keys.get(match[0], match[0]), text)

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the words of the command line after the program."""
        return tuple(word for key, value in self.values.items() for word in write_value(key, value))


def model_parallel(args: MegatronArguments) -> int:
    """Return the ranks of one replica; expert parallelism does not count."""
    cp = args.beyond.get("cp") or args.whole(CP)
    assert isinstance(cp, int)
    return max(1, args.whole(TP)) * max(1, args.whole(PP)) * max(1, cp)


def data_parallel_of(args: MegatronArguments) -> int:
    """Return the replicas."""
    return max(1, args.world // model_parallel(args))


def given(*rows: tuple[str, Value, object]) -> dict[str, Value]:
    """Return the values of the keys with a true condition, the last of a row."""
    return {key: value for key, value, condition in rows if condition}


def parse_values(words: Sequence[str]) -> dict[str, Value]:
    """Return the values that the words of a command line give, by key; the last one counts.

    Raises
    ------
    SpecError: an argument that Megatron's parser does not understand, with the expected form.
    """
    values: dict[str, Value] = {}
    rest = list(words)
    unknown: SpecError | None = None
    others = 0
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise SpecError(f"{word!r}: expected an argument that begins with --, found this value")
        name, equals, inside = word.partition("=")
        if unknown and not _is_known(name):  # only the first one is said
            others += 1
            take_values(rest, None)
            continue
        try:
            flag = find_flag(name)
        except SpecError as error:
            unknown = error
            take_values(rest, None)
            continue
        if equals and flag.most == 0:
            raise SpecError(f"{name}: found {inside!r}, expected no value: it is a switch")
        given = [inside] if equals else take_values(rest, flag.most)
        values[flag.key] = read_value(flag, given)
    if unknown:
        more = f" (and {others} more unknown)" if others else ""
        raise SpecError(f"{unknown}{more}")
    check_stages(values)
    return values


def check_stages(values: Mapping[str, Value]) -> None:
    """Refuse a pipeline of more stages than there are, before a layout is made of them."""
    ranks, each = (values.get(key) for key in (PP, VIRTUAL))
    stages = (ranks if isinstance(ranks, int) else 1) * (each if isinstance(each, int) else 1)
    if stages > STAGES:
        raise SpecError(
            f"--pipeline-model-parallel-size: found a pipeline of {stages} stages, expected at "
            f"most {STAGES}"
        )


def _is_known(name: str) -> bool:
    return name.removeprefix("--") in flags()


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that Megatron-LM has arguments for, and the others."""
    known: list[str] = []
    others: list[str] = []
    current = known
    for word in words:
        if word.startswith("--"):
            current = known if word[2:].partition("=")[0] in flags() else others
        current.append(word)
    return known, others


def write_value(key: str, value: Value) -> tuple[str, ...]:
    """Return the words that give a key its value; none if it is the default of a switch.

    Raises
    ------
    ValueError: no argument can say it.
    """
    named = flags_by_key()[key]
    if isinstance(value, bool):
        switch = next((f for f in named if f.kind == "switch" and f.sets is value), None)
        if switch is not None:
            return (switch.text,)
        if value is named[0].default:
            return ()
        raise ValueError(f"{named[0].text} cannot say {value}")
    if value is None:
        return ()
    flag = named[0]
    if flag.kind == "pattern" and isinstance(value, tuple):
        return flag.text, write_pattern(value)
    if flag.kind == "sizes" and isinstance(value, tuple):
        return _said(flag, ",".join(str(v) for v in value))
    if isinstance(value, tuple):
        words = tuple(_word(v) for v in value)
        if flags := [word for word in words if _is_flag(word)]:
            raise ValueError(f"{flag.text} cannot say {flags[0]!r} among its values")
        return (flag.text, *words)
    return _said(flag, _word(value))


def _said(flag: Flag, word: str) -> tuple[str, ...]:
    """Return a flag with its value: in one word if parsers would take the value for a flag."""
    if _is_flag(word):
        return (f"{flag.text}={word}",)
    return flag.text, word


def read_pattern(text: str) -> Value:
    """Return a number, or the list that `([0]*3+[1]*5)*2` means.

    Raises
    ------
    ValueError: it is neither, or has too many entries.
    """
    if "[" not in text:
        return _whole(text)
    if len(text) > LONGEST_PATTERN:
        raise ValueError(f"more than {LONGEST_PATTERN} characters")
    if set(text) - PATTERN_CHARACTERS:
        raise ValueError(text)
    try:
        tree = ast.parse(text.strip(), mode="eval")
        found = _evaluate(tree.body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(text) from None
    if not isinstance(found, tuple):
        raise ValueError(text)
    return found


def write_pattern(entries: tuple[int | float | str, ...]) -> str:
    """Return a list of numbers, runs as `[1]*n`."""
    parts: list[str] = []
    start = 0
    for end in range(1, len(entries) + 1):
        if end == len(entries) or entries[end] != entries[start]:
            count = end - start
            parts.append(f"[{entries[start]}]" + (f"*{count}" if count > 1 else ""))
            start = end
    return f"({'+'.join(parts)})" if parts else "[]"


def _evaluate(node: ast.expr) -> int | tuple[int, ...]:
    """Return a whole number, or a list of them: sums and products of lists only."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.List):
        entries = [_evaluate(element) for element in node.elts]
        if all(isinstance(entry, int) for entry in entries):
            return tuple(entry for entry in entries if isinstance(entry, int))
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Add):
            if isinstance(left, int) and isinstance(right, int):
                return left + right
            if isinstance(left, tuple) and isinstance(right, tuple):
                if len(left) + len(right) > LAYERS:
                    raise ValueError(f"more than {LAYERS} entries")
                return left + right
        elif isinstance(node.op, ast.Mult):
            if isinstance(left, int) and isinstance(right, int) and abs(left * right) <= LAYERS:
                return left * right
            entries_of, times = (left, right) if isinstance(left, tuple) else (right, left)
            if isinstance(entries_of, tuple) and isinstance(times, int):
                if len(entries_of) * times > LAYERS:
                    raise ValueError(f"more than {LAYERS} entries")
                return entries_of * times
    raise ValueError(ast.dump(node)[:100])


def take_values(rest: list[str], most: int | None) -> list[str]:
    """Remove the values that follow a flag and return them."""
    taken: list[str] = []
    while rest and (most is None or len(taken) < most) and not _is_flag(rest[0]):
        taken.append(rest.pop(0))
    return taken


def _is_flag(word: str) -> bool:
    """Whether a word cannot be a value: as argparse, negative numbers can."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return " " not in word
    return False


def read_value(flag: Flag, given: list[str]) -> Value:
    """Return the value of a flag from the words behind it.

    Raises
    ------
    SpecError: too few words, or one of another type, beyond its limit or not among the choices.
    """
    if flag.kind == "switch":
        return flag.sets
    if len(given) < flag.least:
        expected = "a value" if flag.least == 1 else f"{flag.least} values"
        found = f"found {len(given)}" if given else "found none"
        raise SpecError(f"{flag.text}: expected {expected} after it, {found}")
    values = [_convert(flag, text) for text in given]
    if not flag.many:
        return values[0]
    return tuple(value for value in values if isinstance(value, int | float | str))


def _convert(flag: Flag, text: str) -> Value:
    try:
        value = _typed(flag, text)
    except ValueError:
        expected = {
            "int": "a whole number",
            "float": "a number",
            "pattern": "a whole number or a list such as ([0]*3+[1]*5)",
            "sizes": "whole numbers such as 128,0",
        }[flag.kind]
        if flag.kind != "float" and re.fullmatch(r"\s*[+-]?[0-9_]{19,}\s*", text):
            expected = f"a whole number of at most {WHOLE}"
        raise SpecError(f"{flag.text}: found {_shown(text)}, expected {expected}") from None
    for number in value if isinstance(value, tuple) else (value,):
        limit = FIGURE if isinstance(number, float) else DIMENSION
        if isinstance(number, int | float) and (expected := beyond(flag.key, abs(number), limit)):
            raise SpecError(f"{flag.text}: found {_shown(text)}, expected {expected}")
    if flag.choices and str(value) not in flag.choices:
        choices = ", ".join(flag.choices)
        raise SpecError(f"{flag.text}: found {_shown(text)}, expected one of {choices}")
    return value


def _shown(text: str) -> str:
    """Return a word as messages show it: not all of a long one."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}... ({len(text)} characters)"


def _whole(text: str) -> int:
    """Return a whole number.

    Raises
    ------
    ValueError: it is none, or beyond what any argument means.
    """
    if len(text.strip()) > DIGITS or abs(value := int(text)) > WHOLE:
        raise ValueError(text[:DIGITS])
    return value


def _typed(flag: Flag, text: str) -> Value:
    if flag.kind == "int":
        return _whole(text)
    if flag.kind == "float":
        value = float(text)
        if math.isnan(value):
            raise ValueError(text)
        return value
    if flag.kind == "pattern":
        return read_pattern(text)
    if flag.kind == "sizes":
        return tuple(_whole(part) for part in text.strip("()").split(","))
    return text


def _word(value: Value) -> str:
    # repr of a float is the shortest text that gives the same number again.
    return repr(value) if isinstance(value, float) else str(value)
