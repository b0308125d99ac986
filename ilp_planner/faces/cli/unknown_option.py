"""Options that a command lacks: one of another command, or a word of a training system.

Words are looked for among Megatron-LM's arguments and the keys of all systems whose files are read.
Their rows say arguments of Megatron-LM, and these the settings. It is imported where an option is
not known.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.faces.cli.wording import option_of
from ilp_planner.formats import imported
from ilp_planner.formats.imported.table import (
    EACH,
    LENGTH,
    MODEL,
    NODES,
    WORLD,
    System,
)
from ilp_planner.formats.megatron.flags import flags_by_key
from ilp_planner.inputs.table import BY_KEYWORD
from ilp_planner.settings.table import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Collection

    from ilp_planner.formats.imported.rows import Says

# ---- options of other commands -------------------------------------------------------------------

MOST_NAMED = 3  # of the commands with an option
VARY = "--vary"


class Instead(NamedTuple):
    """An option that says the same in another command. more: how; empty: with the value of the
    option that the command lacks."""

    option: str
    more: str = ""


OF_MODEL = Instead("--model", " with a file that has the number")
OF_CLUSTER = Instead("--cluster", " with a file of these nodes")
OF_SYSTEM = (
    " with a launch or a configuration of the system; options are judged as Megatron-LM runs them, "
    "but for settings that it lacks"
)
# Option -> what says the same; the first counts that a command has.
INSTEAD: Mapping[str, tuple[Instead, ...]] = {
    **dict.fromkeys(
        (BY_KEYWORD["space"].typed, "--runtime"),
        (Instead("--to"), Instead("--megatron-script", OF_SYSTEM)),
    ),
    BY_KEYWORD["max_tp"].typed: (Instead(option_of("tp")),),
    BY_KEYWORD["max_cp"].typed: (Instead(option_of("cp")),),
    BY_KEYWORD["max_stages"].typed: (Instead(option_of("pp")),),
    option_of("remainder"): (Instead(option_of("layout"), " with the layers of every stage"),),
    option_of("max_devices"): (
        Instead("--max-gpus"),
        Instead("--gpus", " with the number and the kind"),
    ),
    option_of("without"): (
        Instead("--max-gpus"),
        Instead("--gpus", " with the number that is left and the kind"),
    ),
    option_of("headroom"): (Instead(option_of("memory_limit"), " less what stays free"),),
    "--max-memory": (Instead(option_of("memory_limit"), " for the memory of a device"),),
    "--max-gpus": (Instead("--gpus", " with the number and the kind"),),
    "--cluster": (Instead("--gpus", " with the kinds alone"),),
    "--hostfile": (OF_CLUSTER, Instead("--gpus")),
    "--clusterfile": (OF_CLUSTER, Instead("--gpus")),
    "--num-layers": (OF_MODEL,),
    BY_KEYWORD["hidden_size"].typed: (OF_MODEL,),
    BY_KEYWORD["vocab_size"].typed: (OF_MODEL,),
    "--verbose": (Instead("--json", ", which prints all that is known"),),
    "--output": (Instead("--json", " and `> FILE`"),),
    "--job": (Instead("--megatron-script"),),
}


def elsewhere(option: str, command: str, has: Collection[str], others: Collection[str]) -> str:
    """Return what is said of an option that a command lacks and others have.

    Parameters
    ----------
    option: as it is typed. command: as it is called. has: its options. others: the commands with
    the option; none: nothing is said.
    """
    if not others:
        return ""
    named = [*others][:MOST_NAMED]
    last = "others" if len(others) > MOST_NAMED else named.pop() if len(named) > 1 else ""
    found = f"{option}: found an option of {', '.join(named)}{last and f' and {last}'}"
    if said := instead_of(option, has):
        return f"{found}, expected {said}"
    which = "that command" if len(others) == 1 else "one of these commands"
    return f"{found}, expected {which}, or an option of `{command} --help`"


def instead_of(option: str, has: Collection[str]) -> str:
    """Return the option of a command that says the same as one that it lacks, and how; empty: none
    does. has: the options of the command."""
    if VARY in has and (axis := _axis(option)):
        return f"{VARY} {axis}=VALUES"
    for one in INSTEAD.get(option, ()):
        if one.option in has:
            return f"{one.option}{one.more}"
    return ""


def _axis(option: str) -> str:
    """Return the name of the axis of sweeps that an option of searches is; empty: it is none."""
    from ilp_planner.faces.sweeps.fields import ALIASES, OF_REQUESTS

    name = option.strip("-").replace("-", "_")
    return name if ALIASES.get(name, name) in OF_REQUESTS else ""


# ---- words of training systems -------------------------------------------------------------------

MEGATRON = "Megatron-LM"
# Inputs that are no settings.
OF_INPUTS: Mapping[str, tuple[str, ...]] = {
    "gpus": (WORLD, NODES, EACH, "nproc_per_node", "nnodes", "num_gpus", "world_size"),
    "model": (MODEL,),
    "sequence_length": (LENGTH, "seq_length", "seq_len", "seqlen", "max_seq_len"),
    "global_batch_size": ("gbs", "batch_size"),
}
PARALLEL = {
    "tensor": "tp", "pipeline": "pp", "data": "dp", "context": "cp", "expert": "ep",
    "expert_tensor": "etp", "sequence": "sequence_parallel", "vp": "virtual_stages",
}  # fmt: skip
DEGREE = re.compile(r"(?:num_)?(\w+?)(?:_model)?(?:_parallel(?:ism)?)?(?:_(?:size|degree|ranks))?")


class Foreign(NamedTuple):
    """A word of a training system. system: empty: of several. option: that says the same."""

    system: str
    option: str


def own_option(word: str, has: Collection[str]) -> tuple[str, str]:
    """Return the option of a command that says a word of another system, and that system; both are
    empty if none does.

    word: as it is typed. has: the options of the command.
    """
    key = _normal(word)
    found = _words().get(key) or _by_name(key)
    return (found.option, found.system) if found.option in has else ("", "")


def _normal(word: str) -> str:
    """Return a word with underscores, and without a value."""
    return re.sub(r"[-.]", "_", word.lstrip("-").partition("=")[0].lower())


def _by_name(key: str) -> Foreign:
    """Return the options for a word that no table has: of a degree by its name, as `tp_size`."""
    match = DEGREE.fullmatch(key)
    return Foreign("", option_of(PARALLEL.get(match[1], match[1])) if match else "")


@cache
def _words() -> Mapping[str, Foreign]:
    """Return all words of the tables; of several systems with one word the first one counts."""
    arguments = _arguments()
    found = {
        name: Foreign(MEGATRON if flags_by_key().get(name) else "", option)
        for name, option in arguments.items()
        if "@" not in name and "." not in name
    }
    for read in systems():
        for name, says in read.rows.items():
            option = next((arguments[one] for one in _said(says) if one in arguments), "")
            if option:
                _add(found, name, Foreign(read.name, option))
    for row in SETTINGS:
        for key in row.keys:
            if key.name:
                system = MEGATRON if "megatron" in key.runtimes else key.runtimes[0]
                _add(found, key.name, Foreign(system, option_of(row.name)))
    return found


def _add(found: dict[str, Foreign], key: str, said: Foreign) -> None:
    """Add a key, and its last word."""
    for name in (key, key.rpartition(".")[2]):
        found.setdefault(_normal(name), said)


def _said(says: Says) -> tuple[str, ...]:
    """Return the arguments that a row says; none of a row that makes them of its value."""
    if isinstance(says, str):
        return (says,)
    if not isinstance(says, Mapping):
        return ()
    return tuple(dict.fromkeys(name for said in says.values() for name in said))


def _arguments() -> Mapping[str, str]:
    """Return the options for arguments of Megatron-LM, fields of jobs, and further words."""
    fields = ((field, row.name) for row in SETTINGS for field in row.fields)
    keys = ((key, row.name) for row in SETTINGS for key in row.keys)
    named = ((key.name, name) for key, name in keys if "megatron" in key.runtimes)
    also = ((word, row.name) for row in SETTINGS for word in (*row.also, row.name))
    inputs = ((word, name) for name, words in OF_INPUTS.items() for word in (*words, name))
    every = (*fields, *named, *also, *inputs)
    return {word: option_of(name) for word, name in every if word}


@cache
def systems() -> tuple[System, ...]:
    """Return the tables of all systems whose files are read."""
    names = (one.name for one in pkgutil.iter_modules(imported.__path__, f"{imported.__name__}."))
    found = (value for name in names for value in vars(importlib.import_module(name)).values())
    return tuple({one.name: one for one in found if isinstance(one, System)}.values())
