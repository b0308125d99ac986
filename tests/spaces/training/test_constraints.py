"""Plans with constraints: the best of all plans that keep them, tried one by one."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.rules import check_arguments
from ilp_planner.inputs.constraints import DEGREES, constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.coverage import coverage_of
from ilp_planner.optimize.result import Status
from ilp_planner.optimize.solve import solve
from ilp_planner.plan import GroupPlan
from ilp_planner.spaces.training.enumerate.choices import values_of
from ilp_planner.spaces.training.search.conflict import CHANGES
from ilp_planner.specs.training import ORDERS, RECOMPUTATIONS, RECOMPUTED
from tests.examples import examples, for_each
from tests.megatron_cases import FEW, GIB, MIXTURE, every_plan, small_cluster, small_problem
from tests.runtime_cases import runtime_problem

SHORT = {"layers": 3, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}
TRIED = {
    "sharding": ("none", "optimizer", "parameters"),
    "cp_comm": ("p2p", "a2a"),
    "gradients": ("fp32", "bf16"),
    "moments": ("fp32", "bf16"),
    "tensor_overlap": ("off", "on"),
}
NUMBERS = st.none() | st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=3)


def keeps(plan: GroupPlan, said: dict[str, list[int | str]]) -> bool:
    """Tell whether a plan has what was asked for."""
    assert plan.settings is not None
    again, cp = plan.settings.recompute, plan.settings.cp
    has = {
        "tp": plan.stages[0].tp // plan.settings.cp,
        "pp": plan.ranks,
        "cp": plan.settings.cp,
        "ep": plan.settings.ep,
        "dp": plan.stages[0].dp,
        "micro_batch_size": plan.global_batch // plan.micro_batches // plan.stages[0].dp,
        "virtual_stages": plan.virtual,
        "rank_order": plan.settings.order,
        "recompute": "block" if again.method == "block" else again.granularity,
        **values_of(plan.settings),
    }
    has["micro_batch_group_size"] = plan.settings.turn or plan.ranks
    for name, idle in (
        ("cp_comm", cp == 1),
        ("tensor_overlap", has["tp"] == 1),
        ("micro_batch_group_size", plan.virtual == 1),
    ):
        has[name] = said.get(name, [""])[0] if idle else has[name]
    modules = {*again.modules} & {*said.get("recompute", ())} == {*again.modules} != set()
    return all(
        has[name] in values or (name == "recompute" and modules) for name, values in said.items()
    )


def best(problem: Problem, said: dict[str, list[int | str]]) -> float:
    """Return the least time of the legal plans that keep what was asked for."""
    times = (
        evaluate(problem, plan).iteration_time
        for plan in every_plan(problem)
        if keeps(plan, said) and evaluate(problem, plan).legal
    )
    return min(times, default=math.inf)


@st.composite
def demands(draw: st.DrawFn) -> dict[str, list[int | str]]:
    """Draw what plans must have, some of it impossible."""
    said = {name: draw(NUMBERS) for name in DEGREES}
    for name, known in (("rank_order", ORDERS), ("recompute", (*RECOMPUTATIONS, "layernorm"))):
        said[name] = draw(st.none() | st.lists(st.sampled_from(known), min_size=1, unique=True))
    kept = draw(st.sets(st.sampled_from(sorted(said)), max_size=4))
    for name in TRIED:
        said[name] = [draw(st.sampled_from(TRIED[name]))]
        kept.add(name)
    if said["sharding"] == ["none"]:
        said["moments"] = ["fp32"]  # Megatron's others are sharded
    few = {name: text.split(",") for name, text in FEW.items()}
    return few | {name: values for name, values in said.items() if values and name in kept}


def sizes_of(*sizes: int) -> dict[str, list[int | str]]:
    """Return demands for micro-batches of these sizes, which are not those of the fastest plan."""
    return {name: text.split(",") for name, text in FEW.items()} | {"micro_batch_size": [*sizes]}


@examples(1, more=16)
@given(
    said=demands(),
    cluster=st.sampled_from((small_cluster(2, 1), small_cluster(), small_cluster(1, 2, slow=1))),
    limit=st.sampled_from((None, 1.6 * GIB, 2.2 * GIB)),
    experts=st.sampled_from((None, MIXTURE)),
)
@example(said=sizes_of(2), cluster=small_cluster(1, 2, slow=1), limit=None, experts=None)
@example(said=sizes_of(4), cluster=small_cluster(1, 2, slow=1), limit=None, experts=None)
@example(said=sizes_of(1, 4), cluster=small_cluster(2, 1), limit=None, experts=MIXTURE)
def test_the_optimum_is_that_of_all_plans_that_keep_them(said, cluster, limit, experts):
    options = {"batch": 4, "memory_limit": limit, **SHORT, "experts": experts}
    options["max_cp"] = max(said.get("cp", [1]))
    made = (*TRIED, "recompute", "micro_batch_group_size")
    of_jobs = {name: said[name] for name in made if name in said}
    every = small_problem(cluster, constraints=constraints_of(of_jobs), **options)
    least = best(every, said)
    try:
        problem = small_problem(cluster, constraints=constraints_of(said), **options)
    except InfeasibleError:
        assert math.isinf(least)
        return
    found = solve(problem)
    if math.isinf(least):
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(least, rel=1e-9)
    assert keeps(found.plan, said)
    assert problem.space.outside(problem, found.plan) is None
    assert check_certificate(problem, found.certificate).holds


def test_plans_that_break_one_are_legal_and_outside():
    every = small_problem(batch=4, **SHORT)
    asked = constraints_of({"tp": 2, "pp": 1, "recompute": "none,full"})
    problem = small_problem(batch=4, constraints=asked, **SHORT)
    seen = set()
    for plan in every_plan(every):
        if not evaluate(problem, plan).legal:
            continue
        outside = coverage_of(problem, plan, legal=True).outside
        if outside is None:
            assert keeps(plan, {"tp": [2], "pp": [1], "recompute": ["none", "full"]})
        seen.add(outside and outside.partition(":")[0])
    assert {None, "tp", "pp", "recompute"} <= seen
    among = coverage_of(problem, plan, legal=True).among
    assert "micro-batches, tp 2, pp 1, recompute none or full, of the planner's" in among
    assert "; recomputation none or uniform 1;" in among


@pytest.mark.parametrize(("cp", "sizes"), [(4, {2}), (8, {2, 4})])
def test_a_ring_of_exchanges_has_the_best_inner_ranks(cp, sizes):
    """All that Megatron-LM's own checks take; the judge refuses what divides no heads or ranks."""
    asked = constraints_of({"cp": cp, "cp_comm": "a2a+p2p", "recompute": "none", "tp": 1})
    problem = small_problem(
        small_cluster(1, 8), batch=2, max_cp=8, constraints=asked, **{**SHORT, "heads": 8}
    )
    found = solve(problem)
    times = {}
    for inner in range(9):
        settings = replace(found.plan.settings, cp_inner=inner)
        plan = replace(found.plan, settings=settings)
        evaluation = evaluate(problem, plan)
        assert evaluation.legal == (inner > 0 and cp % inner == 0)
        if problem.space.contains(problem, plan):
            times[inner] = evaluation.iteration_time
            words = arguments_of_job(problem.costs.job(plan, problem.cluster))
            assert not any(finding.rejected for finding in check_arguments(words))
    assert set(times) == sizes
    assert found.objective == pytest.approx(min(times.values()))


