"""What wider spaces of groups gain and cost: recomputation, tensor-parallel degrees for each device
type of a stage, and stages that are spread over nodes.

python -m tests.benchmarks --suite wider [--only TEXT] [--seconds 60]

Every case is solved in the narrower space and in the wider one, each by a whole command on two
cores. Seconds are of CPU.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.benchmarks.kept import Kept, loop
from tests.benchmarks.mixed_table import line
from tests.benchmarks.reuse import run
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

SECONDS = 60.0
LEAST = 5e-5  # relative: less is told as none
T4 = "tests/benchmarks/t4-4x4.toml"


class Wider(NamedTuple):
    """A choice of the space.

    name: of the wider one. narrow, wide: options of `ilp-plan solve`. cases: its other words.
    """

    name: str
    narrow: str
    wide: str
    cases: Sequence[str]


SPACES = (
    Wider("recomputation", "--recompute none", "", (
        "gpt3-350m --cluster mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b --cluster mixed-v100-t4 --global-batch-size 256",
        "gpt3-2.6b --cluster mixed-v100-t4 --global-batch-size 256",
        "gpt3-6.7b --cluster mixed-a100-t4 --global-batch-size 256 --memory-limit 40GiB",
        "gpt3-6.7b --gpus 2048xH100 --global-batch-size 1920",
    )),
    Wider("`--stage-tp mixed`", "--stage-tp one", "--stage-tp mixed", (
        "gpt3-350m --cluster mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b --cluster mixed-v100-t4 --global-batch-size 256",
        "gpt3-2.6b --cluster mixed-v100-t4 --global-batch-size 256",
        "gpt3-6.7b --cluster mixed-a100-t4 --global-batch-size 256",
        "gpt3-1.3b --cluster mixed-v100-t4 --global-batch-size 64 --max-stages 2",
        "gpt3-1.3b --cluster mixed-a100-t4 --global-batch-size 256 --max-stages 1",
        "gpt3-13b --cluster mixed-h100-a100-v100 --global-batch-size 256",
    )),
    Wider("`--seats spread`", "--seats packed", "--seats spread", (
        "gpt3-350m --cluster mixed-v100-t4 --global-batch-size 64",
        "gpt3-1.3b --cluster mixed-v100-t4 --global-batch-size 256",
        "gpt3-1.3b --cluster mixed-a100-t4 --global-batch-size 256",
        "gpt3-1.3b --gpus 16xT4 --global-batch-size 1024",
        "gpt3-2.6b --gpus 16xL4 --global-batch-size 512",
        f"gpt3-1.3b --cluster {T4} --global-batch-size 256",
        f"gpt3-1.3b --cluster {T4} --global-batch-size 1024",
        f"gpt3-2.6b --cluster {T4} --global-batch-size 1024",
    )),
)  # fmt: skip


def named(space: Wider, words: str) -> str:
    """Return what a row is called."""
    return f"{space.name}: {words}"


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose name contains `only`; write the results and the table."""
    kept = Kept("wider", [named(space, words) for space in SPACES for words in space.cases])
    limit = ["--time-limit", str(seconds or SECONDS), "--prefer-plain", "0"]
    for space in SPACES:
        for words in space.cases:
            if only in named(space, words):
                asked = ["solve", "--space", "groups", "--model", *words.split(), *limit]
                narrow = run([*asked, *space.narrow.split()])
                wide = run([*asked, *space.wide.split()])
                case = {"case": named(space, words), "loop_s": loop()}
                kept.add(case | {"narrow": narrow, "wide": wide})
    write_table("wider", table(kept.rows))


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown what each choice gains and costs."""
    head = ["the wider space: case", "loop (s)", "narrower (s)", "gap", "CPU-s", "wider (s)", "gap"]
    head += ["CPU-s", "times", "less"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        narrow, wide = row["narrow"], row["wide"]
        cells = [row["case"], f"{row['loop_s']:.1f}", *found(narrow), *found(wide)]
        cells += [f"{wide['cpu_s'] / narrow['cpu_s']:.1f}", less(narrow, wide)]
        lines.append(line(cells))
    return "\n".join(lines)


def found(run: Row) -> list[str]:
    """Return a run's seconds per iteration, its gap and its CPU seconds."""
    if run["objective_s"] is None:
        return ["no plan", "-", f"{run['cpu_s']:.1f}"]
    return [f"{run['objective_s']:.3f}", percent(run["gap"]), f"{run['cpu_s']:.1f}"]


def less(narrow: Row, wide: Row) -> str:
    """Return by how much the wider space's plan is faster; below 0 where its search had too little
    time."""
    if None in (narrow["objective_s"], wide["objective_s"]):
        return "-"
    share = 1 - wide["objective_s"] / narrow["objective_s"]
    return "0" if abs(share) < LEAST else f"{100 * share:.2f} %"
