"""Planning for Megatron-LM: every plan of small cases tried, and what must hold for all."""

import copy
import dataclasses
import itertools
import math
import random
import re
from functools import cache
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError, ProfileError, SpecError, UsageError
from ilp_planner.costs.profiles.analytic_layers import analytic_layers
from ilp_planner.costs.profiles.elements import element_table, routed_elements
from ilp_planner.costs.profiles.link_times import SEND, link_times
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.training.iteration import HOST, megatron_tally
from ilp_planner.costs.training.measured import element_kinds
from ilp_planner.evaluate import evaluate
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Status, Stop
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits, Task
from ilp_planner.spaces.training.bounds.near_cuts import best_spread
from ilp_planner.spaces.training.bounds.schedule import LeastCuts
from ilp_planner.spaces.training.enumerate.partition import CutSearch, best_cut, least_peak
from ilp_planner.spaces.training.search.possible import megatron_parts
from ilp_planner.specs.cluster import NodeGroup
from ilp_planner.specs.decoder import Experts
from ilp_planner.specs.gpt import Gpt
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.t5 import T5
from ilp_planner.specs.training import OFFLOADED, Offload, Recompute
from tests.examples import examples, for_each, often, thinned
from tests.megatron_cases import (
    FEW,
    GIB,
    MIXTURE,
    alone,
    every_plan,
    small_cluster,
    small_model,
    small_problem,
)
from tests.problems import build_megatron_problem

WIDE = {"hidden": 1024, "sequence": 4096, "heads": 8, "ffn": 4096, "vocab": 32000}
SHORT = {"layers": 3, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}


def optimum(problem):
    """Return the least time of all legal plans."""
    times = [
        evaluation.iteration_time
        for plan in every_plan(problem)
        if (evaluation := evaluate(problem, plan)).legal
    ]
    return min(times, default=math.inf)


def assert_optimal(problem):
    """Solve, compare with all legal plans, and return the result."""
    found, best = solve(problem), optimum(problem)
    if math.isinf(best):
        assert found.status is Status.INFEASIBLE
        return found
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert evaluate(problem, found.plan).legal
    return found


@cache
def tight():
    """Return a problem with little memory, and its result: for several tests."""
    problem = small_problem(batch=4, memory_limit=2.4 * GIB, **WIDE)
    return problem, solve(problem)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("cluster", "options"),
    [
        (small_cluster(), {"batch": 4, "memory_limit": 2.2 * GIB, **WIDE}),
        pytest.param(small_cluster(), {"batch": 4, "memory_limit": 2.6 * GIB, **WIDE},
         marks=pytest.mark.slow),
        (small_cluster(1, 2, slow=1), {"batch": 2, "memory_limit": 2.2 * GIB, **WIDE}),
        pytest.param(small_cluster(3, 1, between=2e9), {"batch": 6, **WIDE, "layers": 5},
         marks=pytest.mark.slow),
        (small_cluster(), {"batch": 4, "memory_limit": 2.4 * GIB, "max_cp": 4, **WIDE}),
        (small_cluster(), {"batch": 2, "memory_limit": 2.3 * GIB, **SHORT, "experts": MIXTURE}),
        (small_cluster(), {"batch": 2, **SHORT, "experts": MIXTURE, "bias": False, "gated": True}),
        (small_cluster(2, 1),
         {"batch": 4, **SHORT, "prediction_layers": 1, "tied": False, "positions": "rope"}),
        pytest.param(
            small_cluster(1, 2, slow=1),
            {
                "batch": 4,
                "layers": 5,
                "hidden": 512,
                "heads": 4,
                "sequence": 256,
                "vocab": 4001,
                "ffn": 1000,
                "bias": False,
            },
            marks=pytest.mark.slow,
        ),
        (
            small_cluster(2, 1, between=2e11),
            {
                "batch": 4,
                "layers": 4,
                "hidden": 512,
                "heads": 4,
                "sequence": 2048,
                "vocab": 500,
                "ffn": 512,
                "bias": False,
                "max_tp": 1,
                "memory_limit": 0.98 * GIB,
                "experts": Experts(count=2, top_k=1, ffn=256, dense_first=1),
            },
        ),
    ],
    ids=[
        "tight", "less tight", "two types", "slow links", "context", "experts", "divided experts",
        "prediction", "equal counts, another last digit", "a layer per virtual stage",
    ],
)  # fmt: skip
def test_the_optimum_is_that_of_all_plans(cluster, options):
    assert_optimal(small_problem(cluster, **options))


