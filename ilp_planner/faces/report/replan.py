"""Plans for a changed problem, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.replan.replan import FASTEST, LEAST, SEATS
from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.faces.report.decisions import difference_table, differences
from ilp_planner.faces.report.expected import expected_percent
from ilp_planner.faces.report.json_report import plan_object, problem_object
from ilp_planner.faces.report.tables import GIB, Table, describe_gap, exact_seconds, finite
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ilp_planner.analysis.replan.replan import Moving, Replanned

SHOWN = 32  # machines that a line names
STARTS = "start: "  # what a search notes of the plan that it starts from


def replan_lines(
    found: Replanned, saved: Mapping[str, Path | None] | None = None
) -> list[tuple[str, str]]:
    """Say the time and moved bytes of both plans in a few lines, the verdict first.

    Parameters
    ----------
    saved: the file of each plan, by its name.
    """
    return list(_lines(found, saved or {}))


def _lines(found: Replanned, saved: Mapping[str, Path | None]) -> Iterator[tuple[str, str]]:
    assert found.least is not None
    fastest, least = found.plans.values()
    yield "verdict", _verdict(found, fastest, least)
    yield "changed", ", ".join(_words(name, text) for name, text in found.changes.texts.items())
    read = max(plan.seated.moves.from_checkpoint for plan in found.plans.values())
    if read:
        yield (
            "checkpoint",
            "what the lost nodes alone had is read from one; what the others have must be of the "
            "same step",
        )
    yield "least moved", _proof(found)
    yield "among", found.least.among
    names = {name: found.before.machines.called(p.seated.seats) for name, p in found.plans.items()}
    if names[FASTEST] == names[LEAST]:
        yield "machines", _machines("both plans", names[LEAST])
    else:
        for name, machines in names.items():
            yield "machines", _machines(f"the {name} plan", machines)
    for text in resized(found):
        yield "machines", text
    for note in found.result.notes:
        if note.startswith(STARTS):
            yield "start", note.removeprefix(STARTS)
    for name, file in saved.items():
        if file is not None:
            yield "saved to", f"{file}, the {name} plan"


def resized(found: Replanned) -> list[str]:
    """Return a sentence on every machine of either plan that has lost devices or got some."""
    known = found.before.machines
    every = (text for plan in found.plans.values() for text in known.resized(plan.seated.seats))
    return list(dict.fromkeys(every))


def _words(name: str, text: str) -> str:
    if name == "without":
        return f"{text} lost"
    return f"{name.replace('_', ' ')} {text}"


def _verdict(found: Replanned, fastest: Moving, least: Moving) -> str:
    """Return the time and moved bytes of both plans."""
    before = exact_seconds(found.case.evaluation.iteration_time)
    first = f"{exact_seconds(fastest.seconds)} instead of {before}"
    if found.same:
        return f"{first}; the fastest plan moves least, {format_bytes(least.bytes)}"
    slower = format_percent(least.seconds / fastest.seconds - 1)
    return (
        f"{first}, and {format_bytes(fastest.bytes)} move; {format_bytes(least.bytes)} with a plan "
        f"that is {slower} slower"
    )


def _proof(found: Replanned) -> str:
    """Return how certain it is that no plan moves less."""
    assert found.least is not None
    limit = f"plans that are at most {format_percent(found.slack)} slower than the fastest found"
    if found.least.alone:
        return f"no other plans were looked through: {found.least.alone}"
    if found.least.proved:
        return f"proved: none of the {limit} moves fewer bytes"
    return (
        f"found, not proved, in the time that there was: of the {limit}, each moves at least "
        f"{format_bytes(found.least.at_least)}"
    )


def _machines(plan: str, machines: tuple[str, ...]) -> str:
    """Return the machine of every node of a plan."""
    shown = ", ".join(machines[:SHOWN])
    more = len(machines) - SHOWN
    return f"nodes of {plan} in order: {shown}{f' and {more} more (--json)' if more > 0 else ''}"


def replan_tables(found: Replanned) -> list[Table]:
    """Return the time and moved bytes of both plans, and their differences."""
    plans = told_apart(found)
    cases = [(found.case.problem, found.case.plan)]
    cases += [(found.problem, plan.plan) for plan in plans.values()]
    rows = differences(cases)
    table = moves_table(found)
    return [table, *([difference_table(rows, ["before", *plans])] if rows else [])]


def told_apart(found: Replanned) -> dict[str, Moving]:
    """Return both plans by name, or the one that is both."""
    if found.same and found.fastest is not None:
        return {f"{FASTEST}, {LEAST}": found.fastest}
    return found.plans


def moves_table(found: Replanned) -> Table:
    """Return a row for each plan."""
    plans = told_apart(found)
    errors = {name: expected_percent(found.problem, plan.plan) for name, plan in plans.items()}
    table = Table(
        "plan",
        "iteration",
        *(("expected\nerror",) * bool(any(errors.values()))),
        "gap",
        "moved in all\n(GiB)",
        "between nodes\n(GiB)",
        "to one device\nat most (GiB)",
        "kept\n(GiB)",
        "from a\ncheckpoint (GiB)",
        "moved in",
        left=("plan",),
    )
    for name, plan in plans.items():
        moves, way = plan.seated.moves, found.before.way(found.problem, plan)
        kept = float(moves.kept.sum())
        sizes = (moves.total, way.between, moves.most, kept, moves.from_checkpoint)
        cells = (
            name,
            exact_seconds(plan.seconds),
            *((errors[name],) * bool(any(errors.values()))),
            describe_gap(found.gap(plan)),
            *(f"{size / GIB:.2f}" for size in sizes),
            format_seconds(way.seconds),
        )
        table.add(*cells)
    return table


def replan_object(found: Replanned) -> dict[str, Any]:
    """Return both plans as one object; null for a plan that there is not."""
    case, least = found.case, found.least
    cases = [(case.problem, case.plan)]
    cases += [(found.problem, plan.plan) for plan in found.plans.values()]
    return {
        **headed("replan"),
        "name": case.name,
        **problem_object(found.problem),
        "changed": found.changes.texts,
        "before_s": case.evaluation.iteration_time,
        "bound_s": finite(found.result.bound),
        "stopped_by": found.result.stopped_by,
        "slack": found.slack,
        "fastest": None if found.fastest is None else _plan(found, found.fastest),
        "least_moved": None if least is None else _plan(found, least.moving),
        "least_proved": None if least is None else least.proved,
        "least_at_least_bytes": None if least is None else least.at_least,
        "least_among": None if least is None else least.among,
        "differs": {row.name: list(row.values) for row in differences(cases)},
        "notes": [*found.result.notes, *(f"{SEATS}: {text}" for text in resized(found))],
    }


def _plan(found: Replanned, plan: Moving) -> dict[str, Any]:
    """Return a plan with its moved bytes."""
    moves, way = plan.seated.moves, found.before.way(found.problem, plan)
    return {
        "iteration_time_s": plan.seconds,
        "gap": found.gap(plan),
        "moved_bytes": moves.total,
        "between_nodes_bytes": way.between,
        "most_moved_bytes": moves.most,
        "kept_bytes": float(moves.kept.sum()),
        "checkpoint_bytes": moves.from_checkpoint,
        "moved_in_s": way.seconds,
        "machines": list(found.before.machines.called(plan.seated.seats)),
        "devices": [
            {"moved_bytes": moved, "kept_bytes": kept, "checkpoint_bytes": read}
            for moved, kept, read in zip(
                moves.moved.tolist(), moves.kept.tolist(), moves.read.tolist(), strict=True
            )
        ],
        **plan_object(found.problem, plan.plan, plan.evaluation),
    }
