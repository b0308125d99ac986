"""What whole jobs choose where it is asked for: the best of all such plans, and what Megatron's
arguments say of it."""

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.errors import InfeasibleError, UsageError
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.stages import describe_training
from ilp_planner.formats.megatron.arguments import arguments_of_job, job_of_arguments
from ilp_planner.formats.megatron.plan import job_of_plan
from ilp_planner.inputs.constraints import CHOICES as ASKABLE
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.certificate import check_certificate
from ilp_planner.optimize.result import Result, Status
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.training.enumerate.choices import CHOICES, decided
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.model import ModelSpec
from ilp_planner.specs.training import QUANTISED, SHARDINGS, Kernels, Settings
from tests.examples import examples, for_each, thinned
from tests.megatron_cases import FEW, GIB, MIXTURE, every_plan, small_cluster, small_problem
from tests.runtime_cases import runtime_problem

SHORT = {"layers": 3, "hidden": 512, "sequence": 2048, "heads": 4, "ffn": 2048, "vocab": 16000}
H100 = gpu_cluster(parse_gpus("4xH100"))
ASKED = (
    "tensor_overlap", "expert_overlap", "cuda_graphs", "optimizer_offload", "dispatcher",
    "fused_permute", "sharding_copies", "activation_offload",
)  # fmt: skip


def asked_problem(said: dict[str, list[str]], **options: object) -> Problem:
    """Return a small problem with some values of choices and few of the others."""
    options = {"batch": 4, **SHORT, **options}
    return small_problem(constraints=constraints_of({**FEW, **said}), **options)


@st.composite
def demands(draw: st.DrawFn) -> dict[str, list[str]]:
    """Draw some values of one choice or two."""
    every = [name for name in ASKED if name != "sharding_copies"]  # need more devices: below
    names = draw(st.lists(st.sampled_from(every), min_size=1, max_size=2, unique=True))
    some = {"min_size": 1, "max_size": 2, "unique": True}
    return {name: draw(st.lists(st.sampled_from(ASKABLE[name]), **some)) for name in names}


@examples(1, more=16)
@given(
    said=demands(),
    cluster=st.sampled_from((small_cluster(2, 1), small_cluster(1, 2))),
    limit=st.sampled_from((None, 1.6 * GIB, 2.2 * GIB)),
    experts=st.sampled_from((None, MIXTURE)),
)
def test_the_optimum_is_that_of_all_plans_with_the_values(said, cluster, limit, experts):
    try:
        options = {"memory_limit": limit, "experts": experts, "batch": 2}
        problem = asked_problem(said, cluster=cluster, **options)
    except InfeasibleError:
        assume(False)
    legal = [e for plan in every_plan(problem) if (e := evaluate(problem, plan)).legal]
    found = solve(problem)
    if not legal:
        assert found.status is Status.INFEASIBLE
        return
    assert found.status is Status.OPTIMAL
    least = min(each.iteration_time for each in legal)
    assert found.objective == pytest.approx(least, rel=1e-9)
    assert problem.space.outside(problem, found.plan) is None
    assert check_certificate(problem, found.certificate).holds


def test_copies_cost_memory_and_the_best_of_all_plans_is_found() -> None:
    options = {"cluster": small_cluster(2, 2, between=1e9), "batch": 4}
    said = {"pp": "1", "recompute": "none", "tp": "1"}
    found = {n: solve(asked_problem({**said, "sharding_copies": n}, **options)) for n in ("1", "2")}
    both = asked_problem({**said, "sharding_copies": ["1", "2"]}, **options)
    assert solve(both).objective == min(each.objective for each in found.values())
    plans = [plan for plan in every_plan(both) if both.space.contains(both, plan)]
    legal = [e.iteration_time for plan in plans if (e := evaluate(both, plan)).legal]
    assert solve(both).objective == pytest.approx(min(legal), rel=1e-9)
    assert {plan.settings.optimizer.instances for plan in plans} == {1, 2}
    for count, each in found.items():
        assert each.plan.settings.optimizer.instances == int(count)
    peaks = [evaluate(both, each.plan).memory for each in found.values()]
    assert peaks[0] < peaks[1]


