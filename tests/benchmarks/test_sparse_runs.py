"""Runs of GLM-5.2: legal as they are, and in the table of the manual."""

from ilp_planner.settings.rules import check_sparse, context_rules
from tests.benchmarks.cases import ROOT
from tests.benchmarks.sparse_runs import ROWS, line_of, run_of

PAGE = ROOT / "docs" / "howto" / "models.md"


def test_the_page_has_what_is_predicted():
    """The card's runs break none of the rules, so stages begin with layers that have an indexer."""
    page = PAGE.read_text()
    for row in ROWS:
        job = run_of(row).job
        assert not [*check_sparse(job), *context_rules(job)]
        assert line_of(row) in page
