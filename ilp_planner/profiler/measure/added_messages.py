"""The tensor-parallel messages of a shard that is measured alone, from a table of links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ilp_planner.costs.profiles.table import TRUST, Provenance

if TYPE_CHECKING:
    from ilp_planner.costs.profiles.measurements import Measurements

ALL_REDUCE = "all_reduce"


class MessageAdder:
    """Adds the seconds of all-reduces to measured columns.
    links: a table with collectives. device: as the rows call it."""

    def __init__(self, links: Measurements, device: str) -> None:
        from ilp_planner.profiler.predict.collectives import CollectivePredictor

        self.predictor = CollectivePredictor(links)
        self.device = device

    def add(self, values: dict[str, Any], ways: tuple[list[float], list[float]], tp: int) -> None:
        """Add them to `time_s`, `forward_s` and `backward_s`; a row that rests on predicted ones
        says so, with its error if all of their errors are known.

        ways: bytes of every all-reduce of the forward and of the backward pass.
        """
        off, worst, told = 0.0, Provenance.MEASURED, True
        for column, sizes in zip(("forward_s", "backward_s"), ways, strict=True):
            for size in sizes:
                found = self.predictor.predict(
                    ALL_REDUCE, size, group_size=tp, hosts=1, device=self.device
                )
                values[column] += found.value
                values["time_s"] += found.value
                off += found.value * (found.error or 0.0)
                told = told and found.error is not None
                worst = max(worst, found.provenance, key=TRUST.index)
        if worst is not Provenance.MEASURED:
            values["provenance"] = worst
            if told:
                values["error"] = off / values["time_s"]
