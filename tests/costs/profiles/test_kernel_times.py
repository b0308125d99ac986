"""Seconds of kernels: never faster than the hardware, and never less for more work."""

import csv
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.profiles.kernel_times import KernelRates, interpolated
from ilp_planner.job.work import IN_8_BITS
from ilp_planner.specs import gpus
from ilp_planner.specs.kernel_constants import (
    AttentionConstants,
    KernelConstants,
    ProductConstants,
    measured_constants,
)
from tests.examples import for_each

PEAK = {"bf16": 1000e12, "fp16": 1000e12, "fp8": 2000e12, "fp32": 60e12}
BANDWIDTH, PROCESSORS = 3e12, 132
PLAIN = ProductConstants(e=1.0, q=0.0, k0=0.0, t0=0.0, ew=1.0, p1=1.0, p2=1.0)
FASTER = Path(__file__).parents[2] / "benchmarks" / "attention_fp8.csv"
NAMES = {"H100": "H100-80GB"}
CURVES = {"all_reduce": {2: ((1e3, 1e-5), (1e6, 1e-5), (1e8, 1e-3)), 8: ((1e3, 4e-5), (1e8, 4e-3))}}


def kernels(**parts: object) -> KernelRates:
    """Return rates of a made-up GPU: with nothing else said, an ideal one."""
    constants = KernelConstants(
        products={"bf16": PLAIN},
        attention=AttentionConstants(f0=1.0, s0=0.0, backward=1.0),
        launch=0.0,
        grouped=1.0,
        concurrent=1.0,
        curves=CURVES,
        source="",
    )
    return KernelRates(PEAK, BANDWIDTH, PROCESSORS, replace(constants, **parts))


real = st.sampled_from(("A100", "H100", "B200")).map(
    lambda gpu: KernelRates(PEAK, BANDWIDTH, PROCESSORS, measured_constants()[gpu])
)
side = st.integers(1, 70000)
count = st.integers(1, 64)
precision = st.sampled_from(tuple(PEAK))
gradient = st.sampled_from((0.0, 2.0, 4.0))  # bytes of a number that the product is added to


@given(real, side, side, side, count, precision, gradient)
def test_products_are_not_faster_than_the_hardware(gpu, m, n, k, count, precision, accumulate):
    time = gpu.product(m, n, k, count=count, precision=precision, accumulate=accumulate)
    width = {"fp32": 4, "fp8": 1}.get(precision, 2)
    out = 2 * accumulate or max(width, 2)
    assert time >= 2 * count * m * n * k / PEAK[precision]
    assert time >= count * (width * k * (m + n) + out * m * n) / BANDWIDTH


@given(real, side, side, side, count, precision, gradient)
def test_no_product_exceeds_the_fastest_rate(gpu, m, n, k, count, precision, accumulate):
    time = gpu.product(m, n, k, count=count, precision=precision, accumulate=accumulate)
    assert time * gpu.fastest_product(precision) >= 2 * count * m * n * k * (1 - 1e-12)


@given(real, st.floats(1, 1e16), st.integers(1, 10**6), st.integers(16, 512), precision)
def test_no_attention_exceeds_the_fastest_rate(gpu, flops, length, head, precision):
    ahead, back = gpu.fastest_attention(precision)
    times = [
        gpu.attention(flops, length, head=head, backward=way, precision=precision)
        for way in (False, True)
    ]
    assert times[0] * ahead >= flops * (1 - 1e-12)
    assert times[1] * back >= 2 * flops * (1 - 1e-12)


@given(real, side, side, side, count, st.integers(0, 3), st.integers(1, 3000), gradient)
def test_more_work_takes_no_less(gpu, m, n, k, count, which, more, accumulate):
    shape = [m, n, k, count]
    larger = shape.copy()
    larger[which] += more
    times = [gpu.product(*s[:3], count=s[3], accumulate=accumulate) for s in (shape, larger)]
    assert times[0] <= times[1] * (1 + 1e-12)


@given(real, side, side, side, count)
def test_batched_grouped_and_added_products_are_slower(gpu, m, n, k, count):
    time = gpu.product(m, n, k, count=count)
    assert gpu.grouped(m, n, k, count=count) >= time
    assert gpu.batched(m, n, k, count=count) >= time
    assert gpu.product(m, n, k, count=count, accumulate=4.0) >= time


