"""Runtimes besides Megatron-LM; `runtimes` says whether they run a training job.

They share Megatron's search: its times of kernels and messages, its memory and its schedules. Jobs
that they never run, in any layout, are in no part.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlanError, SpecError
from ilp_planner.costs.training.job import base_settings, layout_of
from ilp_planner.evaluate import Violation
from ilp_planner.settings.keys import KEYS
from ilp_planner.settings.rules import JOB_RULES
from ilp_planner.settings.values import as_transformers
from ilp_planner.spaces.runtimes.peft import check_checkpoints
from ilp_planner.spaces.training.enumerate.choices import CHOICES, choices
from ilp_planner.spaces.training.enumerate.demands import check_demands
from ilp_planner.spaces.training.enumerate.recomputations import FULL, NOTHING
from ilp_planner.spaces.training.enumerate.untold import untold
from ilp_planner.spaces.training.runtime import Runtime
from ilp_planner.specs.training import ORDERS, TrainingJob
from ilp_planner.specs.tuning import PEFT_TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Kernels, Recompute, Settings


class CheckedRuntime(Runtime):
    """A training system with a check of jobs and one order of ranks; nothing pads the vocabulary
    but the ranks that divide it. selective: recomputations of parts of every layer that it has."""

    blocks = False
    orders = ORDERS[:1]
    targets = PEFT_TARGETS
    selective: tuple[Recompute, ...] = ()
    tuner = "PEFT and the Trainer"

    @abstractmethod
    def check_job(self, job: TrainingJob) -> None:
        """Refuse a job that cannot be run: a PlanError with the limit."""

    def notes(self) -> tuple[str, ...]:
        """Return remarks for every result."""
        return (
            "times and memory are of Megatron-LM's kernels, buffers and schedules: "
            f"{self.title}'s own are not modelled",
        )

    def settings(
        self, model: Decoder, precision: str, cluster: ClusterSpec, recipe: str
    ) -> Settings:
        """Return the settings shared by plans, but for the choices."""
        base = base_settings(model, precision, cluster, recipe)
        return replace(base, vocab_multiple=1)

    def choices(
        self, base: Settings, asked: Constraints, ranks: int, model: Decoder
    ) -> tuple[Settings, ...]:
        """Return the tried settings of whole jobs: others are as in the base, without regard to the
        request."""
        return choices(base, self.tried, asked.but({*CHOICES} - {*self.listens}))

    def with_degrees(self, choice: Settings, plainest: Settings, d: MegatronDegrees) -> Settings:
        """Return a choice with its degrees; what the Trainer runs is a model of transformers, whose
        operators run one by one. Those have no quantised products, which `check_peft` refuses."""
        settings = super().with_degrees(choice, plainest, d)
        if settings.bits < 16 or not settings.by_trainer:
            return settings
        return as_transformers(settings)

    def chunks(self, layers: int) -> tuple[int, ...]:
        """Return the numbers of layers that may be recomputed from one kept input."""
        return (1,)

    def recomputations(
        self, model: Decoder, kernels: Kernels, asked: Constraints
    ) -> tuple[Recompute, ...]:
        """Return the tried recomputations: nothing, parts of all layers, or all layers."""
        full = (replace(FULL, layers=size) for size in self.chunks(model.layers))
        return tuple(one for one in (NOTHING, *self.selective, *full) if asked.recomputes(one))

    def recomputes(self, settings: Settings, model: Decoder, again: Recompute) -> bool:
        """Tell whether settings of a job go with a recomputation: PEFT and the Trainer have
        checkpoints of single layers alone."""
        if settings.by_trainer:
            try:
                check_checkpoints(again)
            except PlanError:
                return False
        return super().recomputes(settings, model, again)

    def check_asked(self, asked: Constraints) -> None:
        """Refuse values that are in no plan, for any model and devices.

        Raises
        ------
        UsageError: the name, the found value and the plans' ones.
        """
        check_demands(self, asked)

    def check_model(self, model: Decoder, settings: Settings) -> None:
        """Refuse a model, or settings, that not even two replicas can have.

        Raises
        ------
        SpecError: the key, the found value and the runtime's.
        """
        if model.encoders:
            raise SpecError(
                f"{model.encoders[0].name}: found images or sounds before the decoder, expected a "
                f"model of text alone: {self.title}'s space has no encoder; `space=megatron` has"
            )
        if settings.by_trainer:
            settings = as_transformers(settings)
        plain = replace(model, lengths=None)  # how samples are made, jobs say
        job = TrainingJob(model=plain, micro_batch=1, global_batch=2, dp=2, settings=settings)
        for text in self.refusals(job):
            raise SpecError(text)

    def untried(self, asked: Constraints) -> str:
        """Return nothing: left-out values are refused."""
        return ""

    def tries(self, job: TrainingJob, asked: Constraints) -> bool:
        """Tell that settings are tried with all degrees."""
        return True

    def alike(self, degrees: MegatronDegrees) -> MegatronDegrees:
        """Return degrees without the nodes: checks look at the number of micro-batches."""
        return degrees._replace(nodes=())

    def refusals(self, job: TrainingJob) -> Iterator[str]:
        """Yield why the settings of a job do not go with its degrees; its layout is any."""
        length = job.model.layers + 2
        stages = len(job.stages)
        ends = [length * stage // stages for stage in range(stages + 1)]
        even = replace(job, layout=layout_of(ends, job.model))
        for check in JOB_RULES:
            for broken in check(even):
                yield f"{broken.rule}: found {broken.have}, expected {broken.limit}"
        try:
            self.check_job(even)
        except PlanError as error:
            yield str(error)

    def otherwise(self, job: TrainingJob) -> Iterator[str]:
        """Yield nothing: what is not run as it says is refused."""
        yield from ()

    def told_fields(self, settings: Settings, degrees: MegatronDegrees) -> frozenset[str]:
        """Return the fields of settings with a key of the runtime; whether it takes their values
        say its checks."""
        return frozenset(KEYS[self.name])

    def violations(self, job: TrainingJob, base: Settings) -> Iterator[Violation]:
        """Yield the runtime's refusals, and settings that it lacks."""
        refused = ""
        try:
            self.check_job(job)
        except PlanError as error:
            refused, _, limit = str(error).partition(", but ")
            yield Violation(self.title, "plan", refused, limit)
        for broken in untold(self, job, base):
            if broken.have.split()[0] not in refused:  # which says more of it
                yield broken
