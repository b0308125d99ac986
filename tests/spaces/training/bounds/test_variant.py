"""Bounds of variants by arithmetic; what memory rules out: never a variant that has a plan."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.numerics import NEVER
from ilp_planner.faces.api.problem import problem
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.schedule.formulas import DIVIDED, schedule_of
from ilp_planner.spaces.registry import RUNTIMES
from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.bounds.variant import (
    bounded_variants,
    crowded_bound,
    held_of_all,
    look_at_memory,
    most_of_a_rank,
    never_fits,
    overfills_in_turns,
)
from ilp_planner.spaces.training.enumerate.layouts import fits_layout, layout_bounds, layouts_of
from ilp_planner.spaces.training.enumerate.partition import INFINITE, least_peak
from ilp_planner.spaces.training.enumerate.variants import Variant, in_turns
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import megatron_parts
from ilp_planner.spaces.training.search.search import MegatronSearch
from ilp_planner.specs.pipeline_layout import ALONE, FIRST
from tests.examples import examples, for_each, thinned
from tests.megatron_cases import GIB, MIXTURE, small_cluster, small_problem
from tests.random_problems import small_problems
from tests.runtime_cases import runtime_problem

MODEL = {"layers": 8, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


@pytest.mark.slow
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


@pytest.mark.slow
@for_each(
    "options",
    [
        {},
        {"experts": replace(MIXTURE, dense_first=0)},
        {"constraints": constraints_of({"micro_batch_group_size": "2,4,6"})},
        {"constraints": constraints_of({"activation_offload": "core_attn"})},
    ],
)
def test_what_overfills_ranks_in_turns_has_no_cut_that_fits(options: dict[str, Any]) -> None:
    """For all sizes of microbatch groups and remainders; and most of what has no cut is found."""
    seen = Counter[tuple[bool, bool]]()
    for limit in thinned((0.9, 1.1, 1.3, 1.5), 2):
        problem = small_problem(
            small_cluster(2, 2), batch=16, memory_limit=limit * GIB, **{**MODEL, **options}
        )
        for part in thinned(megatron_parts(problem, problem.costs), 9):
            for variant in part.variants():
                if variant.virtual == 1 or not part.spread(variant):
                    continue
                for one in in_turns(part, variant):
                    gone = overfills_in_turns(part, one)
                    none = LeastCuts(part.tables(one)).seconds >= INFINITE
                    assert none or not gone
                    seen[gone, variant.recompute.granularity == "full"] += none
    assert seen[True, False] > seen[False, False]


def test_nothing_is_said_where_layers_keep_less_than_their_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Then more layers that are computed again keep more, not less."""
    problem = small_problem(small_cluster(2, 2), batch=8, memory_limit=0.8 * GIB, **MODEL)
    part = next(p for p in megatron_parts(problem, problem.costs) if p.degrees.pp > 1)
    blocks = [v for v in part.variants() if v.recompute.method == "block"]
    assert all(never_fits(part, v) for v in blocks)
    measured = part.memory_of_each
    monkeypatch.setattr(
        part, "memory_of_each", lambda every: replace(measured(every), checkpoint=1e12)
    )
    part.crowded.clear()
    assert not any(never_fits(part, v) for v in blocks)


@examples(3, more=16)
@given(data=st.data(), space=st.sampled_from(sorted(RUNTIMES)))
def test_memory_of_all_variants_at_once_is_that_of_each(data: st.DataObject, space: str) -> None:
    some = data.draw(small_problems(space))
    for part in megatron_parts(some, some.costs)[::7]:
        every = part.variants()
        look_at_memory(part, every)
        together = [most_of_a_rank(part, variant) for variant in every]
        part.crowded.clear()
        assert [most_of_a_rank(part, variant) for variant in every] == together


