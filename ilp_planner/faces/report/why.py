"""Limits of a plan, for people and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.fullest import plan_verdict
from ilp_planner.analysis.why.robust import guarantee, survived
from ilp_planner.base.units import format_bytes, format_percent, format_seconds, number_ranges
from ilp_planner.faces.report.expected import expected_lines, expected_object, known_of
from ilp_planner.faces.report.json_report import problem_object
from ilp_planner.faces.report.lines import NANOSECOND
from ilp_planner.faces.report.rates import worth_lines, worth_object
from ilp_planner.faces.report.tables import GIB, Table, exact_seconds, finite, unit_for
from ilp_planner.faces.schemas import headed
from ilp_planner.job.verdict import NEAR, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.analysis.why.why import Gain, RankLoad, Why
    from ilp_planner.faces.report.tables import Unit

MILLI = 1e-3  # seconds
NOTHING = 5e-7  # relative: a gain below it is none that anybody would read


class Told(NamedTuple):
    """Further facts for the report. within: relative, how far above the best the plan may be, for
    the error of times that it survives. tokens: of a training run; None: nothing is said of one."""

    within: float
    tokens: float | None = None


def why_tables(found: Why) -> list[Table]:
    """Return the terms of the time, the load of ranks, and the gains of relaxations."""
    return [
        seconds_table(found.seconds),
        rank_table(found.ranks),
        *([gain_table(found)] if found.gains else []),
    ]


def why_lines(found: Why, told: Told) -> list[tuple[str, str]]:
    """Say the limits of a plan in a few lines, the verdict first."""
    case = found.case
    return [
        ("verdict", f"{_verdict(found)}; {bottleneck(found.ranks)}"),
        *_room_lines(found),
        ("most helps", _best_gain(found)),
        *_shadow_lines(found),
        *robust_lines(found, told.within),
        *_failure_lines(found),
        ("bounds", _whose(found)),
        *worth_lines(case.problem, case.plan, case.evaluation, told.tokens),
    ]


def _room_lines(found: Why) -> Iterator[tuple[str, str]]:
    """Say that it is not certain that the plan fits, if it is not."""
    case = found.case
    room = plan_verdict(case.problem, case.plan, case.evaluation)
    if room is not None and room[0] is Verdict.MAY_NOT_FIT:
        yield room[0], f"{format_bytes(room[1])} left on the fullest device: {NEAR}"


def _verdict(found: Why) -> str:
    """Return how good the plan is."""
    seconds = exact_seconds(found.case.evaluation.iteration_time)
    outside = found.case.judgement.coverage.outside
    if outside:
        return f"{seconds}, outside of what is proved ({outside})"
    if found.ratio is None:
        return f"{seconds}, no bound known"
    slower = found.case.evaluation.iteration_time / found.known.best - 1
    if slower > NOTHING:
        return f"{seconds}, {format_percent(slower)} slower than the best plan found"
    if found.ratio - 1 <= NOTHING:
        return f"{seconds}, proved optimal"
    return f"{seconds}, at most {format_percent(found.ratio - 1)} above the best"


def bottleneck(ranks: tuple[RankLoad, ...]) -> str:
    """Return the bottleneck stages."""
    slowest = [rank for rank in ranks if rank.slowest]
    load = f"{slowest[0].load / MILLI:.3f} ms per micro-batch"
    if len(ranks) == 1:
        return f"one stage, {load}"
    if len(slowest) == len(ranks):
        return f"all {len(ranks)} stages take {load}"
    numbers = number_ranges([rank.number for rank in slowest])
    most = max(rank.slack / rank.load for rank in ranks)
    word = "stages" if len(slowest) > 1 else "stage"
    return (
        f"the bottleneck is {word} {numbers} with {load}, the others have up to "
        f"{format_percent(most)} to spare"
    )


def _best_gain(found: Why) -> str:
    """Return the relaxation that surely gains most, or may."""
    gains = [gain for gain in found.gains if gain.known]
    if not gains:
        return "nothing could be tried"
    best = max(gains, key=lambda gain: (gain.least, gain.most))
    if best.least <= NOTHING * found.known.best:
        most = max(gain.most for gain in gains)
        if not all(gain.bounded for gain in gains):
            return "nothing surely; how much at most is not known of all changes (--time-limit)"
        return f"nothing surely; no change tried gains more than {_share(most, found)}"
    return f"{best.relaxation.limit}: {best.relaxation.change}, {described(best)}"


def _shadow_lines(found: Why) -> Iterator[tuple[str, str]]:
    """Say the gain of one more node of each device type, if there are several."""
    nodes = [gain for gain in found.gains if gain.relaxation.kind == "node" and gain.known]
    if len(nodes) > 1:
        each = (f"{gain.relaxation.device} {described(gain)}" for gain in nodes)
        yield "one node more", "; ".join(each)


def described(gain: Gain) -> str:
    """Return `gains at least 0.5 s (0.8 %) and at most 1.2 s (1.9 %)`; `proved none`."""
    before = gain.before.best
    if not gain.known:
        return "not known"
    if math.isinf(gain.most) and gain.most < 0:
        return "no plan is left"
    if gain.most <= NOTHING * before:
        return "proved none" if gain.none else "next to nothing"
    least = f"{format_seconds(gain.least)} ({format_percent(gain.least / before)})"
    if not gain.bounded:
        return f"gains at least {least}" if gain.least > 0 else "not known"
    most = f"{format_seconds(gain.most)} ({format_percent(gain.most / before)})"
    if gain.least <= NOTHING * before:
        return f"gains at most {most}"
    if gain.most - gain.least <= NOTHING * before:
        return f"gains {most}"
    return f"gains at least {least} and at most {most}"


def _share(seconds: float, found: Why) -> str:
    return f"{format_seconds(seconds)} ({format_percent(seconds / found.known.best)})"


def robust_lines(found: Why, within: float) -> Iterator[tuple[str, str]]:
    """Say how wrong times may be for the plan to stay within so much of the best."""
    case = found.case
    if found.ratio is None:
        yield from expected_lines(case.problem, case.plan)
        return
    wrong, limit = survived(found.ratio, within), format_percent(within)
    text = f"times that are all wrong by up to {format_percent(wrong)}, and stays within {limit} of"
    if not wrong:
        text = f"no error of times: what is proved alone leaves more than {limit} above"
    yield ("survives", f"{text} the best")
    error = known_of(case.problem, case.plan).error
    if error is None:
        yield from expected_lines(case.problem, case.plan)
    else:
        most = guarantee(found.ratio, error.low, error.high) - 1
        yield (
            "expected error",
            f"{error.text}: if each time is within these, the plan is "
            f"within {format_percent(most)} of the best",
        )


def _failure_lines(found: Why) -> Iterator[tuple[str, str]]:
    """Say the changes that could not be tried, and why."""
    if "cluster" not in found.case.request.files:
        yield ("not tried", "memory, nodes and links: no cluster file of ilp-planner's says them")
    for gain in found.gains:
        if not gain.known:
            what = f"{gain.relaxation.limit}, {gain.relaxation.change}"
            yield ("not tried", f"{what}: {gain.found.failure}")


def _whose(found: Why) -> str:
    """Return the source of the ranges' bounds."""
    name = found.case.name
    if found.derived:
        return f"of {name}: {_proved(found)}, by a search of now; of each change by its own search"
    return (
        f"of {name}: {_proved(found)}, as it claims (`ilp-plan evaluate --check-certificate` "
        "derives it again); of each change by a search of now"
    )


