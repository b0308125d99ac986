"""Groups of communicating ranks, by arithmetic on strides: no list of ranks is made.

Megatron-LM numbers ranks twice (`megatron.core.parallel_state.RankGenerator`): the dense grid has
the axes tp, cp, dp and pp, the grid of routed experts etp, ep, edp and pp. In the order
`tp-cp-ep-dp-pp` the dense rank is tp + T (cp + C (dp + D pp)); `tp-cp-ep-pp-dp` swaps the last two.
Both grids have the same pipeline groups.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from types import MappingProxyType

from ilp_planner.specs.training import TrainingJob

DENSE = ("tp", "cp", "dp", "pp")

# What a kind of group spans: one axis, or several of the same grid.
KINDS: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("dp",),
    "dp-cp": ("cp", "dp"),
    "pp": ("pp",),
    "ep": ("ep",),
    "etp": ("etp",),
    "edp": ("edp",),
    "etp-ep": ("etp", "ep"),
    "tp-cp": ("tp", "cp"),
}
# Parts of replicas: those of one instance of the optimizer, and their peers in the others.
INSTANCE, ACROSS = "instance", "across"
INSIDE, BETWEEN, MIXED = "inside a node", "between nodes", "inside or between nodes"
NOBODY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A degree of parallelism in the grid of ranks. stride: ranks from one member to the next."""

    name: str
    size: int
    stride: int


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks first + i1 * stride1 + i2 * stride2 + ... axes: fastest first."""

    first: int
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """Members."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def last(self) -> int:
        """Highest rank."""
        return self.first + sum(axis.stride * (axis.size - 1) for axis in self.axes)

    @property
    def ranks(self) -> Iterator[int]:
        """Yield the members in order."""
        spans = [range(0, a.stride * a.size, a.stride) for a in reversed(self.axes)]
        for offsets in product(*spans):
            yield self.first + sum(offsets)


def grid(job: TrainingJob, *, experts: bool = False) -> Mapping[str, Axis]:
    """Return the axes of the dense grid or of the experts', fastest first."""
    settings = job.settings
    if experts:
        sizes = (job.expert_tp, settings.ep, job.expert_dp, job.pp)
        return _axes(settings.order, ("etp", "ep", "edp", "pp"), sizes)
    sizes = (job.tp, settings.cp, job.dp, job.pp)
    return _axes(settings.order, ("tp", "cp", "dp", "pp"), sizes)


@lru_cache(maxsize=2**14)
def _axes(order: str, names: tuple[str, ...], sizes: tuple[int, ...]) -> Mapping[str, Axis]:
    """Return axes in an order of ranks, with replicas or stages outermost."""
    inner, outer = [0, 1], [2, 3] if order.endswith("dp-pp") else [3, 2]
    axes, stride = {}, 1
    for place in inner + outer:
        axes[names[place]] = Axis(name=names[place], size=sizes[place], stride=stride)
        stride *= sizes[place]
    return MappingProxyType(axes)


def spanned(
    job: TrainingJob, kind: str, part: str = ""
) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Return the axes that a kind of group spans, and the other axes of its grid.

    part: of replicas, one instance of the optimizer (`INSTANCE`), all neighbours, or their peers in
    the other instances (`ACROSS`).

    Raises
    ------
    ValueError: unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"a group must be one of {', '.join(KINDS)}, got {kind!r}")
    inside = KINDS[kind]
    axes = grid(job, experts=any(name not in DENSE for name in inside))
    members = tuple(axis for axis in axes.values() if axis.name in inside)
    others = tuple(axis for axis in axes.values() if axis.name not in inside)
    if not part:
        return members, others
    one, across = _instances(members, job.settings.optimizer.instances)
    return (one, others + across) if part == INSTANCE else (across, others + one)


def _instances(axes: tuple[Axis, ...], count: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """Divide the replicas of a group: the axes of one instance, and from one to the next.

    Ranks of an instance are neighbours, if it takes whole axes and at most a part of one more.
    """
    left = max(1, math.prod(axis.size for axis in axes) // count)
    one, across = [], []
    for axis in axes:
        size = math.gcd(axis.size, left)
        left //= size
        one.append(replace(axis, size=size))
        across.append(replace(axis, size=axis.size // size, stride=axis.stride * size))
    return tuple(one), tuple(across)


def group_size(job: TrainingJob, kind: str, part: str = "") -> int:
    """Return how many ranks a group of this kind, or this part of it, has."""
    return math.prod(axis.size for axis in spanned(job, kind, part)[0])


def group_count(job: TrainingJob, kind: str) -> int:
    """Return how many groups of this kind there are."""
    return math.prod(axis.size for axis in spanned(job, kind)[1])


def groups(job: TrainingJob, kind: str, part: str = "") -> Iterator[RankGroup]:
    """Yield all groups of this kind, or this part of them, lowest ranks first."""
    members, others = spanned(job, kind, part)
    spans = [range(0, axis.stride * axis.size, axis.stride) for axis in reversed(others)]
    for offsets in product(*spans):
        yield RankGroup(sum(offsets), members)


def stage_ranks(job: TrainingJob, pp_rank: int) -> RankGroup:
    """Return all ranks of a pipeline stage."""
    axes = dict(grid(job))
    pipeline = axes.pop("pp")
    return RankGroup(pp_rank * pipeline.stride, tuple(axes.values()))


def embedding_groups(job: TrainingJob) -> Iterator[RankGroup]:
    """Yield the pairs of a first and a last pipeline rank that share a tied word embedding."""
    axis = grid(job)["pp"]
    pair = Axis(name="embedding", size=2, stride=axis.stride * (job.pp - 1))
    for rank in stage_ranks(job, 0).ranks:
        yield RankGroup(rank, (pair,))


def rank_name(job: TrainingJob, rank: int) -> str:
    """Return `n0_g0`: node 0, device 0 of it."""
    node, device = divmod(rank, job.devices_per_node)
    return f"n{node}_g{device}"


def kind_link(job: TrainingJob, kind: str, pp_rank: int | None = None, part: str = "") -> str:
    """Return the link of the messages of all groups of a kind, or of a stage's groups."""
    members, others = spanned(job, kind, part)
    start = 0
    if pp_rank is not None:
        start = sum(axis.stride * pp_rank for axis in others if axis.name == "pp")
        others = tuple(axis for axis in others if axis.name != "pp")
    return _link(job, RankGroup(start, members), others)


def stage_link(job: TrainingJob, one: int, other: int) -> str:
    """Return the link of the messages between ranks of two pipeline stages."""
    first, stride = stage_ranks(job, min(one, other)), grid(job)["pp"].stride
    pair = Axis(name="pp", size=2, stride=stride * abs(one - other))
    return _link(job, RankGroup(first.first, (pair,)), first.axes)


def _link(job: TrainingJob, group: RankGroup, shifts: tuple[Axis, ...]) -> str:
    """Return the link of the messages of a group and of all its shifts: only the place of a group's
    first rank in its node matters, and there are few."""
    if group.size < 2:
        return NOBODY
    node, span = job.devices_per_node, group.last - group.first
    places = {group.first % node}
    for axis in shifts:
        steps = {i * axis.stride % node for i in range(min(axis.size, node))}
        places = {(place + step) % node for place in places for step in steps}
    crossing = {place + span >= node for place in places}
    if len(crossing) > 1:
        return MIXED
    return BETWEEN if crossing.pop() else INSIDE
