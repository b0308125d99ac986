"""The ranks that a launch starts, and those of a node: launchers together, and where a number is
open, the command line of ilp-plan and the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.base.errors import SpecError
from ilp_planner.base.limits import RANKS
from ilp_planner.base.units import counted
from ilp_planner.formats.megatron.launchers import Count, LeftOpenError, Open, Said

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.cluster import ClusterSpec

USUAL_NODE = 8  # devices of a node, where nothing says


class Gpus(NamedTuple):
    """The GPUs that a job is for. each: of a node; 0: nodes differ. name: of the cluster."""

    devices: int
    each: int
    name: str


def gpus_of(cluster: ClusterSpec) -> Gpus:
    """Return the GPUs of a cluster."""
    each = cluster.nodes[0].devices if cluster.equal_nodes else 0
    return Gpus(cluster.device_count, each, cluster.name)


class Ranks(NamedTuple):
    """What a launch starts. world: 0: nothing says. said: by the line or by the user, not by the
    cluster. remarks: in words, beside the cluster; unlike: the one that says that it has another
    number of ranks than GPUs, or one that was taken from the cluster."""

    world: int
    each: int
    said: bool
    remarks: tuple[str, ...] = ()
    unlike: str = ""


def ranks_of(launchers: Sequence[Said], world: int | None, gpus: Gpus | None) -> Ranks:
    """Return the ranks of a launch.

    Parameters
    ----------
    launchers: the outermost first. world: ranks, for any line says; None: as it does. gpus: where
        they are taken from if the line leaves them open; None: they are asked for.

    Raises
    ------
    SpecError: launchers contradict each other, or a number is open and nothing says it.
    """
    try:
        told = _together(launchers)
    except SpecError:
        if world is None:
            raise
        told = Said()  # the user knows better
    nodes, each = told.nodes, told.each
    total = told.all
    if isinstance(nodes, int) and isinstance(each, int):
        total = nodes * each
    elif isinstance(total, int) and isinstance(nodes, int):
        each = -(-total // nodes)
    elif isinstance(total, int) and isinstance(each, int):
        nodes = -(-total // each)
    line = total if isinstance(total, int) else 0
    if line > RANKS and world is None:
        raise SpecError(f"world size: found {line}, expected at most {RANKS} ranks")
    opened = [count for count in (nodes, each, total) if isinstance(count, Open)]
    taken: list[str] = []
    if world is not None:
        total = world
    elif not line:
        if gpus is None and opened:
            raise _asked(opened)
        if gpus is None:
            return Ranks(0, each if isinstance(each, int) else 0, said=False)
        total, taken = _of_cluster(nodes, each, total, gpus)
    assert isinstance(total, int)
    if not isinstance(each, int):
        usual = gpus.each if gpus and gpus.each else USUAL_NODE
        each = told.devices if isinstance(told.devices, int) else usual
    each = min(each, total)
    remarks = _beside(launchers, total, each, world, line, taken, gpus)
    unlike = gpus is not None and (total != gpus.devices or (world is None and not line))
    return Ranks(total, each, said=True, remarks=remarks, unlike=remarks[-1] if unlike else "")


def _of_cluster(nodes: Count, each: Count, total: Count, gpus: Gpus) -> tuple[int, list[str]]:
    """Return the ranks that a cluster has for a launch, and which numbers were taken from it."""
    taken = [c.shown for c in (nodes, each, total) if isinstance(c, Open)]
    if isinstance(each, int):
        count = max(1, gpus.devices // each)
    elif isinstance(nodes, int):
        return nodes * max(1, gpus.devices // nodes if not gpus.each else gpus.each), taken
    else:
        return gpus.devices, taken
    if isinstance(nodes, Open):
        count = min(max(count, nodes.least), nodes.most)
    return count * each, taken


def _together(launchers: Sequence[Said]) -> Said:
    """Return what launchers inside each other start altogether.

    Raises
    ------
    SpecError: they contradict each other.
    """
    if not launchers:
        return Said()
    *outer, inner = launchers
    for one in reversed(outer):
        inner = _inside(one, inner)
    _check_devices(inner)
    nodes, each, total = inner.nodes, inner.each, inner.all
    if all(isinstance(n, int) for n in (nodes, each, total)) and nodes * each != total:  # type: ignore[operator]
        raise SpecError(
            f"{inner.name}: found {total} processes, and {each} on each of {nodes} nodes, expected "
            f"{nodes * each} processes; --world-size N says which counts"  # type: ignore[operator]
        )
    return inner


def _inside(outer: Said, inner: Said) -> Said:
    """Return what a launcher starts whose every task is another launcher."""
    agents = outer.each if isinstance(outer.each, int) else 1
    if isinstance(outer.all, int) and isinstance(outer.nodes, int):
        agents = -(-outer.all // outer.nodes)
    started = outer.all
    if started is None or isinstance(started, Open):
        started = outer.nodes * agents if isinstance(outer.nodes, int) else None
    told = inner.nodes
    if isinstance(told, int) and isinstance(started, int) and told != started:
        raise SpecError(
            f"{inner.name}: found ranks of {told} of it that meet, and {outer.name} starts it "
            f"{started} times, expected as many (--nnodes {started}); --world-size N says which "
            "counts"
        )
    count = told if isinstance(told, int) else started if isinstance(started, int) else told
    nodes: Count = outer.nodes
    if isinstance(count, int):
        nodes = -(-count // agents)
    elif not isinstance(nodes, int):
        nodes = count
    each = inner.each
    if isinstance(each, int):
        each *= agents
    return Said(
        name=inner.name,
        nodes=nodes,
        each=each,
        all=inner.all,
        devices=outer.devices if inner.devices is None else inner.devices,
    )


def _check_devices(told: Said) -> None:
    """Refuse more ranks on a node than it is given devices."""
    if isinstance(told.each, int) and isinstance(told.devices, int) and told.each > told.devices:
        raise SpecError(
            f"{told.name}: found {told.each} processes on each node, which is given {told.devices} "
            "GPUs, expected one for each; --world-size N says how many there are"
        )


def _asked(opened: Sequence[Open]) -> LeftOpenError:
    """Return what is open, and all that would say it."""
    fixes = list(dict.fromkeys(one.fix for one in opened if one.fix))
    said = f"{' '.join(fixes)}, " if fixes else ""
    text = f"{opened[0].message}: {said}--world-size N or --gpus NxGPU"
    return LeftOpenError(text, opened[0].where)


def _beside(
    launchers: Sequence[Said],
    total: int,
    each: int,
    world: int | None,
    line: int,
    taken: Sequence[str],
    gpus: Gpus | None,
) -> tuple[str, ...]:
    """Return how a launch and what was asked for go together, in words."""
    remarks = []
    if world is not None and line and line != world:
        remarks.append(f"--world-size {world} counts: the launch line says {line} ranks")
    if gpus is None:
        return tuple(remarks)
    who = " under ".join(said.name for said in reversed(launchers)) or "the line"
    nodes = -(-total // each)
    where = f"{each} on each of {nodes} nodes" if nodes > 1 else "on one node"
    text = f"launch: {who}: {counted(total, 'rank')}, {where}"
    if taken:
        text += f" ({', '.join(dict.fromkeys(taken))}: taken from {gpus.name})"
    if not launchers and world is None:
        text = f"--world-size is not given: the {gpus.devices} GPUs of {gpus.name} are taken"
    elif total != gpus.devices:
        than = "fewer" if total < gpus.devices else "more"
        text += f", {than} than the {gpus.devices} of {gpus.name}"
    elif gpus.each and each != min(gpus.each, total):
        text += f", but nodes of {gpus.name} have {gpus.each} GPUs, which counts"
    else:
        text += f", as {gpus.name} has them"
    return (*remarks, text)
