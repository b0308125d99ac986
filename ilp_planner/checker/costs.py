"""Seconds and bytes of the layers of a training job, for `checker.py`: nothing of the planner.

Written from docs/reference/costs.md, "Layers of a training job". Standard library only; seconds in
floating point, which `checker.py` rounds in the safe direction. A kernel is (FLOPs, bytes, shape),
a message (group, collective, bytes, times, share that passes network cards).
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls

import math
from fractions import Fraction
from functools import cache, cached_property
from itertools import product as every_pair
from types import SimpleNamespace
from typing import Any, NamedTuple

Table = dict[Any, Any]
MIB, GIB = 2.0**20, 2.0**30
WIDTHS = {"bf16": 2, "fp16": 2, "fp32": 4}  # bytes of a parameter and of an activation
OPERANDS = {**WIDTHS, "tf32": 4}
SINGLE, TOKEN, STATISTIC, ROUTED = 4, 8, 4, 4  # bytes of a number in fp32, of a token's number ...
STREAMS = 4
MOST, MOST_EXPERTS, MOST_LAYERS = 2.0**62, 1 << 12, 1 << 9
KINDS = ("mlp", "experts")  # of layers
SHARDINGS = ("none", "optimizer", "gradients", "parameters")
NORMS = {"layernorm": 2, "rmsnorm": 1, "bare-layernorm": 0}
TILES = ((256, 128, 0, 0), (128, 256, 0, 0), (128, 128, 1, 0),
         (128, 64, 1, 1), (64, 128, 1, 1), (64, 64, 1, 2))  # fmt: skip
GROUPS = {"tp": ("tp",), "cp": ("cp",), "dp-cp": ("cp", "dp"), "ep": ("ep",), "etp": ("etp",),
          "edp": ("edp",), "etp-ep": ("etp", "ep")}  # fmt: skip
SENT = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
HOP = 3.4e-6  # seconds of a step of a ring inside a node
AGAIN = {  # names of recomputed parts -> how modules and messages begin that are computed again
    "core_attn": ("core_attention", "self_attention.core_attention"),
    "mla_up_proj": ("linear_q_up_proj", "linear_kv_up_proj", "rope",
                    "self_attention.linear_q_up_proj", "self_attention.linear_kv_up_proj"),
    "layernorm": ("input_norm", "mlp_norm"),
    "mlp": ("mlp_", "mlp.linear_"),
    "moe": ("router", "permute", "experts_", "shared_experts_", "unpermute", "mlp."),
    "moe_act": ("experts_activation",),
    "shared_experts": ("shared_experts_", "mlp.shared_experts."),
}  # fmt: skip
EXCHANGES = ("mlp.dispatch", "mlp.combine")
COLUMNS = ("_qkv", "_fc1", "_up_proj", "linear_q_proj")
BUCKET, BUCKET_OF_REPLICA = 40e6, 1e6  # parameters
EAGER = {"norm": (9.0, 8.5), "rope": (5.0, 5.0), "activation": (5 / 3, 1.8), "": (1.0, 1.0)}


# ---- reading -------------------------------------------------------------------------------------


def words(kind: type, text: str) -> dict[str, type]:
    """Return keys of values of one kind."""
    return dict.fromkeys(text.split(), kind)


OF_MODEL = (
    words(int, "layers hidden heads kv_heads head sequence vocab ffn outputs")
    | words(int, "max_position_embeddings")
    | words(bool, "gated bias qkv_bias projection_bias output_bias tied qk_norm sinks")
    | words(bool, "attention_gate")
    | words(str, "norm norm_at positions qk_norm_of")
    | words(float, "dropout clamp rotary_share")
)
OF_PARTS = {
    "experts": words(int, "count top_k ffn shared_ffn groups top_groups latent")
    | words(bool, "shared_gate"),
    "latent": words(int, "query_rank key_value_rank key rotary value"),
    "window": words(int, "size layers") | words(bool, "chunked"),
}
OF_SETTINGS = (
    words(str, "cp_comm precision sharding attention loss_kernel dispatcher")
    | words(int, "cp_inner vocab_multiple gradient master moments instances")
    | words(bool, "sequence_parallel overlap_tensor overlap_experts scatter_sends async_tensor")
    | words(bool, "keeps_gathered from_master overlap_gradients overlap_parameters fused_loss")
    | words(bool, "fused_dropout fused_activation fused_permute grouped_experts pad_to_capacity")
    | words(bool, "accumulation_fusion deterministic flash_package compiled overlap_shared")
    | words(float, "capacity imbalance")
)
OF_MACHINE = (
    words(float, "sustained streaming grouped attention attention_backward links network")
    | words(float, "tensor_exposed data_exposed expert_exposed sharded_exposed host_forward")
    | words(float, "host_backward host_experts expert_waits stepping ring_growth step")
)
OF_DEVICE = (
    words(float, "memory_bandwidth sustained sustained_bandwidth launch blas_workspace")
    | words(float, "engine_workspace")
    | words(bool, "own_attention own_attention_repeats")
    | words(int, "processors")
)
OF_PRODUCTS = words(float, "e q k0 t0 ew p1 p2 edge blend")
OF_ATTENTION = words(float, "f0 s0 w0 h0 backward")
OF_KERNELS = words(float, "launch grouped concurrent")
OF_LINK = words(float, "bandwidth latency")


def fields(record: Any, kinds: dict[str, type], where: str) -> Any:
    """Return the values of an object as attributes.

    Raises ValueError: one is missing, of another kind, or no number from 0 on.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected an object")
    found = SimpleNamespace()
    for key, kind in kinds.items():
        value: Any = record.get(key)
        most = 2**40 if kind is int else MOST
        if kind is float and type(value) in (int, Fraction):
            value = float(value)
        wrong = type(value) is not kind
        if wrong or (kind in (int, float) and not 0 <= value < most):
            raise ValueError(f"{where}.{key}: found {str(value)[:40]}, expected {kind.__name__}")
        setattr(found, key, value)
    return found


# Settings of usual values that are no number and no switch that is off, or decide nothing here.
USUAL = {
    "name": "adam", "implementation": "transformer_engine", "schedule": "1f1b",
    "encoder_recompute": "none", "fused_softmax": True, "overlap_sends": True,
}  # fmt: skip
BESIDE = ("cp", "ep", "etp", "order", "recompute", "optimizer", "kernels", "smallest")


def unread(record: Any, known: Any) -> Any:
    """Yield what an object says beyond known keys, but for usual values: costs leave it out."""
    for key, value in record.items():
        if key in known or key in BESIDE or USUAL.get(key, "") == value:
            continue
        if any(unread(value, ())) if isinstance(value, dict) else value:
            yield f"{str(key)[:40]}: {str(value)[:40]}"


def refuse_unread(record: Any, known: Any, where: str) -> None:
    """Raise ValueError if an object says what costs leave out."""
    for text in unread(record, known):
        raise ValueError(f"{where}.{text}: not checked")


