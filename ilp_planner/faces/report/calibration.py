"""A calibration in lines and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.base.units import format_percent, format_seconds
from ilp_planner.faces.report.tables import exact_seconds
from ilp_planner.faces.report.tree import Table
from ilp_planner.faces.schemas import headed
from ilp_planner.specs.machine import DURATIONS
from ilp_planner.specs.time_errors import machine_known

if TYPE_CHECKING:
    from ilp_planner.analysis.calibration.calibrate import Calibration, Constant, Judged


def constant_table(found: Calibration) -> Table:
    """Return a row per constant that was fitted."""
    table = Table("constant", "default", "fitted", "from runs", left=("constant",))
    for constant in found.constants:
        if not constant.why:
            values = [_shown(constant.name, v) for v in (constant.default, constant.value)]
            table.add(constant.name, *values, str(constant.runs))
    return table


def run_table(found: Calibration) -> Table:
    """Return a row per run."""
    table = Table(
        "run", "GPUs", "measured", "predicted before", "after", "off", "left out", left=("run",)
    )
    for judged in found.runs:
        alone = "-" if judged.error is None else f"{100 * judged.error:+.1f} %"
        off = f"{100 * (judged.after / judged.run.seconds - 1):+.1f} %"
        times = map(exact_seconds, (judged.run.seconds, judged.before, judged.after))
        cells = (judged.run.name, str(judged.run.job.world), *times, off, alone)
        table.add(*cells)
    return table


def calibration_lines(found: Calibration) -> list[tuple[str, str]]:
    """Say how well the constants predict, and the constants that were not fitted."""
    runs = found.runs
    before = sum(abs(j.before / j.run.seconds - 1) for j in runs) / len(runs)
    lines = [
        ("machine", f"{found.device}, from {len(runs)} run{'s' * (len(runs) > 1)}"),
        ("error before", f"{format_percent(before)} by the defaults"),
        ("expected error", machine_known(found.machine).text),
    ]
    lines += [("at its limit", _limit(c)) for c in found.constants if c.limited]
    reasons: dict[str, list[str]] = {}
    for constant in found.constants:
        if constant.why:
            reasons.setdefault(constant.why, []).append(constant.name)
    lines += [("not fitted", f"{', '.join(names)}: {why}") for why, names in reasons.items()]
    lines += [("LEFT OUT", _explained(judged)) for judged in found.left_out]
    return lines


def _limit(constant: Constant) -> str:
    value = _shown(constant.name, constant.value)
    return f"{constant.name} {value}: the runs ask for more than a machine of this kind does"


def _explained(judged: Judged) -> str:
    run, factor = judged.run, judged.after / judged.run.seconds
    much = f"{max(factor, 1 / factor):.3g} x off"
    return (
        f"{run.place}: {run.name}: measured {exact_seconds(run.seconds)}, predicted "
        f"{exact_seconds(judged.after)}, {much}: no constants explain it, see its unit and its job"
    )


def calibration_object(found: Calibration) -> dict[str, Any]:
    """Return the object of `--json`."""
    return {
        **headed("calibrate"),
        "device": found.device,
        "expected_error": found.machine.error,
        "calibration_runs": found.machine.runs,
        "constants": [
            {
                "name": constant.name,
                "default": constant.default,
                "value": constant.value,
                "fitted": not constant.why,
                "runs": constant.runs,
                "reason": constant.why,
            }
            for constant in found.constants
        ],
        "runs": [_object(judged) for judged in found.runs],
        "left_out": [_object(judged) for judged in found.left_out],
    }


def _object(judged: Judged) -> dict[str, Any]:
    return {
        "run": judged.run.name,
        "place": judged.run.place,
        "gpus": judged.run.job.world,
        "weight": judged.run.weight,
        "measured_s": judged.run.seconds,
        "before_s": judged.before,
        "after_s": judged.after,
        "left_out_s": judged.alone,
        "left_out_error": judged.error,
    }


def _shown(name: str, value: float) -> str:
    """Return a constant for a table."""
    return format_seconds(value) if name in DURATIONS else f"{value:.4g}"
