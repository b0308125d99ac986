"""The seconds of a run's steps, in parts that add up to their mean.

mean = steady + warm-up + slow steps in a rhythm + slow steps at random + later steps that are all
slower. Noise is judged by the differences of neighbours, which neither a drift nor a jump of the
level changes; robust estimates (medians) leave outliers out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.formats.logs.base import RunLog

    Numbers = NDArray[np.float64]
    Flags = NDArray[np.bool_]

QUARTER = 0.31864  # standard deviations within which a quarter of normal numbers lie
FAR = 5.0  # standard deviations of noise beyond which a step is slow
LEAST = 0.05  # share of the steady seconds below which no step is called slow
LEVEL = 0.03  # share by which two levels differ at least
SHARE = 0.75  # of the beats of a rhythm that are slow
REACHED = 0.6  # of the seconds of slow steps that a rhythm has
DRIFT = 0.01  # of a rhythm that goes by a clock, not by steps
MOST = 50  # slow steps between which a rhythm is looked for
FEWEST = 3  # slow steps in which a rhythm can be heard
SIDE = 0.1  # of the steps that a level has at least
FEW = 12  # steps below which levels are not looked for


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """Slow steps that come again and again.

    every: steps between them. seconds: that one of them takes longer. steps: their numbers.
    """

    every: float
    seconds: float
    steps: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Level:
    """A step from which on all are slower, by so many seconds. sudden: at once, not little by
    little."""

    step: int
    seconds: float
    sudden: bool


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The steps of a run.

    mean, low, high: seconds of all steps, and those that 9 of 10 lie between. count: of steps.
    steady: seconds without all that follows, which adds up to the mean: warming, rhythmic, random,
    raised, and the skew of noise. noise: its standard deviation. warm: steps that a run warms up
    in. jitter: how many steps are slow at random.
    """

    mean: float
    low: float
    high: float
    count: int
    steady: float
    noise: float
    warm: int = 0
    warming: float = 0.0
    rhythm: Rhythm | None = None
    rhythmic: float = 0.0
    jitter: int = 0
    random: float = 0.0
    level: Level | None = None
    raised: float = 0.0
    slow: Flags | None = None


def steps_of(log: RunLog) -> Steps | None:
    """Return the statistics of a log; None if it has the seconds of no two steps."""
    there = np.isfinite(log.seconds) & (log.seconds > 0) & (log.weights > 0)
    if not there.any():
        return None
    return analysed(log.steps[there], log.seconds[there], log.weights[there])


def analysed(numbers: NDArray[np.int64], seconds: Numbers, weights: Numbers) -> Steps:
    """Return the statistics of steps.

    Parameters
    ----------
    numbers: of the steps, [n]. seconds: of each, or the mean of several, [n]. weights: how many
        that are, [n].
    """
    whole = float(weights.sum())
    mean = float((weights * seconds).sum() / whole)
    low, high = _between(seconds, weights, 0.05), _between(seconds, weights, 0.95)
    noise = _noise(seconds)
    warm = _warm(seconds, noise)
    later, numbers_later, weights_later = seconds[warm:], numbers[warm:], weights[warm:]
    level, base = _level(later, numbers_later, noise)
    over = later - base
    usual = float(np.median(base))
    slow = over > max(FAR * noise, LEAST * usual)
    rhythm, of_rhythm = _rhythm(numbers_later, over, slow, weights_later)
    at_random = slow & ~of_rhythm
    steady = float(base.min())
    mark = np.zeros(len(seconds), np.bool_)
    mark[warm:] = slow

    def share(chosen: Flags, excess: Numbers) -> float:
        return float((weights_later * excess)[chosen].sum() / whole)

    return Steps(
        mean=mean,
        low=low,
        high=high,
        count=round(whole),
        steady=steady,
        noise=noise,
        warm=round(float(weights[:warm].sum())),
        warming=float((weights[:warm] * (seconds[:warm] - steady)).sum() / whole),
        rhythm=rhythm,
        rhythmic=share(of_rhythm, over),
        jitter=int(at_random.sum()),
        random=share(at_random, over),
        level=level,
        raised=share(np.ones(len(base), np.bool_), base - steady),
        slow=mark,
    )


def _between(seconds: Numbers, weights: Numbers, share: float) -> float:
    """Return the seconds that a share of the steps stays below."""
    order = np.argsort(seconds, kind="stable")
    passed = np.cumsum(weights[order])
    place = int(np.searchsorted(passed, share * passed[-1]))
    return float(seconds[order[min(place, len(order) - 1)]])


