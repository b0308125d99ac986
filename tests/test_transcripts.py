"""Pages are rewritten by what commands print now, line by line where a page leaves lines out."""

from pathlib import Path

import pytest

from tests import transcripts
from tests.manual import Step
from tests.transcripts import again, rewritten

PRINTED = "plan      tp 2  pp 4\n\ntime      1.25 s\nmemory    61 GiB  \nnext      check\n"


def shown(*lines: str) -> list[str]:
    return again(Step("ilp-plan solve", "", [*lines]), PRINTED)


def test_a_page_that_shows_all_gets_all() -> None:
    found = shown("plan      tp 4  pp 2", "time      1.5 s")
    assert found == [
        "plan      tp 2  pp 4",
        "",
        "time      1.25 s",
        "memory    61 GiB",
        "next      check",
    ]
    assert shown() == []


def test_shown_lines_become_the_printed_ones_that_are_like_them() -> None:
    assert shown("plan      tp 4  pp 2", "...", "memory    75 GiB") == [
        "plan      tp 2  pp 4", "...", "memory    61 GiB",
    ]  # fmt: skip
    same = shown("...", "memory   61 GiB", "...")
    assert same == ["...", "memory    61 GiB", "..."]


def test_the_order_of_lines_stays() -> None:
    """A line is looked for after those that were found before it."""
    assert shown("memory    75 GiB", "...", "time      1.5 s")[-1] == "next      check"


def test_what_a_page_says_around_its_commands_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = "# Page\n\n```console\n$ ilp-plan --version\n", "```\n\nWords.\n"
    (tmp_path / "page.md").write_text(f"{before}ilp-plan 0\n{after}")
    monkeypatch.setattr(transcripts, "DOCS", tmp_path)
    found = rewritten("page.md", tmp_path)
    assert found.startswith(before)
    assert found.endswith(after)
    assert "ilp-plan 0\n" not in found
