"""The table of GPUs: rows that hold together, names that are found, and what is said of others."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from ilp_planner.base.errors import SpecError
from ilp_planner.costs.profiles.kernel_times import KernelRates
from ilp_planner.specs.cluster_reader import link_inside, link_note
from ilp_planner.specs.gpus import PRECISIONS, UNSEEN, Gpu, gpu, of_family, table
from ilp_planner.specs.kernel_constants import DSA, measured_constants
from ilp_planner.specs.machine import USUAL
from tests.examples import for_each

GIB = 2**30
ROWS = list(table().values())
ASKED = (
    "V100-16GB", "V100-32GB", "T4", "A10G", "L4", "L40S", "A100-40GB", "A100-80GB", "A800-80GB",
    "H100-80GB", "H100-NVL", "H800", "H20", "H200", "B200", "B300", "GB200", "GB300", "RTX-4090",
    "RTX-3090", "RTX-A6000", "RTX-6000-Ada", "RTX-5060-Ti-8GB", "RTX-5060-Ti-16GB", "RTX-5090",
    "RTX-PRO-6000", "MI300X", "MI325X", "MI350X", "MI355X", "P100",
)  # fmt: skip


def test_the_table_has_what_people_train_on() -> None:
    assert set(ASKED) <= set(table())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_holds_together(row: Gpu) -> None:
    assert 0.9 * row.sold < row.memory < row.sold
    assert set(row.peak) <= set(PRECISIONS)
    assert list(row.peak) == [name for name in PRECISIONS if name in row.peak]
    halves = [row.peak[name] for name in ("fp4", "fp8", "fp16", "tf32") if name in row.peak]
    # Half the bits, about twice the rate; GeForce's products that add up in fp32 have half of it,
    # save those of 4 bits.
    assert all(1.9 < a / b < 4.1 for a, b in pairwise(halves))
    assert row.peak.get("bf16", row.peak.get("fp16")) == row.peak.get("fp16")
    assert ("bf16" in row.peak) == row.architecture.bf16
    assert ("fp8" in row.peak) == (row.capability >= (8, 9))
    assert ("fp4" in row.peak) == bool({"mxfp8", "nvfp4"} & {*row.architecture.recipes})
    assert row.pair_bandwidth <= row.link_bandwidth < row.memory_bandwidth
    assert row.host_memory < row.memory_bandwidth
    assert row.host_link < row.memory_bandwidth
    assert row.host.startswith("NVLink-C2C") == (row.domain > row.node)
    assert row.domain % row.node == 0
    assert 0 < row.sustained < 1
    if row.products:
        kept = USUAL[row.machine].sustained
        assert row.sustained == pytest.approx(min(0.99, row.products * kept), abs=0.006)


# Shah et al. 2024 (arXiv 2407.08608), figure 5 (heads of 128, causal), and tritonbench#171.
@for_each(
    ("name", "version", "published"),
    [
        ("H100", 2, {1024: 260, 2048: 298, 4096: 319, 8192: 333, 16384: 335}),
        ("H100", 3, {1024: 423, 2048: 521, 4096: 579, 8192: 602, 16384: 616}),
        ("B200", 2, {4096: 354, 8192: 362}),
    ],
)
def test_flash_attention_is_as_fast_as_published(
    name: str, version: int, published: dict[int, float]
) -> None:
    row = gpu(name)
    rates = KernelRates(row.peak, row.memory_bandwidth, row.units, row.with_flash(version))
    for length, tflops in published.items():
        flops = 16384 / length * 2 * length**2 * 2048  # 16,384 tokens of 2,048 channels
        spent = rates.attention(flops, length, library="package")
        assert flops / spent / 1e12 == pytest.approx(tflops, rel=0.12)


@for_each("row", ROWS)
def test_flash_attention_3_is_hopper_s(row: Gpu) -> None:
    if row.architecture.name == "Hopper":
        newer, usual = row.with_flash(3).flash, row.constants.flash
        most = row.constants.attention.f0
        assert most >= newer["package"].f0 >= 0.9 * most
        assert newer["flex"] == usual["flex"] == usual["package"]
    else:
        with pytest.raises(ValueError, match="found 3, expected 2 on"):
            row.with_flash(3)


@for_each("row", ROWS)
def test_flash_attention_2_is_no_faster_than_the_measured_library(row: Gpu) -> None:
    """It is that library up to Ada and on AMD; long samples are half as fast on Hopper and less on
    B200, whose products it does not use."""
    flash = {name: own for name, own in row.constants.flash.items() if name != DSA}
    assert bool(flash) == bool(row.architecture.flash)
    for own in flash.values():
        assert own.f0 <= row.constants.attention.f0
        share = {"Hopper": 0.53, "Blackwell": 0.28}.get(row.architecture.name)
        if share and not row.products:
            assert own.f0 / row.constants.attention.f0 == pytest.approx(share, abs=0.1)


@for_each("row", ROWS)
def test_measured_products_are_the_gpu_s_own(row: Gpu) -> None:
    like, own = measured_constants()[row.kernels], row.constants
    assert not (row.products and row.kernels_measured)
    assert own.products["bf16"].e == pytest.approx(row.products or like.products["bf16"].e)
    assert {n: one for n, one in own.products.items() if n in ("fp32", "tf32")} == {
        n: one for n, one in like.products.items() if n in ("fp32", "tf32")
    }
    times = own.attention.f0 / like.attention.f0
    assert times == pytest.approx(own.products["bf16"].e / like.products["bf16"].e)
    attention = replace(like.attention, f0=own.attention.f0)
    usual = {"products": like.products, "curves": like.curves, "flash": {}, "attention_fp8": None}
    assert replace(own, **usual) == replace(like, attention=attention)
    if row.products:
        assert 0.5 < row.products < 1.2
        assert f"{row.products:g} of the peak in products, measured" in row.kernels_source


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_says_what_it_rests_on(row: Gpu) -> None:
    assert row.source
    assert row.nodes_source
    assert row.host_source
    assert row.memory_seen or row.memory == round(row.sold * (1 - UNSEEN))
    assert row.memory_source == "data sheet less 1.1 %" or row.memory_source.startswith("torch")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_messages_of_cards_without_peer_access_go_through_the_host_s_memory(row: Gpu) -> None:
    link, within = link_inside(row), link_inside(replace(row, peer_access=True))
    assert row.peer_access != row.name.startswith(("RTX-3090", "RTX-4090", "RTX-50"))
    if row.peer_access:
        assert link == within
    else:
        assert link.bandwidth == min(within.bandwidth, 0.73 * row.host_memory / 2)
        assert "peer access" in link_note(link, not row.peer_access)


@for_each(
    ("name", "least", "most"),
    [("A100-80GB", 79.1, 79.25), ("H100-80GB", 79.1, 79.25), ("V100-32GB", 31.74, 31.74)],
)
def test_measured_memory(name: str, least: float, most: float) -> None:
    assert least - 1e-9 < gpu(name).memory / GIB < most + 1e-9


@for_each(
    ("said", "name"),
    [
        ("a100-80gb", "A100-80GB"),
        ("A100 80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA H100 80GB HBM3", "H100-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("h100", "H100-80GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI355X", "MI355X"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA GeForce RTX 5090", "RTX-5090"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("a6000", "RTX-A6000"),
    ],
)
def test_names_are_found(said: str, name: str) -> None:
    assert gpu(said).name == name


def test_no_two_rows_share_a_name() -> None:
    names = [name for row in ROWS for name in (row.name, *row.aliases)]
    plain = [re.sub(r"[^a-z0-9]", "", name.casefold()) for name in names]
    assert len(set(plain)) == len(plain)
    assert [gpu(name).name for row in ROWS for name in (row.name, *row.aliases)] == [
        row.name for row in ROWS for _ in (row.name, *row.aliases)
    ]


@for_each(("said", "near"), [("H100X", "H100"), ("RTX 3080", "RTX-3090"), ("A5000", "RTX-A6000")])
def test_others_are_refused_with_the_nearest(said: str, near: str) -> None:
    with pytest.raises(
        SpecError, match=f"found '{said}', expected one .* nearest: {near}"
    ) as raised:
        gpu(said)
    for key in ("memory", "peak", "sustained", "memory_bandwidth"):
        assert key in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_like_none_gets_all_names() -> None:
    with pytest.raises(SpecError, match=re.escape(", ".join(table()))):
        gpu("Foo")


@for_each(("name", "row"), [("V100 p3.8xlarge", "V100-16GB"), ("a100", "A100-80GB"), ("tpu", None)])
def test_families(name: str, row: str | None) -> None:
    found = of_family(name)
    assert (found and found.name) == row