def test_what_predicts_fits_to_the_byte_with_virtual_stages():
    """Which rank has the last norm depends on where the last layer is."""
    predicts = {"prediction_layers": 1, "tied": False, "positions": "rope"}
    options = {"batch": 4, **SHORT, "layers": 4, **predicts}
    cluster = small_cluster(2, 1)
    problem = small_problem(cluster, **options)
    needs = sorted(
        {
            max(max(stage.memory) for stage in evaluation.stages)
            for plan in every_plan(problem)
            if plan.virtual > 1 and (evaluation := evaluate(problem, plan)).legal
        }
    )
    assert len(needs) > 8
    for need in thinned(needs[::8], 2):
        limit = int(need) + 1
        assert_optimal(small_problem(cluster, **options, memory_limit=limit))


@examples(4)
@given(
    limit=st.floats(1.4, 3.0),
    between=st.sampled_from((1e9, 2e10, 2e11)),
    vocab=st.sampled_from((500, 60000)),
    batch=st.sampled_from((2, 4, 6)),
    tied=st.booleans(),
)
def test_the_optimum_of_random_cases(limit, between, vocab, batch, tied):
    assert_optimal(
        small_problem(
            small_cluster(2, 1, between=between),
            batch=batch,
            memory_limit=limit * GIB,
            **{**SHORT, "vocab": vocab, "tied": tied},
        )
    )


@pytest.mark.parametrize("options", [WIDE, {**SHORT, "experts": MIXTURE}], ids=["alike", "mixed"])
def test_bounds_are_below_what_variants_take(options):
    """Of every variant of every part, with endless memory and slow links."""
    problem = small_problem(small_cluster(1, 2, slow=1, between=3e9), batch=4, **options)
    tried = 0
    for part in megatron_parts(problem, problem.costs):
        least = part.least_bound()
        for variant in thinned(part.variants(), 5):
            if not part.spread(variant):
                continue
            tables = part.tables(variant)
            cut = best_cut(tables).cut
            if cut is not None:
                tried += 1
                value = part.seconds(variant, cut.ends)
                lowest = LeastCuts(tables).seconds + least_peak(tables) + part.ranks.constant
                assert part.bound(variant) <= lowest * (1 + 1e-12)
                assert least <= value * (1 + 1e-12)
                assert lowest <= value * (1 + 1e-12)
                plan = part.group_plan(variant, cut.ends)
                evaluation = evaluate(problem, plan)
                assert evaluation.legal
                assert evaluation.iteration_time == pytest.approx(value, rel=1e-9)
    assert tried > 50


def on_the_host(problem, *, link, share=0.0, **offload):
    """Return a problem whose plans have activations, and a share of the states, on the host, on a
    machine of small figures, so that this decides."""
    types = {
        name: dataclasses.replace(device, host_link=link, host_memory=link)
        for name, device in problem.cluster.device_types.items()
    }
    optimizer = dataclasses.replace(problem.costs.settings.optimizer, offload=share)
    made = dataclasses.replace(
        problem.costs.settings, optimizer=optimizer, offload=Offload(**{"smallest": 0, **offload})
    )
    return dataclasses.replace(
        problem,
        cluster=dataclasses.replace(problem.cluster, device_types=types),
        costs=dataclasses.replace(problem.costs, settings=made, choices=(made,)),
    )


@examples(1, more=12)
@given(
    limit=st.floats(1.4, 3.0),
    link=st.sampled_from((1e9, 3e10, 1e12)),
    share=st.sampled_from((0.0, 0.5, 1.0)),
    modules=st.lists(st.sampled_from(OFFLOADED), unique=True),
    experts=st.sampled_from((None, MIXTURE)),
)
def test_the_optimum_with_something_on_the_host(limit, link, share, modules, experts):
    """The search is right whatever the settings of all its plans are."""
    modules = tuple(modules) + ("core_attn",) * (
        "attn_proj" in modules and "core_attn" not in modules
    )
    problem = small_problem(
        small_cluster(2, 1), batch=4, memory_limit=limit * GIB, **{**SHORT, "experts": experts}
    )
    assert_optimal(on_the_host(problem, link=link, share=share, modules=modules))


