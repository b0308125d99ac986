"""Plans of a runtime that take as good as the same time: the plainest of them is the one to run.

A setting that wins a hundredth of a percent on paper wins nothing on machines that differ by more
from run to run, and costs whoever has to run it. The proof is not touched: the bound stays, and the
gap counts what was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.units import format_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.search.state import SearchState


def take_plainest(search: SearchState) -> None:
    """Put the plainest plan that is within `limits.tie` of the best one in its place, and say so;
    of equally plain ones the fastest."""
    if search.plan is None or not search.limits.tie or len(search.judged) == 1:
        return
    space = search.problem.space
    fastest = search.bound if search.answered else search.objective
    limit, had = fastest * (1 + search.limits.tie), space.specialities(search.plan)
    first = None if search.answered else search.as_fastest()
    if not had:
        return
    has, seconds = had, search.objective
    for plan in space.ties(search, limit):
        found = space.specialities(plan)
        if weight(found) > weight(has):
            continue
        evaluation = search.evaluate(plan)
        time = evaluation.iteration_time
        if evaluation.legal and time <= limit and (weight(found), time) < (weight(has), seconds):
            search.plan, search.evaluation, search.objective = plan, evaluation, time
            has, seconds = found, time
    if has != had:
        search.fastest = first
        without = ", ".join(name for name in had if name not in has)
        instead = ", ".join(name for name in has if name not in had)
        search.notes.append(
            f"tie: {format_percent(seconds / fastest - 1)} slower than the fastest plan "
            f"({fastest:.7g} s), without its {without}"
            + (f" but with {instead}" if instead else "")
            + "; `tie=0` takes the fastest"
        )


def weight(specialities: Sequence[str]) -> tuple[bool, int]:
    """Return how special a plan is: whether it needs what one runtime alone has, which comes first
    where a plan has it, then how many settings."""
    return any(name in ONE_RUNTIME for name in specialities), len(specialities)


RANK_ORDER = "order of ranks with data parallelism outermost"
ONE_RUNTIME = (RANK_ORDER,)
