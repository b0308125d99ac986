"""`make soak HOURS=2`: random solves, reads and exports in one process, for as long.

The memory that it holds after 10, 50 and 100 % of the time is reported, and must not grow.

Memory is what the system says is resident, at most in the tenth of the time that ends there: single
solves go up and down. What was loaded, compiled and kept in the first half stays.
"""

import argparse
import contextlib
import gc
import io
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ilp_planner.base.resident import resident
from ilp_planner.faces.cli.main import run as command
from ilp_planner.formats.exports import TARGETS
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from tests.every_space import PROBLEMS
from tests.fuzz.__main__ import made
from tests.fuzz.readers import run as reading

MEBIBYTE = 2**20
GROWTH, ROOM = 0.02, 8 * MEBIBYTE  # that memory may have after half the time, of what it was then
SHARES = (0.1, 0.5, 1.0)
SOLVERS = ("auto", "auto", "dp", "milp", "cp-sat", "anneal")
ENDS = range(6)  # exit codes that are meant
READS = 20  # inputs at a time
JOBS = (  # model and cluster, by name
    ("gpt3-350m", "v100-32gb-1x8"),
    ("gpt-10l-4096", "mixed-a100-t4"),
    ("llama3-8b", "b200-1x8"),
)


class Sample(NamedTuple):
    """Bytes that are held after a share of the time."""

    share: float
    held: int


def solves(draw: random.Random) -> None:
    """Solve a small problem of a random space."""
    problem = PROBLEMS[draw.choice(list(PROBLEMS))]()
    limits = Limits(seconds=draw.uniform(0.05, 2.0), seed=draw.randrange(100), workers=1)
    solve(problem, limits=limits, solver=draw.choice(SOLVERS))


def reads(draw: random.Random) -> None:
    """Read hostile and honest inputs of all readers."""
    for _ in range(READS):
        number = draw.randrange(10**9)
        end = reading(*made(number))
        assert end in ("read", "refused"), f"input {number}: {end}"


def exports(draw: random.Random) -> None:
    """Plan with a command, judge the plan, draw it, and write it for every runtime."""
    model, cluster = draw.choice(JOBS)
    batch = ("--global-batch-size", str(draw.choice((8, 16, 32))))
    limit = ("--time-limit", f"{draw.uniform(0.5, 3):.2f}")
    done = asked("solve", model, cluster, *batch, *limit, "--output", "plan.json")
    if done == 0:
        asked("evaluate", "plan.json")
        asked("show", "plan.json", "--html", "plan.html", "--trace", "trace.json")
        for to in TARGETS:
            asked("export", "plan.json", "--to", to, "--output", f"out-{to}")


def asked(*words: str) -> int:
    """Run a command; return its exit code, which must be one that is meant."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = command([*words])
    assert code in ENDS, said.getvalue()
    assert "this is a bug" not in said.getvalue(), f"{words}: {said.getvalue()}"
    return code


WORK = (solves, solves, reads, exports)


def soak(seconds: float, seed: int) -> tuple[list[Sample], Counter[str]]:
    """Work for so many seconds; return what is held after each piece, and how often each was."""
    draw, samples, done = random.Random(seed), list[Sample](), Counter[str]()
    begun = time.monotonic()
    while (share := (time.monotonic() - begun) / seconds) < 1:
        work = draw.choice(WORK)
        work(draw)
        gc.collect()
        done[work.__name__] += 1
        samples.append(Sample(share, resident()))
    return samples, done


def held(samples: Sequence[Sample], share: float) -> int:
    """Return the most bytes that were held in the tenth of the time that ends at a share of it; the
    last sample before, where there is none."""
    until = [one for one in samples if one.share <= share]
    window = [one.held for one in until if one.share > share - SHARES[0]]
    return max(window, default=until[-1].held if until else samples[0].held)


def grows(samples: Sequence[Sample]) -> bool:
    """Tell whether memory was still growing in the second half of the time."""
    _, half, whole = (held(samples, share) for share in SHARES)
    return whole > half * (1 + GROWTH) + ROOM


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as at, contextlib.chdir(Path(at)):
        samples, done = soak(given.hours * 3600, given.seed)
    print(", ".join(f"{count} x {name}" for name, count in done.items()))
    for share in SHARES:
        print(f"{share:5.0%} of the time: {held(samples, share) / MEBIBYTE:.0f} MiB")
    if grows(samples):
        sys.exit("memory grows")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
