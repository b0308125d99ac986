"""A tuning in its folder: scripts and logs of runs, and a journal, with which it goes on.

Every run is a row of the journal before it begins, and another one when it has ended. Whatever ends
the planner in between, the next one takes a finished log as it is, ends what is left of an
unfinished run, and runs that plan again.
"""

from __future__ import annotations

import csv
import io
import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.tune.outcome import Outcome, Status, lacked_memory, measured, outcome_of
from ilp_planner.analysis.tune.searched import Searched
from ilp_planner.analysis.tune.tune import Run, Tuner
from ilp_planner.base.errors import OutputError, PlanError, PlannerError, UsageError
from ilp_planner.base.files import write_text
from ilp_planner.base.units import format_seconds
from ilp_planner.faces.sweeps.journal import Journal, Kind
from ilp_planner.faces.tuning.command import (
    Command,
    begun_at,
    by_executor,
    end_group,
    words_of,
)
from ilp_planner.faces.tuning.rows import ASKED, BEGUN, Tried, log_name, read_tried
from ilp_planner.formats.exports import write_runtime
from ilp_planner.formats.logs.base import LogError
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.formats.plan_json import encode_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ilp_planner.analysis.tune.tune import Answer
    from ilp_planner.faces.sweeps.executors.registry import Executor
    from ilp_planner.formats.exports import Target
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.plan import AnyPlan
    from ilp_planner.specs.training import TrainingJob

