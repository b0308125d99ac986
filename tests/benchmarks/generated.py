"""Generated instances for measurements of scale: a recipe, not a list of cases.

One generator (NumPy's PCG64, from the seed) draws everything in the order below. Ranges are uniform
unless said otherwise; an instance depends on (types, devices_per_type, layers, seed) alone.

Model: a transformer of `layers` layers, an embedding before and a head after them (L = layers + 2).
Hidden width one of 3072, 4096, 5120, 6144; 1024 or 2048 tokens; 51200 words. Every layer has a
factor of 0.8 to 1.2 on its width: on arithmetic, parameters and activations alike.

Device types, called t0, t1 ...: the slowest sustains 20 to 40 TFLOP/s, the others 1 to 6 times
that. Memory is one of 16, 24, 32, 40, 48, 80 GiB. At least one type has no more than 32 GiB, so
that memory binds. Nodes hold 8 devices, or 4 with a chance of one third; links inside them reach
20 to 300 GB/s (log-uniform), between nodes of two types `between` (log-uniform), with latencies
of 5 to 50 us. SLOW, 1 to 25 GB/s, is what rented machines of mixed kinds have; FAST, 12.5 to
50 GB/s, are the 100 to 400 Gbit/s cards of clusters with hundreds of devices.

Time of a layer for x samples on tp devices, forward and backward:

    floor + x * 3 * flops / (rate * efficiency) / tp + 4 all-reduces of x * hidden state

floor: 0.1 to 0.5 ms per layer and type, what launches take. efficiency: tp ** -0.1 to tp ** -0.25
by type, as smaller products run worse. The all-reduces are rings on the link inside a node. Flops,
parameters, activations: those of GPT with fused attention (Narayanan et al. 2021, arXiv 2104.04473;
Korthikanti et al. 2022, arXiv 2205.05198). States take 16 bytes per parameter.

Global batch: 512 samples up to 256 devices, then 1024: micro-batches of 8 or 16 make B = 64.
"""

import numpy as np

from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.link import Link

GIB = 2**30
DEGREES = (1, 2, 4, 8)
SAMPLES = (1, 2, 4, 8, 16)
NUMBER = 2  # bytes of an fp16 number
STATES = 16  # bytes per parameter
VOCAB = 51200
SLOW, FAST = (1e9, 25e9), (12.5e9, 50e9)  # bytes/s between nodes, least and most


def instance(
    types: int, devices_per_type: int, layers: int, seed: int, between: tuple[float, float] = SLOW
) -> tuple[LayerProfile, ClusterSpec, int]:
    """Return an instance: its profile, its cluster and its global batch.

    Parameters
    ----------
    types: of devices. devices_per_type: a multiple of 4. layers: transformer layers.
    between: bytes/s of links between nodes, least and most.

    Raises
    ------
    ValueError: a number below 1, or devices that do not fill nodes.
    """
    if min(types, devices_per_type, layers) < 1 or devices_per_type % 4:
        raise ValueError(
            "expected at least one type and layer, and a multiple of 4 devices, "
            f"found {types} types, {devices_per_type} devices, {layers} layers"
        )
    draw = np.random.default_rng((types, devices_per_type, layers, seed))
    hidden = int(draw.choice([3072, 4096, 5120, 6144]))
    tokens = int(draw.choice([1024, 2048]))
    factors = draw.uniform(0.8, 1.2, layers)
    cluster = _cluster(draw, types, devices_per_type, between)
    profile = _profile(draw, cluster, hidden, tokens, factors)
    return profile, cluster, 512 if types * devices_per_type <= 256 else 1024


