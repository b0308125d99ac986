"""Which limits are let go, and how."""

from dataclasses import replace

import pytest

from ilp_planner.analysis.why.relaxations import Relaxation, relaxations, with_constraints
from ilp_planner.base.files import Document
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.cluster import ClusterSpec
from ilp_planner.specs.cluster_writer import cluster_text
from ilp_planner.specs.model_writer import model_text
from tests.megatron_cases import small_cluster, small_model

GIB = 2**30


def asked(cluster: ClusterSpec, **said: object) -> Request:
    """Return a request for a small model."""

    def held(name: str, text: str) -> Reference:
        return Reference(name=name, sha256=Document(name, text).sha256, text=text)

    return Request(
        files={
            "model": held("small", model_text(small_model())),
            "cluster": held("small", cluster_text(cluster)),
            "profile": Reference(name="analytic"),
        },
        space="megatron",
        global_batch=4,
        constraints=constraints_of(said),
    )


def relaxed(request: Request) -> tuple[Relaxation, ...]:
    """Return the relaxations of a request, from its best plan."""
    problem = build_problem(InputFiles(request))
    found = solve(problem, limits=Limits(gap=0.3), solver="dp")
    assert found.status in (Status.OPTIMAL, Status.FEASIBLE)
    assert found.plan is not None
    return relaxations(problem, InputFiles(request).whole_cluster, found.plan)


def cluster_of(relaxation: Relaxation) -> ClusterSpec:
    """Return the nodes that plans of a relaxation may use."""
    return InputFiles(relaxation.request).cluster_file()


@pytest.mark.parametrize(
    ("without", "used"),
    [("0", {"a100": ["a100", "l4", "a100"], "l4": ["a100", "l4", "l4"]}),
     ("2", {"a100": ["a100", "a100", "a100"], "l4": ["a100", "a100", "l4"]})],
)  # fmt: skip
def test_one_more_node_leaves_the_same_ones_idle(without: str, used: dict[str, list[str]]) -> None:
    every = relaxed(asked(small_cluster(2, 2, slow=1), without=without))
    nodes = {one.device: one for one in every if one.kind == "node"}
    assert set(nodes) == {"a100", "l4"}
    for name, types in used.items():
        assert list(cluster_of(nodes[name]).node_types) == types


def test_each_relaxation_changes_one_thing() -> None:
    request = asked(small_cluster(2, 2), tp="1,2", headroom="1 GiB")
    whole = InputFiles(request).whole_cluster
    every = relaxed(request)
    limits = [one.limit for one in every]
    assert {"tp 1,2", "headroom 1 GiB"} <= set(limits)
    for one in every:
        now = cluster_of(one)
        same = {
            "memory": replace(whole, device_types=now.device_types),
            "node": replace(whole, nodes=now.nodes),
            "nodes": replace(whole, nodes=now.nodes),
            "links": replace(whole, intra_node=now.intra_node, inter_node=now.inter_node),
        }.get(one.kind, whole)
        assert now == same
        if one.kind == "memory":
            grown = now.device_types["a100"].memory - whole.device_types["a100"].memory
            assert grown == GIB
        if one.kind == "links":
            pairs = [(now.intra_node, whole.intra_node), (now.inter_node, whole.inter_node)]
            ratios = sorted(new.bandwidth / old.bandwidth for new, old in pairs)
            assert ratios == [1, 2]
        if one.kind == "batch":
            assert one.request.global_batch is not None
            assert one.scale * one.request.global_batch == 4
        if one.kind != "asked":
            assert one.request.constraints == request.constraints


def test_what_is_demanded_goes_before_what_was_asked_for() -> None:
    request = asked(small_cluster(), tp="1", pp="2")
    now = with_constraints(request, constraints_of({"tp": "2", "cp": "1"})).constraints
    assert now.texts == {"tp": "2", "pp": "2", "cp": "1"}


def test_nodes_that_a_search_left_out_limit_nothing() -> None:
    """What the user left out may be let go of; what the search did is covered by its bound."""
    from ilp_planner.analysis.why.relaxations import _asked

    request = Request(files={}, constraints=constraints_of({"without": "1", "tp": "2"}))
    assert [one.limit for one in _asked(request, ())] == ["tp 2", "without 1"]
    assert [one.limit for one in _asked(request, ("without",))] == ["tp 2"]
