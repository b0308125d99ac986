"""Measurements of links, in a table for people."""

from __future__ import annotations

from ilp_planner.base.units import format_bytes, format_seconds
from ilp_planner.costs.profiles.measurements import Measurements, Record
from ilp_planner.faces.report.tree import Table

KEYS = ["record", "device", "name", "group_size", "hosts", "stride", "groups"]
GB = 1e9


def links_table(table: Measurements) -> Table:
    """Return a row per operation and kind of groups: the time of its smallest message, and the rate
    of its largest.

    groups: how many do it at once. The rate is that of the whole tensor: its bytes over the
    seconds. Narrow enough for any terminal.
    """
    shown = Table(
        "operation", "ranks", "groups", "hosts", "stride", "smallest", "largest", "GB/s",
        left=("operation",),
    )  # fmt: skip
    rows = table.of(Record.COLLECTIVE, Record.POINT_TO_POINT)
    for key, series in rows.groupby(KEYS, sort=False, dropna=False):
        _, _, name, group_size, hosts, stride, groups = key
        series = series.sort_values("bytes")
        least, most = series.iloc[0], series.iloc[-1]
        rate = most["bytes"] / most["time_s"] / GB if most["time_s"] > 0 else float("nan")
        counts = [f"{n:.0f}" if n == n else "-" for n in (group_size, groups, hosts, stride)]
        shown.add(
            str(name), *counts, format_seconds(least["time_s"]), format_bytes(most["bytes"]),
            f"{rate:.4g}",
        )  # fmt: skip
    return shown
