"""Expected errors are told from runs: quantiles are found again, and the kept table holds."""

import json
import random

import numpy as np
import pytest

from ilp_planner.specs.time_errors import OWN, half_widths
from tests.benchmarks.error_rows import Row, every_run
from tests.benchmarks.errors import (
    INSIDE,
    SHIPPED,
    Case,
    case_of,
    fitted,
    known,
    left_out,
    model,
    quantile,
)
from tests.benchmarks.errors_table import errors_table
from tests.benchmarks.published import DATA
from tests.benchmarks.table import shown_table

BASE, FACTOR = 0.05, 3.0


def drawn(seed: int, count: int = 400) -> list[Case]:
    """Return cases of which half have errors that are so many times as large."""
    draw = np.random.default_rng(seed)
    cases = []
    for n in range(count):
        features = ("experts",) * (n % 2)
        off = float(draw.laplace(scale=BASE * (FACTOR if features else 1)))
        cases.append(Case(None, f"model {n % 20}", "Hopper", "H100", features, off))  # type: ignore[arg-type]
    return cases


@pytest.mark.parametrize("seed", range(3))
def test_factors_are_found_again(seed: int) -> None:
    widths = fitted(drawn(seed))
    right = BASE * np.log(5)  # beyond which 1 of 10 is, on either side
    assert widths.base == pytest.approx((right, right), rel=0.3)
    assert widths.factors["experts"] == pytest.approx((FACTOR, FACTOR), rel=0.4)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_widened_by_models_left_out_holds_on_others(seed: int) -> None:
    cases = drawn(seed)
    widths = fitted(cases).widened(quantile(left_out(cases, model)))
    inside = np.mean([widths.excess(case) <= 1 for case in drawn(seed + 100, 2000)])
    assert 0.75 < inside < 0.87


def test_a_quantile_counts_one_more_run() -> None:
    values = random.Random(1).sample(range(1, 10), 9)
    assert quantile(list(map(float, values))) == INSIDE * 10
    assert quantile([3.0]) == 3.0


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="no runs in ../shared/data/measured")
def test_runs_have_the_features_of_jobs() -> None:
    runs = every_run()
    cases = [case_of(Row(run, OWN, 0.0)) for run in runs]
    assert len(cases) == sum(row["groups"] for row in json.loads(SHIPPED.read_text())["groups"]) + 1
    for run, case in zip(runs, cases, strict=True):
        assert ("experts" in case.features) is (run.job.model.experts is not None)
        assert ("many" in case.features) is (run.gpus > 128)


def test_four_of_five_runs_that_were_left_out_are_inside() -> None:
    """The factor of a GPU or an architecture that is left out is that of a usual one."""
    every = {row["left out"]: row["inside"] for row in known() if row["class"] == "all"}
    assert list(every) == ["model", "GPU", "architecture"]
    assert 0.75 <= every.pop("model") <= 0.9
    assert all(0.75 <= inside <= 0.95 for inside in every.values())


def test_the_manual_shows_the_kept_table() -> None:
    assert shown_table("errors") == errors_table(known())


def test_shipped_factors_never_narrow() -> None:
    table = json.loads(SHIPPED.read_text())
    assert min(table["base"]) > 0
    assert min(map(min, table["factors"].values())) >= 1
    assert min(table["unmeasured"]) > 1
    names = [*table["factors"]]
    faster, slower = half_widths(names, table["base"], table["factors"])
    assert faster > table["base"][0]
    assert slower > table["base"][1]
