"""The table of inputs: a row for everything that a request says, besides the table of settings.

Options of commands, keywords of Python, axes of sweeps, keys of saved plans, and the words of
messages are made of it: a new input is a row here, a field of `Request`, and the module that uses
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ilp_planner.base.errors import UsageError, described
from ilp_planner.base.limits import MEMORY, as_whole, beyond
from ilp_planner.base.units import format_bytes, parse_size
from ilp_planner.specs.lengths import BATCHINGS
from ilp_planner.specs.training import PRECISIONS, QUANTISED

# The sections of options in the help of commands.
PROBLEM, RUNTIME, LIMITS = "Problem", "Runtime", "Limits"
PEERS = "For users of Metis and AMP"
DEFAULT_GLOBAL_BATCH = 1024
COSTS, SET = "costs", "set"  # what another value changes: what plans cost, or which plans there are


@dataclass(frozen=True)
class Kind(ABC):
    """Values of one kind. python: the annotation of a keyword."""

    python: ClassVar[str] = "str"

    @abstractmethod
    def read(self, name: str, value: object) -> Any:
        """Return the value that a text or an object of Python says.

        Raises
        ------
        UsageError: one line with the name, the value found and the values expected.
        """


@dataclass(frozen=True)
class Text(Kind):
    """A text. values: the possible ones; empty: others know them."""

    values: tuple[str, ...] = ()
    python = "str"

    def read(self, name: str, value: object) -> str:
        """Return the text; of a number, its digits."""
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        raise _error(name, value, "a text")


class Price(Text):
    """A number, or a text with several."""

    python = "float | str"


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number. least: the smallest one."""

    least: int = 1
    python = "int"

    def read(self, name: str, value: object) -> int:
        """Return the number."""
        number = value
        if isinstance(value, str) and value.strip().isdecimal():
            number = as_whole(value)
        if isinstance(number, bool) or not isinstance(number, int) or number < self.least:
            raise _error(name, value, f"a whole number of at least {self.least}")
        if expected := beyond(name, number):
            raise _error(name, value, expected)
        return number


@dataclass(frozen=True)
class Wholes(Kind):
    """Whole numbers of at least 1, each once."""

    python = "str | Sequence[int]"

    def read(self, name: str, value: object) -> tuple[int, ...]:
        """Return the numbers in the order given."""
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list | tuple | range):
            raise _error(name, value, "a list of whole numbers")
        each = [
            part for one in values for part in (one.split(",") if isinstance(one, str) else [one])
        ]
        return tuple(dict.fromkeys(Whole().read(name, one) for one in each))


@dataclass(frozen=True)
class Size(Kind):
    """Bytes of a device."""

    python = "str | float"

    def read(self, name: str, value: object) -> float:
        """Return the bytes."""
        size = value
        if isinstance(value, str):
            try:
                size = parse_size(value, what=name)
            except ValueError as error:
                raise UsageError(str(error)) from None
        if isinstance(size, bool) or not isinstance(size, int | float) or not size > 0:
            raise _error(name, value, "bytes, or a size with its unit: '28 GB'")
        if beyond(name, size):
            raise _error(name, value, f"at most {format_bytes(MEMORY)}")
        return float(size)


@dataclass(frozen=True)
class Flag(Kind):
    """Whether something is so."""

    python = "bool"

    def read(self, name: str, value: object) -> bool:
        """Return the truth value."""
        if isinstance(value, bool):
            return value
        if value not in ("true", "false"):
            raise _error(name, value, "true or false")
        return value == "true"


def _error(name: str, found: object, expected: str) -> UsageError:
    return UsageError(f"{name}: found {described(found)}, expected {expected}")


class Input(NamedTuple):
    """One row.

    name: of the attribute of a request. kind: its values. section, help, metavar: of the option.
    usual: what its help calls the value if nothing is said. keyword: of Python and of sweeps;
    empty: the name. option: of the command line; empty: the keyword with dashes. alias: another
    name of the axis of a sweep. key: in saved plans; empty: the name. changes: `COSTS`, `SET` or
    neither. limit: what `why` calls it as a limit of plans; empty: it is none. built: the attribute
    of the request of a problem that is built; empty: the name.
    """

    name: str
    kind: Kind
    section: str
    help: str
    metavar: str | None = None
    usual: str | bool = False
    keyword: str = ""
    option: str = ""
    alias: str = ""
    key: str = ""
    changes: str = ""
    limit: str = ""
    built: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """The possible texts; empty: of another kind, or others know them."""
        return self.kind.values if isinstance(self.kind, Text) else ()

    @property
    def said(self) -> str:
        """The keyword."""
        return self.keyword or self.name

    @property
    def typed(self) -> str:
        """The option."""
        return self.option or f"--{self.said.replace('_', '-')}"

    @property
    def attribute(self) -> str:
        """The attribute of the request of a problem that is built."""
        return self.built or self.name

    @property
    def saved(self) -> str:
        """The key in saved plans."""
        return self.key or self.attribute


