"""The residual problem of a proof about cuts between ranks, as an integer program.

A binary for every possible rank (`bounds.schedule`), and of every rank

    schedule >= what a micro-batch takes through the ranks before it + what it takes itself
    synchronisation >= what it synchronises

Cuts with these sums below the plan's time were simulated one by one: a third maximum is at least
the schedule's addition to each. So the optimum is the plan's time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.optimize.search.confirm import ROOM
from ilp_planner.optimize.solvers.arc_flow import LinearModel, Rows, flow_rows
from ilp_planner.spaces.training.bounds.near_cuts import ROUNDING
from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.enumerate.partition import least_peak
from ilp_planner.spaces.training.search.cut_graph import graph_of
from ilp_planner.spaces.training.search.membership import variant_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from ilp_planner.optimize.search.confirm import Solver
    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.search.parts import MegatronPart

MOST = 512  # cuts that are simulated
SCHEDULE = "exact schedule"  # what the program lacks where there are too many cuts to simulate


@dataclass(frozen=True, kw_only=True, eq=False)
class LastCuts:
    """The cuts of a plan's variant up to the plan (`LastProblem`).

    names: rank, first and last element of every arc.
    """

    model: LinearModel
    names: tuple[str, ...]
    constant: float = 0.0
    lacks: str = ""

    @property
    def arcs(self) -> int:
        """Number of stage candidates."""
        return self.model.arcs

    def learn(self, path: Sequence[int]) -> bool:
        """Tell that there is nothing to learn."""
        return False

    def solver(self, work: float) -> Solver:
        """Return a function that lets CP-SAT solve it; once, as there is nothing to learn."""
        from ilp_planner.optimize.solvers.cpsat import solve_linear

        return lambda limits, deadline: solve_linear(self.model, limits, deadline, work)

    def write(self, path: Path, form: str) -> None:
        """Write it as a file."""
        from ilp_planner.optimize.solvers.pulp_backend import write_model

        write_model(self.model, self.names, path, form, constant=self.constant)


def last_of_variant(search: PartSearch[MegatronPart], plan: GroupPlan) -> LastCuts | None:
    """Return the cuts of a plan's variant up to the plan; None if virtual stages are chosen one by
    one, as their layouts are no cuts of ranks, or if cuts are checked one by one."""
    part = next((s.part for s in search.states if s.part.holds(plan)), None)
    if part is None or plan.settings is None:
        return None
    variant = variant_of(part, plan)
    if variant is None or not part.spread(variant) or part.picks(variant):
        return None
    held = plan.per_rank([stage.stop - stage.start for stage in plan.stages])
    value = part.seconds(variant, (0, *np.cumsum(held).tolist()))
    tables = part.tables(variant)
    cuts = LeastCuts(tables)
    once = least_peak(tables) + part.ranks.constant
    room = (value - once) * (1 - ROUNDING)
    near = cuts.nearest(room, MOST)
    judged = {ends: part.seconds(variant, ends) for _, ends in near.cuts if search.goon()}
    model, names = cut_program(
        cuts,
        (value - once) * (1 + ROOM),
        {ends: seconds - part.ranks.constant for ends, seconds in judged.items()},
    )
    known = near.rest >= room and len(judged) == len(near.cuts)
    return LastCuts(
        model=model,
        names=names,
        constant=part.ranks.constant,
        lacks="" if known else SCHEDULE,
    )


def cut_program(
    cuts: LeastCuts, limit: float, judged: Mapping[tuple[int, ...], float]
) -> tuple[LinearModel, tuple[str, ...]]:
    """Return the program of all cuts with their own bound below a limit, in seconds, and the names
    of its arcs.

    judged: seconds that cuts take, synchronisation included.
    """
    tables, ranks = cuts.tables, cuts.tables.kind.size
    rank, start, stop = cuts.open(limit)
    through, own = cuts.through[rank, start, stop], cuts.own[rank, start, stop]
    peak = tables.peak[tables.kind[rank], start, stop]
    places = zip(rank.tolist(), start.tolist(), stop.tolist(), strict=True)
    number = {place: arc for arc, place in enumerate(places)}
    schedule, sync, simulated = range(rank.size, rank.size + 3)
    turns = [np.flatnonzero(rank == r) for r in range(ranks)]
    before = [np.flatnonzero(rank < r) for r in range(ranks)]
    more, rows = [0.0], []
    for ends, seconds in judged.items():
        pairs = enumerate(pairwise(ends))
        arcs = np.array([number.get((r, *pair), -1) for r, pair in pairs])
        late = seconds - cuts.least(ends) - float(peak[arcs].max())
        if (arcs >= 0).all() and late > 0:
            more.append(late)
            rows.append((arcs, np.full(ranks, late), late * (1 - ranks)))
    took = [
        (np.append(b, t), np.append(through[b], own[t]), 0.0)
        for b, t in zip(before, turns, strict=True)
    ]
    model = LinearModel(
        arcs=rank.size,
        cost=np.append(np.zeros(rank.size), np.ones(3)),
        maxima=(
            ("schedule", 0.0, limit),
            ("synchronisation", 0.0, float(peak.max(initial=0.0))),
            ("simulated", 0.0, max(more)),
        ),
        rows={
            "flow": flow_rows(graph_of(tables, rank, start, stop)),
            "schedule": _at_least(schedule, took),
            "synchronisation": _at_least(sync, [(t, peak[t], 0.0) for t in turns]),
            "simulated": _at_least(simulated, rows),
        },
        scale=1.0,
    )
    return model, tuple(f"{r}_{a}_{b}" for r, a, b in number)


def _at_least(
    column: int, rows: Iterable[tuple[NDArray[np.int64], NDArray[np.float64], float]]
) -> Rows:
    """Return rows that say of a column that it is at least low + the sum of values of arcs.

    rows: arcs, their values, low.
    """
    found = [(np.append(arcs, column), np.append(-values, 1.0), low) for arcs, values, low in rows]
    nothing = np.zeros(0, np.int64)
    return Rows(
        pointer=np.cumsum([0, *(arcs.size for arcs, _, _ in found)]),
        column=np.concatenate([nothing, *(arcs for arcs, _, _ in found)]),
        value=np.concatenate([nothing.astype(float), *(values for _, values, _ in found)]),
        low=np.array([low for *_, low in found], np.float64),
        high=np.full(len(found), np.inf),
    )
