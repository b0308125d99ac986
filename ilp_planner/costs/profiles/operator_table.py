"""From a native table to the profile that planners of operators read, completed if rows lack.

Rows of operators as they are, with the tensor-parallel messages that they leave out. Collectives
and messages between devices are looked up by cost models at whole MiB of a device's input: rows of
these sizes as they are, others predicted from the table's own, or, if it has none, estimated from
the cluster's links.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.analytic import MESSAGES, PRIMITIVES, bandwidths, ring_tables
from ilp_planner.costs.profiles.device_names import alike_names, rows_of_device
from ilp_planner.costs.profiles.measurements import Measurements, Record, RowStatus
from ilp_planner.costs.profiles.message_times import MessageTimes, links_inside
from ilp_planner.costs.profiles.predictions import Want, collectives, complete
from ilp_planner.costs.profiles.table import (
    FIELDS,
    MIB,
    OperatorRow,
    Origin,
    Profile,
    Provenance,
    RowKey,
    whole_tensor,
)
from ilp_planner.costs.profiles.table_rows import ANY, Wanted, rows_of_model, several_sizes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas

    from ilp_planner.specs.cluster import ClusterSpec


# ---- operator profiles ---------------------------------------------------------------------------


FAILED_SECONDS = 1e6  # of a collective that failed: never planned, whatever else there is
MEASURED = Origin()
ESTIMATED = Origin(Provenance.ANALYTIC)

Tables = dict[tuple[str, int], dict[int, float]]
Origins = dict[tuple[str, int], dict[int, Origin]]


def operator_profile(
    table: Measurements,
    wanted: Wanted = ANY,
    cluster: ClusterSpec | None = None,
    *,
    largest_degree: int | None = None,
    exact_sizes: bool = False,
) -> Profile:
    """Return the operators of one model on one device type.

    cluster: whose device type is planned for, and whose links stand in for what the table does not
        say of messages; None: the table has rows of one type only, and says all.
    largest_degree: tensor-parallel degree at most; None: all.
    exact_sizes: the cost model does not interpolate between sizes of collectives: all that
        operators may need are made. Of a table that came from Aceso none is, as its cost model
        takes those that were not profiled for impossible.

    Raises
    ------
    ProfileError: no rows, rows of several models, or a missing figure, with its name.
    """
    frame = _of_device(table, rows_of_model(table, Record.OPERATOR, wanted), cluster)
    if largest_degree is not None:
        frame = frame[frame["tp"] <= largest_degree]
    done = frame[frame["status"] == RowStatus.OK]
    if done.empty:
        raise ProfileError(
            f"{table.source}: expected rows of record 'operator' that ran, found "
            f"{len(frame)} that did not" + (f" up to tp {largest_degree}" if frame.empty else "")
        )
    rows = _rows(table, done, MessageTimes(table, cluster))
    failed = frozenset(map(_key, frame[frame["status"] != RowStatus.OK].to_dict("records")))
    degrees = sorted({key.tp for key in rows})
    collectives, origins = _collectives(table, rows, degrees, cluster, exact_sizes)
    came_from_aceso = table.machine.get("format") == "aceso"
    if not collectives and exact_sizes and cluster is not None and not came_from_aceso:
        collectives, origins = estimated_collectives(rows, degrees, cluster)
    links, link_origins, notes = _links(table, cluster)
    if failed:
        notes.append(f"{table.source}: {len(failed)} operator rows did not run, left out")
    return Profile(
        source=table.source,
        micro_batch_sizes=tuple(sorted({key.micro_batch for key in rows})),
        tensor_degrees=tuple(degrees),
        splits=tuple(sorted({key.split for key in rows})),
        rows=rows,
        collectives=collectives,
        intra_node=links[0],
        inter_node=links[1],
        collective_origins=origins,
        link_origins=link_origins,
        failed=failed - rows.keys(),
        notes=(*table.notes, *notes),
    )


def _of_device(
    table: Measurements, frame: pandas.DataFrame, cluster: ClusterSpec | None
) -> pandas.DataFrame:
    """Return the rows of the cluster's device type; rows that name none are of every one."""
    known = sorted({name for name in frame["device"] if name})
    if not known:
        return frame
    if cluster is None:
        if len(known) > 1:
            raise ProfileError(
                f"{table.source}: rows of record 'operator': found device {', '.join(known)}, "
                "expected one of them"
            )
        return frame
    device = cluster.device
    alike = alike_names(known, device.profile)
    if not alike and (frame["device"] != "").all():
        raise ProfileError(
            f"{table.source}: device type {device.name!r} of cluster {cluster.name!r}: expected "
            f"rows of {device.profile!r}, found those of {', '.join(known)} "
            f"(devices.{device.name}.profile in the cluster file may name one of them)"
        )
    return frame[frame["device"].isin([*alike, ""])]


def _key(row: Mapping[Any, Any]) -> RowKey:
    return RowKey(
        operator=str(row["name"]),
        micro_batch=int(row["micro_batch"]),
        tp=int(row["tp"]),
        split=int(row["split"]),
    )


