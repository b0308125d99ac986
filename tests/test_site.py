"""The manual as a site: `make docs` builds it, and a reader's browser fetches nothing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ilp_planner.cli.main import COMMANDS
from tests.manual import PAGES, ROOT

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
# What a page loads by itself; links that a reader follows are no part of it.
LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')


@pytest.mark.slow
def test_it_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
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
