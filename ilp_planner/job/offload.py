"""Activations of a layer that wait for their backward pass in the host's memory.

Transformer Engine moves all large tensors of the first layers (`pytorch/cpu_offload.py`); Megatron
moves the activations that named modules of every layer save (`fine_grained_activation_offload.py`).
"""

from collections.abc import Callable, Iterator
from math import prod

from ilp_planner.job.modules import Kept, Module
from ilp_planner.specs.training import TrainingJob

ENGINE_SMALLEST = 2**20  # numbers of a tensor that Transformer Engine moves
ATTENTION, CORE, PROJECTION = "self_attention", "core_attention", "linear_proj"
IN_PLACE = "queries, keys, values"  # kept with the product that makes them, saved by attention
Path = tuple[str, ...]


def _norm(name: str) -> Callable[[Path, str], bool]:
    """Only a norm that stands alone; one merged into a product has no scope of its own."""
    return lambda path, kept: path == (name,) and kept != "output"


def _projected(path: Path, kept: str) -> bool:
    """All that is saved from the norm's output to queries, keys and values."""
    if path == ("input_layernorm",):
        return kept == "output"
    inner = path[:1] == (ATTENTION,) and path[1] not in (CORE, PROJECTION)
    return inner and kept != IN_PLACE


def _attended(path: Path, kept: str) -> bool:
    return path[:2] == (ATTENTION, CORE) or (path[:1] == (ATTENTION,) and kept == IN_PLACE)


def _of(*path: str) -> Callable[[Path, str], bool]:
    return lambda found, kept: found == path


# Module of `specs.training.OFFLOADED`, in the order of the forward pass -> what lies in its scope.
SCOPES: dict[str, Callable[[Path, str], bool]] = {
    "attn_norm": _norm("input_layernorm"),
    "qkv_linear": _projected,
    "core_attn": _attended,
    "attn_proj": _of(ATTENTION, PROJECTION),
    "mlp_norm": _norm("pre_mlp_layernorm"),
    "expert_fc1": _of("mlp", "experts", "linear_fc1"),
    "moe_act": _of("mlp", "experts", "activation_func"),
}


def moved_groups(job: TrainingJob, layer: Module) -> tuple[float, ...]:
    """Return the bytes of a micro-batch that leave for the host, by groups that leave together.

    layer: as the job recomputes.
    """
    offload = job.settings.offload
    if offload.layers:
        return (sum(_large(layer, ENGINE_SMALLEST, lambda path, kept: True)),)
    scopes = (SCOPES[name] for name in SCOPES if name in offload.modules)
    return tuple(sum(_large(layer, offload.smallest, scope)) for scope in scopes)


def _large(layer: Module, smallest: int, scope: Callable[[Path, str], bool]) -> Iterator[float]:
    """Yield the bytes of a layer's tensors in a scope that have so many numbers."""
    for path, kept, count in _tensors(layer):
        if prod(kept.shape) >= smallest and scope(path, kept.name):
            yield count * kept.size


def _tensors(module: Module, path: Path = (), count: int = 1) -> Iterator[tuple[Path, Kept, int]]:
    """Yield all tensors that are kept, with the modules' names below the layer, and how many."""
    for kept in module.kept:
        yield path, kept, count
    for child in module.children:
        yield from _tensors(child, (*path, child.name), count * child.repeat)
