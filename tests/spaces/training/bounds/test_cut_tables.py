"""Times of ranges of a chain are those of their virtual stages, and what one virtual stage per rank
has no memory for fits no number of them."""

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from ilp_planner.costs.training.job import spread
from ilp_planner.spaces.training.bounds.cut_tables import (
    _again,
    timed_tables,
    with_least_memory,
    with_memory,
)
from ilp_planner.spaces.training.search.possible import megatron_parts
from tests.examples import for_each
from tests.megatron_cases import GIB, MIXTURE, small_cluster, small_problem

MODEL = {"layers": 10, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


@pytest.mark.slow
@for_each(
    ("more", "limit"),
    [
        ({}, 1.3),
        ({}, 1.6),
        ({"prediction_layers": 1, "positions": "rope"}, 1.4),
        ({"experts": replace(MIXTURE, dense_first=0)}, 1.6),
    ],
)
def test_no_range_that_fits_is_ruled_out(more: dict[str, Any], limit: float) -> None:
    problem = small_problem(
        small_cluster(2, 2), batch=8, memory_limit=limit * GIB, **{**MODEL, **more}
    )
    ruled, seen = 0, 0
    for part in [*megatron_parts(problem, problem.costs)][::4]:
        for variant in part.variants():
            if variant.virtual == 1 or not part.spread(variant):
                continue
            tables = timed_tables(part, variant)
            own = with_memory(part, variant, tables)
            least = with_least_memory(part, variant, tables)
            may, fits = least.fits[least.row], own.fits[own.row]
            assert not (fits & ~may).any(), (part.name, variant)
            ruled += int(np.sum(~may))
            seen += int(np.sum(may & ~fits))
    assert ruled
    assert seen  # which the own tables rule out alone


def test_each_virtual_stage_computes_its_own_first_layers_again() -> None:
    problem = small_problem(small_cluster(2, 2), batch=8, memory_limit=GIB, **MODEL)
    layers, tried = MODEL["layers"], set()
    for part in megatron_parts(problem, problem.costs):
        for variant in part.variants():
            again, virtual = variant.recompute, variant.virtual
            if again.method != "block" or (again.layers, virtual, variant.remainder) in tried:
                continue
            tried.add((again.layers, virtual, variant.remainder))
            found, once = _again(part, variant, 0), part.repeated(again)[0, 1]
            for start, stop in combinations(range(layers + 3), 2):
                held = min(stop, layers + 1) - max(start, 1)
                ends = {"embedding": start == 0, "output": stop == layers + 2}
                if virtual == 1:
                    stages = [held]
                elif held < 1 or all(ends.values()):
                    continue
                else:
                    stages = spread(held, virtual, variant.remainder, **ends)
                seconds = once * sum(max(0, min(again.layers, stage)) for stage in stages)
                assert found[start, stop] == pytest.approx(seconds), (part.name, variant)
    assert len({virtual for _, virtual, _ in tried}) > 1
