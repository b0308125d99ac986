"""Limits of files, options and keywords: the one table that all refer to.

Values beyond them belong to no machine and no model of anybody. It is a mistake, or meant to fill
the memory, to take for ever or to make numbers overflow; it is refused before it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.base.errors import PlannerError

TEXT_BYTES = 2**20  # of a file that people write: TOML, a hostfile, a launch script
JSON_BYTES = 8 * 2**20  # of JSON, which programs write
PICKLE_BYTES = 4 * 2**20  # of a pickle, which takes more memory
TABLE_BYTES = 16 * 2**20  # of a table in CSV
NESTING = 64  # lists and objects in one another
DIGITS = 40  # of a whole number as it is written
LAYERS = 20_000  # of a model
STAGES = 65_536  # of a pipeline, virtual ones counted
DEVICES = 65_536  # of a cluster
RANKS = 2**31 - 1  # of a job: NCCL's ranks are 32-bit integers
DIMENSION = 2**31 - 1  # hidden sizes, vocabularies, tokens of a sample, anything without a limit
SAMPLES = 2**20  # of an iteration, and micro-batches
EXPERTS = 65_536  # of a layer
WHOLE = 2**63 - 1  # any other whole number
LINES = 50_000  # of a table in CSV
VALUES = 2 * 10**6  # of JSON, counted by its commas and brackets
ENTRIES = 2**22  # rows, values or sizes of which a reader holds one by one
PARTS = 10**6  # layers, samples, ranks and GPUs of a profile of Sailor's
POINTS = 10**5  # of a sweep, unless somebody says that more are meant
COUNT, FIGURE = 10**9, 1e30  # in a table: whole numbers, and bytes or FLOP
MEMORY = 2**50  # bytes of one device
LEAST_RATE, RATE = 1.0, 1e18  # bytes per second of a link or of a memory
FLOPS = 1e24  # FLOP per second of a device
LEAST_SECONDS, SECONDS = 1e-12, 1e9  # of anything that is timed
LEAST_DAYS = LEAST_SECONDS / 86_400
LEAST_LATENCY = 1e-18  # seconds: next to nothing, and above what divides to infinity
WORKERS = 1024  # threads of a solver, points of a sweep at once
SEED = 2**31 - 1  # solvers have 32 bits
STARTS = 10**6  # random points of a heuristic
SHOWN = 1000  # plans, or changes, beside the best
TRIED = 16  # plans of a short list
PRICE = 1e12  # of a device, or of all of them, per hour
TOKENS, DAYS = 1e18, 1e5  # of a training run
# Names of options, keywords, arguments of Megatron-LM and keys -> the most that they may say.
MOST: Mapping[str, float] = {
    name: most
    for most, names in (
        (LAYERS, "layers num_layers blocks prediction_layers recompute_layers mtp_num_layers"),
        (LAYERS, "num_hidden_layers recompute_num_layers cpu_offloading_num_layers"),
        (LAYERS, "encoder_num_layers decoder_num_layers num_nextn_predict_layers num_mtp_modules"),
        (STAGES, "max_stages stage virtual_stages num_virtual_stages_per_pipeline_rank virtual"),
        (DEVICES, "devices nodes domain max_stage_nodes devices_per_node max_devices"),
        (DEVICES, "max_gpus spares"),
        (SAMPLES, "global_batch global_batch_size micro_batch micro_batch_size micro_batch_sizes"),
        (SAMPLES, "micro_batches micro_batch_group_size microbatch_group_size_per_vp_stage"),
        (EXPERTS, "count experts num_experts n_routed_experts num_local_experts"),
        (EXPERTS, "imbalance expert_capacity moe_expert_capacity_factor"),
        (WORKERS, "workers processes"),
        (SEED, "seed"),
        (STARTS, "starts repeats"),
        (SHOWN, "top"),
        (TRIED, "shortlist"),
        (SECONDS, "seconds time_limit max_seconds"),
        (DAYS, "days"),
        (PRICE, "price spot_price max_price_per_hour"),
        (TOKENS, "tokens"),
        (MEMORY, "memory_limit max_memory headroom"),
        (WHOLE, "train_samples lr_decay_samples lr_warmup_samples lr_wsd_decay_samples"),
        (WHOLE, "ddp_bucket_size refit_execution_batch_bytes rl_rollout_bank_max_bytes"),
        (WHOLE, "inference_dynamic_batching_vision_embedding_cache_max_bytes"),
    )
    for name in names.split()
}


class LongNumber:
    """Stands in a parsed file for a whole number that has too many digits to be made.

    digits: as many as it has.
    """

    def __init__(self, digits: int) -> None:
        self.digits = digits


def beyond(name: str, value: float, otherwise: float = DIMENSION) -> str:
    """Return the expected text for a number beyond its limit, or for a text that is none; empty of
    any other.

    Parameters
    ----------
    name: in `MOST`, or an option as it is typed. otherwise: the most of a name without a row.
    """
    most = MOST.get(name.lstrip("-").replace("-", "_"), otherwise)
    return "" if value <= most else f"at most {most if isinstance(most, int) else f'{most:g}'}"


NUMBERS = (int, LongNumber)
TOO_LONG = 10**DIGITS


def whole_number(text: str) -> int | LongNumber:
    """Return the whole number that a text is, or that it has too many digits."""
    digits = len(text.lstrip("+-"))
    return LongNumber(digits) if digits > DIGITS else int(text)


def as_whole(text: str) -> int:
    """Return the whole number that a text is. Of more digits than there may be only the first ones
    count; they are beyond every other limit all the same.

    Raises
    ------
    ValueError: it is none.
    """
    return int(text.strip()[: DIGITS + 1])


def check_lines(text: str, name: object, error: type[PlannerError]) -> None:
    """Refuse a table of too many lines, as each one takes memory.

    Parameters
    ----------
    name: of the file. error: class of the exception, one line with the file, the found value and
    the limit.
    """
    lines = text.count("\n")
    if lines > LINES:
        raise error(f"{name}: found {lines:,} lines, expected at most {LINES:,} in a table")


def check_values(text: str, name: object, error: type[PlannerError]) -> None:
    """Refuse JSON with very many values, as these take more memory than the text. name, error: as
    of `check_lines`."""
    values = sum(map(text.count, ",{["))
    if values > VALUES:
        raise error(f"{name}: found {values:,} values, expected at most {VALUES:,} in JSON")


def check_parsed(root: Any, name: str, error: type[PlannerError]) -> None:
    """Refuse the parsed content of a file that is nested too deeply or holds a number of too many
    digits.

    Parameters
    ----------
    root: dicts, lists and values. name: of the file. error: class of the exception, one line with
        the file, the key, the found value and the limit.
    """
    level = [root]
    for _ in range(NESTING + 1):
        long = next((v for v in level if type(v) in NUMBERS and _digits(v)), None)
        if long is not None:
            raise error(
                f"{name}: {_place(root, long)}: found a number of {_digits(long)} digits, expected "
                f"at most {DIGITS}"
            )
        outer = [v for v in level if isinstance(v, dict | list)]
        level = [v for one in outer for v in (one.values() if isinstance(one, dict) else one)]
        if not level:
            return
    raise error(
        f"{name}: {_place(root, level[0])[:40]}...: found lists and objects more than {NESTING} "
        f"deep in one another, expected at most {NESTING}"
    )


def _digits(value: int | LongNumber) -> int:
    """Return the digits of a number that has too many of them; 0 of any other."""
    if isinstance(value, LongNumber):
        return value.digits
    return 0 if -TOO_LONG < value < TOO_LONG else len(str(abs(value)))


def _place(root: Any, wanted: Any) -> str:
    """Return the keys and numbers that lead to a value that is there."""
    return next(_ways("", root, wanted, NESTING + 1), "") or "file"


def _ways(place: str, value: Any, wanted: Any, depth: int) -> Iterator[str]:
    if value is wanted:
        yield place
    elif depth and isinstance(value, dict):
        for key, entry in value.items():
            yield from _ways(f"{place}.{key}" if place else key, entry, wanted, depth - 1)
    elif depth and isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _ways(f"{place}[{i}]", entry, wanted, depth - 1)
