"""torchtitan's space: FSDP2 and HSDP, tensor, context and expert parallelism, and pipelines.

Of activation checkpointing it has "full", and "selective" by operators (`job.operators`); of the
pipeline's schedules 1F1B and Interleaved1F1B, with Megatron's order of operations, and the ones
with divided backward passes (`spaces.runtimes.limits.check_torch_schedule` has the conditions).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.schedule.formulas import PIPELINES
from ilp_planner.settings.keys import wordless
from ilp_planner.spaces.runtimes.limits import (
    Unfit,
    check_loss,
    check_moments,
    nearest_word,
)
from ilp_planner.spaces.runtimes.peft import check_peft
from ilp_planner.spaces.runtimes.torchtitan import TOOL as EARLIER_TOOL
from ilp_planner.spaces.runtimes.torchtitan import alone, check_torchtitan
from ilp_planner.spaces.runtimes.torchtitan_python import TOOL, check_model, check_runnable
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.checked import CheckedRuntime
from ilp_planner.spaces.training.enumerate.recomputations import BY_OPERATORS
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Settings, TrainingJob


MEASURED_STAGES = 3  # virtual stages on a rank, all of which PyTorch keeps gathered


class Torchtitan(CheckedRuntime):
    """A release of torchtitan: the newest has its name alone. Its FSDP keeps parameters gathered
    until the backward pass (`gradients` sharded: `fsdp_reshard_after_forward` is `never`) or gives
    them up (`parameters`: `always`). In a pipeline gradients are whole until the last micro-batch,
    and kept parameters stay gathered for all (`job.states.rhythm`). torchtitan's own `default` is
    `never` in a pipeline and `always` elsewhere."""

    selective = (BY_OPERATORS,)
    schedules = PIPELINES
    usual_sharding = ("none", "gradients", "parameters")
    adapters = "fp32"
    packs_together = True

    def implied(self, asked: Constraints) -> Constraints:
        """Return the request: async tensor parallelism is a pass of the compiler."""
        compiles = "on" in asked.tensor_overlap and not asked.compile
        return asked.with_(compile=("on",)) if compiles else asked

    def notes(self) -> tuple[str, ...]:
        """Return remarks for every result."""
        return (
            *super().notes(),
            "virtual stages whose parameters PyTorch gathers again, where a rank has more than "
            f"{MEASURED_STAGES}, are taken to come in time",
        )

    def unmodelled(self, settings: Settings, virtual: int) -> Iterator[str]:
        """Yield the settings of a job without fully modelled costs: also the remark of `notes` on
        many virtual stages."""
        yield from super().unmodelled(settings, virtual)
        if virtual > MEASURED_STAGES and settings.optimizer.divides:
            yield f"{virtual} virtual stages of sharded parameters"

    def tries(self, job: TrainingJob, asked: Constraints) -> bool:
        """Tell whether there are as many ranks as copies are tried: all others are refused anyway,
        one rule of many after the other."""
        return job.dp % job.settings.optimizer.instances == 0

    @abstractmethod
    def check_release(self, job: TrainingJob) -> None:
        """Refuse a job that the release cannot run: a PlanError with its limit."""

    def check_job(self, job: TrainingJob) -> None:
        """Refuse a job that torchtitan cannot run, or does not run so: a PlanError with its limit.
        PEFT and the Trainer have PyTorch's FSDP as well."""
        if job.settings.by_trainer:
            check_peft(job)
        else:
            check_moments(job, self.title)
            check_loss(job, self.title)
            self._check_samples(job)
            self.check_release(job)
        optimizer = job.settings.optimizer
        if optimizer.sharding == "optimizer":
            raise Unfit("settings.optimizer.sharding", "optimizer").but(
                "FSDP divides the copy of parameters that is stepped, and gradients",
                "sharding = gradients",
            )
        if alone(job):
            return
        if not optimizer.from_master:
            raise Unfit("settings.optimizer.from_master", "false").but(
                "parameters are cast from the copy that is stepped", "from_master = true"
            )
        if optimizer.sharding == "none":
            return
        if job.dp * job.settings.cp == optimizer.instances:
            raise Unfit("settings.optimizer.instances", optimizer.instances).but(
                "no two ranks are left to share states", "instances = 1"
            )

    def _check_samples(self, job: TrainingJob) -> None:
        """Refuse samples of documents that only PEFT and the Trainer make."""
        values = self.search_of("batching").values
        if job.batching and job.batching not in values:
            raise Unfit("batching", job.batching).but(
                f"{self.title} makes others", f"batching = {values[0]}, or lora = 16"
            )

    def settings(
        self, model: Decoder, precision: str, cluster: ClusterSpec, recipe: str
    ) -> Settings:
        """Return the settings shared by plans, with what torchtitan always does."""
        base = self.always(self.plainest(super().settings(model, precision, cluster, recipe)))
        return replace(base, optimizer=replace(base.optimizer, from_master=True))

    def choices(
        self, base: Settings, asked: Constraints, ranks: int, model: Decoder
    ) -> tuple[Settings, ...]:
        """Return the settings of whole jobs that are tried: FSDP on all ranks first, then HSDP."""
        copies = asked.sharding_copies or tuple(map(str, divisors(ranks)))
        return super().choices(base, asked.with_(sharding_copies=copies), ranks, model)

    def with_degrees(self, choice: Settings, plainest: Settings, d: MegatronDegrees) -> Settings:
        """Return a choice with its degrees; if no two ranks have the same parameters, there is no
        FSDP. It gathers parameters from the master copy while layers compute, and reduces gradients
        so as well, but in a pipeline. Async tensor parallelism is a pass of the compiler."""
        settings = super().with_degrees(choice, plainest, d)
        optimizer = replace(
            settings.optimizer, overlap_gradients=d.pp == 1, overlap_parameters=True
        )
        optimizer = replace(optimizer, from_master=optimizer.sharding != "optimizer")
        compiled = settings.kernels.compiled or settings.overlap_tensor
        settings = replace(settings, kernels=replace(settings.kernels, compiled=compiled))
        if not d.replicated:
            optimizer = replace(optimizer, sharding="none", instances=1, from_master=False)
        return replace(settings, optimizer=optimizer)


