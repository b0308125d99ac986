"""Time and memory of a job, by the rules, memory and times of judged plans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.analysis.fit.needs import Needs, Site, smallest_devices, telling_ranks
from ilp_planner.base.errors import PlanError, PlannerError
from ilp_planner.costs.training.iteration import (
    SLOWEST,
    WAITING,
    host_share,
    iteration_terms,
    rank_seconds,
    slowest_seconds,
    stage_times,
    stages_of,
)
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.job.arithmetic import recomputed_flops
from ilp_planner.job.memory import stage_of_rank
from ilp_planner.settings.table import SETTINGS
from ilp_planner.spaces.throughput import Iteration, rates_of, waiting_share
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.enumerate.graphs import graphs_beside
from ilp_planner.spaces.training.enumerate.rules import check_job
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.prices import hourly_price
from ilp_planner.specs.time_errors import kind_of_job, known_on

if TYPE_CHECKING:
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.base import Space
    from ilp_planner.spaces.throughput import Throughput
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.specs.model import ModelSpec
    from ilp_planner.specs.time_errors import Known
    from ilp_planner.specs.training import TrainingJob

# What searches leave out unless it is asked for is tried here as well.
ALL_ASKED = constraints_of(
    {
        row.name: row.domain.values
        for row in SETTINGS
        if any(search.left_out for search in row.search.values())
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged(Needs):
    """A job with its memory and time. seconds: of an iteration. done: the throughput. nodes: of its
    cluster. hourly: their price per hour; None: not known. known: what is known of the error of its
    time."""

    seconds: float
    done: Throughput
    nodes: int
    hourly: float | None
    known: Known


def space_of(own: Space[Any, Any] | None) -> MegatronSpace:
    """Return the space with the rules for changes of a job: that of its plan if a training system
    runs it, else Megatron-LM's."""
    return own if isinstance(own, MegatronSpace) else MegatronSpace()


def has_launch_lines(own: Space[Any, Any] | None) -> bool:
    """Tell whether launch lines of Megatron-LM say the jobs of that space."""
    return space_of(own).runtime is MEGATRON


class Judge:
    """Judges changes of one job: the same model and samples, on more or fewer of the same GPUs."""

    def __init__(
        self, site: Site, model: ModelSpec, job: TrainingJob, space: MegatronSpace
    ) -> None:
        """Take the GPUs, the model, a job of it and the space with the rules of its changes."""
        self.site, self.model, self.job, self.space = site, model, job, space
        self.share = 1.0  # of the memory of GPUs, that changes may need
        self._problems: dict[int, Problem[MegatronCosts]] = {}

    @property
    def recipe(self) -> str:
        """The job's recipe of products in 8 or 4 bits; empty for none."""
        return self.job.settings.kernels.quantised

    def problem(self, world: int) -> Problem[MegatronCosts]:
        """Return the problem whose plans are jobs of so many ranks.

        Raises
        ------
        PlannerError: the GPUs do not exist, or they cannot train the model.
        """
        if world not in self._problems:
            request = Request(
                files={},
                space=self.space.name,
                global_batch=self.job.global_batch,
                max_cp=world,
                precision=self.recipe,
            )
            objects = {"model": self.model, "cluster": self.site.of(world)}
            # The job is given: the search may have no plan on as many GPUs.
            files = InputFiles(request, objects=objects, possible=False)
            trained = self.job.settings.by_trainer
            self._problems[world] = build_for(files, self.space, trained=trained)
        return self._problems[world]

    def check(self, job: TrainingJob) -> None:
        """See that a job can run.

        Raises
        ------
        PlannerError: it breaks a rule of its runtime, or cannot be had on these GPUs.
        """
        problem = self.problem(job.world)
        broken = next(check_job(problem, job, self.space.runtime.violations), None)
        if broken is not None:
            title = self.space.runtime.title
            raise PlanError(f"{title} cannot run the job: {broken}")

    def verdict(self, job: TrainingJob) -> Judged:
        """Return memory and time of a job, whether it fits or not.

        Raises
        ------
        PlannerError: as `check` does.
        """
        self.check(job)
        return self._judged(job, told=True)

    def faster(self, job: TrainingJob, within: float) -> Judged | None:
        """Return the judgement of a job that keeps the rules, needs at most `share` of the memory
        and takes less than so many seconds; None of any other.

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
        if within < math.inf and ranks.least_work * job.micro_batches / job.pp >= within:
            return None
        parts = costs.memory(job, problem.cluster)
        devices = smallest_devices(job, problem.cluster)
        telling = telling_ranks(job, devices)
        limits = [self.share * device.memory for device in devices]
        if any(stage_of_rank(parts, rank).needed > limits[rank] for rank in telling):
            return None
        times = stage_times(ranks, job, stages_of(ranks, job))
        if slowest_seconds(job, times) >= within:
            return None
        if sum(iteration_terms(ranks, job, times).values()) >= within:
            return None
        try:
            plan = plan_of_job(job, problem.cluster, model=problem.model)
        except PlanError:
            return None
        if not runtime.tries(job, ALL_ASKED) or not evaluate(problem, plan).legal:
            return None
        return self._judged(job)

    def device(self, job: TrainingJob, pp_rank: int) -> str:
        """Return the usual name of the device with least memory of a pipeline rank."""
        problem = self.problem(job.world)
        network = problem.costs.ranks_of_job(job, problem.cluster).network
        types, limits = problem.cluster.device_types, problem.memory_limits
        return types[min(network.stage_types(job, pp_rank), key=limits.__getitem__)].type

    def _judged(self, job: TrainingJob, *, told: bool = False) -> Judged:
        """Return the judgement of a job. told: with its wait for the host, which nobody asks of
        changes."""
        problem = self.problem(job.world)
        parts = problem.costs.memory(job, problem.cluster)
        ranks = problem.costs.ranks_of_job(job, problem.cluster)
        times = stage_times(ranks, job, stages_of(ranks, job))
        terms = iteration_terms(ranks, job, times)
        seconds = sum(terms.values())
        busy = [job.micro_batches * load for load in rank_seconds(job, times)]
        done = Iteration(
            samples=job.global_batch,
            seconds=seconds,
            again=recomputed_flops(job),
            bubble=waiting_share(terms[SLOWEST] + terms[WAITING], sum(busy) / job.pp, seconds),
            busy=max(busy) / seconds,
            tuning=job.settings.tuning,
            micro_batch=job.micro_batch,
            host=host_share(ranks, seconds) if told else None,
            graphs=graphs_beside(problem, job, self.space.runtime) if told else "",
        )
        types = problem.cluster.device_types
        devices = [types[name] for name in problem.cluster.type_of]
        timed = devices if problem.profile_source.startswith("analytic") else ()
        kind = kind_of_job(job.model, job.settings, job.world, self.space.name)
        return Judged(
            job=job,
            ranks=tuple(stage_of_rank(parts, rank) for rank in range(job.pp)),
            devices=smallest_devices(job, problem.cluster),
            seconds=seconds,
            done=rates_of(
                job.model.on_ranks(job.settings.cp), job.settings.precision, devices, done
            ),
            nodes=problem.cluster.node_count,
            hourly=hourly_price(problem.cluster, problem.cluster.node_of),
            known=known_on(timed, kind),
        )
