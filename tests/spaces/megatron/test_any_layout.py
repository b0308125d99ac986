"""Any layout of virtual stages, where it is asked for: what is found, and what none undercuts."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.certificate import check_certificate
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.numerics import ROUNDING
from ilp_planner.result import Status
from ilp_planner.solve import solve
from ilp_planner.spaces.megatron.any_layout import near_layout
from ilp_planner.spaces.megatron.variants import in_turns
from tests.examples import examples
from tests.megatron_cases import (
    FEW,
    GIB,
    MIXTURE,
    every_cut,
    small_cluster,
    small_problem,
)
from tests.random_plans import Drawer
from tests.runtime_cases import MODELS, runtime_problem

SHORT = {"hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048}
PIPELINE = {"pp": 2, "virtual_stages": 2, "recompute": "none,block"}


@examples(5)
@given(
    layers=st.integers(3, 4),
    vocab=st.sampled_from((501, 16000, 60000)),
    experts=st.sampled_from((None, MIXTURE)),
    limit=st.sampled_from((None, 1.6 * GIB, 2.2 * GIB)),
    between=st.sampled_from((1e9, 2e10)),
)
def test_none_of_all_layouts_is_faster_than_the_bound(layers, vocab, experts, limit, between):
    """And what is found is one of them, never slower than the best even spread."""
    cluster = small_cluster(2, 1, between=between)
    options = {**SHORT, "layers": layers, "vocab": vocab, "experts": experts}
    options |= {"cluster": cluster, "batch": 4, "memory_limit": limit}
    problem = small_problem(
        constraints=constraints_of({**FEW, **PIPELINE, "layout": "any"}), **options
    )
    usual = solve(small_problem(constraints=constraints_of({**FEW, **PIPELINE}), **options))
    found = solve(problem)
    times = [
        evaluation.iteration_time
        for part in problem.space.parts(problem)
        for variant in part.variants()
        for ends in every_cut(layers + 2, 4)
        if (evaluation := evaluate(problem, part.group_plan(variant, ends))).legal
    ]
    if not times:
        assert found.plan is None
        return
    assert min(times) >= found.bound * (1 - ROUNDING)
    if found.plan is not None:
        assert min(times) <= found.objective * (1 + ROUNDING)
        assert found.objective <= usual.objective * (1 + ROUNDING)
        assert problem.space.outside(problem, found.plan) is None
    else:
        assert found.status is Status.UNKNOWN
        assert usual.plan is None
    assert check_certificate(problem, found.certificate).holds


@st.composite
def problems(draw):
    """Draw a problem of pipelines for a runtime that has virtual stages."""
    size = draw(st.sampled_from((None, "2..12")))
    said = {"layout": "any", "pp": draw(st.sampled_from((2, 4))), "micro_batch_group_size": size}
    return runtime_problem(
        draw(st.sampled_from(("megatron", "torchtitan"))),
        draw(st.sampled_from(sorted(MODELS))),
        cluster=small_cluster(1, 4),
        global_batch=8,
        constraints=constraints_of({**said, "recompute": "none"}),
        changes={"layers": draw(st.integers(6, 7))},
    )


def test_no_random_plan_is_faster_than_the_bound():
    uneven = []

    @examples(4)
    @given(problem=problems(), seed=st.integers(0, 2**32 - 1))
    def check(problem, seed):
        found = solve(problem)
        for plan in islice(Drawer(problem, seed).plans(found.plan), 120):
            evaluation = evaluate(problem, plan)
            if evaluation.legal and problem.space.outside(problem, plan) is None:
                assert evaluation.iteration_time >= found.bound * (1 - ROUNDING), plan
                sizes = {stage.stop - stage.start for stage in plan.stages[1:-1]}
                uneven.append(plan.virtual > 1 and len(sizes) > 1)

    check()
    assert any(uneven)


def test_an_uneven_layout_wins_where_the_output_is_heavy():
    """It is in no even spread, the space without the option says so, and Megatron's rules hold."""
    options = {**SHORT, "layers": 10, "vocab": 120000, "cluster": small_cluster(1, 2), "batch": 4}
    said = {**FEW, **PIPELINE, "recompute": "none"}
    usual = small_problem(constraints=constraints_of(said), **options)
    free = small_problem(constraints=constraints_of({**said, "layout": "any"}), **options)
    best, found = solve(usual), solve(free)
    assert found.bound <= found.objective < best.bound
    assert usual.space.outside(usual, found.plan).startswith("layout: ")
    assert free.space.outside(free, best.plan) is None
    assert "layout any" in found.among
    assert found.among.endswith("spread anyhow over its virtual stages")


@pytest.mark.parametrize("moves", [False, True])
def test_moves_only_improve(moves):
    problem = small_problem(
        small_cluster(1, 2),
        batch=4,
        constraints=constraints_of({**FEW, **PIPELINE, "layout": "any"}),
        **{**SHORT, "layers": 8, "vocab": 60000},
    )
    for part in problem.space.parts(problem):
        for variant in part.variants():
            (one,) = in_turns(part, variant)
            found = near_layout(part, one, 1e9, moves=moves)
            assert found.bound == part.bound(variant)
            if found.cut is not None:
                assert found.cut.value == pytest.approx(part.seconds(variant, found.cut.ends))
                assert evaluate(problem, part.group_plan(variant, found.cut.ends)).legal
                even = near_layout(part, one, 1e9, moves=False).cut
                assert found.cut.value <= even.value