def _origin(row: Mapping[Any, Any]) -> Origin:
    known = row["error"] == row["error"]
    return Origin(Provenance(row["provenance"]), float(row["error"]) if known else None)


def _rows(
    table: Measurements, frame: pandas.DataFrame, messages: MessageTimes
) -> dict[RowKey, OperatorRow]:
    """Return the operator rows; a workspace that is not said is none."""
    frame = frame.fillna({"forward_workspace_bytes": 0.0, "backward_workspace_bytes": 0.0})
    for column in FIELDS.values():
        missing = frame.index[frame[column].isna()]
        if len(missing):
            name, tp, size = frame.loc[missing[0], ["name", "tp", "micro_batch"]]
            raise ProfileError(
                f"{table.source}: operator {name!r}, tp {tp:g}, micro-batch {size:g}: {column!r}: "
                "found nothing, expected a number: planning needs it"
            )
    found: dict[RowKey, OperatorRow] = {}
    for _, group in frame.groupby(["device", "tp"], sort=False):
        first = group.iloc[0]
        added, origin = messages.added(group, str(first["device"]), int(first["tp"]))
        for row, more in zip(group.to_dict("records"), added.tolist(), strict=True):
            key = _key(row)
            if key in found:
                raise ProfileError(
                    f"{table.source}: operator {key.operator!r}, tp {key.tp}, micro-batch "
                    f"{key.micro_batch}, split {key.split}: found two rows, expected one: a table "
                    "of one model and one run"
                )
            values = {name: float(row[column]) for name, column in FIELDS.items()}
            values["forward"] += more
            values["backward"] += more
            of_messages = 2 * more > row["forward_s"] + row["backward_s"]  # most of its seconds
            source = origin if of_messages else _origin(row)
            found[key] = OperatorRow(**values, provenance=source.provenance, error=source.error)
    return {key: found[key] for key in map(_key, frame.to_dict("records"))}


# ---- collectives --------------------------------------------------------------------------------


def _collectives(
    table: Measurements,
    rows: Mapping[RowKey, OperatorRow],
    degrees: Sequence[int],
    cluster: ClusterSpec | None,
    every_size: bool,
) -> tuple[Tables, Origins]:
    """Return seconds by (primitive, devices) and whole MiB that a device passes in."""
    device = cluster.device.profile if cluster is not None else ""
    frame = table.frame[table.frame["record"] == Record.COLLECTIVE]
    frame = rows_of_device(frame[frame["name"].isin(PRIMITIVES)], device)
    groups = [degree for degree in degrees if degree > 1]
    sizes = sorted({round(row.input / MIB) for row in rows.values()})
    if frame.empty:
        return {}, {}
    tables, origins = _whole_sizes(frame, device)
    if table.machine.get("format") == "aceso":
        return tables, origins
    wanted: dict[tuple[str, int], list[int]] = {}
    for primitive in dict.fromkeys(frame["name"]):
        for devices in groups:
            known = tables.get((primitive, devices), {})
            if any(known) and not every_size:
                continue  # what lies between is for the cost model to say
            # One that does not interpolate looks for a size, and for the one before it.
            lacking = [s for s in sizes if s not in known and s - 1 not in known]
            if lacking:
                wanted[primitive, devices] = lacking
    if not wanted:
        return tables, origins
    try:
        predictor = collectives(table)
    except ProfileError:
        return tables, origins  # every row failed
    for key, lacking in wanted.items():
        primitive, devices = key
        for size in lacking:
            whole = max(size, 0.5) * MIB * whole_tensor(primitive, devices)
            try:
                found = predictor.predict(primitive, whole, group_size=devices, device=device)
            except ProfileError:
                break  # every row of this one failed
            tables.setdefault(key, {})[size] = found.value
            origins.setdefault(key, {})[size] = Origin(found.provenance, found.error)
    return tables, origins


def _whole_sizes(frame: pandas.DataFrame, device: str) -> tuple[Tables, Origins]:
    """Return the rows inside one node, of neighbouring ranks and one group at a time, with sizes of
    whole MiB; rows of another device type are no measurements."""
    tables: Tables = {}
    origins: Origins = {}
    plain = frame[["hosts", "stride", "groups"]].fillna(1.0).eq(1.0).all(axis=1)
    for row in frame[plain].to_dict("records"):
        devices = int(row["group_size"])
        size = row["bytes"] / whole_tensor(row["name"], devices) / MIB
        if size % 1:
            continue
        key = (str(row["name"]), devices)
        failed = row["status"] != RowStatus.OK
        known = tables.get(key, {}).get(int(size))
        if known is not None and (failed or known <= row["time_s"]):
            continue  # of several runs (types of numbers, machines) the fastest
        tables.setdefault(key, {})[int(size)] = FAILED_SECONDS if failed else float(row["time_s"])
        origin = _origin(row)
        if origin.provenance is Provenance.MEASURED and _is_other(row["device"], device):
            origin = Origin(Provenance.EXTRAPOLATED)
        if origin.provenance is not Provenance.MEASURED:
            origins.setdefault(key, {})[int(size)] = origin
    return tables, origins