JOURNAL = Kind("tuning", "the journal of another job", "`folder` begins one of its own")
FILE = "journal.jsonl"
# Why a tuning ends.
PROOF, BUDGET, WAITING = "proof", "budget", "a script waits for its log"
UNSEARCHED = "no time to search for another plan: `seconds` gives more"
TRIES = 2  # times that a run is begun whose worker is lost
LONGEST = 86400.0  # seconds of a run
GIVEN_UP = 3  # runs that fail before any succeeds


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is tuned.

    problem: whose plans are tried. target: what they are for. system: that scripts are for. folder:
    of the runs. run: the user's command; empty: a person runs the scripts. steps: of a run. budget:
    seconds of all runs. executor: of the runs; None: this machine.
    """

    problem: Problem[Any]
    target: Target
    system: str
    folder: Path
    run: str = ""
    steps: int = 20
    budget: float = math.inf
    executor: Executor | None = None
    heading: dict[str, str] = field(default_factory=dict)


class Ended(NamedTuple):
    """How a tuning ended. answer: None if a script waits for its log. reason: in words. proved: the
    best run is within the gap of all plans. waiting: for a person to run it."""

    answer: Answer[AnyPlan] | None
    tried: tuple[Tried, ...]
    reason: str
    proved: bool
    waiting: Tried | None = None


class Session:
    """The tuning of a job in a folder."""

    def __init__(self, asked: Asked, gap: float, seconds: float, first: AnyPlan | None) -> None:
        """Begin, or go on with what the folder has.

        Parameters
        ----------
        gap: at which it ends. seconds: of searching between two runs. first: the plan to run
            first; None: the one predicted fastest.

        Raises
        ------
        UsageError: the folder has the runs of another job, or another process works in it.
        PlanError: a row of its journal that was changed. OutputError: it cannot be written.
        """
        self.asked = asked
        self.plans = Searched(asked.problem, seconds)
        cluster = asked.problem.cluster
        device = cluster.device_types[cluster.type_names[0]]
        self.tuner: Tuner[AnyPlan] = Tuner(self.plans, device, gap, first)
        self.tried: list[Tried] = []
        self._journal: Journal | None = None
        try:
            self._go_on()
        except BaseException:
            self.close()
            raise

    def _go_on(self) -> None:
        """Take the runs that the folder has."""
        asked = self.asked
        try:
            asked.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{asked.folder}: cannot be made: {error.strerror}") from None
        self._journal = Journal(asked.folder / FILE, asked.heading, JOURNAL)
        rows = [(read_tried(row, asked.problem), row) for row in self._journal.read()]
        for number, (one, row) in enumerate(sorted(rows, key=lambda pair: pair[0].number), 1):
            if one.number != number:
                raise row.error("key", f"run {number}, of which there is no row")
            self._take(one)

    @property
    def pending(self) -> Tried | None:
        """The run that has not ended."""
        return next((one for one in self.tried if one.row["status"] in (ASKED, BEGUN)), None)

    @property
    def spent(self) -> float:
        """Seconds of all runs."""
        return sum(one.row.get("wall_s") or 0.0 for one in self.tried)

    def close(self) -> None:
        """Let go of the journal, and of the executor."""
        if self._journal is not None:
            self._journal.close()
        if self.asked.executor is not None:
            self.asked.executor.cancel()

    # ---- to the end -----------------------------------------------------------------------------

    def finish(self, tell: Callable[[Tried], None]) -> Ended:
        """Run plans until the best run is proved, or until there is no time for another one.

        Parameters
        ----------
        tell: is called with every run when it begins, and when it has ended.

        Raises
        ------
        PlannerError: no plan runs. UsageError: the budget is too small for a run.
        """
        if (left := self.pending) is not None:
            tell(self._again(left))
        while True:
            answer = self._answer()
            if ended := self._stops(answer):
                return ended
            begun = self._write(answer)
            if begun is not None:
                tell(begun)
                tell(self._run(begun))

    def ask(self, log: Path | None, *, failed: bool) -> Ended:
        """Take the log of the script that was asked for, if there is one, and ask for the next.

        Parameters
        ----------
        log: of the run. failed: it can never run.

        Raises
        ------
        LogError: a log without steps, or of another job. UsageError: no script was asked for.
        """
        left = self.pending
        if left is None and (log is not None or failed):
            raise UsageError("log: found no script that waits for a log, expected `ask` before it")
        if left is not None and (log is not None or failed):
            self._end(left, self._said(left, log, failed=failed))
        answer = None
        while (left := self.pending) is None:
            answer = self._answer()
            if ended := self._stops(answer):
                return ended
            self._write(answer)
        return Ended(answer, tuple(self.tried), WAITING, False, left)

    def _said(self, left: Tried, log: Path | None, *, failed: bool) -> Outcome:
        if failed:
            return Outcome(Status.FAILED, why="as its user says")
        assert log is not None
        try:
            return measured(log, self._job(left.plan))
        except LogError as error:
            if lacked_memory(log):
                return Outcome(Status.MEMORY, why="out of memory")
            raise LogError(f"{error}; a run that can never succeed is said by `failed`") from None

    def _answer(self) -> Answer[AnyPlan]:
        self.plans.begin()
        return self.tuner.answer()

    def _stops(self, answer: Answer[AnyPlan]) -> Ended | None:
        """Return the end of the tuning, if this is it."""

        def ended(reason: str, *, proved: bool = False) -> Ended:
            return Ended(answer, tuple(self.tried), reason, proved)

        if answer.best is not None and answer.gap <= self.tuner.gap:
            return ended(PROOF, proved=True)
        if answer.best is None and (why := self._hopeless(answer)):
            raise PlannerError(why)
        if answer.next is None:
            return ended(UNSEARCHED)
        needed = self.asked.steps * answer.expected + self._starting
        left = self.asked.budget - self.spent
        if needed <= left:
            return None
        if not self.tried:
            raise UsageError(
                f"budget: found {format_seconds(left)}, expected at least "
                f"{format_seconds(needed)}: {self.asked.steps} steps of "
                f"{format_seconds(answer.expected)}; fewer `steps` need less"
            )
        return ended(BUDGET)

    def _hopeless(self, answer: Answer[AnyPlan]) -> str:
        """Return why no run will succeed; empty if one may."""
        bad = [one for one in self.tried if one.row["status"] == Status.FAILED]
        if len(bad) >= GIVEN_UP:
            one = bad[-1]
            place = self.asked.folder / (one.row["log"] if "script" in one.row else "")
            return (
                f"{place}: found {len(bad)} runs that failed and none "
                f"that succeeded, expected a command that runs a script; the last one: "
                f"{one.row['why']}"
            )
        if answer.next is not None:
            return ""
        if not self.tried:
            return "seconds: found no plan of the job in that time, expected one; more give time"
        count = len(self.tried)
        return f"{self.asked.folder}: found no plan that runs: {count} failed, and no other is left"

    @property
    def _starting(self) -> float:
        """Seconds that a run took at most beside its steps."""
        beside: list[float] = [
            one.row["wall_s"] - one.row["steps"] * one.row["seconds"]
            for one in self.tried
            if one.row["status"] == Status.MEASURED and one.row.get("wall_s")
        ]
        return max([0.0, *beside])

    # ---- runs -----------------------------------------------------------------------------------

    def _write(self, answer: Answer[AnyPlan]) -> Tried | None:
        """Write the script of the next plan; None if its training system does not run it, which
        is known from now on."""
        plan = answer.next
        assert plan is not None
        number = len(self.tried) + 1
        row = {"plan": encode_plan(plan), "expected_s": answer.expected, "log": log_name(number)}
        output = self.asked.folder / f"run{number:02}"
        target = self.asked.target._replace(time=answer.expected)
        try:
            written = write_runtime(plan, target, self.asked.system, output)
        except PlanError as refusal:
            self._add(number, plan, row | {"status": Status.FAILED, "why": str(refusal)})
            return None
        row |= {"script": written.files[0].name, "status": BEGUN if self.asked.run else ASKED}
        return self._add(number, plan, row)

    def _run(self, tried: Tried) -> Tried:
        """Run a script, and take what its log says."""
        asked, log = self.asked, self.asked.folder / tried.row["log"]
        script = (asked.folder / tried.row["script"]).resolve()
        log.unlink(missing_ok=True)
        cluster = asked.problem.cluster
        command = Command(
            number=tried.number,
            words=words_of(asked.run, script, asked.steps),
            log=str(log.resolve()),
            steps=asked.steps,
            seconds=min(asked.budget - self.spent, LONGEST),
            folder=str(asked.folder.resolve().parent),
            nodes=cluster.node_count,
            devices=cluster.nodes[0].devices,
        )
        begun, lost = time.monotonic(), ""

        def tell(process: int) -> None:
            known = {"process": process, "process_begun": begun_at(process)}
            self._add(tried.number, tried.plan, tried.row | known)

        if asked.executor is None:
            status: int | None = command.started(tell)
        else:
            for _ in range(TRIES):
                status, lost = by_executor(command, asked.executor)
                if not lost:
                    break
        wall = time.monotonic() - begun
        if lost:
            return self._end(tried, Outcome(Status.FAILED, why=lost), wall)
        found = self._outcome(tried, status)
        if found.status is Status.CUT and command.seconds == LONGEST:  # and not for the budget
            found = Outcome(Status.FAILED, why=f"{found.why} in {format_seconds(LONGEST)}")
        return self._end(tried, found, wall)

    def _again(self, left: Tried) -> Tried:
        """Take a run that an earlier process began: its log if it is whole, else run it again."""
        process = left.row.get("process")
        if process and begun_at(process) == left.row.get("process_begun") != "":
            end_group(process)
        log = self.asked.folder / left.row["log"]
        if log.exists():
            found = self._outcome(left, None)
            if found.status is Status.MEASURED and found.steps >= self.asked.steps:
                return self._end(left, found, found.steps * found.seconds)
        return self._run(left)

    def _outcome(self, tried: Tried, status: int | None) -> Outcome:
        log = self.asked.folder / tried.row["log"]
        return outcome_of(log, self._job(tried.plan), self.asked.steps, status)

    def _job(self, plan: AnyPlan) -> TrainingJob:
        target = self.asked.target
        return job_of_plan(plan, target.model, target.cluster, target.asked)

    def _end(self, tried: Tried, found: Outcome, wall: float | None = None) -> Tried:
        """Put down how a run ended."""
        row = {name: tried.row[name] for name in ("plan", "expected_s", "log", "script")}
        row |= {"status": str(found.status), "why": found.why, "wall_s": wall}
        if found.status is Status.MEASURED:
            row |= {"seconds": found.seconds, "noise": found.noise, "steps": found.steps}
        return self._add(tried.number, tried.plan, row)

    def _add(self, number: int, plan: AnyPlan, row: dict[str, Any]) -> Tried:
        whole = {"key": str(number), "values": {}, **row}
        assert self._journal is not None
        self._journal.add([whole])
        return self._take(Tried(number, plan, whole))

    def _take(self, one: Tried) -> Tried:
        """Take a row: the newest of its run counts."""
        self.tried = [other for other in self.tried if other.number != one.number] + [one]
        row = one.row
        if row["status"] == Status.MEASURED:
            self.tuner.take(Run(one.plan, row["seconds"], row["noise"], row["expected_s"]))
        elif row["status"] in (Status.MEMORY, Status.FAILED):
            self.tuner.fail(one.plan, memory=row["status"] == Status.MEMORY)
        return one

    def keep_table(self) -> Path | None:
        """Write the runs as `calibrate` reads them; None where their scripts are none of
        Megatron-LM's."""
        rows = [one for one in self.tried if one.row["status"] == Status.MEASURED]
        if self.asked.system != "megatron" or not rows:
            return None
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(("name", "run", "seconds"))
        for one in rows:
            arguments = one.row["script"].removesuffix(".sh") + ".args.json"
            table.writerow((f"run {one.number}", arguments, f"{one.row['seconds']:.6g}"))
        path = self.asked.folder / "runs.csv"
        write_text(path, text.getvalue())
        return path