def _cluster(
    draw: np.random.Generator, types: int, devices_per_type: int, network: tuple[float, float]
) -> ClusterSpec:
    names = [f"t{i}" for i in range(types)]
    slowest = draw.uniform(20e12, 40e12)
    rates = slowest * np.concatenate(([1.0], draw.uniform(1.0, 6.0, types - 1)))
    memories = draw.choice([16, 24, 32, 40, 48, 80], types)
    if memories.min() > 32:
        memories[draw.integers(types)] = draw.choice([16, 24, 32])
    fours = draw.random(types) < 1 / 3
    sizes = [4 if few or devices_per_type % 8 else 8 for few in fours]

    def link(low: float, high: float) -> Link:
        return Link(
            bandwidth=float(np.exp(draw.uniform(np.log(low), np.log(high)))),
            latency=float(draw.uniform(5e-6, 50e-6)),
        )

    within = {name: link(20e9, 300e9) for name in names}
    between = {
        (a, b): link(*network)
        for a, b in ((a, b) for a in sorted(names) for b in sorted(names))
        if a <= b
    }
    return ClusterSpec(
        name=f"generated-{types}x{devices_per_type}",
        device_types={
            name: Device(
                name=name,
                memory=int(memory) * GIB,
                peak={"fp16": float(rate)},
                sustained=1.0,
                memory_bandwidth=float(rate) / 150,  # bytes per FLOP of data-centre GPUs
            )
            for name, memory, rate in zip(names, memories, rates, strict=True)
        },
        nodes=tuple(
            NodeGroup(name=name, device=name, devices=size, count=devices_per_type // size)
            for name, size in zip(names, sizes, strict=True)
        ),
        intra_node=min(within.values(), key=lambda x: x.bandwidth),
        inter_node=min(between.values(), key=lambda x: x.bandwidth),
        within=within,
        between=between,
    )


def _profile(
    draw: np.random.Generator, cluster: ClusterSpec, hidden: int, tokens: int, factors: np.ndarray
) -> LayerProfile:
    words = float(VOCAB * hidden)
    parameters = np.concatenate(([words], 12.0 * hidden**2 * factors, [words]))
    # Forward FLOPs of one sample: two per parameter and token, and the attention's products.
    flops = np.concatenate(
        (
            [0.0],
            (24.0 * tokens * hidden**2 + 4.0 * tokens**2 * hidden) * factors,
            [2.0 * tokens * words],
        )
    )
    state = float(tokens * hidden * NUMBER)  # bytes of the hidden state of a sample
    inner = np.concatenate(([0.0], factors, [0.0]))  # 1 where a transformer layer is
    reduces = np.where(inner > 0, 4.0, 1.0)
    logits = float(tokens * VOCAB * 4)
    time, states, activation, workspace, optimizer = {}, {}, {}, {}, {}
    for name in cluster.type_names:
        device, link = cluster.device_types[name], cluster.within[name]
        rate = device.arithmetic("fp16")
        floor = draw.uniform(1e-4, 5e-4)
        loss = draw.uniform(0.1, 0.25)
        for tp in DEGREES:
            if tp > max(cluster.node_sizes(name)):
                continue
            for samples in SAMPLES:
                sent = 2 * (tp - 1) / tp * samples * state / link.bandwidth
                time[LayerKey(name, tp, samples)] = (
                    floor
                    + 3 * samples * flops / (rate * tp**-loss * tp)
                    + (reduces * (link.latency + sent) if tp > 1 else 0.0)
                )
            key = (name, tp)
            states[key] = STATES * parameters / tp
            # Bytes per token and unit of width: 10 on every rank, 24 divided (table 2).
            activation[key] = state / NUMBER * (10 + 24 / tp) * inner
            activation[key][0] = state
            activation[key][-1] = logits / tp
            workspace[key] = np.full(parameters.size, 4 * state)
            optimizer[key] = 2 * states[key] / device.streaming
    boundary = np.full(parameters.size + 1, state)
    boundary[[0, -1]] = 0.0
    layers = ("embedding", *(f"layer {i}" for i in range(1, factors.size + 1)), "head")
    return LayerProfile(
        source="generated",
        layers=layers,
        time=time,
        state=states,
        activation=activation,
        workspace=workspace,
        gradients=NUMBER * parameters,
        boundary=boundary,
        optimizer=optimizer,
    )
