"""What a plan's time rests on adds up to the plan's time, in all three planners."""

from pathlib import Path

import pytest

from ilp_planner.costs.layer_shares import layer_tally
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.megatron.costs import SYNC, TIED, MegatronCosts
from ilp_planner.costs.megatron.shares import megatron_tally
from ilp_planner.evaluate import evaluate, time_shares
from ilp_planner.mixed.megatron.build import build_megatron_problem
from ilp_planner.mixed.solve import solve_groups
from ilp_planner.plan import GroupPlan
from ilp_planner.profiles.layer_table import layer_profile
from ilp_planner.profiles.table import Provenance
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.costs.mixed_instances import cluster_of, profile_of, stage_of
from tests.profiles.layer_rows import layer_table
from tests.small import make_plan, make_problem, write_specs


@pytest.mark.parametrize("cost_model", ["native", "aceso"])
def test_operators(tmp_path: Path, cost_model: str) -> None:
    problem = make_problem(tmp_path, cost_model=cost_model)
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    for number, (stage, cost) in enumerate(zip(plan.stages, evaluation.stages, strict=True)):
        parts = problem.costs.time_origins(
            stage,
            micro_batch=plan.micro_batch,
            micro_batch_count=plan.micro_batches,
            enters_node=False,
            leaves_node=number == 1,
        )
        assert sum(seconds for _, seconds in parts) == pytest.approx(cost.time)
    shares = time_shares(problem, plan, evaluation)
    assert set(shares) == {Provenance.ANALYTIC}


def test_layers() -> None:
    cluster = cluster_of([("fast", 4), ("slow", 4)])
    costs = layer_costs(profile_of(("fast", "slow")), cluster)
    plan = GroupPlan(
        model="test",
        global_batch=16,
        micro_batches=4,
        stages=(stage_of(0, 2, [(0,), (1,)], [2, 2]), stage_of(2, 6, [(4, 5)], [4])),
    )
    total = layer_tally(costs, plan, cluster).total
    assert total == pytest.approx(costs.plan_cost(plan, cluster).iteration_time)


@pytest.mark.parametrize("measured", [False, True])
def test_megatron(tmp_path: Path, measured: bool) -> None:
    model_file, cluster_file = write_specs(tmp_path)
    model_file.write_text(model_file.read_text().replace("layers = 2", "layers = 4"))
    model, cluster = read_model(model_file), read_cluster(cluster_file)
    profile = layer_profile(layer_table(device="gpu")) if measured else None
    problem = build_megatron_problem(cluster, model, global_batch=16, profile=profile)
    plan = solve_groups(problem).plan
    assert plan is not None
    costs = problem.costs
    assert isinstance(costs, MegatronCosts)
    cost = costs.plan_cost(plan, cluster)
    tally = megatron_tally(costs.ranks(plan, cluster), plan, cost, SYNC, TIED)
    assert tally.total == pytest.approx(cost.iteration_time)
    assert (set(tally.shares()) == {Provenance.ANALYTIC}) is not measured
