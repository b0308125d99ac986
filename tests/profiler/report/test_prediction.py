"""How predictions are shown."""

import numpy as np
import pytest

from ilp_planner.costs.profiles.measurements import Record, measurements_of
from ilp_planner.costs.profiles.predictions import Want
from ilp_planner.costs.profiles.table import Prediction, Provenance
from ilp_planner.profiler.predict.answers import Answer, answer_layers
from ilp_planner.profiler.predict.assessment import Judged, judge_layers
from ilp_planner.profiler.predict.crossvalidation import Protocol
from ilp_planner.profiler.predict.layers import LayerPredictor
from ilp_planner.profiler.report.prediction import (
    describe_error,
    prediction_lines,
    prediction_object,
)
from ilp_planner.profiler.report.prediction_page import (
    MOST_ANSWERS,
    by_size_svg,
    distribution_svg,
    prediction_page,
    scatter_svg,
)
from tests.examples import for_each


def rows(samples=(1, 2, 4, 8)):
    return [
        {"record": "layer", "name": "block", "layers": "1-2", "tp": tp, "micro_batch": n,
         "time_s": (1 + n / tp) * 1e-3 * (1 + 0.02 * (n % 3))}
        for tp in (1, 2) for n in samples
    ]  # fmt: skip


@pytest.fixture
def table():
    return measurements_of(rows(), "lab.csv")


def answer(error, *, known=False):
    time = Prediction(value=1e-3, provenance=Provenance.EXTRAPOLATED, error=error, basis="a law")
    return Answer(record=Record.LAYER, what="block", where="tp 8", time=time, row={}, known=known)


def test_an_error_that_nothing_tells_is_said_to_be_unknown():
    assert describe_error(answer(None)) == "unknown"
    assert describe_error(answer(0.0, known=True)) == "-"
    assert describe_error(answer(0.123)) == "12.30 %"


def test_lines_and_json_say_the_same(table):
    predictor = LayerPredictor(table)
    answers, used = answer_layers(predictor, [Want(tp=2, micro_batch=3)])
    judged = judge_layers(predictor, used)
    lines = dict(prediction_lines(table, answers, judged))
    found = prediction_object(table, answers, judged)
    assert found["predictions"][0]["row"]["time_s"] == answers[0].time.value
    for part in found["cross_validation"]:
        assert f"of {part['values']} values" in lines[f"layers, {part['protocol']}"]


def test_a_page_without_anything_to_judge():
    lonely = measurements_of(rows((1,))[:1], "lab <1>.csv")
    page = prediction_page(lonely, judge_layers(LayerPredictor(lonely)))
    assert "No series has two rows" in page
    assert "lab &lt;1&gt;.csv" in page
    assert "<svg" not in page


@pytest.mark.slow
def test_a_page_is_the_same_again_and_not_endless(table):
    judged = judge_layers(LayerPredictor(table))
    many = [answer(0.1)] * (MOST_ANSWERS + 5)
    page = prediction_page(table, judged, many)
    assert page == prediction_page(table, judged, many)
    assert "5 more" in page


@pytest.mark.slow
@for_each("chart", [scatter_svg, distribution_svg, by_size_svg])
@for_each("count", [1, 3000])
def test_charts_stay_small(chart, count):
    rng = np.random.default_rng(0)
    measured = 10 ** rng.uniform(-6, 0, count)
    judged = Judged(
        kind=Record.LAYER, device="", label="x", column="time_s", protocol=Protocol.BETWEEN,
        rows=("",) * count, measured=measured, predicted=measured * rng.uniform(0.5, 2, count),
    )  # fmt: skip
    svg = chart([judged])
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    assert len(svg) < 300_000
