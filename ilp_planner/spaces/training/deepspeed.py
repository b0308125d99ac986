"""DeepSpeed's space: ZeRO 0 to 3, tensor and expert parallelism, and its pipeline.

Checkpoints span equally many layers, a divisor of the model's; in a pipeline DeepSpeed counts the
embedding and the final norm as layers too, so its layers move by one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.spaces.runtimes.deepspeed import check_deepspeed
from ilp_planner.spaces.runtimes.limits import check_loss, check_moments
from ilp_planner.spaces.runtimes.peft import check_peft
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.checked import CheckedRuntime
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.training import SHARDINGS

if TYPE_CHECKING:
    from ilp_planner.inputs.files import InputFiles
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.training import Settings, TrainingJob


class DeepSpeed(CheckedRuntime):
    """DeepSpeed 0.19.8."""

    name = "deepspeed"
    title = "DeepSpeed"
    usual_sharding = SHARDINGS
    interleaves = False
    most_cp = 1
    tuner = "PEFT, the Trainer and DeepSpeed"

    def check_job(self, job: TrainingJob) -> None:
        """Refuse a job that DeepSpeed cannot run: a PlanError with its limit."""
        check_deepspeed(job)
        check_moments(job, self.title)
        check_loss(job, self.title)
        if job.settings.by_trainer:
            check_peft(job)

    def told_fields(self, settings: Settings, degrees: MegatronDegrees) -> frozenset[str]:
        """Return the fields of settings that it is told: ZeRO overlaps gradients, or not
        (`overlap_comm`), and nothing else does."""
        zero = degrees.pp == 1 and settings.optimizer.sharding != "none"
        overlap = {"optimizer.overlap_gradients"} if zero else set()
        return super().told_fields(settings, degrees) | overlap

    def chunks(self, layers: int) -> tuple[int, ...]:
        """Return the numbers of layers that a checkpoint may span."""
        return divisors(layers)

    def with_degrees(self, choice: Settings, plainest: Settings, d: MegatronDegrees) -> Settings:
        """Return a choice with its degrees.

        The layers of a pipeline may divide the sequence, layers that DeepSpeed makes
        tensor-parallel itself do not. ZeRO reduces gradients while others are computed
        (`overlap_comm`), a pipeline at its end (`runtime/pipe/engine.py: _exec_reduce_grads`). If
        no two ranks have the same parameters, whatever was asked for, it is ZeRO 1, which goes with
        a pipeline as well.
        """
        settings = super().with_degrees(choice, plainest, d)
        optimizer = settings.optimizer
        if not d.replicated:
            optimizer = replace(optimizer, sharding=self.tried["sharding"][0])
        overlaps = d.pp == 1 and optimizer.sharding != "none"
        return replace(
            settings,
            sequence_parallel=d.tp > 1 and d.pp > 1,
            optimizer=replace(optimizer, overlap_gradients=overlaps),
        )


DEEPSPEED = DeepSpeed()


@dataclass(frozen=True, repr=False)
class DeepSpeedSpace(MegatronSpace):
    """A part for every choice of degrees and of ZeRO."""

    name = DEEPSPEED.name
    noun = "DeepSpeed plan"
    runtime = DEEPSPEED


def build(files: InputFiles) -> Problem[MegatronCosts]:
    """Read all inputs and build the problem of DeepSpeed's space."""
    return build_for(files, DeepSpeedSpace())
