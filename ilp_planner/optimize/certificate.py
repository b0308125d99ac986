"""Proofs that can be run again: every part of a search, its proof, and whether that still holds."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.optimize.result import CERTIFICATE_VERSION, EVERY_PART
from ilp_planner.optimize.solvers.base import Limits, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ilp_planner.inputs.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCheck:
    """One part: the bound that the certificate claims and the one found anew, in seconds (inf: no
    plan).

    part: its name in the certificate: the micro-batch size of plans of operators, the name of a
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
    """All parts; `bound` is the least of the bounds found anew, in seconds. notes: remarks of a
    search on its derivation."""

    parts: tuple[PartCheck, ...]
    notes: tuple[str, ...] = ()

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
    PlanError: a field is missing or wrong.
    """
    try:
        yield
    except PlanError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PlanError(f"certificate: malformed, {type(error).__name__}: {error}") from None


def claimed_bound(record: Mapping[str, Any]) -> float:
    """Return the bound that a certificate claims of a part, in seconds."""
    claimed = NEVER if record["bound_s"] is None else float(record["bound_s"])
    if math.isnan(claimed):
        raise ValueError("bound_s is not a number")
    return claimed


def part_check(part: int | str, record: Mapping[str, Any], found: float) -> PartCheck:
    """Return the check of a part. found: seconds, the bound found anew."""
    claimed = claimed_bound(record)
    return PartCheck(
        part=part,
        claimed=math.inf if claimed >= NEVER else claimed,
        rederived=math.inf if found >= NEVER else float(found),
        by=str(record["by"]),
    )


NOTHING = PartCheck(part="no part", claimed=math.inf, rederived=math.inf, by="enumeration")
"""Of a space in which there is nothing."""


def check_certificate(problem: Problem[Any], certificate: dict[str, Any]) -> CertificateCheck:
    """Derive the bound of every part again from the inputs; nothing in the certificate is believed.

    The certificate guides the search: the bound to aim at, and the stages solved to reach it. One
    record may stand for all parts: none is below its bound.

    Raises
    ------
    PlanError: the certificate is malformed, of another version, or leaves out a part of the space.
    """
    space = problem.space
    with well_formed():
        records = {str(part[space.part_key]): part for part in certificate["parts"]}
        version = certificate.get("version", CERTIFICATE_VERSION)
        if version != CERTIFICATE_VERSION:
            raise PlanError(
                f"certificate.version: found {version!r}, expected {CERTIFICATE_VERSION}, which "
                "this ilp-planner derives again"
            )
        search = space.begin(problem, Task(Limits(seconds=math.inf), "dp"))
        if records.keys() == {EVERY_PART}:
            whole = records[EVERY_PART]
            found = search.bound
            if found < claimed_bound(whole) and not space.proof_keys:
                each = [whole] * len(space.part_names(problem))
                found = max(found, min(space.prove(search, each), default=NEVER))
            return CertificateCheck(parts=(part_check(EVERY_PART, whole, found),))
        names = space.part_names(problem)
        missing = [name for name in names if str(name) not in records]
        if missing:
            raise PlanError(f"certificate: {missing[0]!r} is missing from 'parts'")
        claimed = [records[str(name)] for name in names]
        bounds = space.prove(search, claimed)
        checks = (part_check(*of_part) for of_part in zip(names, claimed, bounds, strict=True))
        derived = tuple(checks) or (NOTHING,)
        return CertificateCheck(parts=derived, notes=tuple(search.notes))
