"""The checker on plans of whole layers: groups of devices, and Metis's space."""

import itertools
import json
import math
import operator
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlannerError
from ilp_planner.checker import checker
from ilp_planner.costs import layers as layer_costs
from ilp_planner.costs.launch_floor import Calibration
from ilp_planner.costs.layers import LayerCosts
from ilp_planner.costs.profiles.layers import LayerKey
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.plan_json import encode_plan
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds import boxes
from ilp_planner.optimize.bounds.resource_prices import PricedGraph
from ilp_planner.optimize.solve import solve
from ilp_planner.peers.metis.build import MetisSpace
from ilp_planner.peers.metis.cluster import metis_cluster_spec
from ilp_planner.peers.metis.costs import MetisCosts
from ilp_planner.peers.metis.enumeration import metis_graphs
from ilp_planner.peers.metis.formulas import MetisFormulas
from ilp_planner.schedule.formulas import OneForwardOneBackward
from ilp_planner.spaces.groups.build import GroupSpace
from ilp_planner.spaces.groups.parts import GroupPart
from tests import brute
from tests.checker.test_checker import (
    HUGE,
    PROOF,
    always,
    assert_judged_alike,
    assert_said_in_lines,
    edited,
    in_file,
    lower_cutoff,
    proved,
    read,
    shifted,
)
from tests.examples import examples
from tests.metis_cases import synthetic_costs
from tests.peers.metis.test_enumeration import cheapest as cheapest_path

Record = dict[str, Any]
SEEDS = st.integers(0, 2**32 - 1)
LINKS = ("flat", "one", "pairs")  # a matrix says more than the checker knows
COUNTS = ({"A": 3}, {"A": 2, "B": 2}, {"B": 3, "A": 2}, {"A": 1, "C": 1, "B": 2})


def metis_problem(seed: int, space: Any) -> Problem[Any]:
    """Draw a problem under Metis's costs."""
    drawn = random.Random(seed)
    costs = synthetic_costs(
        drawn.choice(COUNTS), drawn.randint(2, 4), memory=drawn.choice((1000.0, 9.0, 6.0)),
        least_sync=-8.0, seed=seed,
    )  # fmt: skip
    cluster = metis_cluster_spec(costs.formulas.cluster)
    return Problem(
        model="made-up", cluster=cluster, costs=costs, space=space, global_batch=6,
        micro_batches=(1, 2, 3, 6), max_stages=4, max_tp=2,
        memory_limits={n: float(cluster.device_types[n].memory) for n in cluster.type_names},
    )  # fmt: skip


