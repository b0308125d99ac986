"""Other ways to train that fit where no setting of a job does: moments of fewer bits, adapters, and
a base in 4 bits. Each learns something else, so that nobody but the user can choose it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.base.errors import PlannerError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.job.verdict import MARGIN
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.settings.values import FUSED_LOSS, LORA_TARGETS, USUAL_TARGETS
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.enumerate.choices import CHOICES, values_of
from ilp_planner.spaces.training.search.least_memory import SPARE, least_share
from ilp_planner.spaces.training.torchtitan import TorchtitanSpace
from ilp_planner.specs.training import LIGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.analysis.fit.judge import Judge

LOSS, TARGETS = (
    next(name for name, choice in CHOICES.items() if choice is wanted)
    for wanted in (FUSED_LOSS, LORA_TARGETS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSo:
    """A way to train that fits. said: values by the names of settings. needed: bytes of the fullest
    GPU of a plan that does."""

    said: Mapping[str, str]
    needed: float


def trained_otherwise(judge: Judge) -> Iterator[TrainedSo]:
    """Yield ways to train with a plan of PEFT and the Trainer that surely fits, with what the job
    trains already, and Liger's loss where none does without; each needs less than those before."""
    own = values_of(judge.job.settings)
    if own[TARGETS] == "+".join(judge.space.runtime.targets):  # as the system has them unasked
        own[TARGETS] = USUAL_TARGETS
    least = math.inf
    kept = {row.name: own[row.name] for row in SETTINGS if row.learns and not _plain(row.name, own)}
    for row in (row for row in SETTINGS if row.lighter):
        beside = dict([row.beside] if row.beside else ())
        every = {**beside, row.name: row.lighter}
        said = {name: value for name, value in every.items() if _plain(name, own)}
        if row.name not in said:
            continue
        for way in (said, {**said, LOSS: LIGER}):
            try:
                needed, limit = _needed(judge, {**kept, **way})
            except PlannerError:
                break
            if needed <= (1 - MARGIN) * limit:
                if needed < least:
                    least = needed
                    yield TrainedSo(said=way, needed=needed)
                break


def _plain(name: str, own: Mapping[str, str]) -> bool:
    """Tell whether a job has the value of a setting that searches have where nothing is said."""
    return own[name] in BY_NAME[name].search_of("").values[:1]


def _needed(judge: Judge, asked: Mapping[str, str]) -> tuple[float, float]:
    """Return the bytes that a GPU of the plan with these demands needs that needs least, and those
    of a GPU.

    Raises
    ------
    PlannerError: no plan has the demands.
    """
    request = Request(
        files={},
        space=TorchtitanSpace.name,
        global_batch=judge.job.global_batch,
        constraints=constraints_of(asked),
    )
    objects = {"model": judge.model, "cluster": judge.site.of(judge.job.world)}
    problem = build_for(InputFiles(request, objects=objects), TorchtitanSpace())
    limit = max(problem.memory_limits.values())
    return least_share(problem) * SPARE * limit, limit
