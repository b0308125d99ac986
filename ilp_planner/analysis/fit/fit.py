"""One verb, `fit`: whether a job fits, and the changes of least cost that make it fit.

Jobs with all settings free, and sufficient GPUs if none of them fits.

The search is that of plans for the training system, over the job's own types of numbers and
kernels. It says how far from the best possible its plan is at most.

The changes of one and of two settings with which a job fits and is fastest.

Every job with one setting changed is tried, and every one with two. Of each setting, and of each
pair, the fastest values are kept; a pair that is no faster than one of its settings alone is not.

A training job in the making: a job, its changed settings, and the resulting job.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.settings import settings_of
from ilp_planner.analysis.fit.trained import TrainedSo, trained_otherwise
from ilp_planner.base.children import cores
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import PlannerError
from ilp_planner.base.team import Team
from ilp_planner.costs.training.job import plain_layout
from ilp_planner.inputs.constraints import ANY
from ilp_planner.job.verdict import MARGIN
from ilp_planner.optimize.search.preference import plainer_first
from ilp_planner.settings.rules import with_followed
from ilp_planner.settings.table import SETTINGS, with_degrees_of
from ilp_planner.spaces.training.enumerate.choices import values_of
from ilp_planner.spaces.training.enumerate.plainness import grades, traits_of
from ilp_planner.spaces.training.search.least_memory import SPARE, fits, least_share

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ilp_planner.analysis.fit.judge import Judge, Judged
    from ilp_planner.analysis.fit.settings import Variable
    from ilp_planner.formats.megatron.changes import LineChange
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.specs.pipeline_layout import PipelineLayout
    from ilp_planner.specs.training import Settings, TrainingJob


# ---- draft ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A job with some settings changed; they may contradict each other.

    base: the job that is changed. world: ranks; the replicas follow from them. layout: of the
    pipeline; None: as the base has it, or as evenly as can be for another number of stages.
    """

    base: TrainingJob
    world: int
    tp: int
    pp: int
    micro_batch: int
    settings: Settings
    layout: PipelineLayout | None = None

    @property
    def dp(self) -> int:
        """Replicas; 0 if the ranks are no multiple of the other degrees."""
        width = self.tp * self.pp * self.settings.cp
        return 0 if self.world % width else self.world // width

    @property
    def stages(self) -> int:
        """Virtual stages of all ranks."""
        return len(self.layout.stages) if self.layout else self.pp * self._virtual

    @property
    def _virtual(self) -> int:
        return self.base.virtual if self.pp > 1 else 1

    def job(self) -> TrainingJob | None:
        """Return the job; None if its ranks, samples or stages are no whole numbers.

        Settings that a degree makes idle are Megatron's defaults: sequence parallelism without
        tensor parallelism, microbatch groups without virtual stages.
        """
        dp, base = self.dp, self.base
        if not dp or base.global_batch % (self.micro_batch * dp) or self.stages % self.pp:
            return None
        layout, settings = self.layout, self.settings
        if layout is None:
            if self.stages > base.model.layers + 2:
                return None
            same = self.pp == base.pp
            layout = base.pipeline if same else plain_layout(base.model, self.stages)
        if self.tp == 1 < base.tp:
            settings = replace(settings, sequence_parallel=False)
        if self.stages == self.pp:
            settings = replace(settings, turn=0, overlap_sends=True)
        elif settings.turn == self.pp:
            settings = replace(settings, turn=0)
        return replace(
            base,
            tp=self.tp,
            pp=self.pp,
            dp=dp,
            micro_batch=self.micro_batch,
            layout=layout,
            settings=with_followed(settings, base.model),
        )


def draft_of(job: TrainingJob) -> Draft:
    """Return a job with nothing changed."""
    return Draft(
        base=job,
        world=job.world,
        tp=job.tp,
        pp=job.pp,
        micro_batch=job.micro_batch,
        settings=job.settings,
    )


# ---- changes -------------------------------------------------------------------------------------


