"""Time and memory of a job, by the rules, memory and times of judged plans.

The judge of a job of options is another training system if Megatron-LM cannot train its model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.fit.needs import Needs, Site, smallest_devices, telling_ranks
from ilp_planner.base.errors import PlanError, PlannerError, SpecError
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
from ilp_planner.formats.nearest_run import differences
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.job.arithmetic import recomputed_flops
from ilp_planner.job.memory import stage_of_rank
from ilp_planner.job.shard import eager
from ilp_planner.settings.job_options import of_others
from ilp_planner.settings.table import SETTINGS
from ilp_planner.settings.values import by_peft_trained
from ilp_planner.spaces.registry import RUNTIMES, runtime_named
from ilp_planner.spaces.throughput import Iteration, rates_of, waiting_share
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.enumerate.graphs import graphs_beside
from ilp_planner.spaces.training.enumerate.rules import check_job
from ilp_planner.spaces.training.enumerate.unfit import check_model
from ilp_planner.spaces.training.enumerate.untold import as_it_does, untold
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.prices import hourly_price
from ilp_planner.specs.time_errors import kind_of_job, known_on
from ilp_planner.specs.training import Settings

if TYPE_CHECKING:
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.base import Space
    from ilp_planner.spaces.throughput import Throughput
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.cluster import ClusterSpec
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
USUAL = Settings()  # of a job that says no more


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


# ---- the training system that judges -------------------------------------------------------------


class Chosen(NamedTuple):
    """The space of the system that runs a job; None: nothing does, so that its times are not known.
    job: with the system's own behaviour for settings that it lacks. note: on that; empty if
    Megatron-LM can train the model and judges it."""

    job: TrainingJob
    space: MegatronSpace | None = None
    note: str = ""


def runtime_for(job: TrainingJob, cluster: ClusterSpec) -> Chosen:
    """Return the system that judges a job: Megatron-LM if it can train the model, else that one
    which runs the job with the fewest settings otherwise, the first of several."""
    try:
        check_model(job.model)
    except SpecError as error:
        head = f"Megatron-LM cannot train the model ({error})"
    else:
        tuning = job.settings.tuning
        if tuning.base:
            found = "a base in 4 bits"
        elif tuning.adapters:
            found = f"adapters named {tuning.targets[0]}"
        elif found := of_others(job.settings):
            pass
        elif eager(job):
            found = "layers as transformers has them"
        else:
            return Chosen(job)
        head = f"Megatron-LM has not {found}"
    newest = (name for name in RUNTIMES if "@" not in name and name != MEGATRON.name)
    spaces = [*map(space_of_runtime, newest)]
    able = [(space, *said) for space in spaces if (said := _tried(space.runtime, job, cluster))]
    if not able:
        names = " nor ".join(space.runtime.title for space in spaces)
        return Chosen(job, note=f"{head}, and neither {names} can: its times are not known")
    running = [(space, own) for space, own, refusal in able if not refusal]
    options = " or ".join(f"`space={space.name}`" for space, *_ in running or able)
    if running:
        space, own = min(running, key=lambda one: len([*differences(job, one[1])]))
        judged = f"judged as {space.runtime.title} runs it"
        if others := ", ".join(differences(job, own)):
            judged += f" ({others})"
        return Chosen(own, space, f"{head}: {judged}; `solve` with {options} plans it")
    (space, _, refusal), *_ = able
    title = space.runtime.title
    return Chosen(
        job,
        note=f"{head}; {title} can, but does not run this job: {refusal}; `solve` with {options} "
        "finds one that it runs",
    )


def runtime_of(job: TrainingJob, cluster: ClusterSpec, name: str) -> Chosen:
    """Return a training system as the judge of a job of its own.

    name: one of `RUNTIMES`.
    """
    space = space_of_runtime(name)
    title, tried = space.runtime.title, _tried(space.runtime, job, cluster)
    if tried is None:
        return Chosen(job, note=f"{title} cannot train the model: its times are not known")
    own, refusal = tried
    if refusal:
        return Chosen(job, note=f"{title} does not run this job: {refusal}; times are not known")
    return Chosen(own, space, f"judged as {title} runs it")


def space_of_runtime(name: str) -> MegatronSpace:
    """Return the space of a training system. name: one of `RUNTIMES`."""
    runtime = runtime_named(name)
    spaces: tuple[type[MegatronSpace], ...] = (MegatronSpace, *MegatronSpace.__subclasses__())
    return next(space for space in spaces if space.runtime is runtime)()


def _tried(
    runtime: Runtime, job: TrainingJob, cluster: ClusterSpec
) -> tuple[TrainingJob, str] | None:
    """Return a job as a training system runs it, if the settings that it lacks are as usual, and
    why it does not run it, empty if it does; None if it cannot even train the model."""
    kernels, precision = job.settings.kernels, job.settings.precision
    try:
        plain = runtime.settings(job.model, precision, cluster, kernels.quantised)
        trained = job.settings.by_trainer
        runtime.check_model(job.model, by_peft_trained(plain) if trained else plain)
    except PlannerError:
        return None
    own = as_it_does(runtime, job, plain, usual=USUAL)
    made = runtime.search_of("batching").demandable
    if job.batching and job.batching not in made:
        return own, f"batching: found {job.batching}, expected {' or '.join(made)}"
    refused = (*runtime.refusals(own), *map(str, untold(runtime, own, plain)))
    return own, next(iter(refused), "")
