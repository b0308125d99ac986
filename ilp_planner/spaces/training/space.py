"""Megatron-LM's space: one training job, with its rules and a search of its own.

Demands on Megatron's plans that decide nothing in any tried one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ilp_planner.costs.training.iteration import host_share
from ilp_planner.inputs.likeness import other_memory
from ilp_planner.job.arithmetic import recomputed_flops
from ilp_planner.optimize.certificate import claimed_bound
from ilp_planner.optimize.search.graph_certificate import at_most
from ilp_planner.optimize.search.group_search import PartSearch
from ilp_planner.optimize.search.state import Unlisted
from ilp_planner.schedule.formulas import DIVIDED
from ilp_planner.settings.beside import notes_beside
from ilp_planner.settings.values import CP_COMM, SHARDING
from ilp_planner.spaces.graph_space import LayerSpace
from ilp_planner.spaces.training.bounds.work import ARITHMETIC, work_bound
from ilp_planner.spaces.training.costs import MegatronCosts, job_seconds
from ilp_planner.spaces.training.enumerate.choices import CHOICES, decided
from ilp_planner.spaces.training.enumerate.graphs import graphs_beside
from ilp_planner.spaces.training.enumerate.variants import Variant, most_virtual
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import megatron_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ilp_planner.costs.base import PlanCost
    from ilp_planner.evaluate import Violation
    from ilp_planner.inputs.constraints import Constraints
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.inputs.request import Request
    from ilp_planner.job.holdings import Holdings
    from ilp_planner.optimize.result import Ranked, Stop
    from ilp_planner.optimize.search.confirm import LastProblem
    from ilp_planner.optimize.search.preference import Preference
    from ilp_planner.optimize.solvers.base import Task
    from ilp_planner.plan import GroupPlan, Plan
    from ilp_planner.settings.values import Choice
    from ilp_planner.spaces.training.search.start import JobFamily
    from ilp_planner.specs.training import TrainingJob


# ---- effects -------------------------------------------------------------------------------------


NO_STAGES = "no plan that is tried has virtual stages"


def assumed(asked: Constraints) -> Iterator[str]:
    """Yield a note on every setting that is taken as others need it, where nothing is said of it,
    and on every one that decides nothing without another one."""
    yield from notes_beside(partial(getattr, asked))


def without_effect(problem: Problem[MegatronCosts], parts: Sequence[MegatronPart]) -> Iterator[str]:
    """Yield a note on everything that was asked for and decides nothing in any part."""
    asked = problem.constraints
    if asked.remainder and (why := _nothing_left_over(problem, parts)):
        yield f"remainder {','.join(asked.remainder)}: without effect, {why}"
    if asked.micro_batch_group_size and not any(map(_has_virtual_stages, parts)):
        text = asked.texts["micro_batch_group_size"]
        yield f"micro batch group size {text}: without effect, {NO_STAGES}"
    anyhow = asked.layout is not None and asked.one_layout is None
    if anyhow and not any(map(_has_virtual_stages, parts)):
        yield f"layout {asked.layout}: without effect, {NO_STAGES}"
    said = {name: getattr(asked, name) for name, choice in CHOICES.items() if choice.rest}
    silent = {name for name, values in said.items() if values and CHOICES[name].rest not in values}
    for part in parts:
        if not silent:
            return
        silent -= decided(part.settings, replicated=part.degrees.replicated).keys()
    for name in said:
        if name in silent:
            text = f"{name.replace('_', ' ')} {','.join(said[name])}"
            yield f"{text}: without effect, no plan that is tried has anything that it decides"


def _nothing_left_over(problem: Problem[MegatronCosts], parts: Sequence[MegatronPart]) -> str:
    """Return why no virtual stages take the remaining layers of a rank; empty: some do."""
    asked = problem.constraints
    if asked.one_layout is not None:
        return f"`layout={asked.layout}` says which layers every virtual stage has"
    if asked.layout is not None:
        return f"`layout={asked.layout}` has them anyhow"
    several = [part for part in parts if _has_virtual_stages(part)]
    if not several:
        return NO_STAGES
    if any(part.alike for part in several):
        return ""
    return (
        f"layers of {problem.model} differ: all virtual stages but the first and the last have "
        "equally many"
    )


def _has_virtual_stages(part: MegatronPart) -> bool:
    asked = part.problem.constraints
    return any(asked.allows("virtual_stages", v) for v in range(2, most_virtual(part) + 1))


# ---- space ---------------------------------------------------------------------------------------


MegatronSearchState = PartSearch[MegatronPart]


@dataclass(frozen=True, repr=False)
class MegatronSpace(LayerSpace[MegatronCosts, MegatronSearchState]):
    """A part for every choice of degrees."""

    name = MEGATRON.name
    noun = "Megatron plan"
    runtime = MEGATRON
    graded = True

    @property
    def threaded(self) -> bool:
        """Parts are looked at in several processes."""
        return True

    def parts(self, problem: Problem[MegatronCosts]) -> list[MegatronPart]:
        """Return the parts of the space."""
        return megatron_parts(problem, problem.costs)

    def begin(self, problem: Problem[MegatronCosts], task: Task) -> MegatronSearchState:
        """Return the state of a search that begins. Once it lists its parts, it notes demands that
        decide nothing in them."""

        def parts() -> list[MegatronPart]:
            found = megatron_parts(problem, problem.costs, search.check_time)
            search.notes += (*assumed(problem.constraints), *without_effect(problem, found))
            return found

        least = self.work_bound(problem, range(problem.cluster.node_count))
        search = PartSearch(problem, parts, task, Unlisted(least, ARITHMETIC))
        return search

    def work_bound(self, problem: Problem[MegatronCosts], nodes: Iterable[int]) -> float:
        """Return the time of all products on all devices, at rates that no kernel exceeds."""
        return work_bound(problem, nodes)

    def describe(self, problem: Problem[MegatronCosts]) -> str:
        """Return the plans of the proofs."""
        asked = problem.constraints.describe()
        costs = problem.costs
        whole = self.runtime.recomputations(
            costs.model, costs.settings.kernels, problem.constraints
        )
        again = [Variant(1, each).again for each in whole]
        if self.runtime.blocks and problem.constraints.allows("recompute", "block"):
            again.append("block of any number of layers")
        spread = (
            ", spread evenly over its virtual stages, the first or the last ones with one more,"
        )
        spread += " the ends alone or not, or, where layers differ, as many in each"
        spread = f"{spread} but the first and the last" if self.runtime.interleaves else ""
        if problem.constraints.one_layout is not None:
            spread = ", as the layout says"
        elif problem.constraints.layout is not None:
            spread = ", spread anyhow over its virtual stages" * self.runtime.interleaves
        constraints = problem.constraints
        divided = [
            name
            for name in self.runtime.schedules
            if name in DIVIDED and constraints.allows("schedule", name)
        ]
        if divided and not constraints.remainder and constraints.one_layout is None:
            spread += f", with {_either(divided)} also as many in all of these, or on all ranks but"
            spread += " that of the output"
        return (
            f"{self.tried(problem)}{f', {asked},' if asked else ''} of the planner's settings, "
            f"{_either(_of(problem, SHARDING))} sharded, cp at most {problem.costs.max_cp} by "
            f"{_either(_of(problem, CP_COMM))}{self.runtime.untried(problem.constraints)}, nodes "
            f"ordered by type; recomputation {_either(again)}; a rank's layers, the "
            f"embedding and the output layer with their neighbours{spread}"
        )

    def exclusions(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> Iterator[str]:
        """Degrees, settings, recomputations and layouts that are not tried."""
        from ilp_planner.spaces.training.search.membership import left_out

        return left_out(problem, plan)

    def check_whole(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> Iterator[Violation]:
        """The plan is one training job that the runtime can run."""
        broken = tuple(super().check_whole(problem, plan))
        yield from broken or self.runtime.check(problem, plan)

    def check_settings(self, plan: GroupPlan) -> Iterator[Violation]:
        """Settings are this runtime's."""
        return iter(())

    def seconds(
        self, problem: Problem[MegatronCosts], plan: Plan[Any], cost: PlanCost
    ) -> Mapping[str, float]:
        """Return the seconds of an iteration, with messages by purpose and waits for the host."""
        return job_seconds(problem.costs.ranks(plan, problem.cluster), plan, cost.iteration_time)

    def recomputed_flops(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> float:
        """Return the FLOPs of a sample that the training job recomputes."""
        return recomputed_flops(self.job(problem, plan))

    def host_share(
        self, problem: Problem[MegatronCosts], plan: Plan[Any], seconds: float
    ) -> float | None:
        """Return the share of an iteration that ends earlier if the host starts all at once."""
        return host_share(problem.costs.ranks(plan, problem.cluster), seconds)

    def graphs_beside(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> str:
        """Return the same, by the rules of the training system."""
        return graphs_beside(problem, self.job(problem, plan), self.runtime)

    def job(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> TrainingJob:
        """Return the training job that a plan is."""
        return problem.costs.job(plan, problem.cluster)

    def search(self, search: MegatronSearchState) -> Stop:
        """Work until proof, gap or time."""
        from ilp_planner.spaces.training.search.search import run_megatron

        return run_megatron(search)

    def widened(self, old: Request, new: Request) -> Iterator[str]:
        """Yield demands that allow more variants of a part; limits on degrees leave out whole
        parts."""
        from ilp_planner.spaces.training.search.start import widened

        yield from widened(old.constraints, new.constraints)
        yield from other_memory(old, new, less=True)

    def names_before(self, search: MegatronSearchState, asked: Constraints) -> list[str | None]:
        """Return the names of the parts under other constraints."""
        from ilp_planner.spaces.training.search.start import names_before

        return names_before(search, asked)

    def approach(self, search: MegatronSearchState, plan: Plan[Any]) -> None:
        """Look for plans with degrees, settings and a schedule like those of another one."""
        from ilp_planner.spaces.training.search.start import approach

        approach(search, plan)

    def prove(
        self, search: MegatronSearchState, records: Sequence[Mapping[str, Any]]
    ) -> Iterator[float]:
        """Yield a bound of every part, as high as is claimed if that is true."""
        from ilp_planner.spaces.training.search.search import MegatronSearch, parts_of

        engine = MegatronSearch(parts_of(search), goon=lambda: True, floor=search.bound)
        for number, record in enumerate(records):
            claimed = claimed_bound(record)
            yield at_most(claimed, engine.prove(number, claimed))

    def rank(self, search: MegatronSearchState, top: int) -> tuple[Ranked, ...]:
        """Return the `top` best plans, the fastest first."""
        from ilp_planner.spaces.training.search.search import rank_megatron

        return rank_megatron(search, top)

    def plainness(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> Mapping[str, int]:
        """Return how plain a plan is, by the rows of `plainness.ORDER`."""
        from ilp_planner.spaces.training.enumerate.plainness import ORDER, traits_of

        traits = traits_of(self.runtime, self.job(problem, plan))
        return {row.name: row.grade(traits) for row in ORDER}

    def offer_plainer(self, search: MegatronSearchState, preference: Preference) -> None:
        """Offer plans that are plainer than the chosen one, or as plain and faster."""
        from ilp_planner.spaces.training.search.plainer import offer_plainer

        if search.listed:
            offer_plainer(search, preference)

    def last_problem(self, search: MegatronSearchState, plan: Plan[Any]) -> LastProblem | None:
        """Return the cuts of the plan's variant up to the plan; None for stages chosen one by
        one."""
        from ilp_planner.spaces.training.search.last_cuts import last_of_variant

        return last_of_variant(search, plan)

    def independent_proof(
        self, problem: Problem[MegatronCosts], bound: float, nodes: Sequence[int]
    ) -> dict[str, Any]:
        """Return the proof for the checker, with the figures that it counts with."""
        from ilp_planner.spaces.training.independent import training_proof

        return training_proof(problem, bound)

    def unproved(self, problem: Problem[MegatronCosts], bound: float) -> str:
        """Return why the checker knows nothing of a problem's plans."""
        from ilp_planner.spaces.training.independent import unproved

        return unproved(problem, bound)

    def holdings(self, problem: Problem[MegatronCosts], plan: Plan[Any]) -> Holdings:
        """Return the placement of parameters on devices as ranks of the job."""
        from ilp_planner.costs.training.job import rank_devices
        from ilp_planner.job.holdings import job_holdings

        cluster = problem.cluster
        held = job_holdings(problem.costs.job(plan, cluster))
        return held.on(rank_devices(plan), cluster.device_count)

    def families(self, search: MegatronSearchState, limit: float) -> Iterator[JobFamily]:
        """Yield plans by degrees, order of ranks and sharding."""
        from ilp_planner.spaces.training.search.start import families

        return families(search, limit)

    def look_first(self, search: MegatronSearchState) -> None:
        """Look for a plan before the parts are listed."""
        from ilp_planner.spaces.training.search.search import scout

        scout(search)

    def anneal(self, search: MegatronSearchState) -> bool:
        """Anneal over degrees, virtual stages and recomputation."""
        from ilp_planner.spaces.training.search.hunt import anneal_megatron

        anneal_megatron(search)
        return True

    def look(self, search: MegatronSearchState) -> None:
        """Look through the variants with the least bounds."""
        from ilp_planner.spaces.training.search.hunt import hunt_megatron

        hunt_megatron(search)

    def explain(self, search: MegatronSearchState) -> str:
        """Return one line for a problem that is proved infeasible."""
        from ilp_planner.spaces.training.search.least_memory import more

        problem, found = search.problem, super().explain(search)
        return f"{found}{more(problem)}"


def _of(problem: Problem[MegatronCosts], choice: Choice) -> list[str]:
    """Return the values of a choice in the settings that are tried."""
    return list(dict.fromkeys(map(choice.read, problem.costs.choices)))


def _either(names: Sequence[str]) -> str:
    """Return names as an enumeration of possible values: `none, selective or full block`."""
    return " or ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])
