"""Images of documents: those of a micro-batch, and files that say them."""

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import SpecError
from ilp_planner.base.files import Document
from ilp_planner.inputs.files import find_model
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.images import image_load, images_of_documents
from ilp_planner.specs.lengths import FULL, JOINED, LONGEST, PACKED, Lengths, packs
from ilp_planner.specs.lengths_reader import lengths_text, of_samples, read_lengths
from tests.examples import examples

SIDE, SEQUENCE = 28, 64  # pixels of a token, tokens of a sample
SMALL = Encoder(
    layers=4,
    hidden=64,
    heads=4,
    ffn=128,
    patch=14,
    merge=2,
    image_size=56,
    window=56,
    full_layers=1,
)


@st.composite
def documents(draw: st.DrawFn, batching: str = "") -> Lengths:
    """Return documents that have room for their images, at least one with some."""
    kinds = draw(
        st.dictionaries(
            st.tuples(st.integers(9, SEQUENCE), st.integers(0, 3), st.integers(1, 3)),
            st.integers(1, 9),
            min_size=1,
            max_size=5,
        )
    )
    found: dict[tuple[int, int, int], int] = {(SEQUENCE, 2, SIDE): 1}
    for (length, images, side), count in kinds.items():
        if images * side**2 <= length:
            kind = length, images, SIDE * side if images else 0
            found[kind] = found.get(kind, 0) + count
    lengths, images, sizes = zip(*sorted(found), strict=True)
    return Lengths(
        lengths=lengths,
        counts=tuple(found[kind] for kind in sorted(found)),
        images=images,
        image_sizes=sizes,
        batching=batching or draw(st.sampled_from((PACKED, LONGEST, FULL))),
    )


def side_of(size: int) -> int:
    return size // SIDE


@examples(60)
@given(lengths=documents(LONGEST), samples=st.integers(1, 2), dp=st.integers(1, 2))
def test_the_slowest_replica_is_that_of_all_drawings(
    lengths: Lengths, samples: int, dp: int
) -> None:
    total = lengths.documents
    kinds = [
        (4 * images * side_of(size) ** 2, count / total)
        for (_, images, size), count in zip(lengths.kinds, lengths.counts, strict=True)
    ]
    patches = 0.0
    for drawn in product(product(kinds, repeat=samples), repeat=dp):
        share = prod(p for replica in drawn for _, p in replica)
        patches += share * max(sum(n for n, _ in replica) for replica in drawn) / samples
    load = image_load(SMALL, lengths, SEQUENCE, 1, samples, dp)
    assert patches * 0.98 <= load.images * load.patches <= patches * 1.02 + 1 + load.images
    assert load.tokens == pytest.approx(patches / 4, rel=0.02, abs=1)


@examples(60)
@given(lengths=documents(), batch=st.integers(1, 3), steps=st.integers(1, 4), dp=st.integers(1, 4))
def test_no_micro_batch_has_more_than_the_most(
    lengths: Lengths, batch: int, steps: int, dp: int
) -> None:
    most = image_load(SMALL, lengths, SEQUENCE, batch)
    seen = image_load(SMALL, lengths, SEQUENCE, batch, steps, dp)
    alone = image_load(SMALL, lengths, SEQUENCE, batch, steps, 1)
    assert alone.tokens <= seen.tokens <= most.tokens <= batch * SEQUENCE
    assert seen.images <= most.images
    assert seen.images * seen.patches <= most.images * most.patches + most.images


@examples(60)
@given(lengths=documents(PACKED), cp=st.sampled_from((1, 2, 4)))
def test_packs_have_the_images_of_their_documents(lengths: Lengths, cp: int) -> None:
    lengths = lengths.on_ranks(cp)
    each = {lengths.room(length, SEQUENCE): [] for length in lengths.lengths}
    for (length, images, size), count in zip(lengths.kinds, lengths.counts, strict=True):
        each[lengths.room(length, SEQUENCE)] += [images * side_of(size) ** 2] * count
    found = packs(lengths, SEQUENCE)
    mean = sum(sum(rows) for rows in each.values()) / sum(pack.number for pack in found)
    most = max(sum(times * max(each[n]) for n, times in pack.documents) for pack in found)
    load = image_load(SMALL, lengths, SEQUENCE, 1, 1, 1)
    assert load.tokens == pytest.approx(mean, abs=1)
    assert image_load(SMALL, lengths, SEQUENCE, 1).tokens == most


