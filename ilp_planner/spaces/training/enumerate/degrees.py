"""The degrees that Megatron-LM can run on a cluster, and the rules that they keep.

Every device is used: tp x cp x dp x pp of them, in Megatron's two orders of ranks; ranks fill the
nodes one after the other; if nodes differ, nodes of a type follow each other, in any order of the
types. Megatron checks some of these rules late or not at all.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import InfeasibleError, SpecError
from ilp_planner.inputs.constraints import ANY
from ilp_planner.settings.rules import same_pipelines
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.layer_kinds import ATTENTION, MLP
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ilp_planner.costs.profiles.elements import ElementProfile
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Kernels

MOST_CP = 8  # context-parallel degree that is tried without being asked for more


class MegatronDegrees(NamedTuple):
    """The degrees shared by all ranks. etp: of experts, 0 without any. order: number in `ORDERS`.
    nodes: of the cluster, by number, as ranks fill them. choice: number of the job's settings."""

    tp: int
    cp: int
    ep: int
    etp: int
    dp: int
    pp: int
    micro_batch: int
    order: int
    nodes: tuple[int, ...]
    choice: int = 0

    def micro_batches(self, global_batch: int) -> int:
        """Return B."""
        return global_batch // (self.micro_batch * self.dp)

    @property
    def replicated(self) -> bool:
        """Several ranks have the same parameters, of experts or of the rest."""
        ranks = self.tp * self.cp * self.dp
        return self.dp * self.cp > 1 or (self.etp > 0 and ranks > self.ep * self.etp)

    def describe(self, cluster: ClusterSpec) -> str:
        """Return its name in certificates."""
        text = f"tp {self.tp}"
        text += f", cp {self.cp}" if self.cp > 1 else ""
        text += f", ep {self.ep} x tp {self.etp}" if self.etp else ""
        text += f", dp {self.dp}, pp {self.pp}, micro-batch {self.micro_batch}"
        text += f", order {ORDERS[self.order]}" if self.order else ""
        if len(cluster.type_names) == 1:
            return text
        types = dict.fromkeys(cluster.node_types[node] for node in self.nodes)
        return f"{text}, {' then '.join(types)}"


def check_cluster(cluster: ClusterSpec) -> None:
    """Refuse a cluster that Megatron cannot be launched on as a whole.

    Raises
    ------
    SpecError: nodes have unequal numbers of devices.
    """
    if not cluster.equal_nodes:
        sizes = sorted({group.devices for group in cluster.nodes})
        raise SpecError(
            f"cluster {cluster.name!r}: nodes must have equally many devices for Megatron-LM "
            f"(torchrun --nproc-per-node), found {', '.join(map(str, sizes))}"
        )


def default_max_cp(kernels: Kernels, profile: ElementProfile | None = None) -> int:
    """Return the context-parallel degree to try without being asked for another: as far as layers
    were measured, and with flash attention alone."""
    if profile is not None:
        return max((shard.cp for shard in profile.shards), default=1)
    return 1 if kernels.attention == "unfused" else MOST_CP


def tensor_rules(model: Decoder, tp: int) -> Iterator[str]:
    """Yield why a tensor-parallel degree is none for this model; Megatron finds the MLP's width
    only when it builds the model."""
    if model.compressed and tp > 1:
        yield "compressed attention is whole on every rank"
    if model.has(ATTENTION) and model.heads % tp:
        yield f"{model.heads} heads are not divisible"
    grouped = model.latent is None and model.has(ATTENTION)
    if grouped and model.kv_heads % tp and tp % model.kv_heads:
        yield f"{model.kv_heads} query groups are no multiple or divisor"
    if model.has(MLP) and model.ffn % tp:
        yield f"ffn {model.ffn} is not divisible"
    if model.experts and model.experts.shared_ffn % tp:
        yield f"ffn {model.experts.shared_ffn} of the shared expert is not divisible"
    if model.prediction_layers and model.hidden % tp:
        yield f"hidden {model.hidden} is not divisible"
    for encoder in model.encoders:
        if encoder.whole:
            continue
        for what, count in (("heads", encoder.heads), ("ffn", encoder.ffn)):
            if count % tp:
                yield f"{what} {count} of the encoder are not divisible"
    for mixer in model.scans:
        for what, count in mixer.divisors.items():
            if count % tp:
                yield f"{count} {what} are not divisible"


