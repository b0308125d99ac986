"""From measured iterations to the constants of a machine, and how well these predict.

Seconds of training jobs on a cluster, by the constants of its machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.analysis.calibration.free import (
    FELT,
    FREE,
    asked,
    check_names,
    fit,
    moved,
    reasons,
)
from ilp_planner.analysis.calibration.runs import SECONDS, TOKENS
from ilp_planner.base.errors import ProfileError, SpecError
from ilp_planner.costs.training.iteration import iteration_terms
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.schedule.engine import expect
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.machine import USUAL, Machine, with_constants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ilp_planner.analysis.calibration.runs import Run
    from ilp_planner.specs.cluster import ClusterSpec, Device
    from ilp_planner.specs.training import TrainingJob


# ---- predict -------------------------------------------------------------------------------------


MACHINES = 100  # that a fit tries, at least


@dataclass(frozen=True, eq=False)
class Predictions:
    """Times of jobs on the first nodes of a cluster of one device type, each computed once."""

    cluster: ClusterSpec
    jobs: Sequence[TrainingJob]
    known: dict[tuple[int, Machine], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        passes = (job.micro_batches * len(job.stages) for job in self.jobs)
        expect(MACHINES * 2 * sum(passes))

    @property
    def device(self) -> Device:
        """The only device type."""
        return self.cluster.device_types[self.cluster.type_names[0]]

    def of(self, which: Iterable[int]) -> Callable[[Machine], list[float]]:
        """Return a function for the seconds of some of the jobs, by their numbers, on a machine."""
        chosen = tuple(which)
        return lambda machine: [self.seconds(number, machine) for number in chosen]

    def seconds(self, number: int, machine: Machine) -> float:
        """Return the seconds of an iteration of a job."""
        key = (number, machine)
        if key not in self.known:
            job = self.jobs[number]
            per_node = self.cluster.nodes[0].devices
            network = Network(
                on_machine(self.cluster, machine), tuple(range(-(-job.world // per_node)))
            )
            self.known[key] = sum(iteration_terms(RankCosts(job, network), job).values())
        return self.known[key]


@lru_cache(maxsize=2)
def on_machine(cluster: ClusterSpec, machine: Machine) -> ClusterSpec:
    """Return a cluster with these constants for all devices."""
    types = {
        name: replace(device, machine=machine) for name, device in cluster.device_types.items()
    }
    return replace(cluster, device_types=types)


# ---- calibrate -----------------------------------------------------------------------------------


OFF = 3.0  # times that a run may be off before it is left out
AGREE = 1.1  # times that equal jobs may be apart
THOUSAND = 1000.0
DIGITS = 4  # of a fitted constant, as it is written


class Constant(NamedTuple):
    """A constant of the machine. runs: different ones that depend on it. why: it was not fitted;
    empty if it was."""

    name: str
    default: float
    value: float
    runs: int
    why: str

    @property
    def limited(self) -> bool:
        """It was fitted and may go no further; a floor of the host may be nothing."""
        free = FREE[self.name]
        return not self.why and self.value in {free.low, free.high} - {0.0}


class Judged(NamedTuple):
    """A run, and its seconds by the defaults, by the fitted constants, and by constants that were
    fitted without it and its equals; None if nothing else was there to fit to."""

    run: Run
    before: float
    after: float
    alone: float | None

    @property
    def error(self) -> float | None:
        """The error of the last of these, as a share of the measured time."""
        return None if self.alone is None else self.alone / self.run.seconds - 1


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A machine's constants. machine: with them, and with their error. runs: that it rests on.
    left_out: that no constants explain; `after` is by constants of the others."""

    device: str
    machine: Machine
    constants: tuple[Constant, ...]
    runs: tuple[Judged, ...]
    left_out: tuple[Judged, ...]


