"""What users wait for besides a solve: a judged plan, one iteration in the compiled engine, the
first solve after an installation, and `ilp-plan why`.

python -m tests.benchmarks --suite judge|engine|first|why [--only TEXT] [--seconds 12]
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ilp_planner as ilp
from ilp_planner.formats.saved_json import read_saved
from ilp_planner.plan import is_of_groups
from ilp_planner.schedule.engine import StageTimes, expect, simulate
from ilp_planner.schedule.schedules import schedule_orders
from tests.benchmarks.cases import ROOT
from tests.benchmarks.kept import Kept, loop, on_cores
from tests.benchmarks.mixed_table import line
from tests.benchmarks.reuse import answered, run
from tests.benchmarks.table import write_table

Row = dict[str, Any]

ROUNDS, RUNS = 15, 20  # rounds of judgements, and judgements of a round
MANY = 10**9  # operations: the engine is worth compiling
WHY_SECONDS, FIRST_SECONDS = 12.0, 60.0  # for `why`, and for the plan that it is asked of


class Job(NamedTuple):
    """What is planned. instead: what `why --not` is asked."""

    model: str
    gpus: str
    batch: int
    instead: str = ""

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.model} on {self.gpus}"


class Pipeline(NamedTuple):
    """A pipeline to simulate. asked: milliseconds."""

    ranks: int
    virtual: int
    micro_batches: int
    asked: float | None

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.ranks} ranks x {self.virtual} stages, {self.micro_batches} micro-batches"


JUDGED = {
    Job("llama3-70b", "64xH100", 512): 2.0,  # milliseconds asked
    Job("llama3-405b", "16384xH100", 2048): 2.0,
}
PIPELINES = (Pipeline(16, 1, 64, 2.0), Pipeline(16, 4, 64, None), Pipeline(64, 4, 512, 50.0))
MIXED = "--space groups --model gpt-10l-4096 --cluster mixed-a100-t4 --global-batch-size 8"
# What is solved after an installation, one after the other, and the seconds asked.
FIRST: dict[str, tuple[str, float | None]] = {
    "ilp-plan solve": ("", 12.0),
    "then the first mixed cluster": (MIXED, None),
}
WHY = (
    Job("llama3-70b", "64xH100", 512, "tp=8"),
    Job("mixtral-8x7b", "64xH100", 512, "ep=8"),
    Job("llama3-8b", "32xA100-80GB", 256, "tp=8"),
    Job("llama3-405b", "512xH100", 512, "tp=8"),
)


def measure(suite: str, only: str, seconds: float | None) -> None:
    """Measure the cases of a suite whose name contains `only`; write the results and the table."""
    names, rows, table = SUITES[suite]
    kept = Kept(suite, names)
    for row in rows(only, seconds or WHY_SECONDS):
        kept.add({"case": row["case"], "loop_s": loop(), **row})
    write_table(suite, table(kept.rows))


def judged(only: str, seconds: float) -> Iterator[Row]:
    """Yield the CPU seconds of judging the best plan of each job, by a problem that has judged one.

    Each figure is the mean of a round.
    """
    for job, asked in JUDGED.items():
        if only in job.name:
            with tempfile.TemporaryDirectory() as name:
                saved = Path(name) / "plan.json"
                run([*solving(job), "--output", str(saved)])
                problem, plan = ilp.load(saved).problem, read_saved(saved).plan
            assert is_of_groups(plan)
            ilp.evaluate(problem, plan)

            def each(problem: Any = problem, plan: Any = plan) -> None:
                for _ in range(RUNS):
                    ilp.evaluate(problem, plan)

            taken = [one / RUNS for one in rounds(each, time.process_time)]
            stages = f", {len(plan.stages)} stages"
            yield {"case": job.name, "stages": stages, "asked_ms": asked, **spread(taken)}


def simulated(only: str, seconds: float) -> Iterator[Row]:
    """Yield the seconds of an iteration of each pipeline, and of its order."""
    expect(MANY)
    for case in PIPELINES:
        if only in case.name:
            stages = case.ranks * case.virtual
            drawn = np.random.default_rng(0).uniform(0.5, 1.5, (4, stages))
            drawn[1] = drawn[2] + drawn[3]
            sends = np.full(stages - 1, 0.01)
            times = StageTimes(*drawn, sends, sends)
            name = "1f1b" if case.virtual == 1 else "interleaved"
            begun = time.perf_counter()
            orders = schedule_orders(name, case.ranks, case.micro_batches, case.virtual)
            ordered = time.perf_counter() - begun

            def each(orders: Any = orders, times: Any = times, case: Pipeline = case) -> None:
                simulate(orders, times, blocking=case.virtual == 1)

            taken = rounds(each, time.perf_counter)
            row = {"case": case.name, "operations": 2 * stages * case.micro_batches}
            yield row | {"asked_ms": case.asked, "order_ms": 1e3 * ordered, **spread(taken)}


def rounds(each: Callable[[], None], clock: Callable[[], float]) -> list[float]:
    """Return the seconds of each round."""
    taken = []
    for _ in range(ROUNDS):
        begun = clock()
        each()
        taken.append(clock() - begun)
    return taken


def spread(taken: Sequence[float]) -> Row:
    """Return the least and the median of seconds, in milliseconds."""
    return {"least_ms": 1e3 * min(taken), "median_ms": 1e3 * statistics.median(taken)}


def solving(job: Job) -> list[str]:
    """Return the words that plan a job."""
    words = ["solve", "--model", job.model, "--gpus", job.gpus]
    return [*words, "--global-batch-size", str(job.batch), "--time-limit", str(FIRST_SECONDS)]


def first_solves(only: str, seconds: float) -> Iterator[Row]:
    """Yield the seconds of each first solve, and of the same again, of one folder of kernels."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, asked) in FIRST.items():
            taken = []
            for _ in range(2):
                begun = time.perf_counter()
                subprocess.run(
                    [sys.executable, "-m", "ilp_planner", "solve", *words.split(), "--json"],
                    env={**os.environ, "NUMBA_CACHE_DIR": folder, "PYTHONPATH": str(ROOT)},
                    stdout=subprocess.DEVNULL, cwd=ROOT, check=True, preexec_fn=on_cores(),
                )  # fmt: skip
                taken.append(time.perf_counter() - begun)
            yield {"case": name, "asked_s": asked, "first_s": taken[0], "again_s": taken[1]}