def sequence_rules(model: Decoder, tp: int, cp: int) -> Iterator[str]:
    """Yield why a sample's tokens cannot be divided so; Megatron finds out at the first step."""
    if cp > 1 and model.compressed:
        yield "compressed attention has context parallelism for packed samples alone"
    if cp > 1 and model.sequence % (2 * cp):
        yield f"sequence {model.sequence} is not divisible by 2 x cp"
    if model.sequence % (tp * cp):
        yield f"sequence {model.sequence} is not divisible by tp x cp"


def expert_degrees(model: Decoder, tp: int, rest: int) -> tuple[tuple[int, int], ...]:
    """Return the (ep, etp) that are possible; experts with biases are not divided (Megatron core,
    `TransformerConfig`).

    Parameters
    ----------
    rest: ranks of a pipeline stage; ep x etp must divide them.
    """
    if model.experts is None:
        return ((1, 0),)
    return tuple(
        (ep, etp)
        for etp in sorted({1} if model.bias else {1, tp})
        if model.experts.ffn % etp == 0 and rest % etp == 0
        for ep in divisors(math.gcd(model.experts.count, rest // etp))
    )


def megatron_space(
    model: Decoder,
    cluster: ClusterSpec,
    global_batch: int,
    *,
    micro_batches: Collection[int],
    max_tp: int | None = None,
    max_cp: int = 1,
    max_stages: int | None = None,
    constraints: Constraints = ANY,
    title: str = "Megatron-LM",
    orders: Collection[str] = ORDERS,
) -> Iterator[MegatronDegrees]:
    """Yield every choice of degrees that keeps the rules, each as soon as it is known.

    Parameters
    ----------
    micro_batches: numbers of micro-batches per iteration that are allowed.
    constraints: on degrees and orders of ranks. title: of the runtime. orders: of ranks that it
        has.

    Raises
    ------
    InfeasibleError: there is none.
    """
    each, devices = cluster.nodes[0].devices, cluster.device_count
    allowed = set(micro_batches)
    nodes_of = {several: tuple(node_orders(cluster, 1 + several)) for several in (False, True)}
    most = min(model.layers + 2, max_stages or devices)
    some = False
    why: dict[str, None] = {}
    for tp in divisors(each):
        if max_tp is not None and tp > max_tp:
            continue
        broken = list(tensor_rules(model, tp))
        why |= dict.fromkeys(f"tp {tp}: {text}" for text in broken)
        if broken or not constraints.allows("tp", tp):
            continue
        for cp in divisors(devices // tp):
            if cp > max_cp:
                break
            broken = list(sequence_rules(model, tp, cp))
            why |= dict.fromkeys(f"tp {tp}, cp {cp}: {text}" for text in broken)
            if broken or not constraints.allows("cp", cp):
                continue
            for pp in divisors(devices // (tp * cp)):
                dp = devices // (tp * cp * pp)
                if pp > most:
                    why[f"pp {pp}: more than {most} stages"] = None
                elif global_batch % dp:
                    why[f"dp {dp}: does not divide the global batch {global_batch}"] = None
                elif constraints.allows("pp", pp) and constraints.allows("dp", dp):
                    every = (
                        MegatronDegrees(tp, cp, ep, etp, dp, pp, size, order, nodes)
                        for size in divisors(global_batch // dp)
                        if global_batch // (dp * size) in allowed
                        and constraints.allows("micro_batch_size", size)
                        for ep, etp in expert_degrees(model, tp, tp * cp * dp)
                        if constraints.allows("ep", ep)
                        for order in rank_orders(constraints, pp, dp, orders)
                        if not order or pp == 1 or same_pipelines(tp, cp, ep, etp)
                        for nodes in nodes_of[pp > 1]
                    )
                    for one in every:
                        some = True
                        yield one
    if not some:
        raise InfeasibleError(
            f"cluster {cluster.name!r}: {title} has no (tp, cp, dp, pp) for all {devices} "
            f"devices: {'; '.join(why) or 'no micro-batch is left'}"
        )


def rank_orders(
    constraints: Constraints, pp: int, dp: int, orders: Collection[str] = ORDERS
) -> tuple[int, ...]:
    """Return the numbers of the allowed orders of ranks: the first of them if all put every rank in
    the same place."""
    allowed = [
        n
        for n, name in enumerate(ORDERS)
        if name in orders and constraints.allows("rank_order", name)
    ]
    return tuple(allowed if pp > 1 and dp > 1 else allowed[:1])


def node_orders(cluster: ClusterSpec, pp: int) -> Iterator[tuple[int, ...]]:
    """Yield the orders of nodes: their own, and on a pipeline every order of their types."""
    types = cluster.node_types
    for names in permutations(cluster.type_names) if pp > 1 else (cluster.type_names,):
        yield tuple(node for name in names for node, kind in enumerate(types) if kind == name)
