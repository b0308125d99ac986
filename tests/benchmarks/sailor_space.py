"""The best plan of Sailor's space by its own formulas, by enumeration.

Sailor cuts a model of L layers into p stages of floor(L / p) layers, the last L mod p of one more
(`get_stages`). All stages have d replicas of m samples each: a micro-batch is d m samples, and
there are ceil(batch / (d m)) of them, the last one short. The replicas of a stage are of either
type or of both, those of one type with one tensor-parallel degree. Sailor's planner looks at one
degree per stage and type (the least that fits, or the last that pays); here all of them are tried,
for pipelines of up to `MOST_STAGES` stages.

Two rules can be taken away, to see what each is worth: that the types of a stage may have different
degrees, and that the last micro-batch may be short.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.sailor_score import Replica, Sailor, Stage

MOST_STAGES = 4
DEGREES = (1, 2, 4)  # that machines of 4 GPUs have curves for


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What plans may do. degrees: differ between the types of a stage. short: the last micro-batch
    may have fewer samples."""

    degrees: bool = True
    short: bool = True


class Kind(NamedTuple):
    """The degree of each of the two types in a stage; 0: the type is not in it."""

    first: int
    second: int

    @property
    def mixed(self) -> bool:
        """Whether both types are."""
        return bool(self.first and self.second)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A plan and its seconds."""

    seconds: float
    stages: tuple[Stage, ...]
    micro_batches: int


def parts(layers: int, stages: int) -> list[tuple[int, int]]:
    """Return the layers of each stage, [start, stop)."""
    each, more = divmod(layers, stages)
    ends = np.cumsum([each + (place >= stages - more) for place in range(stages)]).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True))


def kinds(rules: Rules) -> tuple[Kind, ...]:
    """Return what a stage can be made of."""
    pairs = product((0, *DEGREES), repeat=2)
    return tuple(
        Kind(a, b) for a, b in pairs if a + b and (not (a and b) or rules.degrees or a == b)
    )


def best_plan(
    sailor: Sailor,
    gpus: Mapping[str, int],
    batch: int,
    rules: Rules | None = None,
    *,
    most_stages: int = MOST_STAGES,
) -> Found | None:
    """Return the fastest plan; None: there is none.

    gpus: of two types, in the order of the kinds. batch: samples of an iteration.
    """
    rules = rules or Rules()
    best: Found | None = None
    sizes = sorted({n for _, _, n in sailor.passes})
    for count in range(1, most_stages + 1):
        for samples in sizes:
            shape = _Shape(sailor, gpus, parts(sailor.layers, count), samples, kinds(rules))
            for dp in _replicas(batch, samples, sum(gpus.values()), rules):
                limit = math.inf if best is None else best.seconds
                found = shape.best(dp, math.ceil(batch / (dp * samples)), limit)
                best = found or best
    return best


def _replicas(batch: int, samples: int, most: int, rules: Rules) -> Iterator[int]:
    """Yield the fewest replicas for every number of micro-batches."""
    seen = set()
    for dp in range(1, most + 1):
        micro_batches = math.ceil(batch / (dp * samples))
        if micro_batches not in seen and (rules.short or batch % (dp * samples) == 0):
            seen.add(micro_batches)
            yield dp


class _Shape:
    """Plans of given stages and samples. Arrays have an axis per stage, of the stage's kinds."""

    def __init__(
        self,
        sailor: Sailor,
        gpus: Mapping[str, int],
        cuts: list[tuple[int, int]],
        samples: int,
        every: tuple[Kind, ...],
    ) -> None:
        self.sailor, self.gpus, self.cuts, self.samples = sailor, gpus, cuts, samples
        self.kinds = [
            [kind for kind in every if self._possible(kind, place)] for place in range(len(cuts))
        ]
        self.pairs = sorted(
            {kind for own in self.kinds for kind in own if kind.mixed},
            key=lambda kind: kind.second / kind.first,
            reverse=True,
        )
        self.possible = all(self.kinds)
        if self.possible:
            self._terms()

    def _members(self, kind: Kind) -> list[Replica]:
        pairs = zip(self.gpus, kind, strict=True)
        return [Replica(gpu, tp, self.samples) for gpu, tp in pairs if tp]

    def _possible(self, kind: Kind, place: int) -> bool:
        """Tell whether a stage of this kind was measured and fits."""
        start, stop = self.cuts[place]
        in_flight = len(self.cuts) - place
        return all(
            tuple(replica) in self.sailor.passes
            and self.sailor.room(replica, start, stop, in_flight) >= 0
            for replica in self._members(kind)
        )

    def _axis(self, place: int, figure: Callable[[Kind], float]) -> NDArray[np.float64]:
        """Return a figure of every kind of a stage, to add to those of others."""
        shape = [1] * len(self.cuts)
        shape[place] = len(self.kinds[place])
        return np.array([figure(kind) for kind in self.kinds[place]], np.float64).reshape(shape)

    def _send(self, place: int) -> NDArray[np.float64]:
        """Return the seconds of sending behind a stage, of every pair of kinds."""
        layer = self.cuts[place][1] - 1
        pairs = product(self.kinds[place], self.kinds[place + 1])
        worst = [
            max(
                self.sailor.send(a, b, layer)
                for a, b in product(self._members(one), self._members(two))
            )
            for one, two in pairs
        ]
        shape = [1] * len(self.cuts)
        shape[place], shape[place + 1] = len(self.kinds[place]), len(self.kinds[place + 1])
        return np.array(worst, np.float64).reshape(shape)

    def _terms(self) -> None:
        """Set the straggler and the fill of every choice of kinds, seconds."""
        nothing = np.zeros([1] * len(self.cuts))
        sends = [self._send(place) for place in range(len(self.cuts) - 1)]
        around = [a + b for a, b in zip([nothing, *sends], [*sends, nothing], strict=True)]
        self.straggler = self.fill = nothing
        for place, ((start, stop), more) in enumerate(zip(self.cuts, around, strict=True)):

            def slowest(kind: Kind, layers: tuple[int, int] = (start, stop)) -> float:
                return max(self.sailor.compute(r, *layers) for r in self._members(kind))

            both = self._axis(place, slowest) + more
            self.straggler = np.maximum(self.straggler, both)
            self.fill = self.fill + both
        if len(self.cuts) == 1:
            ((start, stop),) = self.cuts
            step = self._axis(0, lambda kind: self.sailor.step(self._members(kind), stop - start))
            self.fill = self.fill + step

    def best(self, dp: int, micro_batches: int, limit: float) -> Found | None:
        """Return the fastest plan of `dp` replicas that takes less than a limit."""
        if not self.possible:
            return None
        seconds = (micro_batches - 1) * self.straggler + self.fill
        if float(seconds.min()) >= limit:
            return None
        reduction = np.zeros_like(seconds)
        for place, (start, stop) in enumerate(self.cuts):

            def reduced(kind: Kind, layers: tuple[int, int] = (start, stop)) -> float:
                return self.sailor.reduce(self._members(kind), dp, *layers)

            reduction = np.maximum(reduction, self._axis(place, reduced))
        seconds = np.where(self._enough(dp), seconds + reduction, np.inf)
        order = np.flatnonzero(seconds.ravel() < limit)
        for flat in order[np.argsort(seconds.ravel()[order])].tolist():
            chosen = np.unravel_index(flat, seconds.shape)
            picked = [self.kinds[place][int(n)] for place, n in enumerate(chosen)]
            moved = self._moved(picked, dp)
            if moved is not None:
                return Found(
                    seconds=float(seconds.flat[flat]),
                    stages=tuple(self._stages(picked, moved, dp)),
                    micro_batches=micro_batches,
                )
        return None

    def _enough(self, dp: int) -> NDArray[np.bool_]:
        """Tell which choices of kinds have GPUs enough if replicas could be divided: of the others
        none has.

        A stage of both types begins with one replica of the first; more are moved to it where that
        frees most GPUs of the second for each one of the first, until those are few enough.
        """
        places = range(len(self.cuts))
        used = [sum(self._axis(p, lambda kind, n=n: _begun(kind, dp)[n]) for p in places)
                for n in (0, 1)]  # fmt: skip
        first, second = self.gpus.values()
        for pair in self.pairs:
            count = sum(self._axis(p, lambda kind, pair=pair: kind == pair) for p in places)
            needed = np.maximum(used[1] - second, 0) / pair.second
            free = np.maximum(first - used[0], 0) / pair.first
            moved = np.minimum(np.minimum(needed, free), count * (dp - 2))
            used = [used[0] + moved * pair.first, used[1] - moved * pair.second]
        rounding = 1e-6  # of a GPU
        return np.asarray((used[0] <= first + rounding) & (used[1] <= second + rounding))

    def _moved(self, picked: list[Kind], dp: int) -> list[int] | None:
        """Return how many replicas of each stage are moved to the first type beside the one that is
        there, with the fewest GPUs of it; None where no numbers leave GPUs enough."""
        first, second = self.gpus.values()
        begun = [_begun(kind, dp) for kind in picked]
        free = first - sum(use for use, _ in begun)
        excess = sum(use for _, use in begun) - second
        if free < 0:
            return None
        # By GPUs of the first type: the most of the second that are freed, and the last choice.
        freed, choices = [0] * (int(free) + 1), []
        for kind in picked:
            most = dp - 2 if kind.mixed else 0
            best = [
                max(
                    (freed[at - n * kind.first] + n * kind.second, n)
                    for n in range(min(most, at // kind.first if most else 0) + 1)
                )
                for at in range(len(freed))
            ]
            freed, choices = [value for value, _ in best], [*choices, [n for _, n in best]]
        at = next((at for at, value in enumerate(freed) if value >= excess), None)
        if at is None:
            return None
        moved = []
        for kind, chosen in zip(reversed(picked), reversed(choices), strict=True):
            moved.append(chosen[at])
            at -= chosen[at] * kind.first
        return moved[::-1]

    def _stages(self, picked: list[Kind], moved: list[int], dp: int) -> Iterator[Stage]:
        """Yield the stages of chosen kinds."""
        for (start, stop), kind, more in zip(self.cuts, picked, moved, strict=True):
            counts = [1 + more, dp - 1 - more] if kind.mixed else [dp]
            replicas = dict(zip(self._members(kind), counts, strict=True))
            yield Stage(start=start, stop=stop, replicas=replicas)


def _begun(kind: Kind, dp: int) -> tuple[float, float]:
    """Return the GPUs of both types in a stage of `dp` replicas, of which one is of the first type
    where it has both; infinitely many where there are too few for both."""
    if not kind.mixed:
        return kind.first * dp, kind.second * dp
    return (kind.first, kind.second * (dp - 1)) if dp > 1 else (math.inf, math.inf)
