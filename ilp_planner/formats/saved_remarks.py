"""What a saved file says that cannot be true, whatever its inputs are."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from ilp_planner.numerics import SAVED_ROUNDING
from ilp_planner.result import CERTIFICATE_VERSION, EVERY_PART, Status, relative_gap

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ilp_planner.formats.saved_plan import Claim, Verdict
    from ilp_planner.spaces.base import Space

CERTIFICATE_KEYS = ("version", "bound_s", "parts")
PART_KEYS = ("bound_s", "by")  # beside the name of the part


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


def verdict_remarks(verdict: Verdict, time: float) -> Iterator[str]:
    """Yield one line for each word of an old verdict that is false of a legal plan.

    Parameters
    ----------
    time: seconds, as computed from the inputs.
    """
    if not verdict.legal:
        yield "evaluation.legal: found false, expected true: the inputs allow the plan"
    if not abs(verdict.iteration_time - time) <= SAVED_ROUNDING * time:
        yield (
            f"evaluation.iteration_time_s: found {verdict.iteration_time!r}, expected {time!r} as "
            "computed from the inputs"
        )


def bound_remarks(claim: Claim | None, certificate: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each bound that is above those of the parts of its certificate, which are
    all that can be derived again."""
    bounds = [part.get("bound_s") for part in _parts(certificate)]
    if not bounds or not all(map(_is_bound, bounds)):
        return
    least = min(map(_seconds, bounds))
    said = {} if claim is None else {"result.bound_s": claim.bound}
    whole = certificate.get("bound_s")
    if _is_bound(whole):
        said["certificate.bound_s"] = _seconds(whole)
    for name, bound in said.items():
        if bound > max(least, 0.0) * (1 + SAVED_ROUNDING):
            yield (
                f"{name}: found {bound!r}, expected at most {least!r}, the least of the parts of "
                "the certificate"
            )


def _is_bound(value: object) -> bool:
    """Tell whether a certificate may have a value for a bound; null: no plan at all."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _seconds(bound: float | None) -> float:
    return math.inf if bound is None else bound


def _parts(certificate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the parts that a certificate lists, none where they cannot be read."""
    parts = certificate.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _status(gap: float, claimed: Status) -> Status:
    """Return what a plan with that gap is; within rounding, whatever of the two is claimed."""
    if gap > SAVED_ROUNDING:
        return Status.FEASIBLE
    return claimed if claimed is Status.FEASIBLE and gap > 0 else Status.OPTIMAL


def key_remarks(certificate: Mapping[str, Any], space: Space[Any, Any]) -> Iterator[str]:
    """Yield one line for another version of a certificate than is known here, and for each key that
    no certificate of the space has, whose meaning would be lost."""
    version = certificate.get("version", CERTIFICATE_VERSION)
    if version != CERTIFICATE_VERSION:
        yield f"certificate.version: found {version!r}, expected {CERTIFICATE_VERSION}"
    inside = space.proof_keys
    yield from _unknown("certificate", [certificate], CERTIFICATE_KEYS)
    parts = _parts(certificate)
    yield from _unknown("certificate.parts", parts, (space.part_key, *PART_KEYS, *inside))
    for name, keys in inside.items():
        listed = [entries for part in parts if isinstance(entries := part.get(name), list)]
        yield from _unknown(f"certificate.parts.{name}", itertools.chain(*listed), keys)


def _unknown(where: str, found: Iterable[object], known: Collection[str]) -> Iterator[str]:
    """Yield one line for each key of some objects that is not known, said once."""
    keys = (key for values in found if isinstance(values, dict) for key in values)
    for key in dict.fromkeys(keys):
        if key not in known:
            yield f"{where}: found key {key!r}, expected {', '.join(known)}"


def certificate_remarks(
    certificate: Mapping[str, Any], key: str, listed: Callable[[], Collection[object]]
) -> Iterator[str]:
    """Yield one line for each part of a certificate that is listed twice, or is none of the
    problem's, as where inputs were changed after the proof. One of a search that ended before its
    parts were listed has a single one for all of them.

    Parameters
    ----------
    key: what names a part. listed: returns the parts that the inputs have, which may take long.
    """
    names = [part.get(key) for part in _parts(certificate)]
    if names == [EVERY_PART]:
        return
    expected = listed()
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
