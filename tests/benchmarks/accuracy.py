"""All published rows at hand, predicted against measured: a picture, a table by class, the misses.

python -m tests.benchmarks --suite accuracy

Seconds of iterations are those that the suites `steps` and `nanotron` wrote down, by constants that
did not see the run; bytes are predicted anew, as no constant is fitted to them. Writes
docs/benchmarks/accuracy.svg and the tables of docs/benchmarks/accuracy.md.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks import memory, published
from tests.benchmarks.mixed_table import line
from tests.benchmarks.points import Point, by_class, keep, known
from tests.benchmarks.step_times import seconds, shipped
from tests.benchmarks.table import write_table

PICTURE = Path(__file__).parents[2] / "docs" / "benchmarks" / "accuracy.svg"
GIB, NODE = 2**30, 8
WITHIN, MISS, MISSES = 0.1, 0.25, 40  # relative errors, and how many misses are named
TITLES = {"s": "iteration (s)", "GiB": "memory of a rank (GiB)"}


def memory_points() -> list[Point]:
    """Return the bytes of ranks."""
    tests = "NVIDIA/Megatron-LM, results of its functional tests (BSD-3-Clause)"
    groups = {
        ("memory, Megatron", "SimuMax's analysis tool"): memory.tool_rows(),
        ("memory, Megatron, B200", "MooreThreads/SimuMax"): memory.b200_rows(),
        ("memory, Megatron's tests, dense", tests): memory.ci_rows(experts=False),
        ("memory, Megatron's tests, experts", tests): memory.ci_rows(experts=True),
        ("memory, Megatron's tests, between steps", tests): memory.ci_rest_rows(),
        ("memory, NeMo", "NVIDIA/dgxc-benchmarking and others"): memory.step_rows("NeMo"),
        ("memory, BigScience", "bigscience-workshop/bigscience"): memory.step_rows(published.OLD),
        ("memory, torchtitan", "pytorch/torchtitan"): memory.titan_rows(),
    }
    return [
        Point(
            suite="memory",
            kind=kind,
            name=f"{row.case}, stage {row.pp_rank}",
            unit="GiB",
            measured=row.measured / GIB,
            predicted=row.predicted / GIB,
            source=source,
        )
        for (kind, source), rows in groups.items()
        for row in rows
    ]


def titan_points() -> list[Point]:
    """Return iterations of torchtitan, to which nothing is fitted."""
    found = []
    for gpus, tokens, job in memory.titan_h200_jobs():
        name = f"Llama-3.1-8B in fp8 on {gpus} H200"
        measured = job.global_batch * job.model.sequence / gpus / tokens
        run = published.Run(
            name=name, group=name, family="torchtitan", gpu="H200", model="llama3.1-8b",
            precision="fp8-current", job=job, gpus=gpus,
            network=published.gpu("H200").network_bandwidth * NODE, seconds=measured,
        )  # fmt: skip
        found.append(
            Point(
                suite="torchtitan",
                kind="iterations, torchtitan, H200",
                name=name,
                unit="s",
                measured=measured,
                predicted=seconds(run, shipped(run)),
                source="pytorch/torchtitan, benchmarks of June 2025 (BSD-3-Clause)",
            )
        )
    return found


def class_table(points: Sequence[Point]) -> str:
    """Return a row per class as Markdown."""
    heads = ("class", "rows", "mean error", "median", "bias", "within 10 %", "within 25 %", "worst")
    lines = [line(heads), "|---|" + "---:|" * (len(heads) - 1)]
    for kind, some in by_class(points).items():
        errors = np.array([point.error for point in some])
        off, bias = np.abs(errors), float(np.median(errors))
        shares = [f"{float((off <= most).mean()):.0%}" for most in (WITHIN, MISS)]
        worst = f"{float(errors[off.argmax()]):+.0%}"
        means = f"{off.mean():.1%}", f"{np.median(off):.1%}", f"{bias:+.1%}"
        lines.append(line([kind, str(len(some)), *means, *shares, worst]))
    return "\n".join(lines)


def miss_table(points: Sequence[Point]) -> str:
    """Return the rows that are furthest off as Markdown."""
    missed = sorted((p for p in points if abs(p.error) > MISS), key=lambda p: -abs(p.error))
    heads = ("row", "class", "measured", "predicted", "off", "source")
    lines = [line(heads), "|---|---|---:|---:|---:|---|"]
    for point in missed[:MISSES]:
        values = (f"{value:.4g} {point.unit}" for value in (point.measured, point.predicted))
        lines.append(line([point.name, point.kind, *values, f"{point.error:+.0%}", point.source]))
    named = f"; the {MISSES} furthest" if len(missed) > MISSES else ""
    count = f"{len(missed)} of {len(points)} rows are more than {MISS:.0%} off{named}:"
    return "\n".join([count, "", *lines])


def draw(points: Sequence[Point]) -> None:
    """Draw predicted against measured, seconds and bytes side by side."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "accuracy"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5.6))
    for axis, (unit, title) in zip(axes, TITLES.items(), strict=True):
        some = [point for point in points if point.unit == unit]
        for kind, group in by_class(some).items():
            measured = [point.measured for point in group]
            predicted = [point.predicted for point in group]
            axis.scatter(measured, predicted, s=9, alpha=0.6, label=f"{kind} ({len(group)})")
        ends = [end([point.measured for point in some]) for end in (min, max)]
        axis.plot(ends, ends, color="black", linewidth=0.8)
        for factor in (1 - MISS, 1 + MISS):
            line_there = [factor * end for end in ends]
            axis.plot(ends, line_there, color="gray", linewidth=0.6, linestyle=":")
        axis.set(xscale="log", yscale="log")
        axis.set(xlabel=f"measured: {title}", ylabel=f"predicted: {title}")
        axis.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(PICTURE, metadata={"Date": None})
    pyplot.close(figure)


def measure() -> None:
    """Predict bytes, and write the picture and the tables of all rows."""
    if not published.DATA.is_dir():
        print("accuracy: left out, no runs in ../shared/data/measured")
        return
    keep("memory", memory_points())
    keep("torchtitan", titan_points())
    points = known()
    draw(points)
    write_table("published rows", class_table(points))
    write_table("misses", miss_table(points))
    print(class_table(points))