def test_bounds_hold_with_something_on_the_host():
    problem = small_problem(small_cluster(1, 2, slow=1, between=3e9), batch=4, **WIDE)
    problem = on_the_host(problem, link=2e9, share=0.5, modules=("qkv_linear", "core_attn"))
    waited = 0
    for part in megatron_parts(problem, problem.costs):
        for variant in thinned(part.variants(), 5):
            cut = best_cut(part.tables(variant)).cut if part.spread(variant) else None
            if cut is not None:
                value = part.seconds(variant, cut.ends)
                evaluation = evaluate(problem, part.group_plan(variant, cut.ends))
                assert evaluation.legal
                assert evaluation.iteration_time == pytest.approx(value, rel=1e-9)
                assert part.bound(variant) <= value * (1 + 1e-12)
                lowest = LeastCuts(part.tables(variant)).seconds
                lowest += least_peak(part.tables(variant)) + part.ranks.constant
                assert lowest <= value * (1 + 1e-12)
                waited += any(HOST in stage.time_terms for stage in evaluation.stages)
    assert waited > 50


def test_few_cuts_at_a_time_come_to_the_same_proof(monkeypatch):
    problem, at_once = tight()
    monkeypatch.setattr("ilp_planner.spaces.training.search.search.NEAR", (0, 0, 1, 4096))
    one_by_one = solve(problem)
    assert one_by_one.stopped_by is at_once.stopped_by is Stop.PROOF
    assert one_by_one.objective == at_once.objective
    monkeypatch.setattr("ilp_planner.spaces.training.search.search.NEAR", (0,))
    assert solve(problem).bound <= at_once.objective * (1 + 1e-12)


@for_each("cuts", [0, 1, 2])
def test_cuts_that_no_time_was_left_for_stay_open(cuts):
    """The bound of a variant is that of its cuts which were not simulated."""
    problem = small_problem(batch=4, **WIDE)
    checked = 0
    for part in megatron_parts(problem, problem.costs):
        for variant in thinned(part.variants(), 5):
            if part.spread(variant):
                left = iter([True] * (cuts + 1) + [False] * 10_000)
                found = best_spread(part, variant, 1e9, no_formula, lambda left=left: next(left))
                whole = best_spread(part, variant, 1e9, no_formula)
                assert found.bound <= whole.bound * (1 + 1e-12)
                checked += whole.cut is not None
    assert checked > 50


def no_formula(tables, cutoff):
    return CutSearch(None, cutoff)


def test_no_plan_is_faster_than_the_bound():
    problem, found = tight()
    bound = found.bound
    for plan in islice(every_plan(problem), 0, None, 7):
        evaluation = evaluate(problem, plan)
        assert not evaluation.legal or evaluation.iteration_time >= bound * (1 - 1e-12)


