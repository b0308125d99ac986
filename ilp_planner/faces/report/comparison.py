"""Plans and solvers side by side on one problem."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.compare.entry import best_bound
from ilp_planner.base.units import format_bytes
from ilp_planner.faces.report.decisions import difference_table, differences, seconds_table
from ilp_planner.faces.report.expected import (
    NONE,
    expected_object,
    expected_percent,
    known_object,
)
from ilp_planner.faces.report.json_report import problem_object
from ilp_planner.faces.report.rates import WORTH, price_of, rate_figures, run_in, worth_object
from ilp_planner.faces.report.tables import (
    Table,
    describe_bound,
    describe_gap,
    memory_used,
    note_lines,
)
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ilp_planner.analysis.compare.entry import Entry
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan

HEURISTIC = "a heuristic, which proves nothing"


def comparison_table(entries: Sequence[Entry]) -> Table:
    """Return a row per plan or solver; gaps are to the best bound of all."""
    table = Table(
        "plan",
        "iteration (s)",
        "stages",
        "micro-batch",
        "most memory on a device (GiB)",
        "gap to best bound",
        "own bound (s)",
        "solved in (s)",
        "remark",
        left=("plan", "remark"),
    )
    bound = best_bound(entries)
    for entry in entries:
        cells = (
            entry.name,
            _number(entry.time, 3),
            _count(entry.stages),
            _count(entry.micro_batch),
            "-" if math.isnan(entry.memory) else memory_used(entry.memory, entry.limit),
            "-" if (gap := entry.gap(bound)) is None else describe_gap(gap),
            _number(entry.bound or math.nan, 3),
            _number(entry.wall, 1),
            "; ".join(_remarks(entry)),
        )
        table.add(*cells)
    return table


def _remarks(entry: Entry) -> Iterator[str]:
    """Yield further remarks on a plan."""
    if entry.excess:
        yield f"OVER THE MEMORY LIMIT by {format_bytes(entry.excess)}"
    if entry.outside:
        yield f"outside: {entry.outside}"
    if entry.remark:
        yield entry.remark


def detail_tables(entries: Sequence[Entry], tokens: float | None = None) -> list[Table]:
    """Return the rates of plans, their differences, and the terms of their times; of one alone the
    first.

    Parameters
    ----------
    tokens: of a training run; None: nothing is said of one.
    """
    return [*rates_table(entries, tokens), *_difference_tables(entries)]


def rates_table(entries: Sequence[Entry], tokens: float | None = None) -> Iterator[Table]:
    """Yield a table with a row per plan that has a time; none if no rates are known.

    Parameters
    ----------
    tokens: of a training run; None: nothing is said of one.
    """
    rows = [_rates(entry, tokens) for entry in entries]
    titles = list(dict.fromkeys(title for row in rows for title in row))
    if titles:
        table = Table("per second", *titles, left=("per second",))
        for entry, row in zip(entries, rows, strict=True):
            if row:
                table.add(entry.name, *(row.get(title, "-") for title in titles))
        yield table


def _rates(entry: Entry, tokens: float | None) -> dict[str, str]:
    """Return the rates of a plan and the days of a run, by the titles of columns."""
    problem = entry.problem
    if problem is None or entry.plan is None or entry.evaluation is None:
        return {}
    error = expected_percent(problem, entry.plan)
    expected = {"expected error": error} if error else {}
    rates = list(rate_figures(problem, entry.plan, entry.evaluation))
    if not rates:
        return expected
    row = expected | {rate.name.replace(" per GPU", "/GPU"): rate.text for rate in rates}
    price = price_of(problem, entry.plan, entry.evaluation)
    if price is not None:
        row["price per hour"] = f"{price.hourly:,.2f}"
    run = run_in(problem, entry.plan, entry.evaluation, tokens) if tokens else None
    if run is not None:
        row["days"] = f"{run.days:,.2f}"
        row |= {} if run.price is None else {"price": f"{run.price:,.0f}"}
    return row


def _difference_tables(entries: Sequence[Entry]) -> list[Table]:
    """Return the differences of plans, and the terms of their times; nothing of one alone."""
    known = [entry for entry in entries if entry.seconds]
    if len(known) < 2:
        return []
    names = [entry.name for entry in known]
    found = differences(cases_of(known))
    tables = [difference_table(found, names)] if found else []
    return [*tables, seconds_table([entry.seconds for entry in known], names)]


def comparison_lines(
    problem: Sequence[tuple[str, str]], notes: Iterable[str], entries: Sequence[Entry]
) -> list[tuple[str, str]]:
    """Say the common problem, and the best bound.

    Parameters
    ----------
    problem: in words. notes: on it, one line each.
    """
    bound = best_bound(entries)
    source = next((entry.name for entry in entries if bound and entry.bound == bound), "")
    return [*problem, ("best bound", describe_bound(bound, source)), *note_lines(notes)]


def comparison_object(
    problem: Problem[Any], entries: Sequence[Entry], tokens: float | None = None
) -> dict[str, Any]:
    """Return the comparison for `--json`. `differs` has a list of values, one of every entry with
    a plan and a time, for each setting and stage that is not the same in all. tokens: as in
    `detail_tables`."""
    bound = best_bound(entries)
    known = [entry for entry in entries if entry.seconds]
    found = differences(cases_of(known))
    return {
        **headed("compare"),
        **problem_object(problem),
        "compared": [entry.name for entry in known],
        "differs": {row.name: list(row.values) for row in found},
        "bound_s": bound,
        "entries": [
            {
                "name": entry.name,
                "objective_s": entry.time,
                "memory_bytes": entry.memory,
                "memory_excess_bytes": entry.excess,
                "seconds_s": dict(entry.seconds),
                "bound_s": entry.bound,
                "gap": entry.gap(bound),
                "outside": entry.outside,
                "stages": entry.stages,
                "micro_batch": entry.micro_batch,
                "wall_s": entry.wall,
                "heuristic": entry.heuristic,
                "remark": entry.remark,
                **entry_worth(entry, tokens),
            }
            for entry in entries
        ],
    }


def cases_of(entries: Iterable[Entry]) -> list[tuple[Problem[Any], AnyPlan]]:
    """Return the plans that there are, each with the problem that it was made for."""
    cases = ((entry.problem, entry.plan) for entry in entries)
    return [(problem, plan) for problem, plan in cases if problem is not None and plan is not None]


def entry_worth(entry: Entry, tokens: float | None = None) -> dict[str, Any]:
    """Return a plan beside others in the numbers that people talk in; null without a time."""
    if entry.problem is None or entry.plan is None or entry.evaluation is None:
        return {**dict.fromkeys(WORTH), **known_object(NONE, None)}
    return {
        **worth_object(entry.problem, entry.plan, entry.evaluation, tokens),
        **expected_object(entry.problem, entry.plan, entry.evaluation.iteration_time),
    }


def _number(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if math.isfinite(value) else "-"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)
