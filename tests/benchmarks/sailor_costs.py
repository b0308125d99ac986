"""Sailor's sends and gradient reductions in place of the planner's, to plan with.

The same layers, memory and micro-batches; what differs are messages, as `sailor_score` has them: a
send follows the curve of machines with as many GPUs as a replica, and a reduction that of the
slowest type. Two things cannot be said stage by stage, so that the plans found here are judged by
`sailor_score` once more: a receiver's degree (taken to be the sender's), and that Sailor lets half
of a send wait at the receiver (here both halves wait at the sender). The optimiser's step is left
out, as Sailor leaves it out of every pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.layer_rows import range_sums
from ilp_planner.costs.layers import LayerCosts
from tests.benchmarks.sailor_score import Replica, Sailor
from tests.benchmarks.sailor_space import DEGREES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ilp_planner.costs.base import StageCost
    from ilp_planner.costs.groups import GroupClass, GroupOption, OptionTables
    from ilp_planner.costs.profiles.layers import LayerProfile
    from ilp_planner.plan import GroupStage
    from ilp_planner.specs.cluster import ClusterSpec


class SailorCosts(LayerCosts):
    """Costs of layers with Sailor's messages. profile: without degrees that have no curve."""

    def __init__(self, sailor: Sailor, profile: LayerProfile, limits: Mapping[str, float]) -> None:
        super().__init__(profile, limits, uneven=False)
        self.sailor = sailor
        self._sums = range_sums(sailor.figures[1, "params_floats"])
        sizes, place = np.unique(self._sums, return_inverse=True)
        self._sizes, self._place = sizes.tolist(), place.reshape(self._sums.shape)

    def with_limits(self, limits: Mapping[str, float]) -> SailorCosts:
        """Return the same costs with other limits."""
        return SailorCosts(self.sailor, self.profile, limits)

    def crossing(self, start: int, stop: int) -> None:
        """Sailor does not tell nodes apart."""
        del start, stop

    def option_tables(
        self, option: GroupOption, micro_batches: int, global_batch: int, cluster: ClusterSpec
    ) -> OptionTables | None:
        """Return the planner's tables with Sailor's reductions."""
        tables = super().option_tables(option, micro_batches, global_batch, cluster)
        if tables is None:
            return None
        kinds = self._kinds_of(option, (0,) * len(option.replicas), cluster)
        dp = sum(option.replicas)
        seconds = np.array([self.sailor.reduced(kinds, dp, size) for size in self._sizes])
        peak = np.where(self._sums > 0, seconds[self._place], 0.0)
        return replace(tables, peaks=peak[None])

    def send(
        self,
        option: GroupOption,
        samples: tuple[int, ...],
        micro_batches: int,
        to: GroupClass,
        cluster: ClusterSpec,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what sending adds, there and back."""
        del micro_batches
        first, most = 0, []
        for count in option.replicas:
            most.append(max(samples[first : first + count], default=0))
            first += count
        kinds = self._kinds_of(option, most, cluster)
        receivers = [cluster.type_names[kind] for kind in to.types]
        cuts = np.arange(len(self.chain) + 1)
        seconds = np.array([self._sent(kinds, receivers, int(cut)) for cut in cuts])
        return seconds, np.zeros_like(seconds)

    def peak_parts(self, stage: GroupStage, cluster: ClusterSpec) -> tuple[float, float]:
        """Return seconds of a stage's gradient reduction, and none of the optimiser's step."""
        kinds = dict.fromkeys(kind._replace(samples=0) for kind in self._kinds_in(stage, cluster))
        size = float(self._sums[stage.start, stage.stop])
        return self.sailor.reduced(tuple(kinds), stage.dp, size), 0.0

    def _stage(
        self, stage: GroupStage, after: tuple[GroupStage, ...], in_flight: int, cluster: ClusterSpec
    ) -> StageCost:
        cost = super()._stage(stage, after, in_flight, cluster)
        sending = 0.0
        if after:
            receivers = {cluster.type_of[device] for device in after[0].devices}
            sending = self._sent(self._kinds_in(stage, cluster), receivers, stage.stop)
        terms = {**cost.time_terms, "point-to-point": sending}
        return replace(cost, time=terms["compute"] + sending, time_terms=terms)

    def _kinds_of(
        self, option: GroupOption, most: Iterable[int], cluster: ClusterSpec
    ) -> tuple[Replica, ...]:
        """Return a replica of each type of an option. most: samples of one, by type."""
        named = zip(cluster.type_names, option.replicas, most, strict=True)
        return tuple(Replica(gpu, option.tp, samples) for gpu, n, samples in named if n)

    def _kinds_in(self, stage: GroupStage, cluster: ClusterSpec) -> tuple[Replica, ...]:
        return tuple(
            {
                Replica(cluster.type_of[replica.devices[0]], stage.tp, replica.samples)
                for replica in stage.replicas
            }
        )

    def _sent(self, kinds: Iterable[Replica], receivers: Iterable[str], cut: int) -> float:
        """Return seconds there and back of what crosses a cut."""
        if not 0 < cut < len(self.chain):
            return 0.0
        return 2 * max(
            self.sailor.send(kind, kind._replace(gpu=gpu), cut - 1)
            for kind in kinds
            for gpu in receivers
        )


def with_curves(profile: LayerProfile) -> LayerProfile:
    """Return a profile without the degrees that Sailor has no curves for."""
    return replace(
        profile, time={key: row for key, row in profile.time.items() if key.tp in DEGREES}
    )
