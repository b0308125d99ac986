"""The claims of a saved file, row by row: their comparison with recomputed values, and claims that
are not compared.

`ROWS`, `FREE` and `JUDGED_BY` have every key of a file; a test edits all of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.base.numerics import SAVED_ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.saved_plan import INDEPENDENT, verdict_of
from ilp_planner.formats.versions import OWN, versions
from ilp_planner.optimize.result import (
    CERTIFICATE_VERSION,
    EVERY_PART,
    ON_NODES,
    Status,
    relative_gap,
)
from ilp_planner.spaces.objectives.objective import TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ilp_planner.evaluate import Evaluation
    from ilp_planner.formats.saved_plan import Claim, SavedPlan, Verdict
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.certificate import CertificateCheck
    from ilp_planner.optimize.coverage import Coverage
    from ilp_planner.spaces.objectives.check import AimCheck

CERTIFICATE_KEYS = ("version", "bound_s", "parts", INDEPENDENT)
PART_KEYS = ("bound_s", "by")  # beside the name of the part


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A file, and the recomputed values.

    derived: the bounds of its certificate; aim: bounds of all sets of nodes. None if they were not
    derived again, or there are none.
    """

    problem: Problem[Any]
    saved: SavedPlan
    evaluation: Evaluation
    coverage: Coverage
    derived: CertificateCheck | None = None
    aim: AimCheck | None = None

    @cached_property
    def verdict(self) -> Verdict:
        """The judge's verdict as it would be saved today."""
        found = verdict_of(self.problem, self.saved.plan, self.evaluation)
        assert found is not None
        return found

    @property
    def in_these_words(self) -> bool:
        """This version wrote the file, as far as it says: sentences derived again read the same."""
        run = None if self.saved.claim is None else self.saved.claim.run
        own = versions().get(OWN)
        return self.saved.newest and (run is None or run.versions.get(OWN, own) == own)

    @property
    def any_nodes(self) -> bool:
        """The bound is about the least time on several sets of nodes."""
        aim = self.saved.aim
        return aim.get("name") == TIME.name and aim.get("max_price_per_hour") is None

    @property
    def least(self) -> float | None:
        """Seconds: the least bound of a part of the certificate; None if there is none."""
        bounds = [part.get("bound_s") for part in _parts(self.saved.certificate)]
        if not bounds or not all(map(_is_bound, bounds)):
            return None
        return max(min(map(_seconds, bounds)), 0.0)


class Row(NamedTuple):
    """Keys of a file, and a generator of one line for each wrong claim in them."""

    keys: tuple[str, ...]
    remarks: Callable[[Evidence], Iterator[str]]


def remarks(evidence: Evidence) -> Iterator[str]:
    """Yield the faults of a file, the worst first: of a plan that is not legal, or does not take
    the claimed time, nothing more."""
    if not evidence.evaluation.legal:
        yield from (f"plan: {violation}" for violation in evidence.evaluation.violations)
        return
    for number, row in enumerate(ROWS):
        found = tuple(row.remarks(evidence))
        yield from found
        if found and not number:
            return


def _close(one: float, other: float) -> bool:
    """Tell whether two numbers are the same, but for the order of summation."""
    return math.isclose(one, other, rel_tol=SAVED_ROUNDING)


def _differs(key: str, found: object, expected: object) -> str:
    return f"{key}: found {found!r}, expected {expected!r} as computed from the inputs"


# ---- what the solver said -----------------------------------------------------------------------


def _time(e: Evidence) -> Iterator[str]:
    claim, time = e.saved.claim, e.evaluation.iteration_time
    if claim is not None and not _close(claim.objective, time):
        yield _differs("result.objective_s", claim.objective, time)


def _bound(e: Evidence) -> Iterator[str]:
    """A bound is not above the time, and there is a proof of it."""
    claim = e.saved.claim
    if claim is None or not claim.bound > 0:
        return
    found = f"result.bound_s: found {claim.bound!r}, expected"
    if claim.bound > claim.objective * (1 + SAVED_ROUNDING):
        yield f"{found} at most the objective_s of {claim.objective!r}"
    elif not e.saved.certificate:
        yield f"{found} null or 0: there is no certificate that proves any bound"


