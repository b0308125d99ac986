"""Times of matrix products."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.products import ProductPredictor
from tests.examples import examples, for_each

SIZES = [2.0 * n**3 for n in (128, 256, 512, 1024, 2048)]


def seconds(flop):
    return 1e-5 + flop ** (2 / 3) * 1e-11 + flop / 1e14


def products(times=seconds, sizes=SIZES, **more):
    rows = [{"record": "matmul", "flop": f, "time_s": times(f), **more} for f in sizes]
    return measurements_of(rows, "dots.csv")


def test_rows_and_between_and_beyond():
    predictor = ProductPredictor(products())
    row, between, above, below = (predictor.predict(2.0 * n**3) for n in (512, 768, 4096, 64))
    assert (row.value, row.error) == (seconds(SIZES[2]), 0.0)
    assert row.provenance is Provenance.MEASURED
    assert between.provenance is Provenance.INTERPOLATED
    assert between.value == pytest.approx(seconds(2.0 * 768**3), rel=0.1)
    assert above.value == pytest.approx(seconds(2.0 * 4096**3), rel=5e-3)
    assert above.error == pytest.approx(0, abs=5e-3)
    assert above.provenance is below.provenance is Provenance.EXTRAPOLATED
    assert 0 < below.value <= row.value


def test_a_row_that_was_carried_is_not_measured():
    rows = [{"record": "matmul", "flop": f, "time_s": seconds(f)} for f in SIZES]
    rows[2]["provenance"] = "extrapolated"
    found = ProductPredictor(measurements_of(rows, "dots.csv")).predict(SIZES[2])
    assert found.value == seconds(SIZES[2])
    assert found.provenance is Provenance.INTERPOLATED
    assert found.error > 0


@examples(9, more=9)
@given(
    times=st.lists(st.floats(1e-6, 1e2), min_size=1, max_size=6),
    asked=st.lists(st.floats(1.0, 1e16), min_size=2, max_size=5),
)
def test_more_work_never_takes_less(times, asked):
    made = products(dict(zip(SIZES, itertools.cycle(times), strict=False)).__getitem__)
    predictor = ProductPredictor(made)
    found = [predictor.predict(f) for f in sorted(asked)]
    guessed = [p.value for p in found if p.provenance is not Provenance.MEASURED]
    assert all(value > 0 for value in guessed)
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(guessed))


@for_each(
    "lacks",
    [lambda n: 1 / (1 + 600 / n), lambda n: np.exp(-600 / n), lambda n: 1 - np.exp(-n / 1500)],
)
def test_a_rate_that_rises_goes_on_rising(lacks):
    """Neither the last rate goes on, nor does it grow without limit, whichever way it saturates."""
    predictor = ProductPredictor(products(lambda f: 1e-5 + f / (1e14 * lacks(np.cbrt(f / 2)))))
    last = SIZES[-1] / predictor.predict(SIZES[-1]).value
    for n in (4096, 8192):
        flop = 2.0 * n**3
        expected = 1e-5 + flop / (1e14 * lacks(n))
        found = predictor.predict(flop).value
        assert found == pytest.approx(expected, rel=0.16)
        assert abs(found - expected) < abs(flop / last - expected)


def test_one_row_makes_a_rate():
    found = ProductPredictor(products(sizes=[1e12])).predict(3e12)
    assert found.value == pytest.approx(3 * seconds(1e12))
    assert found.error is None


def test_types_are_apart():
    rows = [
        {"record": "matmul", "flop": f, "time_s": seconds(f) * factor, "dtype": dtype}
        for f in SIZES
        for dtype, factor in (("fp16", 1), ("fp32", 8))
    ]
    predictor = ProductPredictor(measurements_of(rows, "dots.csv"))
    assert predictor.predict(SIZES[0], dtype="fp32").value == 8 * seconds(SIZES[0])
    with pytest.raises(ProfileError, match="several values of dtype, expected one to be asked for"):
        predictor.predict(1e9)
    with pytest.raises(ProfileError, match="no rows of record 'matmul' with dtype 'bf16'"):
        predictor.predict(1e9, dtype="bf16")


def test_no_products():
    made = measurements_of([{"record": "point_to_point", "bytes": 1, "time_s": 1e-5}], "x.csv")
    with pytest.raises(ProfileError, match=r"x\.csv: no rows of record 'matmul'"):
        ProductPredictor(made)


def test_the_error_of_going_further_grows():
    rng = np.random.default_rng(0)
    factors = dict(zip(SIZES, rng.uniform(0.8, 1.2, len(SIZES)), strict=True))
    predictor = ProductPredictor(products(lambda f: f / 1e13 * factors[f]))
    near, far = (predictor.predict(SIZES[-1] * k).error for k in (2, 1000))
    assert near is not None
    assert far is not None
    assert near > 0
    assert far > 0
