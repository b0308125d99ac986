"""The spread of constants of machines that published runs leave open.

python -m tests.benchmarks.machine_spread

Of constants that `machine_fit` fits to runs, the larger of two figures: the jackknife's standard
error over fits that each saw no run of one model, and the standard deviation that all runs and the
priors leave of a constant by the slopes of their errors at the fit. The former has what models
disagree in, the latter what no run says.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from ilp_planner.analysis.calibration.free import SCALE
from ilp_planner.specs.machine import USUAL
from tests.benchmarks.machine_fit import (
    CONSTANTS,
    PULL,
    WORKERS,
    fitted,
    machines,
    model_of,
    runs,
    values_of,
)
from tests.benchmarks.published import gpu
from tests.benchmarks.step_times import seconds

STEP = 0.01  # of a prior's scale, for slopes
NEARBY = 4  # steps of a fit that begins at the constants that ship, which all runs were fitted to


def without(name: str) -> list[float]:
    """Return the constants fitted to the runs of all models but one."""
    seen = [run for run in runs() if model_of(run) != name]
    return values_of(fitted(seen, values_of(USUAL), NEARBY))


def jackknife(fits: Sequence[Sequence[float]]) -> list[float]:
    """Return the standard error of each constant: fits [left-out group, constant]."""
    found = np.array(fits)
    count = len(found)
    of_mean = (count - 1) / count * ((found - found.mean(axis=0)) ** 2).sum(axis=0)
    return [float(value) for value in np.sqrt(of_mean)]


def left_by_slopes(at: Sequence[float]) -> list[float]:
    """Return the standard deviation of each constant that errors of `SCALE` on every run and the
    priors of `machine_fit` leave, linearised at a fit."""
    scale = np.array([constant.scale for constant in CONSTANTS])

    def logs(values: np.ndarray) -> np.ndarray:
        of = machines(values.tolist())
        return np.log([seconds(run, of[gpu(run.gpu).machine]) for run in runs()])

    here, step = np.array(at), STEP * scale
    base = logs(here)
    slopes = [
        (logs(here + step * own) - base) / step[place]
        for place, own in enumerate(np.eye(len(CONSTANTS)))
    ]
    rows = np.vstack((np.array(slopes).T / SCALE, np.diag(1 / (PULL * scale))))
    return [float(value) for value in np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))]


def main() -> None:
    """Print, for each constant, its fit, both figures and the larger one."""
    names = list(dict.fromkeys(map(model_of, runs())))
    with ProcessPoolExecutor(WORKERS) as pool:
        apart = jackknife(list(pool.map(without, names)))
    at = values_of(fitted(runs(), values_of(USUAL), NEARBY))
    for constant, value, by_models, by_slopes in zip(
        CONSTANTS, at, apart, left_by_slopes(at), strict=True
    ):
        print(
            f"{constant.name:20}{' '.join(constant.gpus):30}{value:<10.3g}{by_models:<10.2g}"
            f"{by_slopes:<10.2g}{max(by_models, by_slopes):.2g}"
        )


if __name__ == "__main__":
    main()
