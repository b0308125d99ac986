"""Seconds of the host that starts the kernels and messages of a training job's modules one by one.

The device works meanwhile: a pass takes at least as long as its starts.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.layer_kinds import ATTENTION, EXPERTS, LayerKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.job.messages import Messages
    from ilp_planner.job.work import ModuleWork
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import TrainingJob


class Element(NamedTuple):
    """The work of an element of the chain, by its modules.

    layer: it is one, of so many blocks of two, whose kernels the host has to start in time.
    experts: it has some, by whose counts of tokens the host waits. graphed: shares of the host's
    time that graphs of its parts save. again: recomputable share of a module or of its messages.
    returns: it has a backward pass.
    """

    work: tuple[ModuleWork, ...]
    messages: Messages
    layer: float = 0.0
    experts: bool = False
    graphed: Mapping[str, float] = MappingProxyType({})
    again: Mapping[str, Callable[[str], float]] = MappingProxyType({})
    returns: bool = True


# Shares of the host's time for a layer that a graph of its parts saves, without and with experts.
GRAPHED_SHARES: tuple[dict[str, float], dict[str, float]] = (
    {"attn": 0.5, "mlp": 0.5},
    {"attn": 0.25, "moe": 0.75, "moe_router": 0.04, "moe_preprocess": 0.04},
)


def graphed_shares(kind: LayerKind) -> dict[str, float]:
    """Return the shares of a layer: of one block, of that block's part."""
    mixer = "attn" if kind.mixer == ATTENTION else kind.mixer
    shares = GRAPHED_SHARES[kind.inner == EXPERTS]
    shares = {mixer if name == "attn" else name: share for name, share in shares.items()}
    if kind.blocks > 1:
        return shares
    own = {name: share for name, share in shares.items() if (name == mixer) == bool(kind.mixer)}
    whole = max(own.values())
    return {name: share / whole for name, share in own.items()}


CHECKPOINT = 4  # kernels that take the host as long as computing a module again
# Likewise, as starting one more product of a group that is no single kernel: 9.3 us by SimuMax's
# rows of Transformer Engine on B200 (`tests/benchmarks/kernel_streams.py`), where a kernel of a
# layer with experts takes 0.1 ms, with its tensors and its part of autograd.
PRODUCT = 0.09


class Host(NamedTuple):
    """Seconds of the host for an element.

    floors: to start the kernels and messages of each pass, while the device works. waits: of each
    pass, in which the device has nothing to do. checkpoint: likewise, for a module that is computed
    again. product: between the starts of two products of a group that the device waits for.
    """

    floors: tuple[float, float] = (0.0, 0.0)
    waits: tuple[float, float] = (0.0, 0.0)
    checkpoint: float = 0.0
    product: float = 0.0


def host_seconds(job: TrainingJob, machine: Machine, element: Element) -> Host:
    """Return what the host takes for an element.

    Machines say it of a layer, and besides of each kernel and message of one with experts.
    There the host waits for the numbers of tokens that experts take, and the device for the kernels
    that the host starts after that, unless experts are padded to a capacity: a group of many small
    products takes at least as long as their starts. A graph starts its kernels at once: all of a
    layer, or the share of the named parts (`GRAPHED_SHARES`).
    """
    kernels, experts = job.settings.kernels, element.experts
    if not element.layer or (kernels.graphs and not kernels.graphed):
        return Host()
    saved = sum(element.graphed.get(name, 0.0) for name in kernels.graphed)
    share = max(0.0, 1.0 - saved)
    there = element.layer * share * machine.host_forward
    back = element.layer * element.returns * share * machine.host_backward
    if not experts:
        return Host((there, back))
    ways = zip(*(module.ways for module in element.work), strict=True)
    sent = zip(*element.messages.values(), strict=True) if element.messages else ((), ())
    started, products = [], []
    for own, messages in zip(ways, sent, strict=True):
        each = [kernel for some in own for kernel in some]
        started.append(share * (len(each) + sum(map(len, messages))))
        products.append(share * sum(max(0.0, kernel.products - 1) for kernel in each))
    rows = zip((there, back), started, products, strict=True)
    floors = [own + machine.host_experts * (few + PRODUCT * many) for own, few, many in rows]
    if kernels.pad_to_capacity or "moe" in kernels.graphed:
        return Host((floors[0], floors[1]))
    waits = machine.expert_waits * started[0], machine.expert_waits * started[1]
    return Host(
        (floors[0], floors[1]),
        waits,
        CHECKPOINT * machine.host_experts,
        share * PRODUCT * machine.host_experts,
    )
