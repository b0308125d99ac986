"""The fastest plan on any set of nodes is what enumeration finds, and no plan beats its bound."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ilp_planner.base import team
from ilp_planner.base.deadline import Deadline
from ilp_planner.base.errors import InfeasibleError, LackingError
from ilp_planner.base.numerics import ROUNDING
from ilp_planner.formats.saved_plan import encode_aim
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.files import InputFiles
from ilp_planner.inputs.problem import Problem
from ilp_planner.inputs.request import Reference, Request
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.search.start import Start
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.spaces.objectives import any_nodes
from ilp_planner.spaces.objectives.any_nodes import (
    AnyNodes,
    build_for_any_nodes,
    solve_on_any_nodes,
)
from ilp_planner.spaces.objectives.check import check_aim
from ilp_planner.spaces.objectives.node_sets import node_sets
from ilp_planner.spaces.objectives.on_nodes import problem_on
from ilp_planner.spaces.objectives.search import Chosen
from ilp_planner.spaces.registry import build_problem
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.link import Link
from tests.examples import for_each, thinned
from tests.spaces.objectives.cases import KINDS, every_point

EXACTLY = Limits(seconds=1e6)
SEEDS = st.integers(0, 2**32 - 1)
USING_ALL = ("megatron", "operators")  # kinds of problems whose plans leave no device idle


def found_of(problem: Problem[Any], **asked: Any) -> Chosen | None:
    """Return what a search finds; None where it proves that there is nothing."""
    try:
        chosen = solve_on_any_nodes(problem, **{"limits": EXACTLY, **asked})
    except InfeasibleError:
        return None
    return chosen if chosen.result.status is not Status.INFEASIBLE else None


def check_enumerated(kind: str, seed: int) -> None:
    """Compare with every plan on every set of nodes."""
    problem = KINDS[kind][0](seed)
    times = [point.seconds for point in every_point(kind, problem)]
    chosen = found_of(problem)
    if chosen is None:
        assert not times
        return
    result = chosen.result
    assert result.objective == pytest.approx(min(times), rel=1e-9)
    assert result.bound <= min(times) * (1 + ROUNDING)
    assert result.status is Status.OPTIMAL
    assert result.stopped_by is Stop.PROOF
    if problem.cluster.node_count > 1:
        assert result.aim is not None
        assert all(one.covered for one in result.aim.sets)
        assert "on any of these" in result.among
        check = check_aim(chosen.problem, result.plan, result.objective, encode_aim(result.aim))
        assert check.holds
        assert check.gap == 0


@for_each(("kind", "seed"), thinned([("operators", 3), ("megatron", 2), ("megatron", 5)], 2))
def test_the_fastest_plan_of_all_sets_is_found(kind: str, seed: int) -> None:
    check_enumerated(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", USING_ALL)
@settings(max_examples=12)
@given(seed=SEEDS)
def test_the_fastest_plan_of_all_sets_is_found_of_many(kind: str, seed: int) -> None:
    check_enumerated(kind, seed)


@pytest.mark.parametrize("kind", USING_ALL)
def test_all_devices_are_used_where_that_is_asked_for(kind: str) -> None:
    problem = KINDS[kind][0](5)
    chosen = found_of(problem, all_devices=True)
    plain = solve(problem, limits=EXACTLY)
    assert chosen is not None
    assert chosen.problem is problem
    assert chosen.result.plan == plain.plan
    assert chosen.result.aim is None
    assert chosen.result.among == plain.among


# ---- decoders on named GPUs ---------------------------------------------------------------------


def request(cluster: str, batch: int = 64, **constraints: str) -> Request:
    """Return a request for a small decoder under Megatron-LM."""
    return Request(
        files={"model": Reference(name="llama3.2-1b"), "cluster": Reference(name=cluster)},
        global_batch=batch,
        space="megatron",
        constraints=constraints_of({"recompute": "none", "sharding": "optimizer", **constraints}),
    )


def cluster_file(folder: Any, **nodes: tuple[str, int]) -> str:
    """Write a cluster: NAME=(GPU, nodes) of two devices each; return its path."""
    lines = ['name = "mine"']
    for name, (_, count) in nodes.items():
        lines += ["[[nodes]]", f"count = {count}", f'device = "{name}"', "devices = 2"]
    for name, (gpu, _) in nodes.items():
        lines += [f"[devices.{name}]", f'gpu = "{gpu}"']
    lines += ["[links.inter_node]", 'bandwidth = "100 Gbit/s"', 'latency = "30 us"']
    path = folder / "mine.toml"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.slow
def test_nodes_that_slow_a_plan_down_are_left_out(tmp_path: Any) -> None:
    """Of two types, and of three."""
    types = ({"t4": ("T4", 1)}, {"t4": ("T4", 2), "v100": ("V100-32GB", 1)})
    for others in thinned(types, 2):
        name = cluster_file(tmp_path, h100=("H100-80GB", 2), **others)
        asked = replace(request(name), precision="fp16")
        problem = build_problem(InputFiles(asked))
        chosen = found_of(problem)
        assert chosen is not None
        assert chosen.problem.cluster.type_names == ("h100",)
        whole = solve(problem, limits=EXACTLY)
        assert chosen.result.objective < whole.objective
        alone = solve(problem_on(problem, (0, 1)), limits=EXACTLY)
        assert chosen.result.objective == pytest.approx(alone.objective, rel=1e-9)


def test_a_batch_that_does_not_divide_leaves_nodes_out() -> None:
    """Data parallelism alone on three nodes does not divide 64 samples: all nodes have no plan."""
    asked = request("24xH100", tp="1", pp="1", cp="1")
    with pytest.raises(InfeasibleError):
        build_problem(InputFiles(asked))
    problem = build_for_any_nodes(InputFiles(asked))
    chosen = found_of(problem)
    assert chosen is not None
    assert chosen.problem.cluster.node_count == 2
    with pytest.raises(InfeasibleError, match="24 devices"):
        solve_on_any_nodes(problem, limits=EXACTLY, all_devices=True)


def test_what_is_possible_on_no_nodes_is_said_of_all() -> None:
    with pytest.raises(InfeasibleError, match="dp=7"):
        build_for_any_nodes(InputFiles(request("16xH100", dp="7")))


def test_many_sets_are_closed_as_far_as_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_nodes, "EQUAL", 2)
    monkeypatch.setattr(any_nodes, "SHARE", 0.0)
    problem = build_problem(InputFiles(request("32xH100", pp="1", tp="1", cp="1")))
    chosen = found_of(problem)
    assert chosen is not None
    assert chosen.result.aim is not None
    covered = {one.counts for one in chosen.result.aim.sets if one.covered}
    assert (4,) in covered
    assert (1,) in covered  # by arithmetic
    assert (3,) not in covered
    assert chosen.result.among.endswith("on 1-2, 4 of these 4 nodes")
    assert chosen.result.status is Status.OPTIMAL
    check = check_aim(
        chosen.problem, chosen.result.plan, chosen.result.objective, encode_aim(chosen.result.aim)
    )
    assert check.holds
    assert check.bound == pytest.approx(chosen.result.objective)


def test_no_time_covers_the_first_set_alone() -> None:
    problem = build_problem(InputFiles(request("32xH100")))
    chosen = solve_on_any_nodes(problem, limits=EXACTLY, deadline=Deadline(0.0))
    assert chosen.result.stopped_by is Stop.TIME


def test_a_search_starts_from_a_plan_of_some_nodes(tmp_path: Any) -> None:
    name = cluster_file(tmp_path, h100=("H100-80GB", 2), t4=("T4", 1))
    asked = replace(request(name), precision="fp16")
    problem = build_problem(InputFiles(asked))
    first = found_of(problem)
    assert first is not None
    start = Start(
        name="before.json",
        plan=first.result.plan,
        space="megatron",
        seconds=first.result.objective,
        request=first.problem.request,
        certificate=first.result.certificate,
        ended=True,
    )
    again = found_of(problem, start=start)
    assert again is not None
    assert again.result.plan == first.result.plan
    assert any("start: the plan of before.json" in note for note in again.result.notes)


@pytest.mark.slow
def test_every_set_is_a_problem_of_its_own(tmp_path: Any) -> None:
    """A set is one of the sets that the certificate lists, and its plan is saved with its nodes."""
    name = cluster_file(tmp_path, h100=("H100-80GB", 1), a100=("A100-80GB", 2))
    problem = build_problem(InputFiles(request(name)))
    chosen = found_of(problem)
    assert chosen is not None
    assert chosen.result.aim is not None
    assert {one.counts for one in chosen.result.aim.sets} == {
        one.counts for one in node_sets(problem.cluster)
    }
    best = chosen.result.aim.best[0].on
    assert chosen.problem.cluster.device_count == 2 * len(best.nodes)
    assert math.isnan(best.hourly)


@pytest.mark.parametrize("looks", [0, 1])
def test_an_interrupted_search_keeps_its_best_plan(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """While the first sets are looked at, and while others are closed."""
    name = cluster_file(tmp_path, h100=("H100-80GB", 1), a100=("A100-80GB", 1))
    problem = build_problem(InputFiles(request(name)))
    search, done = AnyNodes.search, []

    def interrupted(self: AnyNodes, *given: Any, **said: Any) -> None:
        if len(done) == looks:
            raise KeyboardInterrupt
        done.append(given)
        search(self, *given, **said)

    monkeypatch.setattr(AnyNodes, "search", interrupted)
    monkeypatch.setattr(any_nodes, "LOOK", 1e6)
    if looks == 0:
        with pytest.raises(KeyboardInterrupt):
            solve_on_any_nodes(problem, limits=EXACTLY)
        return
    chosen = solve_on_any_nodes(problem, limits=EXACTLY)
    assert chosen.result.stopped_by is Stop.USER
    assert chosen.result.plan is not None
    assert chosen.result.bound <= chosen.result.objective


def test_nodes_without_the_precision_of_the_model_are_left_out(tmp_path: Any) -> None:
    """bf16 on T4 and V100; where no device has it, that is refused."""
    name = cluster_file(tmp_path, v100=("V100-32GB", 1), h100=("H100-80GB", 1), t4=("T4", 1))
    problem = build_for_any_nodes(InputFiles(request(name)))
    assert problem.cluster.type_names == ("h100",)
    assert any(note.startswith("v100, t4: left out (cluster") for note in problem.notes)
    with pytest.raises(LackingError, match="no bf16"):
        solve_on_any_nodes(problem, limits=EXACTLY, all_devices=True)
    with pytest.raises(LackingError, match="no bf16"):
        build_problem(InputFiles(request(name)))
    without = request(name, without="1")
    with pytest.raises(LackingError, match="no bf16"):
        build_for_any_nodes(InputFiles(without))


def test_many_nodes_that_differ_are_no_obstacle() -> None:
    """Of 16 kinds some sets are planned; those that are not are not covered."""
    cluster = gpu_cluster(parse_gpus("16xH100"))
    alone = replace(cluster.nodes[0], count=1, devices=1)
    slow = cluster.inter_node

    def link(a: int, b: int) -> Link:
        return replace(slow, bandwidth=slow.bandwidth * (1 + a * b / 1000))

    links = tuple(tuple(link(a, b) for b in range(16)) for a in range(16))
    matrix = replace(cluster, nodes=(alone,) * 16, matrix=links)
    asked = request("unused", batch=16, pp="1", tp="1", cp="1")
    files = {"model": asked.files["model"]}
    given = InputFiles(replace(asked, files=files), objects={"cluster": matrix})
    chosen = found_of(build_for_any_nodes(given))
    assert chosen is not None
    assert chosen.result.aim is not None
    assert len(chosen.result.aim.sets) < 100
    assert "any of these" not in chosen.result.among


def test_a_plan_of_nodes_that_have_none_now_is_no_end() -> None:
    """The start's nodes divide another batch."""
    asked = request("24xH100", batch=48, tp="1", pp="1", cp="1")
    first = found_of(build_problem(InputFiles(asked)))
    assert first is not None
    start = Start(
        name="before.json",
        plan=first.result.plan,
        space="megatron",
        seconds=first.result.objective,
        request=first.problem.request,
        certificate=first.result.certificate,
    )
    problem = build_for_any_nodes(InputFiles(replace(asked, global_batch=64)))
    again = found_of(problem, start=start)
    assert again is not None
    assert again.problem.cluster.node_count == 2


