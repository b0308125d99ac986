"""Proofs of layer-level plans that can be run again: every part of the space, and whether it still
holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ilp_planner.errors import PlanError
from ilp_planner.mixed.climb import boxable, search_boxes
from ilp_planner.mixed.solve import WIDTHS, GroupSearch, PartState
from ilp_planner.mixed.space import NEVER
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.mixed.megatron.parts import MegatronPart
    from ilp_planner.mixed.problem import GroupProblem
    from ilp_planner.plan import GroupPlan

ROUNDING = 1e-9  # relative


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartCheck:
    """One part: the bound that the certificate claims and the one found anew, in seconds (inf: no
    plan)."""

    name: str
    claimed: float
    rederived: float
    by: str

    @property
    def holds(self) -> bool:
        """The bound found anew is no lower than the one claimed."""
        return self.rederived >= self.claimed * (1 - ROUNDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCertificateCheck:
    """All parts; `bound` is the least of the bounds found anew, in seconds."""

    parts: tuple[GroupPartCheck, ...]

    @property
    def bound(self) -> float:
        """Seconds; no plan takes less, as found anew."""
        return min((part.rederived for part in self.parts), default=math.inf)

    @property
    def holds(self) -> bool:
        """Every part holds."""
        return all(part.holds for part in self.parts)


def check_group_certificate(
    problem: GroupProblem, certificate: dict[str, Any], plan: GroupPlan | None = None
) -> GroupCertificateCheck:
    """Derive the bound of every part again from the inputs; nothing in the certificate is believed.

    The certificate says which bound to aim at. `plan` is not needed.

    Raises
    ------
    PlanError: the certificate is malformed, or leaves out a part of the space.
    """
    try:
        claims = {str(part["part"]): part for part in certificate["parts"]}
        search = GroupSearch(problem, Limits(seconds=math.inf), "dp", None)
        missing = [s.part.name for s in search.states if s.part.name not in claims]
        if missing:
            raise PlanError(f"certificate: {missing[0]!r} is missing from 'parts'")
        if problem.space == "amp":
            search.run_amp()
        if problem.space == "megatron":
            return GroupCertificateCheck(parts=tuple(_check_megatron(search, claims)))
        return GroupCertificateCheck(
            parts=tuple(_check(search, state, claims[state.part.name]) for state in search.states)
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"certificate: malformed, {type(error).__name__}: {error}") from None


def _check(search: GroupSearch, state: PartState, record: dict[str, Any]) -> GroupPartCheck:
    claimed = _claimed(record)
    for width in WIDTHS:
        search.objective = claimed  # plans that take as long are of no interest
        if state.bound >= claimed * (1 - ROUNDING):
            break
        if search.look_below(state, claimed, width):
            break
        if boxable(search, state):
            search_boxes(search, state, claimed)
            break
    found = min(state.bound, search.objective) if search.objective < claimed else state.bound
    return GroupPartCheck(
        name=state.part.name,
        claimed=math.inf if claimed >= NEVER else claimed,
        rederived=math.inf if found >= NEVER else float(min(found, max(claimed, 0.0))),
        by=str(record["by"]),
    )


def _check_megatron(
    search: GroupSearch, claims: dict[str, dict[str, Any]]
) -> Iterator[GroupPartCheck]:
    """Bound every part of Megatron's space up to what is claimed of it."""
    from ilp_planner.mixed.megatron.search import MegatronSearch

    engine = MegatronSearch(
        cast("list[MegatronPart]", [state.part for state in search.states]), goon=lambda: True
    )
    for number, state in enumerate(search.states):
        record = claims[state.part.name]
        claimed = _claimed(record)
        found = engine.prove(number, claimed)
        yield GroupPartCheck(
            name=state.part.name,
            claimed=math.inf if claimed >= NEVER else claimed,
            rederived=math.inf if found >= NEVER else float(min(found, max(claimed, 0.0))),
            by=str(record["by"]),
        )


def _claimed(record: dict[str, Any]) -> float:
    """Return the bound that a certificate claims of a part, in seconds."""
    claimed = NEVER if record["bound_s"] is None else float(record["bound_s"])
    if math.isnan(claimed):
        raise ValueError("bound_s is not a number")
    return claimed
