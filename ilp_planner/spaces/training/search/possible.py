"""The parts: the choices of degrees, each with every possible choice of settings."""

from __future__ import annotations

import math
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from ilp_planner.base.deadline import no_limit
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.team import Team
from ilp_planner.spaces.training.enumerate.choices import CHOICES, decided
from ilp_planner.spaces.training.enumerate.degrees import megatron_space
from ilp_planner.spaces.training.enumerate.keeping import rank_of
from ilp_planner.spaces.training.enumerate.variants import each_variant
from ilp_planner.spaces.training.search.parts import MegatronPart

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts
    from ilp_planner.spaces.training.enumerate.degrees import MegatronDegrees
    from ilp_planner.specs.training import Settings

Item = TypeVar("Item")
FEW = 64  # parts of a problem that others remember
MANY = 200  # degrees of which several processes find the choices of settings


def megatron_parts(
    problem: Problem[MegatronCosts],
    costs: MegatronCosts,
    check_time: Callable[[], None] = no_limit,
) -> list[MegatronPart]:
    """Return a part for every choice of degrees; parts without any variant are left out.

    check_time: called again and again; its exceptions end this.

    Raises
    ------
    InfeasibleError: there is none.
    """
    shared, key = costs.known(problem.cluster), all_that_decides(problem, costs)
    if key in shared:
        return [MegatronPart(problem, costs, degrees) for degrees in shared[key]]
    found = list(possible_parts(problem, costs, check_time))
    if 0 < len(found) <= FEW:
        shared[key] = tuple(part.degrees for part in found)
    if not found:
        asked = problem.constraints.describe()
        parts = (MegatronPart(problem, costs, one) for one in possible_degrees(problem, costs))
        why = plainest_refusal(parts) or ("" if asked else "no schedule is left")
        raise InfeasibleError(
            f"cluster {problem.cluster.name!r}: {costs.runtime.title} has no plan"
            f"{f' with {asked}' * bool(asked)}{f': {why}' * bool(why)}"
        )
    return found


def plainest_refusal(parts: Iterable[MegatronPart]) -> str:
    """Return why a runtime does not run the plainest of some parts, the one of fewest ranks for a
    replica; empty if it does. Parts with more are often refused for that alone."""
    plainest = min(parts, key=_width, default=None)
    if plainest is None:
        return ""
    runtime = plainest.costs.runtime
    every = chain(runtime.refusals(plainest.job), runtime.otherwise(plainest.job))
    return next(every, "").removeprefix("plan: ")


def _width(part: MegatronPart) -> int:
    d = part.degrees
    return d.tp * d.pp * d.cp * d.ep


def all_that_decides(problem: Problem[MegatronCosts], costs: MegatronCosts) -> tuple[Hashable, ...]:
    """Return all that decides the possible parts, for problems that share results."""
    return (
        "parts", problem.constraints, costs.choices, costs.max_cp, problem.max_tp,
        problem.max_stages, problem.global_batch, problem.micro_batches,
    )  # fmt: skip


def possible_parts(
    problem: Problem[MegatronCosts],
    costs: MegatronCosts,
    check_time: Callable[[], None] = no_limit,
) -> Iterator[MegatronPart]:
    """Yield the parts that have a variant; parts that were found before are cached.

    check_time: called before each choice of degrees; its exceptions end this.

    Raises
    ------
    InfeasibleError: no degrees are possible, for any schedule and the recomputation.
    """
    known, key = costs.own.on(problem.cluster), all_that_decides(problem, costs)
    if key not in known:
        known[key] = Remembered(lambda: _possible(problem, costs))
    for degrees, numbers in known[key]:
        check_time()
        for number in numbers:
            yield MegatronPart(problem, costs, degrees._replace(choice=number))


