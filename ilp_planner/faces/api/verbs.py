"""The verbs `solve`, `evaluate`, `check`, `analyze` and `replan`."""

from __future__ import annotations

import math
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError, UsageError, described
from ilp_planner.faces.api.explain import case_of
from ilp_planner.faces.api.result import Result, Saved, load
from ilp_planner.faces.api.words import Printed, as_text, expect, positive, python_words
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.solvers.base import PREFER_PLAIN, Limits, Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.analysis.analyze import Analysis
    from ilp_planner.analysis.replan.replan import Moving, Replanned
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.faces.api.result import Check
    from ilp_planner.optimize.search.start import Start
    from ilp_planner.optimize.solvers.base import Progress
    from ilp_planner.plan import AnyPlan
    from ilp_planner.spaces.objectives.objective import Objective
    from ilp_planner.specs.training import TrainingJob


def solve(
    problem: Problem[Any],
    *,
    seconds: float | None = None,
    prefer_plain: float | None = None,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Progress | bool | None = None,
    top: int = 1,
    start: Result | Saved | str | os.PathLike[str] | None = None,
    objective: str | Sequence[str] = "time",
    max_price_per_hour: float | None = None,
    all_devices: bool = False,
    shortlist: int = 1,
) -> Result:
    """Find the fastest plan, and a lower bound on the time of every plan of the space.

    Any nodes may stay idle: `problem` of the result is that of the nodes in use, and `aim` has the
    bounds of all other sets of nodes.

    A Ctrl-C ends the search and keeps the best plan with its bound.

    Parameters
    ----------
    problem: of `ilp_planner.problem`.
    seconds: wall clock. prefer_plain: of plans for a training runtime that take up to this share
        longer than the fastest one, the plainest is taken, and the fastest is `fastest` of the
        result; 0: the fastest. None: 0.02. Instead of both, `limits` say them as well as gap,
        workers and seed; in `Limits()` prefer_plain is 0.
    solver: `auto`, `dp`, `cp-sat`, `milp`, `pulp`, or a heuristic (`gradient`, `anneal`).
    progress: called with (incumbent seconds, bound seconds) as they improve; True: a line on the
        terminal or in the notebook.
    top: how many of the best plans of whole layers to list.
    start: a plan of another solve to start from, with its bounds that still hold: a result, a plan
        of `load`, or the file of a plan. Its inputs may differ; `notes` list the parts used.
    objective: `time`, `price` (of a token), or both, as `"time,price"`: a plan for every budget.
    max_price_per_hour: the limit for the nodes of a plan; None: anything.
    all_devices: leave no node out, whether or not a plan is faster without it.
    shortlist: how many plans to try, chosen together (docs/howto/shortlist.md): `shortlist` of the
        result. A part of the time limit is theirs.

    Raises
    ------
    UsageError: an object of another kind, an unknown solver, limits that contradict each other.
    InfeasibleError: no plan costs as little per hour; it names the price of the cheapest one.
    PlanError: `start` is no plan, or its certificate is malformed or contradicts its own plan.
    SolverError: the judge refutes the result of the search.
    """
    from ilp_planner.analysis.shortlist.shortlist import (
        check_shortlist,
        time_for_plan,
        with_shortlist,
    )
    from ilp_planner.optimize.search.preference import check_preference
    from ilp_planner.spaces.objectives.any_nodes import solve_on_any_nodes
    from ilp_planner.spaces.objectives.objective import TIME, objective_named

    expect("solve", problem, Problem)
    if limits is not None:
        expect("solve: limits", limits, Limits)
    top, shortlist = positive("top", top), positive("shortlist", shortlist)
    known = limits or Limits(prefer_plain=PREFER_PLAIN)
    for name, value in (("seconds", seconds), ("prefer_plain", prefer_plain)):
        if value is not None and limits is not None:
            raise UsageError(f"{name}: found {value} beside limits, expected one of them")
    if seconds is not None:
        known = replace(known, seconds=seconds)
    if prefer_plain is not None:
        known = replace(known, prefer_plain=prefer_plain)
    check_preference(problem, prefer_plain, top=top, solver=solver)
    aimed = objective_named(objective if isinstance(objective, str) else ",".join(objective))
    on_sets = aimed is not TIME or max_price_per_hour is not None
    check_shortlist(problem, shortlist, top=top, solver=solver, objective=on_sets)
    if on_sets:
        said_besides = {"top": top > 1, "start": start is not None, "all_devices": all_devices}
        for name, said in said_besides.items():
            if said:
                raise UsageError(f"{name}: found it where any nodes may be used, expected none")
        with python_words(), _shown(progress) as told:
            return _on_sets(problem, aimed, max_price_per_hour, Task(known, solver, told))
    with python_words(), _shown(progress) as told:
        begin, deadline = None if start is None else _start(start), known.deadline()
        chosen = solve_on_any_nodes(
            problem, limits=known, solver=solver, progress=told, top=top, start=begin,
            all_devices=all_devices, deadline=time_for_plan(deadline, shortlist),
        )  # fmt: skip
        result = with_shortlist(
            chosen.problem, chosen.result, shortlist, limits=known, deadline=deadline
        )
    return Result(**vars(result), problem=chosen.problem)


