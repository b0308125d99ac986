"""Sharded parameters and gradients that are whole for a while: the units of FSDP in use."""

from collections.abc import Mapping, Sequence

from ilp_planner.job.counts import Count, larger, where
from ilp_planner.job.parts import KINDS, MemoryParts
from ilp_planner.job.quantised import gathered_width
from ilp_planner.job.states import gathers, stay_gathered

AT_ONCE = 2  # layers whose parameters are gathered: the one in use and the next
LAYERS = ("layer", "expert layer", "prediction layer")


def gathered(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return whole parameters, if they are sharded.

    FSDP gathers a layer's parameters before it is used, and the next one's meanwhile. All but
    layers is no unit of its own, and stays gathered (`megatron_fsdp.py: _post_forward`). torchtitan
    makes units of it as well (`apply_fsdp`); with virtual stages PyTorch gathers whole ones, ahead
    of their turn, up to three on a rank (`pipelining/schedules.py: _add_unshard_reshard`): all
    count.
    """
    weights, _ = gathers(parts.job)
    if not weights:
        return 0.0
    width = parts.job.settings.width
    if stay_gathered(parts.job) and parts.job.virtual > 1:
        return width * _whole(parts, counts)
    if parts.job.settings.optimizer.from_master:
        return width * _neighbours(parts, counts)
    if parts.job.settings.quantised:
        rest = width * _rest(parts, counts, KINDS)
        return gathered_width(parts.job) * _units(parts, counts) + rest
    return width * (_units(parts, counts) + _rest(parts, counts, KINDS))


def left_gathered(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return the parameters that the end of a backward pass leaves gathered, beyond the permanent
    ones."""
    if not stay_gathered(parts.job) or parts.job.virtual > 1:
        return 0.0
    more = larger(0.0, _whole(parts, counts) - _neighbours(parts, counts))
    return parts.job.settings.width * more


def whole_gradients(parts: MemoryParts, counts: Mapping[str, Count]) -> tuple[Count, Count]:
    """Return whole gradients, if they are sharded: while layers go back, and at the end.

    Gradients of a layer are reduced after it; all others at the end
    (`megatron_fsdp.py: _root_post_backward`), unless it is a unit of its own.
    """
    _, gradients = gathers(parts.job)
    if not gradients:
        return 0.0, 0.0
    width = parts.job.settings.optimizer.gradient
    if parts.job.settings.optimizer.from_master:
        units = width * _neighbours(parts, counts)
        return units, units
    layers = _units(parts, counts) + _rest(parts, counts, ("output", "final norm"))
    return width * layers, width * _rest(parts, counts, KINDS)


def _whole(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return all parameters of a rank."""
    return sum(counts[kind] * parts.parts[kind].parameters for kind in KINDS)


def _units(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return the parameters of the layers in use."""
    return AT_ONCE * _largest(parts, counts, LAYERS)


def _neighbours(parts: MemoryParts, counts: Mapping[str, Count]) -> Count:
    """Return the parameters of the two units in use if all but the layers is one, too."""
    layer = _largest(parts, counts, LAYERS)
    rest = [kind for kind in KINDS if kind not in LAYERS]
    return layer + larger(layer, _largest(parts, counts, rest))


def _largest(parts: MemoryParts, counts: Mapping[str, Count], kinds: Sequence[str]) -> Count:
    """Return the parameters of the largest part that is there, of these kinds."""
    most: Count = 0.0
    for kind in kinds:
        size = float(parts.parts[kind].parameters)
        most = larger(most, where(counts[kind] > 0, size))
    return most


def _rest(parts: MemoryParts, counts: Mapping[str, Count], kinds: Sequence[str]) -> Count:
    """Return the parameters of all that is no layer, of these kinds."""
    return sum(counts[kind] * parts.parts[kind].parameters for kind in kinds if kind not in LAYERS)
