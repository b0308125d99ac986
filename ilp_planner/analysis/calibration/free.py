"""The constants of a machine that runs can determine, their fit, and what runs leave open."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.errors import UsageError
from ilp_planner.job.quantised import copies_width
from ilp_planner.job.states import rhythm
from ilp_planner.specs.data_sheets import known_gpu
from ilp_planner.specs.machine import with_constants
from ilp_planner.specs.time_errors import plain_error
from ilp_planner.specs.toml_reader import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ilp_planner.base.numerics import Floats
    from ilp_planner.specs.cluster import Device
    from ilp_planner.specs.machine import Machine
    from ilp_planner.specs.training import TrainingJob

# ---- constants of a machine from measured iterations ---------------------------------------------
# Regularised, robust least squares.
# Minimised is the sum of soft-L1(log(predicted / measured)) over the runs, with a scale of 5 %, and
# of ((constant - default) / (PULL scale))^2 over the constants, so that runs without information on
# a constant leave it as it was.


SCALE = 0.05  # of the errors of log seconds beyond which a run counts less
PULL = 3.0  # scales of a constant
EVALUATIONS = 60
TOLERANCE = 1e-5  # relative; constants are known to two digits


class Free(NamedTuple):
    """How far a constant may go, and how far it usually lies from its default."""

    low: float
    high: float
    scale: float


FREE = {
    "sustained": Free(0.4, 1.2, 0.08),
    "streaming": Free(0.15, 1.0, 0.2),
    "attention": Free(0.15, 1.6, 0.3),
    "attention_backward": Free(0.15, 1.6, 0.3),
    "low_precision": Free(0.4, 1.6, 0.15),
    "grouped": Free(0.2, 1.6, 0.2),
    "links": Free(0.2, 1.2, 0.15),
    "network": Free(0.1, 1.0, 0.2),
    "tensor_exposed": Free(0.0, 1.0, 0.2),
    "expert_exposed": Free(0.0, 1.0, 0.1),
    "data_exposed": Free(0.0, 1.0, 0.15),
    "sharded_exposed": Free(0.0, 1.0, 0.2),
    "host_forward": Free(0.0, 0.02, 0.001),
    "host_backward": Free(0.0, 0.03, 0.0015),
    "host_experts": Free(0.0, 1e-3, 0.05e-3),
    "expert_waits": Free(0.0, 1e-3, 0.03e-3),
    "host_link": Free(0.1, 1.0, 0.15),
    "host_memory": Free(0.05, 1.0, 0.2),
    "stepping": Free(0.1, 1.0, 0.3),
    "ring_growth": Free(0.0, 2.0, 0.2),
    "scan": Free(0.1, 1.0, 0.1),
}
# The floor has no slope where it is below everything, and kinks elsewhere: it is looked for from
# above as well, and the better of both counts.
HOST = {"host_forward": 0.002, "host_backward": 0.003}


def fit(
    machine: Machine,
    free: Sequence[str],
    predict: Callable[[Machine], Sequence[float]],
    measured: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    start: Machine | None = None,
    evaluations: int = EVALUATIONS,
    tolerance: float = TOLERANCE,
) -> Machine:
    """Return the machine with predictions nearest to measured seconds.

    Parameters
    ----------
    machine: with the defaults. free: names of the constants to fit. predict: seconds of all runs on
        a machine. weights: of the runs. start: of the search; None: at the defaults. evaluations,
        tolerance: as in `nearest_values`.
    """
    scales = np.array([FREE[name].scale for name in free])
    default = np.array([getattr(machine, name) for name in free])
    starts = [[getattr(start or machine, name) for name in free]]
    if start is None and set(free) & set(HOST):
        above = (max(getattr(machine, name), HOST.get(name, 0.0)) for name in free)
        starts.append(list(above))

    def of(values: Floats) -> Machine:
        return with_constants(machine, dict(zip(free, values.tolist(), strict=True)))

    found = nearest_values(
        free,
        lambda values: predict(of(values)),
        measured,
        default,
        scales,
        starts=starts,
        pull=PULL,
        weights=weights,
        evaluations=evaluations,
        tolerance=tolerance,
    )
    return of(found)


def nearest_values(
    names: Sequence[str],
    predict: Callable[[Floats], Sequence[float]],
    measured: Sequence[float],
    default: Floats,
    scales: Floats,
    *,
    starts: Iterable[Sequence[float] | Floats],
    pull: float,
    weights: Sequence[float] | None = None,
    evaluations: int = EVALUATIONS,
    tolerance: float = TOLERANCE,
) -> Floats:
    """Return the values of constants with predictions nearest to measured seconds.

    Parameters
    ----------
    names: of the constants; one may stand several times. predict: seconds of all runs. default,
        scales: usual values, and how far from them constants usually lie. starts: of the search;
        the best end counts. pull: scales from its default at which a constant costs about as much
        as a run that is `SCALE` off. weights: of the runs. evaluations: of a search, at most.
        tolerance: of a search, relative.
    """
    from scipy.optimize import least_squares

    truth = np.log(np.asarray(measured, np.float64))
    heavy = np.sqrt(np.ones_like(truth) if weights is None else np.asarray(weights, np.float64))
    low, high = (np.array([getattr(FREE[name], end) for name in names]) for end in ("low", "high"))

    def errors(values: Floats) -> Floats:
        found = np.log(np.asarray(predict(values))) - truth
        z = (found / SCALE) ** 2
        robust = np.sign(found) * np.sqrt(2 * (np.sqrt(1 + z) - 1))
        return np.concatenate((heavy * robust, (values - default) / (pull * scales)))

    solved = [
        least_squares(
            errors,
            np.clip(first, low, high),
            bounds=(low, high),
            x_scale=scales,
            max_nfev=evaluations,
            ftol=tolerance,
            xtol=tolerance,
            diff_step=[1e-3] * len(names),
        )
        for first in starts
    ]
    return np.asarray(min(solved, key=lambda one: one.cost).x)


# ---- free constants ------------------------------------------------------------------------------


FELT = 1e-3  # relative change of a run's time that says something of a constant
# Constants that are fitted without being asked for -> different runs that this needs. Frameworks
# differ most in their attention: of published FSDP runs, 5 with it free predict the others to
# 3-5 %, without it to 10-15 %.
NEEDS = {
    "sustained": 1,
    "attention": 3,
    "attention_backward": 3,
    "streaming": 5,
    "low_precision": 5,
    "grouped": 10,
    "expert_waits": 10,
    "links": 10,
    "network": 10,
    "sharded_exposed": 10,
    "host_forward": 10,
    "host_backward": 10,
}


def moved(name: str, value: float) -> float:
    """Return another usual value of a constant. The floor of the host is looked for from above."""
    free = FREE[name]
    if value < HOST.get(name, 0.0):
        return HOST[name]
    return value + free.scale if value + free.scale <= free.high else value - free.scale


def reasons(jobs: Sequence[TrainingJob], felt: Mapping[str, int], per_node: int) -> dict[str, str]:
    """Return why a constant is not fitted to runs; empty for fitted ones.

    Parameters
    ----------
    jobs: different ones. felt: by how many of them each constant changes. per_node: devices.
    """
    lengths = {job.model.sequence for job in jobs}
    experts = ("no run has experts", any(job.model.experts for job in jobs))
    lacking = {
        "grouped": experts,
        "expert_waits": experts,
        "low_precision": (
            "no run has products in 8 or 4 bits",
            any(copies_width(job) > 0 for job in jobs),
        ),
        "network": ("no run crosses nodes", any(job.world > per_node for job in jobs)),
        "sharded_exposed": (
            "no run shards gradients or parameters",
            any(rhythm(job).in_passes for job in jobs),
        ),
        "attention": (f"all samples have {min(lengths)} tokens", len(lengths) > 1),
    }
    lacking["attention_backward"] = lacking["attention"]
    found = {}
    for name in FREE:
        why, given = lacking.get(name, ("", True))
        if name not in NEEDS:
            found[name] = "only when asked for"
        elif not given:
            found[name] = why
        elif not felt[name]:
            found[name] = "no run depends on it"
        elif len(jobs) < NEEDS[name]:
            found[name] = f"needs {NEEDS[name]} different runs, found {len(jobs)}"
        else:
            found[name] = ""
    return found


def asked(names: Sequence[str], felt: Mapping[str, int], runs: int) -> dict[str, str]:
    """Return why a constant is not fitted if a user names the fitted ones; empty for fitted ones.

    Parameters
    ----------
    felt: by how many of the different runs each constant changes. runs: how many these are.

    Raises
    ------
    UsageError: more constants than runs, or one that no run says anything of.
    """
    if len(names) > runs:
        raise UsageError(
            f"fit: found {len(names)} constants and {runs} different run{'s' * (runs > 1)}, "
            f"expected at least as many runs; `fit={','.join(names[:runs])}` would do"
        )
    for name in names:
        if not felt[name]:
            some = [other for other in FREE if felt[other]]
            raise UsageError(
                f"fit: no run depends on {name!r}, expected some of {', '.join(some) or 'none'}"
            )
    return {name: "" if name in names else "not asked for" for name in FREE}


def check_names(names: Sequence[str]) -> None:
    """Refuse unknown constants.

    Raises
    ------
    UsageError: names the nearest.
    """
    for name in names:
        if name not in FREE:
            raise UsageError(f"fit: found {name!r}, {nearest(name, tuple(FREE))}")


# ---- standard deviations around assumed values ---------------------------------------------------
# `FITTED` is what published runs leave open of constants that are fitted to them, by GPU, from
# `tests/benchmarks/machine_spread.py`. All other constants have the scale of their prior.


_BLACKWELL = {
    "low_precision": 0.15,
    "attention": 0.27,
    "attention_backward": 0.12,
    "grouped": 0.062,
    "streaming": 0.2,
    "host_experts": 0.024e-3,
    "expert_waits": 0.029e-3,
    "sharded_exposed": 0.15,
}
FITTED: Mapping[str, Mapping[str, float]] = {
    "H100": {
        "sustained": 0.021,
        "low_precision": 0.029,
        "host_experts": 0.018e-3,
        "expert_waits": 0.028e-3,
    },
    "B200": {"sustained": 0.012, **_BLACKWELL},
    "GB200": {"sustained": 0.069, **_BLACKWELL},
    "B300": {"sustained": 0.1, **_BLACKWELL},
    "GB300": {"sustained": 0.075, **_BLACKWELL},
}


def spread_of(device: Device, name: str) -> float:
    """Return the standard deviation of a constant of a device's machine.

    Of a machine with constants fitted to its own runs, it is less by as much as times are off less
    than on other machines.
    """
    row = known_gpu(device)
    known = {} if row is None else FITTED.get(row.machine, {})
    spread = known.get(name, FREE[name].scale)
    machine = device.machine
    if machine.runs and machine.error is not None and row is not None:
        spread *= min(1.0, machine.error / plain_error(row.name))
    return spread
