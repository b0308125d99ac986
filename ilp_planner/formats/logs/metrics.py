"""The names that training systems give the numbers of a step, with the one that is used here.

A row: our name, the factor to SI units, and the names that logs have, as regular expressions of
names in small letters, without the part of a group (`train/`, `perf/`) and with `_` for blanks and
hyphens.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import PlannerError
from ilp_planner.base.limits import FIGURE
from ilp_planner.formats.megatron.arguments import job_of_arguments, read_arguments
from ilp_planner.formats.megatron.flags import flags_by_key

if TYPE_CHECKING:
    from ilp_planner.formats.logs.base import RunLog
    from ilp_planner.formats.megatron.flags import Flag
    from ilp_planner.formats.megatron.values import MegatronArguments
    from ilp_planner.specs.training import TrainingJob


SECONDS, TIME, SAMPLES_RATE = "seconds", "time", "samples_per_second"
TOKENS_RATE, DEVICE_TOKENS = "tokens_per_second", "tokens_per_second_per_gpu"
BATCH, SAMPLES, TOKENS, REAL = "batch", "samples", "tokens", "real_tokens"
MEMORY, ALLOCATED, RETRIES = "memory_reserved", "memory_allocated", "allocation_retries"
DATA, CHECKPOINT = "data_seconds", "checkpoint_seconds"
IMBALANCE, CLOCK, POWER, FLOPS = "expert_imbalance", "clock", "power", "flops"
STEP, LOSS = "step", "loss"
GIB, GB, MIB = 2.0**30, 1e9, 2.0**20


class Meaning(NamedTuple):
    """Our name of a number, and the factor to SI units."""

    name: str
    factor: float = 1.0


ROWS: tuple[tuple[str, float, str], ...] = (
    (SECONDS, 1e-3, r"elapsed_time_per_iteration_\(?ms\)?|(step|iter|iteration)_time_?\(?ms\)?"),
    (SECONDS, 1.0, r"(train_)?(step|iter|iteration)_tim(e|ing)(_?(\(s\)|s|sec|seconds|in_s))?"),
    (SECONDS, 1.0, r"end_to_end\(s\)|seconds_per_(step|iteration)|sec_per_step|batch_time"),
    (SECONDS, 1.0, r"(timing_s_)?step_s|s_per_(step|it|iteration)|tracked_stats_train_step_time"),
    (TIME, 1.0, r"_?timestamp|wall_time|_?runtime"),
    (SAMPLES_RATE, 1.0, r"(curr)?samples_?(per_?sec(ond)?|/sec|/s)"),
    (TOKENS_RATE, 1.0, r"tokens_?(per_?sec(ond)?|/sec|/s)(_total)?"),
    (DEVICE_TOKENS, 1.0, r"throughput\(tps\)|tps|tokens_?(per_?sec(ond)?|/s)(_per_|/)(gpu|device)"),
    (FLOPS, 1e12, r"throughput_per_gpu_\(tflop/s/gpu\)|tflops(_per_gpu)?|tflop/s/gpu"),
    (BATCH, 1.0, r"global_batch_?size|train_batch_size|batch_size_global"),
    (SAMPLES, 1.0, r"consumed_(train_)?samples|samples_count"),
    (TOKENS, 1.0, r"consumed_tokens|n_tokens_seen|ntokens_seen|(total_)?tokens_seen"),
    (TOKENS, 1.0, r"num_input_tokens_seen|num_tokens"),
    (REAL, 1.0, r"(num_)?(real|valid|effective|non_?pad(ding)?|unpadded|loss)_tokens(_per_step)?"),
    (REAL, 1.0, r"total_num_tokens|global_valid_(toks|tokens)"),
    (MEMORY, GIB, r"max_reserved\(gib\)|memory_\(?gib\)?|(max_)?memory_reserved_\(?gib\)?"),
    (MEMORY, GB, r"(max_)?mem(ory)?_reserved_\(?gb\)?"),
    (MEMORY, 1.0, r"mem_(max_)?reserved_bytes|(max_)?reserved(_bytes)?"),
    (ALLOCATED, GIB, r"max_active\(gib\)|(max_)?(memory|mem)_allocated_\(?gib\)?"),
    (ALLOCATED, GB, r"maxmemallocated(_gb)?|max_mem(ory)?_allocated_\(?gb\)?"),
    (ALLOCATED, 1.0, r"mem_max_allocated_bytes|max_(memory_)?allocated(_bytes)?"),
    (RETRIES, 1.0, r"num_alloc_retries|alloc(ation)?_retries"),
    (DATA, 1.0, r"data_loading\(s\)|(data(_?load(ing|er)?)?|dataloader|batch_?gen(erator)?)_time"),
    (DATA, 1e-3, r"batch_generator|data_time_\(?ms\)?"),
    (CHECKPOINT, 1.0, r"(save_)?checkpoint(ing|_save)?_time|save_time"),
    (IMBALANCE, 1.0, r"(expert_)?(load_|token_)?(max_over_mean|imbalance)|expert_load_ratio"),
    (CLOCK, 1e6, r"(system\.)?gpu\.\d+\.(sm|graphics)_?clock|(sm|gpu)_clock(_mhz)?"),
    (POWER, 1.0, r"power_per_gpu_\(w/gpu\)|(system\.)?gpu\.\d+\.powerwatts"),
    (LOSS, 1.0, r"(lm_|train_|reduced_train_|global_avg_)?loss"),
    (STEP, 1.0, r"_?(global_)?step|iteration|iter|trainer/global_step|steps"),
)  # fmt: skip


@cache
def meaning(name: str) -> Meaning | None:
    """Return our name of a number in a log; None if it is not used here."""
    plain = re.sub(r"[\s-]+", "_", name.strip().casefold())
    for form in (plain, plain.rpartition("/")[2], plain.replace("/", "_")):
        found = next((row for row in ROWS if re.fullmatch(row[2], form)), None)
        if found is not None:
            return Meaning(found[0], found[1])
    return None


def numbers(pairs: dict[str, object] | list[tuple[str, str]]) -> dict[str, float]:
    """Return the numbers among names and values that are used here, in SI units. Of names with the
    same meaning the first counts."""
    found: dict[str, float] = {}
    for name, value in pairs.items() if isinstance(pairs, dict) else pairs:
        known = meaning(name)
        if known is None or known.name in found or isinstance(value, bool):
            continue
        number = finite(value)
        if number is not None:
            found[known.name] = number * known.factor
    return found


def finite(value: object) -> float | None:
    """Return the number that a value of a log is; None of any other, and of one that is no number
    of anything."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= FIGURE else None


# ---- The launch that a log prints: Megatron-LM's arguments, all of them, one a line --------------

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
