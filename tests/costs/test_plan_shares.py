"""What a plan's time rests on adds up to the plan's time, in all three planners."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ilp_planner.costs.layer_shares import layer_tally
from ilp_planner.costs.layers import layer_costs
from ilp_planner.costs.operators import Surroundings
from ilp_planner.costs.profiles.layer_table import layer_profile
from ilp_planner.costs.profiles.measurements import join, measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.costs.training.iteration import megatron_tally
from ilp_planner.evaluate import evaluate, time_shares
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import Plan
from ilp_planner.spaces.training.costs import MegatronCosts
from ilp_planner.specs.cluster_reader import read_cluster
from ilp_planner.specs.model_reader import read_model
from tests.costs.mixed_instances import cluster_of, profile_of, stage_of
from tests.costs.profiles.layer_rows import layer_table
from tests.examples import for_each
from tests.megatron_cases import every_plan, small_cluster, small_problem
from tests.problems import build_megatron_problem
from tests.small import make_plan, make_problem, write_specs


@pytest.mark.parametrize("cost_model", ["native", "aceso"])
def test_operators(tmp_path: Path, cost_model: str) -> None:
    problem = make_problem(tmp_path, cost_model=cost_model)
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    for number, (stage, cost) in enumerate(zip(plan.stages, evaluation.stages, strict=True)):
        parts = problem.costs.time_origins(
            stage,
            Surroundings(
                micro_batch=plan.micro_batch_size,
                micro_batches=plan.micro_batches,
                enters_node=False,
                leaves_node=number == 1,
            ),
        )
        assert sum(seconds for _, seconds in parts) == pytest.approx(cost.time)
    shares = time_shares(problem, plan, evaluation)
    assert set(shares) == {Provenance.ANALYTIC}


def test_layers() -> None:
    cluster = cluster_of([("fast", 4), ("slow", 4)])
    costs = layer_costs(profile_of(("fast", "slow")), cluster)
    plan = Plan(
        model="test",
        global_batch=16,
        micro_batches=4,
        stages=(stage_of(0, 2, [(0,), (1,)], [2, 2]), stage_of(2, 6, [(4, 5)], [4])),
    )
    total = layer_tally(costs, plan, cluster).total
    assert total == pytest.approx(costs.plan_cost(plan, cluster).iteration_time)


@pytest.mark.parametrize("measured", ["", "layers", "layers and links"])
def test_megatron(tmp_path: Path, measured: str) -> None:
    model_file, cluster_file = write_specs(tmp_path)
    model_file.write_text(model_file.read_text().replace("layers = 2", "layers = 4"))
    model, cluster = read_model(model_file), read_cluster(cluster_file)
    table = layer_table(device="gpu")
    if measured == "layers and links":
        table = join([table, measurements_of(list(every_link()), "links.csv")], "both")
    profile = layer_profile(table) if measured else None
    problem = build_megatron_problem(
        cluster,
        model,
        global_batch=16,
        profile=profile,
        constraints=constraints_of({"sharding": "optimizer", "overlap": "none"}),
    )
    plan = solve(problem).plan
    assert plan is not None
    costs = problem.costs
    assert isinstance(costs, MegatronCosts)
    cost = costs.plan_cost(plan, cluster)
    tally = megatron_tally(costs.ranks(plan, cluster), plan, cost)
    assert tally.total == pytest.approx(cost.iteration_time)
    assert (set(tally.shares()) == {Provenance.ANALYTIC}) is not bool(measured)
    assert (Provenance.ANALYTIC in tally.shares()) is (measured != "layers and links")


@for_each(
    "how",
    [
        {"sharding": "gradients"},
        {"sharding": "parameters"},
        {"sharding": "optimizer", "overlap_gradients": True, "overlap_parameters": True},
    ],
)
def test_what_overlaps_or_comes_with_every_micro_batch_is_counted_once(how: dict[str, Any]) -> None:
    problem = small_problem(small_cluster(nodes=2))
    plan = next(p for p in every_plan(problem) if p.stages[0].dp > 1 and p.settings)
    assert plan.settings is not None
    optimizer = replace(plan.settings.optimizer, **how)
    plan = replace(plan, settings=replace(plan.settings, optimizer=optimizer))
    costs = problem.costs
    assert isinstance(costs, MegatronCosts)
    cost = costs.plan_cost(plan, problem.cluster)
    tally = megatron_tally(costs.ranks(plan, problem.cluster), plan, cost)
    assert tally.total == pytest.approx(cost.iteration_time)


def every_link() -> Iterator[dict[str, Any]]:
    """Yield rows of all messages between 2, 4 and 8 devices of any stride, on one host and on two;
    slow ones, so that they count."""
    kinds = ("all_reduce", "reduce_scatter", "all_gather", "send_recv")
    for name, size, hosts, stride in product(kinds, (2, 4, 8), (1, 2), (1, 2, 4)):
        if name != "send_recv" or size == 2:
            record = "point_to_point" if name == "send_recv" else "collective"
            for count in (2**10, 2**20, 2**30):
                yield {
                    "record": record, "name": name, "group_size": size, "hosts": hosts,
                    "stride": stride, "groups": 1, "bytes": count, "time_s": 1e-3 + count / 1e9,
                }  # fmt: skip