def drawn_problem(seed: int) -> Problem[Any]:
    """Draw a problem of one of the spaces."""
    if seed % 3 == 0:
        again = bool(seed // 9 % 2)
        devices = 4 if again else 5
        links = LINKS[seed // 3 % 3]
        return brute.random_problem(seed, links=links, recomputed=again, devices=devices)
    space = GroupSpace() if seed % 3 == 1 else MetisSpace(summed=bool(seed // 3 % 2))
    return metis_problem(seed, space)


def least_time(problem: Problem[Any]) -> float:
    """Return the optimum by enumeration."""
    if problem.space.name == "groups":
        return min(brute.cheapest(problem)[0], HUGE)
    graphs = metis_graphs(
        problem.costs, problem.cluster, global_batch=problem.global_batch,
        micro_batches=problem.micro_batches, summed=problem.space.summed,
    )  # fmt: skip
    return min(cheapest_path(graphs)[0], HUGE)


def proof_of(problem: Problem[Any], bound: float) -> Record:
    return problem.space.independent_proof(problem, bound, ())


# ---- bounds against enumeration ------------------------------------------------------------------


@given(SEEDS, st.sampled_from((1.0, 1.0001, 1.5)))
@examples(6, more=40)
def test_no_bound_is_above_the_optimum_of_enumeration(seed: int, claim: float) -> None:
    problem = drawn_problem(seed)
    optimum = least_time(problem)
    found = proved(proof_of(problem, min(optimum * claim, HUGE)))
    assert found <= optimum
    if problem.costs.name == "metis":  # links do not depend on nodes
        assert found >= optimum * (1 - 1e-6)


@given(SEEDS, st.sampled_from((0, 1, 10)))
@examples(6, more=40)
def test_no_price_and_no_end_of_a_search_proves_more_than_the_optimum(
    seed: int, labels: int
) -> None:
    problem, drawn = drawn_problem(seed), random.Random(seed)
    optimum = least_time(problem)
    proof = proof_of(problem, min(optimum * 1.5, HUGE))
    for case in proof["cases"]:
        seats = sum(
            any(size % tp for size in problem.cluster.node_sizes(name))
            for name, degrees in zip(
                proof["set"]["types"], proof["set"]["tensor_degrees"], strict=True
            )
            for tp in degrees
        )
        case["prices"] = [
            [int(10 ** drawn.uniform(5, 16)),
             *(int(10 ** drawn.uniform(0, 16)) for _ in range(len(proof["set"]["types"]) + seats))]
            for _ in range(drawn.randint(0, 3))
        ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "LOOKS", labels)
        patch.setattr(checker, "STAGES", drawn.choice((1, 50, 10_000)))
        patch.setattr(checker, "FEW", drawn.choice((0, 10_000)))
        patch.setattr(checker, "SPLITS", drawn.choice((1, 100)))
        patch.setattr(checker, "LEVELS", drawn.choice((0, 1, 12)))
        assert proved(proof) <= optimum


def test_more_prices_than_a_case_may_have_are_refused() -> None:
    proof = proof_of(brute.random_problem(7, links="pairs"), 1.0)
    case = proof["cases"][0]
    case["prices"] = case["prices"][:1] * 32
    checker.opened(read(proof))
    case["prices"] = case["prices"][:1] * 33
    with pytest.raises(checker.RefusedError, match="prices: found 33, expected at most 32"):
        checker.opened(read(proof))


# ---- another language ----------------------------------------------------------------------------


AWK = Path(__file__).parent


@pytest.mark.skipif(shutil.which("awk") is None, reason="there is no awk here")
@example(seed=768)  # seats have prices
@given(SEEDS)
@examples(3, more=40)
def test_prices_prove_as_much_by_a_program_written_from_the_pages_alone(seed: int) -> None:
    problem = metis_problem(seed, GroupSpace())
    proof = proof_of(problem, min(least_time(problem) * 1.5, HUGE))
    plans, costs, cases, _ = checker.opened(read(proof))
    text = json.dumps({"certificate": {"independent": proof}})
    done = subprocess.run(
        ["awk", "-f", AWK / "json.awk", "-f", AWK / "priced_groups.awk"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [(float(x) for x in line.split()) for line in done.stdout.splitlines()]
    found = [bound for _, _, bound in rows]
    expected = []
    for batches in plans["micro_batches"]:
        chain = checker.Chain(costs, plans, batches, cases[batches], ())
        for longest, *prices in cases[batches][1]:
            priced = [sum(map(operator.mul, prices, one.use)) for one in chain.groups]
            chain.priced = [(priced, sum(map(operator.mul, prices, chain.capacity)))]
            high = (longest, checker.NEVER, checker.NEVER)
            stages = chain.stages(longest, checker.NEVER) if chain.groups else [[]] * (chain.n + 1)
            bound, _, _ = chain.left(stages, (0, 0, 0), high, checker.NEVER)
            expected.append(1e30 if bound == checker.NEVER else bound / (checker.Q * checker.PS))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


# ---- rows of layers ------------------------------------------------------------------------------


@given(SEEDS, st.booleans(), st.booleans())
@examples(6, more=40)
def test_rows_are_those_of_the_planner(seed: int, isolated: bool, measured: bool) -> None:
    """Of any number of samples, from one row of the profile or from several, and of the optimiser's
    step, which a profile has or has not."""
    problem, drawn = brute.random_problem(seed, links="pairs", recomputed=True), random.Random(seed)
    found = problem.costs.profile
    again = {way: replace(rows, isolated=isolated) for way, rows in found.recomputed.items()}
    profile = replace(
        found, isolated=isolated, optimizer=found.optimizer if measured else {}, recomputed=again
    )
    known = [name for name in problem.cluster.type_names if drawn.random() < 0.8]
    costs = LayerCosts(
        profile, problem.memory_limits, rates={name: drawn.uniform(1e11, 3e12) for name in known},
        calibration=Calibration(
            launch_share=drawn.choice((0.0, 0.3, 1.2)), device_share=drawn.uniform(0.1, 1),
            tensor_loss=drawn.choice((0.0, 0.4)),
        ),
    )  # fmt: skip
    problem = replace(problem, costs=costs)
    _, priced, _, _ = checker.opened(read(proof_of(problem, 1.0)))
    for (kind, tp), pair in priced.pairs.items():
        key = LayerKey(problem.cluster.type_names[kind], tp, drawn.randint(1, 9))
        for way in ((), ("selective",), ("full",)):
            rows = costs.again[way[0]] if way else costs
            row = priced.row(kind, tp, key.samples, True, way)
            assert [float(x) for x in row] == pytest.approx(rows.row(key).tolist(), rel=1e-12)
        assert [float(x) for x in pair["step"]] == pytest.approx(costs.step(key).tolist())


# ---- plans against the planner's judge -----------------------------------------------------------


@given(SEEDS)
@examples(6, more=40)
def test_plans_are_judged_alike(seed: int) -> None:
    problem = drawn_problem(seed)
    plans, costs, cases, _ = checker.opened(read(proof_of(problem, HUGE)))
    if problem.space.name == "groups":
        every = list(itertools.islice(brute.every_plan(problem), 300))
    else:
        result = solve(problem, solver="dp")
        every = [] if result.plan is None else [result.plan]
    for plan in random.Random(seed).sample(every, min(5, len(every))):
        expected = evaluate(problem, plan)
        record = read(encode_plan(plan))
        seconds, stages, faults = checker.judge_layers(costs, plans, cases, record)
        assert (not faults) == expected.legal, (faults, expected.violations)
        if expected.legal:
            assert math.isclose(seconds, expected.iteration_time, rel_tol=1e-9)
            for (time, memory), cost in zip(stages, expected.stages, strict=True):
                assert math.isclose(time, cost.time, rel_tol=1e-9)
                assert math.isclose(memory, max(cost.memory), rel_tol=1e-9)


def test_a_plan_whose_time_is_not_known_is_not_legal() -> None:
    """Replicas share 6 samples as 4 and 2: no row of 3, by which the last stage ends, is known."""
    costs = synthetic_costs({"A": 1, "B": 1}, 2, sizes=(1, 2, 4))
    cluster = metis_cluster_spec(costs.formulas.cluster)
    problem = replace(
        metis_problem(4, GroupSpace()), costs=costs, cluster=cluster, micro_batches=(1,),
        memory_limits={n: float(cluster.device_types[n].memory) for n in cluster.type_names},
    )  # fmt: skip
    plans, priced, cases, _ = checker.opened(read(proof_of(problem, HUGE)))
    unknown = 0
    for plan in brute.every_plan(problem):
        judged = evaluate(problem, plan)
        _, _, faults = checker.judge_layers(priced, plans, cases, read(encode_plan(plan)))
        assert (not faults) == judged.legal
        assert judged.legal <= math.isfinite(judged.iteration_time)
        if {"A tp1 bs3", "B tp1 bs3"} & {rule.have for rule in judged.violations}:
            unknown += len(plan.stages) == 1
    assert unknown


# ---- mistakes of the planner ---------------------------------------------------------------------


def scaled(factor: float) -> Callable[[Any], Any]:
    def wrong(old: Any) -> Any:
        def found(*args: Any, **said: Any) -> Any:
            value = old(*args, **said)
            if isinstance(value, tuple):  # of a latency and a time per byte, or of shares
                return type(value)(*(factor * x for x in value))
            return value if value is None else value * factor

        return found

    return wrong


def raised(old: Any) -> Any:
    """Return multipliers that prove 3 % more than they do."""

    def found(*args: Any, **said: Any) -> Any:
        return replace(known := old(*args, **said), value=known.value * 1.03)

    return found


MISTAKES = {
    "native": (
        *((layer_costs, name, scaled(x)) for name in ("best_ring", "best_transfer", "stage_ring")
          for x in (0.5, 1.5, 3.0)),
        *((LayerCosts, "row", scaled(x)) for x in (0.9, 1.1)),
        (LayerCosts, "in_flight", shifted(1)),
        (LayerCosts, "needs", lambda old: lambda *a: {**old(*a), "activations": 0.0}),
        (LayerCosts, "step", scaled(0.0)),
    ),
    "metis": (
        *((MetisFormulas, name, scaled(x)) for name in ("compute", "send", "gradients", "optimizer")
          for x in (0.5, 1.5)),
        (MetisFormulas, "sync", always(0.0)),
        (MetisFormulas, "replica_memory", scaled(0.3)),
        (MetisCosts, "constant", scaled(0.5)),
    ),
}  # fmt: skip
SEARCH = (
    (PricedGraph, "prices", raised),
    (GroupPart, "below", lower_cutoff),
    (OneForwardOneBackward, "in_flight", shifted(1)),
    (boxes.BoxSearch, "_settle", lambda old: lambda self, box, small: (None, True)),
)


def with_mistake(problem: Problem[Any], seed: int) -> tuple[Record, Problem[Any]] | None:
    """Return the file of a planner with a mistake; None if it noticed itself, or has no plan."""
    drawn = random.Random(seed)
    kinds = (MISTAKES[problem.costs.name], SEARCH)
    place, name, wrong = drawn.choice(drawn.choice(kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, wrong(getattr(place, name)))
        costs = problem.costs.with_limits(problem.memory_limits)
        try:
            result = solve(replace(problem, costs=costs), solver="dp")
        except (PlannerError, TypeError, ValueError, IndexError):
            return None
    if result.plan is None or not math.isfinite(result.objective) or result.bound <= 0:
        return None
    claimed = result.evaluation
    assert claimed is not None
    figures = [{"time_s": x.time, "memory_bytes": max(x.memory)} for x in claimed.stages]
    record = {
        "plan": encode_plan(result.plan),
        "inputs": {},
        "result": {"objective_s": claimed.iteration_time, "bound_s": result.bound},
        "evaluation": {"iteration_time_s": claimed.iteration_time, "stages": figures},
        "certificate": {"independent": proof_of(problem, result.bound)},
    }
    truth, optimum = evaluate(problem, result.plan), least_time(problem)
    true = (
        truth.legal
        and math.isclose(truth.iteration_time, claimed.iteration_time, rel_tol=2e-6)
        and all(
            math.isclose(a.time, b.time, rel_tol=2e-6)
            and math.isclose(max(a.memory), max(b.memory), rel_tol=2e-6)
            for a, b in zip(truth.stages, claimed.stages, strict=True)
        )
        and result.bound <= optimum * (1 + 1e-6)
    )
    return None if true else (record, problem)


@given(SEEDS)
@examples(6, more=40)
def test_false_claims_of_a_planner_with_a_mistake_are_noticed(seed: int) -> None:
    found = with_mistake(drawn_problem(seed), seed)
    if found is not None:
        verdict = checker.check(read(found[0]))
        assert checker.faults_of(verdict) or checker.weaker(verdict)


# ---- edits ---------------------------------------------------------------------------------------


@cache
def small(space: str) -> tuple[Record, float, Problem[Any]]:
    """Return a file, the optimum of its instance, and the instance."""
    problem = {
        "native": lambda: brute.random_problem(7, links="pairs"),
        "groups": lambda: metis_problem(4, GroupSpace()),
        "metis": lambda: metis_problem(5, MetisSpace()),
    }[space]()
    result = solve(problem, solver="dp")
    assert result.plan is not None
    optimum = least_time(problem)
    plan, proof = encode_plan(result.plan), proof_of(problem, optimum)
    record = {"plan": plan, "inputs": {}, "certificate": {"independent": proof}}
    return record, optimum, problem


SPACES = ("native", "groups", "metis")


def with_text(record: Record, name: str, text: str) -> Record:
    return {**record, "inputs": {name: in_file(text)}}


@pytest.mark.parametrize("space", ["groups", "metis"])
@pytest.mark.parametrize("name", ["cluster", "hostfile"])
def test_nodes_are_those_of_the_inputs(space: str, name: str) -> None:
    """As many of each size and type; what a cluster has beyond them is left out of the set."""
    record, _, _ = small(space)
    found = record["certificate"]["independent"]["set"]
    nodes = [(found["types"][k], size) for k, size, count in found["nodes"] for _ in range(count)]

    def text(nodes: list[tuple[str, int]]) -> str:
        if name == "hostfile":
            return "".join(f"{kind} slots={size}\n" for kind, size in nodes)
        return "".join(f'[[nodes]]\ndevice = "{kind}"\ndevices = {size}\n' for kind, size in nodes)

    own = checker.check(read(with_text(record, name, text(nodes))))
    assert not own["faults"]
    assert "other nodes" not in " ".join(own["left_out"])
    (kind, size), *others = nodes
    for other in ([(kind, size + 1), *others], others):
        with pytest.raises(checker.RefusedError, match=f"inputs.{name}: "):
            checker.check(read(with_text(record, name, text(other))))
    if name == "cluster":
        more = checker.check(read(with_text(record, name, text([*nodes, (kind, size)]))))
        assert "1 other nodes" in " ".join(more["left_out"])


@given(st.sampled_from(SPACES), st.integers(0, 2**64))
@examples(60)
def test_no_edit_of_a_proof_proves_more_than_the_optimum(space: str, seed: int) -> None:
    record, optimum, _ = small(space)
    drawn = random.Random(seed)
    found = edited(record, drawn, (*PROOF, "cases"))
    found["certificate"]["independent"]["bound_s"] = optimum * drawn.choice((1, 1.01, 2))
    try:
        verdict = checker.check(read(found))
    except checker.RefusedError:
        return
    if all(case.get("several") == "all" for case in found["certificate"]["independent"]["cases"]):
        assert verdict["bound"] <= optimum
    else:  # said to be about fewer plans
        assert verdict["bound"] <= optimum or verdict["left_out"]


@given(st.sampled_from(SPACES), st.integers(0, 2**64))
@examples(60)
def test_an_edited_plan_is_legal_only_if_the_judge_says_so(space: str, seed: int) -> None:
    record, _, problem = small(space)
    found = edited(record, random.Random(seed), ("plan", "stages"))
    assert_judged_alike(found, problem)


@given(st.sampled_from(SPACES), st.integers(0, 2**64))
@examples(60)
def test_any_edit_is_judged_or_refused_in_a_line(space: str, seed: int) -> None:
    assert_said_in_lines(edited(small(space)[0], random.Random(seed)))
