"""Rules about single rows, about duplicate rows, and about missing ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.base.units import format_bytes, format_percent, format_seconds
from ilp_planner.costs.profiles.measurements import (
    COUNT_COLUMNS,
    TEXT_COLUMNS,
    Record,
    RowStatus,
    layer_range,
    plain_rows,
)
from ilp_planner.profiler.check.finding import (
    MODEL,
    SIZED,
    Severity,
    Suspect,
    numbers,
    places,
    rule,
    taken,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas

WIDE = 0.5  # quartile distance over the median: half of the repeats say something else
# Forward and backward are medians of their own, so their sum need not be the median of the sum.
SUM_DIFFERS, SUM_IS_WRONG = 0.05, 0.25
# Backward does the products of forward twice; what recomputes or only adds is within these.
HALVES = (0.5, 5.0)
SHARE = 0.02  # of the time of all rows that ran together, below which one row's halves are let be
ROW_HALVES = (0.02, 60.0)
# No device computes faster (NVIDIA's data sheets: B200, dense fp8, 4.5 PFLOP/s).
PEAK_FLOPS = 1e16
FORWARD_SHARE = 3.0  # forward and backward do three times the products of forward
SHORTEST = 1e-6  # seconds: starting a kernel or a message takes longer
DEGREES = ["cp", "ep", "etp"]
RUN = [
    *("record", "device", "dtype", "timing", "split", "sequence", "hidden"),
    *("tp", *DEGREES, "micro_batch"),
]
KEYS = [
    *(name for name in TEXT_COLUMNS if name != "original"),
    *COUNT_COLUMNS,
    "bytes",
    "flop",
    "status",
]
SIZE_KEYS = ["bytes", "flop"]  # that tell rows apart in tables of links and of products


@rule("duplicates")
def duplicates(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Two rows of the same thing."""
    keys = table[KEYS].copy()
    # What a layer computes follows from the rest.
    keys.loc[table["record"].isin(MODEL), SIZE_KEYS] = float("nan")
    again = keys[keys.duplicated(keep=False)]
    for _, group in again.groupby(KEYS, dropna=False, sort=False):
        rows = table.loc[group.index]
        times = np.nan_to_num(taken(rows), nan=-1.0)
        low, high = float(times.min()), float(times.max())
        same = low == high
        said = (
            "with the same time"
            if same
            else f"from {format_seconds(low)} to {format_seconds(high)}"
        )
        for place in places(rows):
            yield Suspect(
                row=int(place),
                badness=high / low if low > 0 else 0.0,
                found=f"{len(rows)} rows of the same, {said}",
                expected="one row",
                severity=Severity.WARNING if same else Severity.ERROR,
            )


@rule("overlap")
def overlaps(table: pandas.DataFrame) -> Iterator[Suspect]:
    """A layer of the model that two rows of the same run speak of."""
    layers = table[(table["record"] == Record.LAYER) & (table["status"] == RowStatus.OK)]
    for _, run in layers.groupby(RUN, dropna=False, sort=False):
        owner: dict[int, str] = {}
        for place, text in zip(places(run), run["layers"], strict=True):
            # The same range again is a duplicate.
            others = [owner.setdefault(layer, text) for layer in layer_range(text)]
            other = next((other for other in others if other != text), None)
            if other is not None:
                yield Suspect(
                    row=int(place),
                    badness=1.0,
                    found=f"layers {other!r} and {text!r} have some in common",
                    expected="each layer in one row",
                    severity=Severity.ERROR,
                )