@for_each("said", [0, "0", "1..2", 1.5, "two", True])
def test_copies_are_whole_numbers(said: object) -> None:
    with pytest.raises(UsageError, match=r"^sharding_copies: .* whole numbers of at least 1"):
        constraints_of({"sharding_copies": said})


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "value"), [(n, v) for n in ASKED for v in ASKABLE[n]])
def test_megatron_reads_what_is_chosen(name: str, value: str) -> None:
    """Plans are written with arguments that Megatron's rules accept, and that say the same; and
    people read of what is not usual."""
    chosen = set()
    for experts in (None, MIXTURE):
        try:
            said = {name: [value], "recompute": [*FEW["recompute"].split(","), "moe", "mlp"]}
            cluster = small_cluster(1, 4 if name == "sharding_copies" else 2)
            problem = asked_problem(said, cluster=cluster, experts=experts)
        except InfeasibleError as error:
            assert f"`{name}={value}`" in str(error)  # noqa: PT017
            continue
        model = ModelSpec(name="small", precision="bf16", architecture=problem.costs.model)
        every = ((p, v) for p in problem.space.parts(problem) for v in p.variants())
        for part, variant in thinned(every, 29):
            stages = part.degrees.pp * (1 if part.spread(variant) else variant.virtual)
            plan = part.group_plan(variant, (*range(stages), part.costs.model.layers + 2))
            if evaluate(problem, plan).legal:
                job = job_of_plan(plan, model, problem.cluster)
                assert job_of_arguments(arguments_of_job(job)).settings == job.settings
                if found := decided(job.settings, replicated=True).get(name):
                    usual = CHOICES[name].write(plan.settings, ASKABLE[name][0])
                    plain = describe_training(replace(plan, settings=usual))
                    assert (describe_training(plan) == plain) == (found == ASKABLE[name][0])
                    chosen.add(found)
    assert value in chosen


def test_tensor_overlap_is_faster_and_noted() -> None:
    """It hides a share of the messages, for buffers that are not counted."""
    plain = asked_problem({}, cluster=small_cluster(1, 2))
    both = asked_problem({"tensor_overlap": ["on"], "tp": ["2"]}, cluster=small_cluster(1, 2))
    found = solve(both)
    settings = found.plan.settings
    assert settings.overlap_tensor
    assert found.objective < solve(asked_problem({"tp": ["2"]}, cluster=small_cluster(1, 2))).bound
    assert any(note.startswith("tensor overlap on: not counted") for note in both.notes)
    assert "not counted" not in " ".join(plain.notes)
    assert "tensor_overlap: found on" not in (both.space.outside(both, found.plan) or "")


def test_tensor_overlap_is_not_tried_where_there_is_none() -> None:
    """Megatron turns it off with latent attention, and its buffers have numbers of 2 bytes."""
    asked = constraints_of({"tensor_overlap": "on"})
    problem = runtime_problem("megatron", "latent", constraints=asked)
    assert {part.degrees.tp for part in problem.space.parts(problem)} == {1}
    with pytest.raises(InfeasibleError, match="`tensor_overlap=on`"):
        runtime_problem("megatron", constraints=asked, precision="fp32", cluster=H100)


@pytest.mark.parametrize(("kv_heads", "expected"), [(2, {2}), (4, {2, 4})])
def test_inner_ranks_of_a_ring_are_searched(kv_heads: int, expected: set[int]) -> None:
    """All numbers of ranks that exchange heads, but those that are another way to say p2p or a2a:
    the heads and groups that they exchange must be divisible."""
    said = {"cp_comm": ["a2a+p2p"], "cp": ["8"], "sharding": ["optimizer"]}
    problem = asked_problem(said, kv_heads=kv_heads, max_cp=8, cluster=small_cluster(2, 4))
    parts = problem.space.parts(problem)
    assert {part.settings.cp_inner for part in parts} == expected
    assert len({part.name for part in parts}) == len(parts)
    with pytest.raises(InfeasibleError, match="`cp=8`, `cp_comm=a2a\\+p2p`"):
        asked_problem(said, kv_heads=1, max_cp=8, cluster=small_cluster(2, 4))


def test_the_best_inner_ranks_are_found() -> None:
    said = {"cp_comm": ["a2a+p2p"], "cp": ["4"], "sharding": ["optimizer"]}
    problem = asked_problem(said, max_cp=4)
    plans = [p for p in every_plan(problem) if p.settings.cp == 4 and p.settings.cp_inner < 4]
    legal = [e.iteration_time for p in plans if (e := evaluate(problem, p)).legal]
    found = solve(problem)
    assert found.status is Status.OPTIMAL
    assert found.plan.settings.cp_inner == 2
    assert found.objective == pytest.approx(min(legal), rel=1e-9)
    assert problem.space.outside(problem, found.plan) is None
    model = ModelSpec(name="small", precision="bf16", architecture=problem.costs.model)
    job = job_of_plan(found.plan, model, problem.cluster)
    assert job_of_arguments(arguments_of_job(job)).settings == job.settings