# Says what to change in what the user has, so that it says a job; None: nothing says it, or the
# training system would refuse it.
Writer = Callable[["TrainingJob"], "LineChange | None"]
GPUS = "GPUs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A job with some settings changed. settings: their names. words: of the change."""

    settings: tuple[str, ...]
    judged: Judged
    words: LineChange

    @property
    def size(self) -> int:
        """How many settings are changed."""
        return len(self.settings)


class Changes:
    """Tries changes of one job, and keeps the fastest ones that fit."""

    def __init__(self, judge: Judge, writer: Writer, within: float) -> None:
        """Take the judge and the writer of changes. within: seconds that they must undercut."""
        self.judge, self.writer, self.within = judge, writer, within
        self.best: dict[tuple[str, ...], Change] = {}
        self.tried: Counter[int] = Counter()  # jobs by the number of their changed settings
        self._settings = settings_of(judge.space.runtime)
        self._seen = {judge.job}

    def ranked(self) -> tuple[Change, ...]:
        """Return the kept changes, the fastest first but plainer jobs before hardly faster ones
        (`plainer_first`), and of equally fast ones the fewest settings first. A change that is no
        faster than a part of it is left out."""
        kept = [
            change
            for names, change in self.best.items()
            if change.judged.seconds < self._least(names, len(names) - 1)
        ]
        kept.sort(key=lambda change: change.size)
        runtime = self.judge.space.runtime

        def graded(change: Change) -> tuple[float, tuple[int, ...]]:
            return change.judged.seconds, grades(traits_of(runtime, change.judged.job))

        return tuple(plainer_first(kept, graded))

    def singles(self, start: Draft, already: tuple[str, ...] = ()) -> None:
        """Try every job with one setting changed. already: names of earlier changes."""
        for setting in self._settings:
            for draft in _with(start, setting):
                self.try_job((*already, setting.name), draft.job())

    def pairs(self, start: Draft) -> None:
        """Try every job with two settings changed; all cores judge them."""
        jobs: dict[tuple[str, ...], list[TrainingJob]] = {}
        for one, other in combinations(self._settings, 2):
            drafts = (both for draft in _with(start, one) for both in _with(draft, other))
            names: tuple[str, ...] = (one.name, other.name)
            jobs.setdefault(names, [])
            jobs[names] += (job for both in drafts if (job := self._new(names, both.job())))

        def fastest(names: tuple[str, ...]) -> int | None:
            return self._fastest(names, jobs[names])

        with Team(fastest, cores()) as team:
            found = team.ask([(names[0], names) for names, own in jobs.items() if own])
        for (names, own), place in zip(filter(itemgetter(1), jobs.items()), found, strict=True):
            if place is not None:
                self._fastest(names, [own[place]])

    def try_job(self, names: tuple[str, ...], job: TrainingJob | None) -> None:
        """Keep a job if it is the fastest so far with these settings changed."""
        if new := self._new(names, job):
            self._fastest(names, [new])

    def _new(self, names: tuple[str, ...], job: TrainingJob | None) -> TrainingJob | None:
        """Return a job that was not tried before, and count it; None for any other."""
        if job is None or job in self._seen:
            return None
        self._seen.add(job)
        self.tried[len(names)] += 1
        return job

    def _fastest(self, names: tuple[str, ...], jobs: Sequence[TrainingJob]) -> int | None:
        """Keep the fastest of jobs with these settings changed, and return its place; None if no
        job fits and is faster than what is kept of these settings."""
        found = None
        for place, job in enumerate(jobs):
            judged = self.judge.faster(job, self._least(names, len(names)))
            if judged is not None and (words := self.writer(job)) is not None:
                self.best[names] = Change(settings=names, judged=judged, words=words)
                found = place
        return found

    def _least(self, names: tuple[str, ...], most: int) -> float:
        """Return the seconds of the kept change of these settings, or `most` of them."""
        parts = (part for n in range(1, most + 1) for part in combinations(names, n))
        kept = (self.best[part].judged.seconds for part in parts if part in self.best)
        return min(kept, default=self.within)