def ceil(whole, ways):
    """Return the larger share of a whole."""
    return -(-whole // ways)


class Route(NamedTuple):
    """How fast groups of a kind communicate: ranks of one, seconds of a step, seconds per byte that
    a rank sends around a ring, to every other one, and inside a node; nodes of a group."""

    size: int
    crosses: bool = False
    latency: float = 0.0
    ring: float = 0.0
    direct: float = 0.0
    inside: float = 0.0
    scattered: float = 1.0  # of a ring that sums nothing or scatters sums, over one that does
    hosts: int = 1
    measured: bool = False  # its collectives may have been measured


class Costs:
    """Figures of the jobs of a certificate. record: its `job`; per_node: devices of a node."""

    def __init__(self, record: Any, per_node: int) -> None:
        self.model = model = fields(record.get("model"), OF_MODEL, "job.model")
        text = record["model"]
        refuse_unread(text, {*OF_MODEL, *OF_PARTS, "pattern"}, "job.model")
        for key, kinds in OF_PARTS.items():
            some = text.get(key)
            setattr(model, key, None if some is None else fields(some, kinds, f"job.model.{key}"))
        model.norms = NORMS[model.norm]
        before = 0 if model.norm_at == "output" else 2
        model.places = before, 0 if model.norm_at == "input" else 2
        model.query = model.heads * model.head
        model.value = model.query
        if model.latent:
            model.query = model.heads * (model.latent.key + model.latent.rotary)
            model.value = model.heads * model.latent.value
        model.routed = model.hidden
        if model.experts:
            model.routed = model.experts.latent or model.hidden
        if model.experts and not 1 <= model.experts.top_k <= model.experts.count <= MOST_EXPERTS:
            raise ValueError(
                f"job.model.experts: expected at most {MOST_EXPERTS}, and top_k of them"
            )
        runs = text.get("pattern") or [[KINDS[model.experts is not None], model.layers]]
        if not all(type(n) is int and 0 < n <= MOST_LAYERS for _, n in runs[:MOST_LAYERS]):
            raise ValueError(f"job.model.pattern: expected at most {MOST_LAYERS} layers")
        every = [KINDS.index(kind) for kind, n in runs[:MOST_LAYERS] for _ in range(n)]
        there = sorted({*every})
        self.pattern = tuple(map(there.index, every))  # the kind of every layer
        self.models = [SimpleNamespace(**vars(model) | {"experts": model.experts if kind else None})
                       for kind in there]  # fmt: skip
        if len(every) != model.layers or (there != [0] and not model.experts):
            raise ValueError("job.model.pattern: expected every layer, and experts if some have")
        device = record.get("device")
        self.device = fields(device, OF_DEVICE, "job.device")
        self.machine = fields(device.get("machine"), OF_MACHINE, "job.device.machine")
        self.peak = {name: float(x) for name, x in device["peak"].items() if 0 < x < MOST}
        self.kernels = None
        if device.get("kernels") is not None:
            self.kernels = Kernels(device["kernels"], self)
        links = record.get("links")
        self.inside = fields(links.get("inside"), OF_LINK, "job.links.inside")
        self.inside.collectives = {int(n): float(x) for n, x in links["inside"]["collectives"]}
        self.between = fields(links.get("between"), OF_LINK, "job.links.between")
        self.per_node = per_node
        self.settings = [fields(x, OF_SETTINGS, "job.settings") for x in record.get("settings")]
        for own in record["settings"]:
            refuse_unread(own, OF_SETTINGS, "job.settings")
        for s in self.settings:
            s.w, s.level = WIDTHS[s.precision], SHARDINGS.index(s.sharding)
        alike: dict[Any, int] = {}  # settings that decide what layers take, whatever is shared
        shared = ("sharding", "instances", "from_master", "overlap_gradients", "overlap_parameters")
        for s in self.settings:
            own = tuple(sorted((k, v) for k, v in vars(s).items() if k not in (*shared, "level")))
            s.own = alike.setdefault(own, len(alike))
        for place, s in enumerate(self.settings):
            s.place = place
        self.known: dict[Any, Any] = {}
        self.ways: list[str] = []  # of recomputation, that seconds once more are asked for of

    def job(self, key: Any, settings: int) -> "JobCosts":
        """Return a job of these degrees."""
        return JobCosts(self, key, self.settings[settings])

    def once(self, key: Any, make: Any) -> Any:
        """Return what is known by a key, and make it first if it is not."""
        if key not in self.known:
            self.known[key] = make()
        return self.known[key]

    # ---- seconds of kernels

    def seconds(self, kernel, precision):
        """Return the seconds of a kernel."""
        return self.once((kernel, precision), lambda: self._seconds(kernel, precision))

    def _seconds(self, kernel, precision):
        flops, traffic, shape = kernel
        if self.kernels is not None:
            return self.kernels.seconds(flops, traffic, shape, precision)
        arithmetic = self.device.sustained * self.peak[precision]
        return self.device.launch + max(flops / arithmetic, traffic / self.streaming)

    @property
    def streaming(self):
        """Bytes/s of kernels that only move bytes."""
        d, m = self.device, self.machine
        share = d.sustained_bandwidth if self.kernels is None else m.streaming
        return d.memory_bandwidth * share

    # ---- seconds of messages

    def axes(self, key, experts):
        """Return the (name, size, ranks from one member to the next) of a grid of ranks."""
        tp, cp, ep, etp, dp, pp, _, order = key
        sizes: Any = (("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp))
        if experts:
            etp = etp or tp
            sizes = (("etp", etp), ("ep", ep), ("edp", tp * cp * dp // (ep * etp)), ("pp", pp))
        found, stride = [], 1
        for place in (0, 1, 3, 2) if order else (0, 1, 2, 3):
            found.append((*sizes[place], stride))
            stride *= sizes[place][1]
        return found

    def spanned(self, key, group, part, instances):
        """Return the axes of a kind of group, and the others but that of pipeline ranks."""
        names = GROUPS[group]
        axes = self.axes(key, names[0] not in ("tp", "cp", "dp"))
        members = [axis for axis in axes if axis[0] in names]
        others = [axis for axis in axes if axis[0] not in names and axis[0] != "pp"]
        if part:
            left = max(1, math.prod(axis[1] for axis in members) // instances)
            one, across = [], []
            for name, size, stride in members:
                own = math.gcd(size, left)
                left //= own
                one.append((name, own, stride))
                across.append((name, size // own, stride * own))
            members, others = (one, others + across) if part == "one" else (across, others + one)
        return members, others

    def stride(self, key):
        """Return the devices from one pipeline rank to the next one."""
        return key[0] * key[1] * (1 if key[7] else key[4])

    def route(self, key, group, rank, part="", instances=1):
        """Return how groups of a kind communicate from a pipeline rank's first device on."""
        first = rank * self.stride(key) % self.per_node
        where = key[:6], key[7], group, first, part, instances
        if where not in self.known:
            axes = self.spanned(key, group, part, instances)
            sizes = [tuple((size, stride) for _, size, stride in every) for every in axes]
            same = "route", *sizes, first
            self.known[where] = self.once(same, lambda: self._route(*same[1:]))
        return self.known[where]

    def _route(self, members, others, first):
        inside, P = offsets(members), self.per_node
        size = len(inside)
        if size == 1:
            return Route(size=1)
        rate = 1 / (self._ring_rate(size) * self.machine.links)
        crossing: list[list[int]] = []
        for start in offsets(others):
            nodes = [(first + start + x) // P for x in inside]
            if min(nodes) != max(nodes):
                crossing.append(nodes)
        if not crossing:
            whole = self.measured("all_gather", size, GIB)
            like = whole is None or whole >= 0.8 * rate * GIB * (size - 1) / size
            return Route(
                size=size, latency=self.inside.latency, ring=rate,
                direct=(size - 1) / size * rate, measured=like and not self.inside.collectives,
            )  # fmt: skip
        rings: dict[int, int] = {}
        senders: dict[int, int] = {}
        for nodes in crossing:
            for node in {*nodes}:
                rings[node] = rings.get(node, 0) + 1
            for node in nodes:
                senders[node] = senders.get(node, 0) + 1
        most, fullest = max(rings.values()), max(senders.values())
        here, hosts = max(1, fullest // most), len({*crossing[0]})
        card = self.between.bandwidth * self.machine.network
        return Route(
            size=size, crosses=True, latency=self.between.latency, hosts=hosts,
            ring=max(most / card, rate if here > 1 else 0.0), inside=rate,
            direct=fullest * (size - here) / size / card,
            scattered=1.0 + self.machine.ring_growth * math.log2(hosts),
        )  # fmt: skip

    def _ring_rate(self, size):
        fitting = [n for n in self.inside.collectives if n <= size]
        return self.inside.collectives[max(fitting)] if fitting else self.inside.bandwidth

    def measured(self, collective, ranks, size):
        """Return the seconds of a collective inside a node as it was measured, or None."""
        found = self.kernels and self.kernels.collective(collective, ranks, size)
        return None if found is None else found / self.machine.links

    def line(self, route, collective):
        """Return (seconds, seconds per byte) of a message on a route."""
        n = route.size
        if n == 1:
            return 0.0, 0.0
        if collective == "send_recv":
            return route.latency, route.ring
        few, many = (
            self.measured(collective, n, size) if route.measured else None
            for size in (2.0**24, GIB)
        )
        if few is not None and many is not None:
            each = (many - few) / (GIB - 2.0**24)
            return max(0.0, few - each * 2.0**24), each
        if collective == "all_to_all":
            return route.latency, route.direct
        latency, times = route.latency, SENT[collective]
        if route.crosses:
            latency = times * ((route.hosts - 1) * latency + (n - route.hosts) * HOP)
        ring = route.ring * (1.0 if collective == "all_reduce" else route.scattered)
        return latency, times * ring * (n - 1) / n

    def message(self, route, collective, size, once=1.0):
        """Return the seconds of one message of so many bytes."""
        if size <= 0:
            return 0.0
        if route.measured and collective != "send_recv":
            found = self.measured(collective, route.size, size)
            if found is not None:
                return found
        latency, each = self.line(route, collective)
        if route.crosses and collective == "all_to_all":
            each = max(once * each, (route.size - 1) / route.size * route.inside)
        return latency + each * size

    def transfer(self, key, rank, size):
        """Return the seconds of so many bytes of every device to the next pipeline rank."""
        pp, P = key[5], self.per_node
        if pp == 1:
            return 0.0
        following = (rank + 1) % pp
        stride = self.stride(key)
        others = tuple((n, x) for name, n, x in self.axes(key, False) if name != "pp")

        def crossing():
            load: dict[int, int] = {}
            some = False
            for start in offsets(others):
                here = (rank * stride + start) // P
                if here != (following * stride + start) // P:
                    load[here] = load.get(here, 0) + 1
                else:
                    some = True
            return some, max(load.values(), default=0)

        where = "transfer", others, (following - rank) * stride, rank * stride % P
        within, load = self.once(where, crossing)
        found = [0.0]
        if within:
            found.append(self.inside.latency + size / (self.inside.bandwidth * self.machine.links))
        if load:
            card = self.between.bandwidth * self.machine.network
            found.append(self.between.latency + size * load / card)
        return max(found)


@cache
def offsets(axes):
    """Return the ranks of a group from its first one."""
    spans = [range(0, size * stride, stride) for size, stride in axes]
    return [sum(one) for one in every_pair(*spans)]


class Kernels:
    """Seconds of kernels by measured constants of a GPU."""

    def __init__(self, record: Any, costs: Costs) -> None:
        where = "job.device.kernels"
        own = fields(record, OF_KERNELS, where)
        self.launch, self.grouped, self.concurrent = own.launch, own.grouped, own.concurrent
        self.products = {
            name: fields(x, OF_PRODUCTS, where) for name, x in record["products"].items()
        }
        self.attention = {"": fields(record["attention"], OF_ATTENTION, where)}
        for name, x in record["flash"].items():
            self.attention[name] = fields(x, OF_ATTENTION, where)
        self.curves = {
            (name, int(n)): [(float(a), float(b)) for a, b in points]
            for name, n, points in record["curves"]
        }
        self.machine, self.device, self.peak = costs.machine, costs.device, costs.peak
        self.known: dict[Any, float] = {}

    def seconds(self, flops, traffic, shape, precision):
        """Return the seconds of a kernel."""
        machine = self.machine
        if shape is None:
            return self.launch + traffic / (self.device.memory_bandwidth * machine.streaming)
        kind, *of = shape
        if kind == "attention":
            return self._attention(flops, of, precision)
        m, n, k, copies, summed, streams = of
        rate, turns = {"product": 1.0, "batched": 0.6, "grouped": self.grouped}[kind], 1.0
        if kind == "grouped" and streams:
            rate, turns = self.concurrent, copies / min(streams, copies)
        spent = self._product((m, n, k, copies), precision, summed, rate, turns)
        return spent / (machine.grouped if kind == "grouped" else 1.0)

    def _attention(self, flops, shape, precision):
        length, head, backward, library = shape
        c = self.attention.get(library, self.attention[""])
        if backward:
            flops = flops / 2.5
        delay = c.w0 * 2 * length * head * 128 * self.device.processors
        work = (2.5 * flops + delay) / c.backward if backward else flops + delay
        slower = (length + c.s0) / length
        if head < 128:
            slower *= (1 + c.h0 / head) / (1 + c.h0 / 128)
        rate = self.peak[precision] * self.machine.sustained * c.f0
        spent = self.launch + work * slower / rate
        return spent / (self.machine.attention_backward if backward else self.machine.attention)

    def of(self, precision):
        """Return the constants of products of a precision: of bf16, where it has none."""
        return self.products.get(precision, self.products["bf16"])

    def _product(self, shape, precision, summed, rate, turns):
        m, n, k, count = shape
        c, width = self.of(precision), OPERANDS[precision]
        out = 2 * summed or max(width, 2.0)
        traffic = count * (width * k * (m + n) + out * m * n)
        work = turns * self._tiled((m, n, k, count / turns), precision) / rate
        if summed:
            work /= 0.96
        memory = traffic / (self.device.memory_bandwidth * c.ew)
        longer, shorter = max(work, memory), min(work, memory)
        if c.blend and shorter:
            longer *= (1 + (shorter / longer) ** (1 / c.blend)) ** c.blend
        return c.t0 + longer

    def _tiled(self, shape, precision):
        if (shape, precision) in self.known:
            return self.known[shape, precision]
        m, n, k, count = shape
        c, processors = self.of(precision), self.device.processors
        each = self.peak[precision] / processors * self.machine.sustained
        partial = 4 * count * m * n / (self.device.memory_bandwidth * c.ew)
        best = math.inf
        for rows, columns, i, j in TILES:
            step = 2 * rows * columns / (each * c.e * c.p1**i * c.p2**j)
            down, across = m / rows, n / columns
            down += c.edge * (math.ceil(down) - down)
            across += c.edge * (math.ceil(across) - across)
            waves = down * across * count / processors
            for split in (1, 2, 4, 8):
                w = waves * split
                full = (1 - c.q) * max(w, 1.0) + c.q * math.ceil(w)
                added = split * partial * (split > 1)
                best = min(best, full * step * (k / split + c.k0) + added)
        self.known[shape, precision] = best
        return best

    def collective(self, name, ranks, size):
        """Return the measured seconds of a collective inside a node, or None."""
        if (name, ranks) in self.curves:
            return on_curve(self.curves[name, ranks], size)
        known = [n for of, n in self.curves if of == name]
        below = max((n for n in known if n < ranks), default=None)
        above = min((n for n in known if n > ranks), default=None)
        if below is None or above is None:
            return None
        return on_curve([(n, on_curve(self.curves[name, n], size)) for n in (below, above)], ranks)


def on_curve(curve, size):
    """Return the seconds of a size: straight between logarithms, constant before the first point,
    in proportion after the last one."""
    place = sum(point[0] <= size for point in curve)
    if place == 0:
        return curve[0][1]
    low, time = curve[place - 1]
    if place == len(curve):
        return time * size / low
    high, later = curve[place]
    share = math.log(size / low) / math.log(high / low)
    return time * math.exp(share * math.log(later / time))


# ---- a job ---------------------------------------------------------------------------------------


class JobCosts:
    """A job of some degrees and settings; elements are `embedding`, the kinds of layers by number,
    and `output`. kind: number of the kind whose layers are meant, if there are several."""

    def __init__(self, costs: Costs, key: Any, settings: Any, kind: int | None = None) -> None:
        self.costs, self.key, self.s = costs, key, settings
        self.model = costs.model if kind is None else costs.models[kind]
        self.tp, self.cp, self.ep, self.etp, self.dp, self.pp, self.size, self.order = key
        self.expert_tp = self.etp or self.tp
        self.replicas = self.tp * self.cp * self.dp // (self.ep * self.expert_tp)  # of an expert
        self.parallel = self.tp > 1 and settings.sequence_parallel
        self.own = "own", settings.own, self.tp, self.cp, self.ep, self.etp, self.size, kind
        m, s = self.model, settings
        self.tokens = ceil(m.sequence, self.cp)
        self.region = ceil(self.tokens, self.tp) if self.parallel else self.tokens
        self.rows = self.tokens * self.size
        self.wide = self.rows * m.hidden
        self.narrow = self.region * self.size * m.hidden
        self.kept_input = (self.tokens if s.keeps_gathered else self.region) * self.size
        self.heads, self.kv_heads = ceil(m.heads, self.tp), max(1, ceil(m.kv_heads, self.tp))
        self.routes: dict[int, tuple[Route, ...]] = {}  # of ranks
        self.passes_on = self.cp > 1 and s.cp_comm == "p2p"
        multiple = s.vocab_multiple * self.tp
        self.words = ceil(m.vocab, multiple) * multiple
        self.logits = m.outputs or self.words

    @cached_property
    def layers(self):
        """The costs of each kind of layers."""
        kinds = range(len(self.costs.models))
        return [self if len(kinds) == 1 else JobCosts(self.costs, self.key, self.s, kind)
                for kind in kinds]  # fmt: skip

    # ---- parameters

    def layer_parameters(self):
        """Return (others, experts', gradients summed over tp, shapes of matrices) of a layer."""
        return self.costs.once((*self.own, "parameters"), self._layer_parameters)

    def _layer_parameters(self):
        m, tp = self.model, self.tp
        norm = m.norms * m.hidden
        matrices, others = list[tuple[int, int]](), sum(m.places) * norm
        if m.latent:
            a, scale = m.latent, m.norms * m.qk_norm
            keys = ceil(m.query, tp)
            if a.query_rank:
                matrices += [(a.query_rank, m.hidden), (keys, a.query_rank)]
                others += scale * a.query_rank
            else:
                matrices.append((keys, m.hidden))
            matrices += [(a.key_value_rank + a.rotary, m.hidden),
                         (ceil(m.heads * (a.key + a.value), tp), a.key_value_rank)]  # fmt: skip
            others += scale * a.key_value_rank
        else:
            q, kv = m.heads * m.head, m.kv_heads * m.head
            rows = ceil(q * (1 + m.attention_gate) + 2 * kv, tp)
            matrices.append((rows, m.hidden))
            others += rows * (m.bias or m.qkv_bias)
            if m.qk_norm and m.qk_norm_of != "l2":
                counts = (self.heads, self.kv_heads) if m.qk_norm_of == "heads" else (1, 1)
                others += m.norms * m.head * sum(counts)
        others += self.heads * m.sinks + m.hidden * (m.bias or m.projection_bias)
        matrices.append((m.hidden, ceil(m.value, tp)))
        experts, gates, e = 0, 1 + m.gated, m.experts
        if not e:
            rows, columns = ceil(gates * m.ffn, tp), ceil(m.ffn, tp)
            matrices += [(rows, m.hidden), (m.hidden, columns)]
            others += m.bias * (rows + m.hidden)
        else:
            others += e.count * (m.hidden + m.bias)
            rows, columns = ceil(gates * e.ffn, self.expert_tp), ceil(e.ffn, self.expert_tp)
            local = ceil(e.count, self.ep)
            shapes = [(rows, m.routed), (m.routed, columns)]
            experts = local * (sum(a * b for a, b in shapes) + m.bias * (rows + m.routed))
            if e.shared_ffn:
                rows, columns = ceil(gates * e.shared_ffn, tp), ceil(e.shared_ffn, tp)
                matrices += [(rows, m.hidden), (m.hidden, columns)]
                others += m.bias * (rows + m.hidden)
            if e.shared_gate:
                matrices.append((1, m.hidden))
            if e.latent:
                matrices += [(e.latent, m.hidden), (m.hidden, e.latent)]
                others += m.bias * (e.latent + m.hidden)
        others += sum(a * b for a, b in matrices)
        if e:
            matrices += shapes
        return others, experts, self._unsplit(), frozenset(matrices)

    def _unsplit(self):
        """Return the parameters of a layer that tensor-parallel ranks hold whole, and see a part of
        the tokens for."""
        m, e = self.model, self.model.experts
        if self.tp == 1:
            return 0
        each = m.qk_norm and m.qk_norm_of == "head" and not m.latent
        count = 2 * m.head * m.norms * each
        if not self.parallel:
            return count
        count += sum(m.places) * m.hidden * m.norms + m.hidden * (m.bias or m.projection_bias)
        if m.latent:
            ranks = m.latent.key_value_rank + m.latent.query_rank
            count += ranks * m.norms * m.qk_norm + m.hidden * (ranks + m.latent.rotary)
        if not e:
            return count + m.hidden * m.bias
        count += m.hidden * (m.bias * (e.shared_ffn > 0) + e.shared_gate)
        count += e.count * (m.hidden + m.bias)
        return count + (2 * e.latent * m.hidden + m.bias * (e.latent + m.hidden)) * (e.latent > 0)

    def parameters(self):
        """Return (others, experts', gradients summed over tp) of each element."""
        m = self.model
        words = ceil(self.words, self.tp) * m.hidden
        words += (m.positions == "learned") * m.max_position_embeddings * m.hidden
        columns = ceil(self.logits, self.tp)
        own = not (m.tied and self.pp == 1)
        output = m.norms * m.hidden + columns * (m.hidden * own + m.output_bias)
        each = {kind: own.layer_parameters()[:3] for kind, own in enumerate(self.layers)}
        return {"embedding": (words, 0, 0), **each, "output": (output, 0, 0)}

    # ---- bytes that a micro-batch keeps

    def norm_kept(self, numbers, rows):
        """Bytes of a norm's input and statistics."""
        return numbers * self.s.w + (1 if self.model.norm == "rmsnorm" else 2) * rows * STATISTIC

    def product_kept(self, normed=True, forget=False):
        """Bytes of the input of a layer's product with divided columns, and of the norm merged into
        it. forget: it keeps its input alone."""
        m, w = self.model, self.s.w
        read = self.kept_input * m.hidden * w
        if not (normed and m.places[0]):
            return read
        if forget:
            return self.narrow * w
        return self.norm_kept(self.narrow, self.region * self.size) + read

    def attention_kept(self, parts, package):
        """Bytes that attention keeps. parts: names of what is computed again."""
        m, s, w = self.model, self.s, self.s.w
        rows, unfused = self.rows, s.attention != "flash"
        own, key = self.heads * m.head, self.kv_heads * m.head
        query, kept, copied, value = own, 0, True, own
        if m.latent:
            kept += self.norm_kept(self.narrow, self.region * self.size)
            kept += self.narrow * w * ("layernorm" not in parts)
            for rank in (m.latent.query_rank, m.latent.key_value_rank):
                seen = self.region * self.size
                if rank and m.qk_norm and "mla_up_proj" in parts:
                    kept += seen * rank * w
                elif rank and m.qk_norm:
                    kept += self.norm_kept(seen * rank, seen) + self.kept_input * rank * w
                else:
                    kept += seen * rank * w
            query = key = self.heads * (m.latent.key + m.latent.rotary)
            value = self.heads * m.latent.value
            widths = [query, query, value]
            copied = "mla_up_proj" not in parts
        else:
            kept += self.product_kept()
            plain = m.kv_heads == m.heads and not m.attention_gate
            plain = plain and m.positions != "rope" and not m.qk_norm
            if plain and self.cp == 1:
                kept, copied = kept + rows * (own + 2 * key) * w, False
            elif plain and self.passes_on:
                query += 2 * key
            if m.qk_norm:
                for heads in (self.heads, self.kv_heads):
                    each = rows if m.qk_norm_of == "heads" else rows * heads
                    kept += self.norm_kept(rows * heads * m.head, each)
            seen = query if unfused else key
            widths, value = [query, seen, seen], query
        kept += rows * sum(widths) * w * copied
        scores = self.size * self.heads * self.tokens
        relays = (not self.passes_on if self.cp > 1 else
                  package and not m.latent and not s.keeps_gathered and self.size > 1)  # fmt: skip
        if "core_attn" not in parts and not unfused:
            kept += scores * STATISTIC + rows * value * w * relays
        elif "core_attn" not in parts:
            scores *= m.sequence
            kept += scores * w + scores * (1 + w) * (m.dropout > 0)
        kept += 2 * rows * own * w * m.attention_gate
        kept += rows * ceil(m.value, self.tp) * w
        return kept + self.block_kept()

    def block_kept(self):
        """Bytes of what follows attention or MLP: a norm, and a dropout's mask."""
        after = self.model.places[1] > 0
        kept = self.norm_kept(self.narrow, self.region * self.size) * after
        return kept + self.narrow * (self.model.dropout > 0)

    def mlp_kept(self, rows, columns):
        """Bytes of an activation, and of the second product's input."""
        s, gated = self.s, self.model.gated
        return rows * columns * s.w * ((1 + gated) + (gated and not s.fused_activation) + 1)

    def inner_kept(self, parts):
        """Bytes that the MLP or the experts keep."""
        m, s, w, e = self.model, self.s, self.s.w, self.model.experts
        if not e:
            if "mlp" in parts:
                return self.product_kept(forget=True) + self.block_kept()
            kept = self.product_kept() + self.mlp_kept(self.rows, ceil(m.ffn, self.tp))
            return kept + self.block_kept()
        kept = self.norm_kept(self.narrow, self.region * self.size) + self.block_kept()
        kept += self.narrow * w * ("layernorm" not in parts)
        if "moe" in parts:
            return kept
        seen = self.region * self.size
        numbers = 2 * e.count + 1 if s.fused_permute else 2 * e.top_k
        kept += seen * (e.count * (2 * ROUTED + 1) + numbers * 4)
        sources = self.ep * self.expert_tp
        if s.dispatcher == "allgather" and sources > 1:
            kept += seen * sources * e.count * (ROUTED + 1)
        tokens, columns = self.routed_tokens(), ceil(e.ffn, self.expert_tp)
        kept += tokens * (m.routed * w + ROUTED) + self.mlp_kept(tokens, columns)
        kept += tokens * columns * w * (not s.fused_activation)
        kept -= tokens * columns * w * ("moe_act" in parts)
        kept += tokens * m.routed * w * self.keeps_output()
        if e.shared_ffn and "shared_experts" not in parts:
            kept += self.wide * w * (s.overlap_shared and self.parallel)
            kept += self.mlp_kept(self.rows, ceil(e.shared_ffn, self.tp))
        return kept + seen * e.latent * w

    def keeps_output(self):
        """Whether the experts' output is kept."""
        return self.s.deterministic and not self.s.fused_permute

    def routed_tokens(self):
        """Return the tokens that experts of the fullest rank take."""
        e, s = self.model.experts, self.s
        sent, sources = self.region * self.size * e.top_k, self.ep * self.expert_tp
        local = ceil(e.count, self.ep)
        come = math.ceil(sent * sources * local / e.count * s.imbalance)
        if s.capacity:
            most = math.ceil(sent / e.count * s.capacity) * local * sources
            return most if s.pad_to_capacity else min(most, come)
        return come

    # ---- bytes for a moment

    def weight_gradient(self, rows):
        """Bytes of a product's gradient, if it is not added up in place."""
        return rows * self.model.hidden * self.s.w * (not self.s.accumulation_fusion)

    def flow(self):
        """Bytes between products: of all tokens, of this rank's, gathered for a product, gathered
        again for its gradient."""
        whole, narrow = self.wide * self.s.w, self.narrow * self.s.w
        gathered = whole * self.parallel
        return whole, narrow, gathered, gathered * (not self.s.keeps_gathered)

    def mlp_moment(self):
        """Bytes above what is kept while an MLP goes back."""
        m, s = self.model, self.s
        whole, narrow, gathered, again = self.flow()
        column, gates = self.rows * ceil(m.ffn, self.tp) * s.w, 1 + m.gated
        steps = [narrow * (2 if m.dropout else 1), gathered, column]
        steps += [*brief(self.weight_gradient(ceil(m.ffn, self.tp))), -gathered - column]
        if s.fused_activation or not m.gated:
            steps += [gates * column, -column - gates * column]
        else:
            steps += [2 * column, -2 * column, column, -column, 2 * column, -4 * column]
        steps += [again + whole, *brief(self.weight_gradient(ceil(gates * m.ffn, self.tp)))]
        return highest(steps)

    def experts_moment(self):
        """Bytes above what is kept while experts run or go back."""
        m, s, e = self.model, self.s, self.model.experts
        narrow = self.flow()[1]
        tokens = self.routed_tokens()
        routed = tokens * m.routed * s.w
        here, local = routed / self.expert_tp, ceil(e.count, self.ep)
        if s.dispatcher == "allgather":
            before = narrow * self.ep * self.expert_tp
            after = routed + before
        else:
            steps = [here] + [here] * (self.ep > 1) + [routed] * (self.expert_tp > 1)
            before = sum(steps[: len(steps) - (local == 1)])
            after = routed * (2 if local > 1 else 1)
        after += routed * (not s.grouped_experts and local > 1)
        after -= routed * self.keeps_output()
        forward = before + after + narrow * (e.shared_ffn > 0)
        routed = tokens * m.hidden * s.w
        column, gates = tokens * ceil(e.ffn, self.expert_tp) * s.w, 1 + m.gated
        back = [narrow * (2 if m.dropout else 1), routed, *brief(routed), column,
                -routed - column, gates * column]  # fmt: skip
        return max(forward, highest(back))

    def attention_moment(self):
        """Bytes above what is kept while attention goes back."""
        m, s, rows = self.model, self.s, self.rows
        whole, narrow, gathered, again = self.flow()
        query = rows * ceil(m.query, self.tp) * s.w
        value = rows * ceil(m.value, self.tp) * s.w
        inputs = 2 * query + value if m.latent else query + 2 * rows * self.kv_heads * m.head * s.w
        steps = [narrow * (2 if m.dropout else 1), gathered + value, -gathered]
        if s.attention == "flash":
            steps += [inputs, *brief(query / s.w * SINGLE)]
        else:
            scores = rows * self.heads * m.sequence * s.w
            steps += [2 * scores, -(3 if m.dropout else 2) * scores, inputs]
        return highest([*steps, -value - inputs, inputs + again + whole])

    def ring_moment(self):
        """Bytes of attention's forward pass around a ring."""
        s, ring = self.s, self.ring()
        rows = self.rows * s.w
        each = rows * ceil(self.model.value, self.tp)
        return (ring * each + 4 * rows * self.kv_heads * self.model.head) if ring else 0

    def ring(self):
        """Return the context-parallel ranks of each ring; 0: there is none."""
        inner = {"p2p": 1, "a2a+p2p": self.s.cp_inner or 1}.get(self.s.cp_comm)
        return self.cp // inner if inner and self.cp > 1 else 0

    def package(self):
        """Whether attention is the flash-attention package's, as memory counts it."""
        d, s = self.costs.device, self.s
        asked = not d.own_attention or (s.deterministic and not d.own_attention_repeats)
        return s.flash_package or asked

    def checkpoint(self):
        """Bytes of a layer's input."""
        return self.narrow * self.s.w

    def kept(self, way):
        """Return the bytes that `checker.KEPT` names, with a recomputation by name."""
        return self.costs.once((*self.own, self.s.flash_package, "kept", way),
                               lambda: self._kept(way))  # fmt: skip

    def _kept(self, way):
        whole = way == "none" or way.startswith(("uniform", "block"))
        parts = () if whole else tuple(way.split())
        sides = self.attention_kept((), self.package()), self.inner_kept(())
        own = sides
        if parts and parts != ("operators",):
            own = self.attention_kept(parts, self.package()), self.inner_kept(parts)
        moment = self.moment(own, sides)
        again = sum(sides) - self.checkpoint() + self.flow()[1] + self.moment(sides, sides)
        kept = sum(own)
        if parts == ("operators",):
            kept, needed = self.outputs_kept()
            moment = again - needed
        m, s = self.model, self.s
        embedding = self.rows * TOKEN + self.narrow * (m.dropout > 0)
        logits = self.rows * ceil(self.logits, self.tp)
        output = self.norm_kept(self.narrow, self.region * self.size)
        output += self.kept_input * m.hidden * s.w + logits * (s.w if self.in_place() else SINGLE)
        loss = output + self.loss_moment(logits)
        return {"kept": kept, "input": self.checkpoint(), "embedding": embedding, "loss": loss,
                "moment": moment, "again": again, "chunk": sum(sides)}  # fmt: skip

    def moment(self, own, whole):
        """Bytes above a layer's kept ones while it goes back. own, whole: bytes of attention and of
        the rest that are kept, and that there are if nothing is computed again."""
        inner = self.experts_moment() if self.model.experts else self.mlp_moment()
        return max(inner + whole[1] - own[1],
                   self.attention_moment() - own[1] + whole[0] - own[0],
                   self.ring_moment() - own[1])  # fmt: skip

    def in_place(self):
        """Whether the loss writes its gradient over the logits."""
        return self.s.fused_loss and self.s.loss_kernel == "te"

    def loss_moment(self, logits):
        """Bytes around the loss beside what is kept. logits: numbers."""
        s = self.s
        whole, narrow, gathered, again = self.flow()
        batch = self.rows * (3 * TOKEN + SINGLE)
        product = whole + (again + narrow) * (gathered > 0)
        product += self.weight_gradient(ceil(self.logits, self.tp))
        if self.in_place():
            return max(product, batch)
        softmax, own = logits * SINGLE, logits * s.w
        if s.keeps_gathered:
            more = softmax * (self.tp > 1)
            forward = softmax + more + own * (s.w < SINGLE)
            return max(2 * softmax + more, forward + batch, own + product - softmax)
        before = batch + again + softmax * s.fused_loss
        if s.w == SINGLE:
            return max(product, before)
        return max(own + before, own + product - softmax)

    # ---- outputs that recomputation by operators keeps

    def products(self):
        """Return the outputs of a layer's products that some release of torchtitan keeps, and that
        all do: (module, share of it, columns)."""
        m, e = self.model, self.model.experts
        width, name = (e.shared_ffn, "shared_experts") if e else (m.ffn, "mlp")
        rest: list[Any] = [[("linear_proj", 1.0, m.hidden, "proj")]]
        gates = ("up", "gate")[: 1 + m.gated]
        if width:
            columns = ceil(width, self.tp)
            rest += [[(f"{name}_fc1", 1 / len(gates), columns, gate)] for gate in gates]
            rest.append([(f"{name}_fc2", 1.0, m.hidden, "down")])

        def other(products):
            return [one for product in products[::2] for one in product]

        if m.latent:
            a, keys = m.latent, ceil(m.query, self.tp)
            found: list[Any] = [("linear_q_proj", 1.0, keys, "q")]
            if a.query_rank:
                found = [("linear_q_down_proj", 1.0, a.query_rank, "qd"),
                         ("linear_q_up_proj", 1.0, keys, "q")]  # fmt: skip
            wide = ceil(m.heads * (a.key + a.value), self.tp)
            found += [("linear_kv_down_proj", 1.0, a.key_value_rank + a.rotary, "kvd"),
                      ("linear_kv_up_proj", 1.0, wide, "kv")]  # fmt: skip
            kept = other([[one] for one in found] + rest)
            return kept, kept
        columns = (self.heads * m.head, self.kv_heads * m.head, self.kv_heads * m.head)
        inputs = [("linear_qkv", n / sum(columns), n, which)
                  for n, which in zip(columns, "qkv", strict=True)]  # fmt: skip
        if m.qkv_bias:
            kept = inputs + other(rest)
            return kept, kept
        first, second = other([[one] for one in inputs] + rest), other([inputs, *rest])
        return (first + [one for one in second if one not in first],
                [one for one in first if one in second])  # fmt: skip

    def outputs_kept(self):
        """Return the bytes of kept outputs, and of those that the backward pass reads."""
        m, s, rows = self.model, self.s, self.rows
        some, all_of = self.products()
        read = [one for one in some if not (s.compiled and one[0].endswith("_fc2"))]
        kept = self.checkpoint() + sum(rows * n * s.w for _, _, n, _ in read)
        inner = ceil(m.value, self.tp)
        kept += self.cp * rows * (inner * s.w + self.heads * STATISTIC)
        kept += 2 * self.narrow * s.w * self.parallel
        if m.experts and self.ep > 1:
            kept += 2 * self.region * m.experts.top_k * self.size * m.hidden * s.w
        columns = inner + sum(n for name, _, n, _ in all_of if name.endswith("_fc1"))
        return kept, rows * (columns * s.w + self.heads * STATISTIC)

    def kept_shares(self):
        """Return the share of modules and messages that recomputation by operators keeps."""
        kept = {"core_attention": 1.0}
        for name, share, _, _ in self.products()[1]:
            kept[name] = kept.get(name, 0.0) + share
        if self.parallel:
            names = (
                "self_attention.linear_proj",
                "mlp.linear_fc2",
                "mlp.shared_experts.linear_fc2",
            )
            kept |= dict.fromkeys(names, 1.0)
        if self.ep > 1 and self.expert_tp == 1:
            kept |= dict.fromkeys(EXCHANGES, 1.0)
        return kept

    # ---- bytes of states

    def ways(self):
        """Return the ranks that share states: of experts, and of all else."""
        return (max(1, self.replicas // self.s.instances),
                max(1, self.dp * self.cp // self.s.instances))  # fmt: skip

    def late(self):
        """Whether gradients wait, whole, for the last micro-batch."""
        return self.s.from_master and self.pp > 1

    def stays(self):
        """Whether parameters stay gathered after a backward pass."""
        return self.late() and self.s.level >= 3

    def divides_gradients(self):
        """Whether each rank keeps its share of the gradients alone."""
        return self.s.level >= 2 and not self.late()

    def states(self, several):
        """Return what `checker.STATES` names of a layer of each kind. several: stages of each
        rank."""
        where = "states", self.s.place, *self.key[:6], several
        return self.costs.once(where, lambda: self._states(several))

    def _states(self, several):
        kinds = range(len(self.layers))
        one, two = ([self.rank([n * (k == own) for k in kinds], 0, several)[:5] for own in kinds]
                    for n in (1, 2))  # fmt: skip
        return [[b - a for a, b in zip(*both, strict=True)] for both in zip(one, two, strict=True)]

    def edge(self, there, rank, several, states):
        """Return what `checker.STATES` and `ENDS` name of a rank besides. there: whether it has
        layers of each kind. states: those of each."""
        found = self.rank([*map(int, there)], rank, several)
        for each in (x for x, own in zip(states, there, strict=True) if own):
            found[:5] = [a - b for a, b in zip(found, each, strict=False)]
        return found

    def rank(self, layers, rank, several):
        """Return the bytes of a rank with so many layers of each kind: always, for the step, at
        both starts, left gathered; while it goes back, at the end, whether parameters stay,
        reserved."""
        m, s, w, g = self.model, self.s, self.s.w, self.s.gradient
        first, last = rank == 0, rank == self.pp - 1
        parts = self.parameters()
        count: Table = {"embedding": int(first), **dict(enumerate(layers)), "output": int(last)}
        here = [own for own, n in zip(self.layers, layers, strict=True) if n]
        numbers = [sum(n * parts[name][k] for name, n in count.items()) for k in (0, 1)]
        states, stepped = 0.0, 0.0
        for number, ways in zip(numbers, reversed(self.ways()), strict=True):
            master = s.master if w < SINGLE else 0
            own = w / (ways if s.level >= 3 else 1)
            if s.from_master:
                own = (master or w) / (ways if s.level else 1) + (w if s.level < 3 else 0)
                master = 0
            own += g / (ways if self.divides_gradients() else 1)
            own += (master + s.moments) / (ways if s.level else 1)
            states += number * own
            if g < SINGLE and w < SINGLE and s.master >= SINGLE:
                stepped += number * SINGLE / (ways if s.level else 1)
        total = sum(numbers)
        sizes = {name: sum(parts[name][:2]) * (n > 0) for name, n in count.items()}
        ends = max(sizes["embedding"], sizes["output"])
        largest = max(sizes[kind] for kind in range(len(layers)))
        neighbours = largest + max(largest, ends)
        units, rest = 2 * largest, sizes["embedding"] + sizes["output"]
        gathered = 0
        if s.level >= 3:
            gathered = w * (units + rest)
            if self.stays() and several:
                gathered = w * total
            elif s.from_master:
                gathered = w * neighbours
        backward = end = 0
        if self.divides_gradients() and s.from_master:
            backward = end = g * neighbours
        elif self.divides_gradients():
            backward, end = g * (units + sizes["output"]), g * rest
        always = states + gathered + self.fixed(several, first)
        shapes = {shape for own in here for shape in own.layer_parameters()[3]}
        if last and not (m.tied and self.pp == 1):
            shapes.add((ceil(self.logits, self.tp), m.hidden))
        if s.accumulation_fusion and not s.keeps_gathered:
            always += w * sum(a * b for a, b in shapes)
        if last or any(own.model.experts for own in here):
            always += 2 * (32 * MIB if s.deterministic else self.costs.device.blas_workspace)
        start = second = 0
        if s.level == 1:
            start = w * total + (w + g) * numbers[0]
            second = w * numbers[1] + (w + g) * total
        table = ceil(self.words, self.tp) * m.hidden * w
        end += first * (table + self.flow()[2] + self.flow()[1])
        left = w * (total - neighbours) if self.stays() and not several else 0.0
        reserved = (w + g) * neighbours * (s.from_master and s.level >= 2)
        return [always, stepped, start, second, left, backward, end, self.stays(), reserved]

    def fixed(self, several, first):
        """Bytes that every rank has: workspaces, angles, buffers between ranks."""
        m, s, engine = self.model, self.s, self.costs.device.engine_workspace
        found = (1 + STREAMS * (m.experts is not None and s.grouped_experts)) * engine
        if m.positions == "rope":
            channels = m.latent.rotary if m.latent else int(m.head * m.rotary_share)
            found += 4 * self.tokens * channels
        if self.pp > 1 and (several or not first):
            found += self.flow()[1] * (3 if several else 1)
        return found

    # ---- work of modules: (name, kernels forward, kernels backward, those of weights' gradients)

    def linear(self, name, tokens, inner, outer, copies=1.0):
        """Return a product with weights."""
        s, w, g = self.s, self.s.w, self.s.gradient
        flops, weights = 2.0 * tokens * inner * outer, inner * outer * copies
        around = tokens * (inner + outer)
        rows, fused = tokens / copies, s.accumulation_fusion
        kind = "grouped" if copies > 1 else "product"
        streams = STREAMS * (copies > 1 and not s.keeps_gathered)
        moved = (around + weights) * w
        gradient = around * w + weights * (2 * g if fused else w)
        forward = (flops, moved, (kind, rows, outer, inner, copies, 0, streams))
        back = (flops, moved, (kind, rows, inner, outer, copies, 0, streams))
        summed = (flops, gradient, (kind, inner, outer, rows, copies, g * fused, streams))
        added = [] if fused else [(0.0, weights * (w + 2 * g), None)]
        return name, [forward], [back, summed, *added]

    def stream(self, name, forward, backward, kind=""):
        """Return a kernel each way that moves bytes."""
        s = self.s
        apart = s.keeps_gathered and not s.compiled and s.w < SINGLE
        there, back = EAGER[kind if apart else ""]
        return name, [(0.0, forward * there, None)], [(0.0, backward * back, None)]

    def norm(self, name):
        """Return a norm."""
        size = self.rows_on_average() * self.model.hidden * self.s.w / self.parts()
        return self.stream(name, 2 * size, 4 * size, "norm")

    def residual(self, name):
        """Return what is added after attention or MLP."""
        size = self.rows_on_average() * self.model.hidden * self.s.w / self.parts()
        passes = 3.0 if self.s.fused_dropout or not self.model.dropout else 7.0
        return self.stream(name, passes * size, 2 * size)

    def rows_on_average(self):
        """Tokens of a micro-batch on a rank."""
        return self.size * self.model.sequence / self.cp

    def parts(self):
        """Ranks that divide tokens between products."""
        return self.tp if self.parallel else 1

    def layer_work(self):
        """Return the modules of a layer."""
        m = self.model
        before, after = m.places
        return [
            *[self.norm("input_norm")] * (before > 0), *self.attention(),
            *[self.norm("attention_output_norm")] * (after > 0),
            self.residual("attention_residual"), *[self.norm("mlp_norm")] * (before > 0),
            *(self.experts() if m.experts else
              self.mlp("mlp", self.rows_on_average(), m.ffn / self.tp)),
            *[self.norm("mlp_output_norm")] * (after > 0), self.residual("mlp_residual"),
        ]  # fmt: skip

    def attention(self):
        """Return the products of attention and what is between them."""
        m, w, tokens = self.model, self.s.w, self.rows_on_average()
        queries, values = m.query / self.tp, m.value / self.tp
        if m.latent:
            a, own = m.latent, tokens / self.parts()
            found = [self.linear("linear_q_proj", tokens, m.hidden, queries)]
            if a.query_rank:
                down = self.linear("linear_q_down_proj", own, m.hidden, a.query_rank)
                found = [down, self.linear("linear_q_up_proj", tokens, a.query_rank, queries)]
            up, keys = m.heads * (a.key + a.value) / self.tp, queries
            narrow = a.key_value_rank + a.rotary
            found += [self.linear("linear_kv_down_proj", own, m.hidden, narrow),
                      self.linear("linear_kv_up_proj", tokens, a.key_value_rank, up)]  # fmt: skip
            turned, gate = 4 * tokens * queries * w, 0
        else:
            keys, gate = max(m.kv_heads / self.tp, 1) * m.head, queries * m.attention_gate
            found = [self.linear("linear_qkv", tokens, m.hidden, queries + gate + 2 * keys)]
            turned = 2 * tokens * (queries + keys) * w
            if m.qk_norm:
                found.append(self.stream("qk_norm", turned, 2 * turned, "norm"))
        if m.latent or m.positions == "rope":
            found.append(self.stream("rope", turned, turned, "rope"))
        found.append(self.core(queries, keys, values))
        if gate:
            moved = tokens * gate * w
            found.append(self.stream("output_gate", 3 * moved, 5 * moved))
        return [*found, self.linear("linear_proj", tokens, values, m.hidden)]

    def spans(self):
        """Return the share of layers, and the share of pairs of tokens that they look at."""
        m = self.model
        if m.window is None:
            return [(1.0, 1.0)]
        some, seen = m.window.layers / m.layers, min(1.0, m.window.size / m.sequence)
        spans = [(1 - some, 1.0), (some, seen if m.window.chunked else 2 * seen - seen**2)]
        return [span for span in spans if span[0]]

    def core(self, queries, keys, values):
        """Return the products of scores and values."""
        m, s, w, tokens = self.model, self.s, self.s.w, self.rows_on_average()
        flops = 2.0 * tokens * m.sequence * (queries + values)
        operands = tokens * (queries + 2 * keys + values) * w
        channels = (queries + values) / 2 * self.tp / m.heads
        name = "core_attention"
        if s.attention != "flash":
            scores = tokens * m.sequence * m.heads / self.tp * w
            heads, each = self.size * m.heads / self.tp, tokens / self.size
            shape = ("batched", each, m.sequence, channels, heads, 0, 0)
            product = (flops / 2, operands / 2 + scores, shape)
            dropped = [(0.0, scores * (2 + 1 / w), None)] * (m.dropout > 0)
            back = [product, product, (0.0, 3 * scores, None), product, product, *dropped]
            return name, [product, (0.0, 2 * scores, None), product, *dropped], back
        library = ("flex" if s.keeps_gathered else "package") * s.flash_package
        steps = self.cp if self.passes_on else 1
        q, k = tokens * queries * w, tokens * keys * w
        forward, backward = list[Any](), list[Any]()
        if steps > 1:
            forward = [(0.0, 2 * q, None), *[(0.0, 3 * q + 2 * k, None)] * (steps - 1)]
            backward = [(0.0, 3 * q + 5 * k, None)] * (steps - 1)
        for layers, seen in self.spans():
            part, moved = layers * seen * flops / 2 / steps, layers * operands / steps
            length = m.sequence * seen / steps
            forward += [(part, moved, ("attention", length, channels, False, library))] * steps
            again = ("attention", length, channels, True, library)
            backward += [(2.5 * part, 2 * moved, again)] * steps
        return name, forward, backward

    def mlp(self, name, tokens, inner, copies=1.0, hidden=0):
        """Return two products with an activation between them."""
        m, w = self.model, self.s.w
        hidden, wide = hidden or m.hidden, 1 + m.gated
        first, second = tokens * inner * wide * w, tokens * inner * w
        ways = first + second, 2 * first + second
        if m.clamp and m.gated:
            ways = tokens * inner * SINGLE * 22, tokens * inner * SINGLE * 46
        return [self.linear(f"{name}_fc1", tokens, hidden, wide * inner, copies),
                self.stream(f"{name}_activation", *ways, "activation"),
                self.linear(f"{name}_fc2", tokens, inner, hidden, copies)]  # fmt: skip

    def fullest(self):
        """Tokens of the fullest rank's experts over the average."""
        s = self.s
        if not s.capacity:
            return s.imbalance
        return s.capacity if s.pad_to_capacity else min(s.capacity, s.imbalance)

    def experts(self):
        """Return router, permutation, routed experts and the shared one."""
        m, s, e, tokens = self.model, self.s, self.model.experts, self.rows_on_average()
        own, held = tokens / self.parts(), e.count / self.ep
        seen = tokens * e.top_k * self.expert_tp / self.tp * self.fullest()
        moved = (1 if s.fused_permute else 2) * 2 * own * e.top_k * m.routed * s.w
        routed = self.mlp("experts", seen, e.ffn / self.expert_tp, held, m.routed)
        if not s.grouped_experts:
            count = int(held)
            routed = [(name, *(alone(some, count) for some in ways)) for name, *ways in routed]
        if e.latent:
            routed = [self.linear("latent_in", own, m.hidden, m.routed), *routed,
                      self.linear("latent_out", own, m.routed, m.hidden)]  # fmt: skip
        wide = e.shared_ffn / self.tp
        shared = self.mlp("shared_experts", tokens, wide) if wide else []
        return [self.linear("router", own, m.hidden, e.count),
                self.stream("permute", moved, moved), *routed, *shared,
                self.stream("unpermute", moved, moved)]  # fmt: skip

    def embedding_work(self):
        """Return the embedding."""
        m, w = self.model, self.s.w
        row = self.rows_on_average() * m.hidden * w
        after = row / self.parts()
        passes = 2 * row + 3 * after * (m.positions == "learned") + 2 * after * (m.dropout > 0)
        gradient = self.words * m.hidden / self.tp * (2 * w + 2 * self.s.gradient)
        return [self.stream("embedding", passes, 2 * row + gradient)]

    def output_work(self):
        """Return the last norm, the logits and their loss."""
        s, tokens = self.s, self.rows_on_average()
        numbers = tokens * self.logits / self.tp
        half, single = numbers * s.w, numbers * SINGLE
        ways = (3 * half, 2 * half) if s.fused_loss else (half + 9 * single, half + 3 * single)
        return [self.norm("final_norm"),
                self.linear("output_layer", tokens, self.model.hidden, self.logits / self.tp),
                self.stream("loss", *ways)]  # fmt: skip

    # ---- messages of modules: name -> (forward, backward)

    def message(self, group, collective, numbers, width=0, times=1, once=1.0):
        """Return a message of so many numbers."""
        return group, collective, numbers * (width or self.s.w), times, once

    def tokens_sent(self, width):
        """Numbers of so many for every token of a micro-batch."""
        return self.model.sequence // self.cp * self.size * width

    def column(self, width):
        """Return the messages of a product with divided columns."""
        whole = self.tokens_sent(width)
        if not self.parallel:
            return [], [self.message("tp", "all_reduce", whole)]
        gather = self.message("tp", "all_gather", whole)
        scatter = self.message("tp", "reduce_scatter", whole)
        return [gather], [scatter] if self.s.keeps_gathered else [gather, scatter]

    def row(self):
        """Return the messages of a product with divided rows."""
        whole = self.tokens_sent(self.model.hidden)
        if not self.parallel:
            return [self.message("tp", "all_reduce", whole)], []
        return ([self.message("tp", "reduce_scatter", whole)],
                [self.message("tp", "all_gather", whole)])  # fmt: skip

    def layer_messages(self):
        """Return the messages of a layer."""
        m, found = self.model, dict[str, Any]()
        if self.tp > 1:
            at = "self_attention.linear_"
            if m.latent:
                found[f"{at}kv_up_proj"] = self.column(m.latent.key_value_rank)
                if m.latent.query_rank:
                    found[f"{at}q_up_proj"] = self.column(m.latent.query_rank)
                else:
                    found[f"{at}q_proj"] = self.column(m.hidden)
                rotary = self.tokens_sent(m.latent.rotary)
                if self.parallel:
                    found[f"{at}kv_down_proj"] = (
                        [self.message("tp", "all_gather", rotary)],
                        [self.message("tp", "reduce_scatter", rotary)],
                    )
            else:
                found[f"{at}qkv"] = self.column(m.hidden)
            found[f"{at}proj"] = self.row()
        if self.cp > 1:
            found["self_attention.core_attention"] = self.context_messages()
        if m.experts:
            return found | self.expert_messages()
        if self.tp > 1:
            found |= {"mlp.linear_fc1": self.column(m.hidden), "mlp.linear_fc2": self.row()}
        return found

    def context_messages(self):
        """Return the messages of attention over context-parallel ranks."""
        m, s, cp = self.model, self.s, self.cp
        if m.latent:
            query, out = m.query // self.tp, m.value // self.tp
            kv = (m.query + m.value) // self.tp
        else:
            query = out = m.query // self.tp
            kv = 2 * max(m.kv_heads // self.tp, 1) * m.head

        def exchanged(ranks):
            q, k, o = (
                self.message("cp", "all_to_all", self.tokens_sent(x)) for x in (query, kv, out)
            )
            twice = (*o[:3], 2, 1.0)
            return ([q, k, o], [twice, q, k]) if ranks > 1 else ([], [])

        def around(ranks, inner):
            if ranks == 1:
                return [], []
            numbers = self.tokens_sent(1) * inner * max(kv // inner, 1)
            return tuple([self.message("cp", "send_recv", numbers, times=n * (ranks - 1))]
                         for n in (1, 2))  # fmt: skip

        if s.cp_comm == "a2a":
            return exchanged(cp)
        if s.cp_comm == "a2a+p2p":
            inner = min(s.cp_inner or cp, cp)
            (before, after), (there, back) = exchanged(inner), around(cp // inner, inner)
            return [*before[:2], *there, *before[2:]], [*after[:1], *back, *after[1:]]
        if s.cp_comm == "all_gather":
            numbers = m.sequence * self.size * kv
            gather = self.message("cp", "all_gather", numbers)
            return [gather], [gather, self.message("cp", "reduce_scatter", numbers)]
        return around(cp, 1)

    def expert_messages(self):
        """Return the messages of routed and shared experts."""
        m, s, e, found = self.model, self.s, self.model.experts, dict[str, Any]()
        ep, etp = self.ep, self.expert_tp
        if self.tp > 1 and e.shared_ffn:
            at = "mlp.shared_experts.linear_"
            found = {f"{at}fc1": self.column(m.hidden), f"{at}fc2": self.row()}
        if ep * etp == 1:
            return found
        local = m.sequence // self.cp * self.size
        local = local // self.tp if self.parallel else local
        if s.dispatcher == "allgather":
            rows = local * etp * ep
            mask, chosen, tokens = (
                self.message("etp-ep", "all_gather", rows * n, width)
                for n, width in ((e.count, 1), (e.count, 0), (m.routed, 0))
            )
            back = [(one[0], "reduce_scatter", *one[2:]) for one in (tokens, chosen)]
            pairs = ([mask, chosen, tokens], back), (back[:1], [tokens])
        elif s.dispatcher == "flex":
            sent = local * self.fullest()
            needed = self.needed(ep)
            rows = round(sent * ep * needed) * etp
            nodes = min(ep, ceil(ep * etp, self.costs.per_node))
            once = nodes * self.needed(nodes) / (ep * needed * etp)
            one = [self.message("etp-ep", "all_to_all", rows * m.routed, once=once)]
            pairs = (one, one), (one, one)
        else:
            rows, padded = local * e.top_k, bool(s.capacity) and s.pad_to_capacity
            rows = (math.ceil(rows / e.count * s.capacity) * e.count if padded
                    else round(rows * self.fullest()))  # fmt: skip

            def both(group, collective, ways, count):
                sizes = (m.routed, 1) if ways > 1 else ()
                return [self.message(group, collective, count * n) for n in sizes]

            counts = [] if padded else [self.message("etp-ep", "all_gather", etp * ep * e.count, 8)]
            exchanged = both("ep", "all_to_all", ep, rows)
            gathered = both("etp", "all_gather", etp, rows * etp)
            scattered = both("etp", "reduce_scatter", etp, rows * etp)
            there, back = [*counts, *exchanged, *gathered], [*scattered[::-1], *exchanged[::-1]]
            come = [*scattered[:1], *exchanged[:1]], [*exchanged[:1], *gathered[:1]]
            pairs = (there, back), come
        return found | dict(zip(EXCHANGES, pairs, strict=True))

    def needed(self, parts):
        """Return how likely one of so many parts of the experts has one that a token needs."""
        e = self.model.experts
        chosen, size = e.top_groups or e.groups, e.count // e.groups
        spanned, held = max(1, e.groups // parts), min(size, e.count // parts)
        found, pool = 0.0, chosen * size
        for few in range(1, min(spanned, chosen) + 1):
            ways = math.comb(spanned, few) * math.comb(e.groups - spanned, chosen - few)
            missed = math.comb(pool - few * held, e.top_k) / math.comb(pool, e.top_k)
            found += ways / math.comb(e.groups, chosen) * (1 - missed)
        return found

    def embedding_messages(self):
        """Return the messages of the embedding."""
        whole = self.tokens_sent(self.model.hidden)
        if self.tp == 1:
            return {}
        if not self.parallel:
            return {"embedding": ([self.message("tp", "all_reduce", whole)], [])}
        down = "all_reduce" if self.model.positions == "learned" else "reduce_scatter"
        return {"embedding": ([self.message("tp", down, whole)],
                              [self.message("tp", "all_gather", whole)])}  # fmt: skip

    def output_messages(self):
        """Return the messages of logits and loss."""
        if self.tp == 1:
            return {}
        row, fused = self.tokens_sent(1), self.s.fused_loss
        loss = [self.message("tp", "all_reduce", row, SINGLE),
                self.message("tp", "all_reduce", row * (2 if fused else 1), SINGLE,
                             times=1 if fused else 2)]  # fmt: skip
        return {"output_layer": self.column(self.model.hidden), "loss": (loss, [])}

    # ---- seconds of elements

    def element(self, name, rank):
        """Return an element on a pipeline rank: seconds of kernels and messages forward and
        backward, and once more by names of parts."""
        if rank not in self.routes:
            groups = ("tp", "cp", "ep", "etp", "etp-ep")
            self.routes[rank] = tuple(self.costs.route(self.key, group, rank) for group in groups)
        routes = self.routes[rank]
        own, name = (self, name) if isinstance(name, str) else (self.layers[name], "layer")
        return self.costs.once((*own.own, name, routes), lambda: own._element(name, rank))

    def least(self):
        """Return the seconds of a micro-batch through all layers, and of one, on the fastest ranks,
        without waits for what replicas share."""
        where = *self.own, "least", self.dp, self.pp, self.order
        return self.costs.once(where, self._least)

    def _least(self):
        ranks = {*self.kinds()}
        every = [[self.element(kind, rank) for rank in ranks] for kind in range(len(self.layers))]
        layers = [min(one.forward + one.back for one in of) for of in every]
        return sum(map(layers.__getitem__, self.costs.pattern)), min(layers)

    def _element(self, name, rank):
        c, machine = self.costs, self.costs.machine
        work, messages = {
            "embedding": lambda: (self.embedding_work(), self.embedding_messages()),
            "layer": lambda: (self.layer_work(), self.layer_messages()),
            "output": lambda: (self.output_work(), self.output_messages()),
        }[name]()
        layer, routed = name == "layer", name == "layer" and self.model.experts is not None
        floors, waits, product, checkpoint = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0
        if layer:
            floors = [machine.host_forward, machine.host_backward]
        if routed or (layer and not self.s.compiled):
            for way in (0, 1):
                each = [kernel for module in work for kernel in module[1 + way]]
                few = len(each) + sum(len(pair[way]) for pair in messages.values())
                many = sum(max(0.0, products(kernel) - 1) for kernel in each)
                floors[way] += machine.host_experts * (few + 0.09 * many)
                waits[way] = machine.expert_waits * few
            product, checkpoint = 0.09 * machine.host_experts, 4 * machine.host_experts
        if not routed or self.s.pad_to_capacity:
            waits, product, checkpoint = [0.0, 0.0], 0.0, 0.0
        ways = []
        for way in (0, 1):
            spent: dict[str, float] = {}
            for module in work:
                took = sum(self.spent(kernel, product) for kernel in module[1 + way])
                spent[module[0]] = spent.get(module[0], 0.0) + took
            sent = {
                at: sum(
                    times * c.message(c.route(self.key, group, rank), collective, size, once)
                    for group, collective, size, times, once in pair[way]
                )
                for at, pair in messages.items()
            }
            ways.append((spent, sent))
        exposed = [self.exposed(*way, back) for back, way in enumerate(ways)]
        busy = [sum(spent.values()) for spent, _ in ways]
        if self.s.overlap_experts and routed:
            exposed = [a + b for a, b in zip(exposed, self.exchanged(ways), strict=True)]
            late = max(0.0, sum(floors) - sum(exposed) - sum(busy))
            busy = [each + late / 2 for each in busy]
        else:
            busy = [max(a, b - x) for a, b, x in zip(busy, floors, exposed, strict=True)]
        forward, backward = (a + b for a, b in zip(busy, waits, strict=True))
        found = SimpleNamespace(forward=forward + exposed[0], back=backward + exposed[1])
        if layer:
            other = ("mlp",) if self.model.experts else ("moe", "moe_act", "shared_experts")
            shares = {part: begins(of) for part, of in AGAIN.items() if part not in other}
            kept = self.kept_shares()
            shares["operators"] = lambda at: 1 - kept.get(at, 0.0)
            parts: dict[str, float] = {}
            for part, share in shares.items():
                times = 2 if part == "layernorm" else 1
                own = sum(x * share(at) for at, x in ways[0][0].items()) + times * checkpoint
                parts[part] = own + sum(x * share(at) for at, x in ways[0][1].items())
            found.again = [
                found.forward if way.startswith("uniform") else
                sum(parts.get(name, 0.0) for name in way.split()) for way in c.ways
            ]  # fmt: skip
        return found

    def spent(self, kernel, product):
        """Return the seconds of a kernel, grouped products as fast as the host starts each."""
        took, count = self.costs.seconds(kernel, self.s.precision), products(kernel)
        return took + max(0.0, count * product - took) if product and count else took

    def exposed(self, spent, sent, back):
        """Return the seconds of a pass's messages that nothing hides."""
        s, share = self.s, self.costs.machine.tensor_exposed
        tensor = share if s.overlap_tensor else 1.0
        columns = share if back and s.async_tensor else tensor
        total = 0.0
        for name, took in sent.items():
            if name.endswith("core_attention") and self.passes_on:
                total += max(0.0, took - (self.cp - 1) / self.cp * spent["core_attention"])
            elif not name.endswith(EXCHANGES):
                total += took * (columns if name.endswith((*COLUMNS, "output_layer")) else tensor)
            elif not s.overlap_experts:
                total += took
        return total

    def exchanged(self, ways):
        """Return the seconds of exchanged tokens that the other micro-batch does not hide."""
        busy = {"flex": 1.0, "alltoall": 1.6, "allgather": 1.6}[self.s.dispatcher]
        share = min(1.0, self.costs.machine.expert_exposed * busy)
        inner = ("permute", "experts_", "shared_experts_", "unpermute")
        own = [sum(x for at, x in spent.items() if at.startswith(inner)) for spent, _ in ways]
        rest = [sum(spent.values()) - x for (spent, _), x in zip(ways, own, strict=True)]
        sums = [[sum(x for at, x in sent.items() if at.endswith(name)) for name in EXCHANGES]
                for _, sent in ways]  # fmt: skip
        return [max(share * a, a - own[other]) + max(share * b, b - rest[other])
                for (a, b), other in zip(sums, (1, 0), strict=True)]  # fmt: skip

    # ---- seconds of ranks

    def kinds(self):
        """Return of each pipeline rank the first one with the same links."""
        if self.costs.stride(self.key) % self.costs.per_node == 0:
            return [0] * self.pp
        known: dict[Any, int] = {}
        return [known.setdefault(tuple(self.costs.route(self.key, group, rank) for group in GROUPS),
                                 rank) for rank in range(self.pp)]  # fmt: skip

    def chain(self, rank):
        """Return the elements on a pipeline rank, with messages of sharded states."""
        found = {name: self.element(name, rank) for name in self.parameters()}
        often = self.rhythm()
        if not (often["forward"] or often["backward"] or often["reduces"]):
            return found
        sent = {name: dict.fromkeys(found, 0.0) for name in SENT}
        whole = dict.fromkeys(found, 0.0)
        for rings, into in (
            (self.rings(rank), sent),
            (self.undivided(rank), {"all_reduce": whole}),
        ):
            for collective, latency, each, sizes in rings:
                for name, size in sizes.items():
                    into[collective][name] += latency + each * size if size > 0 else 0.0
        exposed, late = self.costs.machine.sharded_exposed, {}
        for name, one in found.items():
            gather, reduce = sent["all_gather"][name], sent["reduce_scatter"][name]
            reduce += often["sums"] * sent["all_reduce"][name]
            there = often["forward"] * gather
            back = often["backward"] * gather + often["reduces"] * reduce
            more = max(exposed * there, there - one.forward), max(exposed * back, back - one.back)
            late[name] = SimpleNamespace(**vars(one) | {
                "forward": one.forward + more[0],
                "back": one.back + more[1] + often["sums"] * whole[name],
            })  # fmt: skip
        return late

    def rhythm(self):
        """Return when replicas send: with every forward or backward pass, or once."""
        s, sharded, level = self.s, self.s.level >= 3, self.s.level
        if not s.from_master:
            return {"forward": sharded, "backward": sharded, "once": level in (1, 2),
                    "reduces": level in (2, 3), "sums": False}  # fmt: skip
        if self.late():
            return {"forward": False, "backward": sharded, "once": level > 0, "reduces": False,
                    "sums": False}  # fmt: skip
        return {"forward": level > 0, "backward": sharded, "once": False, "reduces": True,
                "sums": True}  # fmt: skip

    def overlapped(self, collective):
        """Whether passes hide a ring."""
        gathers = collective == "all_gather"
        return self.s.overlap_parameters if gathers else self.s.overlap_gradients

    def rings(self, rank):
        """Return the rings over replicas: (collective, seconds, seconds per byte, bytes of each
        element)."""
        s, c, parts = self.s, self.costs, self.parameters()
        several, often = s.level > 0 and s.instances > 1, self.rhythm()
        passing = often["forward"] or often["backward"] or often["reduces"]
        found = []
        for k, group in enumerate(("dp-cp", "edp")):
            numbers = {name: part[k] for name, part in parts.items()}
            total = numbers["embedding"] + numbers["output"]
            total += sum(numbers[kind] for kind in self.costs.pattern)
            if not total:
                continue
            route = c.route(self.key, group, rank, "one" if several else "", s.instances)
            sent = [("all_reduce", s.gradient)]
            if s.level:
                sent = [("reduce_scatter", s.gradient), ("all_gather", s.w)]
            for collective, width in sent:
                latency, each = c.line(route, collective)
                if self.overlapped(collective) and not passing:
                    bucket = max(BUCKET, BUCKET_OF_REPLICA * self.ways()[1])
                    each += latency * total / bucket / (width * total)
                found.append(
                    (collective, latency, each, {n: width * x for n, x in numbers.items()})
                )
            if several:
                peers = c.route(self.key, group, rank, "across", s.instances)
                sizes = {n: s.gradient * x / route.size for n, x in numbers.items()}
                latency, each = c.line(peers, "all_reduce")
                found.append(("all_reduce", latency, each, sizes))
        return found

    def undivided(self, rank):
        """Return the ring over tensor-parallel ranks of gradients that each has whole."""
        s, c, parts = self.s, self.costs, self.parameters()
        if not any(part[2] for part in parts.values()):
            return []
        width = s.w if s.from_master else s.gradient
        line = c.line(c.route(self.key, "tp", rank), "all_reduce")
        return [("all_reduce", *line, {n: width * part[2] for n, part in parts.items()})]

    def sync(self, rank):
        """Return the seconds of a rank that an iteration has once: fixed, and of each element."""
        s, c, often, parts = self.s, self.costs, self.rhythm(), self.parameters()
        once = {"all_gather": often["once"], "reduce_scatter": not often["reduces"],
                "all_reduce": not often["sums"]}  # fmt: skip
        rings = [one for one in [*self.rings(rank), *self.undivided(rank)] if once[one[0]]]
        bare = {name: self.element(name, rank) for name in parts}
        fixed, late = 0.0, dict.fromkeys(parts, 0.0)
        for collective, latency, each, sizes in rings:
            fixed += latency
            gathers = collective == "all_gather"
            beside = [one for one in rings if (one[0] == "all_gather") == gathers]
            for name in parts:
                share = 1.0
                if self.overlapped(collective):
                    sent = sum(one[2] * one[3][name] for one in beside)
                    hidden = bare[name].forward if gathers else bare[name].back
                    share = max((sent - hidden) / sent if sent > 0 else 0.0, c.machine.data_exposed)
                late[name] += share * each * sizes[name]
        stepped = 3 * s.master + s.w if s.master else 2 * s.w
        traffic = s.gradient + 2 * s.moments + stepped
        rate = c.streaming * c.machine.stepping
        experts, others = self.ways() if s.level else (1, 1)
        for name, (dense, routed, _) in parts.items():
            late[name] += (dense / others + routed / experts) * traffic / rate
        return fixed, late

    def sends(self):
        """Return the seconds of a micro-batch from each rank to the next one and back."""
        s, c = self.s, self.costs
        parts = self.tp if self.parallel or s.scatter_sends else 1
        size = self.tokens_sent(self.model.hidden) * s.w / parts
        whole = size * self.tp if s.scatter_sends and not self.parallel and self.pp > 1 else 0.0
        found = []
        for rank in range(self.pp):
            route = c.route(self.key, "tp", (rank + 1) % self.pp)
            gathered = c.message(route, "all_gather", whole)
            found.append(2 * (c.transfer(self.key, rank, size) + gathered))
        return found

    def constant(self):
        """Return the seconds of an iteration of every layout."""
        m, found = self.model, self.costs.machine.step
        if m.tied and self.pp > 1:
            size = self.words * m.hidden / self.tp * self.s.gradient
            found += 2 * self.costs.transfer(self.key, self.pp - 1, size / 2)
        return found


def products(kernel):
    """Return the products of a kernel that the host starts one by one; 0: it is one."""
    shape = kernel[2]
    return shape[4] if shape is not None and shape[0] == "grouped" and shape[6] else 0.0


def alone(kernels, count):
    """Return kernels as so many equal ones, one after the other."""
    found = []
    for flops, traffic, shape in kernels:
        one = shape and ("product", *shape[1:4], 1.0, shape[5], 0)
        found.append((flops / count, traffic / count, one))
    return found * count


def begins(starts):
    """Return what tells whether a name begins so."""
    return lambda name: float(name.startswith(starts))


def brief(size):
    """Return the steps of what is there for a moment."""
    return [size, -size]


def highest(steps):
    """Return the most bytes at once."""
    now = most = 0
    for step in steps:
        now += step
        most = max(most, now)
    return most
