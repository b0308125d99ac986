"""The verb `replan`: plans for a changed problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, UsageError, described
from ilp_planner.faces.api.explain import case_of
from ilp_planner.faces.api.result import Result, Saved
from ilp_planner.faces.api.words import Printed, as_text, positive, python_words

if TYPE_CHECKING:
    import os

    from ilp_planner.analysis.replan.replan import Moving, Replanned


@dataclass(frozen=True, kw_only=True, repr=False)
class Replan(Printed):
    """Both plans of a changed problem. found: with the moved bytes of each, and the machines."""

    found: Replanned

    def __repr__(self) -> str:
        return f"<Replan {self.found.case.name}, {len(self.found.plans)} plans>"

    def __str__(self) -> str:
        from ilp_planner.faces.report.replan import replan_lines, replan_tables

        if not self.found.plans:
            return str(self._result(None))
        return as_text(replan_lines(self.found), replan_tables(self.found))

    @property
    def summary(self) -> dict[str, Any]:
        """The output of `ilp-plan replan --json`."""
        from ilp_planner.faces.report.replan import replan_object

        return replan_object(self.found)

    @property
    def fastest(self) -> Result:
        """The fastest plan, with its bound; without a plan if none was found."""
        return self._result(self.found.fastest)

    @property
    def least_moved(self) -> Result:
        """The plan that moves least, with the bound of the fastest one.

        Raises
        ------
        PlanError: there is none.
        """
        if self.found.least is None:
            raise PlanError("no plan: none of the changed problem was found")
        return self._result(self.found.least.moving)

    def _result(self, plan: Moving | None) -> Result:
        outcome = self.found.result if plan is None else self.found.result_of(plan)
        return Result(**vars(outcome), problem=self.found.problem)


def replan(
    subject: Result | Saved | str | os.PathLike[str],
    *,
    cluster: str | None = None,
    global_batch: int | None = None,
    slack: float = 0.05,
    seconds: float = 60.0,
    **demands: object,
) -> Replan:
    """Plan again when nodes are lost or added, or when something else changes: return the fastest
    plan, and the one that moves the fewest bytes of weights and optimiser states.

    Parameters
    ----------
    subject: a result, a plan of `load`, or the file of a plan.
    cluster: another one to train on, by name or path. global_batch: samples per iteration; None: as
        before. slack: relative; how much longer than the fastest plan found the other one may take.
    seconds: of both searches together.
    demands: constraints, by the keywords of `problem`. `without` names nodes that are lost with all
        that they held; nodes that `max_devices` leaves out hand it on.

    Raises
    ------
    PlanError: no plan, one that is not legal, or one of a space that does not say what devices
    hold. UsageError: nothing changes, or an unknown thing does. InfeasibleError: the changed
    problem has no plan. SolverError: the judge refutes the result of the search.
    """
    from ilp_planner.analysis.replan.changes import Changes
    from ilp_planner.analysis.replan.replan import replan as ask
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.constraints import NAMES, constraints_of

    deadline = Deadline(seconds)
    if not 0 <= slack < 1:
        raise UsageError(f"slack: found {slack}, expected a fraction from 0 to below 1")
    if cluster is not None and not isinstance(cluster, str):
        raise UsageError(f"cluster: found {described(cluster)}, expected a name or a path")
    if global_batch is not None:
        global_batch = positive("global_batch", global_batch)
    unknown = next((name for name in demands if name not in NAMES), None)
    if unknown is not None:
        raise UsageError(f"replan: found {unknown!r}, expected some of {', '.join(NAMES)}")
    changes = Changes(
        demands=constraints_of(demands), cluster=cluster or "", global_batch=global_batch
    )
    with python_words():
        return Replan(found=ask(case_of(subject, 1), changes, deadline=deadline, slack=slack))
