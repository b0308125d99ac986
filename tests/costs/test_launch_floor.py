"""Rows of the profile as they are; lines between and beyond them; the launch floor from one row."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.costs.launch_floor import Calibration, line_errors, predict_times, time_origins
from ilp_planner.costs.profiles.layers import LayerKey, LayerProfile
from ilp_planner.costs.profiles.table import Provenance
from tests.examples import for_each

ROUND = Calibration(launch_share=0.25, device_share=0.75, tensor_loss=0.5)


def profile(times: dict[tuple[str, int, int], list[float]], **more) -> LayerProfile:
    rows = {LayerKey(*key): np.array(row) for key, row in times.items()}
    layers = len(next(iter(rows.values())))
    return LayerProfile(
        source="test",
        layers=tuple(map(str, range(layers))),
        time=rows,
        state={},
        activation={},
        workspace={},
        gradients=np.zeros(layers),
        boundary=np.zeros(layers + 1),
        **{"measured": frozenset(rows), **more},
    )


MANY = profile({("a", 1, 2): [4.0, 1.0], ("a", 1, 4): [6.0, 3.0], ("a", 1, 8): [14.0, 2.0]})


def predict_time(profile, device, tp, samples, *options):
    """Return seconds per layer, and where most of them come from."""
    row = predict_times(profile, device, tp, np.array([samples]), *options)[0]
    parts = list(time_origins(profile, LayerKey(device, tp, samples), row))
    return row, max(parts, key=lambda part: float(part[1].sum()))[0].provenance


@for_each(
    ("samples", "seconds", "source"),
    [
        (0, [0.0, 0.0], Provenance.EXTRAPOLATED),
        (1, [3.0, 0.5], Provenance.EXTRAPOLATED),  # the second one in proportion
        (2, [4.0, 1.0], Provenance.MEASURED),
        (3, [5.0, 2.0], Provenance.INTERPOLATED),
        (6, [10.0, 2.5], Provenance.INTERPOLATED),
        (8, [14.0, 2.0], Provenance.MEASURED),
        (16, [30.0, 2.0], Provenance.EXTRAPOLATED),  # no time falls beyond the rows
    ],
)
def test_lines_through_rows(samples: int, seconds: list[float], source: Provenance) -> None:
    row, found = predict_time(MANY, "a", 1, samples)
    assert row == pytest.approx(seconds)
    assert found == source


def test_rows_that_are_no_measurements() -> None:
    assert predict_time(replace(MANY, measured=frozenset()), "a", 1, 2)[1] == Provenance.ANALYTIC


def test_the_error_is_that_of_what_rows_predict() -> None:
    key, row = LayerKey("a", 1, 2), np.array([4.0, 1.0])
    parts = {Provenance.EXTRAPOLATED: 0.75 * row, Provenance.ANALYTIC: 0.25 * row}
    said = replace(MANY, origins={key: parts}, errors={key: 0.5})
    found = {origin for origin, _ in time_origins(said, key, row)}
    assert found == {(Provenance.EXTRAPOLATED, 0.5), (Provenance.ANALYTIC, None)}
    alone = replace(MANY, origins={key: {Provenance.ANALYTIC: row}}, errors={key: 0.5})
    assert [origin for origin, _ in time_origins(alone, key, row)] == [(Provenance.ANALYTIC, 0.5)]


def test_not_profiled() -> None:
    with pytest.raises(KeyError, match="tp 2: not profiled"):
        predict_time(MANY, "a", 2, 1)


def test_a_single_row_stands_and_more_samples_pay_for_the_device_only() -> None:
    single = profile({("a", 1, 1): [4.0]})
    assert predict_time(single, "a", 1, 1, ROUND)[0] == pytest.approx([4.0])
    row, source = predict_time(single, "a", 1, 3, ROUND)
    assert row == pytest.approx([4.0 * (0.25 + 3 * 0.75)])
    assert source == Provenance.EXTRAPOLATED


def test_isolated_rows_are_not_what_a_pass_adds() -> None:
    """The launch floor of its own row, and three quarters of the work: tp 2, loss one half."""
    isolated = profile({("a", 1, 1): [4.0], ("a", 2, 1): [4.0]}, isolated=True)
    row, source = predict_time(isolated, "a", 2, 2, ROUND)
    assert row == pytest.approx([0.25 * 4 + 2 * 0.75 * 4 * (0.5 + 0.5 * 0.5)])
    assert source == Provenance.EXTRAPOLATED
    assert predict_time(isolated, "a", 2, 1, ROUND)[1] == Provenance.EXTRAPOLATED


def test_a_slow_device_tells_how_long_a_fast_one_works() -> None:
    """The fast device waits for its host: of 4 s for one sample, it works 1.5 s at most."""
    both = profile({("fast", 1, 1): [4.0], ("slow", 1, 1): [6.0]}, isolated=True)
    rates = {"fast": 4e11, "slow": 1e11}
    fast = predict_time(both, "fast", 1, 8, ROUND, rates)[0]
    assert fast == pytest.approx([0.25 * 4 + 8 * 0.75 * 1.5])
    slow = predict_time(both, "slow", 1, 8, ROUND, rates)[0]
    assert slow == pytest.approx([0.25 * 6 + 8 * 0.75 * 6])
    alone = predict_time(both, "fast", 1, 8, ROUND)[0]
    assert alone == pytest.approx([0.25 * 4 + 8 * 0.75 * 4])


def test_without_tp_1_the_least_degree_tells_the_work() -> None:
    only = profile({("a", 2, 1): [3.0]}, isolated=True)
    work = 3.0 / ROUND.divided(2)
    assert predict_time(only, "a", 2, 4, ROUND)[0] == pytest.approx(
        [0.25 * 3 + 4 * 0.75 * work * ROUND.divided(2)]
    )


@given(
    row=st.floats(1e-4, 1),
    other=st.floats(1e-4, 1),
    tp=st.sampled_from((1, 2)),
    isolated=st.booleans(),
    single=st.booleans(),
    ratio=st.floats(0.1, 10),
)
def test_time_never_falls_with_samples(row, other, tp, isolated, single, ratio) -> None:
    times = {(d, t, 1): [v] for d, v in (("a", row), ("b", other)) for t in (1, 2)}
    if not single:
        times |= {(d, t, 4): [max(row, other)] for d in "ab" for t in (1, 2)}
    rates = {"a": ratio * 1e11, "b": 1e11}
    found = predict_times(profile(times, isolated=isolated), "a", tp, np.arange(20), ROUND, rates)[
        :, 0
    ]
    assert (np.diff(found) >= -1e-12).all()
    assert found[0] == 0
    assert np.isfinite(found).all()


@for_each("bad", [-0.1, float("nan"), float("inf")])
@for_each("name", ["launch_share", "device_share", "tensor_loss"])
def test_constants_are_shares(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0 and finite"):
        Calibration(**{name: bad})


def test_the_constants_that_were_fitted() -> None:
    """From one row of a layer that takes 4 ms, and of one that takes no time; and from isolated
    rows of two devices, that share all but 37 % of the work."""
    row = predict_time(profile({("a", 1, 1): [4e-3, 0.0]}), "a", 1, 3)[0]
    assert row == pytest.approx([4e-3 * (0.27 + 3 * 0.78) / (0.27 + 0.78), 0.0], rel=1e-12)
    isolated = profile({("a", 1, 1): [4e-3], ("a", 2, 1): [2e-3]}, isolated=True)
    row = predict_time(isolated, "a", 2, 3)[0]
    assert row == pytest.approx([0.27 * 2e-3 + 3 * 0.78 * 4e-3 * (0.5 + 0.37 / 2)], rel=1e-12)


SQUARES = {("a", 1, x): [2.0 * x**2] for x in (1, 2, 4, 8)}


def said(found: LayerProfile, samples: int) -> tuple[Provenance, float | None]:
    """Return where the seconds of so many samples come from, and the expected error."""
    ((origin, _),) = time_origins(found, LayerKey("a", 1, samples), np.ones(1))
    return origin.provenance, origin.error


def test_lines_are_off_by_what_they_miss_of_rows_that_are_left_out() -> None:
    """Of 2 x^2: between its neighbours a half of 8 and of 32; below by the whole of 2, above by 3/8
    of 128. Rows that are no measurements do not judge, and no error of measured ones counts."""
    found = profile(SQUARES)
    assert line_errors(found, "a", 1) == pytest.approx((0.5, (1 + 3 / 8) / 2), rel=1e-12)
    assert said(found, 3) == (Provenance.INTERPOLATED, pytest.approx(0.5))
    assert said(found, 16) == (Provenance.EXTRAPOLATED, pytest.approx(11 / 16))
    first = LayerKey("a", 1, 1)
    assert said(replace(found, errors={first: 9.0}), 16)[1] == pytest.approx(11 / 16)
    last = LayerKey("a", 1, 8)
    other = replace(found, time={**found.time, last: np.array([99.0])})
    three = replace(other, measured=found.measured - {last})
    assert line_errors(three, "a", 1) == pytest.approx((0.5, (1 + 3 / 8) / 2), rel=1e-12)
    assert said(replace(three, errors={last: 9.0}), 16) == (Provenance.EXTRAPOLATED, 9.0)


def test_two_rows_tell_no_error_but_that_of_what_is_predicted() -> None:
    two = profile({key: SQUARES[key] for key in list(SQUARES)[:2]})
    assert line_errors(two, "a", 1) == (None, None)
    wide = profile({("a", 1, 1): [1.0], ("a", 1, 4): [2.0]})
    assert said(wide, 2) == (Provenance.INTERPOLATED, None)
    last = LayerKey("a", 1, 4)
    one = replace(wide, measured=wide.measured - {last}, errors={last: 0.25})
    assert said(one, 2) == (Provenance.EXTRAPOLATED, 0.25)
