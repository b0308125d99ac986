"""`16xA100-80GB`: clusters given by GPUs alone, with the rest from the table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.base.files import Document
from ilp_planner.base.limits import DEVICES
from ilp_planner.specs.cluster import ClusterSpec, NodeGroup
from ilp_planner.specs.cluster_reader import link_between, link_note, read_cluster
from ilp_planner.specs.cluster_writer import quoted
from ilp_planner.specs.gpus import Gpu, gpu, meant

FORM = re.compile(r"\s*(\d+)\s*x\s*(\S.*?)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Gpus:
    """So many GPUs of a kind."""

    count: int
    kind: Gpu

    @property
    def name(self) -> str:
        """Their text, also the cluster's name."""
        return f"{self.count}x{self.kind.name}"


def parse_gpus(text: str) -> Gpus:
    """Return the GPUs of `16xA100-80GB`.

    Raises
    ------
    UsageError: not a count and a GPU of the table, or no whole nodes.
    """
    match = FORM.fullmatch(text)
    if match is None:
        names = meant(text)
        hint = f": did you mean {' or '.join(f'8x{name}' for name in names)}?" if names else ""
        raise UsageError(
            f"gpus: found {text!r}, expected a count and a GPU, as in 16xA100-80GB{hint}"
        )
    count = int(match[1])
    try:
        found = Gpus(count, gpu(match[2]))
    except SpecError as error:
        if names := meant(match[2]):
            counted = " or ".join(f"{count}x{name}" for name in names)
            raise UsageError(
                f"gpus: found {text!r}, expected GPUs of the table (`ilp-plan gpus` shows it): did "
                f"you mean {counted}?"
            ) from None
        raise UsageError(f"gpus: {error}") from None
    if not 1 <= count <= DEVICES:
        raise UsageError(f"gpus: found {text!r}, expected 1 to {DEVICES} GPUs")
    node_size(found)
    return found


def is_gpus(text: str) -> bool:
    """Tell whether a cluster's name says GPUs."""
    try:
        parse_gpus(text)
    except UsageError:
        return False
    return True


def node_size(gpus: Gpus) -> int:
    """Return the GPUs of a node: the kind's number, or all if they are fewer. Beyond one domain of
    NVLink, its share of equal domains is a node: all links inside are equal.

    Raises
    ------
    UsageError: the GPUs fill no whole nodes. Names the counts that do.
    """
    count, kind = gpus.count, gpus.kind
    sizes = _sizes(count, kind)
    if not sizes:
        fits = [n for n in range(count, 0, -1) if _sizes(n, kind)][:1]
        fits += [n for n in range(count, 2 * count + kind.domain) if _sizes(n, kind)][:1]
        whole = f"whole nodes of {kind.node}, or fewer GPUs than one has"
        if count > kind.domain > kind.node:
            whole = f"equal domains of {kind.link}, of at most {kind.domain} GPUs"
        would = " or ".join(f"{n}x{kind.name}" for n in fits)
        raise UsageError(f"gpus: found {gpus.name}, expected {whole}; {would} would do")
    return sizes[0]


def _sizes(count: int, kind: Gpu) -> list[int]:
    """Return the sizes of nodes that so many GPUs fill, best first."""
    if count <= kind.node:
        return [count]
    if count <= kind.domain or kind.domain == kind.node:
        return [kind.node] if count % kind.node == 0 else []
    # No domain is left more than half empty.
    least = kind.domain // 2 + 1
    every = range(kind.domain // kind.node * kind.node, least - 1, -kind.node)
    return [size for size in every if count % size == 0]


def gpu_cluster(gpus: Gpus) -> ClusterSpec:
    """Return the cluster; its notes have the assumptions."""
    return read_cluster(Document(gpus.name, _text(gpus)))


def _text(gpus: Gpus) -> str:
    """Return a cluster file that leaves as much as possible to the table."""
    kind, size = gpus.kind, node_size(gpus)
    nodes = f"nodes of {size} {kind.name} are assumed"
    if size > kind.node:
        nodes += f", each {size // kind.node} of {kind.node} in one domain of {kind.link}"
    return "\n".join(
        [
            f"name = {quoted(gpus.name)}",
            f"notes = [{quoted(f'{nodes} ({kind.nodes_source})')}]",
            "[[nodes]]",
            f"count = {gpus.count // size}",
            f"device = {quoted(kind.name)}",
            f"devices = {size}",
            f"[devices.{quoted(kind.name)}]",
            f"gpu = {quoted(kind.name)}",
            f"profile = {quoted(kind.family.upper() or kind.name)}",
        ]
    )


def names_gpus(cluster: ClusterSpec) -> bool:
    """Tell whether some device type names a row of the table of GPUs."""
    return any(device.gpu for device in cluster.device_types.values())


def with_more_nodes(cluster: ClusterSpec, groups: Sequence[NodeGroup]) -> ClusterSpec:
    """Return the cluster with groups of at least as many nodes.

    The link inside a single node stands for the one between nodes there: more of them have the
    network of the table, with a note, and that link without its collectives if the table lacks the
    GPU.

    Raises
    ------
    SpecError: the file says the leaf switch of each of its nodes, and of no others.
    """
    count = sum(group.count for group in groups)
    if cluster.fabric.leaves and count > cluster.node_count:
        raise SpecError(
            f"cluster {cluster.name!r}: links.fabric: found leaves of {cluster.node_count} nodes, "
            f"expected nodes_per_leaf, which holds for more nodes: the job needs {count}"
        )
    nodes, link, notes = tuple(groups), cluster.inter_node, cluster.notes
    (name, *others), between = cluster.type_names, replace(link, collectives={})
    single = cluster.node_count == 1 and not others and link == cluster.intra_node
    if single and cluster.device_types[name].gpu:
        between = link_between((name, name), cluster.device_types, nodes)
        notes += (f"link between nodes of {name}: {link_note(between)}",)
    return replace(cluster, nodes=nodes, inter_node=between, notes=notes)
