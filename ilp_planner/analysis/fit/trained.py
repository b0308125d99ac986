"""Other ways to train that fit where no setting of a job does: moments of fewer bits, adapters, and
a base in 4 bits. Each learns something else, so that nobody but the user can choose it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.judge import runtime_for
from ilp_planner.analysis.fit.needs import needs_of
from ilp_planner.base.errors import PlannerError
from ilp_planner.settings.table import BY_NAME, SETTINGS, with_degrees_of
from ilp_planner.settings.values import FUSED_LOSS, SHARDING, as_transformers
from ilp_planner.spaces.training.enumerate.choices import CHOICES, values_of
from ilp_planner.specs.training import LIGER, Recompute, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.job.verdict import Verdict
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.training import TrainingJob

EVERY_LAYER = Recompute(granularity="full", method="uniform", layers=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSo:
    """A way to train that fits. said: values by the names of settings. needed: bytes of the fullest
    GPU."""

    said: Mapping[str, str]
    needed: float
    verdict: Verdict


def trained_otherwise(job: TrainingJob, cluster: ClusterSpec) -> Iterator[TrainedSo]:
    """Yield the ways to train that surely fit, by PEFT and the Trainer: a sample at a time, every
    layer computed again, Liger's loss, and states shared where there are several GPUs."""
    own = values_of(job.settings)
    alone = job.global_batch % job.world == 0
    for row in (row for row in SETTINGS if row.lighter and alone):
        way = {**dict([row.beside] if row.beside else ()), row.name: row.lighter}
        said = {
            name: value
            for name, value in way.items()
            if own.get(name) in BY_NAME[name].search_of("").values[:1]
        }
        if row.name not in said:
            continue
        try:
            needs = needs_of(runtime_for(_so(job, said), cluster).job, cluster)
        except (PlannerError, ValueError):
            continue
        if needs.fits:
            needed = needs.ranks[needs.fullest].needed
            yield TrainedSo(said=said, needed=needed, verdict=needs.verdict)


def _so(job: TrainingJob, said: Mapping[str, str]) -> TrainingJob:
    """Return a job of the Trainer that learns so."""
    settings = replace(with_degrees_of(job.settings, Settings()), recompute=EVERY_LAYER, turn=0)
    shared = "parameters" if job.world > 1 else "none"
    for choice, value in (
        *((CHOICES[name], value) for name, value in said.items()),
        (SHARDING, shared),
        (FUSED_LOSS, LIGER),
    ):
        written = choice.write(settings, value)
        if written is None:
            raise ValueError(f"{choice.text.format(value)} goes with no such job")
        settings = written
    return replace(
        job,
        settings=as_transformers(settings),
        tp=1,
        pp=1,
        dp=job.world,
        micro_batch=1,
        layout=None,
    )