@pytest.mark.parametrize("solver", ["anneal", "gradient"])
def test_heuristics_keep_them(solver):
    said = {"pp": [2], "virtual_stages": [2], "recompute": ["block"]}
    found = solve(small_problem(batch=4, constraints=constraints_of(said), **SHORT), solver=solver)
    assert found.plan is not None
    assert keeps(found.plan, said)


@for_each(
    ("said", "options", "words"),
    [
        ({"tp": 4}, {}, "`tp=4`: no plan of small on 4 devices has it; `tp=2` would do"),
        ({"tp": 4, "pp": 2}, {}, "`tp=4`: no plan of small on 4 devices has it; `tp=2` would do"),
        ({"tp": 2, "pp": "3..4", "dp": [1, 2]}, {},
         "`tp=2`, `pp=3..4`: no plan of small on 4 devices has both; `tp=1` would do"),
        ({"tp": 1, "pp": 2, "cp": 1, "dp": 1}, {},
         "`tp=1`, `pp=2`, `cp=1`, `dp=1`: no plan of small on 4 devices has all of them; `tp=2`"),
        ({"tp": 2, "pp": 4, "dp": 4}, {},
         "`tp=2`, `pp=4`: no plan of small on 4 devices has both; `tp=1` with `pp=1` would do"),
        ({"ep": 2}, {}, "`ep=2`: no plan of small on 4 devices has it; `ep=1` would do"),
        ({"pp": 1, "virtual_stages": 2}, {}, "`pp=1`, `virtual_stages=2`: no plan"),
        ({"tp": 2}, {"max_tp": 1}, "`tp=2`, `max_tp=1`: no plan"),
        ({"dp": 4}, {"micro_batch_sizes": (2,)}, "`dp=4`, `micro_batch_sizes=2`: no plan"),
        ({"dp": 4, "max_devices": 2}, {}, "`dp=4`, `max_devices=2`: no plan of small on 2 devices"),
    ],
)  # fmt: skip
def test_an_impossible_set_names_what_contradicts(said, options, words):
    with pytest.raises(InfeasibleError, match=f"^{re.escape(words)}"):
        small_problem(batch=4, constraints=constraints_of(said), **options)


