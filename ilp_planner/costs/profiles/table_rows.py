"""Rows of a native table of one model, chosen by the request, and laid out by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import ProfileError
from ilp_planner.base.limits import LAYERS
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.costs.profiles.measurements import (
    Measurements,
    Record,
    RowStatus,
    layer_range,
    plain_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The model of the rows; None: the table has a single one.

    hidden: width of the layers. sequence: tokens of a sample. dtype: of weights and activations.
    """

    hidden: int | None = None
    sequence: int | None = None
    dtype: str | None = None


ANY = Wanted()


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerRows:
    """Layer rows by layer.

    layers: number of layers, L. names: of them, empty if not said. complete: key -> frame with a
    row per layer, the columns of the table. refused: key -> why it cannot run, from rows that ran
    out of memory or failed. partial: keys with some layers only -> the first that has no row.
    """

    layers: int
    names: tuple[str, ...]
    complete: Mapping[LayerKey, pandas.DataFrame]
    refused: Mapping[LayerKey, str]
    partial: Mapping[LayerKey, int] = field(default_factory=dict)

    def lacking(self) -> str:
        """Say the gaps of incomplete keys, of the first three."""
        found = [f"{describe_key(key)}: {why}" for key, why in self.refused.items()]
        found += [f"{describe_key(key)}: none for layer {n}" for key, n in self.partial.items()]
        return "; ".join(found[:3]) + (f"; {len(found) - 3} more" if len(found) > 3 else "")


def describe_records(table: Measurements) -> str:
    """Return `24 of layer, 8 of collective`: the rows of a table, with any outcome."""
    counts = table.frame["record"].value_counts()
    return ", ".join(f"{counts[kind]} of {kind}" for kind in counts.index) or "no rows"


def rows_of_model(table: Measurements, record: Record, wanted: Wanted = ANY) -> pandas.DataFrame:
    """Return the rows of a kind, of one model, with any status.

    Rows that do not say a size or a type are of every one.

    Raises
    ------
    ProfileError: none, or rows of several models without a choice.
    """
    frame = table.frame[table.frame["record"] == record]
    if frame.empty:
        raise ProfileError(
            f"{table.source}: expected rows of record {record.value!r}, found "
            f"{describe_records(table)}"
        )
    for column in ("sequence", "hidden"):
        frame = _of_size(table, frame, record, column, getattr(wanted, column))
    return _of_dtype(table, frame, record, wanted.dtype)


def _of_size(
    table: Measurements, frame: pandas.DataFrame, record: Record, column: str, asked: int | None
) -> pandas.DataFrame:
    known = sorted({int(value) for value in frame[column].dropna()})
    found = f"found {column} {', '.join(map(str, known))}, expected"
    where = f"{table.source}: rows of record {record.value!r}: {found}"
    if asked is not None and known and asked not in known:
        raise ProfileError(
            f"{where} {asked}, which is the model's (`model`) or what `{column}` says"
        )
    if asked is None and len(known) > 1:
        raise ProfileError(f"{where} one of them: `{column}` or `model` chooses")
    if asked is None:
        return frame
    return frame[frame[column].isna() | (frame[column] == asked)]


def _of_dtype(
    table: Measurements, frame: pandas.DataFrame, record: Record, asked: str | None
) -> pandas.DataFrame:
    known = sorted({value for value in frame["dtype"] if value})
    if len(known) <= 1:
        return frame
    if asked not in known:
        raise ProfileError(
            f"{table.source}: rows of record {record.value!r}: found dtype {', '.join(known)}, "
            f"expected {asked or 'one of them: `model` chooses by its precision'}"
        )
    return frame[(frame["dtype"] == "") | (frame["dtype"] == asked)]


def several_sizes(table: Measurements, wanted: Wanted) -> Wanted:
    """Return the sizes that choose between rows; sizes of all rows are understood."""
    several = [name for name in ("sequence", "hidden") if table.frame[name].nunique() > 1]
    return Wanted(**{name: getattr(wanted, name) for name in several})


