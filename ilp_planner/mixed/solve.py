"""From a problem of layers on device groups to a plan with a proof.

A plan space falls into parts. Each part is bounded by prices on devices (`bounds/resource_prices`)
on a small outline of its stage graph; what that leaves open below the incumbent is a stage graph,
which labels (`bounds/resource_paths`) or an integer program solve. Where that is too much, parts
that can be a chain of groups are searched in boxes (`bounds/boxes`), up to a little above their
bound each time. A part's bound only rises, so an interrupt loses nothing.
"""

from __future__ import annotations

import dataclasses
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.bounds.resource_paths import search_resource_paths
from ilp_planner.bounds.resource_prices import SPLITS, PricedGraph
from ilp_planner.errors import PlannerError, SolverError, interruptible
from ilp_planner.mixed.climb import FIRST_REACH, boxable, climb
from ilp_planner.mixed.evaluate import GroupEvaluation, evaluate_groups
from ilp_planner.mixed.space import NEVER
from ilp_planner.mixed.spaces import left_out, parts_of
from ilp_planner.result import GroupResult, Ranked, Status, Stop, relative_gap
from ilp_planner.solvers import registry
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ilp_planner.bounds.resource_prices import Interval
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.mixed.space import OpenGraph, SpacePart
    from ilp_planner.plan import GroupPlan

WIDTHS = (300, 3_000, 10_000, 30_000, 2**62)  # labels per node, until nothing is left open
PROVED = 1e-9  # a relative gap that is rounding
CLAIM_ROUNDING = 1e-9  # relative: the same times added in another order
SKETCH_SPLITS = 6
SKETCH_WIDTHS = (20, 200)
STEP = 0.1  # relative: how far above its bound a part is searched next
DIVE_WIDTH = 300
DIVES = (
    0.03,
    0.06,
    0.1,
    0.15,
    0.2,
    0.3,
    0.5,
)  # relative: how far above the bound to look for a first plan
EFFORT = 1e8  # comparisons of labels in a second
NEAR = 0.05  # relative: a guess so near to the incumbent is the incumbent
MOST_BETWEEN = 200_000  # labels
OUTLINE_SPLITS = 8
LABELS = ("auto", "dp")
CERTIFICATE_VERSION = 1


def solve_groups(
    problem: GroupProblem,
    *,
    limits: Limits | None = None,
    solver: str = "auto",
    progress: Callable[[float, float], None] | None = None,
    top: int = 1,
) -> GroupResult:
    """Find the fastest plan, and a lower bound on the time of every plan.

    Parameters
    ----------
    limits: time, gap, workers and seed.
    solver: `auto` or `dp` (labels; `auto` gives to CP-SAT what they leave open), `cp-sat`, `milp`,
    `pulp`; `gradient` and `anneal` are heuristics, whose plan the bound of `auto` is put beside.
    progress: called with (incumbent seconds, bound seconds) as they improve.
    top: how many of the best plans to list; plans count as one when they differ in cuts only.

    Raises
    ------
    UsageError: an unknown solver; more than one plan of a heuristic.
    SolverError: the evaluator refutes what the search believes.
    """
    if registry.is_heuristic(solver):
        from ilp_planner.mixed.heuristic import solve_groups_by_heuristic

        return solve_groups_by_heuristic(problem, limits or Limits(), solver, progress, top)
    search = GroupSearch(problem, limits or Limits(), solver, progress)
    ranking: tuple[Ranked, ...] = ()
    try:
        with interruptible():
            stop = search.run()
            if top > 1 and search.plan is not None:
                from ilp_planner.mixed.ranking import rank

                ranking = rank(search, top)
    except KeyboardInterrupt:
        stop = Stop.USER
    return search.result(stop, ranking)


