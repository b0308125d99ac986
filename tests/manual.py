"""The pages of the manual as tests read them: their blocks of commands, and what these show."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
LEFT_OUT = "..."  # in place of lines that a page does not show


class Step(NamedTuple):
    """A command, or an example of Python, and the lines that the page shows of what it prints.

    command: as it is written, without the prompt; empty of an example.
    example: the source of an example; empty of a command.
    """

    command: str
    example: str
    shown: list[str]

    @property
    def words(self) -> list[str]:
        """Return the words of the command after its name."""
        return words_of(self.command)

    @property
    def refused(self) -> bool:
        """Tell whether the page shows the line that refuses the command, or a verdict that no
        script may take for success."""
        return any(line.startswith(("ilp-plan: ", "MAY NOT FIT")) for line in self.shown)


def blocks(text: str, *kinds: str) -> list[tuple[str, str]]:
    """Return the blocks of these kinds (`console`, `python`, ...) with their kinds, in order."""
    return re.findall(rf"^```({'|'.join(kinds)})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def session(text: str) -> list[Step]:
    """Return what a reader would type who follows a page from its first line to its last."""
    steps = []
    for kind, body in blocks(text, "console", "python"):
        if kind == "python":
            steps.append(Step("", body, []))
            continue
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            steps.append(Step(command, "", shown))
    return steps


def written_commands(text: str) -> list[str]:
    """Return the commands of `ilp-plan` in all blocks for a shell, a line each."""
    lines = []
    for _, body in blocks(text, "console", "sh", "text"):
        joined = body.replace("\\\n", " ")
        lines += [line.removeprefix("$ ") for line in joined.splitlines()]
    return [line for line in lines if line.startswith("ilp-plan ")]


def words_of(command: str) -> list[str]:
    """Return the words of a command after its name, without what a comment says of it."""
    program, *words = shlex.split(command, comments=True)
    assert program == "ilp-plan"
    return words
