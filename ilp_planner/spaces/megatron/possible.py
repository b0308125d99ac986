"""Which parts there are: the choices of degrees, each with every choice of settings that goes with
it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ilp_planner.errors import InfeasibleError
from ilp_planner.spaces.megatron.choices import CHOICES, decided
from ilp_planner.spaces.megatron.degrees import megatron_space
from ilp_planner.spaces.megatron.keeping import rank_of
from ilp_planner.spaces.megatron.parts import MegatronPart
from ilp_planner.spaces.megatron.variants import each_variant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.problem import Problem
    from ilp_planner.spaces.megatron.costs import MegatronCosts
    from ilp_planner.spaces.megatron.degrees import MegatronDegrees
    from ilp_planner.specs.training import Settings


def megatron_parts(problem: Problem[MegatronCosts], costs: MegatronCosts) -> list[MegatronPart]:
    """Return a part for every choice of degrees; those without any variant are left out.

    Raises
    ------
    InfeasibleError: there is none.
    """
    found = list(possible_parts(problem, costs))
    if not found:
        asked = problem.constraints.describe()
        refused = (
            text
            for degrees in possible_degrees(problem, costs)
            for text in costs.runtime.refusals(MegatronPart(problem, costs, degrees).job)
        )
        why = (asked and f" with {asked}") or f": {next(refused, 'no schedule is left')}"
        raise InfeasibleError(
            f"cluster {problem.cluster.name!r}: {costs.runtime.title} has no plan{why}"
        )
    return found


def possible_parts(problem: Problem[MegatronCosts], costs: MegatronCosts) -> Iterator[MegatronPart]:
    """Yield the parts that have a variant.

    Raises
    ------
    InfeasibleError: no degrees are possible, whatever the schedule and the recomputation.
    """
    asked = problem.constraints
    always = asked.virtual_stages is None and asked.layout is None
    always = always and not asked.recompute and not asked.keep and not asked.expert_overlap
    always = always and not asked.schedule
    chosen: dict[MegatronDegrees, tuple[int, ...]] = {}
    for degrees in possible_degrees(problem, costs):
        alike = costs.runtime.alike(degrees)
        numbers = chosen.get(alike)
        taken: list[int] = []
        for number in possible_choices(problem, costs, degrees) if numbers is None else numbers:
            taken.append(number)
            part = MegatronPart(problem, costs, degrees._replace(choice=number))
            if always or next(each_variant(part), None) is not None:
                yield part
        chosen[alike] = tuple(taken)


def possible_choices(
    problem: Problem[MegatronCosts], costs: MegatronCosts, degrees: MegatronDegrees
) -> Iterator[int]:
    """Yield the numbers of the choices of settings that go with degrees, each once."""
    asked = problem.constraints
    chosen = any(getattr(asked, name) for name in CHOICES)
    tried: set[Settings] = set()
    for number in range(len(costs.choices)):
        part = MegatronPart(problem, costs, degrees._replace(choice=number))
        if part.settings in tried:
            continue
        if chosen and any(asked.broken(decided(part.settings, replicated=degrees.replicated))):
            continue
        if any(costs.runtime.refusals(part.job)) and not part.divided:
            continue
        if not costs.runtime.tries(part.job, asked):
            continue
        tried.add(part.settings)
        yield number


def possible_degrees(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> Iterator[MegatronDegrees]:
    """Return the degrees that are possible, some perhaps without a choice of settings that goes
    with them, or a variant.

    Raises
    ------
    InfeasibleError: there are none; when the first one is asked for.
    """
    every = megatron_space(
        costs.model,
        problem.cluster,
        problem.global_batch,
        micro_batches=problem.micro_batches,
        max_tp=problem.max_tp,
        max_cp=costs.max_cp,
        max_stages=problem.max_stages,
        constraints=problem.constraints,
        title=costs.runtime.title,
        orders=costs.runtime.orders,
    )
    keep, cluster = problem.constraints.keep, problem.cluster
    return (d for d in every if all(rank_of(s, cluster, d) is not None for s in keep))
