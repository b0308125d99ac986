"""Predictions of layers: what must hold on any table, and a law that is found again."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ilp_planner.base.errors import ProfileError
from ilp_planner.costs.profiles.measurements import Record, measurements_of
from ilp_planner.costs.profiles.table import Provenance
from ilp_planner.profiler.predict.layers import LayerPredictor
from tests.examples import examples, for_each

DEGREES, SAMPLES = (1, 2, 4), (1, 2, 4, 8)
MIB = 2**20


def law(tp, samples, *, launch=2e-4, work=3e-3, replicated=2e-4, sent=1e-4):
    return launch + samples * (work / tp + replicated + sent * (tp > 1))


def row(tp, samples, time, **more):
    return {
        "record": "layer", "device": "A100", "name": "block", "layers": "1-8",
        "tp": tp, "micro_batch": samples, "time_s": time, **more,
    }  # fmt: skip


def table(times=law, degrees=DEGREES, samples=SAMPLES, **more):
    rows = [row(tp, n, times(tp, n), **more) for tp in degrees for n in samples]
    return measurements_of(rows, "lab.csv")


def time_at(made, tp, samples, **more):
    return LayerPredictor(made).predict("time_s", tp=tp, micro_batch=samples, **more)


parts = st.floats(1e-5, 1e-1)


@examples(6, more=8)
@given(launch=parts, work=parts, replicated=parts, sent=parts)
def test_a_roofline_is_found_again(launch, work, replicated, sent):
    def times(tp, n):
        return law(tp, n, launch=launch, work=work, replicated=replicated, sent=sent)

    predictor = LayerPredictor(table(times))
    for tp, n in ((1, 3), (2, 6), (4, 16), (8, 8), (8, 32), (3, 5)):
        found = predictor.predict("time_s", tp=tp, micro_batch=n).value
        assert found == pytest.approx(times(tp, n), rel=0.03), (tp, n)


@examples(8, more=10)
@given(
    noise=st.lists(st.floats(0.3, 3.0), min_size=12, max_size=12),
    tp=st.integers(1, 16),
    samples=st.lists(st.integers(1, 5000), min_size=2, max_size=8),
)
def test_never_negative_and_never_falling_between_measured_rows(noise, tp, samples):
    """Whatever the rows are like: predictions rise with samples, and rows are what they are."""
    factors = iter(noise)
    made = table(lambda t, n: law(t, n) * next(factors))
    predictor = LayerPredictor(made)
    values = [predictor.predict("time_s", tp=tp, micro_batch=n) for n in sorted(samples)]
    assert all(v.value > 0 for v in values)
    guessed = [v.value for v in values if v.provenance is not Provenance.MEASURED]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(guessed))
    for one in made.frame.itertuples():
        found = predictor.predict("time_s", tp=int(one.tp), micro_batch=int(one.micro_batch))
        assert (found.value, found.provenance) == (one.time_s, Provenance.MEASURED)
        assert found.error == 0


@examples(6, more=8)
@given(rises=st.lists(st.floats(0.0, 2.0), min_size=12, max_size=12), tp=st.sampled_from(DEGREES))
def test_rising_rows_make_a_rising_curve(rises, tp):
    """Measured and predicted rows together never fall, where the measured ones do not."""
    given_rises = iter(rises)
    rows, time = [], 0.0
    for degree in DEGREES:
        time = 1e-3
        for n in SAMPLES:
            time += 1e-3 * next(given_rises)
            rows.append(row(degree, n, time))
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    values = [predictor.predict("time_s", tp=tp, micro_batch=n).value for n in range(1, 40)]
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(values))


def test_longer_samples_never_take_less():
    rows = [
        row(1, n, 1e-6 * n * s + 2e-10 * n * s**2, sequence=s, hidden=1024)
        for n in (1, 2, 4)
        for s in (512, 1024, 2048)
    ]
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    values = [
        predictor.predict("time_s", tp=1, micro_batch=3, sequence=s).value
        for s in range(128, 20000, 331)
    ]
    assert all(a <= b for a, b in itertools.pairwise(values))
    found = predictor.predict("time_s", tp=1, micro_batch=3, sequence=1536)
    assert found.value == pytest.approx(1e-6 * 3 * 1536 + 2e-10 * 3 * 1536**2, rel=0.01)
    assert found.provenance is Provenance.INTERPOLATED


def test_other_widths_are_predicted_from_several():
    def times(n, h):
        return 1e-4 + n * (1e-9 * h**2 + 1e-7 * h)

    rows = [
        row(1, n, times(n, h), sequence=1024, hidden=h)
        for n in (1, 2, 4)
        for h in (1024, 2048, 4096)
    ]
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    for n, h in ((2, 3072), (4, 8192)):
        found = predictor.predict("time_s", tp=1, micro_batch=n, hidden=h)
        assert found.value == pytest.approx(times(n, h), rel=0.02)


@examples(6, more=8)
@given(
    fixed=st.integers(0, 4000),
    slope=st.integers(0, 4000),
    asked=st.tuples(st.integers(1, 16), st.integers(1, 200)),
)
def test_bytes_that_are_affine_are_exact(fixed, slope, asked):
    def held(tp, n):
        return {
            "state_bytes": fixed * MIB / tp,
            "activation_bytes": n * (slope / tp + 3) * MIB,
            "memory_bytes": (fixed / tp + slope * n) * MIB,
        }

    rows = [row(tp, n, law(tp, n), **held(tp, n)) for tp in DEGREES for n in SAMPLES]
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    tp, n = asked
    for column, value in held(tp, n).items():
        found = predictor.predict(column, tp=tp, micro_batch=n).value
        assert found == pytest.approx(value, rel=1e-6, abs=1.0), column


@for_each(
    ("tp", "samples", "provenance"),
    [
        (1, 1, Provenance.MEASURED),
        (4, 8, Provenance.MEASURED),
        (2, 3, Provenance.INTERPOLATED),
        (3, 7, Provenance.INTERPOLATED),
        (4, 9, Provenance.EXTRAPOLATED),
        (8, 1, Provenance.EXTRAPOLATED),
        (8, 16, Provenance.EXTRAPOLATED),
    ],
)
def test_provenance(tp, samples, provenance):
    found = time_at(table(), tp, samples)
    assert found.provenance is provenance
    assert found.error is not None


def test_a_corner_that_was_not_measured_is_outside():
    rows = [row(1, n, law(1, n)) for n in SAMPLES] + [row(tp, 1, law(tp, 1)) for tp in (2, 4)]
    found = time_at(measurements_of(rows, "lab.csv"), 4, 8)
    assert found.provenance is Provenance.EXTRAPOLATED


def test_further_out_is_less_certain():
    rng = np.random.default_rng(0)
    made = table(lambda tp, n: law(tp, n) * float(rng.uniform(0.9, 1.1)))
    predictor = LayerPredictor(made)
    errors = [
        predictor.predict("time_s", tp=tp, micro_batch=n).error
        for tp, n in ((2, 3), (2, 16), (2, 64), (8, 64))
    ]
    assert None not in errors
    assert errors == sorted(errors)
    assert errors[0] > 0


def test_the_error_is_that_of_leaving_rows_out():
    """A table that its law explains fully expects none; one with noise expects the noise."""
    assert time_at(table(), 2, 3).error == pytest.approx(0, abs=1e-3)
    rng = np.random.default_rng(1)
    noisy = table(lambda tp, n: law(tp, n) * float(rng.uniform(0.8, 1.25)))
    assert 0.03 < time_at(noisy, 2, 3).error < 0.4


@pytest.mark.parametrize("count", [1, 2])
def test_few_rows(count):
    rows = [row(1, n, law(1, n)) for n in SAMPLES[:count]]
    found = time_at(measurements_of(rows, "lab.csv"), 1, 16)
    assert found.value > law(1, SAMPLES[count - 1])
    assert found.provenance is Provenance.EXTRAPOLATED
    assert (found.error is None) == (count == 1)
    if count == 2:
        assert found.value == pytest.approx(law(1, 16), rel=1e-6)
        assert found.error > 0


def test_what_was_never_varied_is_said():
    made = table(degrees=(1,))
    found = time_at(made, 4, 2)
    assert found.error is None
    assert "no row varies the tensor-parallel degree" in found.basis
    assert found.value < time_at(made, 1, 2).value


def test_what_was_never_varied_has_the_error_of_other_layers_that_were():
    rows = [row(1, n, law(1, n)) for n in SAMPLES]
    split = [row(tp, n, law(tp, n)) | {"name": "other"} for tp in (1, 2, 4) for n in SAMPLES]
    found = LayerPredictor(measurements_of([*rows, *split], "lab.csv")).predict(
        "time_s", name=rows[0].get("name", ""), tp=4, micro_batch=2
    )
    assert "no row varies the tensor-parallel degree" in found.basis
    assert found.error > 0.01


def test_out_of_memory_is_never_a_value():
    made = table()
    lost = {**row(1, 16, None), "status": "out_of_memory"}
    lost.pop("time_s")
    rows = [
        {k: v for k, v in one.items() if v == v and v != ""}
        for one in made.frame.to_dict(orient="records")
    ]
    predictor = LayerPredictor(measurements_of([*rows, lost], "lab.csv"))
    same = LayerPredictor(made)
    for n in (16, 32):
        found = predictor.predict("time_s", tp=1, micro_batch=n)
        assert found.value == same.predict("time_s", tp=1, micro_batch=n).value
        assert "ran out of memory" in found.basis
    assert "memory" not in predictor.predict("time_s", tp=2, micro_batch=16).basis
    assert "memory" not in predictor.predict("time_s", tp=1, micro_batch=8).basis


def test_work_that_the_table_says_tells_matrix_from_memory_bound():
    """Two dimensions that move together are told apart by FLOP and traffic."""

    def one(n, h):
        flop, traffic = 24.0 * n * h * h, 60.0 * n * h + 24.0 * h * h
        time = flop / 1e14 + traffic / 1e12 + 1e-5
        return row(1, n, time, hidden=h, sequence=1, flop=flop, traffic_bytes=traffic)

    rows = [one(n, h) for n in (1024, 2048, 4096) for h in (512, 1024, 2048)]
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    found = predictor.predict("time_s", tp=1, micro_batch=8192, hidden=4096)
    assert "FLOP and traffic known" in found.basis
    assert found.value == pytest.approx(one(8192, 4096)["time_s"], rel=0.02)


def test_a_bad_row_does_not_spoil_its_neighbours():
    spoiled = table(lambda tp, n: law(tp, n) * (8 if (tp, n) == (2, 4) else 1))
    predictor = LayerPredictor(spoiled)
    for tp, n in ((1, 3), (4, 3), (4, 16), (8, 8)):
        assert predictor.predict("time_s", tp=tp, micro_batch=n).value == pytest.approx(
            law(tp, n), rel=0.15
        )


def test_predictions_in_a_table_are_no_knowledge():
    rows = [row(1, n, law(1, n)) for n in SAMPLES]
    rows.append({**row(1, 16, 9.0), "provenance": "extrapolated", "error": 0.1})
    found = time_at(measurements_of(rows, "lab.csv"), 1, 16)
    assert found.value == pytest.approx(law(1, 16), rel=1e-3)


def test_analytic_rows_make_analytic_predictions():
    made = table(provenance="analytic")
    for tp, n in ((1, 1), (2, 3), (8, 8)):
        assert time_at(made, tp, n).provenance is Provenance.ANALYTIC


def test_layers_are_found_by_a_part_of_their_range():
    found = LayerPredictor(table()).predict("time_s", layers="3", tp=2, micro_batch=4)
    assert found.value == law(2, 4)


def test_runs_of_equal_layers_may_differ_from_row_to_row():
    rows = [row(1, n, law(1, n)) for n in (1, 2)]
    rows += [{**row(1, 4, law(1, 4) + extra), "layers": text} for text, extra in
             (("1-3", 0.0), ("4-8", 1.0))]  # fmt: skip
    predictor = LayerPredictor(measurements_of(rows, "lab.csv"))
    assert [s.key.layers for s in predictor.series] == ["1-3", "4-8"]
    for layer, extra in (("2", 0.0), ("8", 1.0)):
        found = predictor.predict("time_s", layers=layer, tp=1, micro_batch=4)
        assert found.value == law(1, 4) + extra
        assert found.provenance is Provenance.MEASURED


def test_models_of_several_widths_are_one_series():
    rows = [
        {**row(1, n, law(1, n) * h, hidden=h, sequence=512), "layers": f"1-{h}"}
        for n in (1, 2)
        for h in (64, 128)
    ]
    (series,) = LayerPredictor(measurements_of(rows, "lab.csv")).series
    assert series.key.layers == ""
    assert series.layers_at(np.array([1.0, 8.0, 512.0, 120.0])) == "1-128"


@for_each(
    ("asked", "said"),
    [
        ({"device": "H100"}, "no rows of record 'layer' to predict from on device 'H100'"),
        ({"name": "head"}, "for 'name=head', expected one of block"),
        ({"layers": "9"}, "for 'layers=9'"),
        ({"record": Record.OPERATOR}, "no rows of record 'operator'"),
        ({"sequence": 512}, "its rows have no 'sequence'"),
    ],
)
def test_what_cannot_be_predicted(asked, said):
    with pytest.raises(ProfileError, match=r"^lab\.csv: ") as caught:
        time_at(table(), 2, 3, **asked)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_series_must_be_chosen_from():
    rows = [{**row(1, 1, 1e-3), "name": name, "layers": str(i)} for i, name in enumerate("ab")]
    with pytest.raises(ProfileError, match="more than one kind of rows fits"):
        time_at(measurements_of(rows, "lab.csv"), 1, 2)


def test_a_sequence_must_be_chosen():
    rows = [row(1, 1, s * 1e-6, sequence=s) for s in (512, 1024)]
    with pytest.raises(ProfileError, match="several 'sequence', expected one to be asked for: 512"):
        time_at(measurements_of(rows, "lab.csv"), 1, 2)


def test_a_column_that_no_row_has():
    with pytest.raises(ProfileError, match="no rows with 'state_bytes' of block"):
        LayerPredictor(table()).predict("state_bytes", tp=1, micro_batch=1)
