"""Megatron-LM's verdict on arguments, without Megatron-LM.

The rules are those of its argument parser, of `validate_args` (`megatron/training/arguments.py`)
and of `TransformerConfig`, as they stood in 2026; rules about versions of other packages are left
out. Rules that Megatron checks only when it builds or runs the model are here as well, and say so.
"""

from collections.abc import Iterable
from typing import Protocol

from ilp_planner.formats.megatron import rules_build as build
from ilp_planner.formats.megatron import rules_model as model
from ilp_planner.formats.megatron import rules_parallel as parallel
from ilp_planner.formats.megatron import rules_pipeline as pipeline
from ilp_planner.formats.megatron import rules_training as training
from ilp_planner.formats.megatron.findings import STAGES, Finding
from ilp_planner.formats.megatron.repairs import Broken, with_working_repairs
from ilp_planner.formats.megatron.values import MegatronArguments


class Rule(Protocol):
    """One check of arguments."""

    __name__: str

    def __call__(self, a: MegatronArguments, /) -> Iterable[Finding]:
        """Yield the faults."""


# What all others build on: each is asked only where those before it hold. In Megatron's order.
FIRST: tuple[Rule, ...] = (
    parallel.check_degrees,
    parallel.check_world,
    parallel.check_micro_batch,
    model.check_required,
)
RULES: tuple[Rule, ...] = (
    parallel.check_context,
    parallel.check_renamed,
    parallel.check_batches,
    model.check_positions,
    pipeline.check_stages,
    parallel.check_sharding,
    parallel.check_torch_fsdp,
    parallel.check_megatron_fsdp,
    parallel.check_precision,
    training.check_schedule,
    model.check_sizes,
    training.check_recompute,
    parallel.check_overlap,
    model.check_attention,
    parallel.check_experts,
    parallel.check_checkpoints,
    training.check_deterministic,
    training.check_overlap_config,
    model.check_heads,
    model.check_quantised,
    model.check_expert_config,
    training.check_offloading,
    training.check_recompute_config,
    training.check_graphs,
    pipeline.check_split,
    model.check_fusions,
    pipeline.check_built_stages,
    build.check_built_model,
    build.check_states,
    parallel.check_rampup,
    pipeline.check_interleaving,
    pipeline.check_recomputed_layers,
    build.check_sequence,
)


def check_arguments(args: MegatronArguments) -> tuple[Finding, ...]:
    """Return the rules that arguments break, in Megatron's order."""
    broken = _broken(args)
    return with_working_repairs(args, broken, _broken) if broken else ()


def _broken(args: MegatronArguments) -> list[Broken]:
    """Return the names of the rules that arguments break, and their findings."""
    for rule in FIRST:
        if found := [(rule.__name__, finding) for finding in rule(args)]:
            return found
    found = [(rule.__name__, finding) for rule in RULES for finding in rule(args)]
    return sorted(found, key=lambda broken: STAGES.index(broken[1].stage))


def check_environment(args: MegatronArguments) -> tuple[Finding, ...]:
    """Return variables that the environment lacks for arguments, on GPUs before Blackwell."""
    return tuple(parallel.check_environment(args))
