"""Stages of saved plans that other plans have as well: the same layers on the same devices."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.base.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.cluster import ClusterSpec

EXPECTED = "a plan file and the number of a stage, as plan.json:stage0"
NOWHERE = -1  # number of a device that no plan may use
SAID = re.compile(r"(.+):stage([0-9]{1,6})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptStage:
    """What one pipeline rank of a saved plan has.

    said: as the user says it, `PLAN:stage0`; the rest is empty until the plan is read.
    ranges: first and last element on the chain, the last one not included, of every virtual stage.
    devices: numbers in the whole cluster, a tuple for every replica. tp, cp, ep: degrees; etp:
    tensor-parallel degree of experts, 0 without any. model, layers, cluster: what the plan is for,
    as `shape_of` says it.
    """

    said: str
    ranges: tuple[tuple[int, int], ...] = ()
    devices: tuple[tuple[int, ...], ...] = ()
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 0
    model: str = ""
    layers: int = 0
    cluster: str = ""

    def __str__(self) -> str:
        return self.said

    @property
    def place(self) -> tuple[str, int]:
        """The file of the plan, and the number of the stage."""
        match = SAID.fullmatch(self.said)
        assert match is not None
        return match[1], int(match[2])

    def check(self, model: str, layers: int, cluster: ClusterSpec) -> None:
        """Refuse a stage of another model, or of another cluster, all its nodes taken.

        Raises
        ------
        UsageError: the plan's problem, and the expected one.
        """
        if not self.ranges:
            raise UsageError(f"keep: found {self.said!r}, whose plan was not read")
        for what, found, expected in (
            ("model", f"{self.model} of {self.layers} layers", f"{model} of {layers} layers"),
            ("cluster", self.cluster, shape_of(cluster)),
        ):
            if found != expected:
                raise UsageError(
                    f"keep: found {self.said} of another {what}, {found}, expected a plan for "
                    f"{expected}"
                )

    def on(self, devices: Sequence[int]) -> KeptStage:
        """Return the stage with the numbers of its devices among the usable ones; `NOWHERE` for one
        that may not, so that no plan has it.

        devices: their numbers in the whole cluster, ascending.
        """
        number = {device: place for place, device in enumerate(devices)}
        here = (tuple(number.get(d, NOWHERE) for d in replica) for replica in self.devices)
        return replace(self, devices=tuple(here))


def shape_of(cluster: ClusterSpec) -> str:
    """Return the devices of a cluster, node by node."""
    sizes = (group.devices for group in cluster.nodes for _ in range(group.count))
    nodes = [f"{size} x {kind}" for size, kind in zip(sizes, cluster.node_types, strict=True)]
    runs = [(text, len(list(run))) for text, run in groupby(nodes)]
    return ", ".join(f"{counted(count, 'node')} of {text}" for text, count in runs)


def kept_stages(value: object) -> tuple[KeptStage, ...]:
    """Return the stages that texts name, to be read later, or that were read.

    Raises
    ------
    UsageError: one line with the found and the expected value.
    """
    found: dict[KeptStage, None] = {}
    for each in value if isinstance(value, list | tuple) else [value]:
        if isinstance(each, KeptStage):
            found[each] = None
            continue
        for text in re.split(r"(?<=[0-9]),", each) if isinstance(each, str) else [each]:
            if not isinstance(text, str) or not SAID.fullmatch(text.strip()):
                raise UsageError(f"keep: found {text!r:.60}, expected {EXPECTED}")
            found[KeptStage(said=text.strip())] = None
    return tuple(found)
