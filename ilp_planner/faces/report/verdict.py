"""The proof of a plan, in a few words that never say more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.units import counted, format_percent, format_seconds
from ilp_planner.faces.report.tables import STOPS
from ilp_planner.optimize.coverage import proved_gap
from ilp_planner.optimize.result import ON_NODES, Status, Stop

if TYPE_CHECKING:
    from ilp_planner.formats.saved_check import Judgement
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.result import Aim, Result

GOOD, FAIR, BAD = "good", "fair", "bad"


class Verdict(NamedTuple):
    """mood: `good`, `fair` or `bad`. head: two or three words in capitals. text: the rest of the
    sentence that they begin."""

    mood: str
    head: str
    text: str

    @property
    def sentence(self) -> str:
        """The two as one: `Within 1.8 % of the fastest ...`."""
        colon = "" if self.text.startswith("of ") else ":"
        return f"{self.head.capitalize()}{colon} {self.text}"


class Standing(NamedTuple):
    """The figures that a verdict is about: seconds of an iteration.

    seconds: of the plan. bound: that no plan of the set undercuts, 0.0 without one. fastest: of the
    fastest plan found, if a plainer one was taken. stopped: why and when the search ended, empty if
    that is said by the proof.
    """

    seconds: float
    bound: float
    fastest: float | None = None
    stopped: str = ""


def result_verdict(problem: Problem[Any], result: Result) -> Verdict:
    """Return the proof at the end of a search."""
    stopped = _stopped(result)
    if result.plan is None:
        return _without_plan(result, stopped)
    aim = result.aim
    if aim is not None and aim.objective != "time":
        return _priced(problem, aim, stopped)
    bound = result.bound if aim is None else aim.best[0].bound
    fastest = None if result.fastest is None else result.fastest.objective
    return plan_verdict(
        searched_set(problem, aim), Standing(result.objective, bound, fastest, stopped)
    )


def _stopped(result: Result) -> str:
    """Return `; stopped by time limit, after 30 s`; nothing after a proof."""
    if result.stopped_by is Stop.PROOF:
        return ""
    return f"; stopped by {STOPS[result.stopped_by]}, after {format_seconds(result.wall)}"


def _without_plan(result: Result, stopped: str) -> Verdict:
    if result.status is Status.INFEASIBLE:
        return Verdict(BAD, "PROVED INFEASIBLE", result.reason or "no plan fits")
    least = f"; any takes at least {at_least(result.bound)}" if result.bound > 0 else ""
    return Verdict(FAIR, "NO PLAN FOUND", f"whether one exists is not known{least}{stopped}")


def plan_verdict(among: str, known: Standing) -> Verdict:
    """Return the proof about the time of a plan.

    among: the set of plans, as in `no {among} is faster`.
    """
    if known.bound <= 0:
        text = f"of any {among}: a faster one may exist{known.stopped}"
        return Verdict(FAIR, "NO BOUND", text)
    best = known.seconds if known.fastest is None else known.fastest
    proved = proved_gap(best, known.bound) == 0
    if known.fastest is None and proved:
        return Verdict(GOOD, "PROVED OPTIMAL", f"no {among} is faster")
    head = f"WITHIN {rounded_up(known.seconds / known.bound - 1)}"
    if known.fastest is None:
        text = f"none takes less than {at_least(known.bound)}{known.stopped}"
    elif proved:
        text = f"{format_seconds(best)}, proved optimal (--prefer-plain 0)"
    else:
        text = (
            f"{format_seconds(best)} found (--prefer-plain 0), none takes less than "
            f"{at_least(known.bound)}{known.stopped}"
        )
    return Verdict(GOOD if proved else FAIR, head, f"of the fastest {among}: {text}")


def _priced(problem: Problem[Any], aim: Aim, stopped: str) -> Verdict:
    """Return the proof if prices count."""
    among = searched_set(problem, aim)
    if aim.objective == "both":
        plans = counted(len(aim.best), "plan")
        if not aim.complete:
            return Verdict(FAIR, "OPEN FRONT", f"{plans}; any {among} may be missing{stopped}")
        found = _priced_verdict("FRONT", "as cheap per hour and faster", among, aim.gap)
        return found._replace(text=f"{found.text}; {plans}{stopped}")
    found = _priced_verdict("CHEAPEST", "cheaper per token", among, aim.best[0].gap)
    return found if found.mood == GOOD else found._replace(text=found.text + stopped)


def judgement_verdict(judgement: Judgement) -> Verdict:
    """Return the claimed proof in the file of a legal plan, in the same words."""
    problem, saved = judgement.problem, judgement.saved
    seconds, claim, aim = judgement.evaluation.iteration_time, saved.claim, saved.aim
    if claim is None:
        return Verdict(FAIR, "LEGAL", "nothing is proved, the plan came from elsewhere")
    if judgement.coverage.outside:
        outside = f"outside of what the proof is about: {judgement.coverage.outside}"
        return Verdict(FAIR, "LEGAL", outside)
    nodes = claim.among.partition(ON_NODES)[2] or "any of these nodes" * bool(aim)
    among = searched_set(problem, None, nodes=nodes)
    name, bound, gap = (aim.get(key) for key in ("name", "bound", "gap"))
    if not aim or name == "time":
        bound = bound if isinstance(bound, int | float) else claim.bound
        other = claim.fastest
        fastest = None if other is None else other.objective
        return plan_verdict(among, Standing(seconds, min(bound, seconds), fastest))
    open_gap = gap if isinstance(gap, int | float) else 1.0
    if name == "price":
        return _priced_verdict("CHEAPEST", "cheaper per token", among, open_gap)
    return _priced_verdict("FRONT", "as cheap per hour and faster", among, open_gap)


def _priced_verdict(word: str, better: str, among: str, gap: float) -> Verdict:
    """Return the proof if prices count. word: of the objective. better: the comparative that no
    plan meets."""
    if gap <= 0:
        return Verdict(GOOD, f"PROVED {word}", f"no {among} is {better}")
    if gap >= 1:
        return Verdict(FAIR, "NO BOUND", f"of any {among}: one may be {better}")
    head = f"WITHIN {rounded_up(1 / (1 - gap) - 1)}"
    return Verdict(FAIR, head, f"of the best {among}: one may be {better}")


def searched_set(problem: Problem[Any], aim: Aim | None = None, *, nodes: str = "") -> str:
    """Return `Megatron plan in the search space on all 8 nodes`: the set of plans of the proof, in
    few words; `--verbose` lists them.

    aim: over sets of nodes; `problem` is then one of them. nodes: possible nodes of plans, in
    words, if they are not all of the problem.
    """
    budget = ""
    if aim is not None:
        where = f"on {aim.on}"
        if math.isfinite(aim.max_hourly):
            budget = f" for at most {aim.max_hourly:g} per hour"
    elif nodes:
        where = f"on {nodes}"
    elif problem.space.idles:
        where = "on any of these devices"
    else:
        count = problem.cluster.node_count
        where = f"on {all_nodes(count)}" if count > 1 else "on this node"
    return f"{problem.plan_noun} {where}{budget}"


def all_nodes(count: int) -> str:
    """Return `all 8 nodes`; `both nodes`, `1 node`."""
    return {1: "1 node", 2: "both nodes"}.get(count, f"all {count} nodes")


def rounded_up(share: float) -> str:
    """Return `1.8 %`, never less than the share; `0.04 %` below 1 %."""
    percent = 100 * share
    if not 0 < percent < math.inf:
        return format_percent(share)
    digits = 0 if percent >= 100 else 1 if percent >= 1 else 2
    scale = 10**digits
    return f"{math.ceil(percent * scale * (1 - 1e-9)) / scale:.{digits}f} %"


def at_least(seconds: float) -> str:
    """Return a time of four digits that is never more than the one given."""
    if not 0 < seconds < math.inf:
        return format_seconds(seconds)
    scale = 10.0 ** (3 - math.floor(math.log10(seconds)))
    return format_seconds(math.floor(seconds * scale * (1 + 1e-9)) / scale)
