"""The checker on plans of training runtimes."""

import copy
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import accumulate, chain, combinations_with_replacement, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import PlannerError
from ilp_planner.checker import checker
from ilp_planner.costs.training import iteration
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.plan_json import encode_plan
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.result import Result
from ilp_planner.optimize.solve import solve
from ilp_planner.schedule.schedules import schedule_orders
from ilp_planner.spaces.training.independent import settings_of_form, training_proof, unproved
from ilp_planner.spaces.training.independent_costs import form_of
from ilp_planner.spaces.training.search.parts import MegatronPart
from ilp_planner.spaces.training.search.possible import possible_degrees
from ilp_planner.specs.encoder import Encoder
from ilp_planner.specs.lengths import PACKED, Lengths
from tests.checker.test_checker import (
    PROOF,
    assert_judged_alike,
    assert_said_in_lines,
    edited,
    in_file,
    proved,
    read,
)
from tests.examples import everything, examples, for_each
from tests.megatron_cases import GIB, alone, every_plan, small_cluster
from tests.random_plans import Drawer
from tests.runtime_cases import MIXTURE, MODELS, runtime_problem

Record = dict[str, Any]
SEEDS = st.integers(0, 2**32 - 1)
# Of problems that are solved: several tests take the same ones in `make test`.
DRAWN = SEEDS if everything() else st.integers(0, 11)
LINKS, MEMORY = (1e9, 2e10, 2e11), (1.0, 1.3, 1.6, 2.0, 9.0)


def drawn_problem(seed: int, **asked: Any) -> Problem[Any]:
    """Draw a problem that the checker knows."""
    drawn = random.Random(seed)
    space = drawn.choice(("megatron", "megatron", "deepspeed", "torchtitan"))
    demands = {"schedule": "1f1b"} if space == "torchtitan" else {}
    model = drawn.choice(("dense", "grouped", "experts", "latent"))  # the first layer has none
    return runtime_problem(
        space,
        model,
        cluster=small_cluster(*drawn.choice(((1, 2), (2, 2), (1, 4))), between=drawn.choice(LINKS)),
        global_batch=drawn.choice((4, 6, 8)),
        memory_limit=int(drawn.choice(MEMORY) * GIB),
        changes={
            "vocab": drawn.choice((501, 16000)),
            "layers": drawn.choice((3, 4, 6)),
            **({"experts": replace(MIXTURE, every=2)} if model == "experts" and seed % 2 else {}),
        },
        **{"constraints": constraints_of(demands), **asked},
    )


@lru_cache(maxsize=12)
def solved(seed: int) -> tuple[Problem[Any], Result]:
    """Return a problem that is drawn, and its best plan."""
    problem = drawn_problem(seed)
    return problem, solve(problem)


def record_of(
    problem: Problem[Any], result: Result, claim: float = 1.0
) -> tuple[Record, float] | None:
    """Return the file of the best plan with a bound that is so many times its time; None if nothing
    fits."""
    if result.plan is None:
        return None
    proof = training_proof(problem, result.objective * claim)
    assert proof
    record = {
        "plan": encode_plan(result.plan),
        "inputs": {},
        "result": {"objective_s": result.objective},
        "certificate": {"independent": proof},
    }
    return json.loads(json.dumps(record)), result.objective


# ---- bounds and times ----------------------------------------------------------------------------


@given(DRAWN, st.sampled_from((1.0, 1.05, 1.5, 4.0)))
@examples(3, more=35)
def test_no_bound_is_above_a_plan(seed: int, claim: float) -> None:
    problem, result = solved(seed)
    found = record_of(problem, result, claim)
    if found is None:
        return
    record, best = found
    bound = proved(record["certificate"]["independent"])
    assert bound <= best
    assert bound >= 0.9 * min(1, claim) * best
    for plan, _ in zip(Drawer(problem, seed).plans(None), range(30), strict=False):
        evaluation = evaluate(problem, plan)
        if evaluation.legal and problem.space.outside(problem, plan) is None:
            assert bound <= evaluation.iteration_time


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(3))
def test_no_bound_is_above_the_optimum_of_enumeration(seed: int) -> None:
    drawn = random.Random(seed)
    problem = alone(
        runtime_problem(
            "megatron",
            cluster=small_cluster(1, 2, between=drawn.choice(LINKS)),
            global_batch=4,
            memory_limit=int(drawn.choice(MEMORY[1:]) * GIB),
        )
    )
    judged = [evaluate(problem, plan) for plan in every_plan(problem)]
    optimum = min((one.iteration_time for one in judged if one.legal), default=math.inf)
    if optimum < math.inf:
        assert proved(training_proof(problem, optimum)) <= optimum
        assert proved(training_proof(problem, 3 * optimum)) <= optimum