def calibrate(runs: Sequence[Run], cluster: ClusterSpec, names: Sequence[str] = ()) -> Calibration:
    """Fit constants of a cluster's machine to runs on it.

    Parameters
    ----------
    names: of the constants to fit; none: constants that the runs determine.

    Raises
    ------
    SpecError: nothing is known of the cluster's kernels. ProfileError: runs contradict each other
    or are of another machine or unit. UsageError: constants that cannot be fitted to them.
    """
    check_names(names)
    check_cluster(cluster)
    _check_precisions(runs, cluster)
    predictions = Predictions(cluster, [run.job for run in runs])
    given = predictions.device.machine
    default = _usual(predictions.device) if given.runs else given
    before = predictions.of(range(len(runs)))(default)
    _check_equal_jobs(runs)
    _check_units(runs, before)
    fits, kept = _Fits(runs, predictions, default), list(range(len(runs)))
    while True:
        fitted = fits.some(kept, names)
        after = predictions.of(range(len(runs)))(fitted.machine)
        off = {i: abs(math.log(after[i] / runs[i].seconds)) for i in kept}
        worst = max(kept, key=off.__getitem__)
        if off[worst] <= math.log(OFF):
            break
        kept.remove(worst)
        if 2 * len(kept) < len(runs) or not kept:
            raise ProfileError(
                f"{runs[worst].place}: found {runs[worst].seconds:.4g} s of {runs[worst].name}, "
                f"predicted {after[worst]:.4g} s by the best constants, and more than half of the "
                f"runs are more than {OFF:g} x off: expected iterations on cluster "
                f"{cluster.name!r}, as it is written"
            )
    alone = fits.leave_one_out(kept, fitted)
    judged = [Judged(*found) for found in zip(runs, before, after, alone, strict=True)]
    known = [(runs[i].weight, judged[i].error) for i in kept]
    weight = sum(heavy for heavy, error in known if error is not None)
    total = sum(heavy * abs(error) for heavy, error in known if error is not None)
    return Calibration(
        device=predictions.device.name,
        machine=replace(
            fitted.machine, error=round(total / weight, DIGITS) if weight else None, runs=len(kept)
        ),
        constants=tuple(
            Constant(
                name,
                getattr(default, name),
                getattr(fitted.machine, name),
                fitted.felt[name],
                fitted.why[name],
            )
            for name in FREE
        ),
        runs=tuple(judged[i] for i in kept),
        left_out=tuple(judged[i] for i in range(len(runs)) if i not in kept),
    )


def _usual(device: Device) -> Machine:
    """Return the default constants of a device type's GPU, which `check_cluster` has found."""
    row = known_gpu(device)
    assert row is not None
    return USUAL[row.machine]


def check_cluster(cluster: ClusterSpec) -> None:
    """Refuse a cluster without constants to fit, or with constants of several machines.

    Raises
    ------
    SpecError: it is one.
    """
    types = [cluster.device_types[name] for name in cluster.type_names]
    if len(types) > 1:
        raise SpecError(
            f"cluster {cluster.name!r}: found devices {', '.join(cluster.type_names)}, expected "
            "one type: calibrate a cluster file of each, and copy their machine tables"
        )
    if types[0].kernels is None and types[0].gpu:
        raise SpecError(
            f'cluster {cluster.name!r}: device {types[0].name!r}: found kernels = "roofline", '
            "whose times constants do not change: expected none beside "
            f'gpu = "{types[0].gpu}", whose measured kernels count then'
        )
    if types[0].kernels is None:
        raise SpecError(
            f"cluster {cluster.name!r}: device {types[0].name!r}: its kernels are not known, whose "
            'times constants change: expected gpu = "..." beside it, as in gpu = "H100-80GB"'
        )


def _check_precisions(runs: Sequence[Run], cluster: ClusterSpec) -> None:
    """Refuse jobs in a precision that the cluster's device has no figure for."""
    device = cluster.device_types[cluster.type_names[0]]
    for run in runs:
        for precision in (run.job.settings.precision, run.job.settings.quantised):
            if precision and precision not in (device.peak or {}):
                raise SpecError(
                    f"{run.place}: found a job in {precision}, but peak of device {device.name!r} "
                    f"has {', '.join(device.peak or {}) or 'nothing'}: expected "
                    f'peak.{precision} = "... TFLOP/s" in cluster {cluster.name!r}'
                )


class _Fitted(NamedTuple):
    """A machine, by how many different runs each constant changes, and why it was not fitted."""

    machine: Machine
    felt: dict[str, int]
    why: dict[str, str]

    @property
    def names(self) -> list[str]:
        return [name for name, why in self.why.items() if not why]