@given(real, side, side, side, count, st.integers(1, 8), gradient)
def test_products_on_streams_are_slower_than_side_by_side(gpu, m, n, k, count, streams, accumulate):
    """All at once fill the processors best, in whole turns: of others the mean is taken, of what
    full and partly filled turns would take. One after the other they are single products."""
    gpu = replace(gpu, constants=replace(gpu.constants, concurrent=1.0))
    streams = math.gcd(count, streams)
    together, some, alone = (
        gpu.grouped(m, n, k, count=count, streams=number, accumulate=accumulate)
        for number in (count, streams, 1)
    )
    assert together == pytest.approx(gpu.product(m, n, k, count=count, accumulate=accumulate))
    assert together <= some * (1 + 1e-12)
    assert some <= alone * (1 + 1e-12)
    assert alone <= count * gpu.product(m, n, k, accumulate=accumulate) * (1 + 1e-12)


@given(real, side, side, side)
def test_a_slower_clock_is_a_slower_product(gpu, m, n, k):
    assert replace(gpu, sustained=0.7).product(m, n, k) >= gpu.product(m, n, k)


def test_an_ideal_gpu_reaches_the_peak_with_whole_waves():
    m, n, k = 256 * 11, 128 * 12, 4096  # 132 tiles
    assert kernels().product(m, n, k) == pytest.approx(2 * m * n * k / 1000e12)


def test_a_last_wave_is_waited_for_in_part():
    m, n, k = 256 * 11, 128 * 18, 4096  # a wave and a half
    tiles = replace(PLAIN, p1=0.5)
    ideal = 2 * m * n * k / 1000e12
    assert kernels(products={"bf16": tiles}).product(m, n, k) == pytest.approx(ideal)
    half = kernels(products={"bf16": replace(tiles, q=0.5)}).product(m, n, k)
    assert ideal < half < ideal * 1.75 / 1.5 * 1.001


def test_few_tiles_split_k():
    """Eight of the GPU's 132 processors would be busy; eight times as many are, and add up."""
    m, n, k = 512, 512, 65536
    alone = 2 * 256 * 128 * k / (1000e12 / 132)
    gpu = kernels(products={"bf16": replace(PLAIN, p1=0.5, p2=0.5)})
    time = gpu.product(m, n, k)
    assert time == pytest.approx(alone / 8 + 8 * 4 * m * n / BANDWIDTH)


def test_steps_to_start_a_tile_cost_short_products_more():
    gpu = kernels(products={"bf16": replace(PLAIN, k0=256.0)})
    for k in (256, 4096):
        m, n = 256 * 22, 128 * 12
        assert gpu.product(m, n, k) == pytest.approx(2 * m * n * (k + 256) / 1000e12)


def test_gradients_of_weights_are_read_and_written_in_32_bits():
    gpu = kernels()
    m = n = 8192
    assert gpu.product(m, n, 1, accumulate=4.0) == pytest.approx(
        (2 * (m + n) + 8 * m * n) / BANDWIDTH
    )
    long = 2 * m * n * 65536 / 1000e12 / 0.96
    assert gpu.product(m, n, 65536, accumulate=4.0) == pytest.approx(long, rel=0.02)


def test_a_precision_that_was_not_fitted_has_the_constants_of_16_bits():
    gpu = kernels(products={"bf16": replace(PLAIN, e=0.5)})
    assert gpu.product(8448, 8448, 8448, precision="fp8") == pytest.approx(
        gpu.product(8448, 8448, 8448) / 2
    )


def test_a_precision_that_the_gpu_lacks():
    with pytest.raises(KeyError):
        kernels().product(512, 512, 512, precision="fp4")


@for_each(
    ("gpu", "peak", "bandwidth", "processors", "shape", "share"),
    [
        ("A100", 312e12, 2039e9, 108, (8192, 8192, 8192), 0.82),
        ("H100", 989e12, 3350e9, 132, (8192, 8192, 8192), 0.80),
        ("H100", 989e12, 3350e9, 132, (1024, 1024, 1024), 0.34),
        ("B200", 2250e12, 8000e9, 148, (8192, 28672, 8192), 0.69),
    ],
)
def test_shares_of_the_peak(gpu, peak, bandwidth, processors, shape, share):
    rates = KernelRates({"bf16": peak}, bandwidth, processors, measured_constants()[gpu])
    m, n, k = shape
    assert 2 * m * n * k / peak / rates.product(*shape) == pytest.approx(share, abs=0.02)


