"""What does not divide, and the nearest value that does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.specs.decoder import Decoder, Experts
from ilp_planner.specs.degrees import (
    divisors,
    expert_misfits,
    job_misfits,
    nearest_divisor,
    nearest_multiple,
    pipeline_misfits,
    tensor_misfits,
)
from ilp_planner.specs.pipeline_layout import even_layout, split_layout
from ilp_planner.specs.training import Recompute, Settings, TrainingJob
from tests.examples import for_each

MODEL = Decoder(layers=24, hidden=2048, heads=32, kv_heads=8, sequence=2048, vocab=50257)


def make_job(**changes: object) -> TrainingJob:
    values: dict[str, object] = {"micro_batch": 4, "global_batch": 64, "dp": 4} | changes
    return TrainingJob(**{"model": MODEL} | values)  # type: ignore[arg-type]


@given(st.integers(1, 2000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


@given(st.integers(1, 5000), st.lists(st.integers(1, 5000), min_size=1, max_size=3))
def test_nearest_divisor(wanted: int, wholes: list[int]) -> None:
    found = nearest_divisor(wanted, *wholes)
    others = [d for d in range(1, max(wholes) + 1) if all(whole % d == 0 for whole in wholes)]
    assert found in others
    assert abs(found - wanted) == min(abs(d - wanted) for d in others)


@given(st.integers(1, 100), st.integers(1, 5000))
def test_nearest_multiple(unit: int, wanted: int) -> None:
    found = nearest_multiple(wanted, unit)
    assert found > 0
    assert found % unit == 0
    assert abs(found - wanted) <= max(unit / 2, unit - wanted)


def test_what_fits_has_no_misfits() -> None:
    assert not list(job_misfits(make_job(tp=2, pp=2), 16))
    assert not list(pipeline_misfits(24, 4, 3))


@for_each(("tp", "repair"), [(3, 2), (5, 4), (6, 4), (12, 8), (64, 32)])
def test_heads(tp: int, repair: int) -> None:
    first = next(tensor_misfits(MODEL, tp))
    assert (first.name, first.found, first.repair) == ("tp", tp, repair)
    assert "heads (32)" in first.rule


def test_the_repair_suits_all_rules() -> None:
    """7 divides no heads; of their divisors 8 does not divide this ffn."""
    model = replace(MODEL, ffn=4 * 1001)
    assert next(tensor_misfits(model, 7)).repair == 4


def test_fewer_groups_of_keys_than_ranks_are_fine() -> None:
    assert not list(tensor_misfits(MODEL, 16))


@for_each(
    ("pp", "virtual", "name", "repair"),
    [(5, 1, "pp", 4), (2, 5, "virtual", 4), (1, 2, "virtual", 1)],
)
def test_layers(pp: int, virtual: int, name: str, repair: int) -> None:
    (found,) = pipeline_misfits(24, pp, virtual)
    assert (found.name, found.repair) == (name, repair)


def test_experts() -> None:
    model = replace(MODEL, experts=Experts(count=8, top_k=2, ffn=1024))
    assert [(m.name, m.repair) for m in expert_misfits(model, 3, 3)] == [("ep", 2), ("etp", 2)]
    (found,) = expert_misfits(MODEL, 2, 1)
    assert found.rule == "a model with experts"
    assert next(expert_misfits(model, 3, 1, ranks=3)).repair == 1  # 2 divides no 3 ranks


def test_a_repaired_degree_divides_heads_and_tokens() -> None:
    """10 divides these tokens, and no heads."""
    model = replace(MODEL, sequence=4100, max_position_embeddings=4100)
    job = make_job(model=model, tp=8, settings=Settings(sequence_parallel=True))
    assert next(job_misfits(job)).repair == 4


def test_enormous_degrees_are_refused_at_once() -> None:
    assert next(tensor_misfits(MODEL, 10**12)).repair == 32
    assert next(job_misfits(make_job(settings=Settings(cp=10**9)))).name == "cp"


@pytest.mark.parametrize(("counts", "layers", "repair"), [([12, 12], 5, 4), ([10, 14], 4, 2)])
def test_uniform_chunks_divide_every_stage(counts: list[int], layers: int, repair: int) -> None:
    again = Recompute(granularity="full", method="uniform", layers=layers)
    job = make_job(pp=2, layout=split_layout(counts), settings=Settings(recompute=again))
    (found,) = job_misfits(job)
    assert (found.name, found.repair) == ("recompute-layers", repair)


@for_each(
    ("changes", "world", "name", "repair"),
    [
        ({"global_batch": 30}, None, "global_batch", 32),
        ({}, 5, "world", 4),
        ({"settings": Settings(cp=3)}, None, "cp", 2),
        ({"tp": 32, "settings": Settings(cp=64, sequence_parallel=True)}, None, "cp", 32),
    ],
)
def test_batch_world_and_tokens(
    changes: dict[str, object], world: int | None, name: str, repair: int
) -> None:
    first = next(job_misfits(make_job(**changes), world))
    assert (first.name, first.repair) == (name, repair)


def test_interleaving_wants_whole_groups_of_micro_batches() -> None:
    job = make_job(pp=4, dp=1, micro_batch=1, global_batch=6, layout=even_layout(24, 4, 2))
    (found,) = job_misfits(job)
    assert (found.name, found.repair) == ("global_batch", 8)
    assert not list(job_misfits(replace(job, global_batch=8)))
