"""The rule about combinations that others have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.costs.profiles.measurements import Record, layer_range, plain_rows
from ilp_planner.profiler.check.finding import Suspect, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas

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