def _proved(found: Why) -> str:
    bound = found.known.bound
    return exact_seconds(bound) if bound > 0 else "none"


def seconds_table(seconds: Mapping[str, float]) -> Table:
    """Return a row per term of the time, the largest first."""
    whole = sum(seconds.values())
    unit = unit_for(whole)
    table = Table("where the time goes", unit.name, "share", left=("where the time goes",))
    for name, value in sorted(seconds.items(), key=lambda pair: -pair[1]):
        if value >= NANOSECOND:
            table.add(name, unit.show(value), format_percent(value / whole))
    return table


def rank_table(ranks: tuple[RankLoad, ...]) -> Table:
    """Return a row per pipeline rank."""
    table = Table("stage", "ms per\nmicro-batch", "slack\n(ms)", "slack", "memory left\n(GiB)")
    for rank in ranks:
        cells = (
            str(rank.number),
            f"{rank.load / MILLI:.3f}",
            "bottleneck" if rank.slowest else f"{rank.slack / MILLI:.3f}",
            "" if rank.slowest else format_percent(rank.slack / rank.load),
            "-" if rank.room is None else f"{rank.room / GIB:.2f}",
        )
        table.add(*cells)
    return table


def gain_table(found: Why) -> Table:
    """Return a row per relaxation."""
    unit = unit_for(found.known.best)
    table = Table(
        "limit",
        "instead",
        f"gain at\nleast ({unit.name})",
        f"gain at\nmost ({unit.name})",
        "at most",
        f"best then\n({unit.name})",
        f"bound then\n({unit.name})",
        left=("limit", "instead"),
    )
    for gain in found.gains:
        if gain.known:
            names = (gain.relaxation.limit, gain.relaxation.change)
            table.add(*names, *_gain_cells(gain, unit))
    return table


