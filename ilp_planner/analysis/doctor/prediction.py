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
from ilp_planner.settings.table import OF_DEGREES, SETTINGS
from ilp_planner.settings.values import with_fields
from ilp_planner.specs.pipeline_layout import PipelineLayout, write_layout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ilp_planner.analysis.fit.judge import Judged
    from ilp_planner.specs.training import TrainingJob

GROUPS = ("tp", "cp", "ep", "dp")
DATA = "data communication"
COMPUTE = ("compute", "recomputation")
IDLE = ("what no rank does", "waits for the host")
# Fields of which one cannot change alone, as they divide the same GPUs and layers.
TOGETHER = {
    *("tp", "pp", "dp", "layout", "virtual", "settings.turn", "settings.schedule"),
    *(f"settings.{name}" for name in OF_DEGREES if not name.startswith("recompute")),
}
NO_SETTINGS = ("inputs", "carried")  # the job itself, and words of a line that change no plan


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
            return self.of(with_values(self.job, fields))
        except ValueError:
            return None

    def of(self, job: TrainingJob) -> Prediction | None:
        """Return the prediction of another job of the model; None if its training system does not
        run it."""
        judge = self.judge
        try:
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
    """A setting that two jobs have different values of, or several of which none can change alone.

    title: in the table of settings. theirs, ours: titles and values. fields: theirs.
    """

    title: str
    theirs: str
    ours: str
    fields: Mapping[str, Any]


def other_settings(ours: TrainingJob, theirs: TrainingJob) -> list[Other]:
    """Return the settings whose values differ, by the rows of the table; those of inputs aside."""
    jobs = (theirs, ours)
    rows = [
        row
        for row in SETTINGS
        if row.fields
        and row.name not in NO_SETTINGS
        and attrgetter(*row.fields)(theirs) != attrgetter(*row.fields)(ours)
    ]
    together = [row for row in rows if TOGETHER.issuperset(row.fields)]
    found = []
    for some in filter(None, (together, *([row] for row in rows if row not in together))):
        titles = [row.title or row.name for row in some]
        said = [
            ", ".join(
                f"{title} {_values([attrgetter(name)(job) for name in row.fields])}"
                for title, row in zip(titles, some, strict=True)
            )
            for job in jobs
        ]
        # The stages of a rank follow from the layout.
        names = [name for row in some for name in row.fields if name != "virtual"]
        values = {name: attrgetter(name)(theirs) for name in names}
        found.append(Other(", ".join(titles), said[0], said[1], values))
    return found


def _values(values: Sequence[object]) -> str:
    """Return the values of a setting's fields, without those that say nothing."""
    said = [_word(value) for value in values if value not in ((), "", 0, "none", None)]
    return ", ".join(said) or _word(values[0])


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, PipelineLayout):
        return write_layout(value)
    return "none" if value is None else str(value) or "none"
