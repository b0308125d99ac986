"""The sizes of a training run on several kinds of GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.size.failures import Failures
from ilp_planner.analysis.size.size import Run, Sized, size_on, steps_of, tokens_of_sample
from ilp_planner.base.errors import InfeasibleError, SpecError, UsageError
from ilp_planner.base.units import DAY
from ilp_planner.inputs.files import InputFiles, cluster_or_gpus
from ilp_planner.inputs.request import Reference
from ilp_planner.settings.beside import notes_beside
from ilp_planner.spaces.objectives.any_nodes import build_for_any_nodes
from ilp_planner.spaces.registry import build_problem
from ilp_planner.spaces.throughput import physical_seconds
from ilp_planner.specs.gpus import gpu
from ilp_planner.specs.prices import PriceList, price_list

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.analysis.size.size import Choice
    from ilp_planner.base.deadline import Deadline
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.optimize.solvers.base import Limits

MOST = 16_384  # GPUs, if nobody says
LIKELY = 12  # clusters that are asked about first have so many times the GPUs of the physical bound
FACTORS = ("tp", "pp", "cp", "dp")  # of the number of GPUs of a plan
MORE = 8  # times as many, where none of these ends in time


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What is asked for.

    tokens: of the run. seconds: that it may take. gpus: names of the table. prices: of a GPU and
    hour, by these names. most: GPUs that a cluster may have.
    """

    tokens: float
    seconds: float
    gpus: tuple[str, ...]
    failures: Failures = field(default_factory=Failures)
    prices: PriceList = field(default_factory=lambda: PriceList({}))
    most: int = MOST

    def price(self, name: str) -> float:
        """Return the price of a GPU and hour; nan if it is not known."""
        found = self.prices.prices.get(name)
        return math.nan if found is None else found


class OnGpu(NamedTuple):
    """What was found on one kind of GPU. steps: of the run; batch, sample: samples of a step and
    tokens of a sample. refused: why nothing was searched; empty if it was. notes: on settings that
    are taken as others need them."""

    gpu: str
    found: Sized | None
    steps: float = 0.0
    batch: int = 0
    sample: float = 0
    refused: str = ""
    notes: tuple[str, ...] = ()


def wish_of(
    tokens: float,
    length: float,
    gpus: str | Sequence[str],
    *,
    price: str | None = None,
    failures: Failures | None = None,
    most: int | None = None,
) -> Wish:
    """Return what is asked for. length: days. price: as `price_list` reads it.

    Raises
    ------
    SpecError: a GPU that the table has not. UsageError: none, or a price of another one.
    """
    said = gpus.split(",") if isinstance(gpus, str) else list(gpus)
    names = tuple(dict.fromkeys(gpu(name.strip()).name for name in said if name.strip()))
    if not names:
        raise UsageError("gpus: found none, expected names of GPUs, as H100,H200")
    prices = PriceList({})
    if price is not None:
        called = {name.strip(): gpu(name.strip()).name for name in said if name.strip()}
        prices = price_list(price, names, called)
        if prices.spot:
            raise UsageError(
                f"price: found {price!r}, expected numbers, as {names[0]}=2.5: GPUs of the table "
                "have no spot prices"
            )
    return Wish(
        tokens=tokens, seconds=length * DAY, gpus=names, prices=prices,
        failures=failures or Failures(), most=most or MOST,
    )  # fmt: skip


def size_on_gpus(
    request: Request,
    wish: Wish,
    limits: Limits,
    told: Callable[[str], None] = lambda _: None,
) -> list[OnGpu]:
    """Return the sizes on each kind of GPU, which share the time; why, where there is no plan.

    Raises
    ------
    PlannerError: no kind of GPU can train the model; for the reason of the first one.
    """
    deadline, found = limits.deadline(), []
    errors: list[SpecError | InfeasibleError] = []
    for place, name in enumerate(wish.gpus):
        within = deadline.within(deadline.left / (len(wish.gpus) - place))
        try:
            found.append(_size(request, wish, name, limits, within, told))
        except (SpecError, InfeasibleError) as error:
            errors.append(error)
            found.append(OnGpu(name, None, refused=str(error)))
    if len(errors) == len(found):
        raise errors[0]
    return found