def plainest_parts(
    problem: Problem[MegatronCosts], costs: MegatronCosts, most: int
) -> Iterator[MegatronPart]:
    """Yield parts with the plainest settings and the plainest order of ranks, one for each of so
    many choices of degrees at most, spread evenly over all; none if there are fewer.

    Raises
    ------
    InfeasibleError: no degrees are possible.
    """
    every = [degrees for degrees in possible_degrees(problem, costs) if not degrees.order]
    if len(every) <= most:
        return
    parts = (plainest_part(problem, costs, degrees) for degrees in every[:: -(-len(every) // most)])
    yield from filter(None, parts)


def plainest_part(
    problem: Problem[MegatronCosts], costs: MegatronCosts, degrees: MegatronDegrees
) -> MegatronPart | None:
    """Return the part of degrees with the plainest settings; None if it has no variant."""
    number = next(possible_choices(problem, costs, degrees), None)
    if number is None:
        return None
    part = MegatronPart(problem, costs, degrees._replace(choice=number))
    return part if next(each_variant(part), None) is not None else None


def likely_degrees(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> list[list[MegatronDegrees]]:
    """Return degrees in the plainest order of ranks, those together that differ in data and
    pipeline parallelism alone, fewest pipeline ranks first.

    First come degrees that good plans mostly have: messages within layers stay in a node, experts
    are not divided, and micro-batches and context parallelism are as small as possible.

    Raises
    ------
    InfeasibleError: no degrees are possible.
    """
    groups: dict[tuple[Hashable, ...], list[MegatronDegrees]] = {}
    for one in possible_degrees(problem, costs):
        if not one.order:
            key = one.tp, one.cp, one.ep, one.etp, one.micro_batch, one.nodes
            groups.setdefault(key, []).append(one)
    found = [sorted(group, key=lambda one: one.pp) for group in groups.values()]
    each = problem.cluster.nodes[0].devices

    def unlikely(group: list[MegatronDegrees]) -> tuple[bool, int]:
        one = group[0]
        beyond = max(one.tp * one.cp, one.ep * max(1, one.etp)) > each
        return beyond, one.micro_batch.bit_length() + one.cp.bit_length() + (one.etp > 1)

    return sorted(found, key=unlikely)


class Remembered(Generic[Item]):
    """The cached items of an iterator, for several readers, each from the beginning.

    begin: makes the iterator; it yields the same every time. One that was ended by an error, or by
    whoever waited for it, is begun again.
    """

    def __init__(self, begin: Callable[[], Iterator[Item]]) -> None:
        self.begin, self.every = begin, begin()
        self.found: list[Item] = []
        self.lock = Lock()

    def __iter__(self) -> Iterator[Item]:
        place = 0
        while True:
            with self.lock:
                try:
                    while place >= len(self.found):
                        self.found.append(next(self.every))
                except StopIteration:
                    return
                except BaseException:
                    self.every, self.found = self.begin(), []
                    raise
                one = self.found[place]
            yield one
            place += 1


def _possible(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> Iterator[tuple[MegatronDegrees, tuple[int, ...]]]:
    """Yield the degrees that are possible, with the numbers of the choices of settings that go with
    them and leave a variant: perhaps none."""
    asked = problem.constraints
    always = asked.virtual_stages is None and asked.layout is None
    always = always and not asked.recompute and not asked.keep and not asked.expert_overlap
    always = always and not asked.schedule
    for degrees, numbers in with_choices(problem, costs):
        every = ((n, MegatronPart(problem, costs, degrees._replace(choice=n))) for n in numbers)
        yield degrees, numbers if always else tuple(n for n, part in every if has_variant(part))


def with_choices(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> Iterator[tuple[MegatronDegrees, tuple[int, ...]]]:
    """Yield the degrees that are possible, with the numbers of all choices of settings that go with
    them: perhaps none, or none that leaves a variant.

    Raises
    ------
    InfeasibleError: no degrees are possible.
    """
    chosen = _chosen(problem, costs)
    for degrees in possible_degrees(problem, costs):
        alike = costs.runtime.alike(degrees)
        numbers = chosen.get(alike)
        if numbers is None:
            numbers = chosen[alike] = tuple(possible_choices(problem, costs, degrees))
        yield degrees, numbers


def _chosen(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> dict[MegatronDegrees, tuple[int, ...]]:
    """Return the results of `possible_choices` that were found together, by what degrees have in
    common."""
    known, key = costs.own.on(problem.cluster), ("choices", *all_that_decides(problem, costs))
    found: dict[MegatronDegrees, tuple[int, ...]] = known.setdefault(key, {})
    return found


def choose_together(
    problem: Problem[MegatronCosts],
    costs: MegatronCosts,
    workers: int,
    meanwhile: Callable[[], object],
    check_time: Callable[[], None] = no_limit,
) -> None:
    """Find the choices of settings of all degrees, in so many processes, and cache them.

    meanwhile: work of this process that comes first. check_time: called before each choice of
    degrees; its exceptions end this.
    """
    chosen = _chosen(problem, costs)
    unknown: dict[MegatronDegrees, MegatronDegrees] = {}
    with suppress(InfeasibleError):  # which the list of parts says
        for degrees in possible_degrees(problem, costs):
            alike = costs.runtime.alike(degrees)
            if alike not in chosen:
                unknown.setdefault(alike, degrees)

    def choose(degrees: MegatronDegrees) -> tuple[int, ...]:
        check_time()
        return tuple(possible_choices(problem, costs, degrees))

    several = workers if len(unknown) >= MANY else 1
    with Team(choose, several, begun=-math.inf) as team:
        asked = [((one.tp, one.cp, one.ep), one) for one in unknown.values()]
        answers = team.ask(asked, meanwhile)
        chosen.update(zip(unknown, answers, strict=True))


def has_variant(part: MegatronPart) -> bool:
    """Tell whether a part has any variant."""
    known, key = part.costs.known(part.problem.cluster), ("variant", *part.decisive)
    if key not in known:
        known[key] = next(each_variant(part), None) is not None
    found: bool = known[key]
    return found


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
        if not costs.runtime.tries(part.job, asked):
            continue
        if _is_refused(part) and not part.divided:
            continue
        tried.add(part.settings)
        yield number


def _is_refused(part: MegatronPart) -> bool:
    """Tell whether the runtime refuses the settings of a part with its degrees."""
    costs, degrees = part.costs, part.costs.runtime.alike(part.degrees)
    known = costs.known(part.problem.cluster)
    key = ("refused", part.settings, degrees[:-1], part.problem.global_batch)
    if key not in known:
        known[key] = any(costs.runtime.refusals(part.job))
    found: bool = known[key]
    return found


def possible_degrees(
    problem: Problem[MegatronCosts], costs: MegatronCosts
) -> Iterator[MegatronDegrees]:
    """Return the degrees that are possible, some perhaps without a choice of settings that goes
    with them, or a variant.

    Raises
    ------
    InfeasibleError: there are none; when the first one is asked for, unless it is for the demands.
    """
    every = megatron_space(
        costs.model,
        problem.cluster,
        problem.global_batch,
        micro_batches=problem.micro_batches,
        max_tp=problem.max_tp,
        max_cp=costs.max_cp,
        max_stages=problem.max_stages,
        constraints=costs.runtime.batched(costs.model, problem.constraints),
        title=costs.runtime.title,
        orders=costs.runtime.orders,
    )
    keep, cluster = problem.constraints.keep, problem.cluster
    return (d for d in every if all(rank_of(s, cluster, d) is not None for s in keep))
