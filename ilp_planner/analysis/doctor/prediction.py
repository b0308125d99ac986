"""Predictions of a job: its step, the parts of it, its passes rank by rank, its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.base.errors import PlannerError
from ilp_planner.costs.training.iteration import stage_times, stages_of
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.settings.table import SETTINGS
from ilp_planner.settings.values import with_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.analysis.fit.judge import Judged
    from ilp_planner.specs.training import TrainingJob

GROUPS = ("tp", "cp", "ep", "dp")
DATA = "data communication"
COMPUTE = ("compute", "recomputation")


@dataclass(frozen=True)
class Prediction:
    """The prediction of a job.

    judge: of jobs of this model and these GPUs.
    """

    judge: Judge
    job: TrainingJob

    @cached_property
    def judged(self) -> Judged:
        """Its seconds and memory."""
        return self.judge.verdict(self.job)

    @property
    def seconds(self) -> float:
        """Of an iteration."""
        return self.judged.seconds

    @property
    def low(self) -> float:
        """Seconds of an iteration below which 1 in 10 runs is."""
        error = self.judged.known.error
        return self.seconds * (error.low if error else 1.0)

    @property
    def high(self) -> float:
        """Seconds of an iteration above which 1 in 10 runs is."""
        error = self.judged.known.error
        return self.seconds * (error.high if error else 1.0)

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Seconds of an iteration by term; they add up to it."""
        problem = self.judge.problem(self.job.world)
        plan = plan_of_job(self.job, problem.cluster, model=problem.model)
        cost = evaluate(problem, plan).cost
        assert cost is not None  # what the judge took has times
        return dict(self.judge.space.seconds(problem, plan, cost))

    @cached_property
    def passes(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Seconds of all forward and of all backward passes of an iteration, on every pipeline
        rank."""
        job, problem = self.job, self.judge.problem(self.job.world)
        ranks = problem.costs.ranks_of_job(job, problem.cluster)
        times = stage_times(ranks, job, stages_of(ranks, job))
        own = [list(job.stages_of(rank)) for rank in range(job.pp)]
        count = job.micro_batches
        return (
            tuple(count * float(times.forward[stages].sum()) for stages in own),
            tuple(count * float(times.backward[stages].sum()) for stages in own),
        )

    @property
    def memory(self) -> float:
        """Bytes that PyTorch allocates at most on the GPU that needs most."""
        return max(rank.peak for rank in self.judged.ranks)

    def message(self, collective: str, ranks: int, size: float) -> float:
        """Return the seconds of one message among so many ranks; 0 if no group has so many."""
        job, problem = self.job, self.judge.problem(self.job.world)
        network = problem.costs.ranks_of_job(job, problem.cluster).network
        routes = [network.route(job, kind, 0) for kind in GROUPS]
        fitting = [route.seconds(collective, size) for route in routes if route.size == ranks > 1]
        return max(fitting, default=0.0)

    def changed(self, fields: Mapping[str, Any]) -> Prediction | None:
        """Return the prediction of the job with other values of some fields; None if its training
        system does not run it. fields: attributes of a `TrainingJob`."""
        try:
            job, judge = with_values(self.job, fields), self.judge
            if job.global_batch != judge.job.global_batch:
                judge = Judge(judge.site, judge.model, job, judge.space)
            found = Prediction(judge, job)
            return found if found.seconds > 0 else None
        except (PlannerError, ValueError):
            return None


def with_values(job: TrainingJob, fields: Mapping[str, Any]) -> TrainingJob:
    """Return a job with other values of some fields, `settings.` ones too."""
    inner = {name: value for name, value in fields.items() if name.startswith("settings.")}
    outer = {name: value for name, value in fields.items() if name not in inner}
    if inner:
        plain = {name.removeprefix("settings."): value for name, value in inner.items()}
        outer["settings"] = with_fields(job.settings, plain)
    changed: TrainingJob = replace(job, **outer)
    return changed


@dataclass(frozen=True)
class Other:
    """A setting that two jobs have different values of. title: in the table of settings."""

    title: str
    fields: Mapping[str, Any]
    ours: tuple[Any, ...]


def other_settings(ours: TrainingJob, theirs: TrainingJob) -> list[Other]:
    """Return the settings whose values differ, by the rows of the table; those of inputs aside."""
    found = []
    for row in SETTINGS:
        if not row.fields or row.name == "inputs":
            continue
        values = {name: attrgetter(name)(theirs) for name in row.fields}
        own = tuple(attrgetter(name)(ours) for name in row.fields)
        if tuple(values.values()) != own:
            found.append(Other(row.title or row.name, values, own))
    return found
