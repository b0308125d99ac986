"""Runs of DeepSeek-V4 Flash: legal as they are, in the table of the manual, and as far off."""

import pytest

from ilp_planner.job.memory import rank_memory
from ilp_planner.settings.rules import check_compressed
from tests.benchmarks.cases import ROOT
from tests.benchmarks.compressed_runs import ROWS, error_of, line_of, run_of
from tests.benchmarks.published import gpu

PAGE = ROOT / "docs" / "howto" / "models.md"


def test_the_page_has_what_is_predicted():
    page = PAGE.read_text()
    for row in ROWS:
        assert not [*check_compressed(run_of(row).job)]
        assert line_of(row) in page


@pytest.mark.parametrize("row", [row for row in ROWS if row.quantised], ids=str)
def test_tuned_runs_are_within_what_is_asked_and_fit(row):
    """15 %; nothing was fitted to them."""
    assert abs(error_of(row)) <= 0.15
    job = run_of(row).job
    assert rank_memory(job, 0).needed <= gpu(row.gpu).memory