def _with(draft: Draft, setting: Variable) -> Iterator[Draft]:
    for value in setting.values(draft):
        changed = setting.write(draft, value)
        if changed is not None:
            yield changed


def with_more_gpus(judge: Judge, writer: Writer, *, besides: bool) -> Changes:
    """Return the changes on the fewest more GPUs on which the job fits; none if no number of them
    is enough, up to one sample for every replica.

    Parameters
    ----------
    besides: one more setting may be changed on them; otherwise nothing else is.
    """
    job = judge.job
    most = job.global_batch * job.tp * job.pp * job.settings.cp
    found, start = Changes(judge, writer, math.inf), draft_of(job)
    for world in takewhile(lambda world: world <= most, judge.site.more(job.world)):
        more = replace(start, world=world)
        found.try_job((GPUS,), more.job())
        if besides:
            found.singles(more, (GPUS,))
        if found.best:
            break
    return found


# ---- more ----------------------------------------------------------------------------------------


ALL = "all settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllFree:
    """The result with all settings free. change: None if nothing fits, or nothing was found in
    time.
    bound: lower bound of the search's plans in seconds; 0: none was proved. among: the set of
    plans. impossible: it is proved that none fits. runtime: the name of the space of these plans.
    """

    change: Change | None
    bound: float
    among: str
    impossible: bool
    runtime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Enough:
    """Memory and GPUs that certainly suffice for some plan. memory: bytes of a GPU, on as many;
    gpus: of these; None: not found."""

    memory: float | None
    gpus: int | None


def free_problem(judge: Judge, world: int, share: float = 1.0) -> Problem[MegatronCosts]:
    """Return the problem of planning with the job's numbers and kernels, and with what it trains,
    all else free.

    share: of the memory of GPUs, that plans may need.

    Raises
    ------
    PlannerError: no plan is possible on so many GPUs.
    """
    problem, own = judge.problem(world), judge.job.settings
    runtime = judge.space.runtime
    base = replace(with_degrees_of(own, problem.costs.settings), turn=0)
    said = values_of(own)
    learns = (row.name for row in SETTINGS if row.learns and row.name in runtime.listens)
    kept = {name: said[name] for name in learns if said[name] not in runtime.tried[name][:1]}
    asked = ANY.with_(**{name: (value,) for name, value in kept.items()})
    choices = runtime.choices(base, asked, world, problem.costs.model)
    costs = replace(problem.costs, settings=base, choices=choices)
    limits = {name: share * limit for name, limit in problem.memory_limits.items()}
    return replace(problem, costs=costs, memory_limits=limits, constraints=asked)


def all_free(judge: Judge, writer: Writer, seconds: float) -> AllFree:
    """Return the fastest plan with all settings free that is found in so many seconds."""
    from ilp_planner.formats.megatron.changes import LineChange
    from ilp_planner.formats.megatron.plan import job_of_plan
    from ilp_planner.formats.nearest_run import differences
    from ilp_planner.optimize.result import Status
    from ilp_planner.optimize.solve import solve
    from ilp_planner.optimize.solvers.base import Limits

    job, runtime = judge.job, judge.space.name
    try:
        problem = free_problem(judge, job.world)
        result = solve(problem, limits=Limits(seconds=seconds))
    except PlannerError:
        return AllFree(change=None, bound=0.0, among="", impossible=False, runtime=runtime)
    change = None
    if result.plan is not None:
        found = replace(
            job_of_plan(result.plan, judge.model, problem.cluster),
            gpu_architecture=job.gpu_architecture,
        )
        judged = judge.faster(found, math.inf)
        words = writer(found) or LineChange(fields=tuple(differences(job, found)))
        if judged is not None:
            change = Change(settings=(ALL,), judged=judged, words=words)
    return AllFree(
        change=change,
        bound=result.bound,
        among=result.among,
        impossible=result.status is Status.INFEASIBLE,
        runtime=runtime,
    )