def _noise(seconds: Numbers) -> float:
    """Return the standard deviation of steps about their level: of the smallest quarter of the
    differences of neighbours, as two in three are large where every third step is slow."""
    if len(seconds) < 3:
        return 0.0
    return float(np.quantile(np.abs(np.diff(seconds)), 0.25) / QUARTER / np.sqrt(2))


def _warm(seconds: Numbers, noise: float) -> int:
    """Return how many records at the beginning are slower than the rest without a break."""
    half = seconds[len(seconds) // 2 :]
    limit = float(np.median(half)) + max(FAR * noise, LEAST * float(np.median(half)))
    fine = np.flatnonzero(seconds <= limit)
    first = int(fine[0]) if len(fine) else 0
    return first if first <= len(seconds) // 2 else 0


def _level(
    seconds: Numbers, numbers: NDArray[np.int64], noise: float
) -> tuple[Level | None, Numbers]:
    """Return where the level rises, and the level of each step, [n]: one median, or two."""
    plain = np.full(len(seconds), float(np.median(seconds)))
    n = len(seconds)
    if n < FEW:
        return None, plain
    # A median of neighbours takes single slow steps away; cut to the quartiles' reach for long
    # stalls.
    width = 5
    padded = np.pad(seconds, width // 2, mode="edge")
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1)
    total = np.cumsum(smooth)
    k = np.arange(max(3, int(SIDE * n)), min(n - 3, int((1 - SIDE) * n)) + 1)
    left, right = total[k - 1] / k, (total[-1] - total[k - 1]) / (n - k)
    gain = (right - left) * np.sqrt(k * (n - k) / n)
    best = int(np.argmax(gain))
    cut = int(k[best])
    before, after = float(np.median(seconds[:cut])), float(np.median(seconds[cut:]))
    sure = FAR * noise * np.sqrt(1 / cut + 1 / (n - cut))
    if after - before <= max(LEVEL * before, sure):
        return None, plain
    # Of a jump the neighbours of the cut are at their levels already; of a drift they are not.
    near = max(3, n // 10)
    jump = float(
        np.median(seconds[cut : cut + near]) - np.median(seconds[max(0, cut - near) : cut])
    )
    level = Level(
        step=int(numbers[cut]), seconds=after - before, sudden=jump > 0.7 * (after - before)
    )
    return level, np.where(np.arange(n) < cut, before, after)


def _rhythm(
    numbers: NDArray[np.int64], over: Numbers, slow: Flags, weights: Numbers
) -> tuple[Rhythm | None, Flags]:
    """Return the rhythm of slow steps, and which steps keep it."""
    nothing = np.zeros(len(slow), np.bool_)
    places = np.flatnonzero(slow)
    if not len(places):
        return None, nothing
    groups = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
    if len(groups) < FEWEST:
        return None, nothing
    at = numbers[[group[0] for group in groups]].astype(np.float64)
    excess = np.array([float((weights * over)[group].sum()) for group in groups])
    # A record of several steps tells the moment of a slow one within them.
    blur = float(np.median(weights)) - 1
    best: tuple[float, float, Flags] | None = None
    largest = np.argsort(-excess)[:MOST]
    for one in largest:
        for other in largest:
            every = at[other] - at[one]
            if every < 2:
                continue
            times = np.round((at - at[one]) / every)
            keeps = np.abs(at - at[one] - times * every) <= 0.5 + blur + DRIFT * every
            beats = int(times[keeps].max() - times[keeps].min()) + 1
            own = float(excess[keeps].sum() / excess.sum())
            fits = keeps.sum() >= FEWEST and keeps.sum() / beats >= SHARE and own >= REACHED
            if fits and (best is None or own * keeps.sum() / beats > best[0]):
                best = (own * float(keeps.sum()) / beats, every, keeps)
    if best is None:
        return None, nothing
    _, every, keeps = best
    chosen = nothing.copy()
    for group, keeping in zip(groups, keeps, strict=True):
        chosen[group] = keeping
    kept = at[keeps]
    whole = np.round((kept[-1] - kept[0]) / every)
    return Rhythm(
        every=float((kept[-1] - kept[0]) / whole),
        seconds=float(excess[keeps].sum() / keeps.sum()),
        steps=tuple(int(step) for step in kept),
    ), chosen
