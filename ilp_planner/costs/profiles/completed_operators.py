"""A native table with the operator rows that planning needs and the table lacks, predicted.

These are: every tensor-parallel degree that a node holds and the model allows, with every number of
samples that the table has or that is asked for. Rows that failed or ran out of memory stay
impossible. A table that came from Aceso is left as it is, as Aceso plans with profiled rows only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.costs.profiles.predictions import Want, complete
from ilp_planner.costs.profiles.table_rows import ANY, Wanted, rows_of_model, several_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence


KEY = ["device", "name", "split", "tp", "micro_batch"]


def completed_operators(
    table: Measurements,
    wanted: Wanted = ANY,
    *,
    samples: Sequence[int] = (),
    degrees: Sequence[int] = (),
) -> Measurements:
    """Return the table with the missing operator rows of one model added.
    samples, degrees: besides the table's.

    Raises
    ------
    ProfileError: no rows, or rows of several models.
    """
    if table.machine.get("format") == "aceso":
        return table
    frame = rows_of_model(table, Record.OPERATOR, wanted)
    sizes = sorted({*samples, *map(int, frame["micro_batch"])})
    tps = sorted({*degrees, *map(int, frame["tp"])})
    have = frame[KEY].drop_duplicates()
    kinds = len(frame[["device", "name", "split"]].drop_duplicates())
    if len(have) >= kinds * len(sizes) * len(tps):
        return table
    several = several_sizes(table, wanted)
    each = Want(record=Record.OPERATOR, sequence=several.sequence, hidden=several.hidden)
    wants = [replace(each, tp=tp, micro_batch=size) for tp in tps for size in sizes]
    try:
        found = complete(table, wants)
    except ProfileError as error:
        return replace(table, notes=(*table.notes, f"{error}: nothing is predicted"))
    added = found.frame.iloc[len(table.frame) :]
    failed = frame.loc[frame["status"] != RowStatus.OK, KEY].apply(tuple, axis=1)
    kept = added[~added[KEY].apply(tuple, axis=1).isin(set(failed))]
    if kept.empty:
        return table
    import pandas as pd

    return replace(
        found,
        frame=pd.concat([table.frame, kept], ignore_index=True),
        lines=(),
        notes=(*table.notes, f"{table.source}: {len(kept)} operator rows are predicted"),
    )
