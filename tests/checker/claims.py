"""What a planner claims of a small instance, and whether that is true."""

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

from ilp_planner.base.errors import PlannerError
from ilp_planner.checker import checker
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.json_fields import Fields
from ilp_planner.formats.plan_json import decode_plan, encode_plan
from ilp_planner.optimize.solve import solve
from tests.checker.instances import Instance, Record
from tests.checker.test_checker import read

CLOSE = 2e-6  # relative: figures differ by rounding alone
NOTHING = "no plan"
TRUE, UNFILED = "true", "false, without a proof"
REFUSED, WEAKER = "refused", "weaker proof said"
SET, BELIEVED, MISSED = "another set said", "believed", "missed"
OUTCOMES = (TRUE, UNFILED, REFUSED, WEAKER, SET, BELIEVED, MISSED)


def limits_of(space: str, seed: int) -> dict[str, float]:
    """Return the memory limits of an instance, which come from costs as well."""
    return dict(_known(space, seed)[0].problem.memory_limits)


def claim_of(space: str, seed: int, limits: dict[str, float] | None = None) -> Record:
    """Return the file of an instance as the planner of this process writes it; `NOTHING` alone if
    it claims that no plan fits.

    limits: of another process, for this one's own.
    """
    problem = Instance(space, seed).problem
    if limits is not None:
        problem = replace(problem, memory_limits=limits)
    result = solve(problem, solver="dp")  # CP-SAT would notice most mistakes first
    if result.plan is None or result.evaluation is None:
        return {NOTHING: True}
    claimed = result.evaluation
    stages = [{"time_s": x.time, "memory_bytes": max(x.memory)} for x in claimed.stages]
    record = {
        "plan": encode_plan(result.plan),
        "inputs": {},
        "result": {"objective_s": result.objective, "bound_s": result.bound},
        "evaluation": {"iteration_time_s": claimed.iteration_time, "stages": stages},
        "certificate": {"independent": problem.space.independent_proof(problem, result.bound, ())},
    }
    written: Record = json.loads(json.dumps(record))
    return written


@cache
def _known(space: str, seed: int) -> tuple[Instance, Record]:
    """Return an instance, and what this process claims of it."""
    return Instance(space, seed), claim_of(space, seed)


def outcome(space: str, seed: int, record: Record) -> str:
    """Return whether a file is true by the planner of this process and by enumeration, and else
    what the checker says of it: one of `OUTCOMES`."""
    instance, own = _known(space, seed)
    if record == own:
        return TRUE
    if NOTHING in record:
        return TRUE if instance.optimum == math.inf else UNFILED
    bound = record["result"]["bound_s"]
    right = _is_true_of_plan(instance, record)
    if right and bound <= instance.optimum * (1 + CLOSE):
        return TRUE
    proof = record["certificate"]["independent"]
    if not proof:
        return UNFILED
    asked = {"space": instance.problem.space.name, "cost_model": instance.problem.costs.name}
    record = {**record, "inputs": asked}  # as a saved plan has them, of the request
    said = _said(record, right)
    if said != MISSED:
        return said
    honest = json.loads(json.dumps(instance.proof(bound)))
    noticed = _said({**record, "certificate": {"independent": honest}}, right) != MISSED
    if not noticed or proof == honest:
        return MISSED
    if proof["set"] != honest["set"]:
        return SET
    if proof["table"] != honest["table"]:  # what is left out may cost other than it does
        return BELIEVED
    others = {**record, "certificate": {"independent": honest}}
    return SET if _set_said(record) != _set_said(others) else BELIEVED


def _set_said(record: Record) -> list[str]:
    """Return what the checker says of the set, and of what it leaves out."""
    lines = checker.told(checker.check(read(record)))
    return [line for line in lines if line.startswith(("set", "left out"))]


def _is_true_of_plan(instance: Instance, record: Record) -> bool:
    """Tell whether a plan is legal, with the seconds and bytes that a file says."""
    try:
        plan = decode_plan(Fields(record["plan"], file="plan"))
        truth = evaluate(instance.problem, plan)
    except PlannerError:
        return False
    said = record["evaluation"]
    if len(said["stages"]) != len(truth.stages):
        return False
    pairs = [(truth.iteration_time, said["iteration_time_s"]),
             (truth.iteration_time, record["result"]["objective_s"])]  # fmt: skip
    for one, stage in zip(truth.stages, said["stages"], strict=True):
        pairs += [(one.time, stage["time_s"]), (max(one.memory), stage["memory_bytes"])]
    return truth.legal and all(math.isclose(a, b, rel_tol=CLOSE) for a, b in pairs)


def _said(record: Record, right: bool) -> str:
    """Return what the checker says of a false file. right: of the plan all is true, so that a bound
    is false, and a proof that is said to end below it is none of the claim."""
    try:
        verdict: Any = checker.check(read(record))
    except (checker.RefusedError, ValueError):
        return REFUSED
    if checker.faults_of(verdict):
        return REFUSED
    claimed = record["result"]["bound_s"]
    return WEAKER if right and verdict["bound"] < claimed * (1 - CLOSE / 10) else MISSED