def judged_alike(problem: Problem[Any], plan: Any, bound: float) -> bool:
    """Compare the checker's times and bytes of a plan; tell whether its seconds are known."""
    evaluation = evaluate(problem, plan)
    broken = {violation.rule for violation in evaluation.violations}
    outside = problem.space.outside(problem, plan)
    if broken - {"memory"}:
        return False
    plans, _, cases, _ = checker.opened(read(training_proof(problem, bound)))
    own, time = read(encode_plan(plan)), evaluation.iteration_time
    times = [stage.time for stage in evaluation.stages]
    seconds, stages, faults, unknown = checker.judge_job(plans, cases, own, time)
    if outside is not None:  # blocks of all layers, and what costs do not read, are other names
        same = outside.startswith("settings:") or "recompute block" in outside
        assert faults or unknown or same, outside
        return False
    if broken:  # what the file says of it is of no choice of settings that fits
        assert faults or unknown or seconds != pytest.approx(time, rel=1e-9)
        return False
    assert not faults
    if "seconds" in " ".join(unknown):
        return False
    assert seconds == pytest.approx(time, rel=1e-9)
    assert [x for x, _ in stages] == pytest.approx(times, rel=1e-9)
    for (_, held), stage in zip(stages, evaluation.stages, strict=True):
        assert held is None or float(held) == pytest.approx(stage.memory[0], rel=1e-9)
    return True


@given(DRAWN)
@examples(3, more=25)
def test_plans_are_judged_alike(seed: int) -> None:
    problem, result = solved(seed)
    if result.plan is None:
        return
    for plan, _ in zip(Drawer(problem, seed).plans(None), range(6), strict=False):
        judged_alike(problem, plan, result.objective)


def assert_settings_follow_from_forms(problem: Problem[Any]) -> None:
    found: dict[Any, Any] = {}
    for degrees in possible_degrees(problem, problem.costs):
        for number in range(len(problem.costs.choices)):
            own = settings_of_form(problem, degrees._replace(choice=number))
            assert found.setdefault((number, form_of(degrees)), own) == own


@for_each("model", sorted(MODELS))
@for_each("space", ["megatron", "torchtitan", "torchtitan@0.2.2", "deepspeed"])
def test_degrees_of_a_form_have_the_same_settings(space: str, model: str) -> None:
    cluster = small_cluster(2, 8)
    assert_settings_follow_from_forms(
        runtime_problem(space, model, cluster=cluster, global_batch=32)
    )


@for_each("asked", [{"dispatcher": "flex,alltoall"}, {"expert_overlap": "on,off"}])
def test_so_they_have_of_what_experts_may_be_asked_for(asked: dict[str, str]) -> None:
    constraints = constraints_of(asked)
    assert_settings_follow_from_forms(
        runtime_problem(
            "megatron",
            "experts",
            cluster=small_cluster(2, 8),
            global_batch=32,
            constraints=constraints,
        )
    )


@pytest.mark.parametrize(("pp", "layers"), [(2, 4), (2, 7), (3, 9)])
def test_layouts_of_several_stages_are_judged_to_be_of_the_set(pp: int, layers: int) -> None:
    """Of all ways to cut layers into stages those that the search lists are of the set."""
    job = made_job(random.Random(0))
    job.pp, job.L, job.M = pp, layers, 2 * pp
    job.all = (layers,)
    job.plans |= {"interleaves": True, "only": {}}
    for virtual in (2, 3):
        listed = {
            sum(zip(*rows, strict=True), ())
            for remainder in checker.REMAINDERS
            for counts in combinations_with_replacement(range(layers + 1), pp - 1)
            for rows in [
                [
                    checker.spread(stop - start, virtual, remainder, r == 0, r == pp - 1)
                    for r, (start, stop) in enumerate(pairwise((0, *counts, layers)))
                ]
            ]
        }
        for ends in combinations_with_replacement(range(layers + 1), virtual * pp - 1):
            sizes = [stop - start for start, stop in pairwise((0, *ends, layers))]
            expected = tuple(sizes) in listed and virtual <= (layers + 2) // pp
            assert job.among(sizes, virtual) == expected
    assert job.among([layers] + [0] * (pp - 1), 1)


