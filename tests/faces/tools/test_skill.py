"""The skill for agents: a page with the head that they read, and ten questions with commands. Their
answers are held by tests/test_docs.py, as those of every page."""

import re

import yaml

from tests.manual import DOCS, session

PAGE = DOCS / "skills" / "ilp-planner" / "SKILL.md"


def test_the_head_and_the_questions() -> None:
    text = PAGE.read_text()
    head = yaml.safe_load(text.split("---\n")[1])
    assert head["name"] == PAGE.parent.name
    assert 50 < len(head["description"]) <= 1024  # at most, as agents read them
    questions = re.split(r"^\*\*(\d+)\. .*\?\*\*", text, flags=re.MULTILINE)[1:]
    assert questions[::2] == [str(number) for number in range(1, 11)]
    for number, answer in zip(questions[::2], questions[1::2], strict=True):
        (step,) = [one for one in session(answer) if one.command]
        assert step.shown or "export" in step.command, number
    assert len(text.splitlines()) < 130