def limits(only: str, seconds: float) -> Iterator[Row]:
    """Yield how long `why` takes of the best plan of each job, and how far its ranges reach."""
    limit = ["--time-limit", str(seconds)]
    for job in WHY:
        if only in job.name:
            with tempfile.TemporaryDirectory() as name:
                saved = str(Path(name) / "plan.json")
                run([*solving(job), "--output", saved])
                taken, answer = answered(["why", saved, *limit])
                other, _ = answered(["why", saved, "--not", job.instead, *limit])
            row = {"case": job.name, "wall_s": taken["wall_s"], "not": job.instead}
            yield row | {"not_wall_s": other["wall_s"], **of_gains(answer)}


def of_gains(answer: Row) -> Row:
    """Return the number of changes, of those whose search ended, the widest range, and the change
    that gains most at least; shares of the iteration time."""
    best = answer["best_s"]
    known = [
        (gain, gain["gain_at_least_s"] / best, gain["gain_at_most_s"] / best)
        for gain in answer["gains"]
        if gain.get("gain_at_least_s") is not None and gain["gain_at_most_s"] is not None
    ]
    gain, least, most = max(known, key=lambda one: one[1])
    return {
        "changes": len(answer["gains"]),
        "closed": sum(gain["stopped_by"] != "time" for gain, *_ in known),
        "widest": max(most - max(least, 0.0) for _, least, most in known),
        "gained_by": f"{gain['limit']}: {gain['change']}",
        "gain": [least, most],
    }


def judge_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what judging a plan takes."""
    head = ["plan", "loop (s)", "least (ms)", "median (ms)", "asked (ms)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        cells = [row["case"] + row["stages"], f"{row['loop_s']:.1f}", *milliseconds(row)]
        lines.append(line([*cells, f"{row['asked_ms']:g}"]))
    return "\n".join(lines)


def engine_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what an iteration takes to simulate."""
    head = ["pipeline", "operations", "loop (s)", "asked (ms)", f"least of {ROUNDS} (ms)"]
    head += ["median (ms)", "its order, once (ms)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        asked = "-" if row["asked_ms"] is None else f"{row['asked_ms']:g}"
        cells = [row["case"], f"{row['operations']:,}", f"{row['loop_s']:.1f}", asked]
        lines.append(line([*cells, *milliseconds(row), f"{row['order_ms']:.2f}"]))
    return "\n".join(lines)


def milliseconds(row: Row) -> list[str]:
    """Return the least and the median."""
    return [f"{row['least_ms']:.2f}", f"{row['median_ms']:.2f}"]


def first_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what first solves take."""
    lines = [line(["solve", "loop (s)", "asked (s)", "first (s)", "again (s)"])]
    lines.append("|---|" + "---:|" * 4)
    for row in rows:
        asked = "-" if row["asked_s"] is None else f"{row['asked_s']:.0f}"
        cells = [row["case"], f"{row['loop_s']:.1f}", asked]
        lines.append(line([*cells, f"{row['first_s']:.1f}", f"{row['again_s']:.1f}"]))
    return "\n".join(lines)


def why_table(rows: Sequence[Row]) -> str:
    """Return as Markdown what each question takes, and how wide the ranges are."""
    head = ["case", "loop (s)", "changes", "why (s)", "closed", "widest range"]
    lines = [line([*head, "most surely gained by", "`--not`", "(s)"])]
    lines.append("|---|" + "---:|" * 5 + "---|---|---:|")
    for row in rows:
        least, most = (f"{100 * share:.1f}" for share in row["gain"])
        cells = [row["case"], f"{row['loop_s']:.1f}", f"{row['changes']}", f"{row['wall_s']:.1f}"]
        cells += [f"{row['closed']} of {row['changes']}", f"{100 * row['widest']:.1f} %"]
        cells += [f"{row['gained_by']}, {least} to {most} %", f"`{row['not']}`"]
        lines.append(line([*cells, f"{row['not_wall_s']:.1f}"]))
    return "\n".join(lines)


# Suite -> the names of its rows, what measures them, and its table.
Measuring = Callable[[str, float], Iterator[Row]]
SUITES: dict[str, tuple[Sequence[str], Measuring, Callable[[Sequence[Row]], str]]] = {
    "judge": ([job.name for job in JUDGED], judged, judge_table),
    "engine": ([case.name for case in PIPELINES], simulated, engine_table),
    "first": (list(FIRST), first_solves, first_table),
    "why": ([job.name for job in WHY], limits, why_table),
}
