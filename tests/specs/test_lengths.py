"""Samples of documents: packs, the longest of several, and the slowest of several replicas."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import gcd, prod
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.inputs.files import find_model
from ilp_planner.specs.decoder_parts import Window
from ilp_planner.specs.lengths import (
    BATCHINGS,
    CUT,
    FULL,
    GROUPED,
    JOINED,
    LEFT_OUT,
    LONGER,
    LONGEST,
    PACKED,
    SPLIT,
    Lengths,
    expected_largest,
    packs,
)
from ilp_planner.specs.lengths_reader import lengths_text, of_samples, read_lengths, shortened
from tests.examples import examples

SEQUENCE = 64


def whole(_: int) -> float:
    return 1.0


def rows_of(lengths: Lengths) -> Iterator[tuple[int, int]]:
    return zip(lengths.lengths, lengths.counts, strict=True)


@st.composite
def documents(draw: st.DrawFn, batching: str = "", most: int = 40) -> Lengths:
    found = sorted(draw(st.sets(st.integers(1, SEQUENCE), min_size=1, max_size=5)))
    return Lengths(
        lengths=tuple(found),
        counts=tuple(draw(st.integers(1, most)) for _ in found),
        batching=batching or draw(st.sampled_from(BATCHINGS)),
    )


def one_by_one(lengths: Lengths, cp: int = 1) -> list[list[int]]:
    """Pack by best fit decreasing, document after document, each padded to twice the ranks."""
    found: list[list[int]] = []
    multiple = 2 * cp if cp > 1 else 1
    for length, count in reversed([*zip(lengths.lengths, lengths.counts, strict=True)]):
        while length % multiple:
            length += 1
        for _ in range(count):
            fitting = [pack for pack in found if sum(pack) + length <= SEQUENCE]
            if fitting:
                max(fitting, key=sum).append(length)
            else:
                found.append([length])
    return found


@examples(60)
@given(lengths=documents(PACKED))
def test_packs_are_those_of_documents_one_by_one(lengths: Lengths) -> None:
    found = packs(lengths, SEQUENCE)
    theirs = one_by_one(lengths)
    assert sum(pack.number for pack in found) == len(theirs)
    placed = dict.fromkeys(lengths.lengths, 0)
    for pack in found:
        assert sum(n * times for n, times in pack.documents) + pack.free == SEQUENCE
        for length, times in pack.documents:
            placed[length] += times * pack.number
    assert tuple(placed.values()) == lengths.counts
    free = sorted(pack.free for pack in found for _ in range(pack.number))
    assert free == sorted(SEQUENCE - sum(pack) for pack in theirs)


@examples(60)
@given(lengths=documents(PACKED), cp=st.sampled_from((1, 2, 4, 8)))
def test_documents_of_packs_are_padded_for_context_parallel_ranks(
    lengths: Lengths, cp: int
) -> None:
    """To two equal parts for each rank: tokens, pairs and padding are those of packs made so."""
    own, theirs = lengths.on_ranks(cp), one_by_one(lengths, cp)
    total = sum(n * c for n, c in rows_of(lengths))
    assert own.trained(SEQUENCE) == pytest.approx(total / len(theirs))
    assert own.padding(SEQUENCE, 1) == pytest.approx(1 - total / len(theirs) / SEQUENCE)
    pairs = [sum(n**2 for n in (*pack, SEQUENCE - sum(pack))) for pack in theirs]
    assert own.slowest(SEQUENCE, 1, 1, 1, whole)[1] == pytest.approx(sum(pairs) / len(pairs))
    assert all(other.on_ranks(cp) is other for other in map(lengths.made, {*BATCHINGS} - {PACKED}))


@examples(60)
@given(lengths=documents(LONGEST), count=st.integers(1, 3), dp=st.integers(1, 2))
def test_the_longest_of_a_micro_batch_is_that_of_all_drawings(
    lengths: Lengths, count: int, dp: int
) -> None:
    each = [(n, c / lengths.documents) for n, c in rows_of(lengths)]
    tokens = pairs = 0.0
    for drawn in product(product(each, repeat=count), repeat=dp):
        share = prod(p for batch in drawn for _, p in batch)
        longest = max(n for batch in drawn for n, _ in batch)
        tokens, pairs = tokens + share * longest, pairs + share * longest**2
    found = lengths.slowest(SEQUENCE, count, 1, dp, whole)
    assert found[0] == pytest.approx(tokens, rel=0.01)
    assert found[1] == pytest.approx(pairs, rel=0.01)


@examples(60)
@given(lengths=documents(most=5), samples=st.integers(1, 4), replicas=st.integers(1, 2))
def test_the_slowest_replica_is_that_of_all_drawings(
    lengths: Lengths, samples: int, replicas: int
) -> None:
    values = tuple((float(n), float(c)) for n, c in rows_of(lengths))
    total = lengths.documents
    sums: dict[float, float] = {0.0: 1.0}
    for _ in range(samples):
        further: dict[float, float] = {}
        for so_far, share in sums.items():
            for value, count in values:
                at = so_far + value
                further[at] = further.get(at, 0.0) + share * count / total
        sums = further
    largest = sum(
        prod(share for _, share in drawn) * max(value for value, _ in drawn)
        for drawn in product(sums.items(), repeat=replicas)
    )
    found = expected_largest(values, samples, replicas)
    assert found == pytest.approx(largest / samples, rel=0.01)
    assert lengths.mean * (1 - 1e-9) <= found <= lengths.longest


@examples(40)
@given(lengths=documents(), batch=st.integers(1, 3), dp=st.integers(1, 4))
def test_a_sample_has_at_least_its_documents(lengths: Lengths, batch: int, dp: int) -> None:
    """Padding and waiting only add, to tokens and to pairs of them."""
    for share in (whole, Window(size=16).share):
        tokens, pairs = lengths.slowest(SEQUENCE, batch, 4, dp, share)
        assert lengths.trained(SEQUENCE) <= tokens * (1 + 1e-9) <= SEQUENCE * (1 + 2e-9)
        assert lengths.pairs(SEQUENCE, share) <= pairs * (1 + 1e-9)


@examples(60)
@given(
    lengths=documents(GROUPED),
    batch=st.integers(1, 2),
    each=st.integers(1, 3),
    dp=st.integers(1, 4),
)
def test_groups_of_documents_are_those_of_all_drawings(
    lengths: Lengths, batch: int, each: int, dp: int
) -> None:
    """Of as few documents that a group is a step's, sorted. Rounds begin at every place in it that
    the replicas' micro-batches come to, and may reach into the next groups."""
    lengths = replace(lengths, counts=(1,) * len(lengths.counts))
    size, ahead = each * batch, -(-(each + dp) // each)
    assume(lengths.documents ** (size * ahead) <= 20_000)
    groups = [sorted(drawn)[::-1][::batch] for drawn in product(lengths.lengths, repeat=size)]
    begins = range(0, each, gcd(each, dp))
    rounds = [
        max([n for group in several for n in group][begin : begin + dp])
        for several in product(groups, repeat=ahead)
        for begin in begins
    ]
    tokens = sum(rounds) / len(rounds)
    found = lengths.slowest(SEQUENCE, batch, each, dp, whole, by_trainer=True)
    assert found[0] == pytest.approx(tokens, rel=0.01)
    assert lengths.mean * (1 - 1e-9) <= found[0] <= lengths.longest


@pytest.mark.parametrize("by_trainer", [True, False])
@pytest.mark.parametrize(("batch", "steps", "dp"), [(1, 4, 4), (4, 2, 3), (8, 1, 8), (2, 8, 1)])
def test_groups_cost_what_samplers_draw(by_trainer: bool, batch: int, steps: int, dp: int) -> None:
    """Of a data set with many short documents, in the mean over epochs; sorting pads less. The last
    group, which is smaller, is none of the planner's."""
    rng = Random(batch + steps + dp)
    found = sorted(min(SEQUENCE, int(rng.expovariate(0.1)) + 1) for _ in range(16_000))
    counts = Counter(found)
    lengths = Lengths(
        lengths=tuple(sorted(counts)), counts=tuple(counts[n] for n in sorted(counts)),
        batching=GROUPED,
    )  # fmt: skip
    size = batch * (steps if by_trainer else dp)
    group = size * max(1, min(len(found) // (4 * size), 50))
    tokens = squares = rounds = 0.0
    for _ in range(4):
        rng.shuffle(found)
        order = [n for i in range(0, len(found), group) for n in sorted(found[i : i + group])[::-1]]
        for begin in range(0, len(order) - batch * dp + 1, batch * dp):
            longest = max(order[begin : begin + batch * dp])
            tokens, squares, rounds = tokens + longest, squares + longest**2, rounds + 1
    own = lengths.slowest(SEQUENCE, batch, steps, dp, whole, by_trainer=by_trainer)
    assert own[0] == pytest.approx(tokens / rounds, rel=0.03)
    assert own[1] == pytest.approx(squares / rounds, rel=0.05)
    longest = lengths.made(LONGEST).slowest(SEQUENCE, batch, steps, dp, whole)
    assert lengths.mean <= own[0]
    assert batch == 1 or own[0] < longest[0]


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "steps", "dp"), [(4, 4, 4), (4, 2, 3), (2, 8, 1)])
def test_groups_are_those_of_the_trainers_sampler(batch: int, steps: int, dp: int) -> None:
    """Batches of `LengthGroupedSampler` go to the replicas in turn (`BatchSamplerShard`)."""
    utils = pytest.importorskip("transformers.trainer_pt_utils")
    rng = Random(dp)
    found = [min(SEQUENCE, int(rng.expovariate(0.1)) + 1) for _ in range(16_000)]
    counts = sorted(Counter(found).items())
    own = Lengths(
        lengths=tuple(n for n, _ in counts), counts=tuple(c for _, c in counts), batching=GROUPED
    )
    order = [found[i] for i in utils.LengthGroupedSampler(batch * steps, lengths=found)]
    batches = [max(order[i : i + batch]) for i in range(0, len(order), batch)]
    rounds = [max(batches[i : i + dp]) for i in range(0, len(batches) - dp + 1, dp)]
    tokens, _ = own.slowest(SEQUENCE, batch, steps, dp, whole, by_trainer=True)
    assert tokens == pytest.approx(sum(rounds) / len(rounds), rel=0.03)


def test_samples_of_each_kind() -> None:
    """Two documents of 16 tokens and one of 32 fill a sequence of 64."""
    known = {
        PACKED: (64.0, 16**2 * 2 + 32**2, 64.0),
        JOINED: (64.0, 64**2, 64.0),
        FULL: (64.0, 64**2, 64 / 3),
        GROUPED: (64 / 3, (2 * 16**2 + 32**2) / 3, 64 / 3),
        LONGEST: (64 / 3, (2 * 16**2 + 32**2) / 3, 64 / 3),
    }
    for batching, (tokens, pairs, trained) in known.items():
        lengths = Lengths(lengths=(16, 32), counts=(2, 1), batching=batching)
        assert lengths.slowest(64, 1, 8, 1, whole) == pytest.approx((tokens, pairs), rel=1e-5)
        assert lengths.trained(64) == pytest.approx(trained)


# ---- files ---------------------------------------------------------------------------------------

THREE = Lengths(lengths=(5, 9), counts=(2, 1))


@pytest.mark.parametrize(
    "text",
    [
        "length,count\n5,2\n9,1\n", "9,1\n5,1\n5;1\n", "5\n9\n5\n", '{"5": 2, "9": 1}', "[5, 9, 5]",
        "[[5, 2], [9, 1]]", '{"length": 5}\n{"length": 9}\n{"length": 5}\n',
        '{"input_ids": [1, 2, 3, 4, 5]}\n{"num_tokens": 9}\n{"length": 5, "x": {}}\n',
    ],
)  # fmt: skip
def test_files_of_lengths(text: str) -> None:
    found = read_lengths(Document("lengths.txt", text))
    assert found == THREE
    assert read_lengths(Document("again", lengths_text(found))) == found


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("", "lengths.txt: found no lengths, expected a line"),
        ("5,0\n", "lengths.txt: found no lengths, expected a line"),
        ("5\n-3\n", "line 2: length: found -3, expected a whole number from 1"),
        ("5\n2.5\n", "line 2: length: found '2.5', expected a whole number"),
        ("length,count\nlong,2\n", "line 2: length: found 'long', expected a whole number"),
        ("5,2,1\n", "line 1: found '5,2,1', expected a line"),
        ("5,-2\n", "line 1: count: found -2, expected a whole number from 0"),
        ('{"length": 5}\n{"size": 5}\n', "line 2: found none of length, num_tokens"),
        ('{"length": 5}\n{"length": }\n', "line 2: found no valid JSON"),
        ('{"5": "many"}', "'5': count: found 'many', expected a whole number"),
        ("[5, true]", r"\[1\]: length: found True, expected a whole number"),
        ("[5, ", "lengths.txt: found no valid JSON"),
    ],
)
def test_bad_files_are_refused_in_one_line(text: str, refused: str) -> None:
    with pytest.raises(SpecError, match=refused) as told:
        read_lengths(Document("lengths.txt", text))
    assert "\n" not in str(told.value)


