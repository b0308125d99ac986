"""How far off times are by how many runs of one's own constants were fitted to.

python -m tests.benchmarks.step_own

MosaicML's runs stand for one's own: of each GPU so many are drawn, `calibrate`'s constants are
fitted to them from constants that saw none of them, and the others are predicted. The table is in
docs/howto/calibration.md.
"""

from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np

from ilp_planner.analysis.calibration.free import FREE, reasons
from tests.benchmarks.mixed_table import line
from tests.benchmarks.step_defaults import base_of, sharded_runs
from tests.benchmarks.step_fit import fitted
from tests.benchmarks.step_times import judge, score

COUNTS = (0, 1, 3, 5, 8, 12)
DRAWS = 10
GPUS = ("H100", "A100-80GB", "A100-40GB")
WORKERS = 2


def error(count: int, gpu: str) -> float:
    """Return the mean relative error of a GPU's runs by so many others of them, over all draws."""
    runs = [run for run in sharded_runs() if run.gpu == gpu]
    found = []
    for seed in range(DRAWS if count else 1):
        order = np.random.default_rng(seed).permutation(len(runs)).tolist()
        seen, rest = ([runs[i] for i in some] for some in (order[:count], order[count:]))
        machine = base_of(runs[0])
        if seen:
            jobs = [run.job for run in seen]
            why = reasons(jobs, dict.fromkeys(FREE, count), jobs[0].devices_per_node)
            machine = fitted(machine, seen, [name for name in why if not why[name]])
        found.append(score(judge(rest, machine))["mape"])
    return float(np.mean(found))


def main() -> None:
    """Print the table as Markdown."""
    counts = {gpu: sum(run.gpu == gpu for run in sharded_runs()) for gpu in GPUS}
    print(line(["own runs", *(f"{count} on {gpu}" for gpu, count in counts.items())]))
    print("|---:|" + "---:|" * len(GPUS))
    with ProcessPoolExecutor(WORKERS) as pool:
        errors = list(pool.map(error, *zip(*product(COUNTS, GPUS), strict=True)))
    for number, count in enumerate(COUNTS):
        row = errors[number * len(GPUS) : (number + 1) * len(GPUS)]
        print(line([str(count), *(f"{one:.0%}" for one in row)]))


if __name__ == "__main__":
    main()