@pytest.mark.parametrize("experts", [None, MIXTURE])
def test_what_no_layer_can_recompute_is_named(experts):
    """Of all parts that selective recomputation names, alone."""
    has, refused = set(), {}
    for part in RECOMPUTED:
        try:
            small_problem(batch=4, constraints=constraints_of({"recompute": part}), experts=experts)
            has.add(part)
        except InfeasibleError as error:
            refused[part] = str(error)
    for part, text in refused.items():
        said = f": recompute: found {part}, expected some of its layers' core_attn, layernorm"
        assert said in text
    assert {"core_attn", "layernorm"} <= has
    assert refused.keys() >= {"mhc", "mla_up_proj"}
    assert ("moe" in has) == (experts is not None)


@examples(20)
@given(said=demands(), experts=st.sampled_from((None, MIXTURE)))
def test_a_conflict_is_one_and_a_repair_repairs(said, experts):
    """What is named is impossible alone, possible without any one of it, and with what would do
    instead everything that was said is possible."""

    def possible(some):
        try:
            small_problem(batch=4, constraints=constraints_of(some), **SHORT, experts=experts)
        except InfeasibleError as error:
            return str(error)
        return ""

    text = possible(said)
    if not text:
        return
    shown, _, rest = text.partition(": no plan")
    names = re.findall(r"`(\w+)=", shown)
    conflict = {name: said[name] for name in names}
    assert possible(conflict)
    assert not any(possible({k: v for k, v in conflict.items() if k != n}) for n in names)
    repair = dict(re.findall(r"`(\w+)=([^`]+)`", rest))
    assert repair or len(said) > max(CHANGES)
    assert not possible({**said, **repair})
    assert len(set(repair) & set(names)) >= min(1, len(repair))


@examples(1, more=48)
@given(
    said=demands(),
    limit=st.sampled_from((1.3 * GIB, 1.6 * GIB, 2.0 * GIB)),
    experts=st.sampled_from((None, MIXTURE)),
)
def test_what_is_said_of_too_little_memory_is_true(said, limit, experts):
    """With as much memory as would do there is a plan, and so there is without the constraint that
    is said to be in the way."""
    options = {"batch": 4, **SHORT, "experts": experts}
    asked = constraints_of({**said, "headroom": int(0.5 * GIB)})
    try:
        problem = small_problem(constraints=asked, memory_limit=limit, **options)
    except InfeasibleError:
        return
    found = solve(problem)
    if found.plan is not None:
        return
    if match := re.search(r"; ([\d.]+) GiB on each a100 would do", found.reason):
        more = float(match[1]) * GIB + asked.headroom
        assert solve(small_problem(constraints=asked, memory_limit=more, **options)).plan
    if match := re.search(r"; without (\D+?) \S+( \wi?B)? a plan fits$", found.reason):
        fewer = asked.but([match[1].replace(" ", "_")])
        assert solve(small_problem(constraints=fewer, memory_limit=limit, **options)).plan


