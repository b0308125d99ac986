"""The treatment of each setting by a runtime's search, read off the runtime's answers about small
examples: values of its plans there are values that it tries."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING

from ilp_planner.inputs.constraints import CHOICES as ASKABLE
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.spaces.megatron.choices import CHOICES
from ilp_planner.spaces.megatron.example_jobs import EXAMPLES, EXPERTS, PLAIN, jobs_of
from ilp_planner.spaces.megatron.rows import DECIDED, FIXED, GIVEN, LEFT_OUT, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ilp_planner.spaces.megatron.rows import Row
    from ilp_planner.spaces.megatron.runtime import Runtime
    from ilp_planner.specs.training import TrainingJob

SEARCHED, AS_ASKED, FOLLOWS = "searched", "as asked", "follows"
MODELS = (PLAIN, EXPERTS)  # examples of what may be asked for
HOW = {
    SEARCHED: "the search tries these values",
    AS_ASKED: "the user says it; otherwise as in the model's file, or the first value",
    FOLLOWS: "from degrees, model and devices",
    FIXED: "plans have this one value",
    LEFT_OUT: "could be otherwise, and is not tried",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What is done about a setting.

    how: one of `HOW`. values: that plans have; on_request: that they have besides where they are
    asked for. asked_by: the parameters of a request that do so. remark: why, or when, with
    parameters in backquotes.
    """

    setting: str
    fields: tuple[str, ...]
    how: str
    values: tuple[str, ...]
    on_request: tuple[str, ...] = ()
    asked_by: tuple[str, ...] = ()
    remark: str = ""


def treatments(runtime: Runtime) -> tuple[Treatment, ...]:
    """Return the treatment of each setting by a runtime's search, in the order of `ROWS`."""
    jobs = [job for example in EXAMPLES for job in jobs_of(runtime, example)]
    return tuple(_treatment(runtime, row, jobs) for row in ROWS)


@cache
def known_treatments(runtime: Runtime) -> tuple[Treatment, ...]:
    """Return `treatments`, computed once."""
    return treatments(runtime)


def _treatment(runtime: Runtime, row: Row, jobs: Sequence[TrainingJob]) -> Treatment:
    values = row.values(runtime) if row.values else values_of(runtime, row, jobs)
    on_request = on_request_of(runtime, row, values)
    how = _how(runtime, row, values, on_request)
    return Treatment(
        setting=row.name,
        fields=row.fields,
        how=how,
        values=values,
        on_request=on_request,
        asked_by=row.asked_by if how in (SEARCHED, AS_ASKED) or on_request else (),
        remark=runtime.lacks.get(row.name) or runtime.says.get(row.name, row.remark),
    )


def _how(runtime: Runtime, row: Row, values: tuple[str, ...], on_request: tuple[str, ...]) -> str:
    """Return one of `HOW`."""
    described = row.values is not None and values != ("1",)
    several = len(values) > 1 or values == (row.span,)
    if row.kind == GIVEN:
        return AS_ASKED if described or several else FIXED
    if several or (described and row.kind == DECIDED):
        follows = row.kind == FIXED or (row.choice and row.choice not in runtime.listens)
        return FOLLOWS if follows else SEARCHED
    if on_request:
        return AS_ASKED
    return LEFT_OUT if row.kind == LEFT_OUT and row.name not in runtime.lacks else FIXED


def values_of(runtime: Runtime, row: Row, jobs: Sequence[TrainingJob]) -> tuple[str, ...]:
    """Return the values of a row in jobs; of several fields a text for each, or one for all of them
    if each has one value, or all have none."""
    if row.choice in runtime.listens:
        return decided_by(row.choice, jobs)
    if len(row.fields) == 1:
        read = CHOICES[row.choice].read if row.choice else None
        found = (
            read(job.settings) if read else _text(row, attrgetter(row.fields[0])(job))
            for job in jobs
        )
        values = tuple(dict.fromkeys(found))
        return (row.span,) if row.span and len(values) > 1 else values
    each = {
        field.rpartition(".")[2]: dict.fromkeys(_text(row, attrgetter(field)(job)) for job in jobs)
        for field in row.fields
    }
    if all([*found] == ["none"] for found in each.values()):
        return ("none",)
    texts = [f"{name} {' or '.join(found)}" for name, found in each.items()]
    several = any(len({attrgetter(field)(job) for job in jobs}) > 1 for field in row.fields)
    return tuple(texts) if several else (", ".join(texts),)


def decided_by(name: str, jobs: Iterable[TrainingJob]) -> tuple[str, ...]:
    """Return the values of a choice in jobs if it decides something."""
    return tuple(dict.fromkeys(_each_decided(name, jobs)))


def _each_decided(name: str, jobs: Iterable[TrainingJob]) -> Iterator[str]:
    choice = CHOICES[name]
    for job in jobs:
        if not choice.idle(job.settings, _replicated(job)):
            yield choice.read(job.settings)


def _replicated(job: TrainingJob) -> bool:
    """Tell whether several ranks have the same parameters, of experts or of the rest."""
    experts = job.model.experts is not None and job.expert_dp > 1
    return job.dp * job.settings.cp > 1 or experts


def on_request_of(runtime: Runtime, row: Row, tried: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of plans on request only."""
    if row.on_request:
        return row.on_request(runtime)
    if row.choice not in runtime.listens:
        return ()
    asked = {
        value: constraints_of({row.choice: value})
        for value in ASKABLE[row.choice]
        if value not in tried
    }
    return tuple(
        value
        for value, only in asked.items()
        if any(value in _each_decided(row.choice, jobs_of(runtime, one, only)) for one in MODELS)
    )


def _text(row: Row, value: object) -> str:
    words = dict(row.words)
    if value in words:
        return words[value]
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value in ("", ()) else f"{value:g}" if isinstance(value, float) else str(value)
