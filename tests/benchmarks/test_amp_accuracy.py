"""The native model's accuracy on real trials, each experiment with the constants of the other."""

import numpy as np
import pytest

from ilp_planner.costs.launch_floor import DEFAULT
from tests.benchmarks import amp_accuracy as study

DATA_THERE = pytest.mark.skipif(
    not (study.DATA / "trials.json").exists(), reason="AMP's real trials are not there"
)
# What a predictor must reach on trials that it was not fitted on: rank correlation, mean error.
REACH = {"homogeneous": (0.90, 0.15), "het_cluster": (0.70, 0.26)}


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return study.rows()


@pytest.mark.slow
@DATA_THERE
@pytest.mark.parametrize("name", study.EXPERIMENTS)
def test_fitted_on_the_other_experiment(rows, name: str) -> None:
    (other,) = (n for n in study.EXPERIMENTS if n != name)
    (row,) = (r for r in rows if r["experiment"] == name and r.get("fitted_on") == other)
    (amp,) = (r for r in rows if r["experiment"] == name and r["model"] == "amp")
    correlation, error = REACH[name]
    assert row["spearman"] >= max(correlation, amp["spearman"])
    assert row["mape"] <= error < amp["mape"]


@pytest.mark.slow
@DATA_THERE
def test_amp_is_as_its_logs_say(rows) -> None:
    """Computed by others from the same logs."""
    found = {r["experiment"]: r for r in rows if r["model"] == "amp"}
    assert found["homogeneous"]["spearman"] == pytest.approx(0.93495, abs=1e-4)
    assert found["het_cluster"]["spearman"] == pytest.approx(0.39377, abs=1e-4)
    assert found["homogeneous"]["kendall"] == pytest.approx(0.79479, abs=1e-4)
    assert found["het_cluster"]["mape"] == pytest.approx(0.49406, abs=1e-4)
    assert found["het_cluster"]["top_1_regret"] == pytest.approx(0.1484, abs=1e-4)
    assert (found["homogeneous"]["n"], found["het_cluster"]["n"]) == (47, 43)


@pytest.mark.slow
@DATA_THERE
def test_shipped_constants_are_the_fit_on_both() -> None:
    both = study.fitted(study.EXPERIMENTS)
    for name in study.CONSTANTS:
        assert getattr(DEFAULT, name) == pytest.approx(getattr(both, name), abs=0.006)


def test_ranks_share_ties() -> None:
    assert study.ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [2.5, 0, 2.5, 1]


def test_correlations_of_a_turned_order() -> None:
    up, down = np.array([1.0, 2, 3, 4]), np.array([9.0, 7, 5, 1])
    assert study.spearman(up, down) == pytest.approx(-1)
    assert study.kendall(up, down) == pytest.approx(-1)
    assert study.kendall(up, np.array([1.0, 2, 2, 3])) == pytest.approx(5 / np.sqrt(6 * 5))


def test_regret_looks_at_the_first_few() -> None:
    predicted, real = np.array([1.0, 2, 3]), np.array([1.5, 1.2, 1.0])
    assert [study.regret(predicted, real, k) for k in (1, 2, 3)] == pytest.approx([0.5, 0.2, 0])
