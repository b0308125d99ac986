"""Random layouts of pipelines: how many elements of the chain each virtual stage has."""

import itertools
import random
from collections.abc import Sequence

from ilp_planner.specs.decoder import Decoder

REMAINDERS = ("first", "last", "alone")
ANY = 0.05  # of the layouts with virtual stages, the share that is spread in any way
ASKED = 0.6  # likewise, where any layout is asked for


def sizes_of(
    draw: random.Random, model: Decoder, pp: int, virtual: int, share: float = ANY
) -> tuple[int, ...]:
    """Draw the elements of every virtual stage: as even as can be on each rank, or, where layers
    differ, as many in all but the first and the last; of a share any, and perhaps none."""
    layers, stages = model.layers, pp * virtual
    if virtual == 1:
        return dealt(composition(draw, layers, pp), 1)
    if draw.random() < share:
        return with_ends(composition(draw, layers, stages))
    if alike(model):
        return dealt(composition(draw, layers, pp), virtual, draw.choice(REMAINDERS))
    each = draw.randint(1, max(1, layers // max(1, stages - 2)))
    rest = max(0, layers - each * (stages - 2))
    first = draw.randint(0, rest)
    return with_ends([first, *[each] * (stages - 2), rest - first])


def shifted(
    draw: random.Random, model: Decoder, sizes: tuple[int, ...], pp: int, share: float = 0.0
) -> tuple[int, ...]:
    """Move a layer from a rank to another, or, where layers differ, and of a share, between virtual
    stages."""
    if pp == 1:
        return sizes
    stages = [sizes[0] - 1, *sizes[1:-1], sizes[-1] - 1]
    even = alike(model) and draw.random() >= share
    if even:
        stages = [sum(stages[rank::pp]) for rank in range(pp)]
    source, target = draw.sample(range(len(stages)), 2)
    stages[source] -= 1
    stages[target] += 1
    if even:
        return dealt(stages, len(sizes) // pp, draw.choice(REMAINDERS))
    return with_ends(stages)


def alike(model: Decoder) -> bool:
    """Tell whether all layers are of one kind."""
    return len(set(model.expert_layers)) == 1


def composition(draw: random.Random, total: int, parts: int) -> list[int]:
    """Draw numbers that add up to a total, near to even ones or any: at least 1 each, but for those
    at the ends, where there is as much."""
    least = [0, *[1] * (parts - 2), 0][:parts]
    spare = max(0, total - sum(least))
    cuts = [draw.randint(0, spare) for _ in range(parts - 1)]
    if draw.random() < 0.5:
        near = (spare * k // parts + draw.choice((-1, 0, 0, 1)) for k in range(1, parts))
        cuts = [min(max(0, cut), spare) for cut in near]
    ends = (0, *sorted(cuts), spare)
    return [a + b - c for a, (c, b) in zip(least, itertools.pairwise(ends), strict=True)]


def dealt(held: Sequence[int], virtual: int, remainder: str = "first") -> tuple[int, ...]:
    """Return the elements of virtual stages where ranks hold so many layers: as evenly as possible,
    the first ones with one more; or the last ones, but for the rank of the output; or so with
    stages of the embedding and of the output alone."""
    ranks, empty = len(held), set()
    if remainder == "alone" and virtual > 1 < ranks:
        empty = {0, ranks * virtual - 1}
    layers = [0] * (ranks * virtual)
    for rank, count in enumerate(held):
        stages = [stage for stage in range(rank, ranks * virtual, ranks) if stage not in empty]
        if remainder != "first" and rank < ranks - 1:
            stages.reverse()
        for place, stage in enumerate(stages):
            layers[stage] = count // len(stages) + (place < count % len(stages))
    return with_ends(layers)


def with_ends(layers: Sequence[int]) -> tuple[int, ...]:
    """Return the elements of virtual stages of so many layers, with the embedding and the output
    layer."""
    sizes = list(layers)
    sizes[0] += 1
    sizes[-1] += 1
    return tuple(sizes)