def layer_rows(table: Measurements, wanted: Wanted = ANY) -> LayerRows:
    """Return the layer rows of one model without context and expert parallelism, laid out by layer.

    Raises
    ------
    ProfileError: no rows, rows of several models, or a layer that has two rows of one kind.
    """
    frame = plain_rows(rows_of_model(table, Record.LAYER, wanted))
    if frame.empty:
        raise ProfileError(
            f"{table.source}: found rows with context or expert parallelism only, expected some "
            "without: only `space=megatron` plans with those alone"
        )
    ranges = frame["layers"].map(layer_range)
    layers = int(max(r[-1] for r in ranges)) + 1
    if layers > LAYERS:
        raise ProfileError(
            f"{table.source}: 'layers': expected at most {LAYERS} layers, found {layers}"
        )
    frame = frame.assign(layer=ranges)
    complete: dict[LayerKey, pandas.DataFrame] = {}
    refused: dict[LayerKey, str] = {}
    partial: dict[LayerKey, int] = {}
    names = [""] * layers
    for _, group in frame.groupby(["device", "tp", "micro_batch"], sort=True):
        first = group.iloc[0]
        key = LayerKey(str(first["device"]), int(first["tp"]), int(first["micro_batch"]))
        done = group[group["status"] == RowStatus.OK]
        vain = group[group["status"] != RowStatus.OK]
        if len(vain):
            refused[key] = str(vain.iloc[0]["status"]).replace("_", " ")
        each = done.explode("layer").set_index("layer").sort_index()
        if each.index.has_duplicates:
            twice = each.index[each.index.duplicated()][0]
            raise ProfileError(
                f"{table.source}: {describe_key(key)}: layer {twice} has two rows, expected one: a "
                "table of one model and one run"
            )
        for layer, name in zip(each.index.to_list(), each["name"].to_list(), strict=True):
            names[int(layer)] = names[int(layer)] or str(name)
        if len(each) == layers:
            complete[key] = each
        elif not len(vain):
            partial[key] = min(set(range(layers)) - set(each.index.tolist()))
    return LayerRows(
        layers=layers,
        names=tuple(names),
        complete=complete,
        refused={key: why for key, why in refused.items() if key not in complete},
        partial=partial,
    )


def complete_layers(table: Measurements, wanted: Wanted = ANY) -> LayerRows:
    """Return the same, with one key at least that has all layers.

    Raises
    ------
    ProfileError: besides, no key has.
    """
    found = layer_rows(table, wanted)
    if not found.complete:
        raise ProfileError(
            f"{table.source}: expected a row for each of {found.layers} layers under one device "
            f"type, tp and micro-batch, found {found.lacking()}"
        )
    return found


def describe_key(key: LayerKey) -> str:
    """Return `A100, tp 2, micro-batch 4`."""
    device = f"{key.device}, " if key.device else ""
    return f"{device}tp {key.tp}, micro-batch {key.samples}"


def step_seconds(table: Measurements, name: str, wanted: Wanted = ANY) -> dict[LayerKey, Any]:
    """Return the rows of a part of the whole step, by key; none if the table has none."""
    frame = table.of(Record.STEP)
    frame = frame[frame["name"] == name]
    for column in ("sequence", "hidden"):
        asked = getattr(wanted, column)
        if asked is not None:
            frame = frame[frame[column].isna() | (frame[column] == asked)]
    return {
        LayerKey(str(row["device"]), int(row["tp"]), int(row["micro_batch"])): row
        for _, row in frame.iterrows()
    }


def totals_only(frames: Mapping[LayerKey, pandas.DataFrame]) -> bool:
    """Tell whether layers have their total memory alone, without its parts."""
    return all(
        frame["memory_bytes"].notna().all()
        and frame[["state_bytes", "activation_bytes"]].isna().all(axis=None)
        for frame in frames.values()
    )