@pytest.mark.parametrize("ways", ["block", "none,block", "full,block"])
def test_layers_of_blocks_have_figures_whatever_else_may_be_recomputed(ways: str) -> None:
    """Without whole layers in the set, computing a layer of a block again took no time."""
    problem = runtime_problem(
        "megatron",
        "dense",
        constraints=constraints_of({"recompute": ways, "pp": "2", "virtual_stages": "1"}),
        memory_limit=int(2.6 * GIB),
        cluster=small_cluster(1, 2),
    )
    best = solve(problem).objective
    plans = [*zip(Drawer(problem, 0).plans(None), range(30), strict=False)]
    assert sum(judged_alike(problem, plan, best) for plan, _ in plans) > 3
    assert proved(training_proof(problem, best)) == pytest.approx(best, rel=1e-6)


@given(st.integers(1, 5), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
@examples(30)
def test_passes_run_as_those_of_the_planner(pp: int, count: int, virtual: int, seed: int) -> None:
    drawn = random.Random(seed)
    virtual = 1 if pp == 1 else virtual
    batches = count * pp if virtual > 1 else count
    forward, backward = ([drawn.randint(1, 9) for _ in range(pp * virtual)] for _ in range(2))
    half = [drawn.randint(0, 3) for _ in range(pp)]
    order = schedule_orders("interleaved" if virtual > 1 else "1f1b", pp, batches, virtual, None)
    f, b = np.array(forward, float), np.array(backward, float)
    sends = np.array([half[s % pp] for s in range(pp * virtual - 1)], float)
    times = iteration.StageTimes(f, b, b, 0 * b, sends, sends)
    expected = iteration.simulate(order, times, blocking=virtual == 1).seconds
    run = checker.one_by_one if virtual == 1 else checker.woven
    assert run(batches, forward, backward, half) == expected


def made_job(drawn: random.Random) -> Any:
    """Return a job of the checker with drawn figures, of layers of one kind or two."""
    layers, pp = drawn.randint(1, 7), drawn.randint(1, 5)
    plans = {
        "layers": layers, "batch": drawn.randint(1, 12), "limit": 1, "recompute": ["none"],
        "blocks": False,
        "pattern": tuple(sorted(drawn.choices((0, 1), k=layers)) if drawn.random() < 0.5 else
                         (*(drawn.randint(0, 1) for _ in range(layers - 1)), 0)),
    }  # fmt: skip
    key = (1, 1, 1, 0, 1, min(pp, layers + 2), 1, 0)
    costs = SimpleNamespace(settings=[None], job=lambda key, number: None)
    jobs = SimpleNamespace(number=lambda key, choice: 0, layers=costs)
    job: Any = checker.Job(plans, key, 0, jobs)
    count, most = max(plans["pattern"]) + 1, drawn.choice((1, 5, 40))
    kinds = [((1, top), (1, top), (0, 0)) for top in (9, drawn.choice((9, 60)))[:count]]
    rows = [
        [drawn.randint(*x) for x in (*((0, most),) * 4, *chain.from_iterable(kinds))]
        for _ in range(2)
    ]
    job.kinds = [0 if 2 * r < job.pp else job.pp // 2 for r in range(job.pp)]
    job.chain = [[rows[kind > 0] for kind in job.kinds]] * 2
    job.sync = [[[drawn.randint(0, 9) for _ in range(3 + count)]] * job.pp] * 2
    job.sends = [[drawn.choice((0, 2, 6)) for _ in range(job.pp)]] * 2
    job.constant = 0, 0
    return job


@given(SEEDS)
@examples(6, more=100)
def test_no_bound_of_1f1b_is_above_the_best_cut_of_drawn_figures(seed: int) -> None:
    """Of layers of two kinds as well, which may take very different times."""
    for drawn in (random.Random(f"{seed} {number}") for number in range(20)):
        job = made_job(drawn)
        job.holds, job.least, job.needed = True, (0, 0), lambda *of: 0
        job.plans |= {"blocks": False, "interleaves": False, "only": {}}
        best = math.inf
        for inner in combinations_with_replacement(range(job.L + 1), job.pp - 1):
            places = [*pairwise((0, *inner, job.L))]
            if not any(a == b for a, b in places[1:-1]):
                best = min(best, job.seconds([job.stage(*place) for place in places], "none"))
        if best < math.inf:
            for claim in (best + 1, best + drawn.randint(2, 60), 2 * best + 5):
                assert job.bound(claim) <= best


@given(SEEDS)
@examples(60, more=200)
def test_ranks_that_take_all_they_can_come_as_far_as_any_cut(seed: int) -> None:
    drawn = random.Random(seed)
    job = made_job(drawn)
    cuts, least = checker.Cuts(job, 1, "first"), math.inf
    ends = range(job.L + 1)
    for inner in combinations_with_replacement(ends, job.pp - 1):
        places = [*pairwise((0, *inner, job.L))]
        if any(a == b for a, b in places[1:-1]):
            continue
        stages = [job.stage(*place) for place in places]
        bound = cuts.whole(stages, 0)
        assert bound <= job.seconds(stages, 0)
        least = min(least, bound)
    if least < math.inf:
        assert job.reaches(0, least + 1)
        assert job.reaches(0, least + drawn.randint(2, 50))


@given(SEEDS, st.sampled_from(("none", 1)))
@examples(60, more=200)
def test_ranks_of_several_stages_that_take_all_they_can_come_as_far_as_any_layout(
    seed: int, way: str | int
) -> None:
    """With drawn bytes of layers and a drawn limit, of which first layers may free some."""
    drawn = random.Random(seed)
    job = made_job(drawn)
    if len(job.all) > 1 or job.pp == 1:
        return
    job.M, few, many = job.pp * drawn.randint(1, 4), 2, 3
    job.plans |= {"recompute": ["none", "uniform 1"]}
    again, remainder = drawn.randint(1, 9), drawn.choice(checker.REMAINDERS)
    job.chain = [[[*row, again] for row in rows] for rows in job.chain]
    layer = {key: drawn.randint(0, 9) for key in checker.KEPT} | {"kept": drawn.randint(2, 9)}
    ends = dict.fromkeys(checker.STATES + checker.ENDS, 0)
    state = dict.fromkeys(checker.STATES, 0) | {"always": drawn.randint(0, 20)}
    job.row = lambda way, several: ([layer], [state], lambda place, there: ends)
    job.outside, found = 0, list[tuple[int, int]]()
    for virtual in range(few, many + 1):
        for inner in combinations_with_replacement(range(job.L + 1), job.pp - 1):
            rows = [checker.spread(b - a, virtual, remainder, r == 0, r == job.pp - 1)
                    for r, (a, b) in enumerate(pairwise((0, *inner, job.L)))]  # fmt: skip
            sizes = [x for chunk in zip(*rows, strict=True) for x in chunk]
            if any(n == 0 for n in sizes[1:-1]):
                continue
            layouts = [*pairwise(accumulate(sizes, initial=0))]
            for first in [way] if isinstance(way, str) else range(1, job.L + 1):
                own = [job.stage(*place, first) for place in layouts]
                needed = max(job.needed(r, own[r :: job.pp], first) for r in range(job.pp))
                found.append((job.seconds(own, first), needed))
    if found:
        job.room = drawn.choice((min(x[1] for x in found), drawn.choice(found)[1]))
        best = min(seconds for seconds, needed in found if needed <= job.room)
        assert all(job.reaches(way, best + x, few, many) for x in (1, drawn.randint(2, 50)))


# ---- mistakes of the planner ---------------------------------------------------------------------


def scaled(factor: float) -> Callable[[Any], Any]:
    def wrong(old: Any) -> Any:
        return lambda *args, **said: old(*args, **said) * factor

    return wrong


MISTAKES = (
    *((MegatronPart, name, scaled(x)) for name in ("bound", "least_bound") for x in (1.1, 1.5)),
    *((MegatronPart, name, scaled(x)) for name in ("earliest_bound", "trivial_bound")
      for x in (2.0, 4.0)),
    *((iteration, name, scaled(x)) for name in ("slowest_seconds",) for x in (1.1, 2.0)),
    (iteration, "travels", lambda old: lambda job: not old(job)),
    (MegatronPart, "variants", lambda old: lambda self: old(self)[:1]),
    (MegatronPart, "keeps", lambda old: lambda self, variant, ends: len({*ends}) % 2 == 0),
)  # fmt: skip


@given(DRAWN)
@examples(3, more=17)
def test_false_claims_of_a_planner_with_a_mistake_are_noticed(seed: int) -> None:
    place, name, wrong = random.Random(seed).choice(MISTAKES)
    problem, true = drawn_problem(seed), solved(seed)[1]
    if true.plan is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, wrong(getattr(place, name)))
        try:
            result = solve(problem)
        except (PlannerError, TypeError, ValueError, IndexError):
            return
    if result.plan is None or not 0 < result.bound < math.inf:
        return
    truth = evaluate(drawn_problem(seed), result.plan)
    right = truth.legal and math.isclose(truth.iteration_time, result.objective, rel_tol=2e-6)
    if right and result.bound <= true.objective * (1 + 1e-6):
        return
    record = {
        "plan": encode_plan(result.plan),
        "inputs": {},
        "result": {"objective_s": result.objective, "bound_s": result.bound},
        "certificate": {"independent": training_proof(drawn_problem(seed), result.bound)},
    }
    verdict = checker.check(read(record))
    assert checker.faults_of(verdict) or checker.weaker(verdict)


# ---- edits ---------------------------------------------------------------------------------------


def small(seed: int = 0) -> tuple[Record, float, Problem[Any]]:
    """Return a file, the optimum of its instance, and the instance: of layers of one kind, or of
    two for odd seeds."""
    return _small(("dense", "latent")[seed % 2])


@cache
def _small(model: str) -> tuple[Record, float, Problem[Any]]:
    problem = runtime_problem(
        "megatron", model, cluster=small_cluster(1, 4), global_batch=8, memory_limit=int(1.3 * GIB)
    )
    found = record_of(problem, solve(problem))
    assert found is not None
    return *found, problem


# What a file may say of settings and of a model that the checker computes nothing of.
UNREAD: dict[str, dict[str, Any]] = {
    "settings": {
        "quantised": "fp8-delayed", "fp8_attention": True, "encoder_recompute": "full",
        "name": "muon", "graphs": "local", "implementation": "local", "deferred_output": True,
        "moment_format": "8bit", "nobody_knows": 1,
    },
    "model": {"sparse": {"heads": 4}, "prediction_layers": 1, "lengths": {"batching": "packed"},
              "encoder": {"layers": 2}, "parallel_norms": 1, "mamba": {"heads": 2}},
}  # fmt: skip


@pytest.mark.parametrize(("of", "key"), [(of, key) for of, said in UNREAD.items() for key in said])
def test_what_is_not_computed_is_refused_by_name(of: str, key: str) -> None:
    proof = copy.deepcopy(small()[0]["certificate"]["independent"])
    job = proof["table"]["job"]
    for said in job["settings"] if of == "settings" else [job["model"]]:
        said[key] = UNREAD[of][key]
    with pytest.raises(checker.RefusedError, match=f"job.{of}.{key}: .* not checked"):
        checker.opened(read(proof))


@pytest.mark.parametrize("key", UNREAD["settings"])
def test_a_plan_with_settings_that_are_not_computed_is_not_judged_without_a_word(key: str) -> None:
    record = copy.deepcopy(small()[0])
    plan, proof = read(record["plan"]), read(record["certificate"]["independent"])
    settings = plan["settings"]
    inner = next((s for s in ("optimizer", "kernels") if key in settings[s]), "")
    (settings[inner] if inner else settings)[key] = UNREAD["settings"][key]
    plans, _, cases, _ = checker.opened(proof)
    _, _, faults, unknown = checker.judge_job(plans, cases, plan, record["result"]["objective_s"])
    assert faults or unknown


@given(SEEDS)
@examples(3, more=130)
def test_no_edit_of_the_set_proves_more_without_a_word(seed: int) -> None:
    record, optimum, _ = small(seed)
    drawn = random.Random(seed)
    found = edited(record, drawn, (*PROOF, "set"))
    found["certificate"]["independent"]["bound_s"] = optimum * drawn.choice((1, 1.01, 2))
    try:
        verdict = checker.check(read(found))
    except checker.RefusedError:
        return
    if verdict["bound"] > optimum:
        assert told_of_set(found) != told_of_set(record)


def told_of_set(record: Record) -> dict[str, str]:
    """Return what is said of the set, without the verdict."""
    lines = (line.split(maxsplit=1) for line in checker.told(checker.check(read(record))))
    return {key: text for key, text in lines if key in ("set", "left", "believed")}


@given(SEEDS)
@examples(20, more=200)
def test_no_degrees_can_be_left_out(seed: int) -> None:
    """Every one decides: a record that is gone is missed or counted."""
    record, _, _ = small(seed)
    proof = json.loads(json.dumps(record["certificate"]["independent"]))
    proof["cases"].pop(random.Random(seed).randrange(len(proof["cases"])))
    with pytest.raises(checker.RefusedError, match="of the set are missing"):
        checker.opened(read(proof))


@given(SEEDS)
@examples(3, more=70)
def test_an_edited_plan_is_legal_only_if_the_judge_says_so(seed: int) -> None:
    record, _, problem = small(seed)
    found = edited(record, random.Random(seed), ("plan", "stages"))
    assert_judged_alike(found, problem)


@pytest.mark.parametrize("key", ["tp", "samples", "cp", "micro_batches", "virtual"])
def test_a_plan_with_large_numbers_takes_no_memory(key: str) -> None:
    found = json.loads(json.dumps(small()[0]))
    plan = found["plan"]
    for place in (*plan["stages"], plan["settings"], plan):
        if key in place:
            place[key] = [10**30] if key == "samples" else 10**30
    try:
        faults = checker.check(read(found))["faults"]
    except checker.RefusedError as error:
        faults = [str(error)]
    assert faults
    assert all(len(one) < 200 for one in faults)


# Of settings: where, what stands there, what is said. None of them is in a set with a proof.
NOT_OF_THE_SET = {
    ("offload", "layers"): 5,
    ("offload", "modules"): ["core_attn"],
    ("recompute", "distribute"): True,
    ("schedule",): "anything",
    ("precision",): "fp32",
    ("carried",): ["pp"],
    ("encoder_recompute",): "full",
    ("optimizer", "offload"): 0.5,
    ("optimizer", "name"): "muon",
    ("kernels", "quantised"): "fp8",
    ("kernels", "graphs"): "local",
    ("kernels", "exact_first"): 1,
}


@pytest.mark.few(3)
@pytest.mark.parametrize("path", NOT_OF_THE_SET)
def test_a_plan_with_settings_that_are_not_checked_is_none_of_the_set(
    path: tuple[str, ...],
) -> None:
    found = copy.deepcopy(small()[0])
    inner = found["plan"]["settings"]
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = NOT_OF_THE_SET[path]
    verdict = checker.check(read(found))
    assert verdict["faults"]
    assert not verdict["unknown"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_tp", 1, "tp above 1"), ("max_cp", 1, "cp above 1"), ("max_stages", 1, "pp above 1"),
        ("orders", 1, "another order of ranks"),
        ("micro_batches", [1, 2], "other than 1, 2 micro-batches"),
    ],
)  # fmt: skip
def test_what_a_set_leaves_out_is_said(key: str, value: Any, said: str) -> None:
    """Whatever its file says of it in words."""
    plans = checker.set_of_jobs(small()[0]["certificate"]["independent"]["set"])
    assert said not in "; ".join(checker.narrower_jobs(plans))
    assert said in "; ".join(checker.narrower_jobs({**plans, key: value}))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("", ["all but virtual stages 1"]),
        ("virtual stages 1, layout even", ["all but virtual stages 1, layout even"]),
        ("virtual stages 12", ["all but virtual stages 12", "all but virtual stages 1"]),
    ],
)
def test_what_a_set_is_limited_to_is_said_once(asked: str, said: list[str]) -> None:
    """Whether its file's words have it or not."""
    found = copy.deepcopy(small()[0])
    limits = found["certificate"]["independent"]["set"]
    limits["asked"], limits["only"] = asked, {"virtual_stages": [1]}
    left = checker.check(read(found))["left_out"]
    assert [one for one in left if "virtual stages" in one] == said


