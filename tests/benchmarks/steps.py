"""Predicted iteration times against published ones.

python -m tests.benchmarks --suite steps

One run per independent group judges: its newest release. `one model left out`: by constants that
saw no run of its model (`machine_fit`). `shipped`: by those that the planner comes with, which saw
these runs. Otherwise constants are fitted to some groups of a set and judged by others, over
several seeds.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ilp_planner.specs.machine import USUAL
from tests.benchmarks import published
from tests.benchmarks.machine_fit import (
    BLACKWELL,
    HOPPER,
    every_run,
    models_left_out,
    runs,
    too_large_runs,
)
from tests.benchmarks.points import Point, keep
from tests.benchmarks.published import INTERNEVO, MOSAIC, OLD, Run, gpu, newest
from tests.benchmarks.published_tables import b200_runs, korthikanti_runs, sc21_runs
from tests.benchmarks.step_defaults import MEGATRON, base_of
from tests.benchmarks.step_fit import by_machine, drawn, one_out
from tests.benchmarks.step_times import Judged, constants, judge_by, physical, score, shipped

RESULTS = Path(__file__).parent / "results" / "steps.json"
TOP = (1, 3)
HALF, THIRD = 2, 3
SHIPPED, HALVES = "shipped constants", "half, on the other half, both ways"
LEFT = "one model left out"
WORKERS = 4
PLANS = 3  # of a group in which plans are ranked
SHIPPED_CONSTANTS = (
    *MEGATRON,
    "streaming",
    "tensor_exposed",
    "expert_exposed",
    "data_exposed",
    "sharded_exposed",
    "host_experts",
    "expert_waits",
    "low_precision",
    "grouped",
    "attention",
    "attention_backward",
)


class Row(NamedTuple):
    """A line of the table. what: the runs. how: what was fitted on what. asked: mean error."""

    what: str
    how: str
    judged: Judged
    asked: float
    noise: str = "-"


def of(*families: str) -> list[Run]:
    """Return the runs of frameworks whose names begin so, one per group."""
    return [run for run in newest(list(published.runs())) if run.family.startswith(families)]


def nvidia_rows() -> list[Row]:
    """Judge NVIDIA's, PyTorch's and SimuMax's runs, of dense models and of experts."""
    left, every = models_left_out(), list(runs())
    dense = [run for run in every if run.job.model.experts is None]
    exact, low = ([run for run in dense if is_low(run) == some] for some in (False, True))
    hopper = [run for run in every if gpu(run.gpu).machine in HOPPER]
    experts = [run for run in every if run not in dense]
    new = [run for run in low if run not in hopper]
    every_group = newest([*every_run(), *too_large_runs()])
    unfit = [run for run in every_group if run in too_large_runs()]
    with_unfit = [*new, *(run for run in unfit if gpu(run.gpu).machine not in HOPPER)]
    found = []
    for what, some, asked, noise in (
        ("H100, dense, 16 bits", [run for run in exact if run in hopper], 0.05, "0.8 %"),
        ("H100, dense, 8 bits", [run for run in low if run in hopper], 0.08, "0.8 %"),
        ("B200, dense, 16 bits", [run for run in exact if run not in hopper], 0.05, "-"),
        ("B200, B300, GB200, GB300, dense, 8 and 4 bits", new, 0.08, "1.3 %"),
        ("with those that do not fit their GPU", with_unfit, 0.08, "1.3 %"),
        ("experts, H100 to GB300", experts, 0.14, "5.7 %"),
        ("those whose settings are known", [run for run in experts if run.known], 0.14, "1.2 %"),
    ):
        found += [
            Row(what, LEFT, among(left, some), asked, noise),
            Row("", SHIPPED, judge_by(some, shipped), asked, noise),
        ]
    kept = left.only({run.name for run in every_run()})
    return [*found, Row("all releases of all of them", LEFT, kept, 0.14)]


def is_low(run: Run) -> bool:
    """Tell whether products of a run are in 8 or 4 bits."""
    return bool(run.job.settings.kernels.quantised)


def sharded_rows(gpu: str) -> list[Row]:
    """Judge MosaicML's runs of FSDP on one GPU."""
    runs = [run for run in of(MOSAIC) if run.gpu == gpu]
    sizes = one_out(base_of, runs, lambda run: run.model)
    return [
        Row(f"FSDP, {gpu}", "a third, on the rest", drawn(base_of, runs, THIRD), 0.05),
        Row("", "one model size left out", sizes, 0.06),
    ]


def science_rows() -> list[Row]:
    """Judge BigScience's runs."""
    return [Row("BigScience", HALVES, drawn(base_of, of(OLD), HALF), 0.06, "1.9 %")]


def other_rows() -> list[Row]:
    """Judge the runs of InternEvo, SimuMax, and of Megatron's authors."""
    found = [
        Row("InternEvo", "one group left out", one_out(base_of, of(INTERNEVO), _group), 0.06),
        Row("SimuMax, B200", HALVES, drawn(base_of, b200_runs(), HALF), 0.045),
    ]
    tables = sc21_runs(), korthikanti_runs()
    for seen, rest in (tables, tables[::-1]):
        judged, _ = by_machine(base_of, seen, rest)
        found.append(Row(rest[0].family, f"on {seen[0].family}", judged, 0.05))
    return found