def test_documents_longer_than_a_sample_are_refused() -> None:
    model = find_model("llama3-8b")
    with pytest.raises(SpecError, match=r"a document of 9000 tokens, expected at most 8192.*9088"):
        of_samples(model, Lengths(lengths=(9000,), counts=(1,)), "lengths.txt")
    padded = Lengths(lengths=(100, 700), counts=(1, 1), batching=LONGEST)
    assert of_samples(model, padded, "lengths.txt").sequence == 768
    assert of_samples(model, padded.made(PACKED), "lengths.txt").sequence == 8192


@examples(60)
@given(lengths=documents(), tokens=st.integers(1, SEQUENCE + 4), seen=st.booleans())
def test_longer_documents_are_cut_left_out_or_split(
    lengths: Lengths, tokens: int, seen: bool
) -> None:
    """One by one; whatever becomes of them, none is longer than a sample after it."""
    if seen:
        lengths = replace(lengths, images=tuple(range(len(lengths.lengths))))
    every = [length for length, count in rows_of(lengths) for _ in range(count)]
    assert shortened(lengths, tokens, "", "a file") == (lengths, "")
    for longer in LONGER:
        expected = Counter()
        for length in every:
            if longer == CUT or length <= tokens:
                expected[min(length, tokens)] += 1
            elif longer == SPLIT:
                expected.update([*[tokens] * (length // tokens), length % tokens])
        del expected[0]
        if not expected:
            with pytest.raises(SpecError, match=f"a file: found no document of at most {tokens} "):
                shortened(lengths, tokens, longer, "a file")
            continue
        found, remark = shortened(lengths, tokens, longer, "a file")
        assert dict(found.histogram) == expected
        beyond = sum(length > tokens for length in every)
        assert (f"{beyond} of {len(every)} documents" in remark) is (beyond > 0)
        lost = 1 - sum(map(prod, found.histogram)) / sum(every)
        assert (f"({100 * lost:.3g} % of all tokens)" in remark) is (lost > 0)
        assert (longer == LEFT_OUT) >= (found.documents < len(every))


def test_many_lengths_are_rounded_up() -> None:
    found = read_lengths(Document("all.txt", "\n".join(map(str, range(1, 5001)))))
    assert found.documents == 5000
    assert found.lengths == tuple(range(2, 5001, 2))
    assert found.mean == pytest.approx(2501)