class Newest(Torchtitan):
    """torchtitan 0.3.0: flex attention, experts whole if there is expert parallelism.

    FlexAttention's kernels are taken to be as fast as FlashAttention 2; those of 0.2.2 are cuDNN's
    where a GPU has them (`models/attention.py`: `sdpa_backends`)."""

    name = "torchtitan"
    title = TOOL

    def check_release(self, job: TrainingJob) -> None:
        """Refuse a job that it cannot run."""
        check_model(job)
        check_runnable(job)
        for key, value in wordless(job.settings, self.name, ""):
            raise Unfit(f"settings.{key.field}", value).but(
                f"{self.title} {key.does}", nearest_word(key)
            )


class Earlier(Torchtitan):
    """torchtitan 0.2.2, the last one that is configured by TOML."""

    name = "torchtitan@0.2.2"
    title = EARLIER_TOOL

    def told_fields(self, settings: Settings, degrees: MegatronDegrees) -> frozenset[str]:
        """Return the fields of settings that it is told: parameters are gathered in FP8, or not."""
        fp8 = settings.kernels.quantised == "fp8-current"
        gathered = {"kernels.quantised_parameters"} if fp8 else set()
        return super().told_fields(settings, degrees) | gathered

    def check_release(self, job: TrainingJob) -> None:
        """Refuse a job that it cannot run."""
        check_torchtitan(job)


NEWEST, EARLIER = Newest(), Earlier()


@dataclass(frozen=True, repr=False)
class TorchtitanSpace(MegatronSpace):
    """A part for every choice of degrees and of FSDP."""

    name = NEWEST.name
    noun = "torchtitan plan"
    runtime = NEWEST


@dataclass(frozen=True, repr=False)
class EarlierSpace(MegatronSpace):
    """The same for the release before."""

    name = EARLIER.name
    noun = "torchtitan 0.2.2 plan"
    runtime = EARLIER


def build(files: InputFiles) -> Problem[MegatronCosts]:
    """Read all inputs and build the problem of the newest torchtitan's space."""
    return build_for(files, TorchtitanSpace())


def build_earlier(files: InputFiles) -> Problem[MegatronCosts]:
    """Likewise of the space of the release before."""
    return build_for(files, EarlierSpace())
