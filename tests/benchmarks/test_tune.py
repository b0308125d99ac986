"""Panels are of one job each; a replay finds the best; the numbers that were asked are reached."""

import pytest

from tests.benchmarks.nanotron import FILE
from tests.benchmarks.table import shown_table
from tests.benchmarks.tune import (
    LEAST,
    MOST,
    NEAR,
    SHARE,
    by_chance,
    known,
    panels,
    replay,
    tune_table,
)

given = pytest.mark.skipif(not FILE.is_file(), reason="no runs in ../shared/data/measured")


@given
def test_panels_have_different_plans_of_one_job() -> None:
    for name, panel in panels().items():
        assert len(panel) >= LEAST, name
        jobs = [plan.run.job for plan in panel]
        assert len({*jobs}) == len(jobs), name
        assert len({(job.model.layers, job.model.hidden, job.model.sequence) for job in jobs}) == 1
        if all(plan.unit == 1.0 for plan in panel):
            assert len({(job.global_batch, job.world) for job in jobs}) == 1, name


@pytest.mark.slow
@given
def test_a_replay_ends_at_the_best() -> None:
    panel = panels()["MosaicML mpt-3b, A100-40GB, bf16"]
    found = replay(panel)
    assert found.first > NEAR
    assert found.found <= by_chance(panel)
    assert found.regret <= NEAR


@given
def test_chance_is_the_median_of_random_order() -> None:
    panel = panels()["nanotron 1B, 8"]
    assert by_chance(panel) == (len(panel) + 1) // 2  # one plan is as good as the best


def test_what_was_asked_is_reached_and_shown() -> None:
    rows = known()
    assert sum(row["found"] <= MOST for row in rows) >= SHARE * len(rows)
    assert sum(row["found"] <= row["by chance"] for row in rows) >= SHARE * len(rows)
    assert shown_table("tune") == tune_table(rows)