def _gain_cells(gain: Gain, unit: Unit) -> tuple[str, ...]:
    after, before = gain.after, gain.before.best
    if math.isinf(after.bound):
        return ("no plan", "is left", "", "-", "-")
    if not gain.bounded:
        return (_least(gain, unit), "not known", "", unit.show(after.best), "-")
    none = gain.most <= NOTHING * before
    return (
        _least(gain, unit),
        "none" if none and gain.least >= 0 else unit.show(gain.most),
        "" if none else format_percent(gain.most / before),
        unit.show(after.best),
        unit.show(after.bound),
    )


def _least(gain: Gain, unit: Unit) -> str:
    """Return the least gain; a dash if no bound says one."""
    return unit.show(gain.least) if gain.before.bound > 0 or gain.relaxation.wider else "-"


def why_object(found: Why, told: Told) -> dict[str, Any]:
    """Return the answer as one object; null for unknown values."""
    case, ratio = found.case, found.ratio
    room = plan_verdict(case.problem, case.plan, case.evaluation)
    error = known_of(case.problem, case.plan).error
    return {
        **headed("why"),
        "name": case.name,
        **problem_object(case.problem),
        "iteration_time_s": case.evaluation.iteration_time,
        "bound_s": found.known.bound,
        "best_s": finite(found.known.best),
        "derived": found.derived,
        "outside": case.judgement.coverage.outside,
        "seconds_s": dict(found.seconds),
        "ranks": [
            {
                "number": rank.number,
                "load_s": rank.load,
                "slack_s": rank.slack,
                "bottleneck": rank.slowest,
                "memory_left_bytes": rank.room,
            }
            for rank in found.ranks
        ],
        "verdict": None if room is None else str(room[0]),
        "gains": [gain_object(gain) for gain in found.gains],
        "within": told.within,
        "survived_error": None if ratio is None else survived(ratio, told.within),
        **worth_object(case.problem, case.plan, case.evaluation, told.tokens),
        **expected_object(case.problem, case.plan, case.evaluation.iteration_time),
        "within_expected_error": (
            None if ratio is None or error is None else guarantee(ratio, error.low, error.high) - 1
        ),
    }


def gain_object(gain: Gain) -> dict[str, Any]:
    """Return the gain of a relaxation."""
    relaxation, found = gain.relaxation, gain.found
    value: dict[str, Any] = {
        "kind": relaxation.kind,
        "limit": relaxation.limit,
        "change": relaxation.change,
        "device": relaxation.device or None,
    }
    if not gain.known:
        return value | {"failure": found.failure}
    return value | {
        "gain_at_least_s": finite(gain.least),
        "gain_at_most_s": finite(gain.most),
        "best_s": finite(gain.after.best),
        "bound_s": finite(gain.after.bound),
        "proved_none": gain.none,
        "stopped_by": found.stopped_by,
        "wall_s": found.wall,
    }
