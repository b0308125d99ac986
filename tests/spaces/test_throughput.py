"""What a time is worth, and what no run can undercut."""

import dataclasses
from itertools import islice

import pytest
from hypothesis import given

import ilp_planner
from ilp_planner.analysis.simulated import simulated
from ilp_planner.costs.profiles.work import rates_of
from ilp_planner.evaluate import evaluate
from ilp_planner.faces.report.lines import result_lines
from ilp_planner.faces.report.rates import worth_lines, worth_object
from ilp_planner.job.arithmetic import recomputed_flops
from ilp_planner.optimize.solve import solve
from ilp_planner.spaces.throughput import (
    WINOGRAD,
    Iteration,
    above_data_sheet,
    bubble,
    model_flops,
    physical_bound,
    physical_seconds,
    throughput,
)
from ilp_planner.spaces.throughput import rates_of as rates_of_devices
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.gpu_cluster import gpu_cluster, parse_gpus
from ilp_planner.specs.gpus import gpu, table
from ilp_planner.specs.lengths import FULL, Lengths
from ilp_planner.specs.model_reader import read_model
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.specs.training import Recompute
from tests.every_space import every_space, problem_in, result_in
from tests.examples import for_each
from tests.megatron_cases import every_plan, small_cluster, small_model, small_problem
from tests.small import make_plan, make_problem
from tests.training_jobs import jobs


def gpt(**changes):
    fields = {"layers": 2, "hidden": 64, "heads": 4, "sequence": 32, "vocab": 1000}
    return Decoder(**fields | changes)


def test_flops_are_those_of_three_passes_without_the_masked_half():
    """2 tokens x parameters of the products, and half of s^2 scores and values."""
    model = gpt()
    products = 2 * (4 * 64 * 64 + 2 * 4 * 64 * 64) + 64 * 1000
    scores = 2 * (2 * 32 * 32 * 2 * 64) / 2
    assert model_flops(model) == 3 * (2 * 32 * products + scores)
    assert model_flops(gpt(layers=4)) < 2 * model_flops(model)  # the output is there once


def test_short_documents_are_counted_exactly():
    """Documents of 1, 1 and 3 tokens: their mean, of which nothing is cut off."""
    short = gpt(lengths=Lengths(lengths=(1, 3), counts=(2, 1), batching=FULL))
    assert short.tokens == pytest.approx(5 / 3)
    products = 2 * (4 * 64 * 64 + 2 * 4 * 64 * 64) + 64 * 1000
    assert model_flops(short) == pytest.approx(3 * 2 * 5 / 3 * products, rel=1e-2)  # and few scores
    device = small_cluster().device
    done = rates_of_devices(short, "bf16", [device], Iteration(6, 1.0, 0.0, None, 1.0))
    assert done.tokens == pytest.approx(6 * 5 / 3)


def test_the_physical_bound_adds_the_devices_peaks():
    device = small_cluster().device
    fast = dataclasses.replace(device, peak={"bf16": 2e14, "fp8": 4e14})
    slow = dataclasses.replace(device, peak={"bf16": 1e14})
    work = model_flops(gpt()) * 7
    assert physical_seconds(gpt(), [fast, slow], ("bf16",), 7) == pytest.approx(work / 3e14)
    assert physical_seconds(gpt(), [fast] * 2, ("bf16", "fp8"), 7) == pytest.approx(work / 8e14)
    assert physical_seconds(gpt(), [fast, slow], ("fp8",), 7) == 0.0


@pytest.mark.parametrize(("precision", "peak"), [("bf16", "bf16"), ("mxfp8", "fp8")])
def test_the_physical_bound_names_the_peak_that_it_takes(precision: str, peak: str) -> None:
    asked = {"gpus": "8xB200", "space": "megatron", "precision": precision, "max_tp": 1}
    problem = ilp_planner.problem("llama3-8b", global_batch=8, **asked)
    rate = 8 * problem.cluster.device.peak[peak]
    needed = 8 * model_flops(problem.spec.architecture)
    assert physical_bound(problem) == pytest.approx(needed / rate)
    said = dict(result_lines(problem, solve(problem)))["physical bound"]
    assert f"the data sheet's {peak} peak" in said


def test_cards_may_run_above_the_clock_of_the_data_sheet() -> None:
    problem = ilp_planner.problem("llama3.2-1b", gpus="8xRTX-5090", space="megatron", max_tp=1)
    rate = 8 * problem.cluster.device.peak["bf16"] * gpu("RTX-5090").products
    needed = problem.global_batch * model_flops(problem.spec.architecture)
    assert physical_bound(problem) == pytest.approx(needed / rate)
    said = dict(result_lines(problem, solve(problem)))["physical bound"]
    assert "at the bf16 rate that was measured, above the data sheet's" in said


@for_each("name", table())
def test_no_product_is_faster_than_the_physical_bound_has_it(name: str) -> None:
    device = gpu_cluster(parse_gpus(f"{gpu(name).node}x{name}")).device
    for precision, peak in device.peak.items():
        assert rates_of(device).fastest(precision) <= peak * above_data_sheet(device)


def test_convolutions_may_need_fewer_products():
    model = WideResNet(blocks=(1, 1, 1, 1), in_channels=64, width_factor=2)
    device = dataclasses.replace(small_cluster().device, peak={"fp32": 1e13})
    seconds = physical_seconds(model, [device], ("fp32",), 1)
    assert seconds == pytest.approx(model_flops(model) / WINOGRAD / 1e13)


