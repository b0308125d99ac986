"""Plans whose stages differ: each stage a job of its own, on its own devices."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.analyze import analyze_stages
from ilp_planner.analysis.plans import (
    device_names,
    link_of,
    placed_groups,
    placed_links,
    stage_jobs,
)
from ilp_planner.base.errors import PlanError
from ilp_planner.job.groups import BETWEEN, INSIDE, MIXED, NOBODY
from ilp_planner.job.memory import rank_memory
from ilp_planner.plan import GroupStage, Plan, Replica
from ilp_planner.specs.cluster import ClusterSpec, Device, NodeGroup
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.link import Link
from ilp_planner.specs.pipeline_layout import write_layout
from ilp_planner.specs.training import Settings

MODEL = Decoder(layers=8, hidden=512, heads=8, sequence=512, vocab=1000)
LINK = Link(bandwidth=1e9, latency=1e-6)
CLUSTER = ClusterSpec(
    name="two",
    device_types={"a": Device(name="a", memory=2**34), "b": Device(name="b", memory=2**33)},
    nodes=(NodeGroup(device="a", devices=4), NodeGroup(device="b", devices=2, count=2)),
    intra_node=LINK,
    inter_node=LINK,
)


def replica(*devices: int, samples: int = 1) -> Replica:
    return Replica(devices=devices, samples=samples)


PLAN = Plan(
    model="small",
    global_batch=32,
    micro_batches=8,
    stages=(
        GroupStage(start=0, stop=6, replicas=(replica(0, 1, samples=2), replica(2, 3, samples=2))),
        GroupStage(
            start=6,
            stop=10,
            replicas=(
                replica(4, samples=1),
                replica(5, samples=1),
                replica(6, samples=1),
                replica(7, samples=1),
            ),
        ),
    ),
)


def test_every_stage_has_its_own_degrees() -> None:
    first, second = stage_jobs(PLAN, MODEL, "bf16")
    assert (first.tp, first.dp, first.micro_batch, first.micro_batches) == (2, 2, 2, 8)
    assert (second.tp, second.dp, second.micro_batch, second.micro_batches) == (1, 4, 1, 8)
    assert write_layout(stage_jobs(PLAN, MODEL, "bf16")[0].pipeline) == "Et*5|t*3L"


def test_the_fullest_replica_tells() -> None:
    stage = replace(PLAN.stages[0], replicas=(replica(0, 1, samples=3), replica(2, 3, samples=1)))
    plan = replace(PLAN, stages=(stage, PLAN.stages[1]))
    assert stage_jobs(plan, MODEL, "bf16")[0].micro_batch == 3


def test_replicas_of_one_stage_have_one_degree() -> None:
    stage = replace(PLAN.stages[0], replicas=(replica(0), replica(2, 3)))
    message = r"plan.stages\[0\].tp: found 1 and 2, expected one degree for all replicas of a stage"
    with pytest.raises(PlanError, match=message):
        stage_jobs(replace(PLAN, stages=(stage, PLAN.stages[1])), MODEL, "bf16")


def test_devices_of_a_replica_are_tensor_and_context_parallel() -> None:
    plan = replace(PLAN, settings=Settings(cp=2), stages=(PLAN.stages[0], PLAN.stages[0]))
    plan = replace(
        plan,
        stages=(
            replace(PLAN.stages[0], stop=6),
            replace(PLAN.stages[0], start=6, stop=10, replicas=(replica(4, 5), replica(6, 7))),
        ),
    )
    assert [(job.tp, job.settings.cp) for job in stage_jobs(plan, MODEL, "bf16")] == [(1, 2)] * 2
    kinds = {(g.kind, g.stage): g.devices for g in placed_groups(plan, 2)}
    assert kinds["cp", 0] == ((0, 1), (2, 3))
    assert kinds["dp", 1] == ((4, 6), (5, 7))
    assert placed_links(plan, CLUSTER, 2)["dp-cp", 1] == MIXED


def test_another_number_of_layers_is_refused() -> None:
    with pytest.raises(PlanError, match="found 10 layers, expected 11"):
        stage_jobs(PLAN, replace(MODEL, layers=9), "bf16")


def test_groups_and_links_are_those_of_the_devices() -> None:
    kinds = {(g.kind, g.stage): g.devices for g in placed_groups(PLAN)}
    assert kinds["tp", 0] == ((0, 1), (2, 3))
    assert kinds["dp", 0] == ((0, 2), (1, 3))
    assert kinds["dp", 1] == ((4, 5, 6, 7),)
    assert kinds["pp", 0] == ((0, 4), (1, 5), (2, 6), (3, 7))
    links = placed_links(PLAN, CLUSTER)
    assert links["tp", 0] == INSIDE
    assert links["tp", 1] == NOBODY
    assert links["dp", 1] == BETWEEN
    assert links["pp", 0] == BETWEEN
    assert link_of(CLUSTER, [(4, 5), (5, 6)]) == MIXED
    assert device_names(CLUSTER)[7] == "n2_g1"


def test_an_analysis_of_it() -> None:
    jobs = stage_jobs(PLAN, MODEL, "bf16")
    found = analyze_stages(
        jobs, limit=2.0**33, limits=(2.0**34, 2.0**33), links=placed_links(PLAN, CLUSTER)
    )
    assert not found.uniform
    assert found.ranks == tuple(rank_memory(job, r) for r, job in enumerate(jobs))
    assert [stage.pp_ranks for stage in found.stages] == [(0,), (1,)]
    assert found.limit_of(0) == 2.0**34
    links = {
        (row.family, row.stages): row.link for row in found.traffic if row.family != "pipeline"
    }
    assert links == {("tensor", (0,)): INSIDE, ("data", (0,)): INSIDE, ("data", (1,)): BETWEEN}
    assert {row.link for row in found.traffic if row.group == "pp"} == {BETWEEN}
