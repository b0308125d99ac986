"""Runs of plans, and what they prove, for people and as JSON."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.tune.outcome import Status
from ilp_planner.base.units import counted, format_percent, format_seconds
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.fit import signed_percent
from ilp_planner.faces.report.parallelism import BETWEEN, degree_words
from ilp_planner.faces.report.stages import training_words
from ilp_planner.faces.report.tables import Table
from ilp_planner.faces.schemas import headed
from ilp_planner.faces.tuning.session import BUDGET, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.tune.tune import Answer
    from ilp_planner.faces.tuning.rows import Tried
    from ilp_planner.faces.tuning.session import Asked, Ended
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan


def plan_text(problem: Problem[Any], plan: AnyPlan) -> str:
    """Return a plan on one line."""
    degrees, layout = degree_words(problem, plan, evaluate(problem, plan))
    return BETWEEN.join(filter(None, [*degrees, *training_words(plan, brief=True), layout]))


def outcome_text(tried: Tried) -> str:
    """Return `2.71 s (20 steps), 3.2 % more than expected`, or why a run failed."""
    row = tried.row
    if row["status"] != Status.MEASURED:
        return f"{row['status']}: {row['why']}" if row["why"] != row["status"] else row["status"]
    off = signed_percent(row["seconds"] / row["expected_s"] - 1)
    return f"{format_seconds(row['seconds'])} ({counted(row['steps'], 'step')}), {off} of expected"


def begun_text(problem: Problem[Any], tried: Tried) -> str:
    """Return a line for a run that begins."""
    expected = format_seconds(tried.row["expected_s"])
    return f"run {tried.number}: {plan_text(problem, tried.plan)}: {expected} expected"


def run_table(problem: Problem[Any], tried: Sequence[Tried]) -> Table:
    """Return a row per run."""
    table = Table("run", "expected", "measured", "off", "plan", left=("plan",))
    for one in sorted(tried):
        row, measured = one.row, "-"
        off = "-"
        if row["status"] == Status.MEASURED:
            measured = format_seconds(row["seconds"])
            off = signed_percent(row["seconds"] / row["expected_s"] - 1)
        elif row["status"] in [*Status]:
            measured = row["status"]
        plan = plan_text(problem, one.plan)
        table.add(str(one.number), format_seconds(row["expected_s"]), measured, off, plan)
    return table


def ended_lines(asked: Asked, found: Ended, gap: float) -> Iterator[tuple[str, str]]:
    """Yield what a tuning found: the best run, the proof, and the reason why it ended."""
    answer = found.answer
    if answer is not None and answer.best is not None:
        best = next(one for one in found.tried if one.plan == answer.best.plan)
        script = asked.folder / best.row["script"]
        yield f"{format_seconds(answer.best.seconds)} per step", f"run {best.number}: {script}"
        yield from _proof(found, answer, gap)
    if found.waiting is not None:
        yield "run it", str(asked.folder / found.waiting.row["script"])
        yield "then", "the same command with --log LOG, or --failed if it can never run"
    elif not found.proved:
        yield "ended", _reason(found)


def _proof(found: Ended, answer: Answer[AnyPlan], gap: float) -> Iterator[tuple[str, str]]:
    assert answer.best is not None
    machines = counted(answer.machines, "machine")
    if not isfinite(answer.bound):
        yield "PROVED BEST", "every plan of the set was run, or failed"
    elif found.proved:
        yield (
            f"PROVED WITHIN {format_percent(gap)}",
            f"no plan of the set that was not run takes less than {format_seconds(answer.bound)} "
            f"on {machines} that the runs allow",
        )
    elif answer.open:
        yield "NO BOUND", f"{answer.open} of {machines} were not searched in the time"
    else:
        yield (
            f"WITHIN {format_percent(answer.gap)}",
            f"a plan that was not run may take {format_seconds(answer.bound)} on one of "
            f"{machines} that the runs allow",
        )
    factor = signed_percent(answer.middle.factor - 1)
    yield (
        "calibrated",
        f"steps take {factor} beside what calibrated constants say; these explain a run to within "
        f"{format_percent(answer.error)}",
    )


def _reason(found: Ended) -> str:
    if found.reason == BUDGET:
        return "at the budget: --budget gives more time, and the same command goes on"
    return found.reason


def ended_object(problem: Problem[Any], asked: Asked, found: Ended, gap: float) -> dict[str, Any]:
    """Return the object of `--json`."""
    answer = found.answer
    best = None if answer is None else answer.best
    return {
        **headed("tune"),
        "reason": found.reason,
        "proved": found.proved,
        "gap_asked": gap,
        "gap": answer.gap if answer is not None and isfinite(answer.gap) else None,
        "bound_s": answer.bound if answer is not None and isfinite(answer.bound) else None,
        "best_s": None if best is None else best.seconds,
        "best_run": None
        if best is None
        else next(one.number for one in found.tried if one.plan == best.plan),
        "machines": 0 if answer is None else answer.machines,
        "factor": None if best is None or answer is None else answer.middle.factor,
        "error": None if best is None or answer is None else answer.error,
        "next_script": str(asked.folder / found.waiting.row["script"])
        if found.reason == WAITING and found.waiting is not None
        else None,
        "runs": [_run_object(problem, one) for one in sorted(found.tried)],
    }


def _run_object(problem: Problem[Any], one: Tried) -> dict[str, Any]:
    row = one.row
    return {
        "run": one.number,
        "outcome": str(row["status"]),
        "plan": plan_text(problem, one.plan),
        "script": row.get("script"),
        "expected_s": row["expected_s"],
        "measured_s": row.get("seconds"),
        "steps": row.get("steps"),
        "wall_s": row.get("wall_s"),
        "reason": row.get("why") or "",
    }