def enough(judge: Judge, seconds: float) -> Enough:
    """Return how much memory would do for some plan, and how many GPUs.

    Parameters
    ----------
    seconds: of looking for more GPUs.
    """
    world = judge.job.world
    deadline = Deadline(seconds)
    more = itertools.takewhile(lambda _: deadline.goon(), judge.site.more(world))
    return Enough(
        memory=_memory(judge, world),
        gpus=next((each for each in more if _fits_on(judge, each, deadline)), None),
    )


def _memory(judge: Judge, world: int) -> float | None:
    try:
        problem = free_problem(judge, world)
        share = least_share(problem) * SPARE / (1 - MARGIN)
    except PlannerError:
        return None
    return None if math.isinf(share) else share * max(problem.memory_limits.values())


def _fits_on(judge: Judge, world: int, deadline: Deadline) -> bool:
    """Tell whether some plan is found that fits so many GPUs."""
    try:
        return fits(free_problem(judge, world, 1 - MARGIN), deadline)
    except PlannerError:
        return False


# ---- fit -----------------------------------------------------------------------------------------


SECONDS = 10.0  # of searching with all settings free, unless it is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The answer.

    as_is: the job. changes: of one and two settings, so that it certainly fits, or may if none does
    more, in the order of `plainer_first`; of a job that fits, faster ones of one setting. singles,
    pairs: how many jobs were tried. more_gpus: the fewest on which it fits, with nothing else
    changed, or, if no change fits on the same GPUs, with at most one setting besides; None if there
    are none or it fits. free: the fastest plan with all settings free, if no pair fits. enough:
    memory or GPUs that suffice, if nothing fits; otherwise: ways to train that fit, likewise. noun:
    for people, of a plan of the training system that the job is judged by.
    """

    as_is: Judged
    changes: tuple[Change, ...]
    singles: int
    pairs: int
    more_gpus: Change | None = None
    free: AllFree | None = None
    enough: Enough | None = None
    otherwise: tuple[TrainedSo, ...] = ()
    noun: str = "plan"


def fit(judge: Judge, writer: Writer, seconds: float = SECONDS) -> Fit:
    """Return whether a job fits, and the changes that make it fit.

    Parameters
    ----------
    writer: of changes, in the words of the user. seconds: of searching with all settings free, if
        no change of two fits.

    Raises
    ------
    PlannerError: the job breaks a rule of its training system.
    """
    job = judge.job
    as_is = judge.verdict(job)
    # Offers certainly fit; those that may not are made where no other is, to a job that is over.
    shares = (1 - MARGIN,) if as_is.left >= 0 else (1 - MARGIN, 1.0)

    def first(found: Callable[[], Changes]) -> Changes:
        for judge.share in shares:
            if (changes := found()).best:
                break
        return changes

    def on_the_same() -> Changes:
        changes = Changes(judge, writer, as_is.seconds if as_is.fits else math.inf)
        changes.singles(draft_of(job))
        if not as_is.fits:
            changes.pairs(draft_of(job))
        return changes

    changes = first(on_the_same)
    found = changes.ranked()
    singles, pairs = changes.tried[1], changes.tried[2]
    if as_is.fits:
        return Fit(as_is=as_is, changes=found, singles=singles, pairs=pairs)
    more = first(lambda: with_more_gpus(judge, writer, besides=not found)).ranked()
    judge.share = 1.0
    free = None if found else all_free(judge, writer, seconds)
    none = not (found or (free and free.change))
    return Fit(
        as_is=as_is,
        changes=found,
        singles=singles,
        pairs=pairs,
        more_gpus=more[0] if more else None,
        free=free,
        enough=enough(judge, seconds) if none else None,
        otherwise=tuple(trained_otherwise(judge)) if none else (),
        noun=judge.space.noun,
    )
