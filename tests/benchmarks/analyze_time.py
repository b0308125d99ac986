"""How long `ilp-plan analyze` takes, start of the process to its end.

    python -m tests.benchmarks.analyze_time

A table is printed; nothing is asserted, because times flicker on shared machines.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

CASES = {
    "gpt3-1.3b on 16 GPUs": "--model gpt3-1.3b --tp 2 --pp 2 --dp 4 --global-batch-size 64",
    "deepseek-v3 on 2048 GPUs": (
        "--model deepseek-v3 --tp 2 --pp 16 --dp 64 --ep 64 --etp 1 "
        "--layout Et*3|(t*4|)*14t*2L --global-batch-size 4096 --sequence-parallel"
    ),
    "llama3-405b on 16384 GPUs": (
        "--model llama3-405b --tp 8 --pp 16 --dp 128 --layout Et*7|(t*8|)*14t*7L "
        "--global-batch-size 2048 --sequence-parallel --distributed-optimizer"
    ),
}
RUNS = 7


def measure(options: str) -> list[float]:
    """Return the seconds of each run, sorted."""
    command = [sys.executable, "-m", "ilp_planner", "analyze", *options.split()]
    found = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - start)
    return sorted(found)


def main() -> None:
    """Print a row per case."""
    print(f"{'case':<28}{'least (s)':>10}{'median (s)':>12}")
    for name, options in CASES.items():
        seconds = measure(options)
        print(f"{name:<28}{seconds[0]:>10.2f}{statistics.median(seconds):>12.2f}")


if __name__ == "__main__":
    main()
