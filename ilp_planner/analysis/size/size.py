"""The smallest and the cheapest numbers of equal nodes on which a training run ends in time.

A run of so many tokens is a number of iterations, so a limit in days is one on the seconds of an
iteration. Failures cost more on more GPUs, which makes that limit lower. A number of nodes is ruled
out when a lower bound on the time of all plans on exactly these nodes is above the limit. So the
smallest cluster is proved when all smaller ones are ruled out, and the cheapest when no other one
has a bound on its price below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import UsageError
from ilp_planner.base.numerics import NEVER, PROVED
from ilp_planner.base.resident import uncollected
from ilp_planner.base.units import HOUR
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.objectives.node_sets import MOST_SETS, every_set, node_sets
from ilp_planner.spaces.objectives.on_nodes import SetSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ilp_planner.analysis.size.failures import Failures
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan

FIRST_MOMENT = 1.0  # seconds of a first look at a number of nodes
LONGER = 4.0  # times as long as the look before
FOR_FIRST = 0.4  # of the time, for a number of nodes on which a plan ends in time
FOR_SMALLEST = 0.6  # of the time left, for the proof that fewer do not
LOOKS = 3  # first looks that take all the time for them
# Numbers of nodes are looked at by odd factors below these: powers of two, round numbers, all.
ODD_FACTORS = (2, 16, math.inf)
WIDER = 2  # numbers of nodes that may be the cheapest, of the smallest


@dataclass(frozen=True, kw_only=True)
class Run:
    """A training run. steps: iterations. seconds: that it may take. price: of a GPU and hour; nan:
    not known, so that GPU-hours stand for it."""

    steps: float
    seconds: float
    failures: Failures
    price: float = math.nan

    def allowed(self, gpus: int) -> float:
        """Return the seconds that an iteration may take on so many GPUs."""
        return self.seconds / (self.steps * self.failures.factor(gpus))

    def taken(self, gpus: int, seconds: float) -> float:
        """Return the seconds of the run, by those of an iteration."""
        return self.steps * seconds * self.failures.factor(gpus)

    @property
    def rate(self) -> float:
        """The price of a GPU and hour, 1 if it is not known."""
        return 1.0 if math.isnan(self.price) else self.price


class Choice(NamedTuple):
    """A cluster that ends in time, with its fastest known plan.

    gpus, nodes: that train; spares: nodes beside them. seconds: of an iteration; bound: that no
    plan on these nodes undercuts. taken: seconds of the run. lost: share of it, by failures.
    every: seconds between checkpoints. cost: of the run; GPU-hours without a price.
    """

    problem: Problem[Any]
    plan: AnyPlan
    gpus: int
    nodes: int
    spares: int
    seconds: float
    bound: float
    taken: float
    lost: float
    every: float
    cost: float


class Sized(NamedTuple):
    """What was found for one kind of GPU.

    smallest, cheapest: None if no cluster ends in time. most: nodes of the largest cluster that was
    asked about. open: smaller numbers of nodes than the smallest that are not ruled out; all that
    are not if there is none. cheapest_most: nodes of the largest cluster that the cheapest is of.
    cheapest_bound: that no cluster up to it costs less than; gap: relative to it. parts: numbers of
    GPUs below a node that were asked about; parts_open: those below the smallest that are not ruled
    out. noun: for people, of one of the plans.
    """

    smallest: Choice | None
    cheapest: Choice | None
    most: int
    node_size: int
    open: tuple[int, ...]
    cheapest_most: int = 0
    cheapest_bound: float = math.nan
    parts: tuple[int, ...] = ()
    parts_open: tuple[int, ...] = ()
    noun: str = "plan"

    @property
    def gap(self) -> float:
        """How much less another cluster may cost, relative to the cheapest."""
        if self.cheapest is None or not self.cheapest.cost > 0:
            return math.nan
        return max(0.0, 1 - self.cheapest_bound / self.cheapest.cost)


def size_on(
    problem: Problem[Any],
    run: Run,
    *,
    limits: Limits | None = None,
    deadline: Deadline | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Sized:
    """Find the smallest and the cheapest number of a cluster's equal nodes on which a run ends in
    time.

    Parameters
    ----------
    problem: on as many nodes as there may be. limits: seconds, gap of the cheapest, workers.
    told: of what happens, for a terminal.

    Raises
    ------
    UsageError: more nodes than every number of them can be asked about.
    """
    limits = limits or Limits()
    if not every_set(problem.cluster):
        raise UsageError(
            f"gpus: found {problem.cluster.node_count} nodes in cluster {problem.cluster.name!r}, "
            f"expected at most {MOST_SETS}"
        )
    with uncollected():
        return _Search(problem, run, limits, deadline or limits.deadline(), told).found()


class _Search:
    """State of one search. sets: a number of nodes each, ascending."""

    def __init__(
        self,
        problem: Problem[Any],
        run: Run,
        limits: Limits,
        deadline: Deadline,
        told: Callable[[str], None],
    ) -> None:
        self.problem, self.run, self.limits, self.deadline = problem, run, limits, deadline
        self.told = told
        self.size = problem.cluster.devices_of_nodes[0]
        numbers = sorted(node_sets(problem.cluster), key=lambda one: len(one.nodes))
        self.sets = [SetSearch(problem, one) for one in numbers]

    # ---- of one number of nodes ------------------------------------------------------------------

    def gpus(self, one: SetSearch) -> int:
        return len(one.nodes.nodes) * self.size

    def allowed(self, one: SetSearch) -> float:
        return self.run.allowed(self.gpus(one))

    def ends(self, one: SetSearch) -> bool:
        """Tell whether a plan was found that ends in time."""
        return one.seconds <= self.allowed(one)

    def ruled_out(self, one: SetSearch) -> bool:
        """Tell whether no plan on exactly these nodes ends in time."""
        return one.bound >= min(self.allowed(one), NEVER) * (1 - PROVED)

    def cost(self, one: SetSearch, seconds: float) -> float:
        """Return what the run costs by the seconds of an iteration."""
        gpus = self.gpus(one)
        billed = gpus + self.run.failures.idle(gpus) * self.size
        return billed * self.run.rate * self.run.taken(gpus, seconds) / HOUR

    def look(
        self,
        one: SetSearch,
        cutoff: float,
        deadline: Deadline,
        gap: float = 0.0,
        *,
        closing: bool = False,
        any_plan: bool = False,
    ) -> None:
        """Search these nodes for plans below a cutoff, but for a gap. closing: there is hardly a
        plan below it. any_plan: until one is found."""
        self.told(f"{self.gpus(one)} GPUs")
        limits = replace(self.limits, seconds=math.inf, gap=gap)
        found: list[float] = []
        if any_plan:
            deadline = Deadline(deadline.left, lambda: not found, memory=deadline.memory)

        def note(incumbent: float, _: float) -> None:
            if incumbent < cutoff:
                found.append(incumbent)

        task = Task(limits, "auto", note if any_plan else None, deadline)
        one.work(task, cutoff, closing=closing)

    # ---- the smallest ----------------------------------------------------------------------------

    def found(self) -> Sized:
        """Return the smallest and the cheapest."""
        self.first(self.deadline.within(FOR_FIRST * self.deadline.left))
        self.close_smaller(self.deadline.within(FOR_SMALLEST * self.deadline.left))
        small = self.smallest()
        if small is None:
            still = [one for one in self.sets if not self.ruled_out(one)]
            least = min((self.cost(one, one.bound) for one in still), default=math.inf)
            most = len(self.sets)
            noun, open_ = self.problem.plan_noun, self.numbers(still)
            return Sized(None, None, most, self.size, open_, most, least, noun=noun)
        most = min(len(self.sets), WIDER * len(small.nodes.nodes))
        wide = [one for one in self.sets if len(one.nodes.nodes) <= most]
        self.close_dearer(wide)
        small = self.smallest()
        assert small is not None
        self.look(small, small.seconds, self.deadline, self.limits.gap)
        best = min((one for one in wide if self.ends(one)), key=lambda o: self.cost(o, o.seconds))
        bounds = [self.cost(o, o.bound) for o in wide if self.ends(o) or not self.ruled_out(o)]
        return Sized(
            self.choice(small),
            self.choice(best),
            len(self.sets),
            self.size,
            self.numbers(self.smaller(small)),
            most,
            min(min(bounds), self.cost(best, best.seconds)),
            noun=self.problem.plan_noun,
        )

    def numbers(self, sets: Iterable[SetSearch]) -> tuple[int, ...]:
        return tuple(len(one.nodes.nodes) for one in sets)

    def smallest(self) -> SetSearch | None:
        return next((one for one in self.sets if self.ends(one)), None)

    def smaller(self, small: SetSearch | None) -> list[SetSearch]:
        """Return the numbers of nodes below the smallest known that are not ruled out."""
        upper = len(self.sets) if small is None else self.sets.index(small)
        return [one for one in self.sets[:upper] if not self.ruled_out(one)]

    def first(self, deadline: Deadline) -> None:
        """Find a plan that ends in time on few nodes: by halves of powers of two, of round numbers
        of nodes, then of all numbers. Numbers on which no plan has the demands say nothing of
        others."""
        for odd in ODD_FACTORS:
            some = [one for one in self.smaller(self.smallest()) if odd_factor(one) < odd]
            low, high = 0, len(some)
            while low < high and deadline.goon() and (odd < math.inf or not self.smallest()):
                middle = (low + high) // 2
                one = some[middle]
                if one.problem() is None:
                    del some[middle]
                    high -= 1
                    continue
                moment = deadline.within(max(FIRST_MOMENT, deadline.left / LOOKS))
                self.look(one, self.allowed(one), moment, any_plan=True)
                if self.ends(one):
                    high = middle
                else:
                    low = middle + 1

    def close_smaller(self, deadline: Deadline) -> None:
        """Rule out smaller numbers of nodes, or find plans on them: by halves of what is left."""
        moment, looked = FIRST_MOMENT, set[int]()
        while deadline.goon():
            smaller = self.smaller(self.smallest())
            left = [one for one in smaller if id(one) not in looked]
            if not smaller:
                return
            if not left:
                moment, looked = moment * LONGER, set()
                continue
            one = left[len(left) // 2]
            looked.add(id(one))
            self.look(one, self.allowed(one), deadline.within(moment), closing=True)

    # ---- the cheapest ----------------------------------------------------------------------------

    def close_dearer(self, wide: Sequence[SetSearch]) -> None:
        """Look for cheaper clusters, the most promising first, until none is left."""
        moment, looked = FIRST_MOMENT, set[int]()
        while self.deadline.goon():
            best = min(self.cost(one, one.seconds) for one in wide if self.ends(one))
            enough = best * (1 - max(self.limits.gap, PROVED))
            left = [
                one
                for one in wide
                if not self.ruled_out(one) and self.cost(one, one.bound) < enough
            ]
            if not left:
                return
            new = [one for one in left if id(one) not in looked]
            if not new:
                moment, looked = moment * LONGER, set()
                continue
            one = min(new, key=lambda o: (self.cost(o, o.bound), -len(o.nodes.nodes)))
            looked.add(id(one))
            self.told(f"{self.gpus(one)} GPUs")
            cutoff = min(self.allowed(one), one.seconds, best / self.cost(one, 1.0))
            self.look(one, cutoff, self.deadline.within(moment), self.limits.gap)

    def choice(self, one: SetSearch) -> Choice:
        """Return a number of nodes with its best plan."""
        assert one.found is not None
        assert one.found.plan is not None
        gpus, failures = self.gpus(one), self.run.failures
        return Choice(
            problem=one.found.problem,
            plan=one.found.plan,
            gpus=gpus,
            nodes=len(one.nodes.nodes),
            spares=failures.idle(gpus),
            seconds=one.seconds,
            bound=min(one.bound, one.seconds),
            taken=self.run.taken(gpus, one.seconds),
            lost=1 - 1 / failures.factor(gpus),
            every=failures.interval(gpus),
            cost=self.cost(one, one.seconds),
        )


def odd_factor(one: SetSearch) -> int:
    """Return the largest odd factor of a number of nodes: degrees divide numbers with small ones
    well."""
    number = len(one.nodes.nodes)
    return number // (number & -number)


def steps_of(tokens: float, problem: Problem[Any]) -> float:
    """Return the iterations of a run of so many tokens."""
    spec = problem.spec
    assert spec is not None
    return math.ceil(tokens / (problem.global_batch * tokens_of_sample(problem)))


def tokens_of_sample(problem: Problem[Any]) -> float:
    """Return the tokens of a sample; 0 if samples have none."""
    assert problem.spec is not None
    return problem.spec.architecture.tokens
