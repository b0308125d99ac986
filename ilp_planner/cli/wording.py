"""Messages of the planner in the words of the command line: its parameters as options."""

from __future__ import annotations

import re

# Parameters that messages of the planner name -> the option that says them.
OPTIONS = {
    "model": "--model",
    "cluster": "--cluster",
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
    "seconds": "--time-limit",
    "gap": "--gap",
    "solver": "--solver",
    "starts": "--starts",
    "workers": "--workers",
    "seed": "--seed",
}
VALUE = re.compile(r"`(\w+)=([^`]*)`")  # a parameter with its value, as Python has it


def as_typed(message: str) -> str:
    """Return a message with `max_tp: ...` as `--max-tp: ...`, and max_tp=8 in backquotes as
    --max-tp 8."""
    name, colon, rest = message.partition(":")
    if colon and name in OPTIONS:
        message = f"{OPTIONS[name]}:{rest}"
    return VALUE.sub(
        lambda match: f"{OPTIONS[match[1]]} {match[2]}" if match[1] in OPTIONS else match[0],
        message,
    )
