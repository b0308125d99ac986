"""The tables of docs/reference/runtimes.md, made of what `ilp-plan runtimes` prints as JSON.

`python -m tests.runtime_tables` writes them into the page.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from ilp_planner.faces.cli.main import run
from ilp_planner.spaces.registry import RUNTIMES

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "runtimes.md"


def printed(*words: str) -> dict[str, Any]:
    """Return what the command prints as JSON."""
    out = StringIO()
    with redirect_stdout(out):
        assert run(["runtimes", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def with_tables(page: str) -> str:
    """Return a page with today's tables between its markers."""
    tables = {"runtimes": overview(), **{name: settings(name) for name in RUNTIMES}}
    for name, table in tables.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, rest = page.split(begin)
        page = f"{before}{begin}{table}{end}{rest.partition(end)[2]}"
    return page


def overview() -> str:
    """Return the table of systems and releases."""
    rows = [
        (f"`{release['to']}`", release["release"], release["written"], release["checked"],
         "yes" if system["searched"] else "no")
        for system in printed()["runtimes"]
        for release in system["releases"]
    ]  # fmt: skip
    titles = ("`export --to`", "release", "what is written", "checked by", "`solve --runtime`")
    return markdown(titles, rows)


def settings(name: str) -> str:
    """Return the table of the settings of a runtime."""
    rows = [
        (
            row["setting"],
            ", ".join(row["values"]) or "-",
            ", ".join(row["on_request"]),
            row["how"],
            ", ".join(f"`{option}`" for option in row["options"]),
            row["remark"],
        )
        for row in printed(name)["settings"]
    ]
    return markdown(("setting", "plans have", "asked for", "how", "option", "remark"), rows)


def markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "".join(
        f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in line)}|\n" for line in lines
    )


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