@pytest.mark.slow
def test_more_memory_is_never_worse():
    times = [
        solve(small_problem(batch=4, memory_limit=limit * GIB, **WIDE)).objective
        for limit in (2.0, 2.3, 2.6, 4.0)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


@pytest.mark.parametrize("solver", ["cp-sat", "milp"])
def test_other_solvers_find_the_same(solver):
    problem = small_problem(small_cluster(2, 1), batch=4, memory_limit=2.6 * GIB, **WIDE)
    mine, other = solve(problem), solve(problem, solver=solver)
    assert other.objective == pytest.approx(mine.objective, rel=1e-6)


def test_certificates_are_derived_again_and_false_ones_refuted():
    problem, found = tight()
    certificate = copy.deepcopy(found.certificate)
    check = check_certificate(problem, certificate)
    assert check.holds
    assert check.bound == pytest.approx(found.objective)
    best = min(certificate["parts"], key=lambda part: part["bound_s"] or math.inf)
    best["bound_s"] *= 1.01
    assert not check_certificate(problem, certificate).holds


def test_a_stop_at_once_keeps_a_bound():
    problem = small_problem(batch=4, **WIDE)
    stopped, best = solve(problem, limits=Limits(seconds=0)), solve(problem)
    assert stopped.stopped_by is Stop.TIME
    assert stopped.bound <= best.objective
    assert best.stopped_by is Stop.PROOF


def test_the_best_plans_differ_and_are_in_order():
    problem = small_problem(batch=4, memory_limit=2.6 * GIB, **WIDE)
    found = solve(problem, top=5)
    times = [entry.evaluation.iteration_time for entry in found.ranking]
    assert len(times) == 5
    assert times == sorted(times)
    assert times[0] == pytest.approx(found.objective)
    shapes = {
        (e.plan.settings, e.plan.virtual, e.plan.ranks, e.plan.stages[0].replicas)
        for e in found.ranking
    }
    assert len(shapes) == 5


def measured(cluster, degrees, factor=1.0):
    """Return a profile of the small model's layers with other times than the estimate."""
    found = analytic_layers(small_model(**SHORT), cluster, [1, 2])
    return dataclasses.replace(
        found,
        source="metis:somewhere",
        time={
            key: factor * seconds / (1 + 0.5 * (key.tp == 2))
            for key, seconds in found.time.items()
            if key.tp in degrees and key.samples <= 2
        },
    )


@pytest.mark.slow
@pytest.mark.parametrize("degrees", often([(1,), (1, 2)], (1, 2)))
def test_measured_times_of_layers_are_used(degrees):
    cluster = small_cluster(1, 2, slow=1)
    model = small_model(**SHORT)

    def problem(factor):
        return build_megatron_problem(
            cluster,
            model,
            global_batch=4,
            profile=measured(cluster, degrees, factor),
            constraints=constraints_of(FEW),
        )

    as_measured = assert_optimal(problem(1.0))
    assert solve(problem(1000.0)).objective > 100 * as_measured.objective


@pytest.mark.slow
@for_each(
    ("seed", "cluster"),
    thinned(
        [(10, small_cluster(1, 1, slow=1)), (15, small_cluster(1, 2)), (16, small_cluster(2, 1))], 2
    ),
)
def test_measured_layers_may_differ(seed, cluster):
    """Then no range of layers stands for the others, and a rank's time depends on its layout; with
    optimiser steps and links that were measured as well."""
    rng = random.Random(seed)
    model = small_model(**{**SHORT, "layers": 4})
    estimate = analytic_layers(model, cluster, [1, 2])
    time = {
        key: row * np.array([rng.choice([1, 1.3, 2, 0.7]) for _ in row])
        for key, row in estimate.time.items()
        if key.samples <= 2 and key.tp <= 2
    }
    steps = {
        pair: 20 * row * np.array([rng.choice([1, 1, 3]) for _ in row])
        for pair, row in estimate.optimizer.items()
    }
    profile = dataclasses.replace(
        estimate, source="metis:somewhere", time=time, optimizer=steps, links=measured_links(rng)
    )
    problem = build_megatron_problem(
        cluster, model, global_batch=4, profile=profile, constraints=constraints_of(FEW)
    )
    found = assert_optimal(problem)
    assert check_certificate(problem, found.certificate).holds
    for plan in islice(every_plan(problem), 0, None, 97):
        assert evaluate(problem, plan) == evaluate(alone(problem), plan)


def holes(rng, cluster, model):
    """Return measured rows of some layers under some degrees: with their messages or without, of
    both passes or of the forward pass as well."""
    routed = routed_elements(model)
    kinds = element_kinds(model)
    base = {"embedding": 1e-4, "dense": 4e-4, "expert": 6e-4, "output": 3e-4}
    rows = []
    for name in cluster.type_names:
        for tp, cp, size in itertools.product((1, 2), (1, 2), (1, 2, 4)):
            for ep, etp in sorted({(1, 1), (1, tp), (2, 1)}) if model.experts else [(0, 0)]:
                slow = rng.choice((0.5, 1.0, 3.0))
                for place, kind in enumerate(kinds):
                    if rng.random() < 0.5 or not (routed[place] or (ep, etp) in ((0, 0), (1, 1))):
                        continue
                    both = base[kind] * slow * size / tp / cp * rng.choice((0.9, 1.0, 1.0))
                    degrees = {"cp": cp} | ({"ep": ep, "etp": etp} if routed[place] else {})
                    rows.append(
                        {
                            "record": "layer", "device": name, "layers": str(place), "tp": tp,
                            "micro_batch": size, **degrees, "time_s": both,
                            **({"forward_s": both / 3} if rng.random() < 0.7 else {}),
                            **({"messages": 2, "message_bytes": 1e6} if rng.random() < 0.7 else {}),
                        }
                    )  # fmt: skip
    last = {"record": "layer", "layers": str(len(kinds) - 1), "tp": 1, "micro_batch": 8}
    rows += [{**last, "device": name, "time_s": 1e-3} for name in cluster.type_names]
    return element_table(measurements_of(rows, "rows.csv"), model)


@examples(1, more=12)
@given(
    seed=st.integers(0, 2**32 - 1),
    cluster=st.sampled_from(
        (small_cluster(1, 2), small_cluster(2, 1), small_cluster(1, 1, slow=1))
    ),
    experts=st.sampled_from((None, MIXTURE, dataclasses.replace(MIXTURE, dense_first=0))),
    ahead=st.booleans(),
    limit=st.sampled_from((None, 2.2 * GIB)),
)
def test_rows_of_some_layers_and_degrees_are_mixed_with_kernels(
    seed, cluster, experts, ahead, limit
):
    """The best plan is that of all plans, whichever rows are missing; and its proof holds."""
    more = {"prediction_layers": 1, "tied": False, "positions": "rope"} if ahead else {}
    model = small_model(**{**SHORT, "experts": experts, **more})
    profile = holes(random.Random(seed), cluster, model.architecture)
    problem = build_megatron_problem(
        cluster,
        model,
        global_batch=2,
        profile=profile,
        max_cp=2,
        memory_limit=limit,
        constraints=constraints_of(FEW),
    )
    assert_optimal(problem)
    found = solve(problem)
    if found.plan is not None:
        assert check_certificate(problem, found.certificate).holds
        cost = evaluate(problem, found.plan).cost
        tally = megatron_tally(problem.costs.ranks(found.plan, cluster), found.plan, cost)
        assert tally.total == pytest.approx(cost.iteration_time)


def measured_links(rng):
    """Return some collectives and messages of the small clusters, none of them a straight line."""
    groups = [("all_gather", 2, 1), ("reduce_scatter", 2, 1), ("all_reduce", 2, 2), (SEND, 2, 1)]
    groups += [("reduce_scatter", 2, 2), ("all_gather", 2, 2), (SEND, 2, 2)]
    rows = [
        {
            "record": "point_to_point" if name == SEND else "collective",
            "name": name, "group_size": size, "hosts": hosts, "stride": hosts, "groups": 1,
            "bytes": count, "time_s": 1e-4 + (count / 1e9) ** 1.2 * hosts * factor,
        }
        for name, size, hosts in rng.sample(groups, 5)
        for factor in [rng.choice([0.1, 1, 5])]
        for count in (2**12, 2**18, 2**24, 2**28)
    ]  # fmt: skip
    return link_times(measurements_of(rows, "links.csv"))


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [WIDE, {**SHORT, "experts": MIXTURE}], ids=["alike", "mixed"])
def test_too_little_memory_is_told_with_what_would_do(options):
    problem = small_problem(batch=4, memory_limit=1.1 * GIB, **options)
    text = problem.space.explain(problem.space.begin(problem, Task(Limits(), "auto")))
    found = re.search(
        r"; ([\d.]+) GiB on each a100 would do, ([\d.]+) \wiB more, with none to spare$", text
    )
    assert found is not None, text
    limit = float(found[1]) * GIB
    assert solve(small_problem(batch=4, memory_limit=limit, **options)).plan is not None
    assert solve(small_problem(batch=4, memory_limit=0.9 * limit, **options)).plan is None


