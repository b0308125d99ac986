"""What `ilp-plan analyze` has in common, whatever it was given: devices, models, its one source."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ilp_planner.cli.values import option_size, was_typed
from ilp_planner.errors import SpecError, UsageError
from ilp_planner.library import find_spec
from ilp_planner.specs.decoder import Decoder, as_decoder
from ilp_planner.units import format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    import typer

    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.model import ModelSpec

# Parameters that say something of a job, and so go with --model only.
OF_JOBS = (
    "tp", "pp", "dp", "cp", "ep", "etp", "virtual", "layout", "micro_batch", "global_batch",
    "sequence_length", "sequence_parallel", "recompute", "recompute_modules", "recompute_method",
    "recompute_layers", "distributed_optimizer", "sharding", "rank_order", "attention",
    "dispatcher", "cp_comm", "fused_loss", "grouped_experts", "imbalance",
)  # fmt: skip
OF_LAUNCHES = ("world_size", "devices_per_node")  # what a launch line may leave open
# Parameters that are called otherwise than their options.
RENAMED = {
    "virtual": "--virtual-stages",
    "micro_batch": "--micro-batch-size",
    "global_batch": "--global-batch-size",
}
SOURCES = {
    "plan_file": "PLAN",
    "model": "--model",
    "megatron_args": "--megatron-args",
    "megatron_script": "--megatron-script",
}


def one_source(ctx: typer.Context) -> str:
    """Return the parameter that says what to analyse.

    Raises
    ------
    UsageError: none does, several do, or an option that does not go with it.
    """
    given = [name for name in SOURCES if ctx.params[name] is not None]
    if not given:
        raise UsageError(f"expected one of {', '.join(SOURCES.values())}, found none")
    if len(given) > 1:
        raise UsageError(
            f"{SOURCES[given[1]]}: found {SOURCES[given[0]]} too, expected one of them"
        )
    source = given[0]
    if source != "plan_file" and was_typed(ctx, "accept_changed"):
        raise UsageError(
            f"--accept-changed: expected a PLAN, whose inputs it is about, found {SOURCES[source]}"
        )
    wrong: tuple[str, ...] = () if source == "model" else OF_JOBS
    if source == "plan_file":
        wrong += OF_LAUNCHES
    for name in wrong:
        if was_typed(ctx, name):
            said = {"plan_file": "the plan says it"}.get(source, "the launch line says it")
            raise UsageError(
                f"{option_of(name)}: expected --model beside it, found {SOURCES[source]}: {said}"
            )
    return source


def option_of(parameter: str) -> str:
    """Return the option of a parameter."""
    return RENAMED.get(parameter, f"--{parameter.replace('_', '-')}")


def read_cluster_named(name: str | None) -> ClusterSpec | None:
    """Return the cluster of `--cluster`."""
    if name is None:
        return None
    from ilp_planner.specs.cluster_reader import read_cluster

    return read_cluster(find_spec(name, "clusters"))


def device_memory(said: str | None) -> tuple[float | None, tuple[str, ...]]:
    """Return the bytes in `--device-memory`, None where it is not given, and what to say of them: a
    card of binary units is sold by the name of decimal ones.

    Raises
    ------
    UsageError: not a size with a unit.
    """
    if said is None:
        return None, ()
    memory = float(option_size("--device-memory", said))
    match = re.fullmatch(r"\s*([0-9.]+)\s*([kmgtp])b\s*", said, re.IGNORECASE)
    if match is None:
        return memory, ()
    number, prefix = match[1], match[2].upper()
    note = (
        f"--device-memory {said} is {format_bytes(memory)}; a card sold as {number} {prefix}B has "
        f"{number} {prefix}iB: --device-memory {number}{prefix}iB"
    )
    return memory, (note,)


def decoder_of(spec: ModelSpec, named: str | Path, sequence: int | None = None) -> Decoder:
    """Return a model as a decoder, with another sequence length if asked.

    Raises
    ------
    SpecError: it is of another family.
    """
    model = as_decoder(spec.architecture)
    if model is None:
        raise SpecError(
            f"{named}: family: found {spec.family!r}, expected a decoder-only transformer "
            "(gpt or decoder), which is what can be analysed"
        )
    if sequence is None or sequence == model.sequence:
        return model
    places = max(model.max_position_embeddings, sequence)
    return replace(model, sequence=sequence, max_position_embeddings=places)


def values_of(asked: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return some of what was asked for."""
    return {name: asked[name] for name in names}
