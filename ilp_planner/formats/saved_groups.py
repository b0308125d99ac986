"""What the file of a layer-level plan holds; `saved_plan` is the same for operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.formats.saved_plan import Reference, Saved, Verdict, saved_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.plan import GroupPlan
    from ilp_planner.profiles.shares import Share
    from ilp_planner.profiles.table import Provenance

FILES = ("model", "cluster", "hostfile", "clusterfile", "profile")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInputs:
    """What was asked for, enough to build the problem again.

    files: the inputs that were named, out of `FILES`; that of the profile is `FORMAT:PATH`.
    experiment: which cluster and model of a file of AMP's.
    global_batch: samples; 0: the experiment's own. micro_batch_sizes: samples over all replicas to
    try; empty: all. memory_limit: bytes per device. max_stages, max_tp: at most. All None: not
    limited.
    hidden, sequence, vocabulary: sizes of the model that its file would say. max_cp: at most, for
    `space` megatron; None: by the length of the samples.
    """

    files: Mapping[str, Reference]
    cost_model: str = "native"
    space: str = ""
    memory_rule: str = "device"
    placement: str = "default"
    experiment: str = ""
    global_batch: int = 0
    micro_batch_sizes: tuple[int, ...] = ()
    memory_limit: float | None = None
    max_stages: int | None = None
    max_tp: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    vocabulary: int | None = None
    max_cp: int | None = None

    def name(self, kind: str) -> str | None:
        """Return what the user called an input; None when it was not given."""
        return self.files[kind].name if kind in self.files else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedGroups(Saved):
    """All that the file holds."""

    plan: GroupPlan
    inputs: GroupInputs


def verdict_of_groups(
    evaluation: Evaluation, shares: Mapping[Provenance, Share] | None = None
) -> Verdict:
    """Return an evaluation in the form that is saved; a stage's memory is that of its fullest
    device.

    Parameters
    ----------
    shares: of its time.
    """
    stages = () if evaluation.cost is None else evaluation.cost.stages
    return Verdict(
        legal=evaluation.legal,
        iteration_time=evaluation.iteration_time,
        stages=tuple((cost.time, max(cost.memory, default=math.nan)) for cost in stages),
        violations=tuple(map(str, evaluation.violations)),
        **saved_shares(shares or {}),
    )
