"""Settings that a runtime lacks: a plan has the runtime's own behaviour.

`Runtime.told_fields` lists the fields of settings that a runtime has. All others follow from these,
the degrees and the space's own settings (`Runtime.with_degrees`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.evaluate import Violation
from ilp_planner.settings import table
from ilp_planner.settings.values import with_fields
from ilp_planner.spaces.training.enumerate.choices import CHOICES
from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
from ilp_planner.specs.recipes import quantised_kernels
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ilp_planner.spaces.training.runtime import Runtime
    from ilp_planner.specs.training import Settings, TrainingJob


SETTINGS = "settings."


class Field(NamedTuple):
    """A field of settings, with the name of its row and that of the choice that it is part of."""

    name: str
    row: str
    choice: str


FIELDS = tuple(
    Field(field.removeprefix(SETTINGS), row.title, row.name)
    for row in table.SETTINGS
    for field in row.fields
    if field.startswith(SETTINGS)
)
NO_PART = ("imbalance", "carried")  # what is assumed of tokens, and what an export writes back


def untold(runtime: Runtime, job: TrainingJob, base: Settings) -> Iterator[Violation]:
    """Yield the settings of a job that its runtime cannot be told, and does otherwise.

    base: the settings shared by all plans of the space.
    """
    yield from _untold(runtime, job.settings, base, _degrees(job))


def as_it_does(
    runtime: Runtime, job: TrainingJob, base: Settings, usual: Settings | None = None
) -> TrainingJob:
    """Return a job with the settings that its runtime cannot be told as the runtime has them.

    usual: only settings that are as in it are changed; None: all.
    """
    found = _otherwise(runtime, job.settings, base, _degrees(job))
    values = {
        field.name: expected
        for field, have, expected in found
        if usual is None or have == attrgetter(field.name)(usual)
    }
    return replace(job, settings=with_fields(job.settings, values))


def _degrees(job: TrainingJob) -> MegatronDegrees:
    return MegatronDegrees(
        tp=job.tp,
        cp=job.settings.cp,
        ep=job.settings.ep,
        etp=job.expert_tp if job.model.experts else 0,
        dp=job.dp,
        pp=job.pp,
        micro_batch=0,
        order=ORDERS.index(job.settings.order),
        nodes=(),
    )


@lru_cache(maxsize=4096)  # thousands of plans of a search have the same few
def _untold(
    runtime: Runtime, settings: Settings, base: Settings, degrees: MegatronDegrees
) -> tuple[Violation, ...]:
    found = []
    for field, have, expected in _otherwise(runtime, settings, base, degrees):
        if not _idle(field, settings, degrees):
            limit = f"{_text(expected)}, as {runtime.title} has no setting for it"
            what = f"{SETTINGS}{field.name} {_text(have)}"
            found.append(Violation(field.row, "plan", what, limit))
    return tuple(found)


def _otherwise(
    runtime: Runtime, settings: Settings, base: Settings, degrees: MegatronDegrees
) -> Iterator[tuple[Field, Any, Any]]:
    """Yield the fields that a runtime lacks, if settings differ from its constant value: with
    both."""
    names = runtime.told_fields(settings, degrees)
    always = runtime.with_degrees(_told(settings, base, names), base, degrees)
    for field in FIELDS:
        if field.name in names or field.name.rpartition(".")[2] in NO_PART:
            continue
        have, expected = (attrgetter(field.name)(one) for one in (settings, always))
        if have != expected:
            yield field, have, expected


def _told(settings: Settings, base: Settings, names: Collection[str]) -> Settings:
    """Return the settings shared by plans, with the fields of settings that a runtime has.
    Consequences of them: whether parameters are gathered from the stepped copy, its width, and
    whether quantised parameters are gathered as such."""
    values = {name: attrgetter(name)(settings) for name in names}
    optimizer = base.optimizer.sharing(settings.optimizer.sharding)
    optimizer = replace(optimizer, master=0 if settings.precision == "fp32" else 4)
    kernels, recipe = base.kernels, settings.kernels.quantised
    if recipe != kernels.quantised and "kernels.quantised" in names:
        plain = replace(kernels, quantised="", quantised_parameters=False)
        kernels = quantised_kernels(plain, recipe)
    return with_fields(replace(base, optimizer=optimizer, kernels=kernels), values)


def _idle(field: Field, settings: Settings, degrees: MegatronDegrees) -> bool:
    """Tell whether a field makes no difference beside the others."""
    if field.name == "optimizer.from_master":
        return not degrees.replicated
    choice = CHOICES.get(field.choice)
    if field.name == "kernels.loss_kernel" and choice is not None:
        return choice.read(settings) == "none"
    return choice is not None and choice.idle(settings, degrees.replicated)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return str(value) if value != "" else "none"
