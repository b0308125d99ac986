"""The systems of other people that this project reproduces: the folders of `peers/`.

Each says in its `__init__` how the planner knows it; everything else of it is imported when a
request names it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parents[1] / "peers"


class Peer(NamedTuple):
    """A system as the planner knows it.

    name: of people. year: of its paper. layers: its profiles have times of whole layers, which
    `source` in its folder reads. vocabulary: its costs need one. spaces: fields of `SpaceEntry` of
    its plan spaces, by name.
    """

    name: str
    year: int
    layers: bool = False
    vocabulary: bool = False
    spaces: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


@cache
def peers() -> Mapping[str, Peer]:
    """Return all systems by the names of their folders, the newest first."""
    names = sorted(file.parent.name for file in FOLDER.glob("*/__init__.py"))
    found = {name: import_module(f"ilp_planner.peers.{name}").PEER for name in names}
    return dict(sorted(found.items(), key=lambda item: -item[1].year))


def layer_profiles() -> tuple[str, ...]:
    """Return the formats `NAME:PATH` of profiles with whole layers."""
    return tuple(name for name, peer in peers().items() if peer.layers)