def test_the_constraint_that_memory_is_too_little_for_is_named():
    asked = constraints_of({"headroom": 80 * GIB - 2**28, "dp": 1})
    problem = small_problem(batch=4, constraints=asked, **{**SHORT, "layers": 12})
    assert solve(problem).plan is None
    text = solve(problem).reason
    assert text.endswith("; without headroom 81664 MiB a plan fits"), text


@for_each(
    ("space", "said", "why"),
    [
        ("megatron", {"lora": "8", "freeze": "mlp"}, "whole layers beside adapters"),
        ("megatron", {"lora": "9999"}, "at most the width of the model"),
        ("megatron", {"freeze": "layers:0-9"}, "layers from 0 to 1"),
        ("megatron", {"freeze": "experts"}, "some of attention, mlp, norms, embedding, output"),
        ("megatron", {"freeze": "embedding,output,layers:0-1"}, "a part that is trained"),
        ("megatron", {"lora_targets": "linear_kv_up_proj"}, "some of linear_qkv"),
        ("torchtitan", {"lora": "8", "tp": "2"}, "which has replicas alone"),
        ("deepspeed", {"lora": "8", "tp": "2"}, "which has replicas alone"),
    ],
)
def test_a_rule_that_all_plans_with_a_demand_break_is_said(space, said, why):
    with pytest.raises(
        InfeasibleError, match=f"no plan of .* has (it|both): .*{why}.*(would do|some)$"
    ):
        runtime_problem(
            space,
            cluster=small_cluster(1, 4),
            constraints=constraints_of(said),
            changes={"layers": 2},
        )


@for_each(
    ("said", "why"),
    [
        ({"cuda_graphs": "layer"}, "CUDA graphs: found layer with experts"),
        ({"cuda_graphs": "full_iteration"}, "CUDA graphs: found full_iteration with experts"),
        ({"cp": "2", "cp_comm": "a2a+p2p"}, "ring of exchanges: found 2 of 2"),
        (
            {"optimizer_offload": "0.5", "sharding": "gradients"},
            "optimizer offload: found states on the host, sharded by gradients",
        ),
    ],
)
def test_what_megatron_would_not_run_as_it_says_is_said(said, why):
    with pytest.raises(InfeasibleError, match=f"no plan of .* has (it|both): {why}.* would do$"):
        small_problem(experts=MIXTURE, constraints=constraints_of(said))


@for_each(
    ("space", "said", "batch", "repair"),
    [
        ("torchtitan", {"lora": "8"}, 4, {"global_batch": "3"}),
        ("deepspeed", {"lora": "8"}, 16, {"global_batch": "15"}),
        ("torchtitan", {"lora": "8", "qlora": "on"}, 5, {"global_batch": "6"}),
        ("torchtitan", {"freeze": "embedding"}, 7, {"global_batch": "6"}),
        ("torchtitan", {"lora": "8", "tp": "3"}, 3, {"tp": "1"}),
        ("torchtitan", {"lora": "8", "pp": "3"}, 6, {"pp": "1"}),
        ("megatron", {"lora": "9999"}, 6, {"lora": "0"}),
    ],
)
def test_a_repair_trains_the_same_where_one_does(space, said, batch, repair):
    """Another degree, else another batch; what is trained is changed where nothing else would
    do. On three devices, which PEFT has as replicas alone."""

    def problem(batch, said):
        return runtime_problem(
            space,
            cluster=small_cluster(1, 3),
            global_batch=batch,
            constraints=constraints_of(said),
            changes={"layers": 2},
        )

    with pytest.raises(InfeasibleError) as refused:
        problem(batch, said)
    assert dict(re.findall(r"`(\w+)=([^`]+)`", str(refused.value).rpartition(";")[2])) == repair
    other = {**repair}
    problem(int(other.pop("global_batch", batch)), {**said, **other})


def test_no_rule_is_said_of_degrees_that_do_not_go_together():
    with pytest.raises(InfeasibleError, match=r"devices has it; `\w+=\d` would do$"):
        small_problem(constraints=constraints_of({"tp": 4, "pp": 4}))
