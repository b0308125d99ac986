"""The constants of machines with Hopper's and Blackwell's GPUs, fitted together to published runs.

python -m tests.benchmarks.machine_fit [experts]

Each constant is of the GPUs that it is named with: clocks under load are each GPU's own, rates of
kernels those of an architecture, as is the host's time for experts. Runs of NVIDIA's frameworks, of
PyTorch's FSDP and of SimuMax are seen, one per group. Beside the runs, each constant is held near a
value by the scale of its prior: for clocks of B200 and H100 what runs of SimuMax and MosaicML had
told (`step_defaults`), for others of Blackwell's that times what one recipe gains from GPU to GPU
in the median (GB300 1.22 of GB200, B300 1.11 of B200), 1 for rates of kernels. The host's time for
a kernel is what SimuMax's dense runs with tp 8 told: 5.1 ms for 38 kernels and messages of a layer;
the device is assumed to wait for half of them where it waits.

A row is judged by constants that saw no run of its model, on no GPU. `experts` fits what is of
experts alone, all else as it ships: so what is shipped was fitted after a change of their kernels.
"""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np

from ilp_planner.analysis.calibration.free import nearest_values
from ilp_planner.specs.machine import USUAL, Machine, with_constants
from tests.benchmarks import published
from tests.benchmarks.published import NVIDIA, Run, gpu, newest
from tests.benchmarks.published_tables import b200_runs
from tests.benchmarks.step_times import Judged, judge_by, seconds

SEEN, SIMUMAX = (*NVIDIA, "PyTorch"), "SimuMax"
HOPPER, BLACKWELL = ("H100",), ("B200", "B300", "GB200", "GB300")
GPUS = (*HOPPER, *BLACKWELL)
EVALUATIONS, TOLERANCE = 25, 1e-4
PULL = 2.0  # scales of a constant, as `calibration.free` has them
WORKERS = 2
HELD = 1e-6  # scale of the prior of a constant that stays
NO_EXPERTS = {"grouped": 1.0, "host_experts": 0.0, "expert_waits": 0.0}


class Constant(NamedTuple):
    """A constant of `Machine` that some GPUs share. prior, scale: seconds, or a share."""

    name: str
    gpus: tuple[str, ...]
    prior: float
    scale: float


CONSTANTS = (
    Constant("sustained", HOPPER, 0.79, 0.04),
    Constant("sustained", ("B200",), 0.71, 0.08),
    Constant("sustained", ("GB200",), 0.71, 0.08),
    Constant("sustained", ("B300",), 0.71 * 1.11, 0.08),
    Constant("sustained", ("GB300",), 0.71 * 1.22, 0.08),
    *(Constant("low_precision", some, 1.0, 0.1) for some in (HOPPER, BLACKWELL)),
    Constant("attention", BLACKWELL, 1.0, 0.15),
    Constant("attention_backward", BLACKWELL, 1.0, 0.15),
    Constant("grouped", BLACKWELL, 1.0, 0.2),
    Constant("streaming", BLACKWELL, 0.8, 0.1),
    *(Constant("host_experts", some, 0.13e-3, 0.02e-3) for some in (HOPPER, BLACKWELL)),
    *(Constant("expert_waits", some, 0.065e-3, 0.02e-3) for some in (HOPPER, BLACKWELL)),
    Constant("sharded_exposed", BLACKWELL, 0.5, 0.1),
)


@cache
def every_run() -> tuple[Run, ...]:
    """Return the runs of all releases."""
    return _of_these((*published.runs(), *b200_runs()))


@cache
def too_large_runs() -> tuple[Run, ...]:
    """Return the runs that do not fit their GPU as stated: predicted, and seen by no fit."""
    return _of_these(tuple(filter(published.too_large, published.stated())))


def _of_these(runs: Sequence[Run]) -> tuple[Run, ...]:
    families = (*SEEN, SIMUMAX)
    return tuple(
        run for run in runs if run.family.startswith(families) and gpu(run.gpu).machine in GPUS
    )


@cache
def runs() -> tuple[Run, ...]:
    """Return the runs that constants are fitted to, one per group."""
    return tuple(newest(list(every_run())))


def machines(values: Sequence[float]) -> Mapping[str, Machine]:
    """Return the machine of each GPU by the values of `CONSTANTS`."""
    found = {name: USUAL[name] for name in GPUS}
    for constant, value in zip(CONSTANTS, values, strict=True):
        for name in constant.gpus:
            found[name] = with_constants(found[name], {constant.name: float(value)})
    return found


def fitted(
    seen: Sequence[Run],
    start: Sequence[float] | None = None,
    most: int = EVALUATIONS,
    constants: Sequence[Constant] = CONSTANTS,
) -> Mapping[str, Machine]:
    """Return the machine of each GPU that is nearest to some runs.

    start: values of `CONSTANTS` to begin at; None: at the priors. most: steps. constants: with
    other priors.
    """
    prior = np.array([constant.prior for constant in constants])

    @cache
    def time(number: int, machine: Machine) -> float:
        return seconds(seen[number], machine)

    def own(run: Run, of: Mapping[str, Machine]) -> Machine:
        """Return a run's machine; what is of experts alone changes no dense model."""
        machine = of[gpu(run.gpu).machine]
        return machine if run.job.model.experts else with_constants(machine, NO_EXPERTS)

    def predict(values: np.ndarray) -> list[float]:
        of = machines(values.tolist())
        return [time(number, own(run, of)) for number, run in enumerate(seen)]

    found = nearest_values(
        [constant.name for constant in CONSTANTS],
        predict,
        [run.seconds for run in seen],
        prior,
        np.array([constant.scale for constant in constants]),
        starts=[prior if start is None else start],
        pull=PULL,
        evaluations=most,
        tolerance=TOLERANCE,
    )
    return machines(found.tolist())


def model_of(run: Run) -> str:
    """Return the name of a run's model, whatever part of its layers was trained."""
    return run.model.partition("@")[0]


def models_left_out() -> Judged:
    """Predict the runs of each model, of all releases, by constants that saw none of its runs."""
    names = dict.fromkeys(map(model_of, (*runs(), *too_large_runs())))
    with ProcessPoolExecutor(WORKERS) as pool:
        return sum(pool.map(_without, names), Judged((), ()))


def _without(name: str) -> Judged:
    """Predict the runs of a model by constants that saw none of them."""
    of = fitted([run for run in runs() if model_of(run) != name])
    rest = [run for run in (*every_run(), *too_large_runs()) if model_of(run) == name]
    return judge_by(rest, lambda run: of[gpu(run.gpu).machine])


def values_of(of: Mapping[str, Machine]) -> list[float]:
    """Return the fitted constants of machines, in the order of `CONSTANTS`."""
    return [getattr(of[constant.gpus[0]], constant.name) for constant in CONSTANTS]


def of_experts() -> Mapping[str, Machine]:
    """Return the machines that ship with constants of experts fitted to all runs of experts."""
    seen = [run for run in runs() if run.job.model.experts]
    usual = values_of(USUAL)
    held = [
        constant if constant.name in NO_EXPERTS else constant._replace(prior=value, scale=HELD)
        for constant, value in zip(CONSTANTS, usual, strict=True)
    ]
    return fitted(seen, constants=held)


def main() -> None:
    """Print the constants fitted to all runs."""
    found = of_experts() if sys.argv[1:] == ["experts"] else fitted(runs())
    for constant, value in zip(CONSTANTS, values_of(found), strict=True):
        print(f"{constant.name:20}{', '.join(constant.gpus):28}{value:.3g}")


if __name__ == "__main__":
    main()
