"""Predictions are better than the rules of thumb, on data that was measured."""

import json

import pytest

from tests.benchmarks import prediction
from tests.benchmarks.prediction_table import prediction_table


@pytest.mark.skipif(not prediction.METIS.is_dir(), reason="no profiles in ../shared/data/metis")
def test_layers_of_metis():
    found = prediction.degrees_and_samples(prediction.metis_rows())
    for protocol, part in found.items():
        scores = part.scores()
        assert scores["ours"]["mape"] < scores["proportion"]["mape"], protocol
        assert scores["ours"]["mape"] < 0.12, protocol


@pytest.mark.slow
@pytest.mark.skipif(not prediction.ACESO.is_dir(), reason="no profiles in ../shared/data/aceso")
def test_operators_of_a_gpt():
    series = list(prediction.aceso_rows(("gpt_1_3B",)))[::8]
    found = prediction.degrees_and_samples(iter(series))
    for protocol, part in found.items():
        scores = part.scores()
        assert scores["ours"]["mape"] < scores["proportion"]["mape"], protocol
    one = found["one row, others on all sides"].scores()
    assert one["ours"]["mape"] < one["line"]["mape"]
    assert one["ours"]["median"] < 0.03


@pytest.mark.slow
@pytest.mark.skipif(not prediction.ALPA.is_file(), reason="no database in ../shared/data/alpa")
def test_matrix_products():
    for protocol, part in prediction.products().items():
        scores = part.scores()
        assert scores["ours"]["mape"] < scores["proportion"]["mape"], protocol


def test_the_table_has_a_row_for_every_protocol():
    found = json.loads(prediction.RESULTS.read_text())
    lines = prediction_table(found).splitlines()
    assert len(lines) == 2 + sum(map(len, found.values()))
    assert len({line.count("|") for line in lines}) == 1
