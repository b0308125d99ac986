"""Rows of the journal of a tuning, checked when they are read: people edit files, disks fail."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.tune.outcome import Status
from ilp_planner.base.errors import PlanError
from ilp_planner.base.limits import DEVICES, RANKS, SECONDS
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.plan_json import decode_plan

if TYPE_CHECKING:
    from ilp_planner.formats.json_fields import Fields
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan

ASKED, BEGUN = "asked", "begun"  # rows of runs that have not ended
STATUSES = (ASKED, BEGUN, *map(str, Status))
RUNS = DEVICES  # that a journal may have


class Tried(NamedTuple):
    """A run that was begun. row: of the journal."""

    number: int
    plan: AnyPlan
    row: dict[str, Any]


def log_name(number: int) -> str:
    """Return the name of the log of a run, in the folder of its tuning."""
    return f"{number:02}.log"


def read_tried(row: Fields, problem: Problem[Any]) -> Tried:
    """Return the run of a row.

    Raises
    ------
    PlanError: a value that no tuning writes, or a plan that is none of the problem's.
    """
    text = row.text("key")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(RUNS)) else 0
    if text != str(number) or number == 0:
        raise row.error("key", "the number of a run, from 1 on")
    status = row.choice("status", STATUSES)
    if row.text("log") != log_name(number):
        raise row.error("log", repr(log_name(number)))
    _seconds(row, "expected_s")
    if status not in (Status.FAILED, Status.CUT) or "script" in row.values:
        script = row.text("script")  # `why` alone is of a plan that the system does not run
        if PurePath(script).name != script or script in ("", ".."):
            raise row.error("script", "the name of a file in the folder")
    if status not in (ASKED, BEGUN):
        row.text("why")
        if row.values.get("wall_s") is not None:
            row.number("wall_s")
    if status == Status.MEASURED:
        _seconds(row, "seconds")
        row.number("noise")
        row.whole("steps", least=1)
    if row.values.get("process") is not None:
        row.whole("process", least=2, most=RANKS)
        row.text("process_begun")
    return Tried(number, _plan(row.inside("plan"), problem), row.values)


def _seconds(row: Fields, key: str) -> None:
    value = row.number(key)
    if not 0 < value <= SECONDS:
        raise row.error(key, f"seconds above 0, at most {SECONDS:g}")


def _plan(fields: Fields, problem: Problem[Any]) -> AnyPlan:
    """Return a plan of the problem.

    Raises
    ------
    PlanError: it is none, or breaks a rule.
    """
    plan = decode_plan(fields)
    for broken in evaluate(problem, plan).violations:
        raise PlanError(
            f"{fields.file}: {fields.where}: {broken}, as every plan of the job that is tuned has"
        )
    return plan
