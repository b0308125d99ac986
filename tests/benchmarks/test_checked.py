"""The tables of independent proofs are what was measured."""

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import checked, checked_trials
from tests.benchmarks.table import shown_table


@pytest.mark.parametrize("module", [checked, checked_trials])
def test_the_tables_of_the_page_have_what_was_measured(module: Any) -> None:
    for name, table in module.tables(module.kept().rows).items():
        assert shown_table(name) == table


def test_only_a_proof_far_below_its_claim_is_refused() -> None:
    for row in checked.kept().rows:
        weak = row.get("below_percent", 0) > (100 if "settings" in row else 1)
        assert row.get("refused", False) == weak, row["case"]


def test_nothing_false_was_accepted_in_the_trials() -> None:
    for row in checked_trials.kept().rows:
        assert not row.get("above")
        assert not row.get("accepted")
        assert not row.get("broken")
        assert "missed" not in row


def test_comments_docstrings_and_blank_lines_are_no_lines_of_code(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    text = '"""Of two\n\nlines."""\n\n# none\nx = """a\n\nb"""  # one\n\n\n'
    file.write_text(text + 'def f():\n    """None."""\n')
    assert checked_trials.code_lines(file) == 4