def _is_other(found: str, device: str) -> bool:
    """Tell whether a row is of another device type than the one planned for."""
    return bool(found and device) and found.casefold() != device.casefold()


def estimated_collectives(
    rows: Mapping[RowKey, OperatorRow], degrees: Sequence[int], cluster: ClusterSpec
) -> tuple[Tables, Origins]:
    """Return estimates of the collectives that operators may need, from the cluster's links."""
    (link, *_) = links_inside(cluster, cluster.device.profile)
    sizes = sorted({round(row.input / MIB) for row in rows.values()})
    tables = ring_tables(sizes, [devices for devices in degrees if devices > 1], link)
    return tables, {key: dict.fromkeys(times, ESTIMATED) for key, times in tables.items()}


# ---- messages between two devices ---------------------------------------------------------------


def _links(
    table: Measurements, cluster: ClusterSpec | None
) -> tuple[list[tuple[float, ...]], tuple[Origin, Origin], list[str]]:
    """Return bandwidths of messages of 1, 2, 4 ... MiB inside a node and between nodes."""
    device = cluster.device.profile if cluster is not None else ""
    frame = rows_of_device(table.of(Record.POINT_TO_POINT), device)
    found: list[tuple[float, ...] | None] = []
    origins = []
    for inside in (True, False):
        rows = frame[(frame["hosts"].fillna(1.0) == 1.0) == inside]
        rows = rows[(rows["bytes"] > 0) & (rows["time_s"] > 0)]
        known = None if rows.empty else _read_off(rows, device)
        found.append(None if known is None else known[0])
        origins.append(MEASURED if known is None else known[1])
    notes = []
    if cluster is not None:
        (name,) = cluster.type_names
        ours = (cluster.within.get(name, cluster.intra_node), cluster.slowest_between)
        for place, where in enumerate(("inside a node", "between nodes")):
            if found[place] is None and (place == 0 or cluster.node_count > 1):
                notes.append(
                    f"{table.source}: no messages {where}, the links of cluster {cluster.name!r} "
                    "are taken"
                )
            if found[place] is None:
                found[place], origins[place] = bandwidths(ours[place]), ESTIMATED
    inner, outer = found
    if inner is None:
        inner, origins[0] = _from_gathers(table)
        notes.append(
            f"{table.source}: no messages between two devices, taken to be halves of an all-gather"
        )
    if inner is None:
        raise ProfileError(
            f"{table.source}: expected rows of record 'point_to_point', found none: join a table "
            "of links, PROFILE.csv,LINKS.csv (`ilp-plan profile measure-links` makes it)"
        )
    if outer is None:
        outer, origins[1] = inner, origins[0]
    return [inner, outer], (origins[0], origins[1]), notes


def _from_gathers(table: Measurements) -> tuple[tuple[float, ...] | None, Origin]:
    """Return bandwidths inside a node from all-gathers of two devices, each sending its half to the
    other; None if there are none."""
    frame = table.of(Record.COLLECTIVE)
    frame = frame[(frame["name"] == "all_gather") & (frame["group_size"] == 2.0)]
    frame = frame[frame["hosts"].fillna(1.0) == 1.0]
    if frame.empty:
        return None, MEASURED
    predictor = collectives(table)
    most = float(frame["bytes"].max())
    sizes = [size for size in MESSAGES if 2 * size <= most] or MESSAGES[:1]
    found = [
        size / predictor.predict("all_gather", 2.0 * size, group_size=2, hosts=1).value
        for size in sizes
    ]
    return tuple(found), Origin(Provenance.EXTRAPOLATED)


def _read_off(rows: pandas.DataFrame, device: str) -> tuple[tuple[float, ...], Origin]:
    """Return bandwidths at 1, 2, 4 ... MiB: the rows' own if they are of these sizes, else on
    straight lines through their times; above the largest, its bandwidth."""
    times = rows.groupby("bytes")["time_s"].median().sort_index()
    sizes, seconds = times.index.to_numpy(np.float64), times.to_numpy(np.float64)
    measured = bool((rows["provenance"] == Provenance.MEASURED).all())
    measured = measured and not any(_is_other(name, device) for name in rows["device"])
    exact = set(sizes.tolist())
    wanted = np.array([s for s in MESSAGES if s <= sizes[-1]] or MESSAGES[:1], dtype=np.float64)
    found = []
    for size in wanted:
        if size in exact:
            spent = float(times.loc[size])
        elif size > sizes[-1]:
            spent = float(seconds[-1] * size / sizes[-1])
        else:
            spent = float(np.interp(size, sizes, seconds))
        found.append(float(size / spent))
    if not measured:
        return tuple(found), Origin(Provenance.EXTRAPOLATED)
    whole = exact.issuperset(wanted.tolist())
    return tuple(found), MEASURED if whole else Origin(Provenance.INTERPOLATED)


# ---- rows that planning needs and a table lacks --------------------------------------------------
# These are predicted: every tensor-parallel degree that a node holds and the model allows, with
# every number of samples that the table has or that is asked for. Rows that failed or ran out of
# memory stay impossible. A table that came from Aceso is left as it is, as Aceso plans with
# profiled rows only.


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
