"""Documents of different lengths, and the samples that a trainer makes of them.

A data set is known by the histogram of its lengths. From it follow exactly the mean tokens of a
sample, and the expected longest of several documents (order statistics). Packs are made by best fit
decreasing, as trainers make them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ilp_planner.base.limits import DIMENSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Share = Callable[[int], float]

Number = TypeVar("Number", int, float)

# Ways to make samples of documents.
# packed: whole documents in a sample; attention stays inside of each.
# joined: documents are joined end to end and cut; attention sees all tokens before.
# longest: one document in a sample, padded to the longest of its micro-batch.
# grouped: likewise, and micro-batches are of documents of like lengths, which a sampler sorts.
# full: one document in a sample, padded to the sequence length.
BATCHINGS = PACKED, JOINED, LONGEST, GROUPED, FULL = (
    "packed", "joined", "longest", "grouped", "full",
)  # fmt: skip
PADDED = (LONGEST, GROUPED)  # to the longest document of a micro-batch
# What trainers do with documents that are longer than a sample: they cut them, leave them out, or
# split them into several.
LONGER = CUT, LEFT_OUT, SPLIT = "cut", "left out", "split"
CLASSES = 4096  # different lengths of a histogram, at most
GRID = 2**16  # points of the distribution of a replica's sum over its samples, about
FINEST, COARSEST = 512, 8  # steps between the least and the largest value of one sample


class Pack(NamedTuple):
    """Equal packs.

    number: how many there are.
    documents: the lengths in each, and how many documents have that length.
    free: tokens of each that no document fills.
    """

    number: int
    documents: tuple[tuple[int, int], ...]
    free: int = 0


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """A histogram of the lengths of documents.

    lengths: tokens of a document, ascending; with images, those of one length by their images.
    counts: documents of each length.
    batching: how samples are made of them, one of `BATCHINGS`.
    images: of each of these documents; empty: as many as the model's encoder says.
    image_sizes: pixels of their side, 0 without images; empty: the encoder's.
    seconds: of sound in each of these documents; empty: as many as the model's encoder says.
    multiple: tokens that a document of a pack is padded to a multiple of.
    alike: groups are so large that their micro-batches have no padding, for a bound.

    Raises
    ------
    ValueError: a length or count is not possible, or batching has another name.
    """

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    batching: str = PACKED
    images: tuple[int, ...] = ()
    image_sizes: tuple[int, ...] = ()
    seconds: tuple[int, ...] = ()
    multiple: int = 1
    alike: bool = False

    def __post_init__(self) -> None:
        if self.batching not in BATCHINGS:
            raise ValueError(f"batching must be one of {BATCHINGS}, got {self.batching!r}")
        if not self.lengths or len(self.lengths) != len(self.counts):
            raise ValueError("lengths must have a count each, and be at least one")
        for name in ("images", "image_sizes", "seconds"):
            found = getattr(self, name)
            if found and (len(found) != len(self.lengths) or min(found) < 0):
                raise ValueError(f"{name} must be whole numbers of at least 0, one for each length")
        if self.lengths[0] < 1 or any(a >= b for a, b in pairwise(self.kinds)):
            raise ValueError("lengths must be whole numbers of at least 1, ascending")
        if not all(0 < count <= DIMENSION for count in self.counts):
            raise ValueError(f"counts must be whole numbers from 1 to {DIMENSION}")

    @cached_property
    def _hash(self) -> int:
        # of numbers alone: pickles have it, and another process hashes texts differently
        return hash((self.kinds, self.counts, BATCHINGS.index(self.batching), self.multiple,
                     self.alike))  # fmt: skip

    def __hash__(self) -> int:
        return self._hash  # once: jobs are keys of many caches

    @property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Tokens of a document, and its images, their side and its sound where they are said."""
        columns = filter(None, (self.lengths, *self.images_said))
        return tuple(zip(*columns, strict=True))

    @property
    def images_said(self) -> tuple[tuple[int, ...], ...]:
        """Images of each document, their sides and its sound; empty where encoders say them."""
        return self.images, self.image_sizes, self.seconds

    @property
    def histogram(self) -> tuple[tuple[int, int], ...]:
        """The different lengths, ascending, and the documents of each."""
        return merged(zip(self.lengths, self.counts, strict=True))

    @property
    def documents(self) -> int:
        """Number of all documents."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Tokens of a document in the mean."""
        return self._mean(float)

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return self.lengths[-1]

    def _mean(self, value: Share) -> float:
        return _sum(value, zip(self.lengths, self.counts, strict=True)) / self.documents

    def trained(self, sequence: int) -> float:
        """Return the mean tokens of a sample that belong to documents. sequence: its tokens."""
        if self.batching == JOINED:
            return float(sequence)
        return self.mean * self._of_documents(sequence)

    def pairs(self, sequence: int, share: Share) -> float:
        """Return the mean pairs of tokens of a sample that attention inside of documents sees.
        share: of all pairs of tokens of a document, by its length."""
        if self.batching == JOINED:
            return share(sequence) * sequence**2
        return self._mean(_pairs(share)) * self._of_documents(sequence)

    def _of_documents(self, sequence: int) -> float:
        """Return the mean number of documents of a sample."""
        if self.batching != PACKED:
            return 1.0
        return self.documents / sum(pack.number for pack in packs(self, sequence))

    def slowest(
        self,
        sequence: int,
        micro_batch: int,
        micro_batches: int,
        dp: int,
        share: Share,
        *,
        by_trainer: bool = False,
    ) -> tuple[float, float]:
        """Return the tokens of a sample with its padding, and the pairs of tokens that attention
        sees in it: the expected mean over the samples of the slowest replica.

        Parameters
        ----------
        sequence: tokens of a sample at most.
        micro_batches: of each replica.
        dp: number of replicas.
        share: of all pairs of so many tokens that attention sees.
        by_trainer: Hugging Face's Trainer groups documents, else ms-swift (`grouped.py`).
        """
        if self.batching in (JOINED, FULL):
            return float(sequence), share(sequence) * sequence**2
        if self.batching == PACKED:
            costs = [(_of_pack(pack, share), pack.number) for pack in packs(self, sequence)]
            samples = micro_batch * micro_batches
            return float(sequence), expected_largest(merged(costs), samples, dp)
        if self.batching == GROUPED:
            return self._grouped(micro_batch, micro_batches, dp, share, by_trainer=by_trainer)
        each = self._longest_of(micro_batch)
        tokens, pairs = (
            expected_largest(tuple((value(n), part) for n, part in each), micro_batches, dp)
            for value in (float, _pairs(share))
        )
        return tokens, pairs

    def _grouped(
        self, micro_batch: int, micro_batches: int, dp: int, share: Share, *, by_trainer: bool
    ) -> tuple[float, float]:
        """Return tokens and pairs of a document with its padding, in the mean over rounds of
        micro-batches of all replicas, each as long as the longest of the round."""
        from ilp_planner.specs.grouped import Sampler, expected

        if self.alike:
            return self.mean, self._mean(_pairs(share))
        sampler = Sampler(micro_batch, micro_batches, dp, self.documents, by_trainer)
        tokens, pairs = (
            expected(self.histogram, value, sampler) for value in (float, _pairs(share))
        )
        return tokens, pairs

    def padding(self, sequence: int, micro_batch: int) -> float:
        """Return the mean share of a sample's tokens that belong to no document."""
        tokens, _ = self.slowest(sequence, micro_batch, 1, 1, lambda _: 1.0)
        return max(0.0, 1 - self.trained(sequence) / tokens)

    def room(self, length: int, sequence: int) -> int:
        """Return the tokens of a pack that a document takes. sequence: tokens of the pack."""
        return min(-(-length // self.multiple) * self.multiple, sequence)

    def on_ranks(self, cp: int) -> Lengths:
        """Return the same documents as context-parallel ranks have them: each of a pack is padded
        to two equal parts for each rank (`pad_seq_to_mult` of Megatron-Bridge; `template/base.py:
        _handle_megatron_cp` of ms-swift)."""
        return replace(self, multiple=2 * cp) if self.batching == PACKED and cp > 1 else self

    def made(self, batching: str) -> Lengths:
        """Return the same documents with another batching."""
        return replace(self, batching=batching)

    def _longest_of(self, count: int) -> list[tuple[int, float]]:
        """Return the probability of each length to be the longest of so many documents."""
        found, below, total, so_far = [], 0.0, self.documents, 0
        for length, number in zip(self.lengths, self.counts, strict=True):
            so_far += number
            upto = (so_far / total) ** count
            if upto > below:
                found.append((length, upto - below))
            below = upto
        return found


def _sum(value: Share, documents: Iterable[tuple[int, int]]) -> float:
    return sum(count * value(length) for length, count in documents)


def _pairs(share: Share) -> Share:
    """Return the pairs that attention sees among so many tokens, as a function of them."""
    return lambda tokens: share(tokens) * tokens**2


def _of_pack(pack: Pack, share: Share) -> float:
    """Return the pairs of tokens that attention sees in a pack; its free tokens count as one more
    document."""
    documents = (*pack.documents, (pack.free, 1)) if pack.free else pack.documents
    return _sum(_pairs(share), documents)


def merged(rows: Iterable[tuple[Number, Number]]) -> tuple[tuple[Number, Number], ...]:
    """Return the different values, ascending, each with the sum of its weights."""
    found: dict[Number, Number] = {}
    for value, weight in rows:
        found[value] = found[value] + weight if value in found else weight
    return tuple(sorted(found.items()))


@lru_cache(maxsize=64)
def packs(lengths: Lengths, size: int) -> tuple[Pack, ...]:
    """Return documents, with their padding, packed by best fit decreasing into sequences of `size`
    tokens: the longest document goes first, each to the pack with the least room that suffices.

    Raises
    ------
    ValueError: a document is longer.
    """
    if lengths.longest > size:
        raise ValueError(f"lengths must be at most {size}, found {lengths.longest}")
    open_: dict[int, list[Pack]] = {}  # by their free tokens
    order: list[int] = []

    def keep(pack: Pack) -> None:
        if pack.free not in open_:
            open_[pack.free] = []
            insort(order, pack.free)
        open_[pack.free].append(pack)

    rooms = merged((lengths.room(length, size), count) for length, count in lengths.histogram)
    for length, left in reversed(rooms):
        while left:
            place = bisect_left(order, length)
            if place < len(order):
                pack = open_[order[place]].pop()
                if not open_[pack.free]:
                    del open_[order.pop(place)]
            else:
                pack = Pack(left, (), size)
            # The pack that took a document has now the least room, and takes the next one.
            each = pack.free // length
            whole = min(pack.number, left // each)
            if whole:
                keep(_with(pack, whole, length, each))
            left -= whole * each
            rest = pack.number - whole
            if rest and left and left < each:
                keep(_with(pack, 1, length, left))
                left, rest = 0, rest - 1
            if rest and pack.documents:
                keep(pack._replace(number=rest))
    return tuple(pack for several in open_.values() for pack in several)


def _with(pack: Pack, count: int, length: int, times: int) -> Pack:
    return Pack(count, (*pack.documents, (length, times)), pack.free - times * length)


@lru_cache(maxsize=4096)
def expected_largest(values: tuple[tuple[float, float], ...], samples: int, replicas: int) -> float:
    """Return the expected largest of the replicas' means. Each mean is over `samples` values, which
    are drawn independently.

    The values are put on a grid of equal steps in such a way that their mean stays. The
    distribution of a replica's sum is that of one value, convolved with itself. The result is at
    least the mean of the values and at most the largest of them.

    Parameters
    ----------
    values: the possible values of a sample, ascending, each with its weight.
    """
    total = sum(weight for _, weight in values)
    mean = sum(value * weight for value, weight in values) / total
    low, high = values[0][0], values[-1][0]
    if replicas == 1 or high <= low:
        return mean
    import numpy as np

    classes = max(COARSEST, min(FINEST, GRID // samples))
    step = (high - low) / classes
    places = np.array([(value - low) / step for value, _ in values])
    weights = np.array([weight / total for _, weight in values])
    below = np.minimum(places.astype(int), classes - 1)
    one = np.zeros(classes + 1)
    np.add.at(one, below, weights * (below + 1 - places))
    np.add.at(one, below + 1, weights * (places - below))
    points = samples * classes + 1
    size = 1 << (points - 1).bit_length()
    several = np.fft.irfft(np.fft.rfft(one, size) ** samples, size)[:points].clip(min=0.0)
    at_most = np.minimum(np.cumsum(several) / several.sum(), 1.0)
    # The mean of a number of at least 0 is the sum of the probabilities of more.
    largest = low + step / samples * float(np.sum(1.0 - at_most[:-1] ** replicas))
    return float(min(max(largest, mean), high))


def histogram(found: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the different numbers, ascending, and how often each occurs."""
    counts = sorted(Counter(found).items())
    return tuple(length for length, _ in counts), tuple(count for _, count in counts)
