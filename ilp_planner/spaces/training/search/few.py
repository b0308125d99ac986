"""Problems that leave next to nothing to choose: every plan is judged, and nothing is searched."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ilp_planner.base.numerics import NEVER
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.result import ALL_JUDGED, Stop
from ilp_planner.spaces.training.enumerate.layouts import layouts_of
from ilp_planner.spaces.training.enumerate.variants import each_variant, in_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.optimize.search.group_search import PartSearch
    from ilp_planner.plan import GroupPlan
    from ilp_planner.spaces.training.search.parts import MegatronPart

FEW = 8  # plans that are judged one by one


def few_plans(parts: Sequence[MegatronPart]) -> list[GroupPlan] | None:
    """Return the one plan of every part; None if a part has several, or there are many parts."""
    if len(parts) > FEW or (parts and parts[0].problem.constraints.keep):
        return None
    found = []
    for part in parts:
        plan = _only_plan(part)
        if plan is None:
            return None
        found.append(plan)
    return found


def _only_plan(part: MegatronPart) -> GroupPlan | None:
    """Return the plan that is alone in its part; None if there are several."""
    variants = tuple(islice(each_variant(part), 2))
    if len(variants) != 1:
        return None
    turned = in_turns(part, variants[0])
    if len(turned) != 1:
        return None
    (variant,) = turned
    if part.spread(variant):  # any cuts between ranks
        ends = (0, part.costs.model.layers + 2)
        return part.group_plan(variant, ends) if part.degrees.pp == 1 else None
    if part.problem.constraints.one_layout is None:
        return None
    layouts = layouts_of(part, variant)
    return part.group_plan(variant, layouts[0].tolist()) if len(layouts) == 1 else None


def judge_each(search: PartSearch[MegatronPart], plans: Sequence[GroupPlan]) -> Stop:
    """Judge the plan of every part: the fastest that fits is the best, or none fits.

    Raises
    ------
    SolverError: the judge finds one illegal for another reason than memory, or faster than a bound.
    """
    judged = []
    for state, plan in zip(search.states, plans, strict=True):
        if not search.goon():
            return Stop.TIME
        evaluation = evaluate(search.problem, plan)
        judged.append((plan, evaluation))
        if {violation.rule for violation in evaluation.violations} == {"memory"}:
            state.raise_bound(NEVER, ALL_JUDGED)
        else:
            search.keep(plan, evaluation, state.bound)
            state.raise_bound(evaluation.iteration_time, ALL_JUDGED)
    search.judged = tuple(judged)
    return Stop.PROOF