def _on_sets(
    problem: Problem[Any], objective: Objective, max_price_per_hour: float | None, task: Task
) -> Result:
    """Search sets of nodes for the objective."""
    from ilp_planner.spaces.objectives.search import solve_on_sets

    chosen = solve_on_sets(
        problem,
        objective,
        max_hourly=math.inf if max_price_per_hour is None else max_price_per_hour,
        limits=task.limits,
        solver=task.solver,
        progress=task.progress,
    )
    return Result(**vars(chosen.result), problem=chosen.problem)


def evaluate(problem: Problem[Any], plan: AnyPlan) -> Evaluation:
    """Judge a plan: every broken rule, and time and memory recomputed.

    Raises
    ------
    UsageError: an object of another kind.
    """
    from ilp_planner.evaluate import evaluate as judge
    from ilp_planner.plan import Plan

    expect("evaluate", problem, Problem)
    expect("evaluate", plan, Plan)
    return judge(problem, plan)


def check(subject: Result | Saved | str | os.PathLike[str]) -> Check:
    """Judge a plan again, and derive every bound of its certificate again.

    Parameters
    ----------
    subject: a result, a plan of `load`, or the file of a plan.

    Raises
    ------
    PlanError: it holds no plan, or cannot be read.
    """
    if isinstance(subject, str | os.PathLike):
        subject = load(subject)
    expect("check", subject, Result, Saved)
    return subject.check()


def analyze(subject: TrainingJob | Result | Saved, **said: Any) -> Analysis:
    """Return memory and messages of every rank of a training job or of a plan.

    Parameters
    ----------
    subject: a job, a result, or a plan of `load`.
    said: name: of the model, for people. limit: bytes of a device that may be used. device: its
        name. notes: on the analysed job. Of a plan, these come from its problem unless they are
        said.

    Raises
    ------
    UsageError: an object of another kind. PlanError: neither a training job nor its stages one by
    one can say the plan.
    """
    from ilp_planner.analysis.analyze import analyze as analyze_job
    from ilp_planner.specs.training import TrainingJob

    expect("analyze", subject, TrainingJob, Result, Saved)
    if isinstance(subject, TrainingJob):
        return analyze_job(subject, **said)
    return subject.analyze(**said)


def _start(given: Any) -> Start:
    """Return the start of a search."""
    from ilp_planner.formats.saved_start import read_start

    if isinstance(given, str | os.PathLike):
        return read_start(Path(given))
    expect("solve: start", given, Result, Saved)
    start: Start = given.as_start()
    return start


def _shown(progress: Progress | bool | None) -> Any:
    """Return a context with the callback during the search."""
    if progress is True:
        from ilp_planner.faces.report.live import Progress as Line

        return Line()
    if progress not in (None, False) and not callable(progress):
        raise UsageError(
            f"progress: found {progress!r}, expected True or a function of (objective, bound)"
        )
    return nullcontext(progress or None)


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
