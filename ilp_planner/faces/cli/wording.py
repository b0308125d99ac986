"""Messages of the planner in the words of the command line: its parameters as options."""

from __future__ import annotations

import re
import shlex

from ilp_planner.inputs.table import INPUTS
from ilp_planner.settings.table import DEMANDS
from ilp_planner.spaces.registry import RUNTIMES

# Parameters whose option is not their own name with dashes.
RENAMED = {
    **{name: row.typed for row in INPUTS for name in (row.name, row.said, row.attribute)},
    "seconds": "--time-limit",
    "virtual": "--virtual-stages",
    "set_values": "--set",
    "run_number": "--run",
    "job_file": "--job",
}
# Parameters that messages of the planner name.
NAMED = (
    *(setting.name for setting in DEMANDS),
    *(name for row in INPUTS for name in (row.name, row.attribute)),
    "model", "cluster", "gpus", "hostfile", "clusterfile", "lengths", "profile", "constraints",
    "top", "seconds", "gap", "prefer_plain", "solver", "starts", "workers", "seed", "num_layers",
    "device", "backend", "resume", "output", "accept_changed", "fit", "nearest", "start", "png",
    "vary", "objective", "max_price_per_hour", "tokens", "plot", "executor", "scheduler",
    "fallback", "yes", "run_number", "job_file", "unit", "ask", "failed", "folder", "run", "budget",
    "log", "steps", "sequence_length",
)  # fmt: skip
# Parameters with a value that have an option of their own.
OPTIONS_OF_VALUES = {("space", name): f"--runtime {name}" for name in RUNTIMES}
# What files are called as well: only in backquotes is it the parameter.
ALSO_FILES = ("hostfile",)
# What a shell takes for more than letters, in a layout of the pipeline.
SPECIAL = re.compile(r"[|*()]")
# A parameter, alone or with its value, as Python has it.
PARAMETER = re.compile(r"`(\w+)(?:=([^`]*))?`")


def option_of(parameter: str) -> str:
    """Return the option of a parameter."""
    return RENAMED.get(parameter, f"--{parameter.replace('_', '-')}")


OPTIONS = {name: option_of(name) for name in NAMED}


def as_typed(message: str) -> str:
    """Return a message with the parameter that it begins with, as in `max_tp: must be at least 1`,
    and parameters in backquotes, as in `max_tp=8`, as options."""
    name, colon, rest = message.partition(":")
    if colon and name in OPTIONS and name not in ALSO_FILES:
        message = f"{OPTIONS[name]}:{rest}"
    return PARAMETER.sub(_option, message)


def _option(match: re.Match[str]) -> str:
    if match[1] not in OPTIONS:
        return match[0]
    if match.groups() in OPTIONS_OF_VALUES:
        return OPTIONS_OF_VALUES[match[1], match[2]]
    value = match[2] and (shlex.quote(match[2]) if SPECIAL.search(match[2]) else match[2])
    return " ".join(part for part in (OPTIONS[match[1]], value) if part)
