"""Why no plan is possible: a minimal contradictory set of the request."""

from __future__ import annotations

import math
from functools import cached_property, partial
from itertools import combinations, count, product
from typing import TYPE_CHECKING, Any

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, PlannerError
from ilp_planner.costs.training.job import ends_of, plain_layout
from ilp_planner.inputs.constraints import DEGREES, LAYOUT, OF_PLANS, names_of
from ilp_planner.settings.asked_layout import AskedLayout
from ilp_planner.settings.beside import without
from ilp_planner.settings.domains import Numbers
from ilp_planner.settings.table import BY_NAME
from ilp_planner.spaces.training.enumerate.choices import CHOICES, decided
from ilp_planner.spaces.training.enumerate.keeping import keeps
from ilp_planner.spaces.training.enumerate.recomputations import recomputable
from ilp_planner.spaces.training.enumerate.variants import (
    block_of,
    pipelines,
    turns,
    virtual_stages,
)
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import (
    megatron_parts,
    plainest_refusal,
    possible_degrees,
    possible_parts,
)
from ilp_planner.specs.degrees import divisors
from ilp_planner.specs.training import ORDERS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ilp_planner.inputs.problem import Problem
    from ilp_planner.spaces.training.costs import MegatronCosts

    Made = Callable[[Collection[str], int], Problem[MegatronCosts]]
    Offers = frozenset[tuple[int | str, ...]] | None

SECONDS = 5.0  # of looking for what would do
CHANGES = (1, 2, 3)  # of what was said at once, in a repair
MEANT = {  # what is easily taken for something else
    "micro_batch_sizes": "samples of all replicas together, Megatron's micro-batch size times dp",
}
MOST = 200_000  # answers that are kept
SMALL = (1, 2)  # sizes of conflicts that are looked for before any irreducible one is taken


class Answers:
    """Feasibility of sets of demands, for problems that differ in demands alone."""

    def __init__(self) -> None:
        self.count = count()
        self.numbers: dict[object, int] = {}
        self.possible: dict[tuple[int, ...], bool] = {}
        self.offered: dict[tuple[tuple[int, ...], tuple[str, ...]], Offers] = {}

    def bound(self) -> None:
        """Forget everything if there is very much of it."""
        if len(self.numbers) + len(self.possible) + len(self.offered) > MOST:
            # Others may be at work with these, whose numbers are none of those to come.
            self.numbers, self.possible, self.offered = {}, {}, {}


