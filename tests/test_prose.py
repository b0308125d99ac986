"""Prose is short and in plain words; `python -m tests.prose` prints the counts."""

from tests.manual import ROOT
from tests.prose import asking, lengths, manual, modules, own_words, relative, sentences


def test_sentences_are_counted_without_code_tables_and_links() -> None:
    items = "* One [link](a.md#b). `solve` it.\n* Two\n  words\n"
    page = f"# Head\n\n{items}\n```sh\nNo. Never.\n```\n| no |\n"
    assert sentences(page) == ["One [link].", "`solve` it.", "Two words"]


def test_sentences_of_the_manual_are_short() -> None:
    median, most = lengths(manual())
    assert median <= 17
    assert most <= 32


def test_sentences_of_the_changelog_are_short() -> None:
    median, most = lengths((ROOT / "CHANGELOG.md").read_text())
    assert median <= 17
    assert most <= 32


def test_the_glossary_has_few_words_of_our_own() -> None:
    assert 1 <= len(own_words()) <= 15


def test_no_module_opens_with_a_question() -> None:
    assert asking(modules()) == []


def test_docstrings_have_few_relative_words() -> None:
    assert relative(modules()) <= 1.5
