"""A space that is made here, in less than a hundred lines, and that no driver knows of.

Its plans cut the layers over all devices in a row, one device a stage. Costs are the measured or
estimated layers and nothing else.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ilp_planner as ilp
from ilp_planner.costs.base import PlanCost, StageCost
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.profiles import layer_source
from ilp_planner.optimize.graph import StageGraph
from ilp_planner.optimize.search.parts import FixedGraph, OpenGraph
from ilp_planner.plan import GroupStage, Plan, Replica
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.graph_space import GraphSpace
from ilp_planner.spaces.layers import Costing, layer_problem
from ilp_planner.spaces.registry import SPACES, SpaceEntry


class RowCosts:
    """Layers one after the other; nothing is sent."""

    name = "native"

    def __init__(self, profile: Any, device: str) -> None:
        self.profile, self.device, self.chain = profile, device, profile.layers

    def seconds(self, start: int, stop: int, samples: int) -> float:
        return float(self.profile.time[LayerKey(self.device, 1, samples)][start:stop].sum())

    def plan_cost(self, plan: Plan[Any], cluster: Any) -> PlanCost:
        times = [self.seconds(s.start, s.stop, plan.micro_batch_size) for s in plan.stages]
        stages = [StageCost(time=t, memory=(0.0,), time_terms={}, memory_terms={}) for t in times]
        seconds = plan.schedule.iteration_time(times)
        return PlanCost(iteration_time=seconds, stages=tuple(stages), terms={})

    def shares(self, plan: Plan[Any], cluster: Any) -> dict[Any, Any]:
        return {}


class RowPart(FixedGraph):
    """All cuts with one number of micro-batches; node (s, l): s stages hold the first l layers."""

    def __init__(self, problem: Problem[RowCosts], micro_batches: int) -> None:
        self.problem, self.micro_batches, self.constant = problem, micro_batches, 0.0
        self.name = f"{micro_batches} micro-batches"
        self.samples = problem.global_batch // micro_batches

    @cached_property
    def stage_graph(self) -> StageGraph:
        costs, layers = self.problem.costs, len(self.problem.costs.chain)
        stages, row = self.problem.cluster.device_count, layers + 1
        arcs = np.array([
            (s * row + i, (s + 1) * row + j, i, j)
            for s in range(stages)
            for i, j in itertools.combinations(range(row), 2)
            if (i == 0) == (s == 0) and (j == layers) == (s == stages - 1)
        ])  # fmt: skip
        times = [costs.seconds(i, j, self.samples) for _, _, i, j in arcs.tolist()]
        return StageGraph(
            nodes=(stages + 1) * row, sources=(0,), sink=(stages + 1) * row - 1, operators=layers,
            weight=OneForwardOneBackward(self.micro_batches).weight,
            tail=arcs[:, 0], head=arcs[:, 1], start=arcs[:, 2], stop=arcs[:, 3],
            time=np.array(times),
        )  # fmt: skip

    def sketch(self) -> OpenGraph:
        return self.graph(math.inf, None)

    def plan(self, choices: Sequence[int]) -> Plan[GroupStage]:
        graph = self.stage_graph
        cuts = [(int(graph.start[arc]), int(graph.stop[arc])) for arc in choices]
        return plan_of(self.problem, cuts, self.micro_batches)

    def holds(self, plan: Plan[Any]) -> bool:
        return plan.micro_batches == self.micro_batches

    def family(self, choice: int) -> int:
        return self.micro_batches


@dataclass(frozen=True, repr=False)
class RowSpace(GraphSpace["RowCosts", RowPart]):
    """One device a stage, in order."""

    name = "row"

    def parts(self, problem: Problem[RowCosts]) -> list[RowPart]:
        return [RowPart(problem, batches) for batches in problem.micro_batches]

    def describe(self, problem: Problem[RowCosts]) -> str:
        return f"{self.tried(problem)}, one device a stage, in order"

    def exclusions(self, problem: Problem[RowCosts], plan: Plan[Any]) -> Iterator[str]:
        if [stage.devices for stage in plan.stages] != [(d,) for d in range(len(plan.stages))]:
            yield "stages: other than one device each, in order"


def build(files: InputFiles) -> Problem[RowCosts]:
    cluster, _ = files.cluster
    source = layer_source(files, cluster)
    costs = RowCosts(source.profile, cluster.type_names[0])
    costing = Costing(costs, source.model, source.named, ())
    return layer_problem(files, RowSpace(), cluster, costing, {costs.device: (1,)})


# ---- the test -----------------------------------------------------------------------------------

CLUSTER = """\
name = "three"
nodes = [{ device = "v100", devices = 3 }]
[devices.v100]
memory = "32 GiB"
peak.fp16 = "125 TFLOP/s"
sustained = 0.5
memory_bandwidth = "900 GB/s"
[links]
intra_node = { bandwidth = "50 GB/s", latency = "10 us" }
"""


def plan_of(
    problem: Problem[Any], cuts: Sequence[tuple[int, int]], batches: int
) -> Plan[GroupStage]:
    samples = problem.global_batch // batches
    stages = tuple(
        GroupStage(start=i, stop=j, replicas=(Replica(devices=(s,), samples=samples),))
        for s, (i, j) in enumerate(cuts)
    )
    return Plan(
        model=problem.model, global_batch=problem.global_batch, micro_batches=batches, stages=stages
    )


def test_the_public_verbs_serve_a_space_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SPACES, "row", SpaceEntry(build, ("native",)))
    cluster = tmp_path / "three.toml"
    cluster.write_text(CLUSTER)
    problem = ilp.problem("gpt3-350m", cluster, space="row", global_batch=8)
    result = ilp.solve(problem, seconds=60, top=3)
    layers = len(problem.costs.chain)
    plans = [
        plan_of(problem, ((0, a), (a, b), (b, layers)), batches)
        for batches in problem.micro_batches
        for a, b in itertools.combinations(range(1, layers), 2)
    ]
    judged = [ilp.evaluate(problem, plan) for plan in plans]
    assert all(evaluation.legal for evaluation in judged)
    assert all(problem.space.contains(problem, plan) for plan in plans)
    best = min(evaluation.iteration_time for evaluation in judged)
    assert (result.status, result.gap) == (ilp.Status.OPTIMAL, 0.0)
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.confirmed_by == "cp-sat"
    assert result.ranking[0].plan == result.plan
    assert len({entry.plan.micro_batches for entry in result.ranking}) == 3
    assert result.check().holds
    result.save(tmp_path / "row.json")
    saved = ilp.load(tmp_path / "row.json")
    assert saved.plan == result.plan
    assert saved.check().bound == pytest.approx(best, rel=1e-9)
    assert "one device a stage, in order" in str(saved)
    (program,) = result.export("lp", tmp_path / "row.lp")
    assert program.read_text()
    written = saved.export("megatron", tmp_path / "run.sh")
    assert "--pipeline-model-parallel-size 3" in written[0].read_text().replace("\\\n", " ")
    for solver in ("anneal", "gradient"):
        assert ilp.solve(problem, seconds=20, solver=solver).objective <= 1.05 * best
    outside = plan_of(problem, ((0, layers),), 8)
    assert not ilp.evaluate(problem, outside).legal
