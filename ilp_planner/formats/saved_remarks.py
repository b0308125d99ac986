"""What a saved file says that cannot be true, whatever its inputs are."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ilp_planner.formats.saved_plan import Claim
from ilp_planner.numerics import SAVED_ROUNDING
from ilp_planner.result import Status, relative_gap


def claim_remarks(claim: Claim) -> Iterator[str]:
    """Yield one line for each number of a claim that contradicts the others."""
    objective, bound = claim.objective, claim.bound
    if bound > objective * (1 + SAVED_ROUNDING):
        yield f"result.bound_s: found {bound!r}, expected at most the objective_s of {objective!r}"
        return
    if not objective > 0:
        return
    gap = relative_gap(objective, bound)
    if claim.gap != gap and not abs(claim.gap - gap) <= SAVED_ROUNDING:
        yield f"result.gap: found {claim.gap!r}, expected {gap!r} from objective_s and bound_s"
    if math.isfinite(objective) and claim.status is not _status(gap, claim.status):
        expected = _status(gap, claim.status)
        yield f"result.status: found {claim.status}, expected {expected} with a gap of {gap!r}"


def _status(gap: float, claimed: Status) -> Status:
    """Return what a plan with that gap is; within rounding, whatever of the two is claimed."""
    if gap > SAVED_ROUNDING:
        return Status.FEASIBLE
    return claimed if claimed is Status.FEASIBLE and gap > 0 else Status.OPTIMAL


def certificate_remarks(
    certificate: Mapping[str, Any], key: str, expected: Collection[object]
) -> Iterator[str]:
    """Yield one line for each part of a certificate that is listed twice, or is none of the
    problem's, as where inputs were changed after the proof.

    Parameters
    ----------
    key: what names a part. expected: the parts that the inputs have.
    """
    parts = certificate.get("parts")
    listed = parts if isinstance(parts, list) else []
    names = [part.get(key) for part in listed if isinstance(part, dict)]
    for name, count in Counter(map(str, names)).items():
        if count > 1:
            yield f"certificate.parts: found {key} {name} {count} times, expected once"
    known = set(map(str, expected))
    for name in dict.fromkeys(map(str, names)):
        if name not in known:
            yield (
                f"certificate.parts: found {key} {name}, expected none of that name: "
                "the inputs do not have it"
            )
    looked_at_all = certificate.get("bound_s") != 0  # else the search ended before that
    for name in map(str, expected if looked_at_all else ()):
        if name not in map(str, names):
            yield f"certificate.parts: found no {key} {name}, expected all that the inputs have"
