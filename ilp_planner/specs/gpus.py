"""The table of GPUs: the figures of each kind, and their sources (`gpus.toml`)."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from statistics import median

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.base.units import parse_flops
from ilp_planner.specs.gpu_architectures import ARCHITECTURES, GpuArchitecture
from ilp_planner.specs.kernel_constants import (
    DSA,
    FLASH,
    FLASH_VERSION,
    FLEX_LIKE,
    AttentionConstants,
    KernelConstants,
    measured_constants,
)
from ilp_planner.specs.machine import USUAL
from ilp_planner.specs.toml_reader import Table, read_toml

PRECISIONS = ("fp16", "bf16", "fp8", "fp4", "tf32", "fp32")
UNSEEN = 0.011  # share of the memory that is sold which a process does not see, where no figure is
UNSEEN_SOURCE = f"data sheet less {100 * UNSEEN:g} %"
FILE = "gpus.toml"
MEASURED = ("A100", "H100", "B200")  # GPUs whose kernels of 16 bits were measured
ROW_KEYS = (
    "family", "aliases", "architecture", "capability", "units", "power", "sold", "memory",
    "memory_source", "peak", "sustained", "kernels", "products", "machine", "memory_bandwidth",
    "link", "host", "node", "domain", "network", "source", "nodes_source", "host_source", "assumed",
)  # fmt: skip
LINK_KEYS = ("kind", "bandwidth", "pair", "peer")
HOST_KEYS = ("kind", "bandwidth", "memory")
NETWORK_KEYS = ("kind", "bandwidth", "latency")
MAKERS = re.compile(r"\b(nvidia|amd|tesla|geforce|instinct)\b")
FORM_FACTORS = re.compile(r"(?<![a-z])(sxm\d*|pcie|hbm\d*e?|oam)\b")
MEMORY = re.compile(r"(?<![a-z\d])(\d+) *g(?:i?b)?\b")
WORDS = re.compile(r"[a-z]+|[0-9]+")
NEAREST, ALIKE = 3, 0.6  # names that a message offers, and how like they must be


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A row of the table. All rates are one way.

    aliases: other names. family: how names of device types begin that mean it; empty: none do.
    architecture: its features. capability: compute capability, as torch has it. units: streaming
    multiprocessors, or compute units. power: W. sold: bytes that it is sold with. memory: bytes
    that a process sees, by `memory_source`. peak: precision -> dense FLOP/s; without those that it
    lacks.
    sustained: share of the peak that large matrix products reach, where kernels are a roofline
    (`Device`). kernels: name of the GPU whose measured kernels tell what shares of its rates this
    one's reach. products: share of the 16-bit peak that its large products reach in the best
    shapes; 0: as on `kernels`. machine: GPU whose machine constants are the default.
    memory_bandwidth: bytes/s.
    link: what connects the GPUs of a node. link_bandwidth: bytes/s of all its links together.
    pair_bandwidth: bytes/s between two GPUs. peer_access: GPUs reach one another's memory over
    `link`; otherwise messages go through the host's memory. node: GPUs in one. domain: GPUs that
    `link` connects.
    host, host_link: what connects a GPU to the CPUs, and bytes/s. host_memory: bytes/s of their
    memory, of which each GPU of a node has its share.
    network, network_bandwidth, network_latency: between nodes; bytes/s per GPU, and seconds.
    source: of peaks, memory bandwidth, links and power. nodes_source: of node and network.
    host_source: of the host. assumed: what neither says.
    """

    name: str
    aliases: tuple[str, ...]
    family: str
    architecture: GpuArchitecture
    capability: tuple[int, int]
    units: int
    power: float
    sold: int
    memory: int
    memory_source: str
    peak: Mapping[str, float] = field(hash=False)
    sustained: float
    kernels: str
    products: float
    machine: str
    memory_bandwidth: float
    link: str
    link_bandwidth: float
    pair_bandwidth: float
    peer_access: bool
    host: str
    host_link: float
    host_memory: float
    node: int
    domain: int
    network: str
    network_bandwidth: float
    network_latency: float
    source: str
    nodes_source: str
    host_source: str
    assumed: str

    @property
    def kernels_measured(self) -> bool:
        """Kernels were measured on this very GPU, with any memory."""
        return self._measures(self.kernels)

    def _measures(self, kernels: str) -> bool:
        return re.fullmatch(rf"{kernels}(-\d+GB)?", self.name) is not None

    @property
    def halves_measured(self) -> bool:
        """Its kernels of 16 bits were measured as well."""
        return self.kernels_measured and self.kernels in MEASURED

    @property
    def kernels_source(self) -> str:
        """The source of the kernels' constants."""
        if not self.kernels_measured:
            own = f", but {self.products:g} of the peak in products, measured" * bool(self.products)
            return f"scaled from {self.kernels}: its shares of peak and bandwidth{own}"
        if self.halves_measured:
            return f"measured on {self.kernels}"
        return f"measured on {self.kernels} in fp32, those of 16 bits scaled from A100"

    @property
    def constants(self) -> KernelConstants:
        """The constants of its kernels: of `kernels`, with its own share of the peak in products of
        16 bits and less, and in attention; collectives only over the same links. Large products
        reach e within 1 %: 0.806 and 0.81 on H100, 0.848 and 0.84 on A100."""
        return self.with_flash(FLASH_VERSION)

    def with_flash(self, version: int) -> KernelConstants:
        """Return the constants of its kernels with a version of the flash-attention package.

        Raises
        ------
        ValueError: the version does not run on it.
        """
        known = {FLASH_VERSION, *self.architecture.flash}
        if version not in known:
            expected = " or ".join(map(str, sorted(known)))
            raise ValueError(
                f"flash_attention: found {version}, expected {expected} on {self.name} "
                f"({self.architecture.name})"
            )
        found = measured_constants()[self.kernels]
        measured = next((row for row in table().values() if row._measures(self.kernels)), self)
        if (self.link, self.link_bandwidth) != (measured.link, measured.link_bandwidth):
            found = replace(found, curves={})
        times = self.products / found.products["bf16"].e if self.products else 1.0
        own = {
            name: one if name in ("fp32", "tf32") else replace(one, e=one.e * times)
            for name, one in found.products.items()
        }
        attention = replace(found.attention, f0=found.attention.f0 * times)
        flash = {}
        for library, like in (("package", version), ("flex", FLEX_LIKE)):
            if rate := self.architecture.flash.get(like):
                most = rate * self.units / self.peak["bf16"]
                flash[library] = replace(FLASH[like], f0=min(attention.f0, most))
        if any(self.architecture.dsa):
            share, backward, keys = self.architecture.dsa
            flash[DSA] = AttentionConstants(f0=share, s0=keys, backward=backward)
        rate, tokens = self.architecture.fp8_attention
        low = replace(attention, f0=attention.f0 * rate, s0=attention.s0 + tokens) if rate else None
        return replace(found, products=own, attention=attention, flash=flash, attention_fp8=low)

    @property
    def memory_seen(self) -> bool:
        """The memory is a figure that torch gave, not one that is derived from the data sheet."""
        return self.memory_source != UNSEEN_SOURCE


