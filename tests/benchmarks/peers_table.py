"""Tables of docs/benchmarks/speed.md that put peers beside the planner."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent

Row = dict[str, Any]


def sailor_table(rows: Sequence[Row]) -> str:
    """Return Sailor's plans and the planner's, both by Sailor's formulas."""
    head = ["A100-40 + V100-16, batch", "Sailor's search and tables (s)", "its plan (s)"]
    head += ["best of its space (s)", "`ilp-plan` (s)", "less than its", "proved gap"]
    head += ["first plan (s)", "as good (s)", "end (s)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        best = row["best_s"]
        known = [value for value in (row["found_s"], best["all"]) if value is not None]
        own = row["peer"]
        cells = [row["case"].partition(": ")[2]]
        search = row["search_s"]
        cells.append("-" if search is None else f"{search[0]:g} + {search[1]:g}")
        cells.append("-" if row["found_s"] is None else f"{row['found_s']:.3f}")
        cells += [f"{best['all']:.3f}", judged(own)]
        cells.append(percent(1 - last(own) / min(known)) if own["plans"] else "-")
        cells.append("-" if own["gap"] is None else percent(own["gap"]))
        cells += [at(own, float("inf")), at(own, row["found_s"] or best["all"])]
        cells.append(f"{own['wall_s']:.1f}")
        lines.append(line(cells))
    return "\n".join(lines)


def own_table(rows: Sequence[Row]) -> str:
    """Return the best plan of Sailor's space and the planner's, both by the planner's own costs."""
    head = ["A100-40 + V100-16, batch", "best of Sailor's space (s)", "`ilp-plan` (s)", "less"]
    head += ["proved gap", "end (s)", "by Sailor's formulas (s)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        own, theirs = row["native"], row["native"]["peer_plan_s"]
        cells = [row["case"].partition(": ")[2], "-" if theirs is None else f"{theirs:.3f}"]
        found = own["objective_s"] if own["plans"] else None
        cells.append("-" if found is None else f"**{found:.3f}**")
        cells.append("-" if None in (theirs, found) else percent(1 - found / theirs))
        cells.append("-" if own["gap"] is None else percent(own["gap"]))
        cells += [f"{own['wall_s']:.1f}", f"{last(own):.3f}" if own["plans"] else "-"]
        lines.append(line(cells))
    return "\n".join(lines)


def rules_table(rows: Sequence[Row]) -> str:
    """Return what the rules of Sailor's space that the planner's lacks are worth in it."""
    head = ["A100-40 + V100-16, batch", "best of Sailor's space (s)"]
    head += ["with one degree for all replicas of a stage", "with whole micro-batches only"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        best = row["best_s"]
        cells = [row["case"].partition(": ")[2], f"{best['all']:.3f}"]
        cells += [lost(best[name], best["all"]) for name in ("one degree", "whole")]
        lines.append(line(cells))
    return "\n".join(lines)


def piper_table(rows: Sequence[Row]) -> str:
    """Return Piper's plans and the planner's, by Piper's formula and with the pipeline's fill."""
    head = [
        "devices",
        "Piper's search (s)",
        "its best plan by its formula (s)",
        "with the fill (s)",
    ]
    head += ["stages", "`ilp-plan` by Piper's formula (s)", "with the fill (s)", "stages"]
    head += ["proved gap", "first plan (s)", "as good (s)", "end (s)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        own = row["peer"]
        cells = [row["case"].partition(": ")[2].split()[0], row["search_s"]]
        cells += [f"{row['load_s']:.3f}", f"{row['timeline_s']:.3f}", f"{row['stages']}"]
        cells.append(f"{own['plans'][-1]['load_s']:.3f}" if own["plans"] else "-")
        cells += [judged(own), f"{len(own['stages'])}"]
        cells.append("-" if own["gap"] is None else percent(own["gap"]))
        cells += [at(own, float("inf")), at(own, row["timeline_s"]), f"{own['wall_s']:.1f}"]
        lines.append(line(cells))
    return "\n".join(lines)


def last(run: Row) -> float:
    """Return the seconds of the plan that a run ends with, as the peer judges it."""
    value: float = run["plans"][-1]["judged_s"]
    return value


def judged(run: Row) -> str:
    """Return them as a cell; with a word where the peer says that the plan does not fit."""
    if not run["plans"]:
        return "-"
    return f"**{last(run):.3f}**" + ("" if run["plans"][-1]["fits"] else " (does not fit)")


def at(run: Row, seconds: float) -> str:
    """Return when the first plan came that fits and takes at most so many seconds."""
    near = seconds * (1 + 1e-9)
    good = (plan for plan in run["plans"] if plan["fits"] and plan["judged_s"] <= near)
    first = next(good, None)
    return "-" if first is None else f"{first['at_s']:.1f}"


def lost(without: float | None, best: float) -> str:
    """Return how much more a plan takes without a rule."""
    return "-" if without is None else percent(without / best - 1)
