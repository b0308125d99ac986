"""The values that users may ask for in a runtime's plans, as `ilp-plan runtimes` says them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ilp_planner.base.errors import UsageError
from ilp_planner.inputs.constraints import CHOICES as ASKABLE
from ilp_planner.inputs.constraints import space_with
from ilp_planner.spaces.megatron.choices import CHOICES
from ilp_planner.spaces.megatron.example_jobs import (
    EXAMPLES,
    jobs_of,
    more_recomputations,
    said_recomputations,
)
from ilp_planner.spaces.megatron.rows import ROWS
from ilp_planner.spaces.megatron.treatment import decided_by, on_request_of
from ilp_planner.specs.pipeline_layout import FIRST, REMAINDERS
from ilp_planner.specs.training import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.spaces.megatron.runtime import Runtime
    from ilp_planner.specs.training import TrainingJob

# The first row that is about what can be asked for. Where there are no virtual stages, there is
# nothing to ask about which of them take what is left over.
ROWS_OF = {name: row for row in reversed(ROWS) for name in row.asked_by}
ROWS_OF["remainder"] = ROWS_OF["virtual_stages"]


def check_askable(runtime: Runtime, asked: Constraints) -> None:
    """Refuse values that no plan of a runtime has, for any model and devices.

    Raises
    ------
    UsageError: the first value, the plans' values, and the reason.
    """
    for name, value in _said(runtime, asked):
        have, examples = _values(runtime, name), ASKABLE.get(name, (value,))
        if (value if value in examples else examples[-1]) in have:  # of numbers, any other
            continue
        row = ROWS_OF[name].name
        why = runtime.lacks.get(row) or runtime.says.get(row, "")
        instead = f" or `space={space_with(name, value)}`"
        raise UsageError(
            f"`{name}={value}`: found it for {runtime.title}, expected `{name}={','.join(have)}`"
            f"{instead}{why and f'; {runtime.title}: {why}'}"
        )


def _said(runtime: Runtime, asked: Constraints) -> Iterator[tuple[str, str]]:
    """Yield the values that were asked for, with their names; numbers of virtual stages if ranks
    have one."""
    for name in ASKABLE:
        for value in getattr(asked, name):
            yield name, value
    if not runtime.interleaves and not asked.allows("virtual_stages", 1):
        yield "virtual_stages", str(asked.virtual_stages)


@cache
def _values(runtime: Runtime, name: str) -> tuple[str, ...]:
    """Return the plans' values of a constraint, tried anyway or on request."""
    if name in OTHERS:
        return OTHERS[name](runtime)
    jobs = _examples(runtime)
    tried = decided_by(name, jobs) or (CHOICES[name].read(jobs[0].settings),)
    return (*tried, *on_request_of(runtime, ROWS_OF[name], tried))


@cache
def _examples(runtime: Runtime) -> tuple[TrainingJob, ...]:
    return tuple(job for example in EXAMPLES for job in jobs_of(runtime, example))


def _recomputations(runtime: Runtime) -> tuple[str, ...]:
    found = {*said_recomputations(runtime), *more_recomputations(runtime)}
    also = {"selective": not found.isdisjoint(PARTS), "block": runtime.blocks}
    return tuple(name for name in ASKABLE["recompute"] if name in found or also.get(name))


OTHERS: dict[str, Callable[[Runtime], tuple[str, ...]]] = {
    "recompute": _recomputations,
    "rank_order": lambda runtime: runtime.orders,
    "schedule": lambda runtime: runtime.schedules,
    "virtual_stages": lambda runtime: ("1",),
    "remainder": lambda runtime: REMAINDERS if runtime.interleaves else (FIRST,),
}
