"""The parts of layers that a job recomputes."""

from dataclasses import replace

from ilp_planner.job.modules import Kept, Module
from ilp_planner.job.shard import part, shard_of, stream_width
from ilp_planner.specs.layer_kinds import COMPRESSED, EXPERTS, LAYER_KINDS, MLP, LayerKind
from ilp_planner.specs.training import MIXTURES, Recompute, TrainingJob

BOOLEAN = 1  # bytes of a boolean

# What selective recomputation can name (`--recompute-modules`) -> how the names of what it computes
# again begin: modules of `job.work`, and paths of messages (`job.messages`).
PARTS = {
    "core_attn": ("core_attention", "self_attention.core_attention"),
    "mla_up_proj": (
        "linear_q_up_proj",
        "linear_kv_up_proj",
        "query_norm",
        "linear_kv_proj",
        "rope",
        "self_attention.linear_q_up_proj",
        "self_attention.linear_kv_up_proj",
    ),
    "layernorm": ("input_norm", "mlp_norm"),
    "mlp": ("mlp_", "mlp.linear_"),
    "moe": ("router", "permute", "experts_", "shared_experts_", "unpermute", "mlp."),
    "moe_act": ("experts_activation",),
    "shared_experts": ("shared_experts_", "mlp.shared_experts."),
    # Not the mappings, nor what is added to the streams after the MLP, the next layer's input
    # (`hyper_connection.py: _forward_with_checkpoint`, with `--mhc-recompute-layer-num 1`).
    MIXTURES: ("input_norm", "mlp_norm", "attention_mixture", "attention_streams", "mlp_mixture"),
}
OF_EXPERTS = ("moe", "moe_act", "shared_experts")
OF_DENSE = ("mlp",)
OF_ATTENTION = ("core_attn", "mla_up_proj")


def skipped_parts(kind: LayerKind) -> tuple[str, ...]:
    """Return the parts of `PARTS` that a kind of layer has not."""
    if kind.mixer in COMPRESSED:  # scores of pooled keys are never recomputed alone
        skipped: tuple[str, ...] = OF_ATTENTION[:1]
    else:
        skipped = (MIXTURES,) if kind.attends else (*OF_ATTENTION, MIXTURES)
    skipped += () if kind.inner == EXPERTS else OF_EXPERTS
    return skipped + (() if kind.inner == MLP else OF_DENSE)


def recomputed_parts(*, kind: int) -> dict[str, tuple[str, ...]]:
    """Return the parts of `PARTS` in a layer. kind: its number in `LAYER_KINDS`."""
    skipped = skipped_parts(LAYER_KINDS[kind])
    return {name: starts for name, starts in PARTS.items() if name not in skipped}


def recomputes(job: TrainingJob, module: str) -> bool:
    """Return whether selective recomputation covers this part of every layer."""
    recompute = job.settings.recompute
    return recompute.granularity == "selective" and module in recompute.modules


def norms_again(job: TrainingJob) -> bool:
    """Return whether selective recomputation covers the outputs of a layer's norms."""
    return recomputes(job, "layernorm") or recomputes(job, MIXTURES)


def recomputing_only(job: TrainingJob, modules: tuple[str, ...]) -> TrainingJob:
    """Return the job with selective recomputation of these parts alone, of those that it covers."""
    recompute = job.settings.recompute
    return without(job, *(name for name in recompute.modules if name not in modules))


def without(job: TrainingJob, *modules: str) -> TrainingJob:
    """Return the job without selective recomputation of these parts."""
    recompute = job.settings.recompute
    left = tuple(name for name in recompute.modules if name not in modules)
    if left == recompute.modules:
        return job
    again = replace(recompute, modules=left) if left else Recompute()
    return replace(job, settings=replace(job.settings, recompute=again))


def recomputed_layers(job: TrainingJob, layers: int) -> int:
    """Return how many of the layers of one (virtual) stage are recomputed."""
    recompute = job.settings.recompute
    if recompute.granularity != "full":
        return 0
    if recompute.method == "uniform":
        return layers
    return min(recompute.layers, layers)


def checkpoint(job: TrainingJob) -> Kept:
    """Return the input that a layer, or a chunk of them, is recomputed from."""
    tokens, batch, hidden = shard_of(job).narrow
    if job.settings.recompute.distribute:
        tokens = part(tokens, job.tp)
    shape = (tokens, batch, hidden * job.model.streams)
    why = "the layer is computed again from it"
    return Kept(name="input", shape=shape, width=stream_width(job), why=why)


def loader_mask(job: TrainingJob) -> tuple[Kept, ...]:
    """Return the mask of every pair of tokens that the data loader makes, a boolean for each.

    It goes to the first and the last stage.
    """
    sizes = shard_of(job)
    if not job.settings.kernels.loader_mask:
        return ()
    shape = (sizes.batch, 1, sizes.tokens, job.model.sequence)
    why = "an argument of the layers that are computed again"
    return (Kept(name="attention mask", shape=shape, width=BOOLEAN, why=why),)


def remembering(job: TrainingJob) -> TrainingJob:
    """Return the job without recomputation."""
    return replace(job, settings=replace(job.settings, recompute=Recompute()))


def forget(module: Module, *kept: Kept) -> Module:
    """Return the module with its weights, keeping only these activations."""
    return replace(module, kept=kept, children=tuple(map(forget, module.children)))


def keep_input(module: Module) -> Module:
    """Return the module with its weights, keeping its own input only."""
    return forget(module, *(kept for kept in module.kept if kept.name == "input"))
