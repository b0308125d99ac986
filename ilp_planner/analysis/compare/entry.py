"""Results of a plan or a solver, compared with others on one problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import SolverError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.optimize.coverage import proved_gap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One plan or solver.

    time: seconds per iteration, inf without a plan that breaks no rule but that of memory. memory,
    limit: bytes of the fullest device, used and allowed; excess: of a plan that does not fit, how
    many too many. evaluation: of the plan, if it has a time. seconds: of an iteration, by term.
    problem: of the plan; its nodes may be others of the same cluster; None without a plan.
    bound: seconds, proved; 0 for none. wall: seconds that the solver took, nan for a saved plan.
    remark: why there is no plan, or another remark. heuristic: a solver that proves nothing.
    outside: why proofs on this problem are not about the plan.
    """

    name: str
    time: float = math.inf
    memory: float = math.nan
    limit: float = math.nan
    excess: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    problem: Problem[Any] | None = None
    plan: AnyPlan | None = None
    evaluation: Evaluation | None = None
    bound: float = 0.0
    stages: int | None = None
    micro_batch: int | None = None
    wall: float = math.nan
    remark: str = ""
    heuristic: bool = False
    outside: str | None = None

    def gap(self, bound: float) -> float | None:
        """Return the gap to a bound in seconds, as `proved_gap` does; None if there is none, or it
        is not about this plan."""
        about = not self.outside and not self.excess
        return proved_gap(self.time, bound) if about and bound > 0 else None


def best_bound(entries: Sequence[Entry]) -> float:
    """Return the highest bound that any entry proves, in seconds."""
    return max(entry.bound for entry in entries)


def check_consistent(entries: Sequence[Entry]) -> None:
    """Fail when a plan is faster than a bound that is about it: one of the two is wrong.

    Raises
    ------
    SolverError: names both.
    """
    about = [entry for entry in entries if not entry.outside and not entry.excess]
    fastest = min(about, key=lambda entry: entry.time, default=Entry(name="no plan"))
    highest = max(entries, key=lambda entry: entry.bound)
    if highest.bound > fastest.time * (1 + ROUNDING):
        raise SolverError(
            f"{fastest.name} takes {fastest.time!r} s, below the bound {highest.bound!r} s that "
            f"{highest.name} claims to prove: one of the two is wrong"
        )