def _gap(e: Evidence) -> Iterator[str]:
    """The gap is that of the time and the bound, and the status is its."""
    claim = e.saved.claim
    if claim is None or claim.bound > claim.objective * (1 + SAVED_ROUNDING):
        return
    gap = relative_gap(claim.objective, claim.bound)
    if claim.gap != gap and not abs(claim.gap - gap) <= SAVED_ROUNDING:
        yield f"result.gap: found {claim.gap!r}, expected {gap!r} from objective_s and bound_s"
    expected = _status(gap, claim.status)
    if claim.status is not expected:
        yield f"result.status: found {claim.status}, expected {expected} with a gap of {gap!r}"


def _status(gap: float, claimed: Status) -> Status:
    """Return the status of a plan with that gap; within rounding, the claimed one of the two."""
    if gap > SAVED_ROUNDING:
        return Status.FEASIBLE
    return claimed if claimed is Status.FEASIBLE and gap > 0 else Status.OPTIMAL


def _best_status(claim: Claim) -> Status:
    """Return the claimed status of the fastest plan: the plan itself if no other one is named."""
    return claim.status if claim.fastest is None else claim.fastest.status


def _fastest(e: Evidence) -> Iterator[str]:
    """The fastest plan is legal, takes the claimed time, has the bound's proof, and is less plain
    than the plan, which takes hardly longer."""
    claim, problem = e.saved.claim, e.problem
    if claim is None or claim.fastest is None:
        return
    fastest, where = claim.fastest, "result.fastest"
    evaluation = evaluate(problem, fastest.plan)
    outside = evaluation.legal and problem.space.outside(problem, fastest.plan)
    if not evaluation.legal or outside:
        yield from (f"{where}.plan: {why}" for why in evaluation.violations or (outside,))
        return
    time, slack = evaluation.iteration_time, 1 + SAVED_ROUNDING
    if not _close(fastest.objective, time):
        yield _differs(f"{where}.objective_s", fastest.objective, time)
        return
    if claim.bound > time * slack:
        yield f"result.bound_s: found {claim.bound!r}, expected at most the {time!r} of {where}"
        return
    gap = relative_gap(time, claim.bound)
    expected = _status(gap, fastest.status)
    if fastest.status is not expected:
        yield f"{where}.status: found {fastest.status}, expected {expected} with a gap of {gap!r}"
    longest = time * (1 + (claim.prefer_plain if claim.prefer_plain >= 0 else 0.0))
    if not time <= claim.objective * slack or claim.objective > longest * slack:
        yield (
            f"result.objective_s: found {claim.objective!r}, expected from {time!r} to "
            f"{longest!r}, by prefer_plain beside {where}"
        )
    own, other = (problem.space.plainness(problem, one) for one in (e.saved.plan, fastest.plan))
    if not (*own.values(),) < (*other.values(),):
        yield f"{where}.plan: found one that is no less plain than the plan, expected none"


def _source(e: Evidence) -> Iterator[str]:
    """The bound has the proof of a lowest part."""
    claim, least = e.saved.claim, e.least
    if claim is None or least is None:
        return
    lowest = (
        part
        for part in _parts(e.saved.certificate)
        if _seconds(part["bound_s"]) <= least * (1 + SAVED_ROUNDING)
    )
    sources = {str(part.get("by")) for part in lowest} if claim.bound > 0 else {""}
    if claim.bound_source not in sources:
        expected = " or ".join(map(repr, sorted(sources)))
        yield (
            f"result.bound_source: found {claim.bound_source!r}, expected {expected}, as the "
            "lowest part of the certificate says"
        )


def _among(e: Evidence) -> Iterator[str]:
    claim, among = e.saved.claim, e.coverage.among
    if claim is None or not claim.among or not e.in_these_words:
        return
    found = claim.among
    if e.any_nodes and e.aim is None:  # the words of the nodes rest on what is not derived again
        found = found.partition(ON_NODES)[0]
    elif e.any_nodes and e.aim is not None:
        among += ON_NODES + e.aim.on
    if found != among:
        yield _differs("result.among", found, among)


def _confirmed(e: Evidence) -> Iterator[str]:
    """A proof is confirmed by the solver that is asked to, and of an optimum."""
    from ilp_planner.optimize.search.confirm import CONFIRMER

    claim = e.saved.claim
    if claim is None or not claim.confirmed_by:
        return
    found = f"result.confirmed_by: found {claim.confirmed_by!r}, expected"
    if claim.confirmed_by != CONFIRMER:
        yield f"{found} {CONFIRMER!r} or nobody"
    elif _best_status(claim) is not Status.OPTIMAL:
        yield f"{found} nobody with the status {_best_status(claim)}"


