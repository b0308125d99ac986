"""What a time is worth, and what no run can undercut."""

from __future__ import annotations

import dataclasses

import pytest

import ilp_planner
from ilp_planner.report.lines import result_lines
from ilp_planner.solve import solve
from ilp_planner.specs.decoder import Decoder
from ilp_planner.specs.resnet import WideResNet
from ilp_planner.throughput import (
    WINOGRAD,
    model_flops,
    physical_bound,
    physical_seconds,
    throughput,
)
from tests.megatron_cases import small_cluster, small_model, small_problem


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
    assert done.utilisation == pytest.approx(done.flops / peak)
    assert done.flops * 2 == pytest.approx(model_flops(model) * 4 / result.objective)
    assert 0.2 < done.busy <= 1
    assert 0 < physical_bound(problem) < result.objective
    assert (
        throughput(dataclasses.replace(problem, spec=None), result.plan, result.evaluation) is None
    )
