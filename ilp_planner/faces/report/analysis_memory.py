"""Memory in an analysis for people: of every GPU, with the savings of recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.rows import memory_rows, stage_name
from ilp_planner.base.units import format_percent
from ilp_planner.faces.report.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.analyze import Analysis

GIB = 2**30
SHOWN = 0.005 * GIB  # a term of memory below it everywhere would read 0.00
MAIN = ("parameters", "gradients", "optimizer", "activations", "logits")


def memory_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield the peak memory of a GPU of every stage, and its smaller parts."""
    rows = list(_equal_rows(list(memory_rows(analysis))))
    limited = analysis.limit is not None
    heads = ("params", "grads", "optimizer", "activations", "logits", "other")
    more = ("peak", "outside", "needed", *(("left",) * limited))
    table = Table("stage,\nGiB", "micro-\nbatches\nheld", *heads, *more, left=("stage,\nGiB",))
    for stages, row in rows:
        terms = row["terms"]
        main = [terms.get(name, 0.0) for name in MAIN]
        table.add(
            stage_name(stages),
            str(row["in_flight"]),
            *map(gibibytes, [*main, row["peak"] - sum(main)]),
            gibibytes(row["peak"]),
            gibibytes(sum(row["outside"].values())),
            gibibytes(row["needed"]),
            *((_left((row["limit"] or 0) - row["needed"]),) * limited),
        )
    yield table
    yield _parts_table(rows)


def _parts_table(rows: Sequence[tuple[list[int], dict[str, Any]]]) -> Table:
    """Return GPUs, layers and parameters of every stage, and the parts of `other` and `outside`."""
    other = dict.fromkeys(name for _, row in rows for name in row["terms"] if name not in MAIN)
    shown = [name for name in other if any(row["terms"].get(name, 0) >= SHOWN for _, row in rows)]
    beyond = list(dict.fromkeys(name for _, row in rows for name in row["outside"]))
    titles: tuple[str, ...] = ("stage", "GPUs", "layers", "parameters\n(millions)")
    titles += tuple(f"other:\n{_broken(name)}\n(GiB)" for name in shown)
    titles += tuple(f"outside:\n{_broken(name)}\n(GiB)" for name in beyond)
    table = Table(*titles, "peak in", left=("stage", "peak in"))
    for stages, row in rows:
        table.add(
            stage_name(stages),
            f"{len(stages) * row['gpus']:,}",
            str(row["layers"]),
            f"{row['parameters'] / 1e6:,.3f}",
            *(gibibytes(row["terms"].get(name, 0.0)) for name in shown),
            *(gibibytes(row["outside"].get(name, 0.0)) for name in beyond),
            row["moment"],
        )
    return table


def _equal_rows(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Yield stages with equal memory, neighbours together."""
    runs: list[tuple[list[int], dict[str, Any]]] = []
    for row in rows:
        content = {key: value for key, value in row.items() if key != "stage"}
        if runs and runs[-1][1] == content:
            runs[-1][0].append(row["stage"])
        else:
            runs.append(([row["stage"]], content))
    yield from runs


def _broken(name: str) -> str:
    """Return a name with a word per line."""
    return name.replace(" ", "\n")


def gibibytes(size: float) -> str:
    """Return `26.41`."""
    return f"{size / GIB:,.2f}"


def _left(size: float) -> str:
    return gibibytes(size) if size >= 0 else f"{gibibytes(-size)} OVER"


def recompute_table(analysis: Analysis) -> Table:
    """Return the savings of recomputation, by stage."""
    shown = _first_fullest_last(analysis)
    heads = [f"peak, {name}\n(GiB)" for name in shown]
    more = ("saved at most\n(GiB)", "extra FLOP")
    table = Table("recompute", *heads, *more, left=("recompute",))
    none = analysis.savings[0]
    for saving in analysis.savings:
        best = max(a - b for a, b in zip(none.peaks, saving.peaks, strict=True))
        cells = [
            saving.name + (" (this job)" if saving.chosen else ""),
            *(f"{saving.peaks[r] / GIB:.2f}" for r in shown.values()),
            f"{best / GIB:.2f}",
            format_percent(saving.flops),
        ]
        table.add(*cells)
    return table


def _first_fullest_last(analysis: Analysis) -> dict[str, int]:
    last = len(analysis.ranks) - 1
    if last == 0:
        return {"GPU": 0}
    found = {"first stage": 0}
    if last > 1:
        peaks = [rank.peak for rank in analysis.ranks]
        middle = max(range(1, last), key=lambda r: peaks[r])
        found[f"stage {middle}"] = middle
    return found | {"last stage": last}
