"""When the first plan, a bound and a good plan come, and whether time limits hold.

python -m tests.benchmarks --suite anytime [--only TEXT] [--seconds 10]

Every row is the command line in a process of its own on two cores, with compiled kernels; seconds
are counted from the start of the process to what it shows, and to its end. A plan is good where
it takes at most 2 % more than the final one of the longest limit. On the largest cases, limits of
1 to 60 s are tried: a process may take 1.05 times its limit and half a second.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from ilp_planner.base.numerics import PROVED
from ilp_planner.optimize.result import relative_gap
from tests.benchmarks.kept import Kept, process
from tests.benchmarks.mixed_table import line
from tests.benchmarks.table import percent, write_table

Row = dict[str, Any]

SECONDS = 10.0
GOOD = 1.02
LIMITS = (1.0, 2.0, 5.0, 60.0)  # besides `SECONDS`, where it is tried whether limits hold
LARGE = 1000  # devices: from here on the first plan may take twice as long
ASKED, ASKED_LARGE = 1.5, 3.0  # seconds to the first plan
# What is asked of `ilp-plan solve`, whether limits are tried with it, and how many devices it has.
CASES: tuple[tuple[str, bool, int], ...] = (
    ("llama3-70b --gpus 64xH100 --global-batch-size 512", False, 64),
    ("mixtral-8x7b --gpus 128xH100 --global-batch-size 1024", False, 128),
    ("deepseek-v3 --gpus 2048xH100 --global-batch-size 8192", True, 2048),
    ("llama3-405b --gpus 16384xH100 --global-batch-size 2048", False, 16384),
    ("gpt3-1.3b --cluster mixed-v100-t4 --global-batch-size 256", False, 16),
    ("llama3-70b --gpus 256xH100 --runtime torchtitan --global-batch-size 1024", True, 256),
    ("llama3-8b --gpus 64xH100 --runtime deepspeed --global-batch-size 512", False, 64),
    ("gpt3-1.3b --gpus 256xH100 --space operators --global-batch-size 1024", False, 256),
    ("gpt3-13b --gpus 512xH100 --space operators --global-batch-size 1024", False, 512),
    ("gpt3-13b --gpus 4096xH100 --space operators --global-batch-size 2048", True, 4096),
    ("t5-22b --gpus 64xH100", False, 64),
    ("gpt3-6.7b --gpus 2048xH100 --space groups --global-batch-size 1920", True, 2048),
    ("gpt3-1.3b --cluster mixed-v100-t4 --space groups --global-batch-size 256", False, 16),
)


def measure(only: str, seconds: float | None) -> None:
    """Measure the cases whose words contain `only`; write the results and the tables."""
    kept = Kept("anytime", [words for words, _, _ in CASES])
    for words, limits, devices in CASES:
        if only in words:
            every = sorted({seconds or SECONDS, *(LIMITS if limits else ())})
            runs = {str(limit): run(words, limit) for limit in every}
            kept.add({"case": words, "devices": devices, "runs": runs})
    write_table("anytime", table(kept.rows))
    write_table("limits", limits_table(kept.rows))


def run(words: str, limit: float) -> Row:
    """Solve in a process of its own; return what was shown when, and when it ended."""
    begun = time.time()
    options = ["--time-limit", str(limit), "--json"]
    command = [str(begun), "solve", "--model", *words.split(), *options]
    done = process("tests.benchmarks.anytime_one", *command)
    wall = time.time() - begun
    shown = [json.loads(text) for text in done.stderr.splitlines() if text.startswith("[")]
    plans = [(at, plan) for at, plan, _ in shown if plan is not None]
    bounds = [(at, bound) for at, _, bound in shown if bound > 0]
    return {
        "wall_s": wall,
        "exit_code": done.returncode,
        "plans": [entry for n, entry in enumerate(plans) if not n or entry[1] < plans[n - 1][1]],
        "bound_at_s": bounds[0][0] if bounds else None,
        "bound_s": bounds[-1][1] if bounds else 0.0,
    }


def table(rows: Sequence[Row]) -> str:
    """Return as Markdown what comes when."""
    head = ["case", "first plan (s)", "asked (s)", "above the last one", "bound (s)"]
    head += ["within 2 % (s)", f"gap after {SECONDS:.0f} s", "end (s)"]
    lines = [line(head), "|---|" + "---:|" * (len(head) - 1)]
    for row in rows:
        own = row["runs"][str(SECONDS)]
        final = min(
            (one["plans"][-1][1] for one in row["runs"].values() if one["plans"]), default=0
        )
        asked = ASKED_LARGE if row["devices"] > LARGE else ASKED
        plans = own["plans"]
        good = next((at for at, plan in plans if plan <= GOOD * final), None)
        gap = relative_gap(plans[-1][1], own["bound_s"]) if plans else None
        cells = [
            f"`{row['case']}`",
            seconds_of(plans[0][0] if plans else None),
            f"{asked:.1f}",
            "-" if not plans else percent(plans[0][1] / final - 1),
            seconds_of(own["bound_at_s"]),
            seconds_of(good),
            "-" if gap is None else percent(0.0 if gap <= PROVED else gap),
            seconds_of(own["wall_s"]),
        ]
        lines.append(line(cells))
    return "\n".join(lines)


def limits_table(rows: Sequence[Row]) -> str:
    """Return as Markdown how long processes took under their limits."""
    every = sorted({SECONDS, *LIMITS})
    lines = [line(["case", *(f"limit {limit:g} s" for limit in every)])]
    lines.append("|---|" + "---:|" * len(every))
    asked = [1.05 * limit + 0.5 for limit in every]
    lines.append(line(["asked, at most", *(f"{most:.2f}" for most in asked)]))
    for row in rows:
        if len(row["runs"]) > 1:
            walls = [row["runs"].get(str(limit)) for limit in every]
            cells = ["-" if own is None else f"{own['wall_s']:.2f}" for own in walls]
            lines.append(line([f"`{row['case']}`", *cells]))
    return "\n".join(lines)


def seconds_of(value: float | None) -> str:
    """Return seconds, or what says that there are none."""
    return "-" if value is None else f"{value:.1f}"
