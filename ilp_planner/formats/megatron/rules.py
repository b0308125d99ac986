"""Megatron-LM's verdict on arguments, without Megatron-LM.

The rules are those of its argument parser, of `validate_args` (`megatron/training/arguments.py`)
and of `TransformerConfig`, as they stood in 2026; rules about versions of other packages are left
out. Rules that Megatron checks only when it builds or runs the model are here as well, and say so.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from ilp_planner.formats.megatron import rules_model as model
from ilp_planner.formats.megatron import rules_parallel as parallel
from ilp_planner.formats.megatron import rules_pipeline as pipeline
from ilp_planner.formats.megatron import rules_training as training
from ilp_planner.formats.megatron.flags import flag_of
from ilp_planner.formats.megatron.model import ffn_of, layers_of, sequence_of
from ilp_planner.formats.megatron.repairs import (
    BUILD,
    STAGES,
    Broken,
    Finding,
    built,
    needs,
    run,
    with_working_repairs,
)
from ilp_planner.formats.megatron.rules_parallel import EMERGING, model_size
from ilp_planner.formats.megatron.settings import sequence_parallel_of
from ilp_planner.formats.megatron.values import CP, EP, PP, TP, MegatronArguments
from ilp_planner.specs.degrees import nearest_divisor, nearest_multiple

# ---- faults when groups and model are built, or run ----------------------------------------------


def check_built_model(a: MegatronArguments) -> Iterator[Finding]:
    """Faults that appear when the groups and the model are built."""
    tp, pp, ep = a.whole(TP), a.whole(PP), a.whole(EP)
    etp = a.whole("expert_tensor_parallel_size") or tp
    dense = not a.whole("num_experts") or a["moe_layer_freq"] != 1
    ffn = ffn_of(a)
    if dense and ffn % tp:
        yield built("ffn_hidden_size", ffn).expected(
            f"a multiple of --tensor-model-parallel-size ({tp}): not divisible",
            f"--ffn-hidden-size {nearest_multiple(ffn, tp)}",
        )
    if a.whole("num_experts"):
        inner = a.whole("moe_ffn_hidden_size") or ffn
        if inner % etp:
            yield built("moe_ffn_hidden_size", inner).multiple(
                etp, "the experts' tensor parallelism"
            )
        shared = a.whole("moe_shared_expert_intermediate_size")
        if shared % tp:
            yield built("moe_shared_expert_intermediate_size", shared).multiple(tp, flag_of(TP))
        frequency = a["moe_layer_freq"]
        if isinstance(frequency, tuple) and len(frequency) != layers_of(a):
            yield built("moe_layer_freq", f"{len(frequency)} entries").expected(
                f"--num-layers ({layers_of(a)})"
            )
    if a.whole("padded_vocab_size") % tp:
        padded = a.whole("padded_vocab_size")
        yield built("padded_vocab_size", padded).expected(
            f"a multiple of --tensor-model-parallel-size ({tp})",
            f"--padded-vocab-size {-(-padded // tp) * tp}",
        )
    size = etp * ep * pp
    if a.world % size:
        most = a.world // pp // etp if a.world % (pp * etp) == 0 else 1
        experts = a.whole("num_experts") or most
        yield built("expert_model_parallel_size", f"{ep} on {a.world} ranks").expected(
            f"a world size that is a multiple of {size} = expert tensor {etp} x "
            f"--expert-model-parallel-size {ep} x --pipeline-model-parallel-size {pp}",
            f"--expert-model-parallel-size {nearest_divisor(ep, most, experts)}",
        )
    elif a.on("use_tp_pp_dp_mapping") and pp > 1 and a.world // size != a.world // model_size(a):
        yield built(
            "use_tp_pp_dp_mapping",
            f"{a.world // size} replicas of experts and {a.world // model_size(a)} of the rest",
        ).expected("equally many, or the default order")
    instances = a.whole("num_distributed_optimizer_instances")
    shares = a.world // (tp * pp)
    if instances < 1 or shares % instances:
        yield built("num_distributed_optimizer_instances", instances).divisor(
            shares, "data-parallel size x context-parallel size"
        )
    elif a.world % size == 0 and a.world // size % instances:
        yield built("num_distributed_optimizer_instances", instances).divisor(
            a.world // size, "replicas of experts"
        )


def check_states(a: MegatronArguments) -> Iterator[Finding]:
    """Demands of `OptimizerConfig` when the optimiser is built, and of those that are not Adam
    (`_get_megatron_emerging_optimizer`)."""
    name, copies = a.text("optimizer"), a.whole("num_distributed_optimizer_instances")
    if name in EMERGING and a.on("fp16"):
        yield built("--fp16", f"--optimizer {name}").expected("--bf16", "--bf16")
    if name in EMERGING and copies > 1:
        yield built("num_distributed_optimizer_instances", copies).expected(
            f"1 with --optimizer {name}", "--num-distributed-optimizer-instances 1"
        )
    aware = a.on("use_precision_aware_optimizer")
    if aware and a["optimizer"] != "adam":
        yield built("--use-precision-aware-optimizer", f"--optimizer {a['optimizer']}").expected(
            "adam", "--optimizer adam"
        )
    if aware and not a.on("use_distributed_optimizer") and not a.on("use_megatron_fsdp"):
        yield needs("use_precision_aware_optimizer", "use_distributed_optimizer", "it", stage=BUILD)
    for key in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        if not aware and a[key] != "fp32":
            yield built(key, f"{a[key]} without --use-precision-aware-optimizer").expected(
                "fp32", "--use-precision-aware-optimizer"
            )


def check_sequence(a: MegatronArguments) -> Iterator[Finding]:
    """Faults of sequences and experts in the first forward pass."""
    tp, cp, sequence = a.whole(TP), a.whole(CP), sequence_of(a)
    unit = (2 if cp > 1 else 1) * tp * cp
    if sequence_parallel_of(a) and sequence % (tp * cp):
        yield run("--seq-length", sequence).expected(
            f"a multiple of {tp * cp} = --tensor-model-parallel-size x "
            "--context-parallel-size with --sequence-parallel",
            f"--seq-length {nearest_multiple(sequence, unit)}",
            f"--seq-length {max(1, sequence // unit) * unit}",
        )
    experts = a.whole("num_experts")
    if experts and tp > 1 and not sequence_parallel_of(a):
        yield run(
            "--num-experts",
            f"experts with --tensor-model-parallel-size {tp} without --sequence-parallel",
        ).expected("--sequence-parallel", "--sequence-parallel")
    if experts and a.whole("moe_router_topk") > experts:
        yield run("--moe-router-topk", a["moe_router_topk"]).expected(
            f"at most --num-experts ({experts})", f"--moe-router-topk {experts}"
        )


# ---- all rules -----------------------------------------------------------------------------------


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
    parallel.check_sparse,
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
    check_built_model,
    check_states,
    parallel.check_rampup,
    pipeline.check_interleaving,
    pipeline.check_recomputed_layers,
    check_sequence,
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