PARTS: tuple[Callable[[], list[Row]], ...] = (
    nvidia_rows,
    *(partial(sharded_rows, gpu) for gpu in ("A100-40GB", "A100-80GB", "H100")),
    science_rows,
    other_rows,
)


def table() -> list[Row]:
    """Run all protocols."""
    with ProcessPoolExecutor(WORKERS) as pool:
        parts = [pool.submit(part) for part in PARTS]
        return [row for part in parts for row in part.result()]


def _group(run: Run) -> str:
    return run.group


def among(judged: Judged, runs: Sequence[Run]) -> Judged:
    """Return what was predicted of some of the runs."""
    names = {run.name for run in runs}
    pairs = zip(judged.runs, judged.predicted, strict=True)
    kept = [(run, time) for run, time in pairs if run.name in names]
    return Judged(tuple(run for run, _ in kept), tuple(time for _, time in kept))


def regrets() -> dict[str, Any]:
    """Return how much slower the plan that is predicted best is than the best one, of plans of one
    model: by constants fitted to the runs of all other models.

    A group: at least three plans of one model on as many GPUs for as many samples. Where the best
    of three predicted best counts, those of more than three.
    """
    science = of(OLD)
    found: dict[int, list[float]] = {top: [] for top in TOP}
    groups: dict[tuple[str, int, int], list[Run]] = {}
    for run in science:
        groups.setdefault((run.model, run.gpus, run.job.global_batch), []).append(run)
    groups = {key: some for key, some in groups.items() if len(some) >= PLANS}
    for (model, _, _), some in groups.items():
        seen = [run for run in science if run.model != model]
        judged, _ = by_machine(base_of, seen, some)
        order = np.argsort(judged.predicted)
        times = np.array([run.seconds for run in some])
        for top in (top for top in TOP if top < len(some)):
            found[top].append(float(times[order[:top]].min() / times.min() - 1))
    return {
        "groups": {", ".join(map(str, key)): len(some) for key, some in groups.items()},
        **{
            f"top {top}": {"median": round(float(np.median(of)), 4), "worst": round(max(of), 4)}
            for top, of in found.items()
        },
    }


def bounds() -> dict[str, Any]:
    """Return how near the physical bound comes to every published time; above 1 it is wrong."""
    every = [*published.runs(), *b200_runs(), *sc21_runs(), *korthikanti_runs()]
    shares = [physical(run, base_of(run)) / run.seconds for run in every]
    nearest = int(np.argmax(shares))
    return {
        "runs": len(every),
        "above": sum(share > 1 for share in shares),
        "nearest": round(shares[nearest], 3),
        "nearest run": f"{every[nearest].name}, {every[nearest].model}",
    }


def held_out(rows: Sequence[Row]) -> list[Point]:
    """Return every run with the mean of what constants predict that did not see it."""
    found: dict[str, list[float]] = {}
    named: dict[str, Run] = {}
    for row in rows:
        if row.how == SHIPPED:
            continue
        for run, time in zip(row.judged.runs, row.judged.predicted, strict=True):
            named[run.name] = run
            found.setdefault(run.name, []).append(time)
    about = {row["id"]: row for row in published.rows()}
    return [
        Point(
            suite="steps",
            kind=kind_of(run),
            name=f"{run.model} on {run.gpus} {run.gpu}, {run.precision} ({name})",
            unit="s",
            measured=run.seconds,
            predicted=float(np.mean(found[name])),
            source=_source(about.get(name), run),
        )
        for name, run in named.items()
    ]


def kind_of(run: Run) -> str:
    """Return the class of a run."""
    new = gpu(run.gpu).machine in BLACKWELL
    generation = "Blackwell" if new else "Hopper"
    if run.job.model.experts is not None:
        return f"experts, {generation}"
    sharded = ", FSDP" * ("FSDP" in run.family)
    if gpu(run.gpu).machine == "A100":
        return f"dense, A100{sharded}"
    bits = "8 and 4 bits" if is_low(run) else "16 bits"
    return f"dense, {generation}, {bits}{sharded}"


def _source(row: dict[str, Any] | None, run: Run) -> str:
    """Return the repository, path and licence of a row, or the family of a run of a table."""
    if row is None:
        return run.family
    source = row["source"]
    place = f"{source['repo']}, {source['path']}" if source.get("path") else source["repo"]
    return f"{place} ({row['licence']})"


def measure() -> None:
    """Run all protocols and write down what was found."""
    if not published.DATA.is_dir():
        print("steps: left out, no runs in ../shared/data/measured")
        return
    rows, found = [], table()
    for row in found:
        scores = score(row.judged)
        rows.append({"what": row.what, "how": row.how, "asked": row.asked, "noise": row.noise})
        rows[-1] |= scores
        print(f"{row.what:32} {row.how:36}", scores, flush=True)
    record = {
        "left out": left_out_by(),
        "defaults": {name: constants(of, SHIPPED_CONSTANTS) for name, of in USUAL.items()},
        "sets": rows,
        "ranking": regrets(),
        "physical bound": bounds(),
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    keep("steps", held_out(found))
    print(record["ranking"], record["physical bound"])


def left_out_by() -> Counter[str]:
    """Return how many rows are not judged by, by reasons."""
    found = Counter(filter(None, map(published.left_out, published.rows())))
    found["do not fit their GPU as stated"] = sum(map(published.too_large, published.stated()))
    return found


def known() -> dict[str, Any]:
    """Return what was written down last."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found