def test_settings_of_a_set_are_said_as_they_are() -> None:
    found = copy.deepcopy(small()[0])
    listed = found["certificate"]["independent"]["set"]["choices"]
    before = checker.check(read(found))["set"]
    listed[:] = [f"parameters sharded {n}" for n in range(len(listed))]
    assert checker.check(read(found))["set"] == before


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"memory_limits_bytes": {"gpu": 1}}, "inputs.memory_limits_bytes.gpu: found 1"),
        ({"cluster": "[[nodes]]\ndevices = 1\ncount = 4"}, "nodes of 4 devices: found 0"),
    ],
)
def test_inputs_are_those_of_the_set(inputs: dict[str, Any], said: str) -> None:
    found = copy.deepcopy(small()[0])
    text = inputs.get("cluster")
    found["inputs"] = {**inputs, "cluster": in_file(text)} if text else inputs
    with pytest.raises(checker.RefusedError, match=said):
        checker.check(read(found))


def test_figures_that_no_float_holds_are_refused_in_a_line() -> None:
    found = copy.deepcopy(small()[0])
    device = found["certificate"]["independent"]["table"]["job"]["device"]
    device["memory_bandwidth"] = 1e-300
    with pytest.raises(checker.RefusedError, match=r"certificate: OverflowError|job: "):
        checker.check(read(found))


