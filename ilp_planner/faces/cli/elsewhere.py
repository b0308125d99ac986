"""Options that a command lacks and another one has: what says the same in this command.

It is imported where an option is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.faces.cli.wording import option_of
from ilp_planner.inputs.table import BY_KEYWORD

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
