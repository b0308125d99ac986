"""What memory rules out: never a variant that has a plan."""

from collections import defaultdict
from dataclasses import replace

import pytest

from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.bounds.variant import never_fits
from ilp_planner.spaces.training.enumerate.partition import INFINITE
from ilp_planner.spaces.training.search.possible import megatron_parts
from ilp_planner.spaces.training.search.search import MegatronSearch
from tests.megatron_cases import GIB, MIXTURE, small_cluster, small_problem

MODEL = {"layers": 8, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


def test_what_never_fits_has_no_cut_that_fits() -> None:
    seen = set()
    for limit in (1.4, 1.6):
        problem = small_problem(small_cluster(2, 2), batch=8, memory_limit=limit * GIB, **MODEL)
        for part in megatron_parts(problem, problem.costs):
            for variant in part.variants():
                gone = never_fits(part, variant)
                seen.add((gone, variant.virtual > 1, variant.recompute.method == "block"))
                if gone:
                    assert LeastCuts(part.tables(variant)).seconds >= INFINITE
    assert len(seen) == 8


def test_nothing_is_said_where_layers_keep_less_than_their_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then more layers that are computed again keep more, not less."""
    problem = small_problem(small_cluster(2, 2), batch=8, memory_limit=0.8 * GIB, **MODEL)
    part = next(p for p in megatron_parts(problem, problem.costs) if p.degrees.pp > 1)
    blocks = [v for v in part.variants() if v.recompute.method == "block"]
    assert all(never_fits(part, v) for v in blocks)
    measured = part.memory
    monkeypatch.setattr(part, "memory", lambda v: replace(measured(v), checkpoint=1e12))
    part.never.clear()
    assert not any(never_fits(part, v) for v in blocks)


@pytest.mark.parametrize("limit", [1.0, 1.4])
def test_layers_of_two_kinds(limit: float) -> None:
    """Where virtual stages are chosen one by one: no layout of such a variant fits."""
    problem = small_problem(
        small_cluster(2, 2), batch=8, memory_limit=limit * GIB, **MODEL, experts=MIXTURE
    )
    parts = [part for part in megatron_parts(problem, problem.costs) if part.degrees.pp > 1]
    gone = [
        (part, variant)
        for part in parts[::7]
        for variant in part.variants()
        if variant.virtual > 1 and never_fits(part, variant)
    ]
    assert gone
    for part, variant in gone[::5]:
        engine = MegatronSearch([part], goon=lambda: True)
        part.never = defaultdict(lambda: [False] * 99)
        engine.work(0, variant)
        assert not engine.best
