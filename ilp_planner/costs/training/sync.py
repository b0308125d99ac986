"""Parameters that a rank holds of every element of the chain, and the rings of their
synchronisation: gradients reduced, parameters gathered.

A ring's seconds are linear in the bytes of the elements that a rank has, so that the seconds of a
range of the chain add up. If a profile has measured the collective in groups of that size on so
many hosts (`profiles.link_times`), it is the line through its values; otherwise the cluster's links
(`costs.training.network`).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.profiles.shares import LINKS
from ilp_planner.job.decoder import (
    embedding_module,
    final_norm_module,
    layer_module,
    output_module,
    prediction_module,
)
from ilp_planner.job.messages import unsplit_parameters
from ilp_planner.job.tuning import base_numbers, gathered_saved

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from ilp_planner.costs.profiles.link_times import LinkTimes
    from ilp_planner.costs.profiles.table import Origin
    from ilp_planner.costs.training.network import Route
    from ilp_planner.job.modules import Module
    from ilp_planner.specs.training import TrainingJob


# ---- parameters of elements ----------------------------------------------------------------------


KEPT = 128  # jobs whose parameters are kept: the runs of a calibration


@dataclass(frozen=True, slots=True)
class Held:
    """Trained parameters on a rank: with replicas over data and context parallelism, and over
    experts'.

    unsplit: of the dense ones: their gradients are summed over tp as well. still, still_experts:
    parameters that are not trained; those of fewer bits count as the parameters of the training
    precision that take as many bytes.
    """

    dense: float = 0.0
    expert: float = 0.0
    unsplit: float = 0.0
    still: float = 0.0
    still_experts: float = 0.0


@lru_cache(maxsize=KEPT)
def held_by_elements(job: TrainingJob) -> tuple[Held, ...]:
    """Return the parameters of every element of the chain; the last norm's are the output's, also
    if prediction layers read it on another rank (`job.decoder.has_final_norm`)."""
    output = _held(job, output_module(job))
    if job.model.prediction_layers:
        norm, more = _held(job, final_norm_module(job)), _held(job, prediction_module(job))
        count = job.model.prediction_layers
        dense = output.dense + norm.dense + count * more.dense
        output = Held(dense, output.expert + count * more.expert)
    kinds = {}
    for number in set(job.layer_kinds):
        kind = job.kind(number)
        kinds[number] = _held(job, layer_module(job, *kind), unsplit_parameters(job, *kind))
    layers = (kinds[number] for number in job.layer_kinds)
    return (_held(job, embedding_module(job)), *layers, output)


def sum_of(every: Iterable[Held]) -> Held:
    """Return the parameters of several elements."""
    columns = zip(*map(astuple, every), strict=True)
    return Held(*(sum(column) for column in columns))


def _held(job: TrainingJob, module: Module, unsplit: int = 0) -> Held:
    experts, trained = module.trained_experts, module.trained
    still_experts = module.expert_parameters - experts
    still = module.parameters - trained - still_experts
    low, low_experts = base_numbers(job, module)
    few = low - low_experts
    return Held(
        float(trained - experts),
        float(experts),
        float(unsplit),
        still - gathered_saved(job, still - few, few),
        still_experts - gathered_saved(job, still_experts - low_experts, low_experts),
    )


# ---- rings ---------------------------------------------------------------------------------------


class Ring(NamedTuple):
    """One collective. sizes: bytes of every element of the chain, float64 [n]. latency, per_byte:
    seconds. links: that these are of; None: the cluster's."""

    collective: str
    route: Route
    sizes: NDArray[np.float64]
    latency: float
    per_byte: float
    links: LinkTimes | None = None

    @property
    def gathers(self) -> bool:
        """Whether it gathers parameters; others sum gradients."""
        return self.collective == "all_gather"

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Seconds of every element's bytes, without the latency."""
        return self.per_byte * self.sizes

    def origin(self, size: float) -> Origin:
        """Return the source of the seconds of so many bytes."""
        if self.links is None or self.route.group is None or not size > 0:
            return LINKS
        seconds = self.latency + self.per_byte * size
        return self.links.origin(self.collective, size, self.route.group, seconds)


class Late(NamedTuple):
    """A ring that an iteration has once. fixed, each: seconds that passes do not hide, once and of
    every element of the chain, float64 [n]."""

    ring: Ring
    fixed: float
    each: NDArray[np.float64]


def ring(
    collective: str, route: Route, sizes: NDArray[np.float64], links: LinkTimes | None
) -> Ring:
    """Return a collective of elements of so many bytes; one of them has some."""
    group = route.group
    if links is None or group is None or not links.knows(collective, group):
        return Ring(collective, route, sizes, *route.line(collective))
    ends = float(sizes[sizes > 0].min()), float(sizes.sum())
    return Ring(collective, route, sizes, *links.line(collective, group, *ends), links)
