"""Machines fitted to published runs: what a number of runs can tell, and how halves are drawn."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ilp_planner.analysis.calibration.free import fit
from ilp_planner.job.states import rhythm
from ilp_planner.specs.machine import Machine
from tests.benchmarks.published import Run
from tests.benchmarks.step_times import Judged, judge, seconds

FEW, MANY = 5, 10  # runs from which on more constants are fitted
SEEDS = range(5)


def free_constants(runs: Sequence[Run]) -> tuple[str, ...]:
    """Return the constants that so many runs of such jobs can tell."""
    jobs = [run.job for run in runs]
    if len(runs) < FEW:
        return ("sustained",)
    if len(runs) < MANY:
        return ("sustained", "streaming")
    free = ["sustained", "streaming", "host_forward", "host_backward"]
    settings = [job.settings for job in jobs]
    if any(s.kernels.attention == "flash" for s in settings):
        lengths = {job.model.sequence for job in jobs}
        free += ["attention", "attention_backward"] * (len(lengths) > 1)
    if any(job.model.experts for job in jobs):
        free += ["grouped", "host_experts"]
    if any(job.tp > 1 or job.settings.ep > 1 for job in jobs):
        free.append("links")
    if any(run.gpus > run.job.devices_per_node for run in runs):
        free.append("network")
    if any(s.overlap_tensor for s in settings):
        free.append("tensor_exposed")
    if any(rhythm(job).in_passes for job in jobs):
        free.append("sharded_exposed")
    return tuple(free)


def fitted(base: Machine, runs: Sequence[Run], free: Sequence[str] = ()) -> Machine:
    """Return the machine that is nearest to some runs. free: constants; none: those that they can
    tell."""
    names = tuple(free) or free_constants(runs)

    def predict(machine: Machine) -> list[float]:
        return [seconds(run, machine) for run in runs]

    return fit(base, names, predict, [run.seconds for run in runs])


def by_machine(
    base: Callable[[Run], Machine],
    seen: Sequence[Run],
    rest: Sequence[Run],
    free: Sequence[str] = (),
) -> tuple[Judged, dict[str, Machine]]:
    """Fit a machine per GPU to the runs that are seen, and predict the rest.

    free: as in `fitted`. Where none was seen of a GPU, its own defaults predict.
    """
    judged, machines = Judged((), ()), {}
    for gpu in dict.fromkeys(run.gpu for run in rest):
        known = [run for run in seen if run.gpu == gpu]
        left = [run for run in rest if run.gpu == gpu]
        start = base(left[0])
        machines[gpu] = fitted(start, known, free) if known else start
        judged += judge(left, machines[gpu])
    return judged, machines


def shares(runs: Sequence[Run], part: int, seed: int) -> Iterator[tuple[list[Run], list[Run]]]:
    """Draw an n-th of the runs of each GPU to be seen, the rest to judge: of halves both ways."""
    order = np.random.default_rng(seed).permutation(len(runs)).tolist()
    first: list[Run] = []
    for gpu in dict.fromkeys(run.gpu for run in runs):
        of = [runs[i] for i in order if runs[i].gpu == gpu]
        first += of[: len(of) // part]
    second = [run for run in runs if run not in first]
    yield first, second
    if part == 2:
        yield second, first


def drawn(base: Callable[[Run], Machine], runs: Sequence[Run], part: int) -> Judged:
    """Return predictions of runs by a share of them, over all seeds."""
    found = Judged((), ())
    for seed in SEEDS:
        for seen, rest in shares(runs, part, seed):
            found += by_machine(base, seen, rest)[0]
    return found


def one_out(
    base: Callable[[Run], Machine],
    runs: Sequence[Run],
    kind: Callable[[Run], str],
    free: Sequence[str] = (),
) -> Judged:
    """Return predictions of the runs of each kind by those of all others. free: as in `fitted`."""
    found = Judged((), ())
    for name in dict.fromkeys(map(kind, runs)):
        seen = [run for run in runs if kind(run) != name]
        rest = [run for run in runs if kind(run) == name]
        found += by_machine(base, seen, rest, free)[0]
    return found
