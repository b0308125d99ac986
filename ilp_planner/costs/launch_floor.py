"""Seconds of a layer for any number of samples: the profile's own rows, and values between, below
and above them.

A GPU that gets little work waits for its host. One pass of a replica of tp devices over x samples
is modelled as

    time(d, tp, x) = launch_share row(d, tp) + x device_share work(d) (1/tp + loss (1 - 1/tp))

row(d, tp): the time of one sample, measured with the host waiting. Its first part is the launch
floor: neither more devices nor fewer samples shrink it. work(d): the device's own time for one
sample. If one sample keeps a fast device waiting, its row hides that, but a slower device's row
shows it: work(d) = min over device types e of row(e, 1) * rate(e) / rate(d), with rate the
sustained bytes/s of device memory (eager training mostly streams activations). loss: share of the
work that tensor parallelism does not divide (replicated operators, collectives).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.table import Origin, Provenance

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The constants of the launch-floor model, each a share.

    launch_share: of a one-sample row, the host's time before the device is busy.
    device_share: of a one-sample row, the device's busy time per sample.
    tensor_loss: of that, the part that tensor parallelism does not divide.

    The defaults are fitted on both measured experiments of AMP together (16 T4; 12 V100 + 4 T4; 90
    trials; `tests/benchmarks/amp_accuracy.py`), with fits of each alone, judged on the other. They
    matter only if a profile has a single number of samples.
    """

    launch_share: float = 0.27
    device_share: float = 0.78
    tensor_loss: float = 0.37

    def __post_init__(self) -> None:
        for name in ("launch_share", "device_share", "tensor_loss"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be at least 0 and finite, found {value!r}")
        if self.device_share == 0 and self.launch_share == 0:
            raise ValueError("launch_share and device_share must not both be 0")

    def divided(self, tp: int) -> float:
        """Return the share of a layer's work that each of tp devices has."""
        return 1 / tp + self.tensor_loss * (1 - 1 / tp)


DEFAULT = Calibration()


def predict_times(
    profile: LayerProfile,
    device: str,
    tp: int,
    samples: NDArray[np.int64],
    calibration: Calibration = DEFAULT,
    rates: Mapping[str, float] | None = None,
) -> NDArray[np.float64]:
    """Return seconds [len(samples), L], forward and backward, for every number of samples asked.

    The profile's own rows; straight lines between them; beyond the largest, the slope of the last
    two; below the smallest, that of the first two, but no less than in proportion. Slopes beyond
    the rows are never negative. With one row only: the launch floor above, scaled so that the row
    itself stands, unless the profile's rows are isolated passes.

    Parameters
    ----------
    profile, device, tp: the key; the pair must be profiled.
    samples: of one replica, >= 0; none takes no time.
    rates: device type -> bytes/s of its memory; without it, every device type by itself.

    Raises
    ------
    KeyError: the pair is not profiled.
    """
    known = profile.samples(device, tp)
    if not known:
        raise KeyError(f"{device}, tp {tp}: not profiled")
    rows = np.array([profile.time[LayerKey(device, tp, x)] for x in known])
    wanted = np.asarray(samples, dtype=np.float64)[:, None]
    if len(known) == 1:
        found = _from_one(profile, LayerKey(device, tp, known[0]), wanted, calibration, rates or {})
    else:
        found = straight_lines(np.array(known, dtype=np.float64), rows, wanted)
    return np.where(wanted > 0, found, 0.0)


def time_origins(
    profile: LayerProfile, key: LayerKey, row: NDArray[np.float64]
) -> Iterator[tuple[Origin, NDArray[np.float64]]]:
    """Yield the sources of a key's seconds, with the seconds of each layer, float64 [L].

    Parameters
    ----------
    row: of `predict_times`, float64 [L].
    """
    known = profile.samples(key.device, key.tp)
    if key.samples in known and not profile.isolated:
        error = profile.errors.get(key)
        if key in profile.origins:
            # The error is that of what rows predict; what links are said to do has none of its own.
            predicted = profile.origins[key].keys() - {Provenance.MEASURED, Provenance.ANALYTIC}
            for source, seconds in profile.origins[key].items():
                has_error = source in predicted or not predicted
                yield Origin(source, error if has_error else None), seconds
        else:
            measured = key in profile.measured
            yield Origin(Provenance.MEASURED if measured else Provenance.ANALYTIC, error), row
        return
    sure = [x for x in known if key._replace(samples=x) in profile.measured] or list(known)
    inside = len(sure) > 1 and sure[0] < key.samples < sure[-1]
    errors = [line_errors(profile, key.device, key.tp)[0 if inside else 1]]
    errors += [profile.errors.get(key._replace(samples=x)) for x in known if x not in sure]
    judged = [error for error in errors if error is not None]
    source = Provenance.INTERPOLATED if inside else Provenance.EXTRAPOLATED
    yield Origin(source, max(judged) if judged else None), row


def line_errors(profile: LayerProfile, device: str, tp: int) -> tuple[float | None, float | None]:
    """Return the expected relative error of straight lines between and beyond the measured rows:
    each row in turn is left out and predicted from the others. None: too few rows to tell."""
    keys = [LayerKey(device, tp, x) for x in profile.samples(device, tp)]
    keys = [key for key in keys if key in profile.measured]
    if len(keys) < 3 or profile.isolated:
        return None, None
    found: dict[bool, list[float]] = {True: [], False: []}
    for place, key in enumerate(keys):
        rest = keys[:place] + keys[place + 1 :]
        known = np.array([k.samples for k in rest], dtype=np.float64)
        rows = np.array([profile.time[k] for k in rest])
        guess = straight_lines(known, rows, np.array([[float(key.samples)]]))[0]
        true = profile.time[key]
        off = float(np.abs(guess - true).sum() / true.sum()) if true.sum() > 0 else 0.0
        found[0 < place < len(keys) - 1].append(off)
    return tuple(sum(f) / len(f) for f in (found[True], found[False]))  # type: ignore[return-value]


def straight_lines(
    known: NDArray[np.float64], rows: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Straight lines through two rows or more; known ascending [k], rows [k, L], wanted [n, 1]."""
    slopes = np.diff(rows, axis=0) / np.diff(known)[:, None]
    low = np.clip(np.searchsorted(known, wanted[:, 0], side="right") - 1, 0, known.size - 1)
    inner = np.vstack([slopes, np.maximum(slopes[-1:], 0.0)])
    above = rows[low] + (wanted - known[low, None]) * inner[low]
    first = np.minimum(np.maximum(slopes[0], 0.0), rows[0] / known[0])
    below = rows[0] - (known[0] - wanted) * first
    found: NDArray[np.float64] = np.where(wanted < known[0], below, above)
    return found


def _from_one(
    profile: LayerProfile,
    key: LayerKey,
    wanted: NDArray[np.float64],
    calibration: Calibration,
    rates: Mapping[str, float],
) -> NDArray[np.float64]:
    """Launch floor and work, from the only row that there is."""
    row = profile.time[key]
    work = (
        calibration.device_share
        * calibration.divided(key.tp)
        * _work(profile, key.device, calibration, rates)
    )
    # A row of several samples holds the floor once and the work that often.
    model = calibration.launch_share * row + wanted * work
    if profile.isolated:
        return model
    own = calibration.launch_share * row + key.samples * work
    return row * np.divide(model, own, out=np.zeros_like(model), where=own > 0)


def _work(
    profile: LayerProfile, device: str, calibration: Calibration, rates: Mapping[str, float]
) -> NDArray[np.float64]:
    """Seconds per layer that one sample keeps one device of the type busy at most."""
    others = [e for e in profile.devices if e != device and e in rates and device in rates]
    bounds = []
    for name in (device, *others):
        tp = profile.degrees(name)[0]
        samples = profile.samples(name, tp)[0]
        row = profile.time[LayerKey(name, tp, samples)] / samples / calibration.divided(tp)
        bounds.append(row * (rates[name] / rates[device] if name != device else 1.0))
    least: NDArray[np.float64] = np.min(bounds, axis=0)
    return least
