"""The launch that a log prints: Megatron-LM's arguments, all of them, one a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlannerError
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.flags import flags_by_key

if TYPE_CHECKING:
    from ilp_planner.formats.logs.base import RunLog
    from ilp_planner.formats.megatron.flags import Flag
    from ilp_planner.formats.megatron.values import MegatronArguments
    from ilp_planner.specs.training import TrainingJob

RANKS = re.compile(r"[1-9][0-9]{0,8}")
NOTHING = ("None", "", "[]")
# Arguments that say a type by another's name, as Megatron-LM sets them when it has read them.
TYPES = {"torch.bfloat16": "bf16", "torch.float16": "fp16"}
NEEDED = ("num_layers", "hidden_size", "num_attention_heads", "micro_batch_size")
# Lengths that models without such positions print as well, and what another one says already.
LEFT = {"encoder_num_layers", "decoder_num_layers", "encoder_seq_length", "decoder_seq_length",
        "data_parallel_size", "num_layers_per_virtual_pipeline_stage"}  # fmt: skip


def printed_arguments(log: RunLog) -> MegatronArguments | None:
    """Return the launch that a log prints; None if it prints none.

    Raises
    ------
    SpecError: arguments that cannot be read.
    """
    said = log.said
    if any(key not in said for key in NEEDED) or not RANKS.fullmatch(said.get("world_size", "")):
        return None
    words: list[str] = []
    for key, text in said.items():
        flags = flags_by_key().get(key, ())
        if flags and key not in LEFT and text not in NOTHING:
            words += _words(flags, text)
    if precision := TYPES.get(said.get("params_dtype", "")):
        words = [word for word in words if word not in ("--bf16", "--fp16")] + [f"--{precision}"]
    return read_arguments(words, int(said["world_size"]), source=log.source, strict=False)


def _words(flags: tuple[Flag, ...], text: str) -> list[str]:
    """Return the words of a launch line that set a value; none where it is the default."""
    if text in ("True", "False"):
        value = text == "True"
        flag = next((one for one in flags if one.kind == "switch" and one.sets is value), None)
        default = bool(flags[0].default) if flags[0].kind == "switch" else None
        usual = (not flags[0].sets) if default is None or not flags[0].default else default
        return [flag.text] if flag is not None and value is not usual else []
    flag = next((one for one in flags if one.kind != "switch"), None)
    if flag is None or str(flag.default) == text:
        return []
    if text.startswith("["):
        parts = [part.strip(" '\"") for part in text.strip("[]").split(",")]
        return [flag.text, *parts] if flag.many else []
    return [flag.text, text]


def printed_job(log: RunLog) -> TrainingJob | None:
    """Return the job of the launch that a log prints; None if it prints none that can be read."""
    try:
        arguments = printed_arguments(log)
        return None if arguments is None else job_of_arguments(arguments, checked=False)
    except PlannerError:
        return None
