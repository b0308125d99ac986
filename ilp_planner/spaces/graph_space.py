"""Common code of plan spaces of whole layers, and of spaces with stage graphs as parts."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ilp_planner.base.numerics import NEVER
from ilp_planner.costs.recomputed_layers import is_priced
from ilp_planner.evaluate import Violation
from ilp_planner.inputs.problem import AnyCosts, Problem
from ilp_planner.optimize.result import Ranked, Stop
from ilp_planner.optimize.search.group_search import AnyGraphPart, GroupSearch, PartSearch
from ilp_planner.plan import GroupPlan, Plan, is_of_groups
from ilp_planner.spaces.base import Space

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.optimize.search.confirm import LastProblem
    from ilp_planner.optimize.search.parts import Part
    from ilp_planner.optimize.solvers.base import Task

AnyPartSearch = TypeVar("AnyPartSearch", bound=PartSearch[Any])


class LayerSpace(Space[AnyCosts, AnyPartSearch]):
    """A space of plans of whole layers, in parts that a search has the state of."""

    # ---- its parts ------------------------------------------------------------------------------

    @abstractmethod
    def parts(self, problem: Problem[AnyCosts]) -> Sequence[Part]:
        """Return the parts of the space."""

    def part_names(self, problem: Problem[AnyCosts]) -> list[int | str]:
        """Return the names of the parts."""
        return [part.name for part in self.parts(problem)]

    def names_before(self, search: AnyPartSearch, asked: Constraints) -> Sequence[str | None]:
        """Return the names of the parts: they are the same under all constraints."""
        return [state.part.name for state in search.states]

    # ---- its rules ------------------------------------------------------------------------------

    def check_whole(self, problem: Problem[AnyCosts], plan: Plan[Any]) -> Iterator[Violation]:
        """Stages are of layers; replicas share each micro-batch, and virtual stages theirs."""
        if not is_of_groups(plan):
            yield Violation("stages", "plan", "others", "stages of whole layers")
            return
        yield from self.check_settings(plan)
        mixed, kinds = self.mixed_tp(problem), self.recomputations(problem)
        for s, stage in enumerate(plan.stages):
            if stage.replicas != plan.stages[plan.rank_of(s)].replicas:
                limit = f"those of stage {plan.rank_of(s)}"
                yield Violation("replicas", f"stage {s}", "others", limit)
            if len(stage.degrees) > 1 and not mixed:
                have = f"replicas of {' and '.join(map(str, stage.degrees))} devices"
                yield Violation("degrees", f"stage {s}", have, "equally many in each")
            if stage.recompute.kind not in kinds or not is_priced(stage.recompute):
                limit = " or ".join(kinds)
                yield Violation("recompute", f"stage {s}", str(stage.recompute), limit)
        for s, stage in enumerate(plan.stages[: plan.ranks]):  # virtual ones have the same replicas
            shared = sum(replica.samples for replica in stage.replicas)
            if shared != plan.micro_batch_size:
                limit = f"{plan.micro_batch_size}, the micro-batch"
                yield Violation("samples", f"stage {s}", f"{shared} samples", limit)

    def mixed_tp(self, problem: Problem[AnyCosts]) -> bool:
        """Tell whether replicas of one stage may have different tensor-parallel degrees."""
        return False

    def recomputations(self, problem: Problem[AnyCosts]) -> tuple[str, ...]:
        """Return the kinds of recomputation that a stage may have of its own: none, if settings of
        a runtime say it for all stages or the costs do not know it."""
        return ("none",)

    def check_settings(self, plan: GroupPlan) -> Iterator[Violation]:
        """A plan has settings of a runtime only if there is one."""
        if plan.settings is not None or plan.virtual > 1:
            limit = "none, in a space without a runtime"
            yield Violation("settings", "plan", "settings of a runtime", limit)

    def check(
        self, problem: Problem[AnyCosts], plan: Plan[Any], cost: PlanCost
    ) -> Iterator[Violation]:
        """Degrees, samples and memory."""
        yield from self.check_degrees(problem, plan)
        yield from self.check_samples(problem, plan)
        yield from self.check_memory(problem, plan, cost)

    def check_degrees(self, problem: Problem[AnyCosts], plan: GroupPlan) -> Iterator[Violation]:
        """The tensor degree is allowed."""
        cp = 1 if plan.settings is None else plan.settings.cp
        for s, stage in enumerate(plan.stages):
            if stage.tp > problem.max_tp * cp:
                limit = f"at most {problem.max_tp}"
                yield Violation("degrees", f"stage {s}", f"tp {stage.tp}", limit)

    def check_samples(self, problem: Problem[AnyCosts], plan: GroupPlan) -> Iterator[Violation]:
        """The replicas of a stage share its samples as the space has it: anyhow."""
        return iter(())

    # ---- how it is searched ---------------------------------------------------------------------

    def hunt(self, search: AnyPartSearch) -> Stop:
        """Look for a good plan by the heuristic that was asked for."""
        search.check_time()
        self.look_first(search)
        if search.solver != "anneal" or not self.anneal(search):
            self.look(search)
        stop = Stop.HEURISTIC if search.goon() else Stop.TIME
        return Stop.PROOF if search.gap_reached() or search.bound >= NEVER else stop

    def look_first(self, search: AnyPartSearch) -> None:
        """Look for a plan at once, before any bound; if searching is as quick, for none."""
        return

    def anneal(self, search: AnyPartSearch) -> bool:
        """Anneal over the choices that decide the graphs of the space; tell whether there are
        any."""
        return False

    @abstractmethod
    def look(self, search: AnyPartSearch) -> None:
        """Let the heuristic look for a plan."""


class GraphSpace(LayerSpace[AnyCosts, GroupSearch[AnyGraphPart]], Generic[AnyCosts, AnyGraphPart]):
    """Searched, proved and ranked by the general programs."""

    @property
    def threaded(self) -> bool:
        """Several processes look into parts."""
        return True

    @abstractmethod
    def parts(self, problem: Problem[AnyCosts]) -> list[AnyGraphPart]:
        """Return the parts of the space."""

    def look_longer(self, search: GroupSearch[AnyGraphPart]) -> None:
        """Look for better plans in parts that take long to bound; if none do, for none."""
        return

    def begin(self, problem: Problem[AnyCosts], task: Task) -> GroupSearch[AnyGraphPart]:
        """Return the state of a search that begins."""
        return GroupSearch(problem, self.parts(problem), task)

    def search(self, search: GroupSearch[AnyGraphPart]) -> Stop:
        """Work until proof, gap or time."""
        from ilp_planner.optimize.search.graph_search import outline_parts, search_graphs

        self.look_first(search)
        outline_parts(search)
        self.look_longer(search)
        search_graphs(search)
        if search.proved() or search.plan is None:
            return Stop.PROOF
        return Stop.GAP if search.gap_reached() else Stop.EFFORT

    def prove(
        self, search: GroupSearch[AnyGraphPart], records: Sequence[Mapping[str, Any]]
    ) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.optimize.search.graph_certificate import graph_bounds

        yield from graph_bounds(search, records)

    def rank(self, search: GroupSearch[AnyGraphPart], top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""
        from ilp_planner.optimize.search.graph_search import rank_graphs

        return rank_graphs(search, top)

    def last_problem(
        self, search: GroupSearch[AnyGraphPart], plan: Plan[Any]
    ) -> LastProblem | None:
        """Return the residual problem of the part that holds a legal plan, up to the plan."""
        from ilp_planner.optimize.search.graph_certificate import last_of_graphs

        return last_of_graphs(search, plan)

    def look(self, search: GroupSearch[AnyGraphPart]) -> None:
        """Let the heuristic look through the graphs of the parts."""
        from ilp_planner.optimize.search.graph_hunt import GraphHunt

        GraphHunt(search, search.states).run()
