"""Implausible rows of a native table: every rule, one after the other.

Rules compare rows with each other, since speed and size differ from machine to machine; the few
absolute limits are physical. They look at rows that would change a plan: a part of less than a
hundredth of its run is let be.
"""

from __future__ import annotations

from ilp_planner.costs.profiles.measurements import Measurements, RowStatus
from ilp_planner.profiler.check import missing, rows, scaling, series, units
from ilp_planner.profiler.check.finding import Finding, Severity

__all__ = ["Finding", "Severity", "check_table"]

# Of rows that have times, and of all rows.
OF_DONE = (
    units.units,
    rows.too_fast,
    rows.sums,
    rows.halves,
    rows.state_holds_weights,
    rows.spreads,
    scaling.tensor_parallelism,
    scaling.samples,
    scaling.stalls,
    scaling.memory,
    scaling.states,
    series.sizes,
    series.empty_loops,
    series.carried,
)
OF_ALL = (rows.duplicates, rows.overlaps, missing.missing)


def check_table(table: Measurements) -> tuple[Finding, ...]:
    """Return the findings, errors first."""
    done = table.frame[table.frame["status"] == RowStatus.OK]
    found = [finding for rule in OF_DONE for finding in rule(done)]
    found += [finding for rule in OF_ALL for finding in rule(table.frame)]
    return tuple(sorted(found, key=lambda finding: finding.severity != Severity.ERROR))