@rule("spread")
def spreads(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Repeats that disagree."""
    for place, spread in zip(places(table), numbers(table, "spread"), strict=True):
        if spread > WIDE:
            yield Suspect(
                row=int(place),
                badness=float(spread),
                found=f"quartiles {format_percent(spread)} of the median apart",
                expected=f"at most {format_percent(WIDE)}: more repeats on a quieter machine",
            )


@rule("too fast")
def too_fast(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Times too short for any work."""
    alone = numbers(table, "group_size") == 1  # nothing is sent
    timed = table["record"].isin((*SIZED, Record.MATMUL, Record.LAYER)).to_numpy() & ~alone
    matmul = (table["record"] == Record.MATMUL).to_numpy()
    flop = numbers(table, "flop")
    products = np.where(matmul, flop, FORWARD_SHARE * flop)
    rows = zip(places(table), taken(table), timed, flop, products, strict=True)
    for place, seconds, needs_time, computed, whole in rows:
        if needs_time and seconds < SHORTEST:
            yield Suspect(
                row=int(place),
                badness=SHORTEST / max(seconds, 1e-30),
                found=f"{seconds:.4g} s",
                expected=f"at least {format_seconds(SHORTEST)}, which starting it takes: an "
                "empty loop, or another unit",
                severity=Severity.ERROR,
            )
        elif whole > PEAK_FLOPS * seconds:
            yield Suspect(
                row=int(place),
                badness=whole / PEAK_FLOPS / max(seconds, 1e-30),
                found=f"{computed:.4g} FLOP in {format_seconds(seconds)}",
                expected=f"less than {PEAK_FLOPS:.0e} FLOP/s, the fastest device there is",
                severity=Severity.ERROR,
            )


@rule("sum")
def sums(table: pandas.DataFrame) -> Iterator[Suspect]:
    """time_s has both halves in it."""
    both = numbers(table, "forward_s") + numbers(table, "backward_s")
    for place, parts, whole in zip(places(table), both, numbers(table, "time_s"), strict=True):
        off = abs(parts - whole)
        if off > SUM_DIFFERS * whole:
            yield Suspect(
                row=int(place),
                badness=off / max(whole, 1e-30),
                found=f"forward_s + backward_s = {format_seconds(parts)}, time_s = "
                f"{format_seconds(whole)}",
                expected=f"the same within {format_percent(SUM_DIFFERS)}",
                severity=Severity.ERROR if off > SUM_IS_WRONG * whole else Severity.WARNING,
            )


@rule("halves")
def halves(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Backward much faster or much slower than forward: of a whole run, or of a large part."""
    rows = table[table["record"].isin(MODEL)]
    rows = rows[rows["forward_s"].notna() & rows["backward_s"].notna()]
    for _, run in rows.groupby(RUN, dropna=False, sort=False):
        forward, backward = numbers(run, "forward_s"), numbers(run, "backward_s")
        if forward.sum() <= 0:
            continue
        ratio = float(backward.sum() / forward.sum())
        if not HALVES[0] <= ratio <= HALVES[1]:
            yield Suspect(
                row=int(places(run)[0]),
                badness=max(ratio, 1 / max(ratio, 1e-9)),
                found=f"backward of all {len(run)} rows takes {ratio:.3g} times as long as forward",
                expected=f"{HALVES[0]:g} to {HALVES[1]:g} times",
            )
            continue
        whole = forward.sum() + backward.sum()
        for place, there, back in zip(places(run), forward, backward, strict=True):
            odd = not ROW_HALVES[0] * there <= back <= ROW_HALVES[1] * there
            if odd and there + back >= SHARE * whole:
                times = back / max(there, 1e-30)
                yield Suspect(
                    row=int(place),
                    badness=max(times, 1 / max(times, 1e-9)),
                    found=f"backward takes {times:.3g} times as long as forward",
                    expected=f"{ROW_HALVES[0]:g} to {ROW_HALVES[1]:g} times",
                )


@rule("states")
def state_holds_weights(table: pandas.DataFrame) -> Iterator[Suspect]:
    """state_bytes has the parameters in it."""
    states, weights = numbers(table, "state_bytes"), numbers(table, "weight_bytes")
    for place, state, weight in zip(places(table), states, weights, strict=True):
        if state < weight:
            yield Suspect(
                row=int(place),
                badness=weight / max(state, 1.0),
                found=f"state_bytes {format_bytes(state)}, weight_bytes {format_bytes(weight)}",
                expected="states of at least the weights, which they include",
                severity=Severity.ERROR,
            )


# ---- combinations that others have ---------------------------------------------------------------


SETTING = ["record", "device", "dtype", "timing", "split", "sequence", "hidden"]
SHOWN = 4  # examples
FILL = "all of them: `ilp-plan profile predict` fills in what was not measured"


@rule("missing")
def missing(table: pandas.DataFrame) -> Iterator[Suspect]:
    """Yield combinations of tp and micro_batch that are not there, or not for all layers.

    Rows that ran out of memory or failed count as present: they were tried. Context and expert
    parallelism are not to be filled: kernels complete them.
    """
    rows = plain_rows(table[table["record"].isin((Record.LAYER, Record.OPERATOR))])
    for _, setting in rows.groupby(SETTING, dropna=False, sort=False):
        yield from _grid(setting)
        yield from _parts(setting)


def _grid(rows: pandas.DataFrame) -> Iterator[Suspect]:
    found = set(zip(rows["tp"], rows["micro_batch"], strict=True))
    degrees, batches = sorted(set(rows["tp"])), sorted(set(rows["micro_batch"]))
    lacking = [(t, m) for t in degrees for m in batches if (t, m) not in found]
    if lacking:
        named = [f"tp {t:.0f} micro_batch {m:.0f}" for t, m in lacking[:SHOWN]]
        more = " ..." if len(lacking) > SHOWN else ""
        yield Suspect(
            row=int(rows.index[0]),
            badness=float(len(lacking)),
            found=f"{len(lacking)} of {len(degrees) * len(batches)} combinations are not there: "
            + ", ".join(named)
            + more,
            expected=FILL,
        )


def _parts(rows: pandas.DataFrame) -> Iterator[Suspect]:
    """Yield runs without some of the layers or operators that other runs have."""
    runs = {
        key: (int(run.index[0]), _members(run))
        for key, run in rows.groupby(["tp", "micro_batch"], sort=False)
    }
    everything = {member for _, members in runs.values() for member in members}
    for (tp, batch), (place, members) in runs.items():
        lacking = sorted(everything - members)
        if lacking:
            named = ", ".join(name or str(layer) for name, layer in lacking[:SHOWN])
            more = " ..." if len(lacking) > SHOWN else ""
            yield Suspect(
                row=place,
                badness=float(len(lacking)),
                found=f"tp {tp:.0f} micro_batch {batch:.0f} is without {named}{more}",
                expected=FILL,
            )


def _members(run: pandas.DataFrame) -> set[tuple[str, int]]:
    """Return the members of a run: layers by their number, operators by their name."""
    members: set[tuple[str, int]] = set()
    for record, name, layers in zip(run["record"], run["name"], run["layers"], strict=True):
        if record == Record.LAYER:
            members |= {("", layer) for layer in layer_range(layers)}
        else:
            members.add((name, 0))
    return members
