"""The expected error of iteration times and the sources of a time, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent
from ilp_planner.costs.profiles.shares import predicted_error
from ilp_planner.specs.cluster import worst_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.profiles.shares import Share
    from ilp_planner.costs.profiles.table import Provenance
    from ilp_planner.plan import AnyPlan
    from ilp_planner.problem import Problem
    from ilp_planner.specs.machine import Machine

UNCOMPARED = ("gradients", "parameters")  # shardings of no published run of Megatron-LM


def expected_error(machine: Machine) -> str:
    """Return `4.10 % (12 runs, leave-one-out)`; empty if nobody compared its times with runs."""
    if not machine.runs:
        if machine.error is None:
            return ""
        return f"{format_percent(machine.error)} (other machines of this kind; not calibrated)"
    count = f"{machine.runs} run{'s' * (machine.runs > 1)}"
    if machine.error is None:
        return f"not known ({count}; needs two different ones)"
    return f"{format_percent(machine.error)} ({count}, leave-one-out)"


def expected_lines(problem: Problem[Any], plan: AnyPlan) -> list[tuple[str, str]]:
    """Say how far a plan's time is off as a rule; nothing if it is not known."""
    sharding = "" if plan.settings is None else plan.settings.optimizer.sharding
    return machine_lines(machine_of(problem, plan), sharding)


def machine_lines(machine: Machine | None, sharding: str) -> list[tuple[str, str]]:
    """Say how far times on a machine are off as a rule. sharding: of the job's optimizer."""
    text = "" if machine is None else expected_error(machine)
    if text and sharding in UNCOMPARED:
        text += "; no run of Megatron-LM with sharded parameters was compared"
    return [("expected error", text)] if text else []


def expected_percent(problem: Problem[Any], plan: AnyPlan) -> str:
    """Return the same as a cell of a table; empty if it is not known."""
    error = expected_object(problem, plan)["expected_error"]
    return "" if error is None else format_percent(error)


def expected_object(problem: Problem[Any], plan: AnyPlan | None) -> dict[str, Any]:
    """Return the same as JSON: a share, and how many runs of this machine it is of."""
    return machine_object(None if plan is None else machine_of(problem, plan))


def machine_object(machine: Machine | None) -> dict[str, Any]:
    """Return how far times on a machine are off, as JSON."""
    if machine is None:
        return {"expected_error": None, "calibration_runs": 0}
    return {"expected_error": machine.error, "calibration_runs": machine.runs}


def machine_of(problem: Problem[Any], plan: AnyPlan) -> Machine | None:
    """Return the worst-known of the machines that a plan uses: its time is of that error. None if
    the time is not by the constants of machines, as in measured profiles, or if it comes from
    another model than that of the fit."""
    if plan.settings is None or not problem.profile_source.startswith("analytic"):
        return None
    types = {problem.cluster.type_of[device] for device in plan.used}
    return worst_known(problem.cluster.device_types[name] for name in sorted(types))


NOTHING = 5e-5  # a share below it is nothing that anybody would read


def share_lines(shares: Mapping[Provenance, Share]) -> list[tuple[str, str]]:
    """Return `93.10 % measured, 6.90 % interpolated (off by 2.10 %)`; nothing if it is not
    known."""
    if not shares:
        return []
    parts = []
    for source, share in shares.items():
        if share.share < NOTHING:
            continue
        text = f"{format_percent(share.share)} {source}"
        if share.error is not None and source != "measured":
            text += f" (off by {format_percent(share.error)} as a rule)"
        parts.append(text)
    return [("time rests on", ", ".join(parts))]


def share_object(shares: Mapping[Provenance, Share]) -> dict[str, Any]:
    """Return shares by source, their expected error if it is known, and of all that was predicted
    from measurements."""
    return {
        "provenance": {str(source): share.share for source, share in shares.items()},
        "provenance_error": {
            str(source): share.error
            for source, share in shares.items()
            if share.error is not None and source != "measured"
        },
        "predicted_error": predicted_error(shares),
    }
