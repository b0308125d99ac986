"""Other ways to train that fit where no setting of a job does: another training system, or moments
of fewer bits, adapters, and a base in 4 bits, in every system that has adapters. The latter learn
something else, so that nobody but the user can choose them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ilp_planner.analysis.fit.system import space_of_runtime
from ilp_planner.base.errors import PlannerError
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Request
from ilp_planner.job.verdict import MARGIN
from ilp_planner.settings.table import BY_NAME, SETTINGS
from ilp_planner.settings.values import FUSED_LOSS, LORA_TARGETS, USUAL_TARGETS
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.spaces.training.build import build_for
from ilp_planner.spaces.training.enumerate.choices import CHOICES, values_of
from ilp_planner.spaces.training.search.least_memory import SPARE, least_share
from ilp_planner.specs.training import LIGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.analysis.fit.judge import Judge
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.space import MegatronSpace

PRECISION = "precision"  # the input of this name
LOSS, TARGETS = (
    next(name for name, choice in CHOICES.items() if choice is wanted)
    for wanted in (FUSED_LOSS, LORA_TARGETS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSo:
    """A way to train that fits. said: values by the names of settings. needed: bytes of the fullest
    GPU of a plan that does. runtime: the name of the space of that plan. by: the programs."""

    said: Mapping[str, str]
    needed: float
    runtime: str
    by: str

    @property
    def learns_the_same(self) -> bool:
        """Tell whether another training system alone makes the job fit, with Liger's loss at
        most."""
        return self.said.keys() <= {LOSS}


def trained_otherwise(judge: Judge) -> Iterator[TrainedSo]:
    """Yield ways to train with a plan that surely fits, with what the job trains already, and
    Liger's loss where none does without. The job's own training system comes first; in each system
    every way needs less than those before, and another system that trains the job as it is has no
    other way."""
    own_runtime = judge.space.runtime.name
    newest = (name for name in RUNTIMES if "@" not in name)
    for name in sorted(newest, key=lambda name: name != own_runtime):
        yield from _trained_in(judge, space_of_runtime(name))


def _trained_in(judge: Judge, space: MegatronSpace) -> Iterator[TrainedSo]:
    """Yield the ways of one training system."""
    own = values_of(judge.job.settings)
    if own[TARGETS] == "+".join(judge.space.runtime.targets):  # as the system has them unasked
        own[TARGETS] = USUAL_TARGETS
    least = math.inf
    kept = {row.name: own[row.name] for row in SETTINGS if row.learns and not _plain(row.name, own)}
    if space.name != judge.space.name:
        same = _first_that_fits(judge, space, kept, {})
        if same and same.learns_the_same:
            yield same
            return
    for row in (row for row in SETTINGS if row.lighter):
        beside = dict([row.beside] if row.beside else ())
        for value in row.lighter:
            every = {**beside, row.name: value}
            said = {name: value for name, value in every.items() if _plain(name, own)}
            if row.name not in said:
                continue
            way = _first_that_fits(judge, space, kept, said)
            if way and way.needed < least:
                least = way.needed
                yield way


def _first_that_fits(
    judge: Judge, space: MegatronSpace, kept: Mapping[str, str], said: Mapping[str, str]
) -> TrainedSo | None:
    """Return a way to train, with Liger's loss where it does not fit without, and in 16 bits where
    the system has no such products in 8 or 4; None if it does not fit, or if the system does not
    have it."""
    own, plain = judge.recipe, judge.job.settings.precision
    for precision, liger in itertools.product(dict.fromkeys((own, "")), (False, True)):
        loss = {LOSS: LIGER} if liger else {}
        try:
            problem = _problem(judge, space, {**kept, **said, **loss}, precision)
            share = least_share(problem) * SPARE
        except PlannerError:
            continue
        if share <= 1 - MARGIN:
            runtime, tuned = space.runtime, problem.costs.choices[0].by_trainer
            higher = {} if precision == own else {PRECISION: plain}
            return TrainedSo(
                said={**said, **higher, **loss},
                needed=share * max(problem.memory_limits.values()),
                runtime=space.name,
                by=runtime.tuner if tuned else runtime.title,
            )
    return None


def _plain(name: str, own: Mapping[str, str]) -> bool:
    """Tell whether a job has the value of a setting that searches have where nothing is said."""
    return own[name] in BY_NAME[name].search_of("").values[:1]


def _problem(
    judge: Judge, space: MegatronSpace, asked: Mapping[str, str], precision: str
) -> Problem[MegatronCosts]:
    """Return the problem of plans of a training system with these demands.

    Raises
    ------
    PlannerError: no plan has the demands.
    """
    request = Request(
        files={},
        space=space.name,
        global_batch=judge.job.global_batch,
        precision=precision,
        constraints=constraints_of(asked),
    )
    objects = {"model": judge.model, "cluster": judge.site.of(judge.job.world)}
    return build_for(InputFiles(request, objects=objects), space)
