"""Proofs that can be run again: every part of a search, what closed it, and whether that still
holds."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.bounds.memory import explain_infeasible
from ilp_planner.bounds.part import WITHOUT_STAGES, Part
from ilp_planner.bounds.paths import best_path
from ilp_planner.bounds.stages import StageKey
from ilp_planner.errors import PlanError
from ilp_planner.evaluate import evaluate
from ilp_planner.numerics import NEVER, ROUNDING
from ilp_planner.search.confirm import ROOM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.graph import StageGraph
    from ilp_planner.plan import Plan
    from ilp_planner.problem import Problem

MOST_IN_FLIGHT = 10**9
EFFORT = 4_000_000_000  # label comparisons per stage: a check may take as long as the proof did


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCheck:
    """One part: the bound that the certificate claims and the one found anew, in seconds (inf: no
    plan).

    part: what the certificate calls it: the micro-batch size of plans of operators, the name of a
    part of a space of layers.
    """

    part: int | str
    claimed: float
    rederived: float
    by: str

    @property
    def holds(self) -> bool:
        """The bound found anew is no lower than the one claimed."""
        return self.rederived >= self.claimed * (1 - ROUNDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateCheck:
    """All parts; `bound` is the least of the bounds found anew, in seconds."""

    parts: tuple[PartCheck, ...]

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less, as found anew."""
        return min((part.rederived for part in self.parts), default=0.0)

    @property
    def holds(self) -> bool:
        """Every part holds."""
        return bool(self.parts) and all(part.holds for part in self.parts)


@contextmanager
def well_formed() -> Iterator[None]:
    """Say in one line that a certificate cannot be read.

    Raises
    ------
    PlanError: a field is missing, or is not what it should be.
    """
    try:
        yield
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"certificate: malformed, {type(error).__name__}: {error}") from None


def claimed_bound(record: dict[str, Any]) -> float:
    """Return the bound that a certificate claims of a part, in seconds."""
    claimed = NEVER if record["bound_s"] is None else float(record["bound_s"])
    if math.isnan(claimed):
        raise ValueError("bound_s is not a number")
    return claimed


def part_check(part: int | str, record: dict[str, Any], found: float) -> PartCheck:
    """Return what became of a part. found: seconds, the bound found anew."""
    claimed = claimed_bound(record)
    return PartCheck(
        part=part,
        claimed=math.inf if claimed >= NEVER else claimed,
        rederived=math.inf if found >= NEVER else float(found),
        by=str(record["by"]),
    )


def check_certificate(problem: Problem, certificate: dict[str, Any]) -> CertificateCheck:
    """Derive the bound of every part again from the inputs; nothing in the certificate is believed.

    The certificate says where to look: which bound to aim at, and which stages were solved exactly
    to reach it.

    Raises
    ------
    PlanError: the certificate is malformed, or leaves out a micro-batch size of the problem.
    """
    with well_formed():
        records = {int(part["micro_batch"]): part for part in certificate["parts"]}
        missing = [m for m in problem.micro_batches if m not in records]
        if missing:
            raise PlanError(f"certificate: micro-batch {missing[0]} is missing from 'parts'")
        return CertificateCheck(
            parts=tuple(_check_part(problem, records[m]) for m in problem.micro_batches)
        )


def _check_part(problem: Problem, record: dict[str, Any]) -> PartCheck:
    claimed = claimed_bound(record)
    part = Part(problem, int(record["micro_batch"]))
    part.bound_by_work()
    if part.bound < claimed:
        part.confirm_by_stages(claimed)
    if part.bound < claimed and record["by"] not in WITHOUT_STAGES:
        _replay(part, record["exact_stages"], claimed)
    if part.bound < claimed == NEVER and explain_infeasible(problem, [part]):
        part.raise_bound(NEVER, "memory")
    return part_check(part.micro_batch, record, part.bound)


def plan_graph(problem: Problem, certificate: dict[str, Any], plan: Plan) -> StageGraph:
    """Return the stage graph in which a solved plan is a path: what its part leaves open up to it.

    Its optimum is the plan's own time when the certificate closes the gap.

    Raises
    ------
    PlanError: the certificate is malformed, or the plan does not fit.
    """
    with well_formed():
        records = [r for r in certificate["parts"] if r["micro_batch"] == plan.micro_batch]
        time = evaluate(problem, plan).iteration_time
        if not records or not math.isfinite(time):
            raise PlanError("certificate: nothing about this plan's micro-batch")
        part = Part(problem, plan.micro_batch)
        part.bound_by_work()
        part.bound_by_stages(time * (1 + ROOM))
        _solve_again(part, records[0]["exact_stages"], time * (1 + ROOM))
        return part.expand(time * (1 + ROOM)).graph


def _replay(part: Part, stages: list[dict[str, Any]], claimed: float) -> None:
    """Solve the listed stages again, and look for a pipeline below the claimed bound."""
    claimed = min(claimed, part.ceiling)
    _solve_again(part, stages, claimed)
    graph = part.expand(claimed * (1 - ROUNDING)).graph
    path, value = best_path(graph)
    part.raise_bound(min(value, claimed) if path else claimed, "certificate")


def _solve_again(part: Part, stages: list[dict[str, Any]], claimed: float) -> None:
    """Solve the listed stages again up to what was claimed of them."""
    count = len(part.problem.costs.operators)
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
            devices,
            in_flight,
            bool(stage["enters_node"]),
            bool(stage["leaves_node"]),
            entry,
        )
        cutoff = min(float(stage["bound_s"]), claimed)
        part.stages.refine(key, start, stop, cutoff=cutoff, effort=EFFORT)
