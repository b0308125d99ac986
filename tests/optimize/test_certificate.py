"""A certificate is believed in nothing: what it claims is derived again, or it does not hold."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from ilp_planner.base.errors import PlanError
from ilp_planner.base.numerics import NEVER
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import (
    CertificateCheck,
    PartCheck,
    check_certificate,
    part_check,
    well_formed,
)
from ilp_planner.optimize.result import CERTIFICATE_VERSION, Result, Status
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.operators.build import OperatorSpace
from tests.every_space import METIS, every_space, problem_in, result_in
from tests.examples import for_each, often
from tests.megatron_cases import GIB, small_problem
from tests.mixed_cases import room_problem
from tests.tiny import tight_problem, with_limit

SAME = 1e-9  # relative
IN_ONE_LINE = r"^certificate: [^\n]+$"


def solved(space: str) -> tuple[Problem, Result]:
    """Return a problem with its result, whose certificate may be changed."""
    return problem_in(space), copy.deepcopy(result_in(space))


@every_space
def test_the_certificate_of_a_solve_holds(space: str) -> None:
    problem, result = solved(space)
    check = check_certificate(problem, json.loads(json.dumps(result.certificate)))
    assert check.holds
    assert [part.part for part in check.parts] == problem.space.part_names(problem)
    assert check.bound == pytest.approx(result.bound, rel=SAME)


@pytest.mark.parametrize("factor", often([1 + 1e-6, 1.01, 10.0], 1 + 1e-6))
@every_space
def test_a_bound_above_the_optimum_does_not_hold(space: str, factor: float) -> None:
    problem, result = solved(space)
    for part in result.certificate["parts"]:
        part["bound_s"] = result.objective * factor
    check = check_certificate(problem, result.certificate)
    assert not check.holds
    assert check.bound <= result.objective * (1 + SAME)


NOTHING_FITS: dict[str, Callable[[], Problem]] = {
    "operators": lambda: with_limit(tight_problem(), 1.0),
    "groups": lambda: room_problem(memory_limit=1000.0),
    "metis, without parts": lambda: room_problem(**METIS, memory_limit=1000.0),
    "megatron": lambda: small_problem(batch=4, memory_limit=0.1 * GIB),
}


@pytest.mark.parametrize("case", NOTHING_FITS)
def test_the_certificate_that_nothing_fits_holds(case: str) -> None:
    problem = NOTHING_FITS[case]()
    result = solve(problem)
    assert result.status is Status.INFEASIBLE
    assert result.certificate["bound_s"] is None
    check = check_certificate(problem, result.certificate)
    assert math.isinf(check.bound)
    assert check.holds


# ---- what cannot be read ------------------------------------------------------------------------


@every_space
def test_a_part_that_is_left_out_is_named(space: str) -> None:
    problem, result = solved(space)
    result.certificate["parts"].pop()
    name = problem.space.part_names(problem)[-1]
    with pytest.raises(PlanError) as caught:
        check_certificate(problem, result.certificate)
    assert str(caught.value) == f"certificate: {name!r} is missing from 'parts'"


def spoiled(problem: Problem, result: Result, change: str) -> dict[str, Any]:
    """Return a certificate in which one thing is wrong."""
    broken = copy.deepcopy(result.certificate)
    part, key = broken["parts"][0], problem.space.part_key
    changes: dict[str, Callable[[], object]] = {
        "no parts": lambda: broken.pop("parts"),
        "parts is a number": lambda: broken.update(parts=3),
        "parts is null": lambda: broken.update(parts=None),
        "parts is empty": lambda: broken.update(parts=[]),
        "a part is a word": lambda: broken.update(parts=["part"]),
        "a part is empty": lambda: broken.update(parts=[{}]),
        "no name": lambda: part.pop(key),
        "another name": lambda: part.update({key: "two"}),
        "an infinite name": lambda: part.update({key: math.inf}),
        "no bound": lambda: part.pop("bound_s"),
        "bound is a word": lambda: part.update(bound_s="fast"),
        "bound is a list": lambda: part.update(bound_s=[1.0]),
        "no source": lambda: part.pop("by"),
    }
    changes[change]()
    return broken


CHANGES = [
    "no parts", "parts is a number", "parts is null", "parts is empty", "a part is a word",
    "a part is empty", "no name", "another name", "an infinite name", "no bound",
    "bound is a word", "bound is a list", "no source",
]  # fmt: skip


@for_each("change", CHANGES)
@every_space
def test_a_malformed_certificate_is_an_error_in_one_line(space: str, change: str) -> None:
    problem, result = solved(space)
    with pytest.raises(PlanError, match=IN_ONE_LINE):
        check_certificate(problem, spoiled(problem, result, change))


@for_each("certificate", [None, [], 3, "proof", {}])
@every_space
def test_what_is_no_certificate_at_all_is_an_error(space: str, certificate: Any) -> None:
    with pytest.raises(PlanError, match=IN_ONE_LINE):
        check_certificate(problem_in(space), certificate)


@every_space
def test_a_bound_that_is_not_a_number_is_an_error(space: str) -> None:
    problem, result = solved(space)
    result.certificate["parts"][0]["bound_s"] = math.nan
    with pytest.raises(PlanError, match=r"^certificate: [^\n]+not a number$"):
        check_certificate(problem, result.certificate)


def test_a_space_that_derives_too_few_bounds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, result = solved("operators")
    monkeypatch.setattr(OperatorSpace, "prove", lambda *_: iter([result.bound]))
    with pytest.raises(PlanError, match=IN_ONE_LINE):
        check_certificate(problem, result.certificate)


# ---- the answer ---------------------------------------------------------------------------------


def test_a_certificate_of_nothing_does_not_hold() -> None:
    assert not CertificateCheck(parts=()).holds
    assert CertificateCheck(parts=()).bound == 0


def test_a_part_holds_up_to_rounding() -> None:
    def holds(rederived: float) -> bool:
        return PartCheck(part=1, claimed=1.0, rederived=rederived, by="work").holds

    assert holds(2.0)
    assert holds(1 - 1e-10)
    assert not holds(1 - 1e-8)


def check_of(rederived: float, claimed: float = 1.0) -> PartCheck:
    return PartCheck(part=1, claimed=claimed, rederived=rederived, by="work")


def test_one_part_that_does_not_hold_is_enough() -> None:
    parts = (check_of(3.0), check_of(0.5), check_of(2.0))
    assert not CertificateCheck(parts=parts).holds
    assert CertificateCheck(parts=parts).bound == 0.5
    assert CertificateCheck(parts=parts[::2]).holds


def test_what_is_claimed_and_found_is_seconds_or_that_there_is_no_plan() -> None:
    def pair(claimed: float | None, found: float) -> tuple[float, float]:
        check = part_check("a part", {"bound_s": claimed, "by": "work"}, found)
        assert (check.part, check.by) == ("a part", "work")
        return check.claimed, check.rederived

    assert pair(0.25, 0.5) == (0.25, 0.5)
    assert pair(None, 0.5) == (math.inf, 0.5)
    assert pair(0.25, NEVER) == (0.25, math.inf)
    assert pair(NEVER, 2 * NEVER) == (math.inf, math.inf)


def test_that_there_is_no_plan_is_more_than_any_bound() -> None:
    assert check_of(math.inf).holds
    assert check_of(math.inf, claimed=math.inf).holds
    assert not check_of(1e20, claimed=math.inf).holds


@pytest.mark.parametrize("version", [0, CERTIFICATE_VERSION + 1, str(CERTIFICATE_VERSION), None])
def test_only_certificates_of_this_version_are_derived_again(version: object) -> None:
    problem, result = solved("operators")
    result.certificate["version"] = version
    with pytest.raises(PlanError) as caught:
        check_certificate(problem, result.certificate)
    assert str(caught.value) == (
        f"certificate.version: found {version!r}, expected {CERTIFICATE_VERSION}, which this "
        "ilp-planner derives again"
    )


def test_a_certificate_that_names_no_version_is_of_this_one() -> None:
    problem, result = solved("operators")
    result.certificate.pop("version", None)
    assert check_certificate(problem, result.certificate).holds


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("by"), "certificate: malformed, KeyError: 'by'"),
        (TypeError("no list"), "certificate: malformed, TypeError: no list"),
        (ValueError("no number"), "certificate: malformed, ValueError: no number"),
        (OverflowError("too large"), "certificate: malformed, OverflowError: too large"),
        (PlanError("said already"), "said already"),
    ],
)
def test_what_cannot_be_read_is_said_once(error: Exception, said: str) -> None:
    with pytest.raises(PlanError) as caught, well_formed():
        raise error
    assert str(caught.value) == said


def test_a_mistake_of_the_planner_is_no_mistake_of_the_certificate() -> None:
    with pytest.raises(ZeroDivisionError), well_formed():
        raise ZeroDivisionError