@pytest.mark.slow
@pytest.mark.parametrize("experts", [None, MIXTURE])
def test_what_never_fits_with_divided_backward_passes_has_no_layout_that_fits(
    experts: dict[str, Any] | None,
) -> None:
    """Each layout of each such variant, counted rank by rank."""
    changes = {**MODEL, **({"experts": experts} if experts else {})}
    found: dict[bool, int] = {False: 0, True: 0}
    for limit in thinned((0.5, 1.0, 1.5, 2.0, 3.0), 2):
        problem = runtime_problem(
            "torchtitan",
            cluster=small_cluster(2, 2, between=2e9),
            global_batch=16,
            constraints=constraints_of({"schedule": "zb-v,dualpipe-v,interleaved-zb"}),
            changes=changes,
            memory_limit=limit * GIB,
        )
        for part in megatron_parts(problem, problem.costs):
            for variant in part.divided:
                gone = never_fits(part, variant)
                found[gone] += 1
                for ends in layouts_of(part, variant).tolist() if gone else ():
                    job = part.job_of_stages(variant, ends)
                    assert not fits_layout(part, replace(part.memory(variant), job=job))
    assert min(found.values()) > 5


@examples(60)
@given(
    pp=st.integers(1, 6),
    virtual=st.integers(1, 5),
    micro_batches=st.integers(1, 60),
    name=st.sampled_from(sorted(DIVIDED)),
)
def test_what_ranks_hold_of_all_stages_is_seen_in_the_first_groups(
    pp: int, virtual: int, micro_batches: int, name: str
) -> None:
    """For any number of micro-batches: no more than in the whole order, and nearly always as
    much."""
    if name != "interleaved-zb":
        virtual, micro_batches = 2, max(micro_batches, 2 * pp)
    whole = schedule_of(micro_batches, ranks=pp, virtual=virtual, name=name)
    found = held_of_all(micro_batches, pp, virtual, name)
    for rank, count in enumerate(found):
        most = max(min(mix[:virtual]) for mix in whole.held(pp - 1 - rank))
        assert count <= max(1, most)
        assert count == max(1, most) or micro_batches % pp


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
        part.crowded = defaultdict(lambda: defaultdict(int))
        engine.work(0, variant)
        assert not engine.best


# ---- bounds of all variants at once --------------------------------------------------------------


def shared_bound(part: MegatronPart, variant: Variant, total: float, less: float) -> float:
    """Return the seconds in which all ranks have time for `total`, if each begins after the first
    virtual stages of those before it: their share of a rank's load, less so many seconds."""
    m, v, found = part.micro_batches, variant.virtual, []
    for seconds in (0.0, 1.0):
        loads: list[float] = []
        for _ in range(part.degrees.pp):
            before = loads[1:] if variant.remainder == ALONE else loads
            loads.append((seconds - sum(one / v - less for one in before)) / m)
        found.append(sum(loads))
    return (total - found[0]) / (found[1] - found[0])