def test_profiles_of_other_models_are_refused():
    cluster = small_cluster()
    with pytest.raises(ProfileError, match=r"profiled with 5 layers, .* found 6 in small"):
        build_megatron_problem(
            cluster, small_model(), global_batch=4, profile=measured(cluster, (1,))
        )


# ---- rules --------------------------------------------------------------------------------------


def first_plan(problem, wanted):
    return next(plan for plan in every_plan(problem) if wanted(plan))


def broken(problem, plan):
    return {violation.rule for violation in evaluate(problem, plan).violations}


def test_interleaving_needs_whole_groups_of_micro_batches():
    problem = small_problem(batch=3, **SHORT)
    plan = first_plan(problem, lambda p: p.virtual == 2 and p.ranks == 2 and p.micro_batches == 3)
    assert "virtual stages" in broken(problem, plan)
    assert not any(v.virtual > 1 for part in megatron_parts(problem, problem.costs)
                   for v in part.variants() if part.micro_batches % part.degrees.pp)  # fmt: skip


def test_more_layers_again_than_there_are_are_refused():
    problem = small_problem(batch=2, **SHORT)
    plan = first_plan(problem, lambda p: p.ranks == 2)
    again = Recompute(granularity="full", method="block", layers=4)
    wrong = dataclasses.replace(plan, settings=dataclasses.replace(plan.settings, recompute=again))
    assert "recompute layers" in broken(problem, wrong)


def test_uniform_chunks_divide_every_stage():
    problem = small_problem(batch=2, **{**SHORT, "layers": 4})
    plan = first_plan(problem, lambda p: [s.stop for s in p.stages] == [4, 6])
    for layers, wrong in ((1, False), (2, True), (3, True)):
        again = Recompute(granularity="full", method="uniform", layers=layers)
        settings = dataclasses.replace(plan.settings, recompute=again)
        found = broken(problem, dataclasses.replace(plan, settings=settings))
        assert ("recompute layers" in found) == wrong