def test_expert_overlap_needs_virtual_stages_and_layers_that_are_kept() -> None:
    asked = constraints_of({"expert_overlap": "on", "ep": 2})
    problem = runtime_problem("megatron", "experts", constraints=asked)
    parts = problem.space.parts(problem)
    assert {part.degrees.pp for part in parts} == {1, 2}
    for part in parts:
        for variant in part.variants():
            assert variant.recompute.granularity != "full"
            assert "moe" not in variant.recompute.modules
            assert variant.virtual > 1 or part.degrees.pp == 1
    with pytest.raises(InfeasibleError, match="`expert_overlap=on`"):
        runtime_problem("megatron", "experts", constraints=asked.with_(recompute=("full",)))


def test_a_plan_that_breaks_a_rule_of_overlap_or_graphs_is_illegal() -> None:
    said = {"ep": 2, "pp": 2, "virtual_stages": 1, "recompute": "none,full"}
    problem = runtime_problem("megatron", "experts", constraints=constraints_of(said))
    plan = solve(problem).plan
    kernels = replace(plan.settings.kernels, graphs="transformer_engine", graphed=("mlp", "moe"))
    for changes, rules in (
        ({"overlap_experts": True}, {"expert overlap"}),
        ({"kernels": kernels}, {"CUDA graphs"}),
    ):
        broken = replace(plan, settings=replace(plan.settings, **changes))
        assert {each.rule for each in evaluate(problem, broken).violations} == rules


def test_states_go_to_the_host_as_memory_falls() -> None:
    """And no more of them than has to: stepping them there takes longer. Without that there is no
    plan in little memory, and bounds do not say that there is none."""

    def found(limit: float, *shares: str) -> Result:
        options = {"cluster": small_cluster(1, 1), "memory_limit": limit * GIB}
        return solve(asked_problem({"optimizer_offload": [*shares]}, **options))

    limits = (1.4, 1.2, 1.1)
    both = [found(limit, "0", "0.5", "1") for limit in limits]
    assert all(each.status is Status.OPTIMAL for each in both)
    assert [each.plan.settings.optimizer.offload for each in both] == [0, 0.5, 1]
    assert found(limits[-1], "0").status is Status.INFEASIBLE
    assert both[0].objective < both[1].objective < both[2].objective
    assert both[1].objective < found(limits[1], "1").objective


@for_each("said", ["2", "-1", "half", "1e-3", "nan", True])
def test_shares_are_numbers_up_to_one(said: object) -> None:
    with pytest.raises(UsageError, match=r"^optimizer_offload: .* shares from 0 to 1"):
        constraints_of({"optimizer_offload": said})


def test_shares_have_one_text() -> None:
    for said in ("0.50,0,1.0", [0.5, 0, 1.0], ["0.5", "0", "1"]):
        assert constraints_of({"optimizer_offload": said}).optimizer_offload == ("0", "0.5", "1")


def test_what_is_not_sharded_has_no_states_on_the_host_and_none_of_other_widths() -> None:
    for said in ({"optimizer_offload": "1"}, {"moments": "bf16"}):
        with pytest.raises(InfeasibleError, match="`sharding=none`"):
            runtime_problem("megatron", constraints=constraints_of({"sharding": "none", **said}))
    asked = constraints_of({"optimizer_offload": "1", "moments": "bf16"})
    with pytest.raises(InfeasibleError, match="`moments=bf16`, `optimizer_offload=1`: no plan"):
        runtime_problem("megatron", constraints=asked)


@for_each("recipe", ["", *QUANTISED])
def test_narrow_moments_leave_the_stepped_copy_to_the_optimizer_but_with_some_recipes(
    recipe: str,
) -> None:
    """Megatron's own copy is whole: `use_precision_aware_optimizer_no_fp8_or_ds_fp8`."""
    settings = Settings(precision="bf16", kernels=Kernels(quantised=recipe))
    found = CHOICES["moments"].write(settings, "bf16")
    assert found is not None
    assert (found.optimizer.moments, settings.optimizer.master) == (4, 4)
    assert found.optimizer.master == (2 if recipe in ("", "fp8-delayed", "nvfp4") else 4)


@for_each("values", list(combinations(SHARDINGS, 2)))
def test_no_two_parts_have_one_name(values: tuple[str, str]) -> None:
    """Where no two ranks have the same parameters, what they share is no choice."""
    problem = asked_problem({"sharding": list(values)}, cluster=small_cluster(1, 4))
    names = problem.space.part_names(problem)
    assert len(set(names)) == len(names)
