"""Measured profiles have their own names for device types; planning uses the cluster's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ilp_planner.base.errors import ProfileError
from ilp_planner.specs.gpus import same_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas

    from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
    from ilp_planner.specs.cluster import ClusterSpec

Row = TypeVar("Row")


def alike_names(known: Sequence[str], wanted: str) -> list[str]:
    """Return the names in a profile that mean a device type: its own, in any case of letters, or
    those of the same GPU of the table, as PyTorch's `NVIDIA H200` is of `H200`."""
    return (
        [name for name in known if name == wanted]
        or [name for name in known if name.casefold() == wanted.casefold()]
        or [name for name in known if name and same_gpu(name, wanted)]
    )


def names_of_types(known: Sequence[str], cluster: ClusterSpec, source: str) -> dict[str, str]:
    """Return device type -> its name in the profile, for all of a cluster, by the rule of
    `for_cluster`. known: names in the profile. source: the profile's name.

    Raises
    ------
    ProfileError: a device type has no rows.
    """
    found: dict[str, str] = {}
    for name in cluster.type_names:
        wanted = cluster.device_types[name].profile
        alike = (
            alike_names(known, wanted)
            or [k for k in known if k == name]
            or [k for k in known if not k]
        )
        if len(alike) != 1:
            raise ProfileError(
                f"{source}: device type {name!r} of cluster {cluster.name!r}: expected "
                f"rows of {wanted!r}, found those of {', '.join(known) or 'none'} "
                f"(devices.{name}.profile in the cluster file may name one of them)"
            )
        found[name] = alike[0]
    return found


def for_cluster(profile: LayerProfile, cluster: ClusterSpec) -> LayerProfile:
    """Return the rows of the cluster's device types, under the cluster's names for them.

    A type's rows are those of its `profile`, by default its own name. Without an exact match, upper
    and lower case are the same; then other names of the same GPU count, and then rows of its own
    name, as in estimates. Rows that name no type are of every one. Several types may share rows;
    rows of other types are dropped.

    Raises
    ------
    ProfileError: a device type has no rows.
    """
    return _renamed(profile, names_of_types(profile.devices, cluster, profile.source))


def _renamed(profile: LayerProfile, source: Mapping[str, str]) -> LayerProfile:
    """Return the rows of some device types under other names. source: new name -> old one."""
    keys = {(key.device, key.tp) for key in profile.time}

    def pairs(rows: Mapping[tuple[str, int], Row]) -> dict[tuple[str, int], Row]:
        return {
            (name, tp): rows[device, tp]
            for name, origin in source.items()
            for device, tp in sorted(keys)
            if device == origin and (device, tp) in rows
        }

    renamed = {
        key._replace(device=name): key
        for name, origin in source.items()
        for key in sorted(profile.time)
        if key.device == origin
    }

    def along(rows: Mapping[LayerKey, Row]) -> dict[LayerKey, Row]:
        return {new: rows[old] for new, old in renamed.items() if old in rows}

    return replace(
        profile,
        time=along(profile.time),
        state=pairs(profile.state),
        activation=pairs(profile.activation),
        workspace=pairs(profile.workspace),
        workspace_per_sample=pairs(profile.workspace_per_sample),
        optimizer=pairs(profile.optimizer),
        measured=frozenset(new for new, old in renamed.items() if old in profile.measured),
        origins=along(profile.origins),
        errors=along(profile.errors),
        most_samples=pairs(profile.most_samples),
        forward=along(profile.forward),
        recomputed={name: _renamed(again, source) for name, again in profile.recomputed.items()},
    )


def rows_of_device(rows: pandas.DataFrame, device: str) -> pandas.DataFrame:
    """Return the rows of a device type, else rows that name none, else all; '': all."""
    if not device:
        return rows
    known = rows["device"].unique().tolist()
    alike = {name.casefold() for name in alike_names(known, device)} or {""}
    chosen = rows[rows["device"].str.casefold().isin(alike)]
    return rows if chosen.empty else chosen
