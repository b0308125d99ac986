"""The pages of the manual are found, and what they show is what a user gets."""

import re
import shlex
from pathlib import Path

import pytest

from ilp_planner.cli.main import run
from tests.sweeps.cases import AtOnce

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))
PAGES.remove("index.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_in_the_contents_and_linked_from_the_first(page: str) -> None:
    assert re.search(
        rf"^  - .*: {re.escape(page)}$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE
    )
    assert f"]({page})" in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("page", [*PAGES, "index.md"])
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for target, anchor in re.findall(r"\]\(([\w./-]*\.md)?(?:#([\w-]+))?\)", text):
        linked = (DOCS / page).parent.joinpath(target).read_text() if target else text
        heads = re.findall(r"^#+ (.*)$", linked, re.MULTILINE)
        anchors = {re.sub(r"[^\w-]", "", head.lower().replace(" ", "-")) for head in heads}
        assert not anchor or anchor in anchors


def test_the_messages_on_constraints_are_those_that_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = re.findall(
        r"```console\n(.*?)```", (DOCS / "howto" / "constraints.md").read_text(), re.DOTALL
    )
    lines = block.splitlines()
    for command, shown in zip(lines[::2], lines[1::2], strict=True):
        prompt, program, *words = shlex.split(command)
        assert (prompt, program) == ("$", "ilp-plan")
        assert run(words) == 3
        assert capsys.readouterr().err == f"{shown}\n"


def test_the_commands_on_times_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands run in one folder, one after the other; `...` stands for lines left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    blocks = re.findall(
        r"```console\n(.*?)```", (DOCS / "explain" / "times.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        command, *shown = block.splitlines()
        prompt, program, *words = shlex.split(command)
        assert (prompt, program) == ("$", "ilp-plan")
        assert run(words) == 0
        printed = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in shown if line != "..." and line.split() not in printed] == []
    assert (tmp_path / "trace.json").exists()


def test_the_commands_on_price_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`...` stands for lines left out; the last one is refused."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    blocks = re.findall(
        r"```console\n(.*?)```", (DOCS / "howto" / "price.md").read_text(), re.DOTALL
    )
    shown = [part for block in blocks for part in block.split("$ ilp-plan ")[1:]]
    assert len(shown) == 3
    for place, part in enumerate(shown):
        command, *lines = part.splitlines()
        assert run(shlex.split(command)) == (3 if place == 2 else 0)
        printed = capsys.readouterr()
        printed_lines = [line.split() for line in (printed.out + printed.err).splitlines()]
        assert [x for x in lines if x != "..." and x.split() not in printed_lines] == []
    assert run(["evaluate", "plan.json", "--check-certificate"]) == 0


def test_the_command_on_fitting_prints_what_the_page_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (block,) = re.findall(
        r"```console\n(.*?)```", (DOCS / "howto" / "fit.md").read_text(), re.DOTALL
    )
    command, _, shown = block.partition("\n")
    assert run(shlex.split(command.removeprefix("$ ilp-plan "))) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.slow
def test_the_page_on_sweeps_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    page = (DOCS / "howto" / "sweep.md").read_text()
    (block,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    command, _, shown = block.partition("\n")
    assert run(shlex.split(command.removeprefix("$ ilp-plan "))) == 0
    assert capsys.readouterr().out == shown
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example, {})
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_the_sweeps_of_the_page_are_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the solving; a table of Parquet needs a package."""
    monkeypatch.chdir(tmp_path)
    executor = AtOnce()
    monkeypatch.setattr("ilp_planner.sweeps.sweep.open_executor", lambda name, **said: executor)
    page = (DOCS / "howto" / "sweep.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    counts = []
    for line in block.splitlines():
        program, *words = shlex.split(line.replace("parquet", "csv").replace("sweep.", "other."))
        assert program == "ilp-plan"
        Path("other.csv").unlink(missing_ok=True)
        Path("other.csv.jsonl").unlink(missing_ok=True)
        assert run(words) == 0, capsys.readouterr().err
        assert "0 without" in capsys.readouterr().out
        counts.append(len(executor.given))
    assert counts == [12, 28, 32, 34]


@pytest.mark.slow
def test_the_commands_on_why_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All commands run in one folder, one after the other; `...` stands for lines left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    text = (DOCS / "howto" / "why.md").read_text()
    session = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    for block in session.split("$ ilp-plan ")[1:]:
        command, *shown = block.splitlines()
        run(shlex.split(command))
        printed = capsys.readouterr()
        lines = [line.split() for line in (printed.out + printed.err).splitlines()]
        assert [line for line in shown if line != "..." and line.split() not in lines] == []
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert run(["export", "plan.json", "--to", "megatron", "--output", "run.sh"]) == 0
    exec(example, {})
