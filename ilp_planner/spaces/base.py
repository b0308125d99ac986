"""The answers of a plan space: its parts and rules, its search, ranking and proof.

The drivers (`solve`, `certificate`, `evaluate`, `heuristic`, `report`, `cli`) ask it and name none.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.base.units import counted, format_bytes
from ilp_planner.evaluate import Violation, evaluate
from ilp_planner.inputs.likeness import other_limits, other_memory
from ilp_planner.inputs.problem import AnyCosts, Problem
from ilp_planner.optimize.coverage import check_tried
from ilp_planner.optimize.search.state import SearchState
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.seconds import seconds_of_slowest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.request import Request
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.optimize.result import Ranked, Stop
    from ilp_planner.optimize.search.confirm import LastProblem
    from ilp_planner.optimize.search.preference import Preference
    from ilp_planner.plan import AnyPlan, Plan
    from ilp_planner.specs.training import TrainingJob

AnySearch = TypeVar("AnySearch", bound=SearchState)


class Space(ABC, Generic[AnyCosts, AnySearch]):
    """A set of plans, and all that is particular to it. Frozen; its argument is a problem.

    name: on the command line and in certificates. noun: for people, of one of its plans.
    unit: of stages. idles: devices may be in no stage. leaves_out: nodes may be left out of the
    problem that is searched; of a peer's space they may not, as the peer uses all.
    graded: some plans are plainer than others (`plainness`). part_key: the key of a part's name in
    certificates; proof_keys: their further keys besides the bound and its proof, each with the keys
    of its entries.
    """

    name: ClassVar[str]
    noun: ClassVar[str] = "plan"
    unit: ClassVar[str] = "layer"
    idles: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = True
    graded: ClassVar[bool] = False
    part_key: ClassVar[str] = "part"
    proof_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __repr__(self) -> str:
        return f"<Space {self.name}>"

    # ---- what it is -----------------------------------------------------------------------------

    def options(self) -> Mapping[str, str]:
        """Return the options of the space, by name; empty if there is no choice."""
        return {}

    def stage_sizes(self, problem: Problem[AnyCosts]) -> tuple[int, ...]:
        """Return the numbers of devices that one stage may have, ascending."""
        return tuple(range(1, problem.cluster.device_count + 1))

    def why_unranked(self) -> str:
        """Return why the best plans cannot be listed in order, and the kinds that can; empty: they
        can."""
        return ""

    @property
    def threaded(self) -> bool:
        """Tell whether its search works in several threads or processes with any solver."""
        return False

    def work_bound(self, problem: Problem[AnyCosts], nodes: Iterable[int]) -> float:
        """Return seconds that no plan undercuts, known before any part is looked at; 0.0 if nothing
        is.

        Parameters
        ----------
        nodes: the numbers of the usable ones.
        """
        return 0.0

    @abstractmethod
    def part_names(self, problem: Problem[AnyCosts]) -> list[int | str]:
        """Return the names of the parts of the space, as in certificates."""

    # ---- which plans its proofs are about -------------------------------------------------------

    @abstractmethod
    def describe(self, problem: Problem[AnyCosts]) -> str:
        """Return the plans of the proofs, as in `among plans with ...`."""

    @abstractmethod
    def exclusions(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> Iterator[str]:
        """Yield why a legal plan, with a number of micro-batches that is tried, is in no part; also
        if that is not certain: a plan that is wrongly inside makes a wrong proof."""

    def outside(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> str | None:
        """Return the first reason why a legal plan is none that proofs are about; None if it is
        one, and never takes less than the bound."""
        untried = check_tried("micro-batches", plan.micro_batches, problem.micro_batches)
        return untried or next(self.exclusions(problem, plan), None)

    def contains(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> bool:
        """Tell whether proofs are about a legal plan."""
        return self.outside(problem, plan) is None

    def tried(self, problem: Problem[AnyCosts]) -> str:
        """Return the numbers of micro-batches, as the beginning of `describe`."""
        *fewer, last = problem.micro_batches
        return f"plans with {', '.join([*map(str, fewer), counted(last, 'micro-batch')])}"

    # ---- its rules ------------------------------------------------------------------------------

    def short_batches(self, problem: Problem[AnyCosts]) -> bool:
        """Tell whether the last micro-batch may have fewer samples than the others."""
        return False

    @abstractmethod
    def check_whole(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> Iterator[Violation]:
        """Yield the reasons why a plan of this space has no price."""

    def check(
        self, problem: Problem[AnyCosts], plan: Plan[Any], cost: PlanCost
    ) -> Iterator[Violation]:
        """Yield the broken rules of a plan with a price; at least those of memory."""
        yield from self.check_memory(problem, plan, cost)

    def check_memory(
        self, problem: Problem[AnyCosts], plan: Plan[Any], cost: PlanCost
    ) -> Iterator[Violation]:
        """The memory of every device of every stage suffices."""
        type_of, limits = problem.cluster.type_of, problem.memory_limits
        alike = min(limits.values()) if len(problem.cluster.type_names) == 1 else None
        for s, (stage, judged) in enumerate(zip(plan.stages, cost.stages, strict=True)):
            if alike and max(judged.memory, default=0.0) <= alike * (1 + ROUNDING):
                continue
            parts = stage.parts(len(judged.memory))
            for own, used in zip(parts, judged.memory, strict=True):
                least = alike or min(limits[type_of[device]] for device in own)
                if used > least * (1 + ROUNDING):
                    where = f"stage {s}, device {own[0]}"
                    expected = f"at most {format_bytes(least)}"
                    yield Violation("memory", where, format_bytes(used), expected)
                    break

    # ---- where its seconds go -------------------------------------------------------------------

    def seconds(
        self, problem: Problem[AnyCosts], plan: Plan[Any], cost: PlanCost
    ) -> Mapping[str, float]:
        """Return seconds of an iteration by term; they add up to its time."""
        return seconds_of_slowest(plan, cost)

    def recomputed_flops(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> float | None:
        """Return the FLOPs of a sample that are recomputed, counted as those of the model are; None
        if plans do not say."""
        return None

    def host_share(
        self, problem: Problem[AnyCosts], plan: Plan[Any], seconds: float
    ) -> float | None:
        """Return the share of an iteration's seconds in which devices wait for the host to start
        kernels; None if plans do not say."""
        return None

    def graphs_beside(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> str:
        """Return the value of CUDA graphs that a plan without any could have; empty for none."""
        return ""

    def job(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> TrainingJob | None:
        """Return the training job of a plan with a price; None if plans are none."""
        return None

    # ---- how it is searched ---------------------------------------------------------------------

    @abstractmethod
    def begin(self, problem: Problem[AnyCosts], task: Task) -> AnySearch:
        """Return the state of a search that begins."""

    @abstractmethod
    def search(self, search: AnySearch) -> Stop:
        """Work until proof, gap or time."""

    @abstractmethod
    def hunt(self, search: AnySearch) -> Stop:
        """Look for a good plan by the heuristic that was asked for."""

    @abstractmethod
    def prove(self, search: AnySearch, records: Sequence[Mapping[str, Any]]) -> Iterator[float]:
        """Yield a bound of every part, as high as its record claims if that is true; the records
        are in the order of `part_names`."""

    @abstractmethod
    def rank(self, search: AnySearch, top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""

    def plainness(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> Mapping[str, int]:
        """Return the plainness of a legal plan as numbers: plans are compared lexicographically,
        and less is plainer. Nothing if plans are not for a runtime: all are equally plain."""
        return {}

    def offer_plainer(self, search: AnySearch, preference: Preference) -> None:
        """Offer plans that are plainer than the chosen one, or as plain and faster."""

    @abstractmethod
    def last_problem(self, search: AnySearch, plan: Plan[Any]) -> LastProblem | None:
        """Return the residual problem of the part that holds a legal plan, up to the plan; None if
        its integer program is too large, or there is none."""

    def independent_proof(
        self, problem: Problem[AnyCosts], bound: float, nodes: Sequence[int]
    ) -> dict[str, Any]:
        """Return the proof for `checker/checker.py` that no plan on so many nodes takes less than
        `bound` seconds; empty if the checker knows nothing of such plans."""
        return {}

    def unproved(self, problem: Problem[AnyCosts], bound: float) -> str:
        """Return why `independent_proof` is empty."""
        return f"the checker does not know all that the space {self.name} has here"

    def proved_problem(
        self, problem: Problem[AnyCosts], plan: Plan[Any], certificate: Mapping[str, Any]
    ) -> LastProblem | None:
        """Return the residual problem of a proof in the part that holds its plan, up to the plan;
        None as in `last_problem`."""
        return self.last_problem(self.begin(problem, Task(Limits(seconds=math.inf), "dp")), plan)

    # ---- how it starts from a saved plan --------------------------------------------------------

    def widened(self, old: Request, new: Request) -> Iterator[str]:
        """Yield reasons why parts of a request may have new or faster plans, compared with equally
        named parts of another request with the same costs; also uncertain ones: a bound that does
        not hold makes a wrong proof."""
        yield from other_limits(old, new)
        yield from other_memory(old, new)

    def names_before(self, search: AnySearch, asked: Constraints) -> Sequence[int | str | None]:
        """Return the names of the parts of a search under other constraints, None for missing
        ones."""
        return self.part_names(search.problem)

    def approach(self, search: AnySearch, plan: Plan[Any]) -> None:
        """Look for plans like one of another batch, cluster or memory, which is itself outside of
        the space: at least the one with another number of its micro-batches."""
        batch, size = search.problem.global_batch, plan.micro_batch_size
        again = replace(plan, global_batch=batch, micro_batches=-(-batch // size))
        evaluation = evaluate(search.problem, again)
        if evaluation.legal and self.contains(search.problem, again):
            search.keep(again, evaluation, search.bound)

    # ---- what devices hold ----------------------------------------------------------------------

    def holdings(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> Holdings:
        """Return the placement of a legal plan's parameters and states on the devices of a problem.

        Raises
        ------
        PlanError: the space has none.
        """
        raise PlanError(
            f"space: found {self.name}, which does not say what a device holds of each parameter, "
            "expected plans for a runtime, as of `space=megatron`, or groups of a decoder's layers"
        )

    def families(self, search: AnySearch, limit: float) -> Iterator[Family[Any]]:
        """Yield plans that may take at most `limit` seconds, by placement of parameters; none if
        the space does not sort them so."""
        return iter(())

    # ---- why there is nothing -------------------------------------------------------------------

    def explain(self, search: AnySearch) -> str:
        """Return one line for a problem that is proved infeasible."""
        return too_little_memory(search.problem)


def too_little_memory(problem: Problem[Any]) -> str:
    """Return one line that blames memory."""
    limits = ", ".join(
        f"{name} {format_bytes(limit)}" for name, limit in problem.limits_of_types.items()
    )
    return f"in every plan some device would need more memory than it has ({limits})"


# ---- plans with the same shares on devices -------------------------------------------------------


Cut = TypeVar("Cut")


class Family(ABC, Generic[Cut]):
    """A choice of degrees, order of ranks and sharding, with every possible schedule and setting.
    Its cuts have the ends of stages, and their ranks."""

    @property
    @abstractmethod
    def plan(self) -> AnyPlan:
        """One of the plans, legal or not: the ends of its stages do not matter."""

    @abstractmethod
    def cuts(self, before: AnyPlan) -> Iterator[tuple[Cut, AnyPlan]]:
        """Yield the cuts that are tried by name, each with one of its plans, legal or not: the cuts
        of a plan of before, if there are as many stages, and of equal stages."""

    @abstractmethod
    def fastest_of(self, cut: Cut, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan with a cut that takes at most `limit` seconds; None if
        there is none, or was none in time."""

    @abstractmethod
    def fastest(self, limit: float, goon: Callable[[], bool]) -> AnyPlan | None:
        """Return the fastest legal plan of all that takes less than `limit` seconds, likewise."""
