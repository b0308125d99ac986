"""A simulated iteration, in lines and as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import counted, format_percent
from ilp_planner.faces.report.expected import expected_object
from ilp_planner.faces.report.lines import NANOSECOND
from ilp_planner.faces.report.rates import worth_lines, worth_object
from ilp_planner.faces.report.tables import Table, exact_seconds
from ilp_planner.faces.schemas import headed
from ilp_planner.schedule.engine import peak_micro_batches
from ilp_planner.schedule.orders import placed
from ilp_planner.spaces.throughput import throughput

if TYPE_CHECKING:
    from ilp_planner.analysis.simulated import Simulated
    from ilp_planner.evaluate import Evaluation
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan


def simulation_lines(found: Simulated) -> list[tuple[str, str]]:
    """Say the iteration time by the schedule and as judged, and its waits."""
    shape, timeline = found.timeline.orders.shape, found.timeline
    busy, slowest = timeline.busy, int(timeline.busy.argmax())
    share = format_percent(float(busy[slowest]) / timeline.seconds)
    parts = [f"pipeline {exact_seconds(timeline.seconds)}"]
    if abs(found.outside) >= NANOSECOND:
        parts.append(f"outside of it {exact_seconds(found.outside)}")
    return [
        ("schedule", f"{found.schedule}: {shape.ranks} x {shape.virtual} stages, "
         f"{counted(shape.micro_batches, 'micro-batch')}"),
        ("iteration time", f"{exact_seconds(found.seconds)} by the schedule"),
        ("of which", " + ".join(parts)),
        ("formula" if found.by_formula else "judged",
         f"{exact_seconds(found.judged)}; {_difference(found)}"),
        ("slowest rank", f"{slowest}, busy for {share} of the pipeline"),
        ("least", f"{exact_seconds(found.least)} in the pipeline by any schedule"),
    ]  # fmt: skip


def _difference(found: Simulated) -> str:
    more = found.seconds / found.judged - 1
    if abs(more) < ROUNDING:
        return "the schedule takes as long"
    return f"the schedule takes {format_percent(abs(more))} {'more' if more > 0 else 'less'}"


def simulation_table(found: Simulated) -> Table:
    """Return a row per rank."""
    table = Table("rank", "stages", "busy", "idle", "idle share", "held", left=("stages",))
    for row in _ranks(found):
        cells = (
            str(row["rank"]),
            ", ".join(map(str, row["stages"])),
            exact_seconds(row["busy_s"]),
            exact_seconds(row["idle_s"]),
            format_percent(row["idle_s"] / found.timeline.seconds),
            ", ".join(map(str, row["held_micro_batches"])),
        )
        table.add(*cells)
    return table


class Ran(NamedTuple):
    """A plan that is run, as it was judged."""

    problem: Problem[Any]
    plan: AnyPlan
    evaluation: Evaluation

    def taking(self, seconds: float) -> Evaluation:
        """Return the judgement with the seconds of an iteration by another schedule."""
        cost = self.evaluation.cost
        assert cost is not None  # nothing without times is run
        return replace(self.evaluation, cost=replace(cost, iteration_time=seconds))


def ran_lines(found: Simulated, ran: Ran, tokens: float | None) -> list[tuple[str, str]]:
    """Say the rates of the plan by the schedule that was run, with its bubble.

    Parameters
    ----------
    tokens: of a training run; None: nothing is said of one.
    """
    taken, bubble = ran.taking(found.seconds), found.bubble
    lines = worth_lines(ran.problem, ran.plan, taken, tokens, bubble=bubble)
    if throughput(ran.problem, ran.plan, taken) is None:  # which the bubble would be a part of
        return [("bubble", f"{format_percent(bubble)} of the iteration"), *lines]
    return lines


def simulation_object(found: Simulated, ran: Ran, tokens: float | None = None) -> dict[str, Any]:
    """Return the object of `--json`; rates and prices are by the schedule that was run. tokens: as
    in `ran_lines`."""
    shape = found.timeline.orders.shape
    return {
        **headed("simulate"),
        "schedule": found.schedule,
        "ranks": shape.ranks,
        "stages_per_rank": shape.virtual,
        "micro_batches": shape.micro_batches,
        "iteration_time_s": found.seconds,
        "judged_s": found.judged,
        "by_formula": found.by_formula,
        "pipeline_s": found.timeline.seconds,
        "outside_s": found.outside,
        "least_s": found.least,
        "bubble": found.bubble,
        **worth_object(
            ran.problem, ran.plan, ran.taking(found.seconds), tokens, bubble=found.bubble
        ),
        **expected_object(ran.problem, ran.plan, found.seconds),
        "by_rank": _ranks(found),
        "violations": list(map(str, ran.evaluation.violations)),
    }


def _ranks(found: Simulated) -> list[dict[str, Any]]:
    timeline, held = found.timeline, peak_micro_batches(found.timeline.orders)
    return [
        {
            "rank": rank,
            "stages": stages.tolist(),
            "busy_s": busy,
            "idle_s": timeline.seconds - busy,
            "held_micro_batches": held[stages].tolist(),
        }
        for rank, (stages, busy) in enumerate(
            zip(placed(timeline.orders), timeline.busy.tolist(), strict=True)
        )
    ]