@cache
def table() -> Mapping[str, Gpu]:
    """Return all rows by name, in the order of the file."""
    source = files("ilp_planner.specs") / FILE
    root = read_toml(Document(FILE, source.read_text(encoding="utf-8")), None)
    return {name: _row(name, root.table(name, ROW_KEYS)) for name in root.values}


def gpu(name: str) -> Gpu:
    """Return the row of a name, of an alias or of torch's device name; case, spaces and hyphens do
    not matter.

    Raises
    ------
    SpecError: there is none. Names the nearest, and the cluster file's keys for other GPUs.
    """
    found = _names().get(_plain(name))
    if found is None:
        if names := meant(name):
            raise SpecError(
                f"found {name!r}, expected a GPU of the table (`ilp-plan gpus` shows it): did you "
                f"mean {' or '.join(names)}?"
            )
        near = nearest(name)
        known = f"nearest: {', '.join(near)}" if near else ", ".join(table())
        raise SpecError(
            f"found {name!r}, expected one of the table of GPUs, {known} (`ilp-plan gpus` shows "
            "it); of any other GPU a cluster file says memory, peak, sustained and "
            "memory_bandwidth"
        )
    return found


def same_gpu(name: str, other: str) -> bool:
    """Tell whether two names are of one row of the table, by the rule of `gpu`."""
    row = _names().get(_plain(name))
    return row is not None and row is _names().get(_plain(other))


