"""The links of a GPU's generation, for clusters that name a GPU and say no links of their own."""

from collections.abc import Mapping, Sequence

from ilp_planner.specs.cluster import Device, NodeGroup
from ilp_planner.specs.gpus import Gpu, gpu
from ilp_planner.specs.link import Link

# Share of a link's rate that large messages reach, and seconds until one starts; both assumed.
REACHED = {"NVLink": 0.8, "xGMI": 0.8, "PCIe": 0.75}
LATENCY = {"NVLink": 10e-6, "xGMI": 10e-6, "PCIe": 20e-6}
NETWORK_REACHED = 0.9


def link_inside(row: Gpu) -> Link:
    """Return the link inside a node: a pair's, and in rings all links of a GPU."""
    kind = row.link.split()[0]
    share = REACHED[kind]
    mesh = row.pair_bandwidth < row.link_bandwidth
    return Link(
        bandwidth=share * row.pair_bandwidth,
        latency=LATENCY[kind],
        collectives={row.node: share * row.link_bandwidth} if mesh else {},
    )


def link_between(
    pair: tuple[str, str], types: Mapping[str, Device], nodes: Sequence[NodeGroup]
) -> Link:
    """Return the link between nodes of two device types: all network cards of the weaker node
    together, or of a cluster inside one NVLink domain all its NVLinks.

    Parameters
    ----------
    types: by name; types of the pair name a GPU.
    """
    rows = [gpu(types[name].gpu) for name in pair]
    sizes = [min(g.devices for g in nodes if g.device == name) for name in pair]
    devices = sum(group.count * group.devices for group in nodes)
    if all(group.device in pair for group in nodes) and all(
        row == rows[0] and row.node < row.domain >= devices for row in rows
    ):
        inside = link_inside(rows[0])
        return Link(bandwidth=inside.bandwidth * min(sizes), latency=inside.latency)
    return Link(
        bandwidth=NETWORK_REACHED
        * min(row.network_bandwidth * size for row, size in zip(rows, sizes, strict=True)),
        latency=max(row.network_latency for row in rows),
    )


def link_note(link: Link) -> str:
    """Return the remark of results on a link that a file leaves to the table."""
    return (
        f"{link.bandwidth / 1e9:.4g} GB/s and {link.latency * 1e6:g} us are assumed, of its "
        "generation (`ilp-plan gpus`)"
    )
