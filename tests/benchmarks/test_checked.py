"""The table of independent proofs is what was measured."""

from tests.benchmarks.checked import checked_table, kept
from tests.benchmarks.table import shown_table


def test_the_table_of_the_page_has_the_rows_that_were_measured() -> None:
    assert shown_table("checked") == checked_table(kept().rows)
    assert all(row["refused"] == (row["below_percent"] > 1) for row in kept().rows)