def test_memory_that_runs_out_loses_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any, **said: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(AnyNodes, "close", full)
    chosen = found_of(build_problem(InputFiles(request("16xH100", tp="1", pp="1"))))
    assert chosen is not None
    assert chosen.result.stopped_by is Stop.MEMORY
    assert chosen.result.plan is not None


def test_what_is_listed_claims_nothing_of_other_nodes() -> None:
    """Plans on one node are known to be no faster than the best, but not than those that follow."""
    asked = {"tp": "1", "pp": "1..2"}
    chosen = found_of(build_problem(InputFiles(request("16xH100", 8, **asked))), top=4)
    alone = found_of(build_problem(InputFiles(request("8xH100", 8, **asked))))
    assert chosen is not None
    assert alone is not None
    fastest, *others = chosen.result.ranking
    assert fastest.bound == pytest.approx(chosen.result.objective)
    assert others[-1].bound < others[-1].evaluation.iteration_time * (1 - ROUNDING)
    assert all(one.bound <= alone.result.objective for one in (fastest, *others))


@pytest.mark.parametrize(
    ("gpus", "batch", "gap"), [("16xRTX-5090", 64, 0.3), ("16xRTX-4090", 16, 0.0)]
)
def test_an_optimum_of_some_nodes_is_none_of_any(
    gpus: str, batch: int, gap: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other nodes may still be faster, nothing is proved or confirmed of all."""
    chosen = AnyNodes.chosen

    def confirmed(self: AnyNodes, main: Any, problem: Any, result: Any) -> Chosen:
        return chosen(self, main, problem, replace(result, confirmed_by="cp-sat"))

    monkeypatch.setattr(AnyNodes, "chosen", confirmed)
    problem = build_problem(InputFiles(request(gpus, batch, tp="1", pp="1", micro_batch_size="1")))
    found = found_of(problem, limits=Limits(seconds=60, gap=gap))
    assert found is not None
    result, proved = found.result, gap == 0.0
    assert (result.status is Status.OPTIMAL) == proved
    assert result.stopped_by is (Stop.PROOF if proved else Stop.GAP)
    assert result.confirmed_by == ("cp-sat" if proved else "")


@for_each("kind", [*KINDS])
def test_sets_that_several_processes_close_have_the_same_bounds(kind: str) -> None:
    """Each set is closed by one process, or all together close one after the other."""

    def said(seed: int, workers: int) -> object:
        chosen = found_of(KINDS[kind][0](seed), limits=replace(EXACTLY, workers=workers))
        if chosen is None:
            return None
        aim = chosen.result.aim
        sets = () if aim is None else tuple(replace(one, plan=None) for one in aim.sets)
        return chosen.result.plan, chosen.result.objective, chosen.result.bound, sets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(team, "HEAVY", 1)
        patch.setattr(team, "ALONE", -math.inf)
        patch.setattr("threading.active_count", lambda: 1)  # not those of the test runner
        for seed in range(2):
            assert said(seed, 1) == said(seed, 2)


@pytest.mark.parametrize("space", ["megatron", "torchtitan", "deepspeed"])
def test_the_nodes_that_are_left_are_searched(tmp_path: Any, space: str) -> None:
    """The GPUs that lack the precision have no kernels of it, which nobody may ask for."""
    name = cluster_file(tmp_path, a100=("A100-40GB", 2), t4=("T4", 1))
    asked = replace(request(name, batch=16), space=space, constraints=constraints_of({}))
    problem = build_for_any_nodes(InputFiles(asked))
    _, result = solve_on_any_nodes(problem, limits=Limits(gap=0.5))
    assert result.plan is not None
    assert 0 < result.bound <= result.objective
