"""Chains of three layers, made by hand."""

import numpy as np

from ilp_planner.optimize.bounds.group_chain import Cards, ChainStages, GroupChain, Sending
from ilp_planner.optimize.bounds.group_states import Regions, regions, states

Candidate = tuple[int, int, int, tuple[int, ...], float]
"""First layer, layer after the last, class of the group, devices of each type, seconds."""


def made(
    candidates: list[Candidate],
    capacity: tuple[int, ...],
    *,
    send: tuple[tuple[float, ...], ...] = ((0.0,),),
    parted: tuple[int, ...] = (0,),
    weight: float = 1.0,
    behind: int = 9,
) -> GroupChain:
    """Return a chain of three layers. send: seconds by class of the sender, and by column: class k
    is sent to by column k, or from another node by column parted[k]."""
    start, stop, group, use, time = zip(*sorted(candidates, key=lambda one: one[1]), strict=True)
    arcs, classes = len(candidates), len(parted)
    none = np.full(classes, -1)
    costs = np.array(send)
    told = states(costs, costs, none, np.arange(classes), np.array(parted), np.zeros(0, np.int64))
    stops, times = np.array(stop), np.array(time)
    row = np.minimum(group, len(send) - 1)
    stages = ChainStages(
        first=np.searchsorted(stops, np.arange(5)),
        start=np.array(start), time=times, total=times, peaks=np.zeros((arcs, 1)),
        use=np.array(use), behind=np.full(arcs, behind), row=row, group=np.array(group),
        state=np.array(group), seats=np.zeros((arcs, len(capacity)), np.int64),
        number=np.zeros(arcs, np.int64),
    )  # fmt: skip
    return GroupChain(
        layers=3, weight=weight, types=len(capacity), capacity=capacity,
        cards=Cards(1.0, np.zeros((arcs, 0), np.int64)), choice=np.arange(arcs), stop=stops,
        stages=stages, sending=Sending(costs, costs, np.zeros(costs.shape, np.int64)), states=told,
        alike=np.arange(len(capacity)), regions=no_regions(classes, len(capacity)),
    )  # fmt: skip


def no_regions(classes: int, types: int) -> Regions:
    """Return what is counted of so many classes where nothing is."""
    return regions([()] * classes, [1] * types, [], [1] * types)
