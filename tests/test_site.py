"""The manual as a site: `make docs` builds it, and a reader's browser fetches nothing."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ilp_planner.faces.cli.main import COMMANDS, command_line
from tests.manual import DOCS, PAGES, ROOT

# What a page loads by itself; links that a reader follows are no part of it.
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    """As `make docs` writes it, by the hook that MkDocs loads, which needs no MkDocs for it."""
    spec = importlib.util.spec_from_file_location("pages", DOCS / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    shown = re.split(r"^## ", pages.commands(), flags=re.MULTILINE)[1:]
    sections = {section.partition("\n")[0]: section for section in shown}
    assert {f"ilp-plan {name}" for name in COMMANDS} <= {*sections}
    for name in COMMANDS:
        command = command_line([name]).commands[name]
        options = {option for one in command.params for option in one.opts if option[:2] == "--"}
        assert options - {"--help"} <= {*re.findall(r"--[a-z0-9-]+", sections[f"ilp-plan {name}"])}


@pytest.mark.slow
def test_it_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed: `make docs` does")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert all((tmp_path / page).with_suffix(".html").exists() for page in PAGES)
    for page in tmp_path.rglob("*.html"):
        for script, link in LOADED.findall(page.read_text()):
            assert not re.match(r"(https?:)?//", script or link), f"{page.name}: {script or link}"
    commands = (tmp_path / "reference" / "cli.html").read_text()
    assert all(f"ilp-plan {name}" in commands for name in COMMANDS)
