"""Plans of models with sparse attention: no legal one takes less than its bound."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.fit.judge import Judge
from ilp_planner.analysis.fit.needs import Site
from ilp_planner.base.errors import InfeasibleError
from ilp_planner.base.library import library_files
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.verdict import searched_set
from ilp_planner.formats.megatron.plan import plan_of_job
from ilp_planner.inputs.constraints import ANY, constraints_of
from ilp_planner.inputs.files import find_model
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.settings.rules import check_sparse
from ilp_planner.spaces.training.independent_costs import uncounted
from ilp_planner.spaces.training.runtime import MEGATRON
from ilp_planner.spaces.training.space import MegatronSpace
from ilp_planner.specs.decoder import SparseAttention, as_decoder
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.pipeline_layout import split_layout
from ilp_planner.specs.training import TrainingJob
from tests.examples import for_each
from tests.megatron_cases import GIB, small_cluster
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


@pytest.mark.parametrize("kind", sorted(SPARSE))
@pytest.mark.parametrize("memory", [2.4, 9.0])
def test_no_plan_is_faster_than_the_bound(kind, memory):
    assert assert_none_is_faster(problem_of(kind, memory), seed=7, count=60) >= 20


SHARES = {"sparse": SparseAttention(heads=8, head=64, top_k=128, every=2, offset=1)}


def test_no_plan_of_shared_keys_is_faster_than_the_bound():
    """Of one stage, as all plans are that are searched."""
    problem = problem_of("sparse", **SHARES)
    assert assert_none_is_faster(problem, seed=7, count=60) >= 20
    assert len(solve(problem).plan.stages) == 1


def test_pipelines_of_shared_keys_are_refused_by_name():
    for name, text in {"pp": "2", "layout": "2,2"}.items():
        with pytest.raises(
            InfeasibleError, match=f"^{name}: found {text}, expected pp 1, as pipel"
        ):
            problem_of("sparse", asked={name: text}, **SHARES)
    solve(problem_of("sparse", asked={"pp": "1..2"}, **SHARES))


@for_each("name", [path.stem for path in library_files("models")])
def test_the_set_of_every_model_says_its_only_pipeline(name):
    """The words of a set and its data, for all models of the library."""
    model = as_decoder(find_model(name).architecture)
    if model is None:
        return
    limits = MEGATRON.searched(model, ANY).texts
    assert limits == ({"pp": "1"} if model.shares_keys else {})
    assert bool(MEGATRON.one_stage(model)) == model.shares_keys


@pytest.mark.parametrize("every", [1, 2])
def test_each_place_that_names_the_set_says_its_only_pipeline(every):
    sparse = replace(SHARES["sparse"], every=every)
    problem = problem_of("sparse", sparse=sparse)
    little = solve(problem_of("sparse", memory=0.05, sparse=sparse))
    texts = [searched_set(problem), problem.space.describe(problem), str(little.reason)]
    assert all(("pp 1" in text) == (every > 1) for text in texts), texts
    assert little.status is Status.INFEASIBLE
    assert any("pp 1: pipelines" in note for note in problem.notes) == (every > 1)


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
    assert own.space.outside(own, plan).startswith("pp: found 3, only 1 searched")


def test_its_layers_are_those_of_no_hybrid():
    assert "indexer" in uncounted(problem_of("sparse", **SHARES))


def test_keys_are_gathered_where_tokens_are_divided():
    problem = problem_of("sparse", asked={"cp": "2"})
    assert solve(problem).plan.settings.cp_comm == "all_gather"
    with pytest.raises(InfeasibleError, match="keys that an indexer chooses are gathered"):
        solve(problem_of("sparse", asked={"cp": "2", "cp_comm": "p2p"}))