@dataclasses.dataclass(kw_only=True, eq=False)
class PartState:
    """What is known of one part. bound: seconds, constant included; source: what proved it."""

    part: SpacePart
    bound: float = 0.0
    source: str = ""
    promise: float = 0.0  # seconds, no proof: the order in which to look
    steps: int = 0  # of WIDTHS
    climbs: int = 0  # times that there was nothing up to where it was looked
    boxed: bool = False  # labels alone left too much open
    reach: float = FIRST_REACH
    done: bool = False

    def raise_bound(self, bound: float, source: str) -> None:
        """Take a bound, if it is higher."""
        if bound > self.bound:
            self.bound, self.source = bound, source

    def record(self) -> dict[str, Any]:
        """Return what a certificate keeps."""
        bound = None if self.bound >= NEVER else self.bound
        return {"part": self.part.name, "bound_s": bound, "by": self.source}


def amp_name(degrees: tuple[int, int, int, int]) -> str:
    """Return what certificates call a choice of degrees."""
    tp, dp, pp, samples = degrees
    return f"tp {tp}, dp {dp}, pp {pp}, micro-batch {samples}"


class OutOfTimeError(Exception):
    """The time limit has passed."""


class GroupSearch:
    """State of one solve."""

    def __init__(
        self,
        problem: GroupProblem,
        limits: Limits,
        solver: str,
        progress: Callable[[float, float], None] | None,
    ) -> None:
        if solver not in LABELS:
            registry.get(solver)
        self.problem = problem
        self.limits = limits
        self.solver = solver
        self.progress = progress
        self.started = time.monotonic()
        self.states = [PartState(part=part) for part in parts_of(problem)]
        self.plan: GroupPlan | None = None
        self.evaluation: GroupEvaluation | None = None
        self.objective = math.inf
        self.notes = [*problem.notes, *left_out([state.part for state in self.states])]

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less."""
        return min((state.bound for state in self.states), default=NEVER)

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit."""
        return self.limits.seconds - (time.monotonic() - self.started)

    @property
    def effort(self) -> float:
        """Comparisons of labels that there is time for."""
        return max(self.seconds_left, 0.0) * EFFORT

    def check_time(self) -> None:
        """Stop here when the time is up."""
        if self.seconds_left <= 0:
            raise OutOfTimeError

    def gap_reached(self) -> bool:
        """Tell whether the plan is good enough."""
        return relative_gap(self.objective, self.bound) <= max(self.limits.gap, PROVED)

    # ---- the search -----------------------------------------------------------------------------

    def run(self) -> Stop:
        """Work until proof, gap or time."""
        try:
            if self.problem.space == "amp" and self.solver in LABELS:
                self.run_amp()
                return Stop.PROOF if self.gap_reached() else Stop.TIME
            if self.problem.space == "megatron":
                from ilp_planner.mixed.megatron.search import run_megatron

                return run_megatron(self)
            for state in self.states:
                self.check_time()
                self.sketch(state)
            for state in sorted(self.states, key=lambda s: s.promise):
                self.check_time()
                self.outline(state, self.objective)
            self.dive()
            while not self.gap_reached():
                open_ones = [state for state in self.states if not self.closed(state)]
                if not open_ones:
                    break
                self.check_time()
                self.advance(min(open_ones, key=lambda s: s.bound))
        except OutOfTimeError:
            return Stop.TIME
        proved = relative_gap(self.objective, self.bound) <= PROVED
        if proved or self.plan is None:
            return Stop.PROOF
        return Stop.GAP if self.gap_reached() else Stop.EFFORT

    def sketch(self, state: PartState) -> None:
        """Look for a first good plan in a part, and guess what its best plan takes."""
        part = state.part
        opened = part.sketch()
        if opened is None:
            return
        state.promise = NEVER
        for width in SKETCH_WIDTHS:
            cutoff = self.objective - part.constant
            if not opened.graph.arcs:
                return
            priced = PricedGraph(opened.graph)
            intervals = priced.sweep(cutoff, SKETCH_SPLITS, self.goon)
            if not intervals:
                return
            state.promise = intervals[0].bound + part.constant
            opened = opened.only(priced.open_arcs(intervals, cutoff))
            if self.find(state, opened, intervals, cutoff, width) or not self.goon():
                return
        state.boxed = boxable(self, state)

    def find(
        self,
        state: PartState,
        opened: OpenGraph,
        intervals: list[Interval],
        cutoff: float,
        width: int,
    ) -> bool:
        """Look for a good plan at true times, without a proof; tell whether nothing was left
        out."""
        found = search_resource_paths(
            opened.graph,
            opened.context if opened.seated is None else opened.seated,
            cutoff=cutoff,
            width=width,
            intervals=intervals,
            effort=self.effort,
        )
        if found.path:
            choices = opened.choice[list(found.path)].tolist()
            if opened.seated is None:
                self.take(state, choices)
            else:
                plan = state.part.seat(choices)
                if plan is not None:
                    self.accept(plan, state)
        return found.exact

    def run_amp(self) -> None:
        """Search AMP's space with its own program: every choice of degrees in milliseconds."""
        from ilp_planner.costs.amp import AmpCosts
        from ilp_planner.mixed.amp.placement import place
        from ilp_planner.mixed.amp.space import rank_plans

        problem, costs = self.problem, self.problem.costs
        assert isinstance(costs, AmpCosts)
        states = {state.part.name: state for state in self.states}
        if problem.placement == "free":
            placed = place(
                costs,
                problem.cluster,
                problem.global_batch,
                max_tp=problem.max_tp,
                seconds=max(self.seconds_left, 0.0),
                workers=self.limits.workers,
            )
            self.notes.append(f"placement: {placed.proof}")
            for state in self.states:
                state.raise_bound(placed.bound, "placement")
            self.accept(placed.plan.group_plan(problem.model, problem.global_batch))
            return
        for plan in rank_plans(costs, problem.cluster, problem.global_batch, max_tp=problem.max_tp):
            found = states.get(amp_name(plan.degrees))
            if found is not None:
                found.raise_bound(plan.bound, "partition dp")
                self.accept(plan.group_plan(problem.model, problem.global_batch))
        for state in self.states:
            state.raise_bound(self.objective, "partition dp")

    def goon(self) -> bool:
        """Tell whether there is time left."""
        return self.seconds_left > 0

    def closed(self, state: PartState) -> bool:
        """Tell whether a part cannot hold anything better, or cannot be searched further."""
        return state.done or state.bound >= min(self.objective, NEVER) * (1 - PROVED)

    def outline(self, state: PartState, guess: float) -> NDArray[np.int64] | None:
        """Bound a part by its outline; return the stage candidates of plans below `guess` seconds,
        None for all that there are."""
        part = state.part
        cutoff = min(guess - part.constant, NEVER)
        outline = part.outline(cutoff)
        if outline is None:
            return None
        priced = PricedGraph(outline.graph)
        intervals = self.bounded(state, priced, cutoff, OUTLINE_SPLITS)
        if not intervals:
            return outline.choice[:0]
        return np.unique(outline.choice[priced.open_arcs(intervals, cutoff)])

    def bounded(
        self, state: PartState, priced: PricedGraph, cutoff: float, splits: int
    ) -> list[Interval]:
        """Bound a part by prices; return what is open below the cutoff (without the constant)."""
        intervals = priced.sweep(cutoff, splits, self.goon)
        bound = intervals[0].bound if intervals else min(cutoff, NEVER)
        state.raise_bound(min(bound + state.part.constant, NEVER), "prices")
        self.report()
        return intervals

    def dive(self) -> None:
        """Look for a good plan not far above the bounds of the parts, a little further each
        time."""
        base = self.bound
        if any(state.boxed for state in self.states):  # too large for few labels
            return
        for slack in DIVES:
            guess = base * (1 + slack)
            if guess >= self.objective or guess >= NEVER:
                return
            for state in sorted(self.states, key=lambda s: s.bound):
                if state.bound < guess and not self.closed(state):
                    self.check_time()
                    if not self.look_below(state, min(guess, self.objective), DIVE_WIDTH):
                        state.boxed = boxable(self, state)
            if self.objective <= guess or any(state.boxed for state in self.states):
                return

    def advance(self, state: PartState) -> None:
        """Look for plans of a part up to a little above its bound: little is open there.

        A search that finds nothing raises the bound. One that is not exact is tried again with more
        labels.
        """
        if state.boxed and state.bound > 0:
            climb(self, state)
            return
        # Without a plan there is nothing to be near to, and there may be none: look far soon.
        step = STEP if self.plan is not None else STEP * 2**state.climbs
        guess = state.bound * (1 + step)
        # A part without an outline has no bound yet, and ten percent above nothing is nothing.
        if state.bound <= 0 or guess * (1 + NEAR) >= self.objective:
            guess = min(self.objective, NEVER)
        if self.look_below(state, guess, WIDTHS[state.steps]):
            state.climbs += 1
        else:
            state.steps = min(state.steps + 1, len(WIDTHS) - 1)
            state.boxed = boxable(self, state)

    def look_below(self, state: PartState, guess: float, width: int) -> bool:
        """Search a part for plans below `guess` seconds; tell whether the search was exact."""
        part = state.part
        cutoff = min(guess - part.constant, NEVER)
        choices = self.outline(state, guess)
        if choices is not None and not choices.size:
            return True
        self.check_time()
        opened = part.graph(cutoff, choices)
        priced = PricedGraph(opened.graph)
        intervals = self.bounded(state, priced, cutoff, SPLITS)
        if not intervals:
            return True
        opened = opened.only(priced.open_arcs(intervals, cutoff))
        self.check_time()
        if self.solver not in LABELS and (guess >= self.objective or math.isinf(self.objective)):
            exact = self.backend(state, opened, guess)
            if exact is not None:
                return exact
        if opened.seated is not None:
            self.find(state, opened, intervals, cutoff, min(width, DIVE_WIDTH))
            cutoff = min(cutoff, self.objective - part.constant)
        found = search_resource_paths(
            opened.graph,
            opened.context,
            cutoff=cutoff,
            width=width,
            intervals=intervals,
            effort=self.effort,
        )
        state.raise_bound(min(min(found.bound, cutoff) + part.constant, NEVER), "dp")
        self.report()
        if found.path:
            self.take(state, opened.choice[list(found.path)].tolist())
            if found.exact:
                self.place_exactly(state)
                state.done = True
        return found.exact

    def place_exactly(self, state: PartState) -> None:
        """Place every plan that is cheaper on the best links than the incumbent on the true ones.

        Labels count the best links that groups can have; what no placement can give keeps the bound
        below the incumbent. Where few plans are in between, placing them all closes the gap.
        """
        part, constant = state.part, state.part.constant
        if state.bound >= self.objective * (1 - PROVED) or not self.goon():
            return
        cutoff = self.objective - constant
        opened = part.unplaced(cutoff)
        if opened is None or not opened.graph.arcs:
            return
        priced = PricedGraph(opened.graph)
        intervals = priced.sweep(cutoff, SPLITS, self.goon)
        opened = opened.only(priced.open_arcs(intervals, cutoff))
        found = search_resource_paths(
            opened.graph,
            opened.context,
            cutoff=cutoff,
            intervals=intervals,
            families=opened.choice,
            most_labels=MOST_BETWEEN,
        )
        # What was not looked at costs at least the cutoff, or the bound, on the best links.
        least = cutoff if found.exact else found.bound
        for value, path in found.others:
            if value >= min(least, self.objective - constant):
                break
            state.raise_bound(min(least, value) + constant, "placement")
            if self.gap_reached() or not self.goon():
                least = min(least, value)
                break
            placed = part.placed(opened.choice[list(path)].tolist())
            if placed.plan is not None:
                self.accept(placed.plan, state)
            least = min(least, placed.bound)
        state.raise_bound(min(least + constant, self.objective), "placement")

    def backend(self, state: PartState, opened: OpenGraph, guess: float) -> bool | None:
        """Let an integer program solve what is open below `guess` seconds; tell whether it proved
        its answer. None: labels must take over."""
        constant = state.part.constant
        explicit = state.part.explicit(opened)
        if explicit is None:
            self.notes.append(f"{state.part.name}: too much is open for {self.solver}, dp went on")
            return None
        limits = dataclasses.replace(self.limits, seconds=max(self.seconds_left, 0.0), gap=0.0)
        try:
            solution = registry.get(self.solver).solve(explicit.graph, limits)
        except (PlannerError, RuntimeError, ValueError, OSError, ImportError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.notes.append(f"{self.solver} failed ({reason}); dp went on")
            self.solver = "dp"
            return None
        cutoff = min(guess - constant, NEVER)
        state.raise_bound(min(min(solution.bound, cutoff) + constant, NEVER), solution.solver)
        self.report()
        if solution.path:
            self.take(state, explicit.choice[list(solution.path)].tolist())
        if solution.stopped_by is Stop.USER:
            raise KeyboardInterrupt
        if solution.status is Status.OPTIMAL:
            self.place_exactly(state)
            state.done = True
        # Nothing below the guess: there may be something above it, which the next look sees.
        return solution.status in (Status.OPTIMAL, Status.INFEASIBLE)

    def take(self, state: PartState, choices: Sequence[int]) -> None:
        """Judge the plan of stage candidates of a part; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        plan = state.part.plan(choices)
        if plan is not None:
            self.accept(plan, state)

    def accept(self, plan: GroupPlan, state: PartState | None = None) -> None:
        """Judge a plan; keep it when it is the best.

        Raises
        ------
        SolverError: the judge finds it illegal, or faster than a bound.
        """
        evaluation = evaluate_groups(self.problem, plan)
        if not evaluation.legal:
            raise SolverError(f"the search believes in an illegal plan: {evaluation.violations[0]}")
        found = evaluation.iteration_time
        bound = max(self.bound, 0.0 if state is None else state.bound)
        if found < bound * (1 - CLAIM_ROUNDING):
            raise SolverError(f"a plan of {found!r} s is below the proved bound of {bound!r} s")
        if found < self.objective:
            self.plan, self.evaluation, self.objective = plan, evaluation, found
            self.report()

    def report(self) -> None:
        """Tell whoever listens."""
        if self.progress is not None:
            self.progress(self.objective, min(self.bound, self.objective))

    # ---- the outcome ----------------------------------------------------------------------------

    def result(self, stop: Stop, ranking: tuple[Ranked, ...] = ()) -> GroupResult:
        """Put together what is known."""
        bound = min(self.bound, self.objective)
        proved = False
        if self.plan is not None:
            proved = relative_gap(self.objective, bound) <= PROVED
            status = Status.OPTIMAL if proved else Status.FEASIBLE
            bound = self.objective if proved else bound
        else:
            status = Status.INFEASIBLE if self.bound >= NEVER else Status.UNKNOWN
            bound = math.inf if self.bound >= NEVER else bound
        lowest = min(self.states, key=lambda s: s.bound, default=None)
        return GroupResult(
            plan=self.plan,
            status=status,
            stopped_by=Stop.PROOF if proved else stop,
            objective=self.objective,
            bound=bound,
            bound_source=lowest.source if lowest is not None and self.bound > 0 else "",
            wall=time.monotonic() - self.started,
            solver=self.solver,
            seed=self.limits.seed,
            evaluation=self.evaluation,
            certificate={
                "version": CERTIFICATE_VERSION,
                "bound_s": bound if math.isfinite(bound) else None,
                "parts": [state.record() for state in self.states],
            },
            notes=tuple(self.notes),
            reason=self.reason() if status is Status.INFEASIBLE else "",
            ranking=ranking,
        )

    def reason(self) -> str:
        """Say why there is no plan."""
        from ilp_planner.mixed.infeasible import explain

        return explain(self.problem)