INPUTS = (
    Input(
        "text_only",
        Flag(),
        PROBLEM,
        "Of a model of text and pictures or sounds, its text alone.",
    ),
    Input(
        "cost_model",
        Text(),
        PROBLEM,
        "Whose formulas say what a plan takes.",
        usual=True,
        changes=COSTS,
    ),
    Input(
        "space",
        Text(),
        RUNTIME,
        "Which plans: of operators on equal devices; of whole layers on any groups of devices, "
        "exactly those that Metis or AMP can choose from, or those that a training system runs.",
        usual="by model, devices and profile",
        alias="runtime",
        changes=COSTS,
    ),
    Input(
        "memory_rule",
        Text(("device", "metis")),
        PEERS,
        "What must fit: every device by itself, or Metis's sum over the devices of a stage.",
        usual="device",
        changes=COSTS,
    ),
    Input(
        "placement",
        Text(("default", "free")),
        PEERS,
        "For --cost-model amp: AMP's own order of ranks, or any, with its all-reduce formula "
        "repaired.",
        usual="default",
        changes=COSTS,
    ),
    Input(
        "shares",
        Text(("any", "even")),
        LIMITS,
        "For --space groups: replicas of one type may differ by a sample and the last micro-batch "
        "may be short; even: all are alike.",
        usual="any",
        changes=SET,
    ),
    Input(
        "stage_tp",
        Text(("one", "mixed")),
        LIMITS,
        "For --space groups: all replicas of a stage have one tensor-parallel degree; mixed: those "
        "of each device type their own.",
        usual="one",
        changes=SET,
    ),
    Input(
        "seats",
        Text(("packed", "spread")),
        LIMITS,
        "For --space groups: the replicas of a stage are packed on few nodes; spread: packed, or "
        "equally many on each of several nodes of one type.",
        usual="packed",
        changes=SET,
    ),
    Input(
        "experiment",
        Text(),
        PEERS,
        "Which cluster and model of an amp:FILE.",
        "NAME",
        changes=COSTS,
    ),
    Input(
        "precision",
        Text((*PRECISIONS, *QUANTISED)),
        RUNTIME,
        "Of training, or Transformer Engine's recipe of products in 8 or 4 bits, for a --runtime; "
        "the model's.",
        changes=COSTS,
    ),
    Input(
        "price",
        Price(),
        PROBLEM,
        "What a device costs per hour instead of what the cluster says: 2.5, of every type as "
        "a100=2.5,t4=0.4, or spot, for the spot prices of the cluster.",
        "PRICE",
    ),
    Input(
        "global_batch",
        Whole(),
        PROBLEM,
        "Samples per iteration; an experiment of AMP's has its own.",
        usual=str(DEFAULT_GLOBAL_BATCH),
        option="--global-batch-size",
        alias="global_batch_size",
        changes=COSTS,
    ),
    Input(
        "micro_batch",
        Wholes(),
        LIMITS,
        "Micro-batch sizes to try: samples of a replica for a --runtime, as its own options have "
        "it; for other spaces, as of Aceso and Metis, of all replicas together. All that are "
        "possible, or profiled.",
        "N...",
        keyword="micro_batch_sizes",
        option="--micro-batch-size",
        alias="micro_batch_size",
        changes=SET,
        limit="micro-batch sizes",
        built="micro_batch_sizes",
    ),
    Input(
        "memory_limit",
        Size(),
        LIMITS,
        "Memory of a device to use, as 28000MiB or 30GB; all of it. Of several types: at most "
        "this much of each.",
        "SIZE",
        key="memory_limit_bytes",
        limit="memory limit",
    ),
    Input(
        "max_stages",
        Whole(),
        LIMITS,
        "Pipeline stages at most.",
        changes=SET,
        limit="most stages",
    ),
    Input(
        "max_tp",
        Whole(),
        LIMITS,
        "Tensor-parallel degree at most; all that are profiled.",
        changes=SET,
        limit="most tensor parallelism",
    ),
    Input(
        "max_cp",
        Whole(),
        RUNTIME,
        "Context-parallel degree at most, for a --runtime; 8, or 1 where attention looks through a "
        "window or is not flash attention.",
        changes=SET,
        limit="most context parallelism",
    ),
    Input(
        "max_stage_nodes",
        Whole(),
        LIMITS,
        "Nodes that one stage of operators is on, at most; any that its costs know.",
        changes=SET,
        limit="most nodes of a stage",
    ),
    Input(
        "hidden",
        Whole(),
        PEERS,
        "Width of the layers of a metis:FOLDER; the model's.",
        keyword="hidden_size",
        changes=COSTS,
    ),
    Input(
        "sequence",
        Whole(),
        PROBLEM,
        "Tokens of a decoder's sample; the model's.",
        keyword="sequence_length",
        changes=COSTS,
    ),
    Input(
        "images",
        Whole(least=0),
        PROBLEM,
        "Images of a sample, or a document of --lengths, of a model with an encoder of images; "
        "the model's.",
        keyword="images_per_sample",
        changes=COSTS,
    ),
    Input(
        "image_size",
        Whole(),
        PROBLEM,
        "Pixels of an image's side, likewise.",
        changes=COSTS,
    ),
    Input(
        "audio_seconds",
        Whole(least=0),
        PROBLEM,
        "Seconds of sound of a sample, or a document of --lengths, of a model with an encoder of "
        "sounds; the model's.",
        changes=COSTS,
    ),
    Input(
        "batching",
        Text(BATCHINGS),
        RUNTIME,
        "Samples of the documents of --lengths: packed (whole ones up to the sequence length, each "
        "attends to itself alone), joined (end to end and cut, each sees those before), longest "
        "(one each, padded to the longest of its micro-batch), grouped (likewise, sorted "
        "in groups, as Hugging Face's group_by_length) or full (to the sequence length).",
        usual="packed",
        changes=COSTS,
    ),
    Input(
        "vocabulary",
        Whole(least=0),
        PEERS,
        "Entries of its word embedding, for --cost-model metis; the model's.",
        keyword="vocab_size",
        changes=COSTS,
    ),
)
BY_KEYWORD = {row.said: row for row in INPUTS}
BY_NAME = {row.name: row for row in INPUTS}