def block_bound(part: MegatronPart, variant: Variant) -> float:
    """Return the bound of a variant with recomputed first layers, number by number."""
    pp, layers, m = part.degrees.pp, part.costs.model.layers, part.micro_batches
    v, rows, steps = variant.virtual, part.rank_rows, m * variant.virtual
    block = variant.recompute.layers
    if part.spread(variant):
        block *= v - (variant.remainder == ALONE)
    times, repeated = part.elements[:, 0], part.repeated(variant.recompute)
    fastest = times.min(axis=0)
    layer, again = times[:, 1:-1].min(axis=1), repeated[:, 1:-1].min(axis=1)
    edges = [0.0] * pp
    edges[0] += times[rows[0], 0]
    edges[-1] += times[rows[-1], -1]
    ends = sorted(
        edges[rank] + n * layer[rows[rank]] + min(n, block) * again[rows[rank]]
        for rank in range(pp)
        for n in range(1, layers + 1)
    )
    mean = fastest.sum() / (fastest / times).max(axis=1)[rows].sum()
    slowest = max(mean, ends[layers - 1], *edges, *fastest)
    best = INFINITE
    for n in range(-(-layers // pp), layers + 1):
        load = max(slowest, n * layer.min() + min(block, n) * again.min())
        full, rest = divmod(layers, n)
        total = fastest.sum() + (full * min(block, n) + min(block, rest)) * again.min()
        if part.spread(variant) and (v == 1 or variant.remainder == FIRST):
            took = total / v / (1 - (1 - 1 / steps) ** pp) if steps > 1 else total
            took = max(took, m * load)
            if v == 1 and m > pp:
                weights = [m - 1 - behind / 2 for behind in range(pp)]
                mean_weight = 1 / sum(1 / weight for weight in weights)
                took = max(took, total * (1 + mean_weight), total + min(weights) * load)
        else:
            through = [times[rows[0], 0], *[layer.min()] * (pp - 1)]
            first = sum(each * (pp - 1 - rank) for rank, each in enumerate(through))
            took = max(m * load, (m * total + first) / pp)
            if part.spread(variant):
                longest = (times + repeated)[:, 1:-1].max()
                took = max(took, shared_bound(part, variant, total, (v - 1) / v * longest))
        best = min(best, took)
    syncs = part.syncs.min(axis=0)
    sync = syncs[0] + max(syncs[1:].sum() / pp, syncs[1:].max())
    return float(best + sync + part.ranks.constant)


def with_layouts(part: MegatronPart, variant: Variant) -> float:
    """Return the bound of a variant, or the least one of its layouts if those are tried one by
    one."""
    if part.spread(variant):
        return part.bound(variant)
    (every,) = layout_bounds(part, variant, [variant.recompute], layouts_of(part, variant))
    return max(part.bound(variant), float(min(every)) + part.ranks.constant)


@for_each("options", [{}, {"experts": MIXTURE}])
def test_bounds_of_all_recomputed_layers_at_once_are_those_of_each(options: dict[str, Any]) -> None:
    problem = small_problem(small_cluster(1, 2, slow=1, between=3e9), batch=8, **MODEL, **options)
    seen = set()
    for part in megatron_parts(problem, problem.costs)[::5]:
        every = part.variants()
        for variant in every:
            if variant.recompute.method == "block" and part.fits_at_all:
                seen.add((part.degrees.pp, variant.virtual > 1, variant.remainder))
                assert part.bound(variant) == pytest.approx(block_bound(part, variant), rel=1e-12)
        bounds = {variant: with_layouts(part, variant) for variant in every}
        assert bounded_variants(part, 2 * INFINITE)[0] == bounds
        limit = sorted(bounds.values())[len(bounds) // 2]
        found, rest = bounded_variants(part, limit)
        assert found == {variant: bound for variant, bound in bounds.items() if bound < limit}
        assert rest == limit
    assert len(seen) >= 5


def assert_bounds_rise(problem: Problem[Any], every: int = 1) -> int:
    """The first one has products alone, the next one all kernels, the next one messages, and none
    of them single elements; return how many parts know that pipelines have to fill."""
    filled = 0
    for part in megatron_parts(problem, problem.costs)[::every]:
        factor, pp = part.fill_factor, part.degrees.pp
        products = part.earliest_bound(part.least_products())
        least, trivial = part.earliest_bound(part.least_alone()), part.trivial_bound()
        assert factor >= part.micro_batches / pp * (1 - 1e-12)
        assert products <= least * (1 + 1e-12)
        assert 0 < least <= trivial * (1 + 1e-12)
        assert trivial <= part.least_bound() * (1 + 1e-12)
        filled += factor > part.micro_batches / pp * (1 + 1e-9)
    return filled


@for_each("runtime", ["megatron", "torchtitan", "deepspeed"])
@for_each("slow", [0, 1])
def test_bounds_of_parts_only_rise(runtime: str, slow: int) -> None:
    cluster = small_cluster(2, 2, slow=slow, between=2e9)
    filled = assert_bounds_rise(runtime_problem(runtime, cluster=cluster, global_batch=16))
    assert bool(filled) == (runtime != "torchtitan")  # whose divided backward passes fill at once


@examples(4, more=12)
@given(data=st.data(), space=st.sampled_from(sorted(RUNTIMES)))
def test_bounds_of_parts_of_any_problem_only_rise(data: st.DataObject, space: str) -> None:
    assert_bounds_rise(data.draw(small_problems(space)), every=5)


@for_each(
    ("model", "gpus", "options"),
    [
        ("mixtral-8x7b", "32xH100", {}),
        ("deepseek-v3", "256xH100", {}),
        ("llama3-8b", "16xB200", {"precision": "mxfp8"}),
        ("llama3-8b", "16xH100", {"space": "torchtitan"}),
    ],
)
def test_bounds_of_parts_of_known_models_only_rise(
    model: str, gpus: str, options: dict[str, Any]
) -> None:
    asked = problem(model, gpus=gpus, global_batch=64, **{"space": "megatron", **options})
    assert_bounds_rise(asked, every=61)


@examples(12)
@given(data=st.data(), space=st.sampled_from(sorted(RUNTIMES)))
def test_layers_of_one_kind_take_equally_long(data: st.DataObject, space: str) -> None:
    """To the last digit, steps of the optimiser and messages of shards included."""
    some = data.draw(small_problems(space))
    for part in megatron_parts(some, some.costs)[::5]:
        layers, syncs = part.elements[:, :, 1:-1], part.syncs[:, 2:-1]
        equal = bool((layers == layers[:, :, :1]).all() and (syncs == syncs[:, :1]).all())
        assert part.alike == (equal and len(set(part.job.layer_kinds)) == 1)


def test_the_least_bound_of_a_part_is_that_of_all_its_variants_whenever_it_is_asked() -> None:
    """Also after theirs, where all recompute: one list of one recomputation is not another."""
    asked = constraints_of({"recompute": "block,full"})
    some = small_problem(small_cluster(2, 2), batch=8, constraints=asked, **MODEL)
    for part in megatron_parts(some, some.costs):
        bounds, _ = bounded_variants(part, 2 * INFINITE)
        assert [again.method for again in part.recomputations] == ["uniform"]
        assert part.least_bound() <= min(bounds.values()) * (1 + 1e-12)


def test_casts_of_weights_are_bounded_for_any_number_of_replicas() -> None:
    """Parts that differ in their replicas have one first bound, though each casts weights as often
    as it has micro-batches."""
    for model, precision in (("qwen3-0.6b", "mxfp8"), ("moonlight-16b-a3b", "fp8-current")):
        asked = problem(model, gpus="8xB200", global_batch=64, precision=precision)
        parts = list(megatron_parts(asked, asked.costs))
        seen = {part.alone: part.micro_batches for part in parts}
        assert len(seen) < len(parts)
        for part in parts[::17]:
            least = part.earliest_bound(part.least_alone())
            assert 0 < least <= part.trivial_bound() * (1 + 1e-12)


@pytest.mark.slow
@for_each(("limit", "batch"), [(1.9, 8), (1.9, 16), (1.6, 32)])
def test_the_fullest_rank_takes_no_longer_than_the_best_cut(limit: float, batch: int) -> None:
    small = small_problem(small_cluster(2, 2), batch=batch, memory_limit=limit * GIB, **MODEL)
    higher = 0
    for part in [part for part in megatron_parts(small, small.costs) if part.degrees.pp > 1]:
        for variant in part.variants():
            crowded = crowded_bound(part, variant)
            if not part.spread(variant) or crowded >= NEVER:
                continue
            tables = part.tables(variant)
            cuts = LeastCuts(tables).seconds
            if cuts < INFINITE:
                assert crowded <= (cuts + least_peak(tables) + part.ranks.constant) * (1 + 1e-9)
                higher += crowded > part.bound(variant)
    assert higher
