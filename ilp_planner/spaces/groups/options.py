"""Device-group selection: possible groups of devices of a stage."""

from __future__ import annotations

from itertools import combinations, islice, product, takewhile
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from ilp_planner.costs.groups import GroupOption, option_of
from ilp_planner.schedule.batches import few_counts
from ilp_planner.specs.degrees import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_MIXED = 400  # groups of several types, per B, however many layers there are
MOST_CANDIDATES = 1_000_000  # such groups times ranges of layers
MOST_SHORT = MOST_MIXED // 4  # such groups where the last micro-batch is short: such B are many


def most_mixed(layers: int) -> int:
    """Return how many groups of several types can be tried on all ranges of so many layers."""
    return max(MOST_MIXED, MOST_CANDIDATES * 2 // (layers * (layers + 1)))


def all_mixed_options(
    counts: Sequence[int],
    degrees: Sequence[Sequence[int]],
    samples: int,
    most: int,
    *,
    unlike: bool = False,
) -> tuple[tuple[GroupOption, ...], bool]:
    """Return the groups of several device types, and whether these are all; none if there are more
    than so many.

    Parameters
    ----------
    unlike: groups with types of different tensor-parallel degrees, not of one degree.
    """
    tries = _Tries(counts, degrees, samples, unlike)
    found = _up_to(_mixed(tries, range(1, samples + 1), tries.sizes), most)
    return ((), False) if found is None else (found, True)


def replica_counts(samples: int, most: int, *, uneven: bool) -> tuple[int, ...]:
    """Return how many replicas of one type may share the samples of a micro-batch, ascending.

    Parameters
    ----------
    most: devices. uneven: they may differ by a sample. More of them than the largest share needs
        are left out: they would use more devices, and be no sooner done.
    """
    if not uneven:
        return tuple(n for n in divisors(samples) if n <= most)
    return few_counts(samples, most)


def single_type_options(
    counts: Sequence[int], degrees: Sequence[Sequence[int]], samples: int, *, uneven: bool = False
) -> Iterator[GroupOption]:
    """Yield the groups of one device type with replicas that share the samples.

    Parameters
    ----------
    counts: devices of each type. degrees: tensor-parallel degrees of each type.
    samples: of a micro-batch, over all replicas. uneven: replicas may differ by a sample.
    """
    shared = replica_counts(samples, max(counts), uneven=uneven)
    for kind, (count, known) in enumerate(zip(counts, degrees, strict=True)):
        for tp in known:
            for dp in shared:
                if tp * dp <= count:
                    replicas = [0] * len(counts)
                    replicas[kind] = dp
                    yield GroupOption(tp, tuple(replicas))


def spread_options(
    single: Sequence[GroupOption], sizes: Sequence[Sequence[int]]
) -> Iterator[GroupOption]:
    """Yield the groups of one device type that may be spread evenly over several nodes and not be
    packed: two nodes at least that may hold them have room for another replica.

    Parameters
    ----------
    single: groups of one type, packed. sizes: devices of each node of every type.
    """
    for option in single:
        (kind,) = (kind for kind, count in enumerate(option.replicas) if count)
        seats = [size // option.tp for size in sizes[kind]]
        for over in divisors(option.replicas[kind]):
            found = option._replace(over=over)
            able = sum(count >= found.each for count in seats)
            if 1 < over <= able and sum(count > found.each for count in seats) > 1:
                yield found


def spread(options: Sequence[GroupOption], samples: int) -> tuple[GroupOption, ...]:
    """Return a few groups of one device type each, for a quick look: for each type, degree and
    interval of replicas between powers of the root of two, the one with the least spare room for
    samples, then with the most replicas."""
    found: dict[tuple[int, tuple[bool, ...], int], tuple[int, GroupOption]] = {}
    for option in options:
        dp = sum(option.replicas)
        key = (option.tp, tuple(map(bool, option.replicas)), int(2 * log2(dp)))
        room = -samples % dp
        if key not in found or room <= found[key][0]:
            found[key] = room, option
    return tuple(option for _, option in found.values())


def mixed_options(
    counts: Sequence[int],
    degrees: Sequence[Sequence[int]],
    samples: int,
    most: int = MOST_MIXED,
    *,
    unlike: bool = False,
) -> tuple[tuple[GroupOption, ...], bool]:
    """Return the groups of several device types, and whether these are all.

    Replicas of one type have equally many devices, each at least one sample. If there are more than
    `most` groups, only those with a power of two of replicas of every type; if these are still
    more, only groups of two types.

    Parameters
    ----------
    unlike: groups with types of different tensor-parallel degrees, not of one degree.
    """
    everything, complete = all_mixed_options(counts, degrees, samples, most, unlike=unlike)
    if complete:
        return everything, True
    powers = [2**n for n in range(samples.bit_length()) if 2**n <= samples]
    tries = _Tries(counts, degrees, samples, unlike)
    fewer = _up_to(_mixed(tries, powers, tries.sizes), most)
    if fewer is None:
        fewer = tuple(_mixed(tries, powers, (2,)))
    return fewer, False


class _Tries(NamedTuple):
    """Contents of groups of several types: devices and degrees of each type, samples, and whether
    types differ in their degree or not."""

    counts: Sequence[int]
    degrees: Sequence[Sequence[int]]
    samples: int
    unlike: bool

    @property
    def sizes(self) -> range:
        """How many types a group may be of: each has a sample."""
        return range(2, min(len(self.counts), self.samples) + 1)

    def degrees_of(self, types: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the degrees that these types may have together."""
        known = [self.degrees[kind] for kind in types]
        if self.unlike:
            yield from (own for own in product(*known) if len({*own}) > 1)
        else:
            yield from ((tp,) * len(types) for tp in sorted(set.intersection(*map(set, known))))


def _up_to(options: Iterator[GroupOption], most: int) -> tuple[GroupOption, ...] | None:
    """Return options; None if there are more than `most`; these may be too many to count."""
    found = tuple(islice(options, most + 1))
    return found if len(found) <= most else None


def _mixed(tries: _Tries, replicas: Sequence[int], sizes: Sequence[int]) -> Iterator[GroupOption]:
    kinds = range(len(tries.counts))
    for size in sizes:
        for types in combinations(kinds, size):
            for degrees in tries.degrees_of(types):
                tp_of: Mapping[int, int] = dict(zip(types, degrees, strict=True))
                most = [tries.counts[kind] // tp_of[kind] for kind in types]
                fitting = [[*takewhile(each.__ge__, replicas)] for each in most]
                for chosen in product(*fitting):
                    if sum(chosen) <= tries.samples:
                        of: Mapping[int, int] = dict(zip(types, chosen, strict=True))
                        yield option_of(
                            [tp_of.get(kind, 0) for kind in kinds],
                            [of.get(kind, 0) for kind in kinds],
                        )