@examples(30)
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from((LONGEST, FULL)))
def test_documents_of_equal_images_are_equal_images(images: int, batch: int, batching: str) -> None:
    encoder = Encoder(**{**{n: getattr(SMALL, n) for n in SMALL.__slots__}, "images": images})
    same = Lengths(lengths=(20, 60), counts=(3, 1), batching=batching)
    load = image_load(encoder, same, SEQUENCE, batch, 8, 4)
    assert load == image_load(encoder, None, SEQUENCE, batch)
    assert images_of_documents(encoder, same) == images


# ---- files ---------------------------------------------------------------------------------------

THREE = Lengths(lengths=(500, 900), counts=(2, 1), images=(0, 1), image_sizes=(0, 448))


@pytest.mark.parametrize(
    "text",
    [
        "length,images,image_size,count\n500,0,0,2\n900,1,448,1\n",
        "images;length;image_size\n1;900;448\n0;500;56\n0;500;0\n",
        '{"length": 500, "images": []}\n' * 2 + '{"length": 900, "image_size": 448}\n',
        "length,image_size\n500,0\n500,0\n900,448\n",
        '{"length": 500, "images": 0}\n' * 2
        + '{"num_tokens": 900, "images": ["a.png"], "image_size": 448}\n',
    ],
)
def test_files_of_images(text: str) -> None:
    found = read_lengths(Document("lengths.txt", text))
    assert found == THREE
    assert read_lengths(Document("again", lengths_text(found))) == found


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("length,images\n500,-1\n", "line 2: images: found -1, expected a whole number from 0"),
        ("length,images,count\n500,1\n", "line 2: found '500,1', expected a number for each"),
        ("length,images,images\n500,1,2\n", "line 1: found 'length,images,images', expected each"),
        ('{"length": 500, "image_size": [448, 56]}\n', "line 1: image_size: found .448, 56."),
        ("length,pictures\n500,1\n", "line 1: length: found 'length', expected a whole number"),
        ('{"length": 5, "images": "a"}\n{"length": 5}\n', "line 1: images: found 'a', expected"),
    ],
)
def test_bad_files_are_refused_in_one_line(text: str, refused: str) -> None:
    with pytest.raises(SpecError, match=refused) as told:
        read_lengths(Document("lengths.txt", text))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "lengths", "refused"),
    [
        ("llama3-8b", {"images": (1,)}, "found images for llama3-8b, which has no encoder"),
        ("qwen2.5-vl-7b", {"images": (4,)}, "a document of 1000 tokens with images=4 of 256"),
        ("qwen2.5-vl-7b", {"images": (0,)}, "found no images, expected some, or `text_only`"),
        ("qwen2.5-vl-7b", {"batching": JOINED}, "found images with `batching=joined`, which cuts"),
        ("qwen2.5-vl-7b", {"images": (1,), "image_sizes": (500,)}, "found 500; 504 would do"),
        ("llava-1.5-7b", {"images": (1,), "image_sizes": (448,)}, "found 448, expected 336, which"),
    ],
)
def test_documents_without_room_are_refused(name: str, lengths: dict, refused: str) -> None:
    found = Lengths(**{"lengths": (1000,), "counts": (1,), **lengths})
    with pytest.raises(SpecError, match=refused) as told:
        of_samples(find_model(name), found, "lengths.txt")
    assert "\n" not in str(told.value)


def test_files_that_say_images_are_not_told_of_the_column() -> None:
    """Where a file has none, the column is the way to say which documents have images."""
    for images, told in (((4,), False), ((), True)):
        found = Lengths(lengths=(100,), counts=(1,), images=images)
        with pytest.raises(SpecError, match="a document of 100 tokens with images=") as refused:
            of_samples(find_model("qwen2.5-vl-7b"), found, "lengths.txt")
        assert ("a column of that name" in str(refused.value)) is told


def test_images_are_said_once() -> None:
    lengths = Lengths(lengths=(2000,), counts=(1,), images=(4,))
    model = find_model("qwen2.5-vl-7b")
    assert of_samples(model, lengths, "lengths.txt").lengths == lengths
    with pytest.raises(SpecError, match=r"with `images_per_sample=2`, expected one of the two"):
        of_samples(model, lengths, "lengths.txt", 2)
