"""The cluster specification: device types, the nodes that hold them, and the links between them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ilp_planner.base.errors import LackingError, SpecError
from ilp_planner.base.limits import (
    DEVICES,
    FLOPS,
    LEAST_LATENCY,
    LEAST_RATE,
    MEMORY,
    RATE,
    SECONDS,
    beyond,
)
from ilp_planner.specs.architecture import check_counts
from ilp_planner.specs.fabric import Fabric
from ilp_planner.specs.kernel_constants import FLASH_VERSION, KernelConstants
from ilp_planner.specs.link import Link, check_positive, check_within
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.model import PRECISIONS
from ilp_planner.specs.zones import Zone, check_filled, common, ways

# Said to whoever meets a mixed cluster with a cost model of operators on equal devices.
ADVICE = "to plan operator by operator; `cost_model=native` plans mixed clusters layer by layer"


# Assumed of devices that say nothing else: PCIe 4 x16, and an eighth of 16 channels of DDR4-3200.
HOST_LINK, HOST_MEMORY = 31.5e9, 51.2e9
# Said by spaces and profiles that know one link between nodes, of clusters that have several.
SLOWEST_TAKEN = "links between nodes differ: every two taken as linked like the slowest two"
MEASURED, ROOFLINE = "measured", "roofline"  # what a file can say of the kernels of a GPU


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device type.

    memory: bytes. peak: precision -> FLOP/s of the data sheet.
    sustained: share of the peak that large matrix products reach.
    memory_bandwidth: bytes/s of the data sheet.
    sustained_bandwidth: share of the memory bandwidth that streaming kernels reach.
    launch: seconds that every kernel takes at least, started from a training framework.
    host_link, host_memory: bytes/s between the device and the host, one way, and its share of those
    of the host's memory, by data sheets; of what waits or is stepped there.
    price, spot_price: currency units per device and hour, and those of what may be taken back at
        any time; None when unknown.
    profile: what measured profiles call the type; its own name when empty.
    type: what people call it, where nodes of one type are told apart by their links
        (`specs/node_kinds.py`); its own name when empty.
    gpu: its row in the table of GPUs; empty: none is named.
    processors: streaming multiprocessors, or compute units; None: not known.
    kernels: what was measured of the GPU's kernels; None: they are taken as a roofline, as always
        where no GPU is named.
    flash_attention: version of the flash-attention package there, 2 or on Hopper 3; counts where a
        job asks for that package.
    machine: shares of their rates that training reaches; counts only beside `kernels`.

    There are two models of a kernel (`profiles.work`), each with its own shares of the data sheet:
    with `kernels`, `machine.sustained` and `machine.streaming` of what was measured of its shape;
    without, a roofline of `sustained`, `sustained_bandwidth` and `launch`. What is bytes alone in
    whole layers, optimiser steps and launch floors, has `sustained_bandwidth` either way.

    Only an analytic profile reads peak, sustained and memory_bandwidth: None where a measured one
    stands for them.
    """

    name: str
    memory: int
    peak: Mapping[str, float] | None = field(default=None, hash=False)
    sustained: float | None = None
    memory_bandwidth: float | None = None
    sustained_bandwidth: float = 0.85
    launch: float = 10e-6
    host_link: float = HOST_LINK
    host_memory: float = HOST_MEMORY
    price: float | None = None
    spot_price: float | None = None
    profile: str = ""
    type: str = ""
    gpu: str = ""
    processors: int | None = None
    kernels: KernelConstants | None = field(default=None, hash=False)
    flash_attention: int = FLASH_VERSION
    machine: Machine = field(default_factory=Machine)

    def __post_init__(self) -> None:
        if not self.profile:
            object.__setattr__(self, "profile", self.name)
        if not self.type:
            object.__setattr__(self, "type", self.name)
        check_within(1, MEMORY, "bytes", memory=self.memory)
        check_within(LEAST_LATENCY, SECONDS, "s", launch=self.launch)
        rates = {"host_link": self.host_link, "host_memory": self.host_memory}
        if self.memory_bandwidth is not None:
            rates["memory_bandwidth"] = self.memory_bandwidth
        check_within(LEAST_RATE, RATE, "bytes/s", **rates)
        if self.peak is not None and not self.peak:
            raise ValueError("peak must have at least one precision, found none")
        for precision, rate in (self.peak or {}).items():
            check_within(1, FLOPS, "FLOP/s", **{precision: rate})
        for name in ("sustained", "sustained_bandwidth"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise ValueError(f"{name} must be a share above 0 and at most 1, found {share!r}")
        for name in ("price", "spot_price"):
            if getattr(self, name) is not None:
                check_positive(**{name: getattr(self, name)})
                if expected := beyond("price", getattr(self, name)):
                    raise ValueError(f"{name} must be {expected}, found {getattr(self, name)}")

    def arithmetic(self, precision: str) -> float:
        """Return the sustained FLOP/s.

        Raises
        ------
        SpecError: the device type has no figure for this precision.
        """
        if self.peak is None:
            raise self._missing("peak")
        if self.sustained is None:
            raise self._missing("sustained")
        if precision not in self.peak:
            lacks = f"peak must have {precision!r}"
            if self.gpu:
                lacks = f"the GPU {self.gpu} has no {precision}"
            raise SpecError(
                f"device {self.name!r}: {lacks}, which the model needs, "
                f"found {', '.join(self.peak)}"
            )
        return self.sustained * self.peak[precision]

    @property
    def to_host(self) -> float:
        """The sustained bytes/s to the host, and from it."""
        return self.machine.host_link * self.host_link

    @property
    def on_host(self) -> float:
        """The sustained bytes/s of the host's memory."""
        return self.machine.host_memory * self.host_memory

    @property
    def streaming(self) -> float:
        """Return the sustained bytes/s of device memory.

        Raises
        ------
        SpecError: the device type has no figure.
        """
        if self.memory_bandwidth is None:
            raise self._missing("memory_bandwidth")
        return self.sustained_bandwidth * self.memory_bandwidth

    def _missing(self, key: str) -> SpecError:
        return SpecError(
            f"device {self.name!r}: {key} is missing, which an analytic profile needs "
            "(a measured one, `profile=FORMAT:PATH`, does without, unless for `space=megatron`)"
        )


@dataclass(frozen=True, kw_only=True)
class NodeGroup:
    """Equal nodes. count: of nodes; devices: in each of them, all of the type `device`. zone: the
    smallest one that they are in, if there are any."""

    device: str
    devices: int
    count: int = 1
    name: str = ""
    zone: str = ""

    def __post_init__(self) -> None:
        check_counts(count=self.count, devices=self.devices)


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The cluster.

    device_types: by name. nodes: in the order of device ranks. intra_node, inter_node: links.
    within: device type -> link inside its nodes, if that is not intra_node.
    between: pair of device types (in the order of their names) -> link between their nodes, where
        that is not inter_node; a pair may be twice the same type.
    matrix: link from node to node, a row and a column per node (each of a NodeGroup counted); empty
        when types decide. The diagonal is not used.
    zones: a tree with the link of two nodes: that of the smallest common zone,
        inter_node where there is none; empty when types or a matrix decide.
    fabric: the switches between nodes; not beside zones or a matrix, which say what these decide.
    notes: assumptions that every result repeats.
    """

    name: str
    device_types: Mapping[str, Device] = field(hash=False)
    nodes: tuple[NodeGroup, ...]
    intra_node: Link
    inter_node: Link
    within: Mapping[str, Link] = field(default_factory=dict, hash=False)
    between: Mapping[tuple[str, str], Link] = field(default_factory=dict, hash=False)
    matrix: tuple[tuple[Link, ...], ...] = ()
    zones: tuple[Zone, ...] = ()
    fabric: Fabric = field(default_factory=Fabric)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if self.device_count > DEVICES:
            raise ValueError(f"devices must be at most {DEVICES}, found {self.device_count}")
        if not self.nodes:
            raise ValueError("nodes must have at least one entry, found none")
        for i, group in enumerate(self.nodes, 1):
            if group.device not in self.device_types:
                known = ", ".join(self.device_types) or "none"
                raise ValueError(
                    f"node {group.name or i!r}: device must be one of {known}, "
                    f"found {group.device!r}"
                )
        self._check_links()
        self._check_rings()

    def _check_rings(self) -> None:
        """Refuse collectives of links between nodes: nothing reads them. Of one node, the link
        inside it may stand for the unused one between nodes."""
        links = [(f"between, types {', '.join(p)}", link) for p, link in self.between.items()]
        if self.node_count > 1:
            links.append(("inter_node", self.inter_node))
        for x, row in enumerate(self.matrix):
            odd = (y for y, link in enumerate(row) if x != y and link.collectives)
            links += [(f"matrix, row {x + 1}, entry {y + 1}", row[y]) for y in odd]
        links += [(f"zone {zone.name!r}", zone.link) for zone in self.zones]
        for where, link in links:
            if link.collectives:
                raise ValueError(
                    f"links.{where}: found collectives, expected bandwidth and latency alone: "
                    "rings between nodes take that bandwidth, only links inside nodes "
                    "(intra_node, within) have collectives of their own"
                )

    def _check_links(self) -> None:
        known = ", ".join(self.device_types)
        for device in self.within:
            if device not in self.device_types:
                raise ValueError(
                    f"links.within: a key must be a device type, one of {known}, found {device!r}"
                )
        for pair in self.between:
            for device in pair:
                if device not in self.device_types:
                    raise ValueError(
                        f"links.between: types must be device types out of {known}, "
                        f"found {device!r}"
                    )
            if len(pair) != 2 or tuple(sorted(pair)) != pair:
                raise ValueError(
                    "links.between: types must be two in the order of their names, "
                    f"found {', '.join(pair)}"
                )
        if self.matrix and self.between:
            raise ValueError("links: expected matrix or between, found both")
        if self.zones and (self.matrix or self.between):
            found = "matrix" if self.matrix else "between"
            raise ValueError(f"links: expected zones or {found}, found both")
        if self.fabric != Fabric() and (self.matrix or self.zones):
            found = "matrix" if self.matrix else "zones"
            raise ValueError(
                f"links: expected fabric or {found}, which says how fast nodes reach each other, "
                "found both"
            )
        if self.fabric.leaves and len(self.fabric.leaves) != self.node_count:
            raise ValueError(
                f"links.fabric: leaves must have {self.node_count} entries, one per node, found "
                f"{len(self.fabric.leaves)}"
            )
        self._check_zones()
        nodes = self.node_count
        if self.matrix and len(self.matrix) != nodes:
            raise ValueError(
                f"links.matrix: must have {nodes} rows, one per node, found {len(self.matrix)}"
            )
        for number, row in enumerate(self.matrix, 1):
            if len(row) != nodes:
                raise ValueError(
                    f"links.matrix: row {number} must have {nodes} entries, one per node, "
                    f"found {len(row)}"
                )

    def _check_zones(self) -> None:
        known = ways(self.zones)
        for i, group in enumerate(self.nodes, 1):
            if bool(group.zone) != bool(known) or (known and group.zone not in known):
                expected = f"must be one of {', '.join(known)}" if known else "expected [[zones]]"
                found = repr(group.zone) if group.zone else "none"
                raise ValueError(f"node {group.name or i!r}: zone {expected}, found {found}")
        check_filled(self.zones, [group.zone for group in self.nodes if known], self.node_count)

    @cached_property
    def type_names(self) -> tuple[str, ...]:
        """Device types that nodes have, in the order of their first node."""
        return tuple(dict.fromkeys(group.device for group in self.nodes))

    @cached_property
    def node_types(self) -> tuple[str, ...]:
        """Device type of each node."""
        return tuple(g.device for g in self.nodes for _ in range(g.count))

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """Leaf switch of each node."""
        return tuple(map(self.fabric.leaf, range(self.node_count)))

    @cached_property
    def shares_uplinks(self) -> bool:
        """Whether there are several leaf switches, whose uplinks have no room for all."""
        return self.fabric.oversubscription > 1 and len(set(self.leaves)) > 1

    @cached_property
    def called(self) -> tuple[str, ...]:
        """The usual name of each node's device type."""
        return tuple(self.device_types[name].type for name in self.node_types)

    @cached_property
    def devices_of_nodes(self) -> tuple[int, ...]:
        """Number of devices of each node."""
        return tuple(group.devices for group in self.nodes for _ in range(group.count))

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """Node number of each device."""
        sizes = enumerate(self.devices_of_nodes)
        return tuple(node for node, size in sizes for _ in range(size))

    @cached_property
    def type_of(self) -> tuple[str, ...]:
        """Device type of each device."""
        return tuple(self.node_types[node] for node in self.node_of)

    @cached_property
    def type_counts(self) -> tuple[int, ...]:
        """Number of devices of each type, in the order of `type_names`."""
        return tuple(self.type_of.count(name) for name in self.type_names)

    def count_types(self, nodes: Iterable[int]) -> dict[str, int]:
        """Return how many devices of each type some nodes have."""
        found = Counter[str]()
        for (name, _, devices), count in self.contents(nodes).items():
            found[name] += count * devices
        return dict(found)

    def contents(self, nodes: Iterable[int]) -> dict[tuple[str, str, int], int]:
        """Return how many of some nodes have a device type, by its name here and as it is called,
        and so many devices."""
        kinds, numbers = self._contents
        return {kinds[n]: count for n, count in Counter(map(numbers.__getitem__, nodes)).items()}

    @cached_property
    def _contents(self) -> tuple[tuple[tuple[str, str, int], ...], tuple[int, ...]]:
        """The kinds of `contents`, and the place of every node's own: there are thousands of sets
        of thousands of nodes."""
        every = tuple(zip(self.node_types, self.called, self.devices_of_nodes, strict=True))
        places = {one: place for place, one in enumerate(dict.fromkeys(every))}
        return tuple(places), tuple(places[one] for one in every)

    def node_sizes(self, device: str) -> tuple[int, ...]:
        """Return the devices of each node of a type, in the order of the nodes."""
        return self._node_sizes.get(device, ())

    @cached_property
    def _node_sizes(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for group in self.nodes:
            found.setdefault(group.device, []).extend([group.devices] * group.count)
        return {device: tuple(sizes) for device, sizes in found.items()}

    @property
    def equal_nodes(self) -> bool:
        """Nodes have equally many devices."""
        return len({group.devices for group in self.nodes}) == 1

    @property
    def symmetric(self) -> bool:
        """Links depend on nothing but the device types of their ends."""
        return not self.matrix and not self.zones

    def check_figures(self, precision: str, model: str, *, asked: Sequence[str] = ()) -> None:
        """See that every device type has the figures that estimates need.

        Parameters
        ----------
        precision: of the model; model: its name, for messages. asked: precisions that requests may
            say; empty: the model's file alone says it.

        Raises
        ------
        LackingError: one is missing.
        """
        lacking = {}
        for name in self.type_names:
            try:
                self.device_types[name].arithmetic(precision)
                _ = self.device_types[name].streaming
            except SpecError as error:
                lacking[name] = error
        if lacking:
            first = next(iter(lacking.values()))
            other = self._other_precision(precision, model, asked=asked)
            raise LackingError(
                f"cluster {self.name!r}: {first}{other}",
                devices=tuple(dict.fromkeys(self.device_types[n].type for n in lacking)),
            )

    def _other_precision(self, precision: str, model: str, *, asked: Sequence[str]) -> str:
        """Return a possible precision if some device type has no figure for the asked one; empty if
        none would."""
        peaks = [self.device_types[name].peak or {} for name in self.type_names]
        shared = [p for p in asked or PRECISIONS if all(p in peak for peak in peaks)]
        if precision in shared or not shared:
            return ""
        if asked:
            return f"; `precision={shared[0]}` would do"
        return f'; precision = "{shared[0]}" in the file of model {model!r} would do'

    def link(self, a: int, b: int) -> Link:
        """Return the link from a device of node a to one of node b; inside the node when a is b."""
        first, second = self.node_types[a], self.node_types[b]
        if a == b:
            return self.within.get(first, self.intra_node)
        if self.matrix:
            return self.matrix[a][b]
        if self.zones:
            zone = common(self._zones_of[a], self._zones_of[b])
            return self.inter_node if zone is None else zone.link
        return self.type_link(first, second)

    @cached_property
    def _zones_of(self) -> tuple[tuple[Zone, ...], ...]:
        """Zones that each node is in, the largest first."""
        known = ways(self.zones)
        return tuple(known[group.zone] for group in self.nodes for _ in range(group.count))

    def type_link(self, a: str, b: str) -> Link:
        """Return the link between nodes of two device types; the best one if nodes decide.

        The best: largest bandwidth and least latency of any pair of these nodes.
        """
        if self.symmetric:
            low, high = sorted((a, b))
            return self.between.get((low, high), self.inter_node)
        return self._best_links.get((a, b), self.inter_node)

    def worst_link(self, kind: int, others: tuple[int, ...]) -> Link:
        """Return the largest latency and the least bandwidth from nodes of a type to some nodes, by
        their numbers."""
        known = self._worst_links
        if (kind, others) not in known:
            names = self.type_names
            links = [self.type_link(names[kind], names[other]) for other in others]
            known[kind, others] = Link(
                bandwidth=min(link.bandwidth for link in links),
                latency=max(link.latency for link in links),
            )
        return known[kind, others]

    @cached_property
    def _worst_links(self) -> dict[tuple[int, tuple[int, ...]], Link]:
        return {}

    @cached_property
    def _best_links(self) -> dict[tuple[str, str], Link]:
        """Best link for every pair of types with two different nodes."""
        pairs: dict[tuple[str, str], list[Link]] = {}
        for x, first in enumerate(self.node_types):
            for y, second in enumerate(self.node_types):
                if x != y:
                    pairs.setdefault((first, second), []).append(self.link(x, y))
        return {
            pair: Link(
                bandwidth=max(link.bandwidth for link in links),
                latency=min(link.latency for link in links),
            )
            for pair, links in pairs.items()
        }

    @cached_property
    def slowest_between(self) -> Link:
        """Least bandwidth and largest latency between any two nodes, or between nodes of any two
        types if these decide; `inter_node` of one node."""
        if self.symmetric:
            links = [self.type_link(a, b) for a in self.type_names for b in self.type_names]
        else:
            nodes = range(self.node_count)
            links = [self.link(x, y) for x in nodes for y in nodes if x != y] or [self.inter_node]
        return Link(
            bandwidth=min(link.bandwidth for link in links),
            latency=max(link.latency for link in links),
        )

    @property
    def node_count(self) -> int:
        """Return the number of nodes."""
        return sum(group.count for group in self.nodes)

    @property
    def device_count(self) -> int:
        """Return the number of devices."""
        return sum(group.count * group.devices for group in self.nodes)

    @property
    def devices_per_node(self) -> int:
        """Return the number of devices of every node.

        Raises
        ------
        SpecError: nodes differ. Only planning by operators asks for this.
        """
        sizes = sorted({group.devices for group in self.nodes})
        if len(sizes) > 1:
            found = ", ".join(map(str, sizes))
            raise SpecError(
                f"cluster {self.name!r}: nodes must have equally many devices, found {found} "
                f"({ADVICE})"
            )
        return sizes[0]

    @property
    def device(self) -> Device:
        """Return the only device type.

        Raises
        ------
        SpecError: nodes hold different types. Only planning by operators asks for this.
        """
        if len(self.type_names) > 1:
            raise SpecError(
                f"cluster {self.name!r}: nodes must have devices of one type, "
                f"found {', '.join(self.type_names)} ({ADVICE})"
            )
        return self.device_types[self.type_names[0]]
