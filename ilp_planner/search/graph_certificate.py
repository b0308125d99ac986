"""Proofs of layer-level plans that can be run again: every part of the space, and whether it still
holds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ilp_planner.certificate import (
    CertificateCheck,
    PartCheck,
    claimed_bound,
    part_check,
    well_formed,
)
from ilp_planner.errors import PlanError
from ilp_planner.numerics import NEVER, ROUNDING
from ilp_planner.search.climb import boxable, search_boxes
from ilp_planner.search.graph_search import WIDTHS, look_below
from ilp_planner.search.group_search import GroupSearch
from ilp_planner.solvers.base import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ilp_planner.group_problem import GroupProblem
    from ilp_planner.search.group_search import PartState

NOTHING = PartCheck(part="no part", claimed=math.inf, rederived=math.inf, by="enumeration")
"""Of a space in which there is nothing."""


def check_group_certificate(problem: GroupProblem, certificate: dict[str, Any]) -> CertificateCheck:
    """Derive the bound of every part again from the inputs; nothing in the certificate is believed.

    The certificate says which bound to aim at.

    Raises
    ------
    PlanError: the certificate is malformed, or leaves out a part of the space.
    """
    with well_formed():
        claims = {str(part["part"]): part for part in certificate["parts"]}
        search = GroupSearch(problem, Limits(seconds=math.inf), "dp", None)
        missing = [s.part.name for s in search.states if s.part.name not in claims]
        if missing:
            raise PlanError(f"certificate: {missing[0]!r} is missing from 'parts'")
        names = [state.part.name for state in search.states]
        found = search.space.prove(search, [claimed_bound(claims[name]) for name in names])
        checks = (
            _check(name, claims[name], bound) for name, bound in zip(names, found, strict=True)
        )
        return CertificateCheck(parts=tuple(checks) or (NOTHING,))


def _check(name: str, record: dict[str, Any], found: float) -> PartCheck:
    """Return what became of a part; what was found above the claim is of no interest."""
    if found < NEVER:
        found = min(found, max(claimed_bound(record), 0.0))
    return part_check(name, record, found)


def graph_bounds(search: GroupSearch, claims: list[float]) -> Iterator[float]:
    """Yield a bound of every part that is a stage graph, as high as is claimed if that is true."""
    for state, claimed in zip(search.states, claims, strict=True):
        yield _bound(search, state, claimed)


def _bound(search: GroupSearch, state: PartState, claimed: float) -> float:
    for width in WIDTHS:
        search.objective = claimed  # plans that take as long are of no interest
        if state.bound >= claimed * (1 - ROUNDING):
            break
        if look_below(search, state, claimed, width):
            break
        if boxable(search, state):
            search_boxes(search, state, claimed)
            break
    return min(state.bound, search.objective) if search.objective < claimed else state.bound