def meant(name: str) -> list[str]:
    """Return the rows that a loosely written name may mean: all with its letters and numbers in
    their own name, and with its memory if some have that."""
    text = FORM_FACTORS.sub(" ", MAKERS.sub(" ", name.casefold()))
    size = MEMORY.search(text)
    asked = set(WORDS.findall(MEMORY.sub(" ", text)))
    last = re.search(r"[ -](\d+)$", text.rstrip())  # `A100-80`
    if size is None and last and len(asked) > 2 and _of_memory(int(last[1])):
        size, asked = last, asked - {last[1]}
    if not any(word.isdigit() for word in asked):
        return []
    rows = [row for row in table().values() if asked <= set(WORDS.findall(_stem(row.name)))]
    same = [row for row in rows if size and row in _of_memory(int(size[1]))]
    return [row.name for row in same or rows]


def _stem(name: str) -> str:
    return MEMORY.sub(" ", name.casefold())


def _of_memory(size: int) -> list[Gpu]:
    """Return the rows that are sold with so many GB, or GiB."""
    return [
        row
        for row in table().values()
        if size in (round(row.sold / 10**9), round(row.sold / 2**30))
    ]


def nearest(name: str) -> list[str]:
    """Return the rows with names most like a name, best first; none if none is."""
    plain = _plain(name)

    def likeness(key: str) -> float:
        texts = (key, key[: len(plain)])
        return max(difflib.SequenceMatcher(None, plain, text).ratio() for text in texts)

    near = [key for key in _names() if plain and likeness(key) > ALIKE]
    near.sort(key=likeness, reverse=True)
    return list(dict.fromkeys(_names()[key].name for key in near))[:NEAREST]


def of_family(name: str) -> Gpu | None:
    """Return the GPU that the name of a device type begins with, as `V100 p3.8xlarge` does."""
    first = re.split(r"[^a-z0-9]", name.casefold(), maxsplit=1)[0]
    return next((row for row in table().values() if row.family and row.family == first), None)


@cache
def _names() -> Mapping[str, Gpu]:
    return {_plain(name): row for row in table().values() for name in (row.name, *row.aliases)}


@lru_cache(maxsize=1024)
def _plain(name: str) -> str:
    """Return a name without its maker, in small letters and digits."""
    return re.sub(r"[^a-z0-9]", "", MAKERS.sub(" ", name.casefold()))


def _row(name: str, row: Table) -> Gpu:
    peak = row.table("peak", PRECISIONS)
    link, network = row.table("link", LINK_KEYS), row.table("network", NETWORK_KEYS)
    host = row.table("host", HOST_KEYS)
    architecture = ARCHITECTURES[row.choice("architecture", tuple(ARCHITECTURES))]
    machine = architecture.machine
    if "machine" in row.values:
        machine = row.choice("machine", tuple(USUAL))
    products = _products(row, peak)
    major, _, minor = row.text("capability").partition(".")
    sold, node = row.size("sold"), row.whole("node")
    seen = "memory" in row.values
    return Gpu(
        name=name,
        aliases=row.texts_of("aliases") if "aliases" in row.values else (),
        family=row.text("family", "-").strip("-"),
        architecture=architecture,
        capability=(int(major), int(minor)),
        units=row.whole("units"),
        power=row.number("power"),
        sold=sold,
        memory=row.size("memory") if seen else round(sold * (1 - UNSEEN)),
        memory_source=row.text("memory_source") if seen else UNSEEN_SOURCE,
        peak={precision: peak.flops(precision) for precision in peak.values},
        sustained=(
            min(0.99, round(products * USUAL[machine].sustained, 2))
            if products
            else row.number("sustained")
        ),
        kernels=row.choice("kernels", tuple(measured_constants())),
        products=products,
        machine=machine,
        memory_bandwidth=row.rate("memory_bandwidth"),
        link=link.text("kind"),
        link_bandwidth=link.rate("bandwidth"),
        pair_bandwidth=link.rate("pair", link.rate("bandwidth")),
        peer_access=link.flag("peer", True),
        host=host.text("kind"),
        host_link=host.rate("bandwidth"),
        host_memory=host.rate("memory"),
        node=node,
        domain=row.whole("domain", node),
        network=network.text("kind"),
        network_bandwidth=network.rate("bandwidth"),
        network_latency=network.duration("latency"),
        source=row.text("source"),
        nodes_source=row.text("nodes_source"),
        host_source=row.text("host_source"),
        assumed=row.text("assumed", "-").strip("-"),
    )


def _products(row: Table, peak: Table) -> float:
    """Return the share of the peak that its own products reach; 0 if the row has none."""
    if "products" not in row.values:
        return 0.0
    rates = [parse_flops(text, what="products") for text in row.texts_of("products")]
    return round(median(rates) / peak.flops("bf16"), 3)
