"""The constants that come with the planner are ones that kernels can have."""

import json
from itertools import pairwise

from ilp_planner.specs.kernel_constants import BACKWARD, FILE, measured_constants
from tests.examples import for_each

GPUS = tuple(json.loads(FILE.read_text()))
COLLECTIVES = {"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}


def test_these_gpus_are_known():
    assert set(GPUS) == {"A100", "H100", "B200", "V100", "T4", "L4"}


@for_each("gpu", GPUS)
def test_products_are_shares_of_what_the_gpu_can_do(gpu):
    found = measured_constants()[gpu].products
    assert "bf16" in found
    for constants in found.values():
        shares = constants.e, constants.ew, constants.p1, constants.p2
        assert all(0 < share <= 1 for share in shares)
        assert all(0 <= part <= 1 for part in (constants.q, constants.edge, constants.blend))
        assert constants.k0 >= 0
        assert 0 < constants.t0 < 50e-6


@for_each("gpu", GPUS)
def test_attention_and_launches(gpu):
    constants = measured_constants()[gpu]
    assert 0.4 < constants.attention.f0 < 0.8
    assert constants.attention.backward == BACKWARD
    assert 1e-6 < constants.launch < 10e-6
    assert 0.5 < constants.grouped <= 1


def test_eight_bits_are_fitted_where_the_gpu_has_them():
    found = measured_constants()
    assert {gpu for gpu in GPUS if "fp8" in found[gpu].products} == {"H100", "B200"}
    assert {gpu for gpu in GPUS if "fp32" in found[gpu].products} == {"V100", "T4", "L4"}


@for_each("gpu", ["A100", "H100", "B200"])
def test_curves_rise_and_are_those_of_a_node(gpu):
    curves = measured_constants()[gpu].curves
    assert set(curves) == COLLECTIVES
    for by_ranks in curves.values():
        assert set(by_ranks) == {2, 4, 8}
        for points in by_ranks.values():
            assert 8 <= len(points) <= 12
            assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(points))


def test_what_is_borrowed_is_said():
    found = measured_constants()
    assert not found["V100"].curves
    for gpu in ("V100", "T4", "L4"):
        assert found[gpu].products["bf16"] == found["A100"].products["bf16"]
        assert "bf16 products as on A100" in found[gpu].source
    assert found["A100"].source.endswith("grouped as on H100")
    assert "as on" not in found["B200"].source
