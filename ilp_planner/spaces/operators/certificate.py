"""Parts of a proof about plans of operators, derived again; and their residual problem."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import CLAIM_ROUNDING, NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.optimize.bounds.memory import explain_infeasible
from ilp_planner.optimize.bounds.operator_part import WITHOUT_STAGES, OperatorPart
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.bounds.stages import StageKey
from ilp_planner.optimize.certificate import claimed_bound, well_formed
from ilp_planner.optimize.search.confirm import PLACEMENT, ROOM, LastGraph

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ilp_planner.costs.operators import OperatorTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.graph import StageGraph
    from ilp_planner.plan import OperatorPlan
    from ilp_planner.spaces.operators.search import OperatorSearch

MOST_IN_FLIGHT = 10**9
MORE_STAGES, MORE_SECONDS = 16, 1.0  # times that stages which nobody listed are solved
EFFORT = 4_000_000_000  # label comparisons per stage: a check may take as long as the proof did


def last_of_part(search: OperatorSearch, plan: OperatorPlan) -> LastGraph | None:
    """Return the residual problem of the plan's part; inexact values there can be learned.

    The part keeps to stages of plans below the last cutoff. If that leaves out the plan itself, the
    certificate's stages are solved anew.
    """
    part = next(p for p in search.parts if p.micro_batch == plan.micro_batch_size)
    graph = part.expand(search.objective * (1 + ROOM)).graph
    path, value = best_path(graph)
    if path and value <= search.objective * (1 + CLAIM_ROUNDING):
        return LastGraph(graph=graph, learn=lambda p: part.refine(p, search.deadline.left))
    certificate = {"parts": [part.record()]}
    return LastGraph(graph=plan_graph(search.problem, certificate, plan), lacks=PLACEMENT)


def prove_part(problem: Problem[OperatorTables], record: Mapping[str, Any]) -> float:
    """Return the bound of a part, in seconds, as high as its record claims if that is true."""
    claimed = claimed_bound(record)
    part = OperatorPart(problem, int(record["micro_batch"]))
    part.bound_by_work()
    part.repeat(record)
    if part.bound < claimed:
        part.confirm_by_stages(claimed)
    if part.bound < claimed and record["by"] not in WITHOUT_STAGES:
        _replay(part, record, claimed)
    if part.bound < claimed == NEVER and explain_infeasible(problem, [part]):
        part.raise_bound(NEVER, "memory")
    return part.bound


def plan_graph(
    problem: Problem[OperatorTables], certificate: Mapping[str, Any], plan: OperatorPlan
) -> StageGraph:
    """Return the stage graph with a solved plan as a path: the residual problem of its part up to
    it.

    Its optimum is the plan's own time when the certificate closes the gap.

    Raises
    ------
    PlanError: the certificate is malformed, or the plan does not fit.
    """
    with well_formed():
        records = [r for r in certificate["parts"] if r["micro_batch"] == plan.micro_batch_size]
        time = evaluate(problem, plan).iteration_time
        if not records or not math.isfinite(time):
            raise PlanError("certificate: nothing about this plan's micro-batch")
        part = OperatorPart(problem, plan.micro_batch_size)
        part.bound_by_work()
        part.count_stages()
        part.bound_by_stages(time * (1 + ROOM))
        _solve_again(part, records[0]["exact_stages"], time * (1 + ROOM))
        return part.expand(time * (1 + ROOM)).graph


def _replay(part: OperatorPart, record: Mapping[str, Any], claimed: float) -> None:
    """Solve the listed stages again, and look for a pipeline below the claimed bound.

    If downstream stages are not counted, solved stages may leave no pipeline with as few of them as
    before: an upstream stage then holds more, and is not solved yet.
    """
    claimed = min(claimed, part.ceiling)
    _solve_again(part, record["exact_stages"], claimed)
    part.confirm_slowest(float(record.get("slowest_s", 0.0)))
    graph = part.expand(claimed * (1 - ROUNDING)).graph
    path, value = best_path(graph)
    for _ in range(MORE_STAGES):
        if not path or value >= claimed or not part.refine(path, MORE_SECONDS):
            break
        path, value = best_path(graph)
    part.raise_bound(min(value, claimed) if path else claimed, "certificate")


def _solve_again(part: OperatorPart, stages: list[dict[str, Any]], claimed: float) -> None:
    """Solve the listed stages again up to their claims."""
    count = len(part.problem.costs.chain)
    for stage in stages:
        start, stop, devices = int(stage["start"]), int(stage["stop"]), int(stage["devices"])
        in_flight = int(stage["in_flight"])
        if not 1 <= in_flight <= MOST_IN_FLIGHT:
            raise PlanError(f"certificate: {in_flight} micro-batches in flight")
        if devices not in part.stages.chains or not 0 <= start < stop <= count:
            raise PlanError(
                f"certificate: no stage of operators {start} to {stop} on {devices} devices"
            )
        entry = part.stages.entry(devices, start, stop)
        if entry < 0:  # too long to be part of a plan below the claimed bound
            continue
        key = StageKey(
            devices, in_flight, bool(stage["enters_node"]), bool(stage["leaves_node"]), entry
        )
        cutoff = min(float(stage["bound_s"]), claimed)
        part.stages.refine(key, start, stop, cutoff=cutoff, effort=EFFORT)
