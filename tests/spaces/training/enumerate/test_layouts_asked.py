"""Plans with a layout that is asked for: the best of all degrees with it, tried one by one."""

import math
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.costs.training.job import layout_of
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.specs.decoder import Decoder
from tests.examples import examples, for_each
from tests.megatron_cases import FEW, GIB, MIXTURE, every_plan, small_cluster, small_problem

LAYERS = 4
SHORT = {"hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw where the stages of a layout end on the chain, mostly of 2, 4 or more."""
    stages = draw(st.sampled_from((1, 2, 2, 3, 4, 4, 6)))
    inner = st.lists(
        st.integers(1, LAYERS + 1), min_size=stages - 1, max_size=stages - 1, unique=True
    )
    return (0, *sorted(draw(inner)), LAYERS + 2)


def laid_out_so(problem: Problem, ends: tuple[int, ...]) -> list[GroupPlan]:
    """Return the legal plans with a layout."""

    def only(model: Decoder, pp: int, virtual: int) -> Iterator[tuple[int, ...]]:
        if pp * virtual == len(ends) - 1:
            yield ends

    return [plan for plan in every_plan(problem, only) if evaluate(problem, plan).legal]


@examples(1, more=21)
@given(
    ends=cuts(),
    cluster=st.sampled_from((small_cluster(), small_cluster(1, 2, slow=1), small_cluster(1, 4))),
    limit=st.sampled_from((None, 1.6 * GIB, 2.2 * GIB)),
    experts=st.sampled_from((None, MIXTURE)),
)
def test_the_optimum_is_that_of_all_plans_with_the_layout(ends, cluster, limit, experts):
    options = {"batch": 4, "memory_limit": limit, **SHORT, "experts": experts}
    every = small_problem(cluster, **options)
    plans = laid_out_so(every, ends)
    times = [evaluate(every, plan).iteration_time for plan in plans]
    text = str(layout_of(ends, every.costs.model))
    try:
        problem = small_problem(
            cluster, **options, constraints=constraints_of({**FEW, "layout": text})
        )
    except InfeasibleError:
        assert times == []
        return
    found = solve(problem)
    if not times:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(min(times), rel=1e-9)
    assert (0, *(stage.stop for stage in found.plan.stages)) == ends
    assert check_certificate(problem, found.certificate).holds
    assert min(times) >= found.bound * (1 - 1e-9)
    reasons = {problem.space.outside(problem, plan) for plan in plans}
    assert None in reasons
    # Others are another way to write one of these: all layers as a block, orders of one replica.
    assert not any(reason.startswith("layout") for reason in reasons - {None})


def test_the_best_layout_of_the_free_optimum_takes_as_long():
    free = solve(small_problem(**SHORT))
    ends = (0, *(stage.stop for stage in free.plan.stages))
    text = str(layout_of(ends, small_problem(**SHORT).costs.model))
    for solver in ("auto", "gradient", "anneal"):
        asked = small_problem(**SHORT, constraints=constraints_of({**FEW, "layout": text}))
        found = solve(asked, solver=solver)
        assert found.objective == pytest.approx(free.objective, rel=1e-9)


@pytest.mark.slow
def test_even_plans_have_equal_layers_and_no_other_is_faster():
    problem = small_problem(
        **SHORT, constraints=constraints_of({**FEW, "layout": "even", "pp": "2..4"})
    )
    found = solve(problem)
    best = math.inf
    for plan in every_plan(small_problem(**SHORT)):
        ends = (0, *(stage.stop for stage in plan.stages))
        layers = {b - a - (a == 0) - (b == LAYERS + 2) for a, b in pairwise(ends)}
        if plan.ranks == 1 or not evaluate(problem, plan).legal:
            continue
        outside = coverage_of(problem, plan, legal=True).outside
        uneven = re.match(r"layout: found \S+, only even asked for$", outside or "")
        assert bool(uneven) == (len(layers) > 1)
        if not uneven:
            best = min(best, evaluate(problem, plan).iteration_time)
    assert found.objective == pytest.approx(best, rel=1e-9)
    among = coverage_of(problem, found.plan, legal=True).among
    assert "pp 2..4, layout even, recompute none" in among
    assert among.endswith("with their neighbours, as the layout says")


@for_each(
    ("said", "words"),
    [
        ({"layout": "2,1,1"}, "`layout=2,1,1`: no plan of small on 4 devices has it; `layout=Et|"),
        (
            {"layout": [2, 2], "pp": 4},
            "`pp=4`, `layout=2,2`: no plan of small on 4 devices has both; `pp=2` would do",
        ),
        (
            {"layout": "2,2", "virtual_stages": 2},
            "`virtual_stages=2`, `layout=2,2`: no plan of small on 4 devices has both; ",
        ),
    ],
)
def test_layouts_that_contradict_something(said, words):
    with pytest.raises(InfeasibleError, match=f"^{re.escape(words)}") as refused:
        small_problem(batch=4, constraints=constraints_of(said))
    repair = re.search(r"; `(\w+)=([^`]+)` would do$", str(refused.value))
    assert repair is not None
    small_problem(batch=4, constraints=constraints_of({**said, repair[1]: repair[2]}))


DEMANDS = st.fixed_dictionaries(
    {"layout": cuts()},
    optional={
        "pp": st.sampled_from((1, 2, 3, 4)),
        "virtual_stages": st.sampled_from((1, 2, 3)),
        "dp": st.sampled_from((1, 2, 4)),
        "tp": st.sampled_from((1, 2)),
    },
)


@examples(15)
@given(said=DEMANDS, experts=st.sampled_from((None, MIXTURE)))
def test_a_repair_of_a_layout_repairs(said, experts):
    """What would do instead is possible with everything else that was said."""
    options = {"batch": 4, **SHORT, "experts": experts}
    model = small_problem(**options).costs.model
    said = {**said, "layout": str(layout_of(said["layout"], model))}
    try:
        small_problem(constraints=constraints_of(said), **options)
    except InfeasibleError as error:
        repair = dict(re.findall(r"`(\w+)=([^`]+)`", str(error).partition(": no plan")[2]))
        assert repair
        small_problem(constraints=constraints_of({**said, **repair}), **options)
