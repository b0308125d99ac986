"""Any layout of virtual stages, where it is asked for: what is found, and what none undercuts."""

from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.numerics import NEVER, ROUNDING
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.job.memory import stage_of_rank
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.training.enumerate.layouts import stage_bytes
from ilp_planner.spaces.training.enumerate.variants import in_turns
from ilp_planner.spaces.training.search.any_layout import PATHS, AnyLayout, near_layouts
from tests.examples import examples
from tests.megatron_cases import FEW, GIB, MIXTURE, every_cut, small_cluster, small_problem
from tests.random_plans import Drawer
from tests.runtime_cases import MODELS, runtime_problem

SHORT = {"hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048}
PIPELINE = {"pp": 2, "virtual_stages": 2, "recompute": "none,block"}


@examples(3, more=7)
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


@pytest.mark.slow
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


@st.composite
def interleaved(draw):
    """Draw the parts of a problem with interleaved stages: whose layers or devices may differ, with
    fast or slow links, and much or little memory."""
    pp, slow = draw(st.sampled_from(((2, 0), (2, 1), (4, 0), (4, 2))))
    virtual = draw(st.integers(2, 4 if pp == 2 else 2))
    options = {
        **SHORT,
        "layers": draw(st.integers(max(2, pp * virtual - 2), 8)),
        "vocab": draw(st.sampled_from((501, 16000, 60000))),
        "experts": draw(st.sampled_from((None, MIXTURE))),
        "prediction_layers": draw(st.integers(0, 1)),
        "positions": "rope",
    }
    between = draw(st.sampled_from((1e9, 2e10, 2e11)))
    said = {"pp": pp, "virtual_stages": virtual, "layout": "any", "sharding": "optimizer"}
    said["recompute"] = draw(st.sampled_from(("none", "none,full,block", "selective")))
    said["micro_batch_group_size"] = draw(st.sampled_from((None, "2..12")))
    try:
        return small_problem(
            small_cluster(pp - slow, 1, between=between, slow=slow),
            batch=draw(st.sampled_from((4, 6, 16))),
            constraints=constraints_of(said),
            memory_limit=draw(st.sampled_from((None, 1.4 * GIB, 1.8 * GIB))),
            **options,
        )
    except InfeasibleError:  # no turns, or no such recomputation
        return None


def variants_of(problem, draw, most):
    """Draw some of the variants of a problem, with their turns."""
    every = [
        (part, one)
        for part in problem.space.parts(problem)
        for variant in part.variants()
        if variant.virtual > 1
        for one in in_turns(part, variant)
    ]
    return draw.sample(every, min(most, len(every)))


@examples(3, more=16)
@given(problem=interleaved(), draw=st.randoms(use_true_random=False))
def test_the_tree_finds_the_best_of_all_layouts(problem, draw):
    """And no layout takes less than it says, of the whole tree or of a single layout."""
    for part, variant in variants_of(problem, draw, 3) if problem else ():
        space = AnyLayout(part, variant)
        layouts = [*every_cut(part.costs.model.layers + 2, part.degrees.pp * variant.virtual)]
        times = [space.seconds(ends) for ends in layouts]
        best = NEVER
        for turn in range(len(PATHS)):
            found = space.look(best, turn=turn)
            assert min(times) >= found.bound * (1 - ROUNDING)
            if found.cut is not None:
                best = found.cut.value
                assert best == pytest.approx(times[layouts.index(found.cut.ends)], rel=ROUNDING)
        assert found.bound >= best * (1 - ROUNDING)
        assert best == pytest.approx(min(times), rel=ROUNDING)
        least = space.tree.least(np.array(layouts)) + part.ranks.constant
        simulated = np.array([part.seconds(variant, ends) for ends in layouts])
        assert (least <= simulated * (1 + ROUNDING)).all()
        for ends in space.tree.simulated:  # their own critical path is among the sums
            assert least[layouts.index(ends)] == pytest.approx(part.seconds(variant, ends))


@examples(6, more=8)
@given(problem=interleaved(), draw=st.randoms(use_true_random=False))
def test_what_the_tree_leaves_out_does_not_fit(problem, draw):
    """Bytes by stages are no more than those that the judge counts."""
    for part, variant in variants_of(problem, draw, 1) if problem else ():
        tree = AnyLayout(part, variant)
        memory, pp = stage_bytes(tree.memory, part.limits), part.degrees.pp
        stages = pp * variant.virtual
        for ends in every_cut(part.costs.model.layers + 2, stages):
            held = memory.fixed
            for stage, (start, stop) in enumerate(pairwise(ends)):
                (held,) = memory.with_stage(held, stage, start, np.array([stop]))
            own = replace(tree.memory, job=part.job_of_stages(variant, ends))
            needed = [stage_of_rank(own, rank).needed for rank in range(pp)]
            for rank, most in enumerate(needed):
                assert held[memory.own[rank] > 0].max() <= most * (1 + ROUNDING)


@examples(6)
@given(problem=interleaved())
def test_small_problems_are_closed(problem):
    """With a certificate that holds, and never a slower plan than the usual layouts have."""
    if problem is None:
        return
    found = solve(problem)
    usual = solve(replace(problem, constraints=problem.constraints.but({"layout"})))
    assert found.gap == 0.0 or found.plan is None
    assert found.objective <= usual.objective * (1 + ROUNDING)
    assert check_certificate(problem, found.certificate).holds


def test_steps_only_improve():
    problem = small_problem(
        small_cluster(1, 2),
        batch=4,
        constraints=constraints_of({**FEW, **PIPELINE, "layout": "any"}),
        **{**SHORT, "layers": 8, "vocab": 60000},
    )
    for part in problem.space.parts(problem):
        for variant in part.variants():
            (one,) = in_turns(part, variant)
            space, best, bound = AnyLayout(part, one), NEVER, part.bound(variant)
            for turn in range(len(PATHS)):
                found = space.look(NEVER, turn=turn)
                assert found.bound >= bound
                bound = found.bound
                if found.cut is not None:
                    assert found.cut.value <= best
                    best = found.cut.value
                    assert best == pytest.approx(part.seconds(variant, found.cut.ends))
                    assert evaluate(problem, part.group_plan(variant, found.cut.ends)).legal


def test_near_layouts_have_as_many_stages():
    assert near_layouts((0, 1, 2, 3)).shape == (0, 4)
    near = {tuple(row) for row in near_layouts((0, 1, 3, 6)).tolist()}
    assert near == {
        (0, 2, 4, 6), (0, 1, 4, 6), (0, 2, 3, 6), (0, 1, 2, 6),
        (0, 3, 5, 6), (0, 2, 3, 6),
    }  # fmt: skip
