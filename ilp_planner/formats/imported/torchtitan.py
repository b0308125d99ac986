"""torchtitan's TOML, as its release 0.2.2 reads it: the columns of the settings, read backwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.limits import STAGES
from ilp_planner.base.units import counted
from ilp_planner.formats.imported.rows import (
    RECENT,
    Arguments,
    Says,
    Uncounted,
    each,
    only,
    switch,
)
from ilp_planner.formats.imported.table import MODEL, WORLD, Reading, System
from ilp_planner.formats.megatron.pipeline import pipeline_values
from ilp_planner.formats.megatron.values import PP, SHARDS, VIRTUAL
from ilp_planner.schedule.schedules import SCHEDULES as ORDERS
from ilp_planner.settings.keys import KEYS
from ilp_planner.settings.table import COMPILED_FIELD, SHARED_FIELD
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import OPERATORS

if TYPE_CHECKING:
    from ilp_planner.settings.base import Key

RUNTIME = "torchtitan@0.2.2"
SCHEDULES = {"1f1b": "1f1b", "interleaved1f1b": "1f1b", "interleavedzerobubble": "interleaved-zb",
             "zbvzerobubble": "zb-v", "dualpipev": "dualpipe-v"}  # fmt: skip
# Schedules whose ranks have one stage each, and those whose ranks have two, the last stages on the
# first rank (`torch/distributed/pipelining/schedules.py`); others have two or more.
SINGLE, V_SHAPED = ("1f1b",), ("zbvzerobubble", "dualpipev")
FAMILIES = {
    ("deepseek_v3", "671b"): "deepseek-v3",
    ("deepseek_v3", "16b"): "deepseek-v2-lite",
    ("gpt_oss", "20b"): "gpt-oss-20b",
    ("gpt_oss", "120b"): "gpt-oss-120b",
    ("kimi_k2_7", "moonlight-16b-a3b"): "moonlight-16b-a3b",
}
PARALLEL = "parallelism"
DEGREE = f"{PARALLEL}.pipeline_parallel_degree"
SCHEDULE = f"{PARALLEL}.pipeline_parallel_schedule"
PARTS = f"{PARALLEL}.module_fqns_per_model_part"
EACH_STAGE = f"{PARALLEL}.pipeline_parallel_layers_per_stage"
LESS = tuple(f"{PARALLEL}.pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
SHARD = f"{PARALLEL}.data_parallel_shard_degree"
LAYOUT = "pipeline_model_parallel_layout"
# Modules beside layers, in the letters of a layout.
ENDS = {"tok_embeddings": "E", "norm": "", "output": "L", "lm_head": "L"}


def of_columns(runtime: str) -> dict[str, Says]:
    """Return the rows of the keys that the table of settings has for a release."""
    return {
        key.name: _of_column(key)
        for key in KEYS[runtime].values()
        if key.name and f"settings.{key.field}" != SHARED_FIELD  # which several keys say
    }


def _of_column(key: Key) -> Says:
    """Return the row of a key that `formats.torchtitan` writes."""
    field = f"settings.{key.field}"
    if not key.words:
        return field
    return {word: {field: value} for value, word in key.words.items()}


def finish(reading: Reading) -> None:
    """Say the model, what ranks share, and the samples of a micro-batch."""
    given, said = reading.given, reading.said
    name = str(given.get("model.name") or "").lower()
    flavor = str(given.get("model.flavor") or "").lower()
    if name:
        reading.say(MODEL, FAMILIES.get((name, flavor), f"{name}-{flavor}"), "model.flavor")
    shard = given.get(SHARD, -1)
    again = given.get(f"{PARALLEL}.fsdp_reshard_after_forward", "default")
    alone = reading.number(PP, 1) == 1
    if shard != -1:  # which is all the other ranks
        reading.say(SHARDS, shard, SHARD)
    if shard == 1:
        reading.say(SHARED_FIELD, "none")
    else:
        whole = again == "always" or (again == "default" and alone)
        reading.say(SHARED_FIELD, "parameters" if whole else "gradients")
    if alone:
        reading.say("settings.schedule", "1f1b")
        return
    _say_stages(reading)
    # A local batch is divided into micro-batches, which pass the pipeline.
    parts = given.get(f"{PARALLEL}.pipeline_parallel_microbatch_size") or 1
    local = reading.number("micro_batch_size", 8)
    reading.say("micro_batch_size", parts, f"{PARALLEL}.pipeline_parallel_microbatch_size")
    if "global_batch_size" not in said and isinstance(parts, int) and local % parts == 0:
        reading.say("@micro-batches", local // parts)
    name = str(said.get("settings.schedule") or "1f1b")
    stages = str(said.get(LAYOUT) or "").count("|") + 1
    least = ORDERS[name].per_stage * (stages if stages > 1 else 2 * reading.number(PP, 1))
    if isinstance(parts, int) and local // parts < least:
        parted = f"{counted(least, 'micro-batch')}, as many as stages in {name}"
        found = f"at least {least * parts}: {parted}"
        raise reading.error("training.local_batch_size", local, found)


def _say_stages(reading: Reading) -> None:
    """Say the stages of a pipeline as `distributed/pipeline_parallel.py` makes them: two of each
    rank where a schedule has several, and the ends of the model as a layer each."""
    given, layers = reading.given, reading.number("num_layers") or reading.layers()
    pp = reading.number(PP, 1)
    named = str(given.get(SCHEDULE) or "1F1B")
    fewest, most = _stages_of_rank(named.lower())
    expected = counted(fewest, "stage") + " or more" * (fewest < most) + " a rank"
    if cuts := reading.said.get(LAYOUT):
        stages, key = str(cuts).count("|") + 1, PARTS
        if stages % pp or not fewest <= stages // pp <= most:
            raise reading.error(key, f"{stages} stages for {pp} ranks", f"{expected} of {named}")
        return
    if not layers or reading.number(VIRTUAL) > 1:
        return
    ends = [_whole(reading, key, 1) for key in LESS]
    whole, each = layers + sum(ends), _whole(reading, EACH_STAGE, 0)
    stages = -(-whole // each) if each else pp * fewest
    if stages % pp or not fewest <= stages // pp <= most:
        makes = f"{expected} of {named} with {pp} ranks, not {stages} stages of {layers} layers"
        raise reading.error(EACH_STAGE, each, makes)
    least, more = divmod(whole, stages)
    for key, end in zip(LESS, ends, strict=True):
        if end > least:
            raise reading.error(
                DEGREE, pp, f"fewer stages than {stages} of {layers} layers, as {key} is {end}"
            )
    split = [least + (stage < more) for stage in range(stages)]
    split[0] -= ends[0]
    split[-1] -= ends[1]
    values = pipeline_values(split_layout(split), pp)
    for argument in (LAYOUT, VIRTUAL):
        if argument in values:
            reading.say(argument, values[argument])
    if LAYOUT in values or VIRTUAL in values:
        reading.remarks.append(
            f"{PARTS}: found none, counted as torchtitan's own stages, "
            f"{stages // pp} a rank: {values.get(LAYOUT, f'{split[0]} layers each')}"
        )


def _stages_of_rank(schedule: str) -> tuple[int, int]:
    """Return the fewest and the most stages of a rank in a schedule."""
    if schedule in SINGLE:
        return 1, 1
    return 2, 2 if schedule in V_SHAPED else STAGES


def _whole(reading: Reading, key: str, usual: int) -> int:
    """Return the whole number of a key, from 0."""
    value = reading.given.get(key)
    if value is None or value == "none":
        return usual
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= STAGES:
        raise reading.error(key, value, f"a whole number from 0 to {STAGES}")
    return value


def _cuts(value: Any) -> Arguments:
    """Return the layout of a pipeline whose stages have these modules."""
    expected = ValueError("for each stage tok_embeddings, layers.N in order, norm and output")
    parts, count = [], 0
    for part in value if isinstance(value, list) else [value]:
        names = [str(name) for name in part] if isinstance(part, list) else [str(part)]
        layers = [name for name in names if name.startswith("layers.")]
        own = [name for name in names if name not in layers]
        if layers != [f"layers.{count + k}" for k in range(len(layers))] or {*own} - ENDS.keys():
            raise expected
        count += len(layers)
        parts.append("".join(ENDS[name] for name in own[:1] if name in names[:1]))
        parts[-1] += f"t*{len(layers)}" * bool(layers)
        parts[-1] += "".join(ENDS[name] for name in own if ENDS[name] == "L")
    return {"pipeline_model_parallel_layout": "|".join(parts)} if parts else {}


def _batch(value: Any) -> Arguments:
    return {} if value == -1 else {"global_batch_size": value}


ROWS: dict[str, Says] = {
    **of_columns(RUNTIME),
    f"{PARALLEL}.fsdp_reshard_after_forward": only("default", "always", "never"),
    SHARD: lambda value: {},
    f"{PARALLEL}.data_parallel_replicate_degree": "settings.optimizer.instances",
    f"{PARALLEL}.tensor_parallel_degree": "tensor_model_parallel_size",
    DEGREE: PP,
    f"{PARALLEL}.expert_tensor_parallel_degree": "settings.etp",
    SCHEDULE: {word: {"settings.schedule": name} for word, name in SCHEDULES.items()},
    f"{PARALLEL}.pipeline_parallel_microbatch_size": lambda value: {},
    PARTS: _cuts,
    **dict.fromkeys((EACH_STAGE, *LESS), lambda value: {}),
    f"{PARALLEL}.disable_loss_parallel": Uncounted(
        "logits gathered before the loss; counted as divided over tensor-parallel ranks"
    ),
    "model.name": lambda value: {},
    "model.flavor": lambda value: {},
    "world_size": WORLD,
    "training.seq_len": "seq_length",
    "training.local_batch_size": "micro_batch_size",
    "training.global_batch_size": _batch,
    "training.dtype": only("float32", otherwise="float32, of which bf16 is gathered"),
    "training.mixed_precision_param": {"bfloat16": {"bf16": True}, "float32": {"bf16": False}},
    "training.mixed_precision_reduce": only("float32"),
    "training.enable_cpu_offload": switch({"settings.optimizer.offload": 1.0}),
    "optimizer.name": each(("adamw", "adam"), {"optimizer": "adam"}),
    "activation_checkpoint.mode": {
        "none": {},
        "selective": {
            "settings.recompute.granularity": "selective",
            "settings.recompute.modules": (OPERATORS,),
        },
        "full": {
            "settings.recompute.granularity": "full",
            "settings.recompute.method": "uniform",
            "settings.recompute.layers": 1,
        },
    },
    "activation_checkpoint.selective_ac_option": only(
        "op", otherwise="op: every second layer is not modelled"
    ),
    "compile.enable": switch({COMPILED_FIELD: True}),
}

SYSTEM = System(
    name="torchtitan",
    rows=ROWS,
    aside=(
        "job.*", "profiling.*", "metrics.*", "lr_scheduler.*", "optimizer.*", "checkpoint.*",
        "training.*", "comm.*", "debug.*", "validation.*", "fault_tolerance.*", "experimental.*",
        "compile.*", "model.hf_assets_path", "model.tokenizer_path",
        "model.print_after_conversion", "activation_checkpoint.*", "memory_estimation.*",
        "quantize.*", "float8.*", "mx.*",
    ),
    usual={
        **RECENT,
        "bf16": True,
        "micro_batch_size": 8,
        "seq_length": 2048,
        "make_vocab_size_divisible_by": 1,
    },
    finish=finish,
    runtime=RUNTIME,
)  # fmt: skip