def _size(
    request: Request,
    wish: Wish,
    name: str,
    limits: Limits,
    deadline: Deadline,
    told: Callable[[str], None],
) -> OnGpu:
    (most, least), largest = _first_most(request, wish, name), _whole(wish.most, name)
    _check_possible(request, name, least, most)
    problem = problem_of(request, name, most)
    run = Run(
        steps=_steps(problem, wish),
        seconds=wish.seconds,
        failures=wish.failures,
        price=wish.price(name),
    )

    def sized_on(some: Problem[Any]) -> Sized:
        return size_on(
            some, run, limits=limits, deadline=deadline, told=lambda text: told(f"{name}: {text}")
        )

    found = sized_on(problem)
    while found.smallest is None and most < largest and deadline.goon():
        most = min(largest, MORE * most)
        found = sized_on(problem_of(request, name, most))
    if found.smallest and found.smallest.nodes == 1 and found.node_size > gpu(name).node:
        finer = sized_on(problem_of(request, name, found.node_size))  # by its nodes
        found = finer if finer.smallest else found
    if found.smallest and found.smallest.nodes == 1:
        parts = halves(gpu(name).node, below=found.node_size)
        found = with_parts(found, parts, lambda gpus: sized_on(problem_of(request, name, gpus)))
    return OnGpu(
        name,
        found,
        run.steps,
        problem.global_batch,
        tokens_of_sample(problem),
        notes=(*notes_beside(partial(getattr, problem.constraints)),),
    )


def halves(node: int, below: int) -> tuple[int, ...]:
    """Return the parts of a node that clouds rent, of fewer GPUs than `below`: halves, again and
    again."""
    found = []
    while node % 2 == 0:
        node //= 2
        found.append(node)
    return tuple(sorted(gpus for gpus in found if gpus < below))


def with_parts(whole: Sized, halved: Sequence[int], sized_on: Callable[[int], Sized]) -> Sized:
    """Return the sizes on one node and more, with parts of a node. halved: their GPUs, ascending.
    sized_on: the sizes on so many GPUs alone.
    """
    parts = {gpus: sized_on(gpus) for gpus in halved}
    ended = [part for part in parts.values() if part.smallest and part.cheapest]
    smallest = ended[0].smallest if ended else whole.smallest
    assert smallest is not None
    return whole._replace(
        smallest=smallest,
        cheapest=min((one.cheapest for one in (*ended, whole) if one.cheapest), key=_cost),
        cheapest_bound=min(one.cheapest_bound for one in (*parts.values(), whole)),
        parts=tuple(halved),
        parts_open=tuple(n for n, part in parts.items() if n < smallest.gpus and part.open),
    )


def _cost(choice: Choice) -> float:
    return choice.cost


def problem_of(request: Request, name: str, gpus: int) -> Problem[Any]:
    """Return the problem of a request on up to so many GPUs of a kind. Some numbers of them, or
    all, may have no plan with the demands: `SetSearch` rules these out."""
    return build_problem(_inputs(request, name, gpus).unchecked())


def _check_possible(request: Request, name: str, least: int, most: int) -> None:
    """Refuse demands that no plan meets on the GPUs that they need, nor on any up to the most that
    was tried.

    Raises
    ------
    InfeasibleError: for the reason on the fewest. SpecError: the GPUs cannot train the model.
    """
    try:
        build_problem(_inputs(request, name, least))
    except InfeasibleError as error:
        try:
            build_for_any_nodes(_inputs(request, name, most))
        except InfeasibleError:
            raise error from None


def _inputs(request: Request, name: str, gpus: int) -> InputFiles:
    cluster = str(cluster_or_gpus(None, f"{gpus}x{name}"))
    files = {**request.files, "cluster": Reference(name=cluster)}
    return InputFiles(replace(request, files=files))


def _least(request: Request, degree: str) -> int:
    """Return the least demanded value of a degree; 1 if nothing is demanded."""
    demanded = getattr(request.constraints, degree)
    return 1 if demanded is None else min(first for first, _ in demanded.ranges)


def _whole(gpus: int, name: str) -> int:
    """Return as many GPUs in whole nodes, and beyond one in whole domains of NVLink; fewer than
    fill a node as they are."""
    kind = gpu(name)
    for size in (kind.domain, kind.node):
        if gpus > size:
            return gpus // size * size
    return gpus


def _first_most(request: Request, wish: Wish, name: str) -> tuple[int, int]:
    """Return how many GPUs to ask about first: by the physical bound, and what usual shares of it
    are reached; and how many the demanded degrees need, of which one node may have no plan."""
    size = min(gpu(name).node, wish.most)
    problem = build_problem(_inputs(request, name, size).unchecked())
    steps = _steps(problem, wish)
    assert problem.spec is not None
    device = problem.cluster.device_types[problem.cluster.type_names[0]]
    one = physical_seconds(
        problem.spec.architecture, [device], {problem.spec.precision}, problem.global_batch
    )
    needed = one * steps / wish.seconds
    least = math.lcm(size, math.prod(_least(request, degree) for degree in FACTORS))
    asked = max(least, math.ceil(LIKELY * needed / size) * size)
    return _whole(min(wish.most, asked), name), _whole(min(wish.most, least), name)


def _steps(problem: Problem[Any], wish: Wish) -> float:
    """Return the steps of the run.

    Raises
    ------
    UsageError: samples have no tokens.
    """
    if problem.spec is None or not tokens_of_sample(problem):
        raise UsageError("tokens: found a model whose samples have none, expected a language model")
    return steps_of(wish.tokens, problem)
