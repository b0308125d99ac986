"""A training job in the making: a job, its changed settings, and the resulting job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ilp_planner.spaces.training.enumerate.layouts import plain_layout

if TYPE_CHECKING:
    from ilp_planner.specs.pipeline_layout import PipelineLayout
    from ilp_planner.specs.training import Settings, TrainingJob


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
            settings=settings,
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