flops = st.floats(1e6, 1e16)
length = st.integers(128, 200000)
head = st.sampled_from((32, 64, 128, 192, 256))


@given(real, flops, length, head, st.booleans())
def test_attention_is_not_faster_than_the_hardware(gpu, flops, length, head, backward):
    time = gpu.attention(flops, length, head=head, backward=backward)
    assert time >= flops * (2.5 if backward else 1) / PEAK["bf16"]
    assert gpu.attention(2 * flops, length, head=head, backward=backward) >= time
    assert gpu.attention(flops, length, head=head, backward=True) > time or backward


def test_attention_by_length_and_by_blocks_of_queries():
    long = AttentionConstants(f0=0.5, s0=1000.0, w0=0.0, backward=0.8)
    gpu = kernels(attention=long, launch=3e-6)
    assert gpu.attention(1e15, 1000) == pytest.approx(4 + 3e-6)
    assert gpu.attention(1e15, 1000, backward=True) == pytest.approx(4 * 2.5 / 0.8 + 3e-6)
    few = kernels(attention=replace(long, w0=1.0))
    blocks = 2 * 4096 * 128 * 128 * 132  # FLOPs of one block on every processor
    assert few.attention(blocks, 4096) == pytest.approx(2 * gpu.attention(blocks, 4096), rel=0.1)
    extra = few.attention(10 * blocks, 4096) - kernels(attention=long).attention(10 * blocks, 4096)
    assert extra == pytest.approx(few.attention(blocks, 4096) / 2)


def test_small_heads_are_slower():
    gpu = kernels(attention=AttentionConstants(f0=0.5, s0=0.0, h0=128.0))
    assert gpu.attention(1e15, 4096, head=64) == pytest.approx(1.5 * gpu.attention(1e15, 4096))
    assert gpu.attention(1e15, 4096, head=256) == gpu.attention(1e15, 4096)


def test_passes_over_memory():
    gpu = replace(kernels(launch=3e-6), streaming=0.5)
    assert gpu.stream(3e9) == pytest.approx(2e-3 + 3e-6)


def test_collectives_follow_their_curve():
    gpu = kernels()
    assert gpu.collective("all_reduce", 2, 1) == 1e-5
    assert gpu.collective("all_reduce", 2, 1e6) == pytest.approx(1e-5)
    assert gpu.collective("all_reduce", 2, 1e7) == pytest.approx(1e-4)
    assert gpu.collective("all_reduce", 2, 1e9) == pytest.approx(1e-2)
    assert gpu.collective("all_reduce", 4, 1e3) == pytest.approx(2e-5)
    times = [gpu.collective("all_reduce", 8, size) for size in (1, 1e3, 1e4, 1e8, 1e9)]
    assert all(a <= b for a, b in pairwise(times))


def test_collectives_that_were_not_measured():
    assert kernels().collective("all_reduce", 16, 1e6) is None
    assert kernels().collective("all_to_all", 2, 1e6) is None


def test_a_curve_passes_through_its_points():
    curve = CURVES["all_reduce"][2]
    assert [interpolated(curve, size) for size, _ in curve] == [time for _, time in curve]


def test_attention_in_8_bits_is_as_much_faster_as_measured():
    """By the medians of TensorRT-LLM's forward passes, and never beyond the peak of products, which
    bounds count with."""
    off = []
    for row in csv.DictReader(FASTER.open()):
        figures = gpus.gpu(NAMES.get(row["gpu"], row["gpu"]))
        rates = KernelRates(
            figures.peak, figures.memory_bandwidth, figures.units, figures.constants
        )
        length = int(row["tokens"])
        full, low = (rates.attention(1e18, length, library=one) for one in ("", IN_8_BITS))
        off.append(full / low / float(row["ratio"]) - 1)
    assert len(off) >= 40
    assert max(map(abs, off)) < 0.07
    assert sum(map(abs, off)) / len(off) < 0.02
    for figures in gpus.table().values():
        low, usual = figures.constants.attention_fp8, figures.constants.attention
        assert (low is None) == (not figures.architecture.fp8_attention_recipes)
        if low is not None:
            assert low.f0 * figures.peak["bf16"] <= usual.f0 * figures.peak["fp8"]
