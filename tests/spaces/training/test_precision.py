"""What settings of precision, overlap and graphs do to a job: seconds, bytes, or a note."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

import ilp_planner as ilp
from ilp_planner.base.errors import SpecError, UsageError
from ilp_planner.costs.training.network import Network
from ilp_planner.costs.training.ranks import RankCosts
from ilp_planner.evaluate import evaluate
from ilp_planner.formats.megatron.arguments import arguments_of_job
from ilp_planner.formats.megatron.notes import unmodelled
from ilp_planner.inputs.constraints import constraints_of
from ilp_planner.job.memory import rank_memory
from ilp_planner.optimize.solve import solve
from ilp_planner.optimize.solvers.base import Limits
from ilp_planner.specs.gpu_architectures import BLACKWELL
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.machine import Machine
from ilp_planner.specs.recipes import check_recipe, precision_of, recipes_of
from ilp_planner.specs.training import (
    GRAPHED,
    GRAPHS,
    QUANTISED,
    Kernels,
    OptimizerSettings,
    TrainingJob,
)
from tests.examples import for_each
from tests.megatron_cases import FEW, every_plan
from tests.runtime_cases import runtime_problem
from tests.training_jobs import deepseek, job, settings

CLUSTER = gpu_cluster(parse_gpus("16xB200"))
# A host so slow that every layer waits for it.
SLOW = Machine(host_forward=0.2, host_backward=0.3)
EXPERTS = {"grouped_experts": True, "dispatcher": "alltoall"}


def case(overlaps: dict[str, bool] | None = None, **kernels: Any) -> TrainingJob:
    """Return a job with experts on both nodes."""
    return job(
        deepseek(),
        pp=1,
        dp=8,
        gpu_architecture=BLACKWELL,
        settings=settings(
            ep=2,
            kernels=Kernels(**{**EXPERTS, **kernels}),
            optimizer=OptimizerSettings(sharding="optimizer"),
            **(overlaps or {}),
        ),
    )


def ranks(one: TrainingJob, machine: Machine) -> RankCosts:
    """Return the job's times on such machines."""
    types = {
        name: dataclasses.replace(device, machine=machine)
        for name, device in CLUSTER.device_types.items()
    }
    return RankCosts(one, Network(dataclasses.replace(CLUSTER, device_types=types), (0, 1)))


def seconds(one: TrainingJob, machine: Machine) -> float:
    """Return a micro-batch and the synchronisation on a rank."""
    costs = ranks(one, machine)
    fixed, each = costs.sync(0)
    return sum(element.total for element in costs.elements(0)) + fixed + float(each.sum())


def effects(one: TrainingJob, machine: Machine = Machine()) -> tuple[float, float]:  # noqa: B008
    return seconds(one, machine), rank_memory(one, 0).peak


@for_each("recipe", QUANTISED)
@for_each("low", [False, True])
def test_every_recipe_takes_and_holds_something_else(recipe: str, low: bool) -> None:
    exact, quantised = (
        effects(one) for one in (case(), case(quantised=recipe, quantised_parameters=low))
    )
    assert all(a != b for a, b in zip(exact, quantised, strict=True))
    others = [case(quantised=name, quantised_parameters=low) for name in QUANTISED]
    assert sum(effects(one) == quantised for one in others) == 1
    assert effects(case(quantised=recipe, quantised_parameters=not low))[1] != quantised[1]


@for_each(
    ("kernels", "layers"),
    [({"exact_first": 1}, [0]), ({"exact_last": 2}, [6, 7]), ({"exact_first": 9}, range(8))],
)
def test_layers_that_stay_exact_take_as_long_as_without_a_recipe(
    kernels: dict[str, int], layers: Sequence[int]
) -> None:
    exact, plain, changed = (
        [element.total for element in ranks(one, Machine()).elements(0)]
        for one in (case(), case(quantised="fp8-current"), case(quantised="fp8-current", **kernels))
    )
    assert changed == [
        (exact if number - 1 in layers else plain)[number] for number in range(len(plain))
    ]
    assert exact != plain


