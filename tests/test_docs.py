"""The README and the pages of the manual: what they show is what a user gets."""

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from ilp_planner.faces.cli.main import command_line, run
from tests.examples import for_each
from tests.faces.sweeps.cases import AtOnce
from tests.manual import (
    DOCS,
    LEFT_OUT,
    PAGES,
    README,
    ROOT,
    Step,
    blocks,
    session,
    words_of,
    written_commands,
)
from tests.metis_cases import SAMPLES, published_cluster, scaled_samples, write_metis_cluster

SHARED = ROOT.parent / "shared" / "data"
OFTEN = ("start/first-plan.md", "start/python.md", "howto/fit.md")  # what the README quotes
# Held by test_docs.py of tests/analysis/calibration and of tests/schemas, and by
# tests/test_readme.py
HELD_ELSEWHERE = ("howto/calibration.md", "explain/times.md", "reference/outputs.md")
# Published files that the commands of a page read
NEEDS = {
    "howto/measure.md": (SAMPLES, SHARED / "alpa" / "prof_database.json"),
    "howto/mixed.md": (SAMPLES, SHARED / "amp" / "profiles.json"),
    "howto/published.md": (SHARED / "aceso" / "eurosys",),
}
COLUMNS = {"howto/replan.md": "140", "howto/why.md": "140"}
SESSIONS = {page: session((DOCS / page).read_text()) for page in PAGES}
NOTEBOOKS = sorted(book.relative_to(DOCS).as_posix() for book in DOCS.rglob("*.ipynb"))
Text = tuple[str, str]  # a page's name and its text
TEXTS = [*((page, (DOCS / page).read_text()) for page in PAGES), ("README", README.read_text())]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with what the commands read, where they may write."""
    folder = tmp_path / "main"
    (folder / "solutions").mkdir(parents=True)
    for name in ("models", "clusters"):
        (folder / name).symlink_to(ROOT / name)
    (tmp_path / "shared").symlink_to(ROOT.parent / "shared")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return folder


def follow(step: Step, capsys: pytest.CaptureFixture[str]) -> str:
    """Do a step; return what it prints."""
    if step.example:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            exec(step.example, {})
        return capsys.readouterr().out
    code = run(step.words)
    captured = capsys.readouterr()
    assert (code != 0) == step.refused, f"{step.command}\n{captured.err}"
    assert "Traceback" not in captured.err
    return captured.out + captured.err


def lines_of(text: str) -> list[list[str]]:
    """Return the words of each line, without the line that says how long a search took."""
    return [line.split() for line in text.splitlines() if line.strip() and "stopped by" not in line]


def check_shown(step: Step, printed: str) -> None:
    """What is shown was printed, in this order; all of it, where nothing says that lines lack."""
    shown, found = lines_of("\n".join(step.shown)), lines_of(printed)
    if [LEFT_OUT] not in shown and not step.refused:
        assert shown == found or not shown
    rest = iter(found)
    assert [line for line in shown if line != [LEFT_OUT] and line not in rest] == []


# ---- commands and examples ----------------------------------------------------------------------


def marked(page: str) -> object:
    """Return a page as a parameter of a test, marked as slow or skipped where it is."""
    lacking = [path for path in NEEDS.get(page, ()) if not path.exists()]
    skip = pytest.mark.skipif(bool(lacking), reason=f"not in ../shared: {[*map(str, lacking)]}")
    return pytest.param(page, marks=[skip, *([] if page in OFTEN else [pytest.mark.slow])])


@pytest.mark.parametrize(
    "page", [marked(page) for page in PAGES if SESSIONS[page] and page not in HELD_ELSEWHERE]
)
def test_a_page_shows_what_its_commands_print(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], page: str
) -> None:
    monkeypatch.setenv("COLUMNS", COLUMNS.get(page, "200"))
    BEFORE.get(page, lambda: None)()
    printed = []
    for step in SESSIONS[page]:
        printed.append(follow(step, capsys))
        check_shown(step, printed[-1])
    AFTER.get(page, lambda printed: None)(printed)


def write_files_of_metis() -> None:
    """4 A100 and 4 T4 with the published profiles, 8 x slower."""
    scaled_samples(Path("profile"), 8)
    write_metis_cluster(published_cluster([4], [4]), Path("hostfile"), Path("clusterfile.json"))


def check_megatron(printed: list[str]) -> None:
    solved, _, analysed, again, judged, simulated, _ = printed
    assert "PROVED OPTIMAL" in solved or "proved optimal" in solved
    assert "FIT" in analysed
    time = re.search(r"iteration time +(\S+ \S+)", judged)
    assert time is not None
    assert f"iteration time  {time[1]}" in again
    assert f"judged          {time[1]}; the schedule takes as long" in simulated
    assert Path("trace.json").exists()
    assert Path("nemo.yaml").exists()


def check_profiles(printed: list[str]) -> None:
    _, links, checked, _, layers, _ = printed
    assert len(re.findall(r"^all_reduce +16 on [24] hosts", links, re.MULTILINE)) == 4
    assert {"measured", "extrapolated"} <= set(links.split())
    assert "1 warning in 27 of 3693 rows" in checked
    assert len(re.findall("tp 8, micro-batch 16", layers)) >= 3
    assert "<svg" in Path("error.html").read_text()
    assert len(list(Path("exported").glob("DeviceType.*.json"))) == 9


def check_mixed(printed: list[str]) -> None:
    _, metis, top, checked, amp, free = printed
    assert metis.startswith("9.293 s per step")  # the optimum of its space by an exact search
    assert len(re.findall(r"^ +(\d+) +\d\.\d{6} ", top, re.MULTILINE)) == 10
    assert "proved by the certificate, derived again" in checked
    assert amp.startswith("1.062 s per step")
    assert "no AMP plan in the search space" in free


def check_python(printed: list[str]) -> None:
    (example,) = printed
    assert "PROVED OPTIMAL" in example or "proved optimal" in example
    assert "True" in example.splitlines()
    assert {"llama.json", "run.sh"} <= {file.name for file in Path().iterdir()}


def check_first_plan(printed: list[str]) -> None:
    files = {file.name for file in Path().iterdir()}
    assert {"plan.json", "trace.json", "run.sh", "plan.html", "plan.svg"} <= files


def check_price(printed: list[str]) -> None:
    assert run(["evaluate", "plan.json", "--check-certificate"]) == 0


BEFORE: dict[str, Callable[[], None]] = {"howto/mixed.md": write_files_of_metis}
AFTER: dict[str, Callable[[list[str]], None]] = {
    "howto/measure.md": check_profiles,
    "howto/megatron.md": check_megatron,
    "howto/mixed.md": check_mixed,
    "howto/price.md": check_price,
    "start/first-plan.md": check_first_plan,
    "start/python.md": check_python,
}


def test_the_sweeps_of_the_page_are_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the solving; a table of Parquet needs a package."""
    monkeypatch.chdir(tmp_path)
    executor = AtOnce()
    monkeypatch.setattr(
        "ilp_planner.faces.sweeps.sweep.open_executor", lambda name, **said: executor
    )
    every = blocks((DOCS / "howto" / "sweep.md").read_text(), "sh")
    counts = []
    for line in (line for _, block in every for line in block.splitlines()):
        words = words_of(line.replace("parquet", "csv").replace("sweep.", "other."))
        Path("other.csv").unlink(missing_ok=True)
        Path("other.csv.jsonl").unlink(missing_ok=True)
        assert run(words) == 0, capsys.readouterr().err
        assert "0 without" in capsys.readouterr().out
        counts.append(len(executor.given))
    assert counts == [12, 28, 32, 34, 466]