def _notes(e: Evidence) -> Iterator[str]:
    """A note on derived values equals the new one; other notes are free."""
    claim = e.saved.claim
    if claim is None or not e.in_these_words:
        return
    proved = e.derived if _best_status(claim) is Status.OPTIMAL else None
    anew = (*e.problem.notes, *(() if proved is None else proved.notes))
    expected = {_subject(note): note for note in anew}
    for note in claim.notes:
        if note not in anew and _subject(note) in expected:
            yield _differs("result.notes", note, expected[_subject(note)])


def _subject(note: str) -> str:
    """Return the subject of a note: its beginning up to a colon."""
    return note.partition(": ")[0]


def _history(e: Evidence) -> Iterator[str]:
    """At no moment a bound above the proved one was known, or a plan faster than the fastest one
    that was found; the last moment has the figures of the result."""
    claim = e.saved.claim
    moments = () if claim is None or claim.run is None else claim.run.history
    if not moments:
        return
    assert claim is not None
    fastest = claim.objective if claim.fastest is None else claim.fastest.objective
    most, least = claim.bound * (1 + SAVED_ROUNDING), fastest * (1 - SAVED_ROUNDING)
    before = 0.0
    for number, (after, objective, bound) in enumerate(moments):
        key = f"run.history[{number}]"
        if after < before:
            yield f"{key}.after_s: found {after!r}, expected at least {before!r}"
        if bound > most:
            yield f"{key}.bound_s: found {bound!r}, expected at most {claim.bound!r}"
        if objective < least:
            yield f"{key}.objective_s: found {objective!r}, expected at least {fastest!r}"
        if after < before or bound > most or objective < least:
            return
        before = after
    _, objective, bound = moments[-1]
    if not (_close(objective, claim.objective) and _close(bound, claim.bound)):
        yield (
            f"run.history: found {objective!r} and {bound!r} at its end, expected the objective_s "
            f"and bound_s of the result, {claim.objective!r} and {claim.bound!r}"
        )


# ---- what the judge said ------------------------------------------------------------------------


def _verdict(e: Evidence) -> Iterator[str]:
    said, time = e.saved.verdict, e.evaluation.iteration_time
    if said is None:
        return
    if not said.legal:
        yield "evaluation.legal: found false, expected true: the inputs allow the plan"
    if said.violations:
        yield f"evaluation.violations: found {said.violations[0]!r}, expected none"
    if not _close(said.iteration_time, time):
        yield _differs("evaluation.iteration_time_s", said.iteration_time, time)


def _stages(e: Evidence) -> Iterator[str]:
    """Seconds and bytes of every stage are as today."""
    if e.saved.verdict is None:
        return
    said, anew = e.saved.verdict.stages, e.verdict.stages
    if len(said) != len(anew):
        yield f"evaluation.stages: found {len(said)} stages, expected {len(anew)}"
        return
    for number, pairs in enumerate(zip(said, anew, strict=True)):
        for key, found, expected in zip(("time_s", "memory_bytes"), *pairs, strict=True):
            if not _close(found, expected):
                yield _differs(f"evaluation.stages[{number}].{key}", found, expected)


def _shares(e: Evidence) -> Iterator[str]:
    """The sources of figures, and their expected errors."""
    verdict = e.saved.verdict
    if verdict is None:
        return
    for key, said, anew in (
        ("provenance", verdict.provenance, e.verdict.provenance),
        ("provenance_error", verdict.errors, e.verdict.errors),
    ):
        for source in dict.fromkeys((*said, *anew)) if said else ():
            found, expected = said.get(source), anew.get(source)
            if found is None or expected is None or not abs(found - expected) <= SAVED_ROUNDING:
                yield _differs(f"evaluation.{key}.{source}", found, expected)


# ---- what is proved -----------------------------------------------------------------------------


def _whole(e: Evidence) -> Iterator[str]:
    """The bound of a result equals that of its certificate, and is not above those of the parts.
    Only the parts can be derived again."""
    claim, certificate, least = e.saved.claim, e.saved.certificate, e.least
    whole = certificate.get("bound_s")
    said = {} if claim is None else {"result.bound_s": claim.bound}
    if certificate and _is_bound(whole):
        said["certificate.bound_s"] = _seconds(whole)
        if claim is not None and not _close(_seconds(whole), claim.bound):
            yield f"certificate.bound_s: found {whole!r}, expected {claim.bound!r} as in the result"
    for name, bound in said.items():
        if least is not None and bound > least * (1 + SAVED_ROUNDING):
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
    """Return the parts that a certificate lists, none if they cannot be read."""
    parts = certificate.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _keys(e: Evidence) -> Iterator[str]:
    """Yield one line for another version of a certificate than is known here, and for each key that
    no certificate of the space has: its meaning would be lost."""
    certificate, space = e.saved.certificate, e.problem.space
    if not certificate:
        return
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