def test_token_prediction_needs_rotary_positions():
    with pytest.raises(SpecError, match="found learned with multi-token prediction, expected rope"):
        small_problem(batch=2, **SHORT, prediction_layers=1)


def test_experts_keep_the_pipeline_groups():
    problem = small_problem(batch=4, **{**SHORT, "experts": MIXTURE})
    plan = first_plan(
        problem,
        lambda p: p.settings.order.endswith("pp-dp") and p.ranks == 2 and p.stages[0].dp == 2
        and p.settings.ep * p.settings.etp != p.stages[0].tp,
    )  # fmt: skip
    assert "rank order" in broken(problem, plan)


def test_ranks_fill_nodes_in_order():
    problem = small_problem(small_cluster(2, 2), batch=2, **SHORT)
    plan = first_plan(
        problem, lambda p: p.ranks == 2 and p.stages[0].tp == 2 and p.settings.cp == 1
    )
    first, second = (stage.replicas for stage in plan.stages)
    hosts = dataclasses.replace(
        plan,
        stages=(
            dataclasses.replace(plan.stages[0], replicas=second),
            dataclasses.replace(plan.stages[1], replicas=first),
        ),
    )
    assert evaluate(problem, hosts).legal  # other hosts first
    crossed = dataclasses.replace(
        plan,
        stages=tuple(
            dataclasses.replace(
                stage, replicas=(dataclasses.replace(stage.replicas[0], devices=devices),)
            )
            for stage, devices in zip(plan.stages, ((0, 2), (1, 3)), strict=True)
        ),
    )
    assert broken(problem, crossed) == {"rank order"}


@for_each(("heads", "kv", "expected"), [(4, 4, {1, 2}), (4, 1, {1, 2}), (6, 3, {1})])
def test_tensor_degrees_divide_heads_and_groups(heads, kv, expected):
    problem = small_problem(
        small_cluster(1, 2), batch=2, layers=2, hidden=64 * heads, heads=heads, kv_heads=kv
    )
    degrees = {part.degrees.tp for part in megatron_parts(problem, problem.costs)}
    assert degrees == expected


def test_unequal_nodes_and_other_families_are_refused():
    cluster = small_cluster()
    uneven = dataclasses.replace(
        cluster, nodes=(*cluster.nodes, NodeGroup(device="a100", devices=1))
    )
    with pytest.raises(SpecError, match="equally many devices for Megatron-LM"):
        build_megatron_problem(uneven, small_model(), global_batch=8)
    t5 = T5(
        layers=2, hidden=256, heads=8, kv_channels=64, encoder_sequence=256, decoder_sequence=64,
        vocab=4096,
    )  # fmt: skip
    other = ModelSpec(name="t5", precision="bf16", architecture=t5)
    with pytest.raises(SpecError, match="family must be gpt or decoder"):
        build_megatron_problem(cluster, other, global_batch=8)
    with pytest.raises(UsageError, match="max_cp: must be at least 1, found 0"):
        build_megatron_problem(cluster, small_model(), global_batch=8, max_cp=0)
    sizes = {"max_stages": 1, "max_tp": 1, "max_cp": 1}
    with pytest.raises(InfeasibleError, match="dp 4: does not divide the global batch 3"):
        build_megatron_problem(cluster, small_model(), global_batch=3, **sizes)


def test_a_gpt_is_planned_like_the_decoder_it_is():
    gpt = Gpt(layers=4, hidden=256, heads=4, sequence=512, vocab=2000)
    model = ModelSpec(name="small", precision="bf16", architecture=gpt)
    cluster = small_cluster()
    mine = solve(build_megatron_problem(cluster, model, global_batch=8))
    decoder = small_problem(cluster, ffn=1024)
    assert solve(decoder).objective == pytest.approx(mine.objective)


def test_what_is_given_up_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variant is done with after so many cuts; where its bound is below the best plan, effort has
    ended the search."""
    monkeypatch.setattr("ilp_planner.spaces.training.search.search.NEAR", (1,))
    problem = small_problem(small_cluster(4, 1, between=2e10), batch=6, **{**WIDE, "layers": 6})
    found = solve(problem)
    assert found.stopped_by is Stop.EFFORT
    assert found.status is Status.FEASIBLE
    assert found.gap > 0
