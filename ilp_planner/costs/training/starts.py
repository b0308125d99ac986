"""Seconds of the host that starts the kernels and messages of a training job's modules one by one.

The device works meanwhile: a pass takes at least as long as its starts.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.specs.layer_kinds import EXPERTS, LayerKind
from ilp_planner.specs.machine import STARTS, with_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ilp_planner.job.messages import Messages
    from ilp_planner.job.work import ModuleWork
    from ilp_planner.specs.cluster import ClusterSpec
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

    @property
    def started(self) -> tuple[int, int]:
        """Kernels and messages of each pass."""
        there = sum(len(module.forward) for module in self.work)
        back = sum(len(module.backward) for module in self.work)
        for sent, returned in self.messages.values():
            there += len(sent)
            back += len(returned)
        return there, back

    @property
    def products(self) -> tuple[float, float]:
        """Products of each pass besides the first of their groups."""
        if not self.experts:
            return 0.0, 0.0
        there, back = (
            sum(max(0.0, kernel.products - 1) for own in way for kernel in own)
            for way in zip(*(module.ways for module in self.work), strict=True)
        )
        return there, back


# Shares of the host's time for a layer that a graph of its parts saves, without and with experts.
GRAPHED_SHARES: tuple[dict[str, float], dict[str, float]] = (
    {"attn": 0.5, "mlp": 0.5},
    {"attn": 0.25, "moe": 0.75, "moe_router": 0.04, "moe_preprocess": 0.04},
)


def graphed_shares(kind: LayerKind) -> dict[str, float]:
    """Return the shares of a layer: of one block, of that block's part."""
    mixer = "attn" if kind.attends else kind.mixer
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
# Of the host's time for a kernel in Megatron, that of the operators which PyTorch starts for one as
# transformers has them; and forward passes that take the host as long as computing an eager layer
# again, as the hooks of PyTorch's checkpoint see every tensor that the layer keeps. Both by steps
# with adapters on one H200 (`tests/benchmarks/host.py`).
EAGER, HOOKED = 0.71, 3.1


class Host(NamedTuple):
    """Seconds of the host for an element.

    floors: to start the kernels and messages of each pass, while the device works. waits: of each
    pass, in which the device has nothing to do. checkpoint: likewise, for a module that is computed
    again. product: between the starts of two products of a group that the device waits for.
    repeated: to start the forward pass once more; 0: as long as it took.
    """

    floors: tuple[float, float] = (0.0, 0.0)
    waits: tuple[float, float] = (0.0, 0.0)
    checkpoint: float = 0.0
    product: float = 0.0
    repeated: float = 0.0


def host_seconds(job: TrainingJob, machine: Machine, element: Element) -> Host:
    """Return what the host takes for an element.

    Machines say it of a layer, and besides of each kernel and message of a layer, but for those of
    compiled layers without experts, whose starts are not counted. Before experts the host waits for
    the numbers of tokens that they take, and the device for the kernels that the host starts after
    that, unless experts are padded to a capacity: a group of many small products takes at least as
    long as their starts. A graph starts its kernels at once: all of a layer, or the share of the
    named parts (`GRAPHED_SHARES`).
    """
    kernels, experts = job.settings.kernels, element.experts
    if not element.layer or (kernels.graphs and not kernels.graphed):
        return Host()
    saved = sum(element.graphed.get(name, 0.0) for name in kernels.graphed)
    share = max(0.0, 1.0 - saved)
    there = element.layer * share * machine.host_forward
    back = element.layer * element.returns * share * machine.host_backward
    if kernels.compiled and not experts:
        return Host((there, back))
    eager = kernels.implementation == "eager"
    each = machine.host_experts * (EAGER if eager else 1.0)
    started = element.started
    rows = zip((there, back), started, element.products, strict=True)
    floors = [own + each * share * (few + PRODUCT * many) for own, few, many in rows]
    host = Host((floors[0], floors[1]), repeated=HOOKED * floors[0] if eager else 0.0)
    if not experts or kernels.pad_to_capacity or "moe" in kernels.graphed:
        return host
    waits = [machine.expert_waits * share * few for few in started]
    return host._replace(
        waits=(waits[0], waits[1]), checkpoint=CHECKPOINT * each, product=share * PRODUCT * each
    )


def without_host(cluster: ClusterSpec) -> ClusterSpec:
    """Return a cluster whose hosts start everything at once."""
    none = dict.fromkeys(STARTS, 0.0)
    types = {
        name: replace(device, machine=with_constants(device.machine, none))
        for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)