class Demands:
    """The demands on the plans of one problem.

    said: by the names of parameters, as it was said. values: likewise, as they are compared. batch:
    samples of an iteration. make: from names of demands, and a batch, to the problem with these
    alone. answers: that are known, of this batch.
    """

    def __init__(
        self, said: dict[str, str], values: dict[str, Any], batch: int, make: Made, answers: Answers
    ) -> None:
        self.said, self.values, self.answers = said, values, answers
        self.batch, self.make = batch, make
        numbers, following = answers.numbers, answers.count
        self.numbers = {n: numbers.setdefault((n, v), next(following)) for n, v in values.items()}

    def made(self, names: Collection[str]) -> Problem[MegatronCosts]:
        """Return the problem with these alone."""
        return self.make(names, self.batch)

    def key(self, names: Collection[str]) -> tuple[int, ...]:
        """Return a key of some of the demands."""
        return tuple([self.numbers[name] for name in names])

    def possible(
        self, names: Collection[str], problem: Problem[MegatronCosts] | None = None
    ) -> bool:
        """Tell whether some plan meets these, memory aside. problem: with these alone, if it is
        made already."""
        key, known = self.key(names), self.answers.possible
        if key not in known:
            known[key] = self._possible(names, problem)
        return known[key]

    def _possible(self, names: Collection[str], problem: Problem[MegatronCosts] | None) -> bool:
        return _has_plan(lambda: problem or self.made(names))

    def offers(self, changed: tuple[str, ...]) -> Offers:
        """Return the values of some demands in plans that meet the others; None if no plan has the
        others."""
        left = [name for name in self.said if name not in changed]
        key, known = (self.key(left), changed), self.answers.offered
        if key not in known:
            known[key] = self._offers(left, changed) if self.possible(left) else None
        return known[key]

    def _offers(self, left: Collection[str], changed: tuple[str, ...]) -> Offers:
        found: set[tuple[int | str, ...]] = set()
        if set(changed) <= set(OF_PLANS):
            others = self.made(left)
            for part in possible_parts(others, others.costs):
                found.update(product(*(_values(part, name) for name in changed)))
        return frozenset(found)

    def batches(self, deadline: Deadline) -> Iterator[int]:
        """Yield other batches, the nearest first, that so many replicas share as divide the devices
        and have plans that meet all demands. deadline: of looking for them."""
        devices = self.made(self.said).cluster.device_count
        near = {self.batch // n * n + more for n in divisors(devices) for more in (0, n)}
        for batch in sorted(near - {0, self.batch}, key=lambda one: abs(one - self.batch)):
            if not deadline.goon():
                return
            if _has_plan(partial(self.make, self.said, batch)):
                yield batch


def _has_plan(make: Callable[[], Problem[MegatronCosts]]) -> bool:
    """Tell whether a problem can be made and has a plan, memory aside."""
    try:
        problem = make()
        return next(possible_parts(problem, problem.costs), None) is not None
    except PlannerError:
        return False


def check_possible(demands: Demands) -> Problem[MegatronCosts]:
    """Return the problem with all that is demanded; refuse impossible demands, memory aside.

    Raises
    ------
    ConflictError: one line with a smallest conflict, and a repair.
    """
    said = demands.said
    whole = demands.made(said)
    if demands.possible(said, whole):
        return whole
    if not whole.constraints.texts or not demands.possible(()):
        megatron_parts(whole, whole.costs)  # raises what is wrong with the job itself
    raise ConflictError(demands)


class ConflictError(InfeasibleError):
    """Demands that are impossible together. The smallest conflict and a repair are looked for once
    its text is asked for: searches over sets of nodes leave most of them unsaid."""

    def __init__(self, demands: Demands) -> None:
        super().__init__()
        self.demands = demands

    @cached_property
    def text(self) -> str:
        """One line."""
        return _text(self.demands)

    def __str__(self) -> str:
        return self.text


def _text(demands: Demands) -> str:
    """Return a smallest conflict of demands, and a repair."""
    said, whole = demands.said, demands.made(demands.said)
    names = _conflict(tuple(said), demands.possible)
    both = {1: "it", 2: "both"}.get(len(names), "all of them")
    shown = ", ".join(f"`{name}={said[name]}`" for name in names)
    return (
        f"{shown}: no plan of {whole.model} on {whole.cluster.device_count} devices has {both}"
        f"{''.join(f' (`{name}`: {MEANT[name]})' for name in names if name in MEANT)}"
        f"{_reason(names, demands)}{_repair(names, demands)}"
    )


def _reason(names: Collection[str], demands: Demands) -> str:
    """Return the rule that the settings of these demands break with all degrees, else the one that
    they break with the plainest; empty if there is no such rule, or none is found in time."""
    deadline, rules = Deadline(SECONDS), list[str]()
    problem = demands.made(names)
    try:
        for part in _demanded(problem):
            runtime = problem.costs.runtime
            broken = [*runtime.refusals(part.job), *runtime.otherwise(part.job)]
            broken += _of_recomputations(part)
            rules = [rule for rule in rules or broken if rule in broken]
            if not rules or not deadline.goon():
                break
        text = rules[0] if rules else plainest_refusal(_demanded(problem))
    except InfeasibleError:  # no degrees
        return ""
    return f": {text.removeprefix('plan: ')}" if text else ""


def _of_recomputations(part: MegatronPart) -> list[str]:
    """Return the rules that the settings of a part break with every recomputation demanded."""
    asked, costs = part.problem.constraints, part.costs
    runtime, model, settings = costs.runtime, costs.model, part.settings
    tried = (*runtime.recomputations(model, settings.kernels, asked), block_of(1))
    every = [
        [*runtime.refusals_of(settings, model, again)] for again in tried if asked.recomputes(again)
    ]
    if every:
        return [rule for rule in every[0] if all(rule in rules for rules in every)]
    if not asked.modules:
        return []
    has = ", ".join(recomputable(model, settings.kernels))
    return [f"recompute: found {', '.join(asked.modules)}, expected some of its layers' {has}"]


def _demanded(problem: Problem[MegatronCosts]) -> Iterator[MegatronPart]:
    """Yield the parts whose settings are demanded, possible or not."""
    costs = problem.costs
    for degrees in possible_degrees(problem, costs):
        for number in range(len(costs.choices)):
            part = MegatronPart(problem, costs, degrees._replace(choice=number))
            own = decided(part.settings, replicated=degrees.replicated)
            if not any(problem.constraints.broken(own)):
                yield part


def _conflict(
    said: tuple[str, ...], possible: Callable[[Collection[str]], bool]
) -> tuple[str, ...]:
    """Return names that are impossible together: one or two if some are, otherwise a minimal
    set."""
    for size in SMALL:
        for some in combinations(said, size):
            if not possible(some):
                return some
    left = said
    for name in said:
        others = tuple(other for other in left if other != name)
        if not possible(others):
            left = others
    return left


def _repair(names: Sequence[str], demands: Demands) -> str:
    """Return a change that makes a plan possible with all other demands: as few values as possible,
    one of the conflict among them, each nearest to the request; empty if none is found in time.

    Changes of what is trained come last, after another batch.
    """
    deadline = Deadline(SECONDS)
    changes = [
        (first, *more)
        for size in CHANGES
        for first in names
        for more in combinations([name for name in demands.said if name != first], size - 1)
    ]
    learns = {change: any(map(_learns, change)) for change in changes}
    repairs = [partial(_change, change, demands) for change in changes if not learns[change]]
    if any(learns.values()):
        repairs.append(partial(_other_batch, demands, deadline))
    repairs += [partial(_change, change, demands) for change in changes if learns[change]]
    for repair in repairs:
        if not deadline.goon():
            return ""
        if found := repair():
            return found
    return ""


def _learns(name: str) -> bool:
    """Tell whether a demand is on what is trained, or on its arithmetic."""
    return name in BY_NAME and BY_NAME[name].learns


def _other_batch(demands: Demands, deadline: Deadline) -> str:
    """Return the nearest batch that makes all demands possible; empty if none is found in time."""
    batch = next(demands.batches(deadline), 0)
    return f"; `global_batch={batch}` would do" if batch else ""


def _change(changed: tuple[str, ...], demands: Demands) -> str:
    """Return values of some demands that make the others possible."""
    found = demands.offers(changed)
    if found is None:
        return ""
    if not found:
        return f"; without {' and '.join(f'`{name}`' for name in changed)} there are some"

    def farness(values: tuple[int | str, ...]) -> tuple[float, tuple[int | str, ...]]:
        pairs = zip(changed, values, strict=True)
        return sum(_distance(demands.values[name], value) for name, value in pairs), values

    nearest = min(found, key=farness)
    left = {**demands.said, **dict(zip(changed, nearest, strict=True))}
    idle = [name for name in changed if without(name, lambda one: str(left.get(one, "")).split())]
    shown = [f"`{name}={left[name]}`" for name in changed if name not in idle]
    less = f"without {' and '.join(f'`{name}`' for name in idle)}"
    if not shown:
        return f"; {less} there are some"
    return f"; {' with '.join(shown)}{f' {less}' if idle else ''} would do"


def _values(part: MegatronPart, name: str) -> Iterator[int | str]:
    """Yield the values of a demand in the plans of a part."""
    if name == "virtual_stages":
        yield from {variant.virtual for variant in pipelines(part)}
    elif name == "schedule":
        yield from {variant.schedule for variant in pipelines(part)}
    elif name == "micro_batch_group_size":
        several = any(virtual > 1 for virtual in virtual_stages(part))
        yield from (turn or part.degrees.pp for turn in turns(part, 2) if several)
    elif name == LAYOUT:
        for virtual in virtual_stages(part):
            layout = plain_layout(part.costs.model, part.degrees.pp * virtual)
            if keeps(part, ends_of(layout)):
                yield str(layout)
    elif name == "micro_batch_size":
        yield part.degrees.micro_batch
    elif name in DEGREES:
        yield getattr(part.degrees, name)
    elif name in CHOICES:
        yield CHOICES[name].read(part.settings)
    elif name == "rank_order":
        yield ORDERS[part.degrees.order]
    else:
        yield from {name for v in part.variants() for name in names_of(v.recompute)}


def _distance(asked: object, value: int | str) -> float:
    """Return the distance of a value from the request; all names are as far."""
    if isinstance(asked, AskedLayout) and isinstance(value, str):
        return asked.farness(value)
    if isinstance(asked, Numbers) and isinstance(value, int):
        return min(abs(math.log2(value / end)) for ends in asked.ranges for end in ends)
    return 0.0
