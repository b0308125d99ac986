"""Rows of recomputed layers, from a profile's plain rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeVar

    from ilp_planner.base.numerics import Floats
    from ilp_planner.costs.profiles.layers import LayerProfile

    Key = TypeVar("Key")


def with_recomputation(profile: LayerProfile) -> LayerProfile:
    """Return a profile with time and memory of recomputed layers, as far as its rows allow: rows
    with a separate forward pass do, others do not.

    A recomputed layer keeps its input, the message over the cut before it, and takes its forward
    pass once more, messages included. While that runs, all that it keeps otherwise is there once
    (Chen et al. 2016, arXiv 1604.06174, section 4).
    """
    pairs = {(key.device, key.tp) for key in profile.time}
    known = {key: row for key, row in profile.forward.items() if key in profile.time}
    if profile.recomputed or pairs != {(key.device, key.tp) for key in known}:
        return profile
    inputs = profile.boundary[:-1]
    kept = {pair: np.minimum(inputs, row) for pair, row in profile.activation.items()}
    growing = profile.workspace_per_sample
    again = replace(
        profile,
        time={key: profile.time[key] + once for key, once in known.items()},
        activation=kept,
        workspace_per_sample={
            pair: growing.get(pair, 0.0) + row - kept[pair]
            for pair, row in profile.activation.items()
        },
        measured=profile.measured & known.keys(),
        origins={
            key: {
                source: seconds * _times(profile.time[key], once)
                for source, seconds in profile.origins[key].items()
            }
            for key, once in known.items()
            if key in profile.origins
        },
        forward={},
        recomputed={},
    )
    return replace(profile, recomputed={"full": with_ends_of(profile, again)})


def with_ends_of(profile: LayerProfile, again: LayerProfile) -> LayerProfile:
    """Return rows of recomputed layers, with plain rows of embedding and output, the first and the
    last layer: these are never recomputed."""

    def ends(kept: Mapping[Key, Floats], rows: Mapping[Key, Floats]) -> dict[Key, Floats]:
        found = {}
        for key, row in rows.items():
            plain = kept.get(key, np.zeros_like(row))
            found[key] = np.concatenate((plain[:1], row[1:-1], plain[-1:]))
        return found

    return replace(
        again,
        time=ends(profile.time, again.time),
        activation=ends(profile.activation, again.activation),
        workspace=ends(profile.workspace, again.workspace),
        workspace_per_sample=ends(profile.workspace_per_sample, again.workspace_per_sample),
    )


def _times(both: Floats, once: Floats) -> Floats:
    """Return how much longer layers take with the forward pass of `once` twice."""
    return 1 + np.divide(once, both, out=np.zeros_like(both), where=both > 0)
