"""What a job takes and needs, by the rules, memory and times that plans are judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.anatomy.memory import stage_of_rank
from ilp_planner.errors import PlanError, PlannerError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.spaces.megatron.build import build_for
from ilp_planner.spaces.megatron.rules import check_job
from ilp_planner.specs.training import CP_COMMUNICATIONS, SHARDINGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.analysis.fit.site import Site
    from ilp_planner.anatomy.memory import RankMemory
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.megatron.costs import MegatronCosts
    from ilp_planner.spaces.megatron.space import MegatronSpace
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.training import TrainingJob

# What searches leave out unless it is asked for is tried here as well.
ALL_ASKED = constraints_of({"sharding": SHARDINGS, "cp_comm": CP_COMMUNICATIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """A job with what it needs.

    ranks: memory of a GPU of every pipeline rank. limits: bytes of it that may be used.
    """

    job: TrainingJob
    ranks: tuple[RankMemory, ...]
    limits: tuple[float, ...]

    @property
    def fullest(self) -> int:
        """The pipeline rank that decides: the one with least room left."""
        return min(range(len(self.ranks)), key=self.room)

    def room(self, pp_rank: int) -> float:
        """Return the bytes that a GPU of a pipeline rank has left; below 0 where it has too few."""
        return self.limits[pp_rank] - self.ranks[pp_rank].needed

    @property
    def left(self) -> float:
        """Bytes that are left on the GPU that decides."""
        return self.room(self.fullest)

    @property
    def fits(self) -> bool:
        """Whether every GPU has room for what it needs."""
        return self.left >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Needs):
    """The same with what it takes. seconds: of an iteration."""

    seconds: float


class Judge:
    """Judges changes of one job: the same model and samples, on more or fewer of the same GPUs."""

    def __init__(
        self, site: Site, model: ModelSpec, job: TrainingJob, space: MegatronSpace
    ) -> None:
        """Take the GPUs, the model, a job of it and the space whose rules its changes keep."""
        self.site, self.model, self.job, self.space = site, model, job, space
        self._problems: dict[int, Problem[MegatronCosts]] = {}

    def problem(self, world: int) -> Problem[MegatronCosts]:
        """Return the problem whose plans are jobs of so many ranks.

        Raises
        ------
        PlannerError: there are no such GPUs, or they cannot train the model.
        """
        if world not in self._problems:
            request = Request(
                files={},
                space=self.space.name,
                global_batch=self.job.global_batch,
                max_cp=world,
                precision=self.job.settings.kernels.quantised,
            )
            objects = {"model": self.model, "cluster": self.site.of(world)}
            self._problems[world] = build_for(InputFiles(request, objects=objects), self.space)
        return self._problems[world]

    def needs(self, job: TrainingJob) -> Needs:
        """Return what a job needs, whether it fits or not.

        Raises
        ------
        PlannerError: it breaks a rule of its runtime, or cannot be had on these GPUs.
        """
        problem = self.problem(job.world)
        broken = next(check_job(problem, job, self.space.runtime.violations), None)
        if broken is not None:
            title = self.space.runtime.title
            raise PlanError(f"{title} cannot run the job: {broken}")
        return Needs(**self._needs(job))

    def verdict(self, job: TrainingJob) -> Judged:
        """Return the same with what the job takes, were there room.

        Raises
        ------
        PlannerError: as `needs` raises it.
        """
        self.needs(job)
        return self._judged(job)

    def faster(self, job: TrainingJob, within: float) -> Judged | None:
        """Return what is found of a job that keeps the rules, fits and takes less than so many
        seconds; None of any other.

        Its plan is judged at the end as any plan is, by every rule.
        """
        try:
            problem = self.problem(job.world)
        except PlannerError:
            return None
        runtime, costs = self.space.runtime, problem.costs
        if any(check_job(problem, job, runtime.violations)):
            return None
        ranks = costs.ranks_of_job(job, problem.cluster)
        if ranks.least_work * job.micro_batches / job.pp >= within:
            return None
        parts = costs.memory(job, problem.cluster)
        limits = enumerate(self._limits(problem, job))
        if any(stage_of_rank(parts, rank).needed > limit for rank, limit in limits):
            return None
        if self.seconds(job) >= within:
            return None
        try:
            plan = plan_of_job(job, problem.cluster, model=problem.model)
        except PlanError:
            return None
        if not runtime.tries(job, ALL_ASKED) or not evaluate(problem, plan).legal:
            return None
        return self._judged(job)

    def device(self, job: TrainingJob, pp_rank: int) -> str:
        """Return what people call the device with least memory of a pipeline rank."""
        problem = self.problem(job.world)
        network = problem.costs.ranks_of_job(job, problem.cluster).network
        types, limits = problem.cluster.device_types, problem.memory_limits
        return types[min(network.stage_types(job, pp_rank), key=limits.__getitem__)].type

    def seconds(self, job: TrainingJob) -> float:
        """Return the seconds of an iteration."""
        from ilp_planner.spaces.megatron.iteration import iteration_terms

        problem = self.problem(job.world)
        ranks = problem.costs.ranks_of_job(job, problem.cluster)
        return sum(iteration_terms(ranks, job).values())

    def _judged(self, job: TrainingJob) -> Judged:
        return Judged(**self._needs(job), seconds=self.seconds(job))

    def _needs(self, job: TrainingJob) -> dict[str, Any]:
        problem = self.problem(job.world)
        parts = problem.costs.memory(job, problem.cluster)
        return {
            "job": job,
            "ranks": tuple(stage_of_rank(parts, rank) for rank in range(job.pp)),
            "limits": tuple(self._limits(problem, job)),
        }

    def _limits(self, problem: Problem[MegatronCosts], job: TrainingJob) -> Iterator[float]:
        """Yield the bytes that the smallest device of every pipeline rank has."""
        cluster, limits = problem.cluster, problem.memory_limits
        if len(limits) == 1:
            yield from [problem.memory_limit] * job.pp
            return
        network = problem.costs.ranks_of_job(job, cluster).network
        for rank in range(job.pp):
            yield min(limits[name] for name in network.stage_types(job, rank))
