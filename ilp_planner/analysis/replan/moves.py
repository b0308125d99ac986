"""Bytes that move when the devices of one plan take up another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.job.holdings import NOBODY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.job.holdings import Holdings


@dataclass(frozen=True, kw_only=True, eq=False)
class Moves:
    """Bytes [devices] of weights and optimiser states that each device of a plan takes up.

    needed: that it holds. kept: of them, that it has already. read: that no device has any more,
    and a checkpoint must have.
    """

    needed: NDArray[np.float64]
    kept: NDArray[np.float64]
    read: NDArray[np.float64]

    @property
    def moved(self) -> NDArray[np.float64]:
        """Bytes that each device gets from others."""
        # The difference of sums of parts: what is left of rounding is nothing.
        left = self.needed - self.kept - self.read
        return np.where(left < ROUNDING * self.needed, 0.0, left)

    @property
    def total(self) -> float:
        """Bytes that all devices get from others."""
        return float(self.moved.sum())

    @property
    def most(self) -> float:
        """Bytes that one device gets from others at most."""
        return float(self.moved.max(initial=0.0))

    @property
    def from_checkpoint(self) -> float:
        """Bytes that all devices read from a checkpoint."""
        return float(self.read.sum())


ROUNDING = 1e-9  # relative


def moves(
    old: Holdings, new: Holdings, before: NDArray[np.int64], alive: NDArray[np.bool_]
) -> Moves:
    """Return the bytes that move from one plan to another.

    Parameters
    ----------
    before: [new devices], the number that each had among the old devices, `NOBODY` for one that was
        not there. alive: [old devices], whether each still has its bytes.
    """
    there = (before != NOBODY) & alive[before]
    own = np.flatnonzero(there)
    kept = np.zeros(len(before))
    kept[own] = held_by_both(old, new, before[own], own)
    return Moves(needed=new.bytes, kept=kept, read=lacking(old, new, alive))


def held_by_both(
    old: Holdings, new: Holdings, olds: NDArray[np.int64], news: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the bytes that old and new devices, broadcast against each other, have in common."""
    shared = shared_sizes(old, new)[old.stage[olds], new.stage[news]]
    volumes = common(old.boxes[olds], new.boxes[news]) @ np.array(new.widths)
    found: NDArray[np.float64] = (shared * volumes).sum(axis=-1)
    return found


def shared_sizes(old: Holdings, new: Holdings) -> NDArray[np.float64]:
    """Return the parameters [old stages + 1, new stages + 1, kinds] that both stages have; the last
    row and column are of empty devices."""
    both = np.einsum("auk,buk->abk", old.has * old.sizes, new.has, optimize=True)
    return np.pad(both, ((0, 1), (0, 1), (0, 0)))


def common(some: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the volumes [..., kinds, 2] of boxes that two have in common."""
    low = np.maximum(some[..., 0], others[..., 0])
    high = np.minimum(some[..., 1], others[..., 1])
    found: NDArray[np.float64] = np.prod(np.maximum(high - low, 0.0), axis=-1)
    return found


def lacking(
    old: Holdings,
    new: Holdings,
    holding: NDArray[np.bool_],
    asking: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    """Return the bytes [new devices] that each needs and that none of some old devices has.

    Parameters
    ----------
    holding: [old devices], whether each counts. asking: [new devices], whether each counts, None
        for all; 0 for the others.
    """
    found = np.zeros(len(new.stage))
    asking = new.stage >= 0 if asking is None else asking & (new.stage >= 0)
    if holding[old.stage >= 0].all():
        return found
    for sizes, olds, news in _runs(old, new):
        wanted = np.flatnonzero(np.isin(new.stage, news) & asking)
        if not wanted.size:
            continue
        holders = np.isin(old.stage, olds)
        if holding[holders].all():
            continue
        for kind in np.flatnonzero(sizes):
            for part, width in enumerate(new.widths):
                left = _missing(
                    old.boxes[holders & holding, kind, part], new.boxes[wanted, kind, part]
                )
                found[wanted] += sizes[kind] * width * left
    return found


def _runs(
    old: Holdings, new: Holdings
) -> list[tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]]:
    """Return (parameters [kinds], old stages, new stages) of units, or kinds of them, that the same
    stages have."""
    units, kinds = old.sizes.shape
    stages = np.concatenate([old.has, new.has]).reshape(-1, units * kinds)
    patterns, place = np.unique(stages, axis=1, return_inverse=True)
    place = place.reshape(units, kinds)
    found = []
    for number, pattern in enumerate(patterns.T):
        sizes = np.where(place == number, old.sizes, 0.0).sum(axis=0)
        olds, news = pattern[: len(old.has)], pattern[len(old.has) :]
        found.append((sizes, np.flatnonzero(olds), np.flatnonzero(news)))
    return found


def _missing(held: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the volume [n] of each of n boxes that no held box [m, 3, 2] covers.

    The faces of the held boxes cut the whole into cells, and each is covered or not.
    """
    held = np.unique(held, axis=0)
    edges = [np.unique(np.concatenate([[0.0, 1.0], held[:, axis].ravel()])) for axis in range(3)]
    covered = np.zeros([len(edge) - 1 for edge in edges], dtype=bool)
    for box in held:
        where = (np.searchsorted(edge, side) for edge, side in zip(edges, box, strict=True))
        covered[tuple(slice(low, high) for low, high in where)] = True
    a, b, c = (
        np.maximum(
            np.minimum(edge[1:], wanted[:, axis, 1:]) - np.maximum(edge[:-1], wanted[:, axis, :1]),
            0.0,
        )
        for axis, edge in enumerate(edges)
    )
    found: NDArray[np.float64] = np.einsum("na,nb,nc,abc->n", a, b, c, ~covered, optimize=True)
    return found