@pytest.mark.parametrize("kernels", [{"exact_first": 1}, {"exact_last": 2}])
def test_memory_of_layers_that_stay_exact_is_said_not_to_count(kernels: dict[str, int]) -> None:
    plain, changed = (case(quantised="fp8-current", **more) for more in ({}, kernels))
    assert effects(plain)[1] == effects(changed)[1]
    notes = [unmodelled(arguments_of_job(one)) for one in (plain, changed)]
    (said,) = set(notes[1]) - set(notes[0])
    assert said.startswith("--first-last-layers-bf16: not counted")


def test_a_format_of_numbers_is_said_not_to_count() -> None:
    changed = case(quantised="mxfp8", number_format="hybrid")
    assert effects(changed) == effects(case(quantised="mxfp8"))
    assert any("counted as e4m3" in note for note in unmodelled(arguments_of_job(changed)))


@pytest.mark.parametrize("overlap", ["overlap_tensor", "overlap_experts"])
def test_overlap_hides_messages(overlap: str) -> None:
    quick = Machine(host_experts=0.0)
    assert seconds(case({overlap: True}), quick) < seconds(case(), quick)


def test_graphs_take_what_they_have_off_the_host() -> None:
    none = seconds(case(), SLOW)
    whole = {kind: seconds(case(graphs=kind), SLOW) for kind in GRAPHS if kind}
    assert len(set(whole.values())) == 1
    names = [name for name in GRAPHED if name != "mamba"]
    part = {name: seconds(case(graphs="local", graphed=(name,)), SLOW) for name in names}
    least = next(iter(whole.values()))
    # Of a model with a dense layer first, each of them is in some layer.
    assert all(least < found < none for found in part.values())
    assert part["moe"] < part["attn"] < part["moe_router"] == part["moe_preprocess"]
    everything = seconds(case(graphs="local", graphed=("attn", "mlp", "moe")), SLOW)
    assert everything == least
    (note,) = set(unmodelled(arguments_of_job(case(graphs="local")))) - set(
        unmodelled(arguments_of_job(case()))
    )
    assert "not counted: memory of graphs" in note


# ---- what is asked for --------------------------------------------------------------------------


@for_each(
    ("gpu", "recipes"),
    [
        ("A100-80GB", ()),
        ("L4", ("fp8-delayed", "fp8-current")),
        ("H100", ("fp8-delayed", "fp8-current", "fp8-blockwise")),
        ("B200", tuple(QUANTISED)),
        ("RTX-5090", ("fp8-delayed", "fp8-current", "fp8-blockwise", "nvfp4")),
        ("MI300X", ("fp8-delayed", "fp8-current")),
        ("MI355X", ("fp8-delayed", "fp8-current", "mxfp8")),
    ],
)
def test_recipes_of_gpus(gpu: str, recipes: tuple[str, ...]) -> None:
    cluster = gpu_cluster(parse_gpus(f"8x{gpu}"))
    (device,) = cluster.device_types.values()
    assert recipes_of(device) == recipes
    assert recipes_of(dataclasses.replace(device, peak=None)) is None
    for recipe in QUANTISED:
        if recipe in recipes:
            check_recipe(cluster, recipe)
            continue
        with pytest.raises(SpecError) as caught:
            check_recipe(cluster, recipe)
        assert str(caught.value).startswith(f"precision: found {recipe} on device {device.name!r}")
        assert ", ".join(device.peak or {}) in str(caught.value)
        assert ("Blackwell" in str(caught.value)) <= (not gpu.startswith("MI"))
        assert "\n" not in str(caught.value)


