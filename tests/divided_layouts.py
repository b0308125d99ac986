"""Pipelines whose schedules divide backward passes, without a line of the search: where their
stages are, and the layouts that are tried."""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from tests.random_layouts import with_ends

IN_A_V = ("zb-v", "dualpipe-v")
DIVIDED = (*IN_A_V, "interleaved-zb")


def ranks_in(schedule: str, pp: int, virtual: int) -> list[int]:
    """Return the pipeline rank of every virtual stage."""
    there = list(range(pp))
    back = there[::-1] if schedule in IN_A_V else there
    return (virtual * [*there, *back])[: pp * virtual]


def takes(schedule: str, pp: int, virtual: int, micro_batches: int) -> bool:
    """Tell whether a schedule runs such a pipeline."""
    if pp == 1 or virtual == 1:
        return False
    if schedule in IN_A_V:
        return virtual == 2 and (schedule == "zb-v" or micro_batches >= 2 * pp)
    return micro_batches % pp == 0


def is_tried(schedule: str, pp: int, ends: Sequence[int]) -> bool:
    """Tell whether a layout is tried: all stages but the first and the last have as many layers, or
    all ranks but that of the output as many or one less, in order, and the stages of a rank too."""
    sizes = [stop - start for start, stop in pairwise(ends)]
    if len(set(sizes[1:-1])) == 1:
        return True
    sizes[0] -= 1
    sizes[-1] -= 1
    ranks = ranks_in(schedule, pp, len(sizes) // pp)
    held = [[n for n, rank in zip(sizes, ranks, strict=True) if rank == own] for own in range(pp)]
    others = [sum(own) for rank, own in enumerate(held) if rank != ranks[-1]]
    return even([others]) and even(held)


def even(lists: Iterable[list[int]]) -> bool:
    """Tell whether the numbers of each list are equal or one apart, and the larger ones come first
    in all lists, or last in all."""
    every = list(lists)
    if any(max(one) - min(one) > 1 for one in every):
        return False
    return any(all(one == sorted(one, reverse=first) for one in every) for first in (False, True))


def drawn_sizes(
    draw: random.Random, schedule: str, pp: int, virtual: int, layers: int
) -> tuple[int, ...]:
    """Draw the elements of every virtual stage of a layout that is tried; perhaps none."""
    ranks = ranks_in(schedule, pp, virtual)
    own = draw.randint(0, layers)
    others = list(shares(draw, layers - own, pp - 1))
    first = draw.random() < 0.5
    sizes = [0] * len(ranks)
    for rank in range(pp):
        count = own if rank == ranks[-1] else others.pop()
        stages = [k for k, at in enumerate(ranks) if at == rank]
        for place, k in enumerate(stages if first else stages[::-1]):
            sizes[k] = count // virtual + (place < count % virtual)
    return with_ends(sizes)


def shares(draw: random.Random, total: int, parts: int) -> Iterator[int]:
    """Yield numbers that add up to a total and are one apart at most, in either order."""
    found = [total // parts + (k < total % parts) for k in range(parts)]
    yield from found if draw.random() < 0.5 else found[::-1]
