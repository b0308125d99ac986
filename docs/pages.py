"""Pages that `make docs` writes: the command line from itself, and files from outside of docs/.

A hook of MkDocs (`hooks` in mkdocs.yml). Links to files of the repository become links to the page
that the file is on, or to the repository.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ilp_planner.faces.cli.help import EXAMPLES, sections_of
from ilp_planner.faces.cli.main import command_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
REPOSITORY = "https://github.com/ilp-planner/ilp-planner/blob/main"
# Files of the repository -> the page of the manual that shows them
SHOWN = {
    "models/README.md": "reference/model-files.md",
    "clusters/README.md": "reference/cluster-files.md",
    "CONTRIBUTING.md": "dev/contributing.md",
    "tests/README.md": "dev/tests.md",
    "CHANGELOG.md": "dev/changelog.md",
}
COMMANDS = "<!-- commands -->"  # where a page has all commands
# Pages that the contents have a place for, and that may not be there yet
AWAITED = ("howto/replan.md",)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave out of the contents what is awaited and not there."""
    lacking = [page for page in AWAITED if not (ROOT / "docs" / page).exists()]
    config.nav = _without(config.nav, lacking)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/."""
    # Imported here: what is written of the commands is tested without MkDocs as well.
    from mkdocs.structure.files import File

    for source, page in SHOWN.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Put in the commands, and let links to files of the repository lead to pages, or there."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, commands())
    here = page.file.src_uri
    source = next((name for name, shown in SHOWN.items() if shown == here), f"docs/{here}")

    def led(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = os.path.normpath(PurePosixPath(source).parent / target)
        if path in SHOWN:
            shown = SHOWN[path]
        elif path.startswith("docs/"):
            shown = path.removeprefix("docs/")
        else:
            return f"]({REPOSITORY}/{path}{anchor})"
        return f"]({os.path.relpath(shown, PurePosixPath(here).parent)}{anchor})"

    return re.sub(r"\]\((?![a-z]+:)([\w./-]+)(#[\w-]+)?\)", led, markdown)


def commands() -> str:
    """Return all commands with their sections of options, as Markdown."""
    app = command_line([])
    context = app.make_context("ilp-plan", [], resilient_parsing=True)
    table = _table(sections_of(app, context)["Commands"], "Command")
    return "\n\n".join([table, *_described(app, context)])


def _described(group: Any, context: Any) -> Iterator[str]:
    for name, command in group.commands.items():
        own = command.make_context(name, [], parent=context, resilient_parsing=True)
        yield f"## {own.command_path}"
        yield _escaped(command.help or "")
        yield f"```text\n{command.get_usage(own)}\n```"
        if hasattr(command, "commands"):
            yield from _described(command, own)
            continue
        for title, records in sections_of(command, own).items():
            yield _table(records, title)
        yield from _examples(own.command_path.partition(" ")[2])


def _examples(name: str) -> Iterator[str]:
    lines = [f"{line}{f'    # {what}' if what else ''}" for line, what in EXAMPLES.get(name, ())]
    if lines:
        yield "```sh\n" + "\n".join(lines) + "\n```"


def _table(records: list[tuple[str, str]], title: str) -> str:
    rows = [f"| {_escaped(f'`{name}`')} | {_escaped(text)} |" for name, text in records]
    return "\n".join([f"| {title} | |", "|---|---|", *rows])


def _escaped(text: str) -> str:
    """Return a text whose letters Markdown takes for themselves, but for code between backticks."""
    parts = re.split(r"(`[^`]*`)", text if "\n\n" in text else " ".join(text.split()))
    return "".join(
        part if part.startswith("`") else re.sub(r"([\[\]<>*_|])", r"\\\1", part) for part in parts
    )


def _without(contents: Any, lacking: list[str]) -> Any:
    """Return a list of contents, with the lists in it, without these pages."""
    if isinstance(contents, list):
        kept = [_without(entry, lacking) for entry in contents]
        return [entry for entry in kept if entry]
    if isinstance(contents, dict):
        kept = {title: _without(entry, lacking) for title, entry in contents.items()}
        return {title: entry for title, entry in kept.items() if entry}
    return None if contents in lacking else contents
