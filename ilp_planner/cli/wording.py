"""Messages of the planner in the words of the command line: its parameters as options."""

from __future__ import annotations

import re

# Parameters that messages of the planner name -> the option that says them.
OPTIONS = {
    "model": "--model",
    "cluster": "--cluster",
    "hostfile": "--hostfile",
    "clusterfile": "--clusterfile",
    "profile": "--profile",
    "experiment": "--experiment",
    "cost_model": "--cost-model",
    "space": "--space",
    "memory_rule": "--memory-rule",
    "placement": "--placement",
    "global_batch": "--global-batch-size",
    "micro_batch_sizes": "--micro-batch-size",
    "memory_limit": "--memory-limit",
    "max_stages": "--max-stages",
    "max_tp": "--max-tp",
    "max_cp": "--max-cp",
    "hidden": "--hidden-size",
    "sequence": "--sequence-length",
    "vocabulary": "--vocab-size",
    "top": "--top",
    "schedule": "--schedule",
    "seconds": "--time-limit",
    "gap": "--gap",
    "solver": "--solver",
    "starts": "--starts",
    "workers": "--workers",
    "seed": "--seed",
    "num_layers": "--num-layers",
    "tp": "--tp",
    "device": "--device",
    "backend": "--backend",
    "resume": "--resume",
    "output": "--output",
    "accept_changed": "--accept-changed",
}
# Parameters with a value that have an option of their own.
OPTIONS_OF_VALUES = {("space", "megatron"): "--runtime megatron"}
# What files are called as well: only in backquotes is it the parameter.
ALSO_FILES = ("hostfile",)
# A parameter, alone or with its value, as Python has it.
PARAMETER = re.compile(r"`(\w+)(?:=([^`]*))?`")


def as_typed(message: str) -> str:
    """Return a message with the parameter that it begins with, as in `max_tp: must be at least 1`,
    and those in backquotes, as in `max_tp=8`, as options."""
    name, colon, rest = message.partition(":")
    if colon and name in OPTIONS and name not in ALSO_FILES:
        message = f"{OPTIONS[name]}:{rest}"
    return PARAMETER.sub(_option, message)


def _option(match: re.Match[str]) -> str:
    if match[1] not in OPTIONS:
        return match[0]
    if match.groups() in OPTIONS_OF_VALUES:
        return OPTIONS_OF_VALUES[match[1], match[2]]
    return " ".join(part for part in (OPTIONS[match[1]], match[2]) if part)
