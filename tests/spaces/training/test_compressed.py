"""Plans of models with attention to pooled keys: no legal one takes less than its bound."""

from itertools import product

import pytest

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.training import Recompute
from tests.examples import thinned
from tests.megatron_cases import GIB, every_plan, small_cluster
from tests.random_problems import POOLED, hopper, of_layers
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster


def problem_of(kind, memory=9.0, asked=None, layers=4, **changes):
    base, own = POOLED[kind]
    own = of_layers({**own, **changes}, layers)
    return runtime_problem(
        "megatron",
        base,
        cluster=hopper(small_cluster(2, 2)),
        global_batch=8,
        memory_limit=int(memory * GIB),
        constraints=constraints_of(asked or {}),
        changes={**own, "layers": layers, "vocab": 2000, "sequence": 512},
    )


@pytest.mark.parametrize(("memory", "kind"), [*thinned(product((2.4, 9.0), sorted(POOLED)), 2)])
def test_no_plan_is_faster_than_the_bound(memory, kind):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20


MIXTURE = Experts(count=4, top_k=2, ffn=256, shared_ffn=256)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hashed", "asked"),
    [
        (2, {"pp": "2"}),
        (2, {"pp": "2", "recompute": "mhc"}),
        *(
            pytest.param(hashed, asked, marks=pytest.mark.slow)
            for hashed in (0, 1, 3, 7)
            for asked in ({"pp": "2"}, {"pp": "4"}, {"pp": "2", "virtual_stages": "2"})
        ),
    ],
)
def test_the_best_pipeline_of_all_is_found(hashed, asked):
    """Of those whose first stage has the layers that a table of words routes; there may be none."""
    asked = {"recompute": "none", **asked, "rank_order": "tp-cp-ep-dp-pp"}
    experts = Experts(count=4, top_k=2, ffn=256, shared_ffn=256, hashed=hashed)
    problem = problem_of("pooled keys", asked=asked, layers=7, experts=experts)
    judged = []
    pp, virtual = int(asked["pp"]), asked.get("virtual_stages")
    again = Recompute(granularity="selective", modules=("mhc",))
    again = Recompute() if asked["recompute"] == "none" else again
    for plan in every_plan(problem):
        if (plan.settings.recompute, len(plan.stages) // plan.virtual) != (again, pp):
            continue
        if (virtual is None or virtual == str(plan.virtual)) and evaluate(problem, plan).legal:
            assert plan.stages[0].stop > hashed
            if problem.space.contains(problem, plan):
                judged.append(evaluate(problem, plan).iteration_time)
    found = solve(problem)
    if not judged:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(min(judged), rel=1e-9)
    assert found.bound <= min(judged) * (1 + 1e-9)


@pytest.mark.parametrize("degree", ["tp", "cp"])
def test_attention_is_whole_on_a_rank(degree):
    with pytest.raises(InfeasibleError, match=f"{degree}=2`: no plan"):
        solve(problem_of("pooled keys", asked={degree: "2"}))
    plan = solve(problem_of("pooled keys")).plan
    assert ({stage.tp for stage in plan.stages}, plan.settings.cp) == ({1}, 1)


def test_a_stage_that_begins_elsewhere_is_refused():
    experts = Experts(count=4, top_k=2, ffn=256, hashed=2)
    with pytest.raises(InfeasibleError, match="layout"):
        solve(problem_of("pooled keys", asked={"layout": "1,3"}, experts=experts))
    layout = solve(problem_of("pooled keys", asked={"layout": "2,2"}, experts=experts)).plan
    assert [one.start for one in layout.stages] == [0, 3]


def test_recomputed_scores_are_refused():
    with pytest.raises(InfeasibleError, match="recomputation of core_attn, expected of other"):
        solve(problem_of("pooled keys", asked={"recompute": "core_attn"}))
