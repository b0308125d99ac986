"""torchtitan's space: FSDP2 and HSDP, tensor, context and expert parallelism, and pipelines.

Of activation checkpointing it has "full", and "selective" by operators (`anatomy.operators`); of
the pipeline's schedules 1F1B and Interleaved1F1B, which have Megatron's order of operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ilp_planner.runtimes.limits import Unfit
from ilp_planner.runtimes.torchtitan import alone, check_torchtitan
from ilp_planner.spaces.megatron.build import build_for
from ilp_planner.spaces.megatron.checked import CheckedRuntime
from ilp_planner.spaces.megatron.recomputations import BY_OPERATORS
from ilp_planner.spaces.megatron.space import MegatronSpace
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.problem import Problem
    from ilp_planner.spaces.megatron.costs import MegatronCosts
    from ilp_planner.spaces.megatron.degrees import MegatronDegrees
    from ilp_planner.specs.cluster import ClusterSpec
    from ilp_planner.specs.decoder import Decoder
    from ilp_planner.specs.training import Settings, TrainingJob


class Torchtitan(CheckedRuntime):
    """torchtitan 0.2.2. Its FSDP keeps parameters gathered until the backward pass (`gradients`
    sharded: `fsdp_reshard_after_forward` is `never`) or gives them up (`parameters`: `always`). In
    a pipeline gradients are whole until the last micro-batch, and what is kept stays gathered for
    all (`anatomy/states.py: rhythm`). torchtitan's own `default` is `never` in a pipeline and
    `always` elsewhere."""

    name = "torchtitan"
    title = "torchtitan"
    selective = (BY_OPERATORS,)
    tried: ClassVar = {
        "sharding": ("gradients", "parameters"),
        "cp_comm": ("all_gather", "p2p"),
    }
    lacks: ClassVar = {**CheckedRuntime.lacks, "CUDA graphs": "its release 0.2.2 has none"}
    says: ClassVar = {
        **CheckedRuntime.says,
        "cp by": "keys and values gathered, or around a ring",
        "recomputation": "operators: outputs of attention, of messages and of every other product "
        "are kept (`selective` with `op`); of every n-th layer is left out",
        "kept inputs divided": "tensor parallelism divides them already",
        "sharding": "by FSDP: parameters are given up after a layer's forward pass where they are "
        "sharded (`fsdp_reshard_after_forward` always), else never; none for being asked alone, "
        "with nothing but dp",
        "copies of sharded states": "HSDP",
        "overlap of data parallelism": "of gradients without a pipeline",
        "parameters from the stepped copy": "where they are sharded",
        "gathered inputs kept": "DTensor keeps them",
    }

    def notes(self) -> tuple[str, ...]:
        """Return what a user has to know of every result."""
        return (
            *super().notes(),
            "virtual stages whose parameters PyTorch gathers again, where a rank has more than "
            "three, are taken to come in time",
        )

    def check_job(self, job: TrainingJob) -> None:
        """Refuse a job that torchtitan cannot run, or does not run so: a PlanError with its
        limit."""
        check_torchtitan(job)
        optimizer = job.settings.optimizer
        if alone(job) or optimizer.sharding == "none":
            return
        if optimizer.sharding == "optimizer":
            raise Unfit("settings.optimizer.sharding", "optimizer").but(
                "FSDP divides the copy of parameters that is stepped, and gradients",
                "sharding = gradients",
            )
        if not optimizer.from_master:
            raise Unfit("settings.optimizer.from_master", "false").but(
                "FSDP gathers parameters from the copy that is stepped", "from_master = true"
            )

    def settings(
        self, model: Decoder, precision: str, cluster: ClusterSpec, recipe: str
    ) -> Settings:
        """Return what plans have alike: products keep what DTensor gathered for them."""
        base = super().settings(model, precision, cluster, recipe)
        optimizer = replace(base.optimizer, sharding="gradients", from_master=True)
        return replace(base, optimizer=optimizer, cp_comm="all_gather", keeps_gathered=True)

    def choices(self, base: Settings, asked: Constraints, ranks: int) -> tuple[Settings, ...]:
        """Return the settings of whole jobs that are tried: FSDP on all ranks first, then HSDP."""
        every = super().choices(base, asked, ranks)
        return tuple(
            replace(one, optimizer=replace(one.optimizer, instances=count))
            for count in divisors(ranks)
            for one in every
        )

    def with_degrees(self, choice: Settings, plainest: Settings, d: MegatronDegrees) -> Settings:
        """Return a choice with its degrees; where no two ranks have the same parameters, there is
        no FSDP. It gathers parameters from the master copy while layers compute, and reduces
        gradients so as well, but in a pipeline."""
        settings = super().with_degrees(choice, plainest, d)
        optimizer = replace(
            settings.optimizer, overlap_gradients=d.pp == 1, overlap_parameters=True
        )
        sharded = optimizer.sharding in ("gradients", "parameters")
        optimizer = replace(optimizer, from_master=sharded)
        if not d.replicated:
            optimizer = replace(optimizer, sharding="none", instances=1, from_master=False)
        return replace(settings, optimizer=optimizer)


TORCHTITAN = Torchtitan()


@dataclass(frozen=True, repr=False)
class TorchtitanSpace(MegatronSpace):
    """A part for every choice of degrees and of FSDP."""

    name = TORCHTITAN.name
    runtime = TORCHTITAN


def build(files: InputFiles) -> Problem[MegatronCosts]:
    """Read all inputs and build the problem of torchtitan's space."""
    return build_for(files, TorchtitanSpace())