# ---- what stands in the text --------------------------------------------------------------------


@for_each("text", TEXTS)
def test_commands_are_written_as_the_command_line_takes_them(text: Text) -> None:
    """Commands and options are those that there are; nothing is run."""
    for line in written_commands(text[1]):
        words = words_of(line.partition(" > ")[0])
        if LEFT_OUT in words or words == ["--install-completion"]:
            continue
        command = command_line(words)
        while isinstance(command, typer.core.TyperGroup):
            command = command.commands[words.pop(0)]
        command.make_context("ilp-plan", words)


@for_each("name", NOTEBOOKS)
def test_a_notebook_is_kept_with_what_it_shows(name: str) -> None:
    """`make notebooks` runs them; every cell was run in order, none failed, and none is large."""
    content = (DOCS / name).read_bytes()
    cells = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = [output for cell in cells for output in cell["outputs"]]
    assert shown
    assert "error" not in {output["output_type"] for output in shown}
    assert len(content) < 100_000


@for_each("page", [*PAGES, *NOTEBOOKS])
def test_every_page_is_in_the_contents(page: str) -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert re.search(rf"^ +- (.*: )?{re.escape(page)}$", contents, re.MULTILINE)


@for_each("text", TEXTS)
def test_links_between_pages_lead_somewhere(text: Text) -> None:
    page, words = text
    folder = ROOT if page == "README" else (DOCS / page).parent
    for target, anchor in re.findall(r"\]\(([\w./-]*)(?:#([\w-]+))?\)", words):
        assert (folder / target).exists(), target
        linked = (folder / target).read_text() if target else words
        heads = re.findall(r"^#+ (.*)$", linked, re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w-]", "", head.lower().replace(" ", "-")) for head in heads}
        assert not anchor or anchor in anchors, f"{target}#{anchor}"