def _listed(e: Evidence) -> Iterator[str]:
    """Yield one line for each part of a certificate that is listed twice, or is none of the
    problem's, as if inputs were changed after the proof. One of a search that ended before its
    parts were listed has a single one for all of them."""
    certificate, key = e.saved.certificate, e.problem.space.part_key
    names = [part.get(key) for part in _parts(certificate)]
    if not certificate or names == [EVERY_PART]:
        return
    expected = e.problem.space.part_names(e.problem)
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


def _derived(e: Evidence) -> Iterator[str]:
    """Every bound of the certificate was found again."""
    if e.derived is None or e.derived.holds:
        return
    parts = e.problem.space.part_key.replace("_", "-")
    broken = ", ".join(str(part.part) for part in e.derived.parts if not part.holds)
    where = f"{parts} {broken}" if broken else "the whole"
    yield f"certificate: the bound of {where} does not hold"


def _outside(e: Evidence) -> Iterator[str]:
    """The plan is one of those that the bound is about."""
    claim = e.saved.claim
    if claim is not None and claim.bound > 0 and e.coverage.outside:
        yield f"result.bound_s: found {claim.bound!r} of other plans ({e.coverage.outside})"


def _aim(e: Evidence) -> Iterator[str]:
    """All that is said of an objective over sets of nodes was found again."""
    if e.aim is None:
        return
    from ilp_planner.spaces.objectives.check import aim_remarks

    yield from aim_remarks(e.aim, e.saved.aim)


# ---- every key ----------------------------------------------------------------------------------

ROWS = (
    Row(("result.objective_s",), _time),
    Row(("result.bound_s",), _bound),
    Row(("result.gap", "result.status"), _gap),
    Row(
        (
            "result.fastest.status",
            "result.fastest.objective_s",
            "result.fastest.plan",
            "result.prefer_plain",
        ),
        _fastest,
    ),
    Row(
        (
            "evaluation.legal",
            "evaluation.violations",
            "evaluation.iteration_time_s",
        ),
        _verdict,
    ),
    Row(("evaluation.stages.time_s", "evaluation.stages.memory_bytes"), _stages),
    Row(("evaluation.provenance", "evaluation.provenance_error"), _shares),
    Row(("certificate.version",), _keys),
    Row(("certificate.bound_s",), _whole),
    Row(("certificate.parts.part", "certificate.parts.micro_batch"), _listed),
    Row(("certificate.parts.bound_s",), _derived),
    Row(("result.bound_s",), _outside),
    Row(("result.bound_source", "certificate.parts.by"), _source),
    Row(("result.among",), _among),
    Row(("result.confirmed_by",), _confirmed),
    Row(("result.notes",), _notes),
    Row(("run.history.objective_s", "run.history.bound_s", "run.history.after_s"), _history),
    Row(
        (
            "objective.name",
            "objective.max_price_per_hour",
            "objective.devices",
            "objective.bound",
            "objective.gap",
            "objective.sets.counts",
            "objective.sets.price_per_hour",
            "objective.sets.bound_s",
            "objective.sets.covered",
        ),
        _aim,
    ),
)
JUDGED_BY = ("schema", "version", "plan", "inputs")
FREE = {
    "result.stopped_by": "why the search ended",
    "result.solver": "who searched",
    "result.prefer_plain": "what might be given up: a plan that took more of it is found out",
    "result.seed": "what it drew from",
    "result.notes": "how it was searched; what is derived again is compared",
    "run.wall_s": "how long it took",
    "run.versions": "what ran; `among` and notes in the words of another version are free too",
    "run.history.after_s": "when it was known",
    "certificate.parts.by": "what closed a part; of the lowest one, `bound_source` says it too",
    "certificate.parts.*": "where to look for a proof: a bound counts that is found again",
    "objective.sets.parts": "where to look for a proof of the set's `bound_s`",
}
"""What no check covers: it is another in every run, or says how something was found that is found
again."""
