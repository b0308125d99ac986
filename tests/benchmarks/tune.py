"""How many runs `ilp-plan tune` needs, by replaying measured panels.

python -m tests.benchmarks --suite tune

A panel is one job by several plans, each with its published time: nanotron's 1B and 3B models on 8
to 256 GPUs (`nanotron.py`), BigScience's 104B model on 384 GPUs, and MosaicML's models at 2,048
tokens on one kind of GPU, whose runs differ in GPUs, batch and micro-batch and are compared by GPU
seconds per sample. Plans that ran several times have their median. A run of the tuner is told the
published time, and all plans of the panel are candidates to the end.

Constants are those before any run of the panel: they ship, and no run of these frameworks was
fitted to, but MosaicML's, which are predicted by what is assumed of any machine
(`step_defaults.base_of`). `analysis.tune.allowed` has the tuner's own figures: the error of a run,
3 %, is that of calibrated machines (docs/howto/calibration.md), and the others are of `calibrate`
and of short lists.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ilp_planner.analysis.tune.tune import GAP, Ranking, Run, Tuner
from tests.benchmarks import nanotron
from tests.benchmarks.mixed_table import line
from tests.benchmarks.published import DATA, MOSAIC, OLD, gpu, runs
from tests.benchmarks.step_defaults import base_of
from tests.benchmarks.step_times import cluster_of, seconds
from tests.benchmarks.table import write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ilp_planner.specs.machine import Machine
    from tests.benchmarks.published import Run as Published

RESULTS = Path(__file__).parent / "results" / "tune.json"
LEAST = 5  # plans of a panel
TOKENS = 2048  # of MosaicML's runs that differ in GPUs
NEAR = 0.01  # relative: as good as the best
MOST, SHARE = 5, 0.9  # asked: runs until the best is found, and panels where it is
NOISE = 0.005  # of a published time


class Plan(NamedTuple):
    """A plan of a panel. measured: seconds, times `unit`."""

    run: Published
    measured: float
    unit: float = 1.0


Panel = tuple[Plan, ...]


@cache
def panels() -> dict[str, Panel]:
    """Return the panels by name."""
    found: dict[str, Panel] = {
        f"nanotron {model}, {gpus}": tuple(Plan(run, run.seconds) for run in of)
        for (model, gpus), of in nanotron.panels(nanotron.runs()).items()
    }
    equal: dict[str, dict[object, list[Published]]] = defaultdict(lambda: defaultdict(list))
    for run in runs():
        if name := name_of(run):
            equal[name][run.job].append(run)
    for name, jobs in sorted(equal.items()):
        plans = tuple(_plan(of) for of in jobs.values())
        if len(plans) >= LEAST:
            found[name] = plans
    return found


def name_of(run: Published) -> str:
    """Return the panel of a published run; empty if it is in none."""
    if run.family == OLD:
        return f"BigScience {run.model}, batch {run.job.global_batch}"
    if run.family.startswith(MOSAIC) and run.job.model.sequence == TOKENS:
        return f"MosaicML {run.model}, {run.gpu}, {run.precision.partition(' ')[0]}"
    return ""


def _plan(equal: Sequence[Published]) -> Plan:
    first = equal[0]
    unit = first.gpus / first.job.global_batch if first.family.startswith(MOSAIC) else 1.0
    return Plan(first, median(run.seconds for run in equal) * unit, unit)


@dataclass
class Listed:
    """The plans of a panel, by their numbers, as a set to tune in."""

    plans: Panel
    known: dict[tuple[int, Machine], float] = field(default_factory=dict)

    def seconds(self, plan: int, machine: Machine) -> float:
        """Return the predicted seconds of a plan, times its unit."""
        key = plan, machine
        if key not in self.known:
            one = self.plans[plan]
            self.known[key] = seconds(one.run, machine) * one.unit
        return self.known[key]

    def ranking(self, machine: Machine, known: Sequence[int]) -> Ranking[int]:
        """Return all plans, the fastest first."""
        times = [(plan, self.seconds(plan, machine)) for plan in range(len(self.plans))]
        return Ranking(tuple(sorted(times, key=lambda one: one[1])), math.inf)

    def fits(self, plan: int) -> None:
        """All plans ran."""

    def fail(self, plan: int, *, memory: bool) -> None:
        """None failed."""


class Replayed(NamedTuple):
    """A panel that was tuned. found: runs until one was as good as the best. runs: until the end.
    regret: of the best run at the end. first: of the first run. gap: that was proved."""

    found: int
    runs: int
    regret: float
    first: float
    gap: float


def replay(panel: Panel, gap: float = GAP) -> Replayed:
    """Tune in a panel, beyond the proof until the best is found."""
    one = panel[0].run
    device = cluster_of(one, base_of(one)).device_types[one.gpu]
    tuner = Tuner(Listed(panel), replace(device, gpu=gpu(one.gpu).name), gap)
    least = min(plan.measured for plan in panel)
    ended: tuple[int, float, float] | None = None
    while True:
        answer = tuner.answer()
        if answer.best is not None:
            regret = answer.best.seconds / least - 1
            if ended is None and (answer.gap <= gap or answer.next is None):
                ended = len(tuner.runs), regret, answer.gap
            if ended is not None and regret <= NEAR:
                break
        assert answer.next is not None
        measured = panel[answer.next].measured
        tuner.take(Run(answer.next, measured, NOISE, answer.expected))
    times = [run.seconds / least - 1 for run in tuner.runs]
    found = next(number for number, regret in enumerate(times, 1) if regret <= NEAR)
    return Replayed(found, ended[0], ended[1], times[0], ended[2])


def by_chance(panel: Panel) -> int:
    """Return the median number of runs until plans in random order have one as good as the best."""
    least = min(plan.measured for plan in panel)
    good = sum(plan.measured <= least * (1 + NEAR) for plan in panel)
    every = len(panel)
    return next(
        count
        for count in range(1, every + 1)
        if 1 - math.comb(every - good, count) / math.comb(every, count) >= 0.5
    )


def measure(only: str = "", limit: float | None = None) -> None:
    """Replay all panels, and write down what was found."""
    if not DATA.is_dir():
        print("tune: left out, no runs in ../shared/data/measured")
        return
    rows = [] if not only else [row for row in known() if only not in row["panel"]]
    for name, panel in panels().items():
        if only in name:
            found = replay(panel)._asdict()
            rows.append(
                {"panel": name, "plans": len(panel), "by chance": by_chance(panel)}
                | {key: round(value, 4) for key, value in found.items()}
            )
            print(rows[-1], flush=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    write_table("tune", tune_table(rows))


def known() -> list[dict[str, Any]]:
    """Return what was written down last."""
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    return found


def tune_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a row per panel as Markdown, then what all of them say."""
    heads = ("panel", "plans", "slower than the best: predicted best alone",
             "runs until within 1 %", "by chance, median", "runs until the proof",
             "slower than the best then")  # fmt: skip
    lines = [line(heads), "|---|" + "---:|" * 6]
    for row in rows:
        cells = (row["plans"], f"{row['first']:.1%}", row["found"], row["by chance"], row["runs"])
        lines.append(line([row["panel"], *map(str, cells), f"{row['regret']:.1%}"]))
    few = sum(row["found"] <= MOST for row in rows)
    less = sum(row["found"] <= row["by chance"] for row in rows)
    alone = sum(row["first"] <= NEAR for row in rows)
    held = sum(row["regret"] <= GAP for row in rows)
    runs = [row["runs"] for row in rows]
    worst = max(row["regret"] for row in rows)
    return "\n".join(
        [
            *lines,
            "",
            f"The best plan within 1 % is found by at most {MOST} runs in {few} of {len(rows)} "
            f"panels (asked {SHARE:.0%}), and by no more than the median of random search needs in "
            f"{less}; the plan predicted fastest is it in {alone}. The proof comes after "
            f"{median(runs):g} runs in the median, {max(runs)} at most. It holds in {held} panels; "
            f"the best run is {worst:.1%} slower than the best plan at worst, where a gap of "
            f"{GAP:.0%} was proved of the model's times.",
        ]
    )