def test_a_plan_is_worth_its_tokens():
    problem = small_problem(small_cluster(1, 2), batch=4)
    spec = small_model()
    problem, model = dataclasses.replace(problem, spec=spec), spec.architecture
    result = solve(problem)
    done = throughput(problem, result.plan, result.evaluation)
    assert done.devices == 2
    assert done.samples == pytest.approx(4 / result.objective)
    assert done.tokens == pytest.approx(4 * 512 / result.objective)
    peak = problem.cluster.device.peak["bf16"]
    assert done.mfu == pytest.approx(done.flops / peak)
    assert done.flops * 2 == pytest.approx(model_flops(model) * 4 / result.objective)
    assert 0.2 < done.busy <= 1
    assert 0 < physical_bound(problem) < result.objective
    assert (
        throughput(dataclasses.replace(problem, spec=None), result.plan, result.evaluation) is None
    )


# ---- the bubble ---------------------------------------------------------------------------------


def test_the_bubble_of_a_training_job_is_that_of_the_event_engine() -> None:
    problem, ranks = small_problem(small_cluster(2, 2), batch=8), set[int]()
    for plan in islice(every_plan(problem), 0, None, 97):
        evaluation = evaluate(problem, plan)
        if evaluation.cost is not None:
            found = bubble(plan, evaluation)
            assert found == pytest.approx(simulated(plan, evaluation).bubble, abs=1e-9)
            assert 0 <= found < 1
            assert plan.ranks > 1 or found == 0
            ranks.add(plan.ranks)
    assert ranks == {1, 2, 4}


def test_equal_stages_have_the_bubble_of_the_textbook(tmp_path) -> None:
    """(p - 1) / (m + p - 1) of what micro-batches take."""
    problem = make_problem(tmp_path)
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    stages = tuple(dataclasses.replace(stage, time=2.0) for stage in evaluation.stages)
    time = plan.schedule.iteration_time([2.0, 2.0])
    cost = dataclasses.replace(
        evaluation.cost, iteration_time=time, stages=stages, terms={"all": time}, passing=("all",)
    )
    evaluation = dataclasses.replace(evaluation, cost=cost)
    count = plan.micro_batches
    assert bubble(plan, evaluation) == pytest.approx(1 / (count + 1))
    assert simulated(plan, evaluation).bubble == pytest.approx(1 / (count + 1))


# ---- what is computed again ---------------------------------------------------------------------


@given(jobs())
def test_what_is_computed_again_is_counted_as_the_model_is(job) -> None:
    """All layers again are their forward pass; their scores alone, those without the masked half,
    however many ranks share them."""
    model = job.model
    layers = sum(model.flops[name] for name in model.operators if name.endswith("-layer"))
    layers -= model.masked_flops
    scores = 2 * model.layers * model.sequence**2 * (model.query_width + model.value_width)
    for recompute, expected in (
        (Recompute(), 0),
        (Recompute(granularity="full", method="uniform", layers=1), layers),
        (Recompute(granularity="selective", modules=("core_attn",)), scores - model.masked_flops),
    ):
        changed = dataclasses.replace(job.settings, recompute=recompute)
        again = recomputed_flops(dataclasses.replace(job, settings=changed))
        assert again == pytest.approx(expected)


def test_operators_that_are_computed_again_count_in_the_hardware_alone(tmp_path) -> None:
    """Of all operators again, a forward pass beside the three that there are."""
    problem = make_problem(tmp_path)
    problem = dataclasses.replace(problem, spec=read_model(tmp_path / "tiny.toml"))
    plan = make_plan(problem)
    evaluation = evaluate(problem, plan)
    shares = []
    for again in (False, True):
        stages = tuple(
            dataclasses.replace(
                stage,
                strategies=tuple(dataclasses.replace(x, recompute=again) for x in stage.strategies),
            )
            for stage in plan.stages
        )
        done = throughput(problem, dataclasses.replace(plan, stages=stages), evaluation)
        shares.append(done.hfu / done.mfu)
    assert shares == pytest.approx([1, 4 / 3])


@every_space
def test_every_space_says_what_it_knows(space: str) -> None:
    """Words of every plan; rates where the model is known; HFU where plans say what is computed
    again, and no less than MFU."""
    problem, result = problem_in(space), result_in(space)
    if problem.spec is None:
        problem = dataclasses.replace(problem, spec=small_model())
    done = throughput(problem, result.plan, result.evaluation)
    assert done.tokens > 0
    assert done.bubble is None or 0 <= done.bubble < 1
    says = problem.space.recomputed_flops(problem, result.plan)
    assert (done.hfu is None) == (says is None or done.mfu is None)
    assert done.hfu is None or done.hfu >= done.mfu
    lines = dict(worth_lines(problem, result.plan, result.evaluation, 1e12))
    assert lines["parallelism"].startswith("tp ")
    assert "micro-batch size" in lines["parallelism"]
    assert "tokens/s" in lines["throughput"]
    assert lines["run"].startswith("1e+12 tokens take ")


def test_images_have_no_tokens() -> None:
    problem = ilp_planner.problem("wide-resnet-500m", "v100-32gb-1x4", global_batch=32)
    result = solve(problem)
    worth = worth_object(problem, result.plan, result.evaluation, 1e12)
    assert worth["throughput"]["tokens_per_s"] is None
    assert worth["throughput"]["tokens_per_s_per_gpu"] is None
    assert worth["throughput"]["samples_per_s"] > 0
    assert worth["run"] is None
    assert worth["price_per_1e9_tokens"] is None
    lines = dict(worth_lines(problem, result.plan, result.evaluation, 1e12))
    assert "samples/s" in lines["throughput"]
    assert "token" not in "".join(lines.values())
    assert "run" not in lines