@for_each(
    ("asked", "model", "found"),
    [
        ("", "fp16", ("fp16", "")),
        ("fp32", "bf16", ("fp32", "")),
        ("mxfp8", "bf16", ("bf16", "mxfp8")),
        ("fp8-delayed", "fp16", ("fp16", "fp8-delayed")),
    ],
)
def test_a_precision_is_of_training_or_a_recipe(
    asked: str, model: str, found: tuple[str, str]
) -> None:
    assert precision_of(asked, model) == found


def test_what_is_no_precision_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^precision: found 'fp8', expected one of bf16, "):
        precision_of("fp8", "bf16")
    with pytest.raises(UsageError, match=r"^precision: found mxfp8 for a model in fp32"):
        precision_of("mxfp8", "fp32")


def test_plans_have_the_recipe_and_are_judged_with_it() -> None:
    asked = {"gpus": "8xH100", "space": "megatron", "global_batch": 8, "pp": 1}
    exact = ilp.problem("llama3-8b", **asked)
    quantised = ilp.problem("llama3-8b", precision="fp8-current", **asked)
    assert quantised.request is not None
    assert quantised.request.precision == "fp8-current"
    kernels = quantised.costs.settings.kernels
    assert kernels == dataclasses.replace(
        exact.costs.settings.kernels, quantised="fp8-current", quantised_parameters=True
    )
    best = [ilp.solve(one, limits=ilp.Limits(seconds=20)) for one in (exact, quantised)]
    assert best[1].objective < best[0].objective
    chosen = best[1].plan.settings.kernels
    assert (chosen.quantised, chosen.quantised_parameters) == ("fp8-current", True)
    with pytest.raises(SpecError, match="precision: found nvfp4 on device 'H100-80GB'"):
        ilp.problem("llama3-8b", precision="nvfp4", **asked)
    with pytest.raises(UsageError, match='`precision="fp8-current"`: expected `space="megatron"`'):
        ilp.problem("llama3-8b", gpus="8xH100", space="groups", precision="fp8-current")


def test_no_plan_with_attention_in_8_bits_beats_the_bound() -> None:
    """Of all plans with and without it, one by one; it is never in a plan unasked."""
    asked: dict[str, Any] = {
        "cluster": gpu_cluster(parse_gpus("2xH100")),
        "precision": "fp8-delayed",
        "changes": {"head": 128, "sequence": 2048, "max_position_embeddings": 2048},
    }
    both = constraints_of({**FEW, "recompute": "none,full", "fp8_attention": "off,on"})
    problem = runtime_problem("megatron", constraints=both, **asked)
    result = solve(problem, limits=Limits(prefer_plain=0.0))
    times: dict[bool, list[float]] = {False: [], True: []}
    for plan in every_plan(problem):
        found = evaluate(problem, plan)
        if found.legal and problem.space.contains(problem, plan):
            assert plan.settings is not None
            times[plan.settings.kernels.fp8_attention].append(found.iteration_time)
    assert min(map(len, times.values())) > 10
    best = min(map(min, times.values()))
    assert result.bound <= best * (1 + 1e-12)
    assert result.objective == pytest.approx(best)
    plain = runtime_problem("megatron", constraints=constraints_of(FEW), **asked)
    assert not any(one.kernels.fp8_attention for one in plain.costs.choices)  # type: ignore[attr-defined]


@for_each(("space", "gpus"), [("megatron", "2xV100-32GB"), ("deepspeed", "2xT4"),
                              ("torchtitan", "2xV100-32GB")])  # fmt: skip
def test_gpus_without_bf16_are_offered_a_precision_that_the_runtime_has(
    space: str, gpus: str
) -> None:
    offered = "fp32" if space == "torchtitan" else "fp16"
    cluster = gpu_cluster(parse_gpus(gpus))
    with pytest.raises(SpecError, match=rf" no bf16, .*; `precision={offered}` would do$"):
        runtime_problem(space, cluster=cluster)
    assert runtime_problem(space, cluster=cluster, precision=offered)
