"""Device-group selection: which groups of devices a stage may have."""

from __future__ import annotations

from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from ilp_planner.costs.groups import GroupOption
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_MIXED = 400  # groups of several types, per B, however many layers there are
MOST_CANDIDATES = 1_000_000  # such groups times ranges of layers


def most_mixed(layers: int) -> int:
    """Return how many groups of several types can be tried on all ranges of so many layers."""
    return max(MOST_MIXED, MOST_CANDIDATES * 2 // (layers * (layers + 1)))


def single_type_options(
    counts: Sequence[int], degrees: Sequence[Sequence[int]], samples: int
) -> Iterator[GroupOption]:
    """Yield the groups of one device type whose replicas share the samples equally.

    Parameters
    ----------
    counts: devices of each type. degrees: tensor-parallel degrees of each type.
    samples: of a micro-batch, over all replicas.
    """
    for kind, (count, known) in enumerate(zip(counts, degrees, strict=True)):
        for tp in known:
            for dp in divisors(samples):
                if tp * dp <= count:
                    replicas = [0] * len(counts)
                    replicas[kind] = dp
                    yield GroupOption(tp, tuple(replicas))


def mixed_options(
    counts: Sequence[int], degrees: Sequence[Sequence[int]], samples: int, most: int = MOST_MIXED
) -> tuple[tuple[GroupOption, ...], bool]:
    """Return the groups of several device types, and whether these are all.

    Replicas have equally many devices, each at least one sample. Where there are more than
    `most` of them, only those with a power of two of replicas of every type; where these are
    still more, only groups of two types.
    """
    whole = range(2, min(len(counts), samples) + 1)  # types of a group: each has a sample
    everything = _up_to(_mixed(counts, degrees, samples, range(1, samples + 1), whole), most)
    if everything is not None:
        return everything, True
    powers = [2**n for n in range(samples.bit_length()) if 2**n <= samples]
    fewer = _up_to(_mixed(counts, degrees, samples, powers, whole), most)
    if fewer is None:
        fewer = tuple(_mixed(counts, degrees, samples, powers, (2,)))
    return fewer, False


def _up_to(options: Iterator[GroupOption], most: int) -> tuple[GroupOption, ...] | None:
    """Return options; None where there are more than `most`, which may be too many to count."""
    found = tuple(islice(options, most + 1))
    return found if len(found) <= most else None


def _mixed(
    counts: Sequence[int],
    degrees: Sequence[Sequence[int]],
    samples: int,
    replicas: Sequence[int],
    sizes: Sequence[int],
) -> Iterator[GroupOption]:
    kinds = range(len(counts))
    for size in sizes:
        for types in combinations(kinds, size):
            for tp in sorted(set.intersection(*(set(degrees[kind]) for kind in types))):
                tries = [[r for r in replicas if tp * r <= counts[kind]] for kind in types]
                for chosen in product(*tries):
                    if sum(chosen) <= samples:
                        of: Mapping[int, int] = dict(zip(types, chosen, strict=True))
                        yield GroupOption(tp, tuple(of.get(kind, 0) for kind in kinds))