class _Fits(NamedTuple):
    """The inputs of fits; runs are said by their numbers. default: start of the constants."""

    runs: Sequence[Run]
    predictions: Predictions
    default: Machine

    def some(self, kept: Sequence[int], names: Sequence[str]) -> _Fitted:
        """Fit the constants that these runs determine, or the named ones."""
        different = list({self.runs[i].job: i for i in kept}.values())
        predict, default = self.predictions.of(different), self.default
        usual = predict(default)
        felt = {}
        for name in FREE:
            other = with_constants(default, {name: moved(name, getattr(default, name))})
            pairs = zip(usual, predict(other), strict=True)
            felt[name] = sum(abs(math.log(b / a)) > FELT for a, b in pairs)
        if names:
            why = asked(names, felt, len(different))
        else:
            jobs = [self.runs[i].job for i in different]
            why = reasons(jobs, felt, self.predictions.cluster.nodes[0].devices)
        found = _Fitted(default, felt, why)
        return found._replace(machine=self.machine(kept, found.names))

    def machine(
        self, kept: Sequence[int], names: Sequence[str], start: Machine | None = None
    ) -> Machine:
        """Return the machine with these constants fitted to some runs."""
        machine = fit(
            self.default,
            names,
            self.predictions.of(kept),
            [self.runs[i].seconds for i in kept],
            [self.runs[i].weight for i in kept],
            start=start,
        )
        return with_constants(machine, {name: _rounded(getattr(machine, name)) for name in names})

    def leave_one_out(self, kept: Sequence[int], fitted: _Fitted) -> list[float | None]:
        """Return the seconds of every run by constants fitted to the other ones, its equals left
        out as well; None if there are no others."""
        runs = self.runs
        found: list[float | None] = [None] * len(runs)
        for job in {runs[i].job: None for i in kept}:
            others = [i for i in kept if runs[i].job != job]
            if not others:
                continue
            machine = self.machine(others, fitted.names, fitted.machine)
            for i in kept:
                if runs[i].job == job:
                    found[i] = self.predictions.seconds(i, machine)
        return found


def _rounded(value: float) -> float:
    """Return a constant as it is written; less than a millionth (of a second) is nothing."""
    return float(f"{round(value, 6):.{DIGITS}g}")


def _check_equal_jobs(runs: Sequence[Run]) -> None:
    """Refuse runs of one job with contradictory times, naming the worst."""
    ends: dict[object, list[Run]] = {}
    for run in runs:
        ends.setdefault(run.job, []).append(run)
    pairs = [
        (min(equal, key=lambda run: run.seconds), max(equal, key=lambda run: run.seconds))
        for equal in ends.values()
    ]
    fast, slow = max(pairs, key=lambda pair: pair[1].seconds / pair[0].seconds)
    if slow.seconds > AGREE * fast.seconds:
        raise ProfileError(
            f"{slow.place}: found {slow.seconds:.4g} s of {slow.name}, and {fast.seconds:.4g} s of "
            f"{fast.name} ({fast.place.rpartition(': ')[2]}), an equal job: expected times within "
            f"{100 * (AGREE - 1):.0f} %; leave one of them out"
        )


def _check_units(runs: Sequence[Run], predicted: Sequence[float]) -> None:
    """Refuse times that are all in another unit than their column says."""
    ratios = [b / run.seconds for run, b in zip(runs, predicted, strict=True)]

    def near(factors: Sequence[float]) -> bool:
        both = zip(ratios, factors, strict=True)
        return all(1 / OFF < ratio * factor < OFF for ratio, factor in both)

    file = runs[0].place.partition(": ")[0]
    column, count = runs[0].column, len(runs)
    if column != TOKENS and near([THOUSAND] * count):
        other = "milliseconds" if column == SECONDS else "microseconds"
        raise ProfileError(
            f"{file}: {column}: all are about 1000 times what the model predicts: found "
            f"{other}, expected {column}"
            + (f"; call the column {other}" if column == SECONDS else "")
        )
    if column != TOKENS and near([1 / THOUSAND] * count):
        other = "kiloseconds" if column == SECONDS else SECONDS
        raise ProfileError(
            f"{file}: {column}: all are about a thousandth of what the model predicts: found "
            f"{other}, expected {column}"
            + (f"; call the column {SECONDS}" if column != SECONDS else "")
        )
    worlds = [float(run.job.world) for run in runs]
    if column == TOKENS and min(worlds) > OFF and near(worlds):
        raise ProfileError(
            f"{file}: {column}: found those of one GPU, as the model has as many times as many as "
            "there are GPUs, expected those of all together"
        )
