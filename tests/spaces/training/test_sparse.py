"""Plans of models with sparse attention: no legal one takes less than its bound."""

from dataclasses import replace
from itertools import product

import pytest

from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.analysis.fit.needs import Site
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.library import library_files
from ilp_planner.costs.training.job import begins, ends_of, plain_layout
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import find_model
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.settings.rules import check_sparse
from ilp_planner.spaces.training.independent_costs import uncounted
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.decoder import SparseAttention, as_decoder
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import Recompute, TrainingJob
from tests.examples import for_each, thinned
from tests.megatron_cases import GIB, every_plan, small_cluster
from tests.random_problems import SPARSE, hopper
from tests.runtime_cases import runtime_problem
from tests.spaces.training.test_random_plans import assert_none_is_faster


def problem_of(kind, memory=9.0, asked=None, **changes):
    base, own = SPARSE[kind]
    return runtime_problem(
        "megatron",
        base,
        cluster=hopper(small_cluster(2, 2)),
        global_batch=8,
        memory_limit=int(memory * GIB),
        constraints=constraints_of(asked or {}),
        changes={**own, "layers": 4, "vocab": 2000, "sequence": 512, **changes},
    )


@pytest.mark.few(1)
@pytest.mark.parametrize(("memory", "kind"), [*thinned(product((2.4, 9.0), sorted(SPARSE)), 2)])
def test_no_plan_is_faster_than_the_bound(memory, kind):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20


SHARES = {"sparse": SparseAttention(heads=8, head=64, top_k=128, every=2, offset=1)}


@pytest.mark.few(1)
@pytest.mark.parametrize("memory", [2.4, 9.0])
def test_no_plan_of_shared_keys_is_faster_than_the_bound(memory):
    assert assert_none_is_faster(problem_of("sparse", memory, **SHARES), seed=7, count=60) >= 20


def shared(every, offset):
    return {"sparse": replace(SHARES["sparse"], every=every, offset=offset)}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("every", "offset"),
    [(2, 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in [(2, 2), (3, 1), (4, 3)])],
)
@pytest.mark.parametrize("asked", [{"pp": "2"}, {"pp": "4"}, {"pp": "2", "virtual_stages": "2"}])
def test_the_best_pipeline_of_all_is_found(every, offset, asked):
    """Of those whose stages begin with a layer that has an indexer; there may be none."""
    asked = {**asked, "recompute": "none", "cp": "1", "rank_order": "tp-cp-ep-dp-pp"}
    problem = problem_of("sparse", asked=asked, layers=7, **shared(every, offset))
    follows = shared(every, offset)["sparse"].follows(7)
    judged = []
    pp, virtual = int(asked["pp"]), asked.get("virtual_stages")
    for plan in every_plan(problem):
        own, stages = plan.settings, len(plan.stages)
        if (own.recompute, own.cp, stages // plan.virtual) != (Recompute(), 1, pp):
            continue
        if (virtual is None or virtual == str(plan.virtual)) and evaluate(problem, plan).legal:
            assert not any(0 < one.start <= 7 and follows[one.start - 1] for one in plan.stages)
            if problem.space.contains(problem, plan):
                judged.append(evaluate(problem, plan).iteration_time)
    found = solve(problem)
    if not judged:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(min(judged), rel=1e-9)
    assert found.bound <= min(judged) * (1 + 1e-9)


def test_a_stage_that_begins_elsewhere_is_refused():
    with pytest.raises(InfeasibleError, match="layout"):
        solve(problem_of("sparse", asked={"layout": "1,3"}, **SHARES))
    layout = solve(problem_of("sparse", asked={"layout": "2,2"}, **SHARES)).plan
    assert [one.start for one in layout.stages] == [0, 3]


@for_each("name", [path.stem for path in library_files("models")])
def test_plain_layouts_of_every_model_begin_where_they_may(name):
    model = as_decoder(find_model(name).architecture)
    if model is None:
        return
    some = begins(model)
    for stages in (n for n in (1, 2, 3, 4, 8, 16) if n <= some[1:-1].sum()):
        ends = ends_of(plain_layout(model, stages))
        assert some[list(ends)].all()
        assert len(ends) == stages + 1


@pytest.mark.parametrize("batch", [4, 6])
def test_given_pipelines_are_judged(batch):
    """Even on as many GPUs as no searched plan has: 3 nodes, and a batch that 6 ranks divide or do
    not."""
    problem = problem_of("sparse", layers=6, **SHARES)
    model = problem.costs.model
    spec = ModelSpec(name="shares", precision="bf16", architecture=model)
    settings = problem.costs.settings
    layout = split_layout([2, 2, 2])
    job = TrainingJob(
        model=model, micro_batch=1, global_batch=batch, dp=2, pp=3, layout=layout, settings=settings
    )
    assert not [*check_sparse(job)]
    cluster = hopper(small_cluster(3, 2))
    judge = Judge(Site(cluster=cluster), spec, job, MegatronSpace())
    assert judge.verdict(job).seconds > 0
    own = judge.problem(job.world)
    plan = plan_of_job(job, cluster, model=own.model)
    assert evaluate(own, plan).legal
    assert "stage" not in (own.space.outside(own, plan) or "")


def test_its_layers_are_those_of_no_hybrid():
    assert "indexer" in uncounted(problem_of("sparse", **SHARES))


def test_keys_are_gathered_where_tokens_are_divided():
    problem = problem_of("sparse", asked={"cp": "2"})
    assert solve(problem).plan.settings.cp_comm == "all_gather"
    with pytest.raises(InfeasibleError, match="keys that an indexer chooses are gathered"):
        solve(problem_of("sparse", asked={"cp": "2", "cp_comm": "p2p"}))