@given(SEEDS)
@examples(60, more=5)
def test_any_edit_is_judged_or_refused_in_a_line(seed: int) -> None:
    assert_said_in_lines(edited(small(seed)[0], random.Random(seed)))


# ---- what has no proof ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "asked", "why"),
    [
        ("torchtitan", {}, "`schedule=1f1b` leaves them out"),
        ("megatron", {"layout": "Et*2|tL"}, "layout: asked for"),
        ("megatron", {"schedule": "1f1b"}, ""),
        ("deepspeed", {}, ""),
    ],
)
def test_the_reason_is_said_where_there_is_no_proof(
    space: str, asked: dict[str, str], why: str
) -> None:
    problem = runtime_problem(
        space,
        cluster=small_cluster(1, 4),
        global_batch=8,
        memory_limit=int(9 * GIB),
        constraints=constraints_of(asked),
    )
    assert unproved(problem, 1.0) == why if not why else why in unproved(problem, 1.0)
    assert bool(training_proof(problem, 1e-3)) == (not why)
    assert unproved(problem, math.inf) == "no bound is proved"


SEEING = {"layers": 2, "hidden": 96, "heads": 3, "ffn": 192, "patch": 14, "image_size": 224}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"lengths": Lengths(lengths=(100, 1500), counts=(3, 1))}, "samples of documents"),
        (
            {"lengths": Lengths(lengths=(64, 256), counts=(3, 1), batching=PACKED)},
            "samples of documents",
        ),
        ({"encoder": Encoder(**SEEING)}, "encoders of images or sounds"),
        ({"encoder": Encoder(**SEEING, as_decoder=True)}, "encoders of images or sounds"),
    ],
)
def test_what_costs_do_not_write_down_has_no_proof(changes: dict[str, Any], why: str) -> None:
    problem = runtime_problem("megatron", cluster=small_cluster(2, 2), changes=changes)
    assert unproved(problem, 1.0) == why
    assert training_proof(problem, 1.0) == {}


def test_a_file_that_has_figures_in_place_of_a_job_is_refused_in_a_line() -> None:
    proof = copy.deepcopy(small()[0]["certificate"]["independent"])
    proof["table"] = {"costs": "training", "chains": [[1.0] * 7], "syncs": [], "sends": []}
    with pytest.raises(checker.RefusedError, match="job: missing; an older release"):
        checker.opened(read(proof))
