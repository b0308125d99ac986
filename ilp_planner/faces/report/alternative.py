"""Why not another plan, for people and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.why.robust import turned
from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.faces.report.comparison import cases_of, entry_worth, rates_table
from ilp_planner.faces.report.decisions import difference_table, differences, seconds_table
from ilp_planner.faces.report.json_report import problem_object
from ilp_planner.faces.report.tables import describe_bound, exact_seconds, finite
from ilp_planner.faces.schemas import headed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.analysis.why.alternative import Alternative
    from ilp_planner.faces.report.decisions import Difference
    from ilp_planner.faces.report.tables import Table

SAME = 1e-7  # relative: times that are the same
TOLD = 3  # terms that the verdict names
SHARE = 0.05  # of what is lost in all: terms that are less go without a word


def alternative_lines(found: Alternative) -> Iterator[tuple[str, str]]:
    """Yield the cost of an alternative and its terms, the verdict first."""
    yield "verdict", _verdict(found)
    if found.other.excess:
        yield "does not fit", f"{format_bytes(found.other.excess)} over the memory limit"
    if found.other.seconds and not found.has and (told := _told(found)):
        yield "because", told
    if found.other.seconds and not found.has and found.own.time < found.other.time:
        error = turned(found.own.time, found.other.time)
        yield (
            "turns",
            f"it is the faster one only if times are wrong by {format_percent(error)} or more, its "
            "own too long and those of the plan too short",
        )
    if found.other.outside:
        yield "outside", found.other.outside
    if found.among:
        yield "bound", describe_bound(found.known.bound, "a search of now")
        yield "among", found.among


def _verdict(found: Alternative) -> str:
    """Return how much slower the alternative is."""
    own, name = found.own.time, found.other.name
    if found.has:
        return f"{found.own.name} has {name} itself, in {exact_seconds(own)}"
    if math.isinf(found.known.bound):
        return f"{name}: no plan, which is proved: {found.reason}"
    if math.isinf(found.most):
        if found.least <= 0:
            return f"{name}: no plan was found in time, and nothing is proved of one"
        return (
            f"{name}: no plan was found in time; any takes at least {_more(found.least, own)} more"
        )
    if abs(found.most) <= SAME * own:
        return f"{name} is as fast, {exact_seconds(own)}"
    if found.most < 0:
        return f"{name} is {_more(-found.most, own)} faster than {found.own.name}"
    takes = f"{name} takes {exact_seconds(found.known.best)}, {_more(found.most, own)} more"
    if not found.among:
        return takes
    if found.most - found.least <= SAME * own:
        return f"{takes}, which is proved to be the best with it"
    if found.least > SAME * own:
        return f"{takes}; the best with it takes at least {_more(found.least, own)} more"
    return f"{takes}; that the best with it is slower is not proved"


def _more(seconds: float, own: float) -> str:
    return f"{format_seconds(seconds)} ({format_percent(seconds / own)})"


def _told(found: Alternative) -> str:
    """Return the largest terms of the difference."""
    slower, whole = found.most > 0, abs(found.most)
    told = []
    for name, seconds in list(found.more.items())[:TOLD]:
        if abs(seconds) >= SHARE * whole:
            told.append(
                f"{name} {format_seconds(abs(seconds))} {'more' if seconds > 0 else 'less'}"
            )
    against = [text for text in told if text.endswith("more") is not slower]
    leading = [text for text in told if text not in against]
    return ", ".join(leading) + (f", but {', '.join(against)}" if against and leading else "")


def alternative_tables(found: Alternative, tokens: float | None = None) -> list[Table]:
    """Return the rates of the two plans, the terms of their times, and their differences.

    Parameters
    ----------
    tokens: of a training run; None: nothing is said of one.
    """
    if not found.other.seconds or found.has:
        return []
    rates = rates_table([found.own, found.other], tokens)
    names = [found.own.name, found.other.name]
    rows = _differences(found)
    tables = [seconds_table([found.own.seconds, found.other.seconds], names)]
    return [*rates, *tables, *([difference_table(rows, names)] if rows else [])]


def _differences(found: Alternative) -> list[Difference]:
    return differences(cases_of([found.own, found.other])) if found.other.plan else []


def alternative_object(found: Alternative, tokens: float | None = None) -> dict[str, Any]:
    """Return the same as one object; null for unknown values. tokens: of a training run."""
    turns = turned(found.own.time, found.other.time) if found.other.seconds else None
    return {
        **headed("why-not"),
        "name": found.own.name,
        **problem_object(found.case.problem),
        "iteration_time_s": found.own.time,
        "alternative": found.other.name,
        "alternative_s": finite(found.known.best),
        "alternative_bound_s": finite(found.known.bound),
        "impossible": math.isinf(found.known.bound),
        "reason": found.reason,
        "has": found.has,
        "outside": found.other.outside,
        "memory_excess_bytes": found.other.excess,
        "costs_at_least_s": finite(found.least),
        "costs_at_most_s": finite(found.most),
        "turning_error": turns,
        "seconds_s": dict(found.own.seconds),
        "alternative_seconds_s": dict(found.other.seconds),
        **entry_worth(found.own, tokens),
        "alternative_worth": entry_worth(found.other, tokens),
        "more_s": dict(found.more) if found.other.seconds else {},
        "differs": {row.name: list(row.values) for row in _differences(found)},
    }
