"""Candidates as stage graphs: with the class of the next group as context, or as part of a node.

Nodes are (first layer, stages after, and class of the group if sending is explicit); stages after
as far as memory depends on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.bounds.context import Context, no_seats
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.search.parts import OpenGraph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.spaces.groups.candidates import Candidates, Catalogue

LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128])
"""Stages after a stage, told apart in bounds; labels count them one by one."""
MOST_EXPLICIT = 3_000_000  # arcs


def level_begins(catalogue: Catalogue, choices: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return the first stages of levels of stages after, as far as these candidates depend on
    them."""
    binding = catalogue.stages_after(catalogue.stages.only(choices), most)
    binding = binding[binding < most - 1]
    deepest = int(binding.max()) + 1 if binding.size else 0
    return LEVELS[deepest >= LEVELS]


def leveled_graph(
    catalogue: Catalogue, choices: NDArray[np.int64], most: int, begins: NDArray[np.int64]
) -> OpenGraph:
    """Return the graph with a level for every range of stages after: from begins[n] to the next.

    A sender's cost above that for its fastest class of groups is context.

    Parameters
    ----------
    choices: of the candidates. most: stages of a plan.
    """
    if not choices.size:
        return OpenGraph(graph=_no_graph(catalogue), choice=choices)
    c = catalogue.stages.only(choices)
    sending, layers, levels = catalogue.sending, catalogue.layers, begins.size
    behind = catalogue.stages_after(c, most)
    which, level, below = _leveled_arcs(behind, c.stop == layers, begins, layers)
    sink = layers * levels
    c, behind = c.only(which), behind[which]
    graph = _graph(
        catalogue,
        c,
        sources=levels,
        tail=c.start * levels + level,
        head=np.where(below < 0, sink, c.stop * levels + below),
        sink=sink,
    )
    context = Context(
        behind=behind,
        level=np.append(np.tile(np.arange(levels), layers), 0),
        level_of=np.searchsorted(begins, np.arange(layers + 1), side="right") - 1,
        kind=sending.own[c.option],
        row=catalogue.rows(c),
        send_time=sending.more_time,
        send_extra=sending.more_extra,
        **no_seats(which.size),
    )
    return OpenGraph(graph=graph, choice=choices[which], context=context)


def _leveled_arcs(
    behind: NDArray[np.int64], last: NDArray[np.bool_], begins: NDArray[np.int64], layers: int
) -> list[NDArray[np.int64]]:
    """Return candidate, level and next level (-1: none) of each arc.

    Parameters
    ----------
    behind: most stages after each candidate. last: it ends the chain.
    """
    arcs = []
    for number, begin in enumerate(begins.tolist()):
        end = int(begins[number + 1]) if number + 1 < begins.size else layers + 1
        if begin == 0:
            final = np.flatnonzero((behind >= 0) & last)
            arcs.append((final, np.full(final.size, number), np.full(final.size, -1)))
        inner = np.flatnonzero((behind >= max(begin, 1)) & ~last)
        reached = np.searchsorted(begins, np.arange(max(begin, 1) - 1, end - 1), side="right") - 1
        for below in np.unique(reached).tolist():
            arcs.append((inner, np.full(inner.size, number), np.full(inner.size, below)))
    return [np.concatenate(column) for column in zip(*arcs, strict=True)]


def explicit_graph(catalogue: Catalogue, choices: NDArray[np.int64], most: int) -> OpenGraph | None:
    """Return the graph over (layer, stages after, class of the group), without context; None if
    that is too large.

    Parameters
    ----------
    choices: of the candidates. most: stages of a plan.
    """
    c, classes = catalogue.stages.only(choices), catalogue.sending.columns
    behind, layers = catalogue.stages_after(c, most), catalogue.layers
    limiting = behind[behind < most - 1]
    # stages after: 0, 1 ...; the last level stands for `so many or more` where that is the same
    open_ended = most >= layers
    levels = (int(limiting.max()) + 2 if limiting.size else 1) if open_ended else most
    if choices.size * levels * classes > MOST_EXPLICIT:
        return None
    which, level, below, to = _explicit_arcs(
        behind, c.stop == layers, levels, classes, open_ended=open_ended
    )
    sink = layers * levels * classes
    own = catalogue.sending.own[c.option[which]]
    graph = _graph(
        catalogue,
        c.only(which),
        sources=levels * classes,
        tail=(c.start[which] * levels + level) * classes + own,
        head=np.where(below < 0, sink, (c.stop[which] * levels + below) * classes + to),
        sink=sink,
        to=np.where(below < 0, -1, to),
    )
    return OpenGraph(graph=graph, choice=choices[which])


def _explicit_arcs(
    behind: NDArray[np.int64],
    last: NDArray[np.bool_],
    levels: int,
    classes: int,
    *,
    open_ended: bool,
) -> list[NDArray[np.int64]]:
    """Return candidate, stages after, stages after the next (-1: none) and its class of each arc.

    Parameters
    ----------
    open_ended: the last level stands for more stages as well.
    """
    final = np.flatnonzero(last)
    arcs = [(final, final * 0, final * 0 - 1, final * 0)]
    for number in range(levels):
        inner = np.flatnonzero((behind >= number) & ~last)
        after = {number - 1} if number > 0 else set()
        if open_ended and number == levels - 1:
            after.add(number)
        for below in sorted(after):
            for kind in range(classes):
                arcs.append(
                    (inner, np.full(inner.size, number), np.full(inner.size, below),
                     np.full(inner.size, kind))
                )  # fmt: skip
    return [np.concatenate(column) for column in zip(*arcs, strict=True)]


def _graph(
    catalogue: Catalogue,
    c: Candidates,
    *,
    sources: int,
    tail: NDArray[np.int64],
    head: NDArray[np.int64],
    sink: int,
    to: NDArray[np.int64] | None = None,
) -> StageGraph:
    """Return the graph with these candidates as arcs; the last node is the sink.

    Parameters
    ----------
    to: class of the next group, -1 at the sink; None: sending costs the least there is.
    """
    sending, row = catalogue.sending, catalogue.rows(c)
    time, extra = c.time + sending.least_time[row], c.extra + sending.least_extra[row]
    if to is not None:
        time = time + np.where(to >= 0, sending.more_time[row, to], 0.0)
        extra = extra + np.where(to >= 0, sending.more_extra[row, to], 0.0)
    return StageGraph(
        nodes=sink + 1,
        sources=tuple(range(sources)),
        sink=sink,
        operators=catalogue.layers,
        weight=catalogue.schedule.weight,
        tail=tail,
        head=head,
        start=c.start,
        stop=c.stop,
        time=time,
        extra=extra,
        peaks=c.peaks,
        use=catalogue.use[c.option],
        capacity=catalogue.capacity,
    )


def _no_graph(catalogue: Catalogue) -> StageGraph:
    none = np.zeros(0, np.int64)
    return StageGraph(
        nodes=2, sources=(0,), sink=1, operators=catalogue.layers,
        weight=catalogue.schedule.weight, tail=none, head=none, start=none, stop=none,
        time=np.zeros(0),
    )  # fmt: skip
